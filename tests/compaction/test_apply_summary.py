"""Applying a summary: reinserted entries, newest facts, and the reasons for failures."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction import apply_summary, preserve
from ctxagent.agent.compaction.document import SummaryDocument
from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.compaction.preserve import preserved_text, sections_not_in_context
from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.config.preservation import PreserveRules
from ctxagent.agent.context.request import Request
from ctxagent.agent.context.tokens import estimate
from ctxagent.agent.context.window import Window
from ctxagent.agent.errors import CompactionFailed
from ctxagent.agent.events import Notice
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Assistant, Entry, Note, Summary, ToolResult, User
from ctxagent.agent.session.ledger import Ledger
from ctxagent.tools.base import Context, Output, Params, Tool

from ..support.sessions.conversation import Conversation
from ..support.sessions.setup import long_text
from .test_engine import RECORD

WINDOW = 32_000
BARE = replace(DEFAULT, clear_when="off", prepare_at=None)


class StepParams(Params):
    number: int


class Bash(Tool[StepParams]):
    """Changes a file at each call. The first call fails; it passes once `passes` is called."""

    name = "Bash"
    description = "A step of the work."
    effect = "none"
    Params = StepParams

    def __init__(self, passes: int = 0) -> None:
        self.passes = passes

    async def run(self, params: StepParams, context: Context) -> Output:
        for _ in range(100):
            await asyncio.sleep(0)  # as a real one gives way: a summary may be written meanwhile
        number = params.number
        changes = [{"path": f"src/step_{number}.py", "action": "created", "added": 1, "removed": 0}]
        details: dict[str, Any] = {"command": f"step {number}", "changes": changes}
        if number in (1, self.passes):
            details["command"] = "make check"
        failed = number == 1
        text = "E: ERROR_OF_THE_FIRST_STEP" if failed else f"line of {number}\n" * 250
        return Output(text, {**details, "exit_code": int(failed)}, is_error=failed)


def talking(
    project: Path,
    policy: Policy = BARE,
    *,
    calls: int = 60,
    passes: int = 0,
    again: int = 0,
    words: int = 1,
) -> Conversation:
    """A conversation of `calls` calls, each after this many `words`. About `again` tokens are
    reinserted after a summary.
    """
    done = 0

    def answer(request: Request) -> Step:
        nonlocal done
        if is_summary_question(str(request.messages[-1]["content"][-1].get("text", ""))):
            return Step(text=RECORD)
        if done >= calls:
            return Step(text="It goes on.")
        done += 1
        return Step(text=f"Step {done}. " * words, tools=[("Bash", {"number": done})])

    project.mkdir(exist_ok=True)
    talk = Conversation(project, answer, tools=[Bash(passes)], window=WINDOW, policy=policy)
    if again:
        talk.environment.after_summary_entries = lambda: [
            User(content="rule " * again, source="environment")
        ]
    return talk


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path / "project"


# What is said again


def stood(talk: Conversation) -> list[int]:
    """The size of the context after each summary, including reinserted entries."""
    found: list[int] = []
    record, due = talk.agent.engine.host.record, [0]

    def spying(entry: Entry) -> Entry:
        recorded = record(entry)
        if isinstance(entry, Summary):
            due[0] = len(talk.agent.engine.host.reinserted(()))
        elif due[0]:
            due[0] -= 1
            if not due[0]:
                found.append(talk.agent.model.current_window().tokens)
        return recorded

    talk.agent.engine.host.record = spying  # type: ignore[method-assign]
    return found


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("again", [0, 4_000, 14_000, 20_000])
def test_reinserted_entries_count(project: Path, again: int) -> None:
    talk = talking(project, again=again)
    after = stood(talk)
    assert talk.say("Go.").status == "ok"
    summaries = talk.of(Summary)
    assert len(summaries) >= 2
    assert [summary.tokens_after for summary in summaries] == after
    assert all(summary.probes["within_half"] for summary in summaries)
    assert max(after) <= WINDOW // 2


@pytest.mark.slow
def test_a_preview_counts_reinserted_entries(project: Path) -> None:
    talk = talking(project, replace(BARE, mode="remind"), calls=20)
    talk.say("Go.")
    before = talk.agent.engine.preview().tokens_after_estimate
    talk.environment.after_summary_entries = lambda: [
        User(content="rule " * 4_000, source="environment")
    ]
    assert talk.agent.engine.preview().tokens_after_estimate >= before + 3_900


def test_what_is_preserved_is_bounded_by_the_window(project: Path) -> None:
    project.mkdir()
    lines = "".join(f"決定 {n}: 保持する\n" for n in range(700))
    notes = f"# Session Continuity\n{lines}\n# Decision Log\n{lines}"
    (project / "NOTES.md").write_text(notes)
    for size in (8_000, 16_000, 64_000):
        found = preserve.preserved_sections(project, PreserveRules(), Ledger(), "", size)
        text = preserved_text(found)
        assert size * 0.06 < estimate(text) < size * 0.13, size
        assert text.count("read them there") == 2
        assert sections_not_in_context(text, found) == []


# The newest facts


@pytest.mark.slow
def test_a_prepared_summary_has_what_came_after_it_was_prepared(tmp_path: Path) -> None:
    policy = replace(DEFAULT, clear_when="off", truncate_at=None)
    first = talking(tmp_path / "first", policy)
    first.say("Go.")
    between = steps_between(first)
    assert between
    talk = talking(tmp_path / "second", policy, passes=between[-1])
    talk.say("Go.")
    assert between[-1] in steps_between(talk)
    before, summary, *_ = talk.of(Summary)
    assert "ERROR_OF_THE_FIRST_STEP" in before.text
    errors = [line for line in summary.document["errors"] if "ERROR_OF_THE_FIRST_STEP" in line]
    assert len(errors) == 1
    assert errors[0].startswith("Failed earlier: `")
    ledger = Ledger()
    for entry in talk.entries():
        if entry.seq < summary.seq:
            ledger.add(entry)
    assert [row["path"] for row in summary.document["modified"]] == list(ledger.files)
    assert "+1 −0 lines (Bash, #" in summary.document["modified"][-1]["change"]


def steps_between(talk: Conversation) -> list[int]:
    """The steps done after the second summary was written and before it was applied."""
    summary = talk.of(Summary)[1]
    written = [e.seq for e in talk.of(Assistant) if e.purpose != "turn" and e.seq < summary.seq]
    done = (e for e in talk.of(ToolResult) if written[-1] < e.seq < summary.seq)
    return [int(e.details["changes"][0]["path"][9:-3]) for e in done]


@pytest.mark.slow
def test_rules_without_room_stay_in_the_record_and_come_back(project: Path) -> None:
    rules = [f"Never touch the folder called area{number}/." for number in range(400)]
    named: list[str] = []

    def answer(request: Request) -> Step:
        if is_summary_question(str(request.messages[-1]["content"][-1].get("text", ""))):
            listed = "\n".join(f'- "{rule}"' for rule in named)
            return Step(text=f"## User Rules\n{listed}\n{RECORD}")
        return Step(text=long_text(8_000))

    project.mkdir()
    talk = Conversation(project, answer, tools=[Bash()], window=WINDOW, policy=BARE)
    for number in range(0, 400, 40):
        named[:] = rules[number : number + 40]
        talk.say(" ".join(named))
        talk.say("Go on.")
        asyncio.run(talk.agent.engine.compact())
    summary = talk.of(Summary)[-1]
    assert len(summary.document["rules"]) == len(rules)
    assert all(rule["text"] for rule in summary.document["rules"])
    shown = summary.text.partition("## User Rules")[2].partition("\n## ")[0]
    assert rules[-1] in shown
    assert rules[0] not in shown
    # In a window of a larger model all have room.
    document = SummaryDocument.from_json(summary.document)
    larger = apply_summary._rules_shown(document, Window(tokens=0, size=1_000_000, error=0))
    assert [rule.text for rule in larger] == rules


@pytest.mark.slow
def test_a_small_window_goes_on_after_any_number_of_messages(project: Path) -> None:
    """The messages have at least 1,500 tokens, but fewer if a request would not fit otherwise."""

    def answer(request: Request) -> Step:
        if is_summary_question(str(request.messages[-1]["content"][-1].get("text", ""))):
            return Step(text=RECORD)
        return Step(text="It goes on. " * 40)

    project.mkdir()
    talk = Conversation(project, answer, tools=[Bash()], window=5_000, policy=BARE)
    talk.environment.after_summary_entries = lambda: [
        User(content="rule " * 900, source="environment")
    ]
    for number in range(40):
        said = f"Message {number}: " + f"detail {number} " * 40
        assert talk.say(said).status == "ok", number
    summary = talk.of(Summary)[-1]
    assert "Messages without room here" in summary.text or "shortened" in summary.text


class FailingBash(Tool[StepParams]):
    """A command that fails with a long message."""

    name = "Bash"
    description = "A step of the work."
    effect = "none"
    Params = StepParams

    async def run(self, params: StepParams, context: Context) -> Output:
        said = f"FatalError: part {params.number} is missing " * 8
        details = {"command": f"check {params.number}", "exit_code": 3}
        return Output(said, details, is_error=True)


@pytest.mark.slow
def test_errors_give_up_room_before_messages_do(project: Path) -> None:
    calls = 0

    def answer(request: Request) -> Step:
        nonlocal calls
        if is_summary_question(str(request.messages[-1]["content"][-1].get("text", ""))):
            return Step(text=RECORD)
        calls += 1
        tools = [("Bash", {"number": calls})] if calls <= 16 else []
        return Step(text="It goes on. " * 40, tools=tools)

    project.mkdir()
    talk = Conversation(project, answer, tools=[FailingBash()], window=7_000, policy=BARE)
    talk.environment.after_summary_entries = lambda: [
        User(content="rule " * 1_200, source="environment")
    ]
    said = [f"Message {number}: " + f"part {number} and more of it, " * 3 for number in range(40)]
    assert [talk.say(text).status for text in said] == ["ok"] * len(said)
    first, *_, last = talk.of(Summary)
    assert first.text.count("FatalError") > last.text.count("FatalError")
    assert "More commands that still fail" in last.text
    assert "Messages without room here" not in last.text
    assert all(text in last.text for text in said[:20])


# Why it could not be made


@pytest.mark.slow
def test_the_error_says_why_no_summary_was_made(project: Path) -> None:
    strict = replace(BARE, rules=replace(BARE.rules, strict=True))
    finished = talking(project, strict, words=200).say("Go.")
    assert finished.status == "limit"
    told = str((finished.error or {})["message"])
    assert "cannot be made to fit: preserve.strict is set, and" in told
    assert "The largest parts: " in told


@pytest.mark.slow
def test_the_error_names_a_veto(project: Path) -> None:
    talk = talking(project, words=200)
    talk.hooks.veto = "the tests are red"
    finished = talk.say("Go.")
    assert finished.status == "limit"
    told = str((finished.error or {})["message"])
    assert "cannot be made to fit: a before_compact hook refused it: the tests are red" in told


def test_a_summary_is_rejected_if_reinserted_entries_outweigh_it(project: Path) -> None:
    talk = talking(project, replace(BARE, mode="remind"), calls=3)
    talk.say("Go.")
    talk.environment.after_summary_entries = lambda: [
        User(content="rule " * 4_000, source="environment")
    ]
    with pytest.raises(CompactionFailed, match="the context would not get smaller"):
        asyncio.run(talk.agent.engine.compact())
    assert talk.of(Summary) == []


def test_after_a_refused_request_a_summary_may_make_the_context_larger(project: Path) -> None:
    """The other form of the context may be accepted. Thinking and images go too."""
    talk = talking(project, replace(BARE, mode="remind"), calls=3)
    talk.say("Go.")
    talk.environment.after_summary_entries = lambda: [
        User(content="rule " * 4_000, source="environment")
    ]
    talk.agent.record(Note(topic="warning", text="refused", data={"refused": True}))
    asyncio.run(talk.agent.engine.compact())
    assert len(talk.of(Summary)) == 1


def test_instructions_for_a_summary_without_a_model_are_reported_as_ignored(project: Path) -> None:
    talk = talking(project, replace(BARE, mode="remind", summarizer="mechanical"), calls=30)
    talk.say("Go.")
    asyncio.run(talk.agent.engine.compact("keep the schema"))
    told = [event.text for event in talk.seen(Notice) if "instructions" in event.text]
    assert len(told) == 1
    assert "have no effect" in told[0]


@pytest.mark.slow
def test_the_summary_says_whose_it_is_and_what_it_saves(tmp_path: Path) -> None:
    talk = talking(tmp_path / "project")
    talk.say("Take the steps.")
    summary = talk.of(Summary)[0]
    saved = summary.tokens_before - summary.tokens_after
    assert f"**Session ID:** {talk.agent.folder.name} · **Generated:** " in summary.text
    assert f" UTC · **Context Saved:** {saved:,} tokens" in summary.text
    archive = f"All of this session is in {talk.agent.folder}: conversation.md"
    assert summary.text.count(archive) == 1
    assert "offloaded/" not in summary.text.partition(archive)[2]  # there is none


@pytest.mark.slow
def test_the_checks_of_a_summary_are_recorded(tmp_path: Path) -> None:
    talk = talking(tmp_path / "project")
    talk.say("Take the steps.")
    probes = talk.of(Summary)[0].probes
    assert probes["trajectory"]["ok"] == probes["trajectory"]["asked"] > 0
