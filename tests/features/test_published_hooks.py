"""The hooks of a conversation in the published format, run by the feature."""

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.config.settings import HookSettings
from ctxagent.agent.events import Answer, Event, Notice, Question, TurnFinished
from ctxagent.agent.extensions.hook_files import PublishedHook
from ctxagent.agent.features import hooks as hooks_module
from ctxagent.agent.features.hooks import HooksFeature
from ctxagent.agent.features.published_hooks import HookOutcome
from ctxagent.agent.loop.interface import IncomingMessage, Ruling, ToolCall, Turn, Veto
from ctxagent.agent.models.base import Reply
from ctxagent.agent.security.redaction import Redaction
from ctxagent.agent.session.entries import Note, Usage, User
from ctxagent.tools.base import Context, Output

from ..support.command import comes
from ..support.sessions.setup import live_session

LISTEN = "cat >> heard"
REPLY = Reply([{"type": "text", "text": "Done."}], Usage(), "end_turn", "m")


class Talk:
    """A feature with hooks, and what it emits and records."""

    def __init__(self, root: Path, *hooks: PublishedHook, folder: str = "s1", **more: Any) -> None:
        self.cwd, self.events = root, list[Event]()
        session = root / folder
        context = Context(cwd=root, session_dir=session, env={"PATH": os.environ["PATH"]})
        self.session = live_session(
            root, session / "log.jsonl", emit=self.events.append, context=context
        )
        self.asked = list[Question]()

        async def ask(question: Question) -> Answer | None:
            self.asked.append(question)
            return Answer(allow=True)

        self.session.ask = ask
        self.feature = HooksFeature(self.session, HookSettings(), hooks, **more)

    def run(self, *steps: Callable[[HooksFeature], Coroutine[Any, Any, Any]]) -> list[Any]:
        async def all_steps() -> list[Any]:
            return [await step(self.feature) for step in steps]

        return asyncio.run(all_steps())

    @property
    def said(self) -> list[str]:
        found = (entry for entry in self.session.log.entries() if isinstance(entry, User))
        return [str(entry.content).partition("\n")[2] for entry in found]

    @property
    def warnings(self) -> list[str]:
        found = (event for event in self.events if isinstance(event, Notice))
        return [event.text for event in found if event.level == "warning"]

    @property
    def heard(self) -> list[dict[str, Any]]:
        path = self.cwd / "heard"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def hook(event: str, line: str, **more: Any) -> PublishedHook:
    return PublishedHook("plugin kit", event, line, **more)


def says(**own: Any) -> str:
    return f"echo '{json.dumps({'hookSpecificOutput': own})}'"


def call(command: str = "ls", tool: str = "Bash", **arguments: Any) -> ToolCall:
    given = arguments or {"command": command}
    return ToolCall("t1", tool, "a title", given, Path("/"))


def test_one_after_another_with_what_the_one_before_changed(tmp_path: Path) -> None:
    change = says(permissionDecision="allow", updatedInput={"command": "two"})
    talk = Talk(tmp_path, hook("PreToolUse", change), hook("PreToolUse", LISTEN))
    (found,) = talk.run(lambda f: f.before_tool(call("one")))
    told = "the hook PreToolUse of the plugin kit allows it: it gave no reason"
    assert found == Ruling("allow", told, {"command": "two"})
    assert talk.heard[0]["tool_input"] == {"command": "two"}


def test_a_refusal_ends_the_row_and_the_strictest_counts(tmp_path: Path) -> None:
    rows = [says(permissionDecision=each) for each in ("ask", "allow")]
    talk = Talk(tmp_path, *(hook("PreToolUse", row) for row in rows))
    assert talk.run(lambda f: f.before_tool(call()))[0].action == "ask"
    deny = hook("PreToolUse", "echo no >&2; exit 2")
    talk = Talk(tmp_path, deny, hook("PreToolUse", LISTEN), folder="s2")
    with pytest.raises(Veto, match="the hook PreToolUse of the plugin kit prevented it: no"):
        talk.run(lambda f: f.before_tool(call()))
    assert talk.heard == []


def test_arguments_alone_decide_nothing(tmp_path: Path) -> None:
    talk = Talk(tmp_path, hook("PreToolUse", says(updatedInput={"command": "two"})))
    assert talk.run(lambda f: f.before_tool(call())) == [Ruling(arguments={"command": "two"})]
    talk = Talk(tmp_path, hook("PreToolUse", says(updatedInput={"command": "ls"})), folder="s2")
    assert talk.run(lambda f: f.before_tool(call())) == [None]


