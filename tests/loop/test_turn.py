"""A turn on the scripted model with real tools: what is recorded, sent and told."""

import asyncio
import itertools
import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.context.request import build_messages
from ctxagent.agent.context.view import fold
from ctxagent.agent.errors import ModelUnavailable, RecordError
from ctxagent.agent.events import (
    Answer,
    Question,
    Retrying,
    TextDelta,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
    Waiting,
)
from ctxagent.agent.launch import Budget
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.base import abilities_of
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.entries import Assistant, End, Note, ToolResult, User
from ctxagent.tools.base import Context, Output, Params, Tool

from ..support.command import gone
from ..support.sessions.conversation import Conversation, answering


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def test_a_turn_is_recorded_in_order(project: Path) -> None:
    (project / "a.txt").write_text("alpha\n")
    talk = Conversation(
        project,
        [Step(text="I look.", tools=[("Read", {"path": "a.txt"})]), Step(text="It says alpha.")],
    )
    finished = talk.say("what does a.txt say?")
    assert finished == TurnFinished("ok", "It says alpha.")
    assert talk.kinds() == ["session", "user", "assistant", "tool_result", "assistant", "end"]
    assert "1\talpha" in talk.of(ToolResult)[0].content
    assert talk.agent.totals.all.calls == 2
    assert talk.agent.totals.all.tool_calls == 1
    told = [type(e).__name__ for e in talk.events if not isinstance(e, TextDelta | Waiting)]
    assert told == [
        "UserSaid", "CallStarted", "Accepted", "ToolDraft", "CallFinished", "ToolStarted",
        "ToolFinished", "CallStarted", "Accepted", "CallFinished", "TurnFinished",
    ]  # fmt: skip


@pytest.mark.slow
def test_each_request_is_a_prefix_of_the_next_also_over_a_resume(project: Path) -> None:
    steps = [
        Step(thinking="hm", text=f"step {n}", tools=[("Bash", {"command": f"echo {n}"})])
        for n in range(5)
    ]
    first = Conversation(project, [*steps, Step(text="done")])
    first.say("go")
    requests = list(first.model.requests)  # type: ignore[attr-defined]
    first.agent.log.close()
    second = Conversation(project, [*steps, Step(text="done again")])
    second.say("go on")
    requests += second.model.requests  # type: ignore[attr-defined]
    sent = [bare(r.messages) for r in requests]
    assert len(sent) == 12
    for before, after in itertools.pairwise(sent):
        assert after[: len(before)] == before
    assert requests[0].system == requests[-1].system
    assert requests[0].tools == requests[-1].tools


def bare(sent: list[dict[str, object]]) -> list[str]:
    """Messages as JSON, without cache marks."""
    text = json.dumps(sent)
    return [json.dumps(m) for m in json.loads(text, object_hook=_unmarked)]


def _unmarked(node: dict[str, object]) -> dict[str, object]:
    return {k: v for k, v in node.items() if k != "cache_control"}


def test_the_live_view_equals_that_of_a_fresh_process(project: Path) -> None:
    talk = Conversation(
        project,
        [
            Step(tools=[("Bash", {"command": "printf '\\033[1mbold\\r\\xff'; exit 3"})]),
            Step(tools=[("Read", {"path": "nowhere"}), ("Nope", {})]),
            Step(text="done"),
        ],
    )
    talk.say("go \ud800")
    fresh = fold(talk.entries())
    assert build_messages(fresh.items) == build_messages(talk.agent.view.items)
    live = talk.agent.view
    assert (fresh.size, fresh.size_changed) == (live.size, live.size_changed)
    assert (fresh.ratio, fresh.last_seq) == (live.ratio, live.last_seq)


class Meet(Tool[Params]):
    """Comes back only when several calls of it run at the same time."""

    name, description, effect, Params = "Meet", "Meets.", "read", Params

    def __init__(self, several: int) -> None:
        self.barrier = asyncio.Barrier(several)

    async def run(self, params: Params, context: Context) -> Output:
        async with asyncio.timeout(100):
            place = await self.barrier.wait()
        return Output(f"met as {place}")


