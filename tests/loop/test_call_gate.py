"""Permission for calls: decisions of rules, features and the user, and what is recorded."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.config.settings import PermissionMode
from ctxagent.agent.events import (
    Answer,
    Event,
    Notice,
    Question,
    ToolFinished,
    TurnFinished,
)
from ctxagent.agent.loop.call_arguments import CallRefused
from ctxagent.agent.loop.call_gate import TOO_MANY_GUARDED, CallGate
from ctxagent.agent.loop.dispatch import Features
from ctxagent.agent.loop.interface import Feature, Ruling, ToolCall, Veto
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.permissions.objections import Verdict
from ctxagent.agent.security.planted import PlantedWatch
from ctxagent.agent.security.sandbox import Sandbox
from ctxagent.agent.session.entries import Note, ToolResult
from ctxagent.tools.base import Context, Output, Params, Tool
from ctxagent.tools.bash import BashTool
from ctxagent.tools.edit import EditTool
from ctxagent.tools.system.confinement import CommandLimits

from ..support.machine import lacks
from ..support.sessions.conversation import Conversation, answering


def test_a_question_says_what_the_command_deletes(project: Path) -> None:
    (project / "a").touch()
    ask, questions = answering(Answer(allow=False))
    Conversation(
        project,
        [Step(tools=[("Bash", {"command": "rm a && touch b"})]), Step(text="ok")],
        mode="ask",
        ask=ask,
    ).say("go")
    (question,) = questions
    assert question.effects == ("deletes a; /rewind restores it",)
    assert question.reason == "`rm a` deletes a; /rewind restores it"
    assert [reason for _, reason in question.causes] == [
        question.reason,
        "`touch b` may change something",
    ]


def test_permission_is_asked_by_the_loop(project: Path) -> None:
    ask, questions = answering(
        Answer(allow=True, rule="Bash(touch:*)", where="session"),
        Answer(allow=False, reason="not that file"),
    )
    talk = Conversation(
        project,
        [
            Step(tools=[("Bash", {"command": "touch a"}), ("Bash", {"command": "touch a b"})]),
            Step(tools=[("Write", {"path": "c.txt", "content": "hello\n"})]),
            Step(text="ok"),
        ],
        mode="ask",
        ask=ask,
    )
    assert talk.say("go").status == "ok"
    assert [q.tool for q in questions] == ["Bash", "Write"]
    assert questions[0].rule == "Bash(touch:*)"
    assert questions[1].diff is not None
    assert "+hello" in questions[1].diff
    assert sorted(p.name for p in project.iterdir()) == ["a", "b"]
    refused = talk.of(ToolResult)[-1]
    assert refused.is_error
    assert refused.content == "The user declined this call. They say: not that file"
    assert questions[0].effects == ()
    always, no = talk.of(Note)
    assert (always.topic, always.text) == ("permission", "allowed: Bash touch a")
    assert always.data["answer"] == "always"
    assert (always.data["rule"], always.data["where"]) == ("Bash(touch:*)", "session")
    assert (no.topic, no.text) == ("permission", "not authorised: Write c.txt")
    assert (no.data["answer"], no.data["reason"]) == ("no", "not that file")
    assert talk.agent.ledger.denials == [no.text]
    # The reason is a message of the user, which a summary keeps.
    words = [(message.ref, message.text) for message in talk.agent.ledger.messages]
    assert words == [(2, "go"), (refused.seq, "not that file")]


EDIT = {"path": "c.txt", "old_string": "secret lime", "new_string": "x"}


def test_a_call_that_must_fail_is_not_asked_about(project: Path) -> None:
    (project / "c.txt").write_text("secret line\n")
    ask, questions = answering()
    steps = [Step(tools=[("Edit", EDIT)]), Step(text="ok")]
    talk = Conversation(project, steps, mode="ask", ask=ask)
    assert talk.say("go").status == "ok"
    assert questions == []
    (failed,) = talk.of(ToolResult)
    assert failed.is_error
    assert "secret line" in failed.content


@pytest.mark.slow
def test_the_users_thinking_time_does_not_count_for_a_declined_call(project: Path) -> None:
    async def slow(question: Question) -> Answer:
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", "pass"], check=True)
        return Answer(allow=False)

    steps = [Step(tools=[("Bash", {"command": "touch a"})]), Step(text="ok")]
    talk = Conversation(project, steps, mode="ask", ask=slow)
    talk.say("go")
    assert [e.seconds for e in talk.events if isinstance(e, ToolFinished)] == [0.0]


@pytest.mark.parametrize("deny", ["Edit(c.txt)", "Read(c.txt)"])
def test_a_failing_call_reveals_nothing_of_an_unreadable_file(project: Path, deny: str) -> None:
    (project / "c.txt").write_text("secret line\n")
    ask, questions = answering(Answer(allow=False))
    steps = [Step(tools=[("Edit", EDIT)]), Step(text="ok")]
    talk = Conversation(project, steps, mode="ask", deny=[deny], ask=ask)
    talk.say("go")
    assert [q.diff for q in questions] == ([None] if deny.startswith("Read") else [])
    (refused,) = talk.of(ToolResult)
    assert refused.details.get("denied") is True
    assert "secret" not in refused.content


def test_where_nobody_can_be_asked_the_call_is_denied_and_the_rule_named(project: Path) -> None:
    talk = Conversation(
        project,
        [Step(tools=[("Bash", {"command": "touch a"})]), Step(text="I could not.")],
        mode="ask",
    )
    finished = talk.say("go")
    assert (finished.status, finished.text) == ("denied", "I could not.")
    assert finished.error is not None
    assert "--allow 'Bash(touch:*)'" in finished.error["message"]
    assert list(project.iterdir()) == []


def test_a_deny_rule_holds_in_bypass(project: Path) -> None:
    talk = Conversation(
        project,
        [Step(tools=[("Bash", {"command": "true && touch a"})]), Step(text="no")],
        deny=["Bash(touch:*)"],
    )
    assert talk.say("go").status == "ok"
    assert talk.of(ToolResult)[0].is_error
    assert list(project.iterdir()) == []


def test_interrupting_a_question_records_the_call_as_not_done(project: Path) -> None:
    async def run() -> TurnFinished:
        asked = asyncio.Event()

        async def ask(question: object) -> Answer:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        talk.agent.ask = ask
        turn = asyncio.ensure_future(run_turn(talk.agent, "go"))
        await asked.wait()
        turn.cancel()
        return await turn

    talk = Conversation(
        project, [Step(tools=[("Bash", {"command": "touch a"})]), Step(text="fine")], mode="ask"
    )
    assert asyncio.run(run()).status == "interrupted"
    assert "interrupted" in talk.of(ToolResult)[0].content
    assert list(project.iterdir()) == []
    assert talk.say("go on").text == "fine"


class Gatekeeper(Feature):
    """Changes the arguments of a call, or vetoes it."""

    name = "gatekeeper"

    def __init__(self, talk: Conversation, given: "Mapping[str, Any] | Veto") -> None:
        super().__init__(talk.agent)
        self.given = given
        talk.agent.features.add(self)

    async def before_tool(self, call: ToolCall) -> Mapping[str, Any]:
        if isinstance(self.given, Veto):
            raise self.given
        return self.given


def touch(name: str) -> Step:
    return Step(tools=[("Bash", {"command": f"touch {name}"})])


def test_a_veto_of_a_feature_is_a_denial_with_its_reason(project: Path) -> None:
    talk = Conversation(project, [touch("a"), Step(text="no")])
    Gatekeeper(talk, Veto("not on a Sunday"))
    assert talk.say("go").status == "ok"
    (refused,) = talk.of(ToolResult)
    assert (refused.content, refused.details["denied"]) == ("Not allowed: not on a Sunday", True)
    (note,) = talk.of(Note)
    assert (note.text, note.data["answer"]) == ("not authorised: Bash touch a", "hook")
    assert list(project.iterdir()) == []


def test_a_call_that_a_feature_changed_is_judged_again(project: Path) -> None:
    talk = Conversation(project, [touch("a"), Step(text="no")], deny=["Bash(rm:*)"])
    Gatekeeper(talk, {"command": "rm -r ."})
    talk.say("go")
    assert talk.of(ToolResult)[0].content.startswith("Not allowed: ")
    assert talk.of(Note)[0].text == "not authorised: Bash rm -r ."


def test_the_user_is_asked_about_the_call_as_a_feature_changed_it(project: Path) -> None:
    ask, questions = answering(Answer(allow=True))
    talk = Conversation(project, [touch("a"), Step(text="ok")], mode="ask", ask=ask)
    Gatekeeper(talk, {"command": "touch b"})
    talk.say("go")
    assert [(q.title, q.input) for q in questions] == [("touch b", {"command": "touch b"})]
    assert [path.name for path in project.iterdir()] == ["b"]


def test_arguments_of_a_feature_that_fit_no_tool_are_refused(project: Path) -> None:
    talk = Conversation(project, [touch("a"), Step(text="ok")])
    Gatekeeper(talk, {"comand": "touch b"})
    assert talk.say("go").status == "ok"
    assert "- comand: Extra inputs are not permitted" in talk.of(ToolResult)[0].content
    assert list(project.iterdir()) == []


class Judge(Feature):
    """Rules on calls, and answers questions about them."""

    name = "judge"

    def __init__(self, talk: Conversation, before: Ruling | None, answer: Any = None) -> None:
        super().__init__(talk.agent)
        self.before, self.answer = before, answer
        talk.agent.features.add(self)

    async def before_tool(self, call: ToolCall) -> Ruling | None:
        return self.before

    async def before_question(self, call: ToolCall, reason: str) -> Ruling | None:
        if isinstance(self.answer, Veto):
            raise self.answer
        found: Ruling | None = self.answer
        return found


def test_a_feature_may_ask_in_a_mode_that_asks_nothing(project: Path) -> None:
    ask, questions = answering(Answer(allow=True))
    talk = Conversation(project, [touch("a"), Step(text="ok")], ask=ask)
    Judge(talk, Ruling("ask", "look twice"))
    talk.say("go")
    (question,) = questions
    assert (question.reason, question.offers) == ("look twice", ())
    assert question.settled() is None
    talk.agent.approval.mode = "plan"
    settled = question.settled()
    assert settled is not None
    assert not settled.allow
    assert [path.name for path in project.iterdir()] == ["a"]


@pytest.mark.parametrize(("mode", "made"), [("ask", True), ("accept-edits", True), ("plan", False)])
def test_what_a_feature_allows_counts_like_an_allow_rule(
    project: Path, mode: PermissionMode, made: bool
) -> None:
    talk = Conversation(project, [touch("a"), Step(text="ok")], mode=mode)
    Judge(talk, Ruling("allow", "it is harmless"))
    talk.say("go")
    assert bool([*project.iterdir()]) == made
    note = talk.of(Note)[0]
    assert (note.text == "allowed: Bash touch a") == made
    assert (note.data["reason"] == "it is harmless") == made


def with_deny_rule(talk: Conversation, project: Path) -> None:
    talk.agent.approval = Approval(mode="ask", deny=("Bash(touch:*)",), cwd=project)


def in_plan_mode(talk: Conversation, project: Path) -> None:
    talk.agent.approval.mode = "plan"


@pytest.mark.parametrize("change", [with_deny_rule, in_plan_mode])
def test_rules_that_change_while_a_feature_answers_are_applied(
    project: Path, change: Callable[[Conversation, Path], None]
) -> None:
    talk = Conversation(project, [touch("a"), Step(text="ok")], mode="ask")

    class Slow(Judge):
        async def before_question(self, call: ToolCall, reason: str) -> Ruling | None:
            change(talk, project)
            return Ruling("allow", "always")

    Slow(talk, None)
    talk.say("go")
    assert [*project.iterdir()] == []
    assert talk.of(ToolResult)[0].content.startswith("Not allowed: ")


def test_rules_that_change_while_a_feature_looks_at_an_allowed_call_are_applied(
    project: Path,
) -> None:
    talk = Conversation(project, [touch("a"), Step(text="ok")], mode="bypass")

    class Slow(Judge):
        async def before_tool(self, call: ToolCall) -> Ruling | None:
            await asyncio.sleep(0)
            with_deny_rule(talk, project)
            return None

    Slow(talk, None)
    talk.say("go")
    assert [*project.iterdir()] == []
    assert talk.of(ToolResult)[0].content.startswith("Not allowed: ")


def test_a_link_that_moves_while_a_feature_answers_is_refused(
    project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("secret lime\n")
    (project / "c.txt").symlink_to(other)

    class Slow(Judge):
        async def before_question(self, call: ToolCall, reason: str) -> Ruling | None:
            (project / "c.txt").unlink()
            (project / "c.txt").write_text("secret lime\n")
            return Ruling("allow", "always")

    steps = [Step(tools=[("Edit", EDIT)]), Step(text="ok")]
    talk = Conversation(project, steps, mode="accept-edits")
    Slow(talk, None)
    talk.say("go")
    expected = "Not done: since it was asked about, it leads elsewhere. Call it again."
    assert talk.of(ToolResult)[0].content == expected


def test_a_feature_answers_in_place_of_the_user(project: Path) -> None:
    talk = Conversation(project, [touch("a"), Step(text="ok")], mode="ask")
    Judge(talk, None, Ruling("allow", "always", {"command": "touch b"}))
    talk.say("go")
    assert [path.name for path in project.iterdir()] == ["b"]
    assert talk.of(Note)[0].text == "allowed: Bash touch b"
    assert talk.of(ToolResult)[0].details["arguments"]["command"] == "touch b"


@pytest.mark.parametrize(
    "answer", [Veto("not on a Sunday"), Ruling("allow", "x", {"command": "rm b"})]
)
def test_an_answer_of_a_feature_allows_nothing_that_is_denied(project: Path, answer: Any) -> None:
    steps = [touch("a"), Step(text="ok")]
    talk = Conversation(project, steps, mode="ask", deny=["Bash(rm:*)"])
    Judge(talk, None, answer)
    talk.say("go")
    assert talk.of(ToolResult)[0].content.startswith("Not allowed: ")
    assert list(project.iterdir()) == []


def test_a_denied_call_reaches_no_feature(project: Path) -> None:
    talk = Conversation(project, [touch("a"), Step(text="ok")], deny=["Bash(touch:*)"])
    Gatekeeper(talk, ZeroDivisionError("never raised"))  # type: ignore[arg-type]
    talk.say("go")
    assert "never raised" not in str(talk.of(ToolResult)[0].content)


def test_a_rule_that_was_made_while_the_user_was_asked_counts(project: Path) -> None:
    async def ask(question: Question) -> Answer:
        assert question.settled is not None
        assert question.settled() is None
        talk.agent.approval.mode = "plan"
        settled = question.settled()
        assert settled is not None
        return settled

    talk = Conversation(project, [touch("a"), Step(text="ok")], mode="ask", ask=ask)
    talk.say("go")
    assert talk.of(ToolResult)[0].content.startswith("Not allowed: ")
    assert list(project.iterdir()) == []


def test_a_file_that_leads_elsewhere_by_the_time_of_the_answer_is_not_edited(
    project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("secret lime\n")
    (project / "c.txt").write_text("secret lime\n")

    async def ask(question: Question) -> Answer:
        (project / "c.txt").unlink()
        (project / "c.txt").symlink_to(other)
        return Answer(allow=True)

    steps = [Step(tools=[("Edit", EDIT)]), Step(text="ok")]
    talk = Conversation(project, steps, mode="ask", ask=ask)
    talk.say("go")
    assert talk.of(ToolResult)[0].content.startswith("Not done: since it was asked about, ")
    assert other.read_text() == "secret lime\n"


@pytest.mark.parametrize(
    ("allow", "deny", "reason"),
    [
        (["Network(pypi.org)"], [], ""),
        ([], ["Network(pypi.org)"], "Not allowed: "),
        ([], [], "Not allowed: pypi.org is not in sandbox.network"),
    ],
)
def test_a_host_is_reached_by_the_rules_of_calls(
    project: Path, allow: list[str], deny: list[str], reason: str
) -> None:
    talk = Conversation(project, allow=allow, deny=deny)
    why = asyncio.run(talk.agent.runner.gate.network_refusal("pypi.org"))
    assert why.startswith(reason)
    assert bool(why) == bool(reason)


class Cautious(Tool[Params]):
    """Asks the user even if a rule allows the call."""

    name, description, effect, Params = "WebSearch", "Waits.", "run", Params

    def why_ask_anyway(self, params: Params, context: Context) -> str:
        return "it is Sunday"

    async def run(self, params: Params, context: Context) -> Output:
        return Output("done")


@pytest.mark.parametrize(
    ("mode", "rules", "reasons", "content"),
    [
        ("ask", {"allow": ["WebSearch"]}, ["it is Sunday"], "done"),
        ("ask", {}, ["it is Sunday; WebSearch may change something"], "done"),
        (
            "ask",
            {"deny": ["WebSearch"]},
            [],
            "Not allowed: WebSearch is denied by the rule WebSearch",
        ),
        ("bypass", {}, [], "done"),
    ],
)
def test_a_tool_may_ask_although_a_rule_allows_it(
    project: Path, mode: PermissionMode, rules: dict[str, list[str]], reasons: list[str],
    content: str,
) -> None:  # fmt: skip
    ask, questions = answering(Answer(allow=True))
    steps = [Step(tools=[("WebSearch", {})]), Step(text="ok")]
    talk = Conversation(project, steps, tools=[Cautious()], mode=mode, ask=ask, **rules)  # type: ignore[arg-type]
    talk.say("go")
    assert [question.reason for question in questions] == reasons
    # No rule and no sandbox would make the question unnecessary.
    assert all(not each.offers and not each.may_be_sandboxed for each in questions)
    assert talk.of(ToolResult)[0].content == content


def test_a_call_that_takes_too_long_to_judge_is_asked_about_in_every_mode(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctxagent.agent.loop.call_gate.MAX_JUDGING_S", 0)
    ask, questions = answering(Answer(allow=True))
    talk = Conversation(project, [touch("a #" + "x" * 500), Step(text="ok")], ask=ask)
    talk.say("go")
    assert [q.reason for q in questions] == ["checking what it does took too long"]
    assert [path.name for path in project.iterdir()] == ["a"]


def test_a_call_that_a_new_rule_allows_needs_no_answer(project: Path) -> None:
    async def ask(question: Question) -> Answer:
        talk.agent.approval.allow_for_session("Bash(touch:*)")
        assert question.settled is not None
        settled = question.settled()
        assert settled is not None
        return settled

    talk = Conversation(project, [touch("a"), Step(text="ok")], mode="ask", ask=ask)
    talk.say("go")
    (note,) = talk.of(Note)
    assert note.data == {
        "answer": "not needed", "rule": "Bash(touch:*)", "where": "",
        "reason": "`touch a` is allowed by the rule Bash(touch:*)",
    }  # fmt: skip
    assert [path.name for path in project.iterdir()] == ["a"]


def test_an_answer_can_turn_the_sandbox_on_for_the_session(project: Path) -> None:
    ask, _ = answering(Answer(allow=True, sandboxed=True))
    talk = Conversation(project, [touch("a"), Step(text="ok")], mode="ask", ask=ask)
    talk.say("go")
    assert talk.agent.approval.sandboxed
    assert talk.of(Note)[0].data["answer"] == "yes"


def test_a_declined_call_has_the_reason_in_its_details(project: Path) -> None:
    ask, _ = answering(Answer(allow=False), Answer(allow=False, reason="not now"))
    steps = [touch("a"), touch("b"), Step(text="ok")]
    talk = Conversation(project, steps, mode="ask", ask=ask)
    talk.say("go")
    first, second = talk.of(ToolResult)
    assert first.content == "The user declined this call."
    assert (first.details["denied"], first.details["declined"]) == (True, True)
    assert "reason" not in first.details
    assert second.details["reason"] == "not now"


def test_without_a_tool_that_reads_a_failure_reveals_nothing(project: Path) -> None:
    (project / "c.txt").write_text("secret line\n")
    ask, questions = answering(Answer(allow=False))
    steps = [Step(tools=[("Edit", EDIT)]), Step(text="ok")]
    talk = Conversation(project, steps, tools=[EditTool()], mode="ask", ask=ask)
    talk.say("go")
    assert [question.diff for question in questions] == [None]
    assert "secret" not in str(talk.of(ToolResult)[0].content)


def test_a_link_that_leads_to_an_allowed_file_by_the_time_of_the_answer_is_refused(
    project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("secret lime\n")
    (project / "c.txt").symlink_to(other)

    async def ask(question: Question) -> Answer:
        (project / "c.txt").unlink()
        (project / "c.txt").write_text("secret lime\n")
        return Answer(allow=True)

    steps = [Step(tools=[("Edit", EDIT)]), Step(text="ok")]
    talk = Conversation(project, steps, mode="accept-edits", ask=ask)
    talk.say("go")
    expected = "Not done: since it was asked about, it leads elsewhere. Call it again."
    assert talk.of(ToolResult)[0].content == expected
    assert (project / "c.txt").read_text() == "secret lime\n"


def confined_gate(project: Path, session: LiveSession, watch: PlantedWatch | None) -> CallGate:
    """A gate with a sandbox and rules that guard two files."""
    for name in ("secret.txt", "kept.txt", ".envrc"):
        (project / name).write_text("x")
    own = project.parent / "own"
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(project.parent)}
    sandbox = Sandbox(project, environ, own, own)
    if lacks("bubblewrap") and lacks("Landlock"):
        pytest.skip(f"{lacks('bubblewrap')}, {lacks('Landlock')}")
    session.context = replace(session.context, sandbox=sandbox)
    session.approval = Approval(ask=["Read(secret.txt)"], deny=["Write(kept.txt)"], cwd=project)
    return CallGate(session, Features(session.emit), watch)


def limits(gate: CallGate, verdict: Verdict) -> CommandLimits:
    """The limits of a command with this verdict."""
    sandbox = gate.context_to_run(BashTool(), verdict).sandbox
    assert isinstance(sandbox, Sandbox)
    return sandbox.limits


def names(paths: Sequence[str]) -> list[str]:
    return [Path(path).name for path in paths]


def test_a_command_runs_within_the_limits_of_its_verdict(
    project: Path, session: LiveSession
) -> None:
    watch = PlantedWatch(project)
    gate = confined_gate(project, session, watch)
    watch.begin({}, unasked=False)
    asked = limits(gate, Verdict("allow", "", opens=("/opt/data",)))
    assert (asked.unasked, asked.opens) == (False, ("/opt/data",))
    assert (names(asked.hide), names(asked.keep)) == ([], ["kept.txt"])
    unasked = limits(gate, Verdict("allow", "", confined=True))
    assert (unasked.unasked, names(unasked.hide)) == (True, ["secret.txt"])
    assert {"kept.txt", ".envrc"} <= {*names(unasked.keep)}


def test_only_a_command_has_limits(project: Path, session: LiveSession) -> None:
    gate = confined_gate(project, session, None)
    context = gate.context_to_run(EditTool(), Verdict("allow", "", path="/judged"))
    assert context == replace(session.context, judged_path="/judged")


def test_an_unasked_command_needs_no_watch(project: Path, session: LiveSession) -> None:
    gate = confined_gate(project, session, None)
    assert names(limits(gate, Verdict("allow", "", confined=True)).hide) == ["secret.txt"]


def test_where_too_many_files_are_guarded(
    project: Path,
    session: LiveSession,
    events: list[Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A command that was not asked about is refused. A command that the user allowed runs, with one
    warning per session.
    """
    gate = confined_gate(project, session, None)
    monkeypatch.setattr(session.approval, "guarded_files", lambda kinds: None)
    with pytest.raises(CallRefused, match="files that rules guard cannot be found any more"):
        gate.context_to_run(BashTool(), Verdict("allow", "", confined=True))
    for _ in range(2):
        assert limits(gate, Verdict("allow", "")).hide == []
    assert events == [Notice("warning", TOO_MANY_GUARDED)]


def test_without_a_sandbox_a_call_keeps_its_context(session: LiveSession) -> None:
    context = CallGate(session, Features(session.emit)).context_to_run(
        BashTool(), Verdict("allow", "", confined=True, path="/judged")
    )
    assert context == replace(session.context, judged_path="/judged")