@pytest.mark.parametrize(
    ("condition", "tool", "given", "runs"),
    [
        ("Bash(git push:*)", "Bash", {"command": "cd x && git push -f"}, True),
        ("Bash(git push:*)", "Bash", {"command": "git status"}, False),
        ("Edit(src/**)", "Write", {"path": "src/a.py", "content": ""}, True),
        ("Edit(src/**)", "Write", {"path": "docs/a.md", "content": ""}, False),
        ("mcp__memory__*", "mcp__memory__read", {"a": 1}, True),
        ("mcp__other__*", "mcp__memory__read", {"a": 1}, False),
        ("Bash(ls:*)", "Bash", {"wrong": 1}, True),
        ("No rule at all", "Bash", {"command": "ls"}, True),
    ],
)
def test_a_condition(
    tmp_path: Path, condition: str, tool: str, given: dict[str, Any], runs: bool
) -> None:
    talk = Talk(tmp_path, hook("PreToolUse", LISTEN, condition=condition))
    made = ToolCall("1", tool, "t", given, tmp_path)
    talk.run(lambda f: f.before_tool(made), lambda f: f.before_tool(made))
    assert bool(talk.heard) == runs
    assert len(talk.warnings) == (condition == "No rule at all")


def test_conditions_are_judged_on_what_the_hook_before_changed(tmp_path: Path) -> None:
    rows = [
        hook("PreToolUse", "touch never", condition="Bash(git push:*)"),
        hook("PreToolUse", says(updatedInput={"command": "git push"})),
        hook("PreToolUse", "echo no >&2; exit 2", condition="Bash(git push:*)"),
    ]
    talk = Talk(tmp_path, *rows)
    with pytest.raises(Veto, match="prevented it: no"):
        talk.run(lambda f: f.before_tool(call("git status")))
    assert not (tmp_path / "never").exists()
    talk = Talk(
        tmp_path, *rows[1:2], hook("PreToolUse", LISTEN, condition="Bash(ls:*)"), folder="s2"
    )
    talk.run(lambda f: f.before_tool(call("ls")))
    assert talk.heard == []


def test_a_start_text_that_is_in_the_context_is_not_recorded_again(tmp_path: Path) -> None:
    start = hook("SessionStart", "echo hello")
    talk = Talk(tmp_path, start)
    talk.run(lambda f: f.session_started())
    again = HooksFeature(talk.session, HookSettings(), [start], begins="resume")
    asyncio.run(again.session_started())
    assert talk.said == ["hello"]
    notes = [entry for entry in talk.session.log.entries() if isinstance(entry, Note)]
    assert [note.data["source"] for note in notes] == ["startup", "resume"]


def test_a_start_that_a_kill_cut_is_made_up_for(tmp_path: Path) -> None:
    start = hook("SessionStart", "echo hello", matcher="startup|compact")
    talk = Talk(tmp_path, start, begins="resume")
    talk.run(lambda f: f.session_started())
    assert talk.said == ["hello"]


def test_a_session_that_begins_after_clear(tmp_path: Path) -> None:
    rows = [hook("SessionStart", f"echo {name}", matcher=name) for name in ("clear", "startup")]
    talk = Talk(tmp_path, *rows, begins="clear")
    talk.run(lambda f: f.session_started())
    assert talk.said == ["clear"]


def test_secrets_are_removed_from_hook_output(tmp_path: Path) -> None:
    talk = Talk(tmp_path, hook("SessionStart", "echo the key"))
    talk.session.log.redact = lambda entry: (  # type: ignore[assignment, return-value]
        User(content=entry.content.replace("key", "***"), source=entry.source)  # type: ignore[union-attr]
        if isinstance(entry, User)
        else entry
    )
    talk.run(lambda f: f.session_started())
    assert talk.said == ["the ***"]


def test_known_secrets_are_removed_from_hook_input(tmp_path: Path) -> None:
    rows = [hook(event, LISTEN) for event in ("UserPromptSubmit", "PreToolUse")]
    talk = Talk(tmp_path, *rows)
    secret = 'a"Key\\of4mine'
    talk.session.log.redact = Redaction({secret: "MY_TOKEN"}).clean
    talk.run(
        lambda f: f.message_received(IncomingMessage(f"use {secret}")),
        lambda f: f.before_tool(call(f"curl -H {secret}")),
    )
    assert [event.get("prompt") for event in talk.heard] == ["use [redacted: MY_TOKEN]", None]
    assert talk.heard[1]["tool_input"] == {"command": "curl -H [redacted: MY_TOKEN]"}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("./gone.sh", "could not start `./gone.sh`: it failed (exit 127): "),
        ("./plain", "could not start `./plain`: it failed (exit 126): "),
        ("a\0b", "did not start: "),
        ("exit 3", "failed (exit 3): no output"),
    ],
)
def test_a_guard_that_fails_is_named_and_the_call_goes_on(
    tmp_path: Path, line: str, problem: str
) -> None:
    (tmp_path / "plain").write_text("no program")
    talk = Talk(tmp_path, PublishedHook("file .claude/settings.json", "PreToolUse", line))
    assert talk.run(lambda f: f.before_tool(call())) == [None]
    (warning,) = talk.warnings
    assert warning.startswith(f"the hook PreToolUse of the file .claude/settings.json {problem}")
    assert warning.endswith(". The call continues without this hook")