def test_read_only_calls_run_side_by_side(project: Path) -> None:
    talk = Conversation(project, [Step(tools=[("Meet", {})] * 4), Step(text="ok")], tools=[Meet(4)])
    assert talk.say("meet").status == "ok"
    assert [r.is_error for r in talk.of(ToolResult)] == [False] * 4


def test_calls_that_change_something_run_one_after_another(project: Path) -> None:
    talk = Conversation(
        project,
        [
            Step(tools=[("Bash", {"command": f"echo {n} >> order; cat order"}) for n in range(4)]),
            Step(text="ok"),
        ],
    )
    talk.say("go")
    assert talk.of(ToolResult)[-1].content.split() == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("Nope", {}), "There is no tool 'Nope'. The tools: Bash, Job, Read"),
        (("Read", '{"path": "a'), "not valid JSON"),
        (("Read", "[1]"), "not a JSON object"),
        (("Read", {}), "- path: Field required"),
        (("Read", {"path": "x", "lines": 3}), "- lines: Extra inputs are not permitted"),
        (("Edit", {"path": 3, "old_string": "a", "new_string": "b"}), "- path: Input should be"),
    ],
)
def test_a_bad_call_is_answered_and_the_work_goes_on(
    project: Path, call: tuple[str, dict[str, object] | str], told: str
) -> None:
    talk = Conversation(project, [Step(tools=[call]), Step(text="I see.")])
    assert talk.say("go").status == "ok"
    result = talk.of(ToolResult)[0]
    assert result.is_error
    assert told in result.content


class Faulty(Tool[Params]):
    name, description, effect, Params = "Faulty", "Fails.", "read", Params

    async def run(self, params: Params, context: Context) -> Output:
        raise ZeroDivisionError("by zero")


def test_a_tools_own_fault_does_not_end_the_session(project: Path) -> None:
    talk = Conversation(project, [Step(tools=[("Faulty", {})]), Step(text="ok")], tools=[Faulty()])
    assert talk.say("go").status == "ok"
    assert "ZeroDivisionError: by zero" in talk.of(ToolResult)[0].content


def test_a_call_cut_off_at_the_output_limit_is_not_run(project: Path) -> None:
    talk = Conversation(
        project,
        [
            Step(tools=[("Bash", '{"command": "touch made')], stop_reason="max_tokens"),
            Step(text="ok"),
        ],
    )
    assert talk.say("go").status == "ok"
    assert "output limit cut them off" in talk.of(ToolResult)[0].content
    assert list(project.iterdir()) == []


def test_text_cut_off_at_the_output_limit_goes_on(project: Path) -> None:
    talk = Conversation(
        project, [Step(text="one, two,", stop_reason="max_tokens"), Step(text="three")]
    )
    assert talk.say("count") == TurnFinished("ok", "three")
    assert "cut off at the output limit" in talk.of(User)[1].content


@pytest.mark.parametrize(
    ("step", "status", "calls", "told"),
    [
        (Step(text="more", stop_reason="max_tokens"), "limit", 3, "cut off at the output limit"),
        (Step(), "error", 3, "replies in a row were empty"),
        (Step(text=" \n"), "error", 3, "replies in a row were empty"),
        (Step(text="no", stop_reason="refusal"), "error", 1, "declined to answer"),
        (Step(text="x", stop_reason="pause_turn"), "error", 3, "replies in a row paused"),
        (Step(text="x", stop_reason="model_context_window_exceeded"), "limit", 1, "window is full"),
    ],
)
def test_replies_that_are_no_answer_end_the_turn_and_the_next_works(
    project: Path, step: Step, status: str, calls: int, told: str
) -> None:
    talk = Conversation(project, [step] * calls + [Step(text="fine")])
    if step.stop_reason == "pause_turn":
        talk.model.check = None  # type: ignore[attr-defined]  # the last message is the model's
    finished = talk.say("go")
    assert finished.status == status
    assert finished.error is not None
    assert told in finished.error["message"]
    assert talk.say("and now?") == TurnFinished("ok", "fine")


