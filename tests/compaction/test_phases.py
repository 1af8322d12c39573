"""The phases of work, the summary at the end of a phase, and the intent of the session."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction import phases
from ctxagent.agent.compaction.document import parse, render
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.errors import UsageError
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Note, Summary, User

from ..support.command import Place
from ..support.server.loopback import Say, Server
from ..support.sessions.conversation import Conversation
from ..support.terminal.command_line import CommandDesk
from ..support.terminal.screen import Terminal
from ..ui.test_commands import compactable, record


def test_the_forms_have_the_sizes_and_parts_of_their_source() -> None:
    research, planning, work = (phases.phase_form(name) for name in phases.PHASES)
    assert (research.name, research.word_limits) == ("research", (500, 1_000))
    assert (planning.name, planning.word_limits) == ("planning", (1_000, 2_000))
    assert (work.name, work.word_limits) == ("implementation", None)
    for part in ("problem statement", "finding", "relevant paths", "constraints", "500 to 1,000"):
        assert part in research.instructions
    for part in ("function signatures", "type definitions", "API contracts", "data models"):
        assert part in planning.instructions
    assert "not finished is not compressed" in work.instructions


def test_any_other_phase_takes_the_form_of_implementation() -> None:
    review = phases.phase_form("review")
    work = phases.phase_form("implementation")
    assert review.name == "review"
    assert review.instructions == work.instructions.replace("implementation", "review")


def test_the_instructions_name_sections_that_a_record_has() -> None:
    titles = set(re.findall(r"^## (.+)$", render(parse("")), re.MULTILINE))
    labels = {"Done", "In progress"}
    for form in map(phases.phase_form, [*phases.PHASES, "review"]):
        named = re.findall(r"[uU]nder ((?:[A-Z]\w+ ?)+(?:progress)?)", form.instructions)
        assert named
        assert {name.strip() for name in named} <= titles | labels


def test_code_in_a_record_survives() -> None:
    code = "```python\n  # the contract\n  def sign(key: bytes) -> str:\n\n      ...\n  ```"
    text = f"## Critical Facts\n- The signature:\n  {code}\n- Tokens live for an hour.\n"
    facts = parse(text).facts
    assert len(facts) == 2
    assert "# the contract" in facts[0].text
    assert "def sign(key: bytes) -> str:" in facts[0].text
    assert parse(render(parse(text))).facts == facts


def test_the_first_phase_compresses_nothing(tmp_path: Path) -> None:
    talk, desk = compactable(tmp_path, Step(text="Yes."))
    assert "no phase is set" in desk.run("/phase")
    shown = desk.run("/phase Research")
    assert "phase: research" in shown
    assert "500 to 1,000 words" in shown
    assert talk.of(Summary) == []
    assert [note.text for note in talk.of(Note)] == ["research"]
    assert "phase: research" in desk.run("/phase")
    talk.say("go on")
    sent = str(talk.model.requests[-1].messages)  # type: ignore[attr-defined]
    assert "The phase of the work is now research" in sent


@pytest.mark.slow
def test_leaving_a_phase_compresses_its_work_into_its_form(tmp_path: Path) -> None:
    talk, desk = compactable(tmp_path, Step(text=record("Know big.txt.")), Step(text="Yes."))
    desk.run("/phase research")
    shown = desk.run("/phase planning")
    assert "function signatures" in shown
    asked = str(talk.model.requests[-1].messages[-1])  # type: ignore[attr-defined]
    assert phases.phase_form("research").instructions in asked
    (summary,) = talk.of(Summary)
    assert summary.trigger == "phase: research to planning"
    assert talk.agent.ledger.phase == "planning"
    planning = next(n for n in talk.of(Note) if n.text == "planning")
    assert planning.seq < summary.seq  # so what is said again after the summary can name it
    talk.say("go on")
    sent = str(talk.model.requests[-1].messages)  # type: ignore[attr-defined]
    assert "The phase of the work is now planning" in sent
    assert desk.line.waited == ["summarising the work of the phase"]


def test_a_phase_with_nothing_to_compress_changes_all_the_same(tmp_path: Path) -> None:
    talk = Conversation(tmp_path / "project")
    (tmp_path / "project").mkdir()
    desk = CommandDesk(talk)
    desk.run("/phase research")
    shown = desk.run("/phase review")
    assert "not summarised: there is nothing to summarise yet" in shown
    assert talk.agent.ledger.phase == "review"
    assert talk.of(User) == []  # the model has heard nothing yet


def test_a_phase_without_a_model_to_summarise(tmp_path: Path) -> None:
    talk, desk = compactable(tmp_path)
    talk.agent.engine.policy = replace(DEFAULT, keep_tokens=0, keep_messages=1,
                                      summarizer="mechanical")  # fmt: skip
    desk.run("/phase implementation")
    desk.run("/phase review")
    (summary,) = talk.of(Summary)
    assert "what is in big.txt?" in summary.document["intent"]
    assert len(talk.model.requests) == 3  # type: ignore[attr-defined]


def test_an_interrupted_change_of_phase_is_undone(tmp_path: Path) -> None:
    cwd = tmp_path / "project"
    cwd.mkdir()

    def step(request: Any) -> Step:
        if "is about to be compressed" in str(request.messages[-1]):
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        return Step(text="It is so." * 100)

    talk = Conversation(cwd, step, policy=replace(DEFAULT, keep_tokens=0, keep_messages=1))
    talk.say("what is it?")
    talk.say("and that?")
    desk = CommandDesk(talk)
    desk.run("/phase research")
    with pytest.raises(asyncio.CancelledError):
        desk.run("/phase planning")
    assert talk.of(Summary) == []
    assert talk.agent.ledger.phase == "research"
    assert "now planning" not in str(talk.entries())


def test_a_phase_that_is_already_there_changes_nothing(tmp_path: Path) -> None:
    talk, desk = compactable(tmp_path)
    desk.run("/phase research")
    before = talk.agent.log.path.read_bytes()
    assert "phase: research" in desk.run("/phase RESEARCH")
    assert talk.agent.log.path.read_bytes() == before


@pytest.mark.parametrize("name", ["--apply", "a\nb", "x" * 41, "a/b"])
def test_invalid_phase_names(tmp_path: Path, name: str) -> None:
    talk, desk = compactable(tmp_path)
    before = talk.agent.log.path.read_bytes()
    with pytest.raises(UsageError, match="not a name for a phase"):
        desk.run(f"/phase {name}")
    assert talk.agent.log.path.read_bytes() == before


def test_the_intent_is_told_at_any_time(tmp_path: Path) -> None:
    talk, desk = compactable(tmp_path, Step(text=record("Know big.txt.")))
    shown = desk.run("/intent")
    assert "from your first message, #2" in shown
    assert "what is in big.txt?" in shown
    assert ": how many?" in shown
    desk.run("/compact")
    (summary,) = talk.of(Summary)
    shown = desk.run("show session intent")
    assert f"from the summary #{summary.seq}" in shown
    assert "Know big.txt." in shown
    desk.run("/uncompact")
    assert "from your first message" in desk.run("/intent")


def test_the_set_up_is_checked(tmp_path: Path) -> None:
    _, desk = compactable(tmp_path)
    assert desk.run("/doctor").split() == ["FAIL", "credentials", "none"]


@pytest.mark.slow
def test_a_person_changes_the_phase(tmp_path: Path) -> None:
    place = Place(tmp_path)
    little = ("-c", "compact.keep_tokens=0", "-c", "compact.keep_messages=1",
              "-c", "compact.summarizer=mechanical")  # fmt: skip
    with Server([Say("Words. " * 400), Say("About 400.")]) as server:
        terminal = Terminal(*little, cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("/phase research\r")
        terminal.see("phase: research")
        terminal.type("what is it?\r")
        terminal.see("Words.")
        terminal.type("how many?\r")
        terminal.see("About 400.")
        terminal.type("/phase planning\r")
        terminal.see("phase: planning")
        terminal.type("show session intent\r")
        terminal.see(lambda text: "what is it?" in text.partition("from the summary #")[2])
        terminal.type("/doctor\r")
        terminal.see("ANTHROPIC_API_KEY")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    (summary,) = [entry for entry in place.entries() if entry["kind"] == "summary"]
    assert summary["trigger"] == "phase: research to planning"
