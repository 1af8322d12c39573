"""Other triggers of the engine than a full window: checkpoints, finished work, the session's end,
and sections that a summary requires.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.compaction.policy import DEFAULT, PRESETS, Policy
from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.agent.config.preservation import PreserveRules
from ctxagent.agent.context.request import Request
from ctxagent.agent.errors import CompactionFailed
from ctxagent.agent.events import Compacted, Notice
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Checkpoint, Note, Summary

from ..support.sessions.conversation import Conversation

RECORD = """## Session Intent
Read what there is.
## Key Decisions
None.
## Current State
Phase: reading
## Next Steps
1. Read on.
"""
TODO = [{"content": "Read it all", "status": "completed"}]


class Reader:
    """Answer with the `steps`, and with a summary on request."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)

    def __call__(self, request: Request) -> Step:
        if is_summary_question(str(request.messages[-1]["content"][-1].get("text", ""))):
            return Step(text=RECORD)
        return self.steps.pop(0)


def output(tokens: int) -> Step:
    return Step(tools=[("Bash", {"command": f"seq -f 'line %g' {tokens // 4}"})])


@pytest.fixture
def talk(tmp_path: Path) -> Callable[..., Conversation]:
    (tmp_path / "project").mkdir()

    def made(policy: Policy, *steps: Step, window: int = 40_000) -> Conversation:
        quiet = replace(policy, clear_when="off", truncate_at=None, move_above=None)
        return Conversation(tmp_path / "project", Reader(*steps), policy=quiet, window=window)

    return made


def triggers(talk: Conversation) -> list[str]:
    return [entry.trigger for entry in talk.of(Checkpoint)]


def summaries(talk: Conversation) -> list[str]:
    return [event.trigger for event in talk.seen(Compacted) if event.layer == "summary"]


def test_one_checkpoint_is_taken_as_the_context_gets_to_its_level(
    talk: Callable[..., Conversation],
) -> None:
    run = talk(
        replace(DEFAULT, checkpoint_at=0.5, prepare_at=None),
        *[output(6_000)] * 5, Step(text="Read."),
    )  # fmt: skip
    run.say("read")
    (trigger,) = triggers(run)
    assert trigger.endswith("% of the window")
    assert 50 <= int(trigger.partition("%")[0]) < 70


@pytest.mark.parametrize(("calls", "at"), [(2, 0.85), (5, None)])
def test_no_checkpoint_below_it_or_when_it_is_off(
    talk: Callable[..., Conversation], calls: int, at: float | None
) -> None:
    policy = replace(DEFAULT, checkpoint_at=at, prepare_at=None)
    run = talk(policy, *[output(6_000)] * calls, Step(text="Read."))
    run.say("read")
    assert triggers(run) == []


def test_ctx_001_recommends_a_fresh_session_with_the_command_that_starts_it(
    talk: Callable[..., Conversation],
) -> None:
    policy = replace(PRESETS["ctx-001"], summarize_at=None)  # S1: when tier 3 does not help
    run = talk(policy, *[output(2_500)] * 18, Step(text="Read."))
    run.say("read")
    near, full = triggers(run)
    assert 75 <= int(near.partition("%")[0]) < 85
    assert full.startswith("HOOK-CTX-005: ")
    (told,) = [e.text for e in run.seen(Notice) if "fresh session" in e.text]
    number = run.of(Checkpoint)[-1].number
    assert told.endswith(f"ctxagent --from {run.agent.folder.name}:{number}")


@pytest.mark.parametrize("name", ["anchored", "ledger"])
def test_some_presets_take_a_checkpoint_before_every_summary(
    talk: Callable[..., Conversation], name: str
) -> None:
    run = talk(replace(PRESETS[name], prepare_at=None), *[output(6_000)] * 8, Step(text="Read."))
    run.say("read")
    kinds = [kind for kind in run.kinds() if kind in ("checkpoint", "summary")]
    assert kinds[:2] == ["checkpoint", "summary"]
    assert kinds.count("checkpoint") == kinds.count("summary")
    assert triggers(run)[0].startswith("before a summary: HOOK-CTX-003")