def test_a_refused_reply_stays_in_the_log_and_leaves_the_context(project: Path) -> None:
    talk = Conversation(project, [Step(text="I won't", stop_reason="refusal"), Step(text="yes")])
    talk.say("first")
    talk.say("second")
    assert "I won't" in json.dumps([e.content for e in talk.of(Assistant)])
    sent = talk.model.requests[-1].messages  # type: ignore[attr-defined]
    assert [m["role"] for m in sent] == ["user"]
    assert "I won't" not in json.dumps(sent)


def test_an_empty_reply_is_asked_for_again(project: Path) -> None:
    talk = Conversation(project, [Step(), Step(text="done")])
    assert talk.say("go") == TurnFinished("ok", "done")


def test_a_paused_turn_goes_on_from_where_it_was(project: Path) -> None:
    talk = Conversation(project, [Step(text="so", stop_reason="pause_turn"), Step(text="far")])
    talk.model.check = None  # type: ignore[attr-defined]  # the last message is the assistant's
    assert talk.say("go") == TurnFinished("ok", "far")
    last = talk.model.requests[-1].messages[-1]  # type: ignore[attr-defined]
    assert (last["role"], last["content"][0]["text"]) == ("assistant", "so")


def test_an_error_of_the_model_ends_the_turn_and_the_next_works(project: Path) -> None:
    broken = ModelUnavailable("overloaded", status=529, hint="later")
    talk = Conversation(project, [Step(error=broken), Step(text="fine")])
    finished = talk.say("go")
    assert finished.status == "error"
    assert finished.error == {"type": "ModelUnavailable", "message": "overloaded\nlater"}
    assert [n.topic for n in talk.of(Note)] == ["warning"]
    assert talk.say("again") == TurnFinished("ok", "fine")


def test_limits_end_the_turn_before_the_next_call(project: Path) -> None:
    step = Step(tools=[("Bash", {"command": "echo x"})])
    talk = Conversation(project, [step] * 9, bounds=Budget(calls=3))
    finished = talk.say("go")
    assert finished.status == "limit"
    assert talk.agent.totals.all.calls == 3
    assert len(talk.of(ToolResult)) == 3
    assert talk.of(End)[-1].status == "limit"


def test_a_context_that_cannot_fit_is_a_limit_and_never_sent(project: Path) -> None:
    talk = Conversation(project, [Step(text="x")], window=3_000)
    finished = talk.say("word " * 600)
    assert finished.status == "limit"
    assert talk.model.requests == []  # type: ignore[attr-defined]


def test_the_reply_is_asked_to_fit_into_what_is_left(project: Path) -> None:
    talk = Conversation(project, [Step(text="x")], window=20_000)
    talk.say("word " * 4_500)
    (request,) = talk.model.requests  # type: ignore[attr-defined]
    assert 1_024 <= request.max_tokens < 20_000 - 4_500


def test_an_oversize_result_goes_to_a_file_before_it_is_sent(project: Path) -> None:
    lines = "".join(f"line {n} of it\n" for n in range(9_000))
    (project / "big.txt").write_text(lines)
    talk = Conversation(
        project, [Step(tools=[("Bash", {"command": "cat big.txt"})]), Step(text="ok")]
    )
    talk.say("go")
    result = talk.of(ToolResult)[0]
    file = talk.agent.log.path.parent / result.offloaded
    assert file.read_text() == lines.rstrip("\n") or file.read_text() == lines
    assert file.name.endswith(f"_Bash_{result.seq}.md")
    assert file.stat().st_mode & 0o777 == 0o600
    assert str(file) in result.content
    assert "line 0 of it" in result.content
    assert "line 8999 of it" in result.content
    assert len(result.content) < 4_000
    assert result.details["gate"] == "HOOK-CTX-001"
    assert talk.agent.totals.all.compaction["demoted"] == 1
    assert talk.agent.totals.all.compaction["tokens_saved"] > 30_000


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
def test_the_time_that_a_person_thinks_is_none_of_a_declined_call(project: Path) -> None:
    async def slow(question: Question) -> Answer:
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", "pass"], check=True)
        return Answer(allow=False)

    steps = [Step(tools=[("Bash", {"command": "touch a"})]), Step(text="ok")]
    talk = Conversation(project, steps, mode="ask", ask=slow)
    talk.say("go")
    assert [e.seconds for e in talk.events if isinstance(e, ToolFinished)] == [0.0]