def test_failures_and_words_for_the_user(tmp_path: Path) -> None:
    note = f"echo '{json.dumps({'systemMessage': 'mind the gap'})}'"
    rows = [hook("Stop", "exit 3"), hook("Stop", note), hook("Stop", says(updatedToolOutput="x"))]
    talk = Talk(tmp_path, *rows, hook("SessionEnd", "echo late >&2; exit 2"))
    received = lambda f: f.reply_received(REPLY, is_final=True)  # noqa: E731
    assert talk.run(received, received, lambda f: f.session_ended()) == [None, None, None]
    assert talk.warnings == [
        "the hook Stop of the plugin kit failed (exit 3): no output",
        "plugin kit: mind the gap",
        "the hook Stop of the plugin kit answers updatedToolOutput, which is not supported here",
        "the hook Stop of the plugin kit failed (exit 3): no output",
        "plugin kit: mind the gap",
        "the hook SessionEnd of the plugin kit says: late",
    ]
    assert talk.feature.last_runs["Stop", "exit 3"].outcome == "failed (exit 3): no output"


def test_calls_of_tools_begin_the_count_of_continuations_again(tmp_path: Path) -> None:
    talk = Talk(tmp_path, hook("Stop", "echo more >&2; exit 2"))

    async def go_on(feature: HooksFeature) -> list[str | None]:
        await feature.turn_started(Turn())
        found = list[str | None]()
        for _ in range(6):
            found.append(await feature.reply_received(REPLY, is_final=True))
        await feature.tool_finished(call(), Output("x"), 0.1)
        while len(found) < 200 and found[-1] is not None:
            found.append(await feature.reply_received(REPLY, is_final=True))
        return found

    (found,) = talk.run(go_on)
    assert found == [""] * (6 + hooks_module.MAX_CONTINUATIONS_IN_A_ROW) + [None]


def test_hooks_in_the_background_are_heard_later_and_ended_at_the_close(tmp_path: Path) -> None:
    late = says(additionalContext="late")
    rows = [hook("PostToolUse", each, in_background=True) for each in (late, "sleep 900")]
    talk = Talk(tmp_path, *rows)

    async def act(feature: HooksFeature) -> None:
        await feature.tool_finished(call(), Output("x"), 0.1)
        while not talk.said:
            await asyncio.sleep(0.01)
            await feature.before_call()
        await feature.close()

    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr("ctxagent.agent.features.published_hooks.MAX_CLOSING_S", 0.1)
        talk.run(act)
    assert talk.said == ["late"]


def test_a_hook_moves_itself_to_the_background(tmp_path: Path) -> None:
    line = f"""echo '{{"async": true}}'; read -r < go; {says(additionalContext="late")}"""
    os.mkfifo(tmp_path / "go")
    talk = Talk(tmp_path, hook("UserPromptSubmit", line))

    async def act(feature: HooksFeature) -> None:
        await feature.message_received(IncomingMessage("hi"))
        await asyncio.to_thread((tmp_path / "go").write_text, "go\n")
        while not talk.said:
            await asyncio.sleep(0.01)
            await feature.before_call()

    talk.run(act)
    assert talk.said == ["late"]


def test_questions_and_idle_times_are_notified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks_module, "IDLE_S", 0.01)
    talk = Talk(tmp_path, hook("Notification", LISTEN))
    question = Question("Bash", "ls", {}, "", "")

    async def act(feature: HooksFeature) -> None:
        assert talk.session.ask is not None
        assert await talk.session.ask(question) == Answer(allow=True)
        await feature.turn_ended(TurnFinished("ok", ""))
        assert await asyncio.to_thread(comes, lambda: len(talk.heard) == 2)
        await feature.close()

    talk.run(act)
    assert talk.asked == [question]
    kinds = [event["notification_type"] for event in talk.heard]
    assert sorted(kinds) == ["idle_prompt", "permission_prompt"]


def test_a_subagent_has_events_of_its_own(tmp_path: Path) -> None:
    events = ("SessionStart", "SubagentStart", "Stop", "SubagentStop", "SessionEnd", "PreToolUse")
    rows = [hook(event, LISTEN) for event in events]
    talk = Talk(tmp_path, *rows, folder="s1/agents/explore-1", kind="explore")
    talk.run(
        lambda f: f.session_started(),
        lambda f: f.before_tool(call()),
        lambda f: f.reply_received(REPLY, is_final=True),
        lambda f: f.session_ended(),
    )
    names = [event["hook_event_name"] for event in talk.heard]
    assert names == ["SubagentStart", "PreToolUse", "SubagentStop"]
    for event in talk.heard:
        assert (event["session_id"], event["agent_id"]) == ("s1", "explore-1")
        assert event["agent_type"] == "Explore"


def test_nothing_is_done_without_a_hook(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    talk.run(
        lambda f: f.session_started(),
        lambda f: f.before_tool(call()),
        lambda f: f.reply_received(REPLY, is_final=True),
        lambda f: f.after_summary({"trigger": "manual"}),
    )
    assert talk.events == []
    assert talk.said == []
    assert [*talk.session.log.entries()] == []
    assert asyncio.run(talk.feature.published.run("Stop")) == HookOutcome()