def test_a_finished_todo_list_is_a_boundary_once(talk: Callable[..., Conversation]) -> None:
    run = talk(
        PRESETS["anchored"],
        output(6_000), output(6_000), Step(tools=[("Todo", {"todos": TODO})]), Step(text="Done."),
        Step(text="Next."), *[Step(text="And?")] * 5,
    )  # fmt: skip
    run.say("read")
    assert summaries(run) == []
    for words in ("now this", "and that", "go on", "more"):
        run.say(words)
    assert summaries(run) == ["task boundary: the todo list is done"]
    texts = [str(item.blocks) for item in run.agent.view.items]
    assert any("now this" in text for text in texts)  # what is being worked on stays as it is


def test_an_open_todo_list_is_no_boundary(talk: Callable[..., Conversation]) -> None:
    todos = [*TODO, {**TODO[0], "content": "Then write", "status": "pending"}]
    run = talk(
        PRESETS["anchored"],
        output(3_000), Step(tools=[("Todo", {"todos": todos})]), Step(text="So far."),
        Step(text="Yes."),
    )  # fmt: skip
    run.say("read")
    run.say("now this")
    assert summaries(run) == []


def test_after_twenty_turns_a_summary_is_made_if_it_would_halve_the_context(
    talk: Callable[..., Conversation],
) -> None:
    run = talk(PRESETS["anchored"], output(8_000), *[Step(text="Yes.")] * 30)
    for turn in range(22):
        run.say(f"question {turn}")
    assert summaries(run) == ["21 turns since the last summary"]


def test_after_twenty_turns_of_little_nothing_is_done(talk: Callable[..., Conversation]) -> None:
    run = talk(PRESETS["anchored"], *[Step(text="Yes.")] * 30)
    for turn in range(25):
        run.say(f"question {turn}")
    assert summaries(run) == []


@pytest.mark.parametrize(("calls", "expected"), [(5, ["end of the session"]), (1, [])])
def test_the_ledger_preset_does_not_end_a_full_session_without_a_summary(
    talk: Callable[..., Conversation], calls: int, expected: list[str]
) -> None:
    run = talk(PRESETS["ledger"], *[output(6_000)] * calls, Step(text="Read."))
    run.say("read")
    asyncio.run(run.agent.finish())
    assert summaries(run) == expected
    assert "end of the session" in triggers(run)[-1]


def test_other_presets_do_nothing_at_the_end(talk: Callable[..., Conversation]) -> None:
    run = talk(replace(DEFAULT, prepare_at=None), *[output(6_000)] * 4, Step(text="Read."))
    run.say("read")
    asyncio.run(run.agent.finish())
    assert (summaries(run), triggers(run)) == ([], [])


def test_a_missing_section_warns_once(talk: Callable[..., Conversation]) -> None:
    run = talk(DEFAULT, *[output(3_000)] * 8, Step(text="Read."), *[Step(text="More.")] * 2)
    (run.cwd / "NOTES.md").write_text("# Notes\n\n## Decision Log\nNone yet.\n")
    run.say("read")
    asyncio.run(run.agent.engine.compact())
    run.say("more")
    run.say("and more")
    asyncio.run(run.agent.engine.compact())
    assert [e.text for e in run.seen(Notice) if "no section" in e.text] == [
        "NOTES.md has no section 'Session Continuity'; `ctxagent preserve --create` writes it"
    ]
    assert [made.probes["sections"]["critical"] for made in run.of(Summary)] == [1, 1]