@pytest.mark.parametrize("deny", ["Edit(c.txt)", "Read(c.txt)"])
def test_what_must_fail_tells_nothing_of_a_file_that_may_not_be_read(
    project: Path, deny: str
) -> None:
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


@pytest.mark.slow
def test_interrupting_a_tool_keeps_what_it_had_and_leaves_no_child(project: Path) -> None:
    sleeper = "echo $$ > pid; sleep 300 & echo $! > child; echo begun; wait"
    talk = Conversation(
        project,
        [
            Step(tools=[("Bash", {"command": sleeper}), ("Bash", {"command": "touch never"})]),
            Step(text="fine"),
        ],
    )
    finished = talk.interrupted_at("go", lambda e: isinstance(e, ToolOutput))
    assert finished.status == "interrupted"
    first, second = talk.of(ToolResult)
    assert "begun" in first.content
    assert "interrupted by the user" in first.content
    assert "not run" in second.content
    assert gone(*(int((project / name).read_text()) for name in ("pid", "child")))
    assert not (project / "never").exists()
    assert talk.say("go on") == TurnFinished("ok", "fine")


def test_interrupting_the_model_keeps_its_words(project: Path) -> None:
    talk = Conversation(project, [Step(text="one two three four"), Step(text="fine")])
    words: list[str] = []

    def third(event: object) -> bool:
        words.extend([event.text] if isinstance(event, TextDelta) else [])
        return len(words) == 2

    finished = talk.interrupted_at("go", third)
    assert finished.status == "interrupted"
    kept = talk.of(Assistant)[0]
    assert kept.stop_reason == "interrupted"
    assert kept.content[0]["text"].startswith("one two")
    assert kept.usage["input"] > 0
    assert talk.say("go on") == TurnFinished("ok", "fine")
    assert "one two" in json.dumps(talk.model.requests[-1].messages)  # type: ignore[attr-defined]


def test_interrupting_a_question_records_the_call_as_not_done(project: Path) -> None:
    async def run() -> TurnFinished:
        asked = asyncio.Event()

        async def ask(question: object) -> Answer:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        talk.agent.handle.ask = ask
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


def test_interrupting_side_by_side_calls_answers_each(project: Path) -> None:
    talk = Conversation(
        project, [Step(tools=[("Meet", {})] * 3), Step(text="fine")], tools=[Meet(9)]
    )
    started: list[object] = []

    def all_started(event: object) -> bool:
        started.extend([event] if isinstance(event, ToolStarted) else [])
        return len(started) == 3

    assert talk.interrupted_at("go", all_started).status == "interrupted"
    assert len(talk.of(ToolResult)) == 3
    assert talk.say("go on").text == "fine"


def test_results_are_recorded_as_they_finish(project: Path) -> None:
    class Ordered(Tool[Params]):
        name, description, effect, Params = "Second", "x", "read", Params

        async def run(self, params: Params, context: Context) -> Output:
            await gate.wait()
            return Output("second")

    class First(Tool[Params]):
        name, description, effect, Params = "First", "x", "read", Params

        async def run(self, params: Params, context: Context) -> Output:
            return Output("first")

    gate = asyncio.Event()
    talk = Conversation(
        project,
        [Step(tools=[("Second", {}), ("First", {})]), Step(text="ok")],
        tools=[Ordered(), First()],
    )

    def emit(event: object) -> None:
        if isinstance(event, ToolFinished) and event.name == "First":
            assert [r.content for r in talk.of(ToolResult)] == ["first"]  # on disk already
            gate.set()

    talk.agent.handle.emit = emit
    assert talk.say("go").status == "ok"
    sent = talk.model.requests[-1].messages[-1]["content"]  # type: ignore[attr-defined]
    assert [b["content"] for b in sent] == ["second", "first"]  # in the order of the calls