def test_a_preset_that_expects_notes_says_once_that_there_are_none(
    talk: Callable[..., Conversation],
) -> None:
    run = talk(PRESETS["ledger"], *[output(3_000)] * 8, Step(text="Read."), Step(text="More."))
    run.say("read")
    asyncio.run(run.agent.engine.compact())
    run.say("more")
    asyncio.run(run.agent.engine.compact())
    warned = [e.text for e in run.seen(Notice) if e.level == "warning"]
    assert warned == ["there is no NOTES.md; `ctxagent preserve --create` writes it"]
    assert len(run.of(Summary)) == 2


def test_in_strict_mode_a_missing_section_prevents_a_summary(
    talk: Callable[..., Conversation],
) -> None:
    policy = replace(DEFAULT, rules=PreserveRules(strict=True))
    run = talk(policy, *[output(3_000)] * 8, Step(text="Read."))
    run.say("read")
    before = run.kinds()
    with pytest.raises(CompactionFailed, match=r"preserve\.strict.*--create"):
        asyncio.run(run.agent.engine.compact())
    assert run.kinds() == before


def test_the_examination_asks_the_model_what_it_knows_from_the_summary(
    talk: Callable[..., Conversation],
) -> None:
    run = talk(
        DEFAULT, *[output(3_000)] * 8, Step(text="Read."),
        Step(text="1: unknown"),
    )  # fmt: skip
    run.say("Never touch setup.cfg. Read all.")
    summary = asyncio.run(run.agent.engine.compact())
    report = asyncio.run(run.agent.engine.examine(summary))
    assert len(report.scores) == 6
    (note,) = [n for n in run.of(Note) if n.topic == "quality"]
    assert note.data == report.to_json()
    verify = [e for e in run.entries() if getattr(e, "purpose", "") == "verify"]
    assert len(verify) == 1
    assert run.agent.totals.all.calls == len([e for e in run.entries() if e.kind == "assistant"])


def test_a_boundary_within_a_run_comes_when_work_goes_on_after_it(
    talk: Callable[..., Conversation],
) -> None:
    run = talk(
        PRESETS["anchored"],
        output(6_000), output(6_000), Step(tools=[("Todo", {"todos": TODO})]),
        *[Step(tools=[("Bash", {"command": f"echo {n}"})]) for n in range(6)], Step(text="Done."),
    )  # fmt: skip
    run.say("read")
    assert summaries(run) == ["task boundary: the todo list is done"]
    asyncio.run(run.agent.engine.compact())
    files = [name for entry in run.of(Summary) for name in entry.files if "session-" in name]
    assert len(set(files)) == 2  # each task has a file of its own
    assert all((run.agent.folder / name).read_text().strip() for name in files)


def test_an_automatic_summary_that_is_not_worth_it_is_not_made(
    talk: Callable[..., Conversation],
) -> None:
    policy = replace(DEFAULT, summarize_at=0.2, prepare_at=None)
    run = talk(policy, output(200), output(200), output(200), output(7_900), Step(text="Read."))
    run.say("read")
    assert summaries(run) == []
    (told,) = [event.text for event in run.seen(Notice) if "not worth it" in event.text]
    assert "must leave less than 50%" in told
    purposes = [getattr(entry, "purpose", "turn") for entry in run.entries()]
    assert "summary" not in purposes  # nor was it asked for


def test_a_decision_log_that_is_behind_is_named(
    talk: Callable[..., Conversation], tmp_path: Path
) -> None:
    notes = tmp_path / "project" / "NOTES.md"
    notes.write_text("## Session Continuity\n\nHere.\n\n## Decision Log\n\n- Read.\n")
    os.utime(notes, (1, 1))
    write = Step(tools=[("Write", {"path": "a.txt", "content": "a\n"})])
    run = talk(PRESETS["ledger"], write, *[output(3_000)] * 6, Step(text="Read."))
    run.say("read")
    asyncio.run(run.agent.engine.compact())
    told = [
        event.text for event in run.seen(Notice) if "Decision Log was not updated" in event.text
    ]
    assert len(told) == 1