def test_what_cannot_be_recorded_is_not_done(project: Path) -> None:
    talk = Conversation(project, [Step(tools=[("Bash", {"command": "touch a"})])])
    talk.agent.log.path.parent.write_text("a file stands where the folder should be")
    with pytest.raises(RecordError):
        talk.say("go")
    assert talk.model.requests == []  # type: ignore[attr-defined]
    assert list(project.iterdir()) == []


def test_no_thread_or_task_is_left_behind(project: Path) -> None:
    talk = Conversation(project, [Step(tools=[("Bash", {"command": "echo x"})]), Step(text="ok")])

    async def run() -> set[str]:
        await run_turn(talk.agent, "go")
        await talk.agent.close()
        return {t.get_name() for t in asyncio.all_tasks() if t is not asyncio.current_task()}

    before = threading.active_count()
    assert asyncio.run(run()) == set()
    assert threading.active_count() <= before


def test_retrying_voids_the_words_of_the_broken_attempt(project: Path) -> None:
    class Flaky:
        id = "scripted"
        abilities = abilities_of(id)

        async def stream(self, request: object):  # type: ignore[no-untyped-def]
            yield TextDelta("half a ")
            yield Retrying(1, 3, 0.0, "cut")
            yield TextDelta("whole ")
            await asyncio.Event().wait()

        def assumed_limits(self):  # type: ignore[no-untyped-def]
            from ctxagent.agent.models.catalog import DEFAULT_LIMITS

            return DEFAULT_LIMITS

        async def limits(self):  # type: ignore[no-untyped-def]
            return self.assumed_limits()

    talk = Conversation(project, model=Flaky())  # type: ignore[arg-type]
    finished = talk.interrupted_at("go", lambda e: e == TextDelta("whole "))
    assert finished.text == "whole "


def test_before_the_first_call_the_window_is_that_of_the_model(project: Path) -> None:
    talk = Conversation(project, model=ScriptedModel([Step(text="hi")], window=50_000))
    assert talk.agent.model.current_window().size == 50_000
    assert talk.agent.model.reply_room() == 32_000


def test_a_message_that_went_to_a_file_is_recalled_whole_and_its_rules_count(
    tmp_path: Path,
) -> None:
    prose = "The module reads its input and writes a table. " * 900
    long = f"Port the parser.\n\n{prose}\n\nNever edit middle/.\n\n{prose}"
    record = (
        '## Session Intent\nPort it.\n\n## User Rules\n- "never edit middle/"\n\n'
        "## Key Decisions\nNone.\n\n## Current State\nPhase: on\n\n## Next Steps\nNone.\n"
    )
    steps = [Step(text="Read it. " * 900), Step(text="Done."), Step(text=record)]
    policy = replace(DEFAULT, keep_messages=1, keep_tokens=0)
    talk = Conversation(tmp_path, steps, window=24_000, policy=policy)
    talk.say(long)
    talk.say("Go on.")
    (first, _) = (entry for entry in talk.of(User) if entry.source == "person")
    assert first.offloaded
    assert "Never edit middle/." not in str(first.content)
    recalled = talk.agent.context.recall(first.seq)
    assert recalled is not None
    assert recalled.whole() == long
    summary = asyncio.run(talk.agent.engine.compact())
    assert summary.document["rules"] == [{"ref": first.seq, "text": "Never edit middle/."}]
    assert 'Never edit middle/."' in summary.text
