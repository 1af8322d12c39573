import asyncio
import io
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.input.base import PipeInput
from prompt_toolkit.output import ColorDepth

from ctxagent.agent.config.settings import UiSettings
from ctxagent.agent.context.view import fold
from ctxagent.agent.errors import ModelUnavailable, NoCredentials, SessionError
from ctxagent.agent.events import Retrying, TextDelta
from ctxagent.agent.features.environment import entry_after_summary
from ctxagent.agent.loop import permission_mode
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.entries import Summary, User
from ctxagent.agent.session.log import read_log
from ctxagent.agent.ui.repl.repl import Repl
from ctxagent.agent.ui.terminal.output import BatchedOutput

from ..support.sessions.setup import long_text
from ..support.terminal.seat import (
    CTRL_C,
    CTRL_D,
    CTRL_R,
    ENTER,
    ESC,
    SHIFT_TAB,
    UP,
    Desk,
    Glass,
    Seat,
    drive,
)


@pytest.mark.slow
def test_words_are_answered_and_printed_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="# Done\n\nIt is **fixed**.\n\n- one\n- two\n"))

    async def act(seat: Seat) -> None:
        seat.say("fix it")
        await seat.until("two")

    code, glass = drive(desk, act)
    seen = glass.all()
    assert code == 0
    assert desk.said() == ["fix it"]
    for text in ("❯ fix it", "Done", "It is fixed.", "• one", "• two", " out"):
        assert seen.count(text) == 1, seen
    assert f"ctxagent --resume {desk.loops[0].log.path.parent.name}" in seen
    assert "?1049h" not in glass.raw
    assert "\x1b[2J" not in glass.raw


@pytest.mark.slow
def test_a_command_is_shown_whole_and_approved(tmp_path: Path) -> None:
    command = "echo " + " ".join(f"word{n}" for n in range(60)) + " && touch made"
    desk = Desk(tmp_path, Step(tools=[("Bash", {"command": command})]), Step(text="Ran it."))

    async def act(seat: Seat) -> None:
        seat.say("run it")
        await seat.keys()
        shown = " ".join("".join(seat.glass.all()).split())
        assert command in shown
        assert not (desk.cwd / "made").exists()
        seat.press("y")
        await seat.until("Ran it.")

    _, glass = drive(desk, act)
    seen = glass.all()
    assert (desk.cwd / "made").exists()
    assert "✓ allowed" in seen
    assert "● Bash  echo word0" in seen
    assert "[y]es" not in seen  # the choices were live, not printed


@pytest.mark.slow
def test_a_rule_is_remembered_for_the_session(tmp_path: Path) -> None:
    step = Step(tools=[("Bash", {"command": "echo x >> /dev/null; mktemp -d -p ."})])
    desk = Desk(tmp_path, step, step, Step(text="Both ran."))

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.keys()
        await seat.until("don't ask again for exactly this command")
        seat.press("a")
        await seat.until("Both ran.")

    _, glass = drive(desk, act)
    assert len(list(desk.cwd.iterdir())) == 2
    assert glass.all().count("Bash wants to run") == 1
    assert "· for this session" in " ".join(glass.all().split())


@pytest.mark.slow
def test_a_refusal_gives_its_reason_to_the_model(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(tools=[("Bash", {"command": "touch made"})]), Step(text="I see."))

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.until("[y]es")
        seat.say("n use make instead")
        await seat.until("I see.")

    _, glass = drive(desk, act)
    assert not (desk.cwd / "made").exists()
    assert "✗ declined: use make instead" in glass.all()
    assert "use make instead" in str(desk.model.requests[-1].messages)


@pytest.mark.slow
def test_words_being_typed_do_not_answer_a_question(tmp_path: Path) -> None:
    steps = [Step(tools=[("Bash", {"command": "touch made"})]), Step(text="I see.")]
    desk = Desk(tmp_path, *steps)

    async def act(seat: Seat) -> None:
        seat.press("go" + ENTER + "tr")
        await seat.until("Tab: answer")
        seat.press("y")
        await seat.until("❯ try")
        seat.press(" again" + ENTER)
        await seat.until("Tab: answer", gone=True)
        assert [each.text for each in seat.repl._waiting] == ["try again"]
        assert not (desk.cwd / "made").exists()
        seat.press("n not now" + ENTER)
        await seat.until("I see.")

    _, glass = drive(desk, act)
    assert not (desk.cwd / "made").exists()
    assert "declined: not now" in glass.all()
    assert desk.said() == ["go", "try again"]


@pytest.mark.slow
def test_a_question_is_answered_beside_words_that_are_not_sent(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(tools=[("Bash", {"command": "touch made"})]), Step(text="Done."))

    async def act(seat: Seat) -> None:
        seat.press("go" + ENTER + "half of it")
        await seat.until("Tab: answer")
        seat.press("\t")
        await seat.until("Tab: answer", gone=True)
        seat.press("y")
        await seat.until("? y")
        seat.press(ENTER)
        await seat.until("Done.")
        await seat.until("❯ half of it")
        await seat.idle()  # while a turn runs, Ctrl-C interrupts it and leaves the text
        seat.press(CTRL_C)

    drive(desk, act)
    assert (desk.cwd / "made").exists()


@pytest.mark.slow
def test_an_edit_shows_its_diff_before_and_after(tmp_path: Path) -> None:
    new = "".join(f"line {n}\n" for n in range(60))
    desk = Desk(
        tmp_path, Step(tools=[("Write", {"path": "a.txt", "content": new})]), Step(text="Written.")
    )

    async def act(seat: Seat) -> None:
        seat.say("write it")
        await seat.keys()
        for n in range(60):  # all of it: a question is never cut
            assert f"+ line {n}\n" in seat.glass.all()
        seat.press("y")
        await seat.until("Written.")

    _, glass = drive(desk, act)
    assert (desk.cwd / "a.txt").read_text() == new
    assert "● Write  a.txt" in glass.all()
    assert "lines (Ctrl-O)\n" in glass.all().split("✓ allowed")[1]  # folded, once it is done


@pytest.mark.slow
@pytest.mark.parametrize("key", [ESC, CTRL_C])
def test_streaming_is_interrupted(tmp_path: Path, key: str) -> None:
    desk = Desk(tmp_path, Step(text=long_text(5_000)), Step(text="Fresh."), pace=0.005)

    async def act(seat: Seat) -> None:
        seat.say("talk")
        await seat.until("word 0 word 1")
        seat.press(key)
        await seat.until("interrupted; what was")
        desk.model.pace = 0.0
        seat.say("again")
        await seat.until("Fresh.")

    _, glass = drive(desk, act)
    assert desk.said() == ["talk", "again"]
    assert "word 0 word 1" in glass.all()  # what had been said is kept


@pytest.mark.slow
@pytest.mark.parametrize("key", [ESC, CTRL_C])
def test_a_running_tool_is_interrupted(tmp_path: Path, key: str) -> None:
    command = "echo started; sleep 60; touch made"
    desk = Desk(tmp_path, Step(tools=[("Bash", {"command": command})]), mode="bypass")

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.until("  started")
        seat.press(key)
        await seat.until("interrupted; what was done is kept")

    drive(desk, act)
    assert not (desk.cwd / "made").exists()


@pytest.mark.slow
@pytest.mark.parametrize("key", [ESC, CTRL_C])
def test_a_question_is_interrupted(tmp_path: Path, key: str) -> None:
    desk = Desk(tmp_path, Step(tools=[("Bash", {"command": "touch made"})]), Step(text="Fresh."))

    async def act(seat: Seat) -> None:
        seat.say("go")
        await seat.until("[y]es")
        seat.press(key)
        await seat.until("interrupted; what was done is kept")
        await seat.until("[y]es", gone=True)
        seat.say("again")
        await seat.until("Fresh.")

    drive(desk, act)
    assert desk.said() == ["go", "again"]


@pytest.mark.slow
def test_words_typed_ahead_wait_their_turn(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="one " * 40), Step(text="Second answer."), pace=0.005)

    async def act(seat: Seat) -> None:
        seat.say("first")
        await seat.until("one one")
        seat.say("second")
        await seat.until("❯ second")
        assert desk.said() == ["first"]
        await seat.until("Second answer.")

    _, glass = drive(desk, act)
    assert desk.said() == ["first", "second"]
    assert glass.all().count("❯ second") == 1


@pytest.mark.slow
def test_a_queued_message_can_be_edited(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="one " * 4_000), pace=0.005)

    async def act(seat: Seat) -> None:
        seat.say("first")
        await seat.until("one one")
        seat.say("second")
        await seat.until("❯ second")
        seat.press(UP)
        await seat.until(lambda: seat.repl.screen.draft.text == "second")  # type: ignore[attr-defined]
        seat.press(ENTER)
        await seat.until(lambda: not seat.repl.screen.draft.text)  # type: ignore[attr-defined]
        seat.press(ESC)  # an interrupt gives them back too
        await seat.until("interrupted")
        assert seat.repl.screen.draft.text == "second"  # type: ignore[attr-defined]
        await seat.idle()
        seat.press(CTRL_C)

    drive(desk, act)
    assert desk.said() == ["first"]


@pytest.mark.slow
def test_the_prompt_is_there_before_the_session(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Hello."))
    desk.gate = gate = asyncio.Event()

    async def act(seat: Seat) -> None:
        seat.say("hi")
        await seat.until("❯ hi")
        assert desk.loops == []
        gate.set()
        await seat.until("Hello.")

    drive(desk, act)
    assert desk.said() == ["hi"]


@pytest.mark.slow
@pytest.mark.parametrize("key", [ESC, CTRL_C])
def test_a_message_is_restored_while_the_session_opens(tmp_path: Path, key: str) -> None:
    desk = Desk(tmp_path, Step(text="Hello."))
    desk.gate = gate = asyncio.Event()

    async def act(seat: Seat) -> None:
        seat.say("hi")
        await seat.until(lambda: bool(seat.repl._waiting))
        seat.press(key)
        await seat.until(lambda: not seat.repl._waiting)
        seat.press(" there")
        await seat.until("❯ hi there")
        gate.set()
        await seat.until(lambda: seat.repl.conversation.is_open)
        seat.press(ENTER)
        await seat.until("Hello.")

    drive(desk, act)
    assert desk.said() == ["hi there"]


@pytest.mark.slow
def test_a_session_that_does_not_open_gives_the_words_back(tmp_path: Path) -> None:
    busy = [SessionError("another process holds it", hint="Close that one.") for _ in range(2)]
    desk = Desk(tmp_path, Step(text="Hello."), fails=busy)

    async def act(seat: Seat) -> None:
        await seat.until("Close that one.")
        seat.say("hi")
        await seat.until(lambda: not desk.fails)
        await seat.idle()
        assert seat.repl.screen.draft.text == "hi"  # type: ignore[attr-defined]
        seat.press(ENTER)
        await seat.until("Hello.")

    _, glass = drive(desk, act)
    assert desk.said() == ["hi"]
    assert "no session is open" not in glass.all()


@pytest.mark.slow
def test_a_missing_key_is_told_when_it_is_needed(tmp_path: Path) -> None:
    missing = NoCredentials("no key", hint="Set ANTHROPIC_API_KEY.")
    desk = Desk(tmp_path, Step(error=missing), Step(text="Now it works."))

    async def act(seat: Seat) -> None:
        seat.say("hi")
        await seat.until("✗ no key")
        await seat.until("  Set ANTHROPIC_API_KEY.")
        seat.say("again")
        await seat.until("Now it works.")

    drive(desk, act)


RECORD = (
    "## Session Intent\nTalk.\n\n## Key Decisions\n1. None yet.\n\n"
    "## Current State\nPhase: talking\n\n## Next Steps\n1. Wait.\n"
)
LONG = long_text(2_000)


@pytest.mark.slow
def test_a_compaction_leaves_a_receipt(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text=LONG), Step(text="Two."), Step(text=RECORD, delay=0.3))

    async def act(seat: Seat) -> None:
        for words in ("one", "two", "compress"):
            seat.say(words)
        await seat.until("◌ writing a summary")
        await seat.until("/uncompact undoes it")
        await seat.until("◌ writing a summary", gone=True)

    _, glass = drive(desk, act, glass=Glass(columns=120))
    assert glass.all().count("context compacted (manual): ") == 1
    assert sum(isinstance(e, Summary) for e in read_log(desk.loops[0].log.path).entries) == 1
    assert desk.said() == ["one", "two"]


@pytest.mark.slow
@pytest.mark.parametrize("key", [ESC, CTRL_C])
def test_a_compaction_is_interrupted(tmp_path: Path, key: str) -> None:
    steps = [Step(text=LONG), Step(text="Two."), Step(text=RECORD, delay=60), Step(text="Fresh.")]
    desk = Desk(tmp_path, *steps)

    async def act(seat: Seat) -> None:
        seat.say("one")
        seat.say("two")
        seat.say("/compact")
        await seat.until("◌ writing a summary")
        seat.press(key)
        await seat.until("interrupted; nothing has changed")
        seat.say("three")
        await seat.until("Fresh.")

    drive(desk, act)
    assert not any(isinstance(e, Summary) for e in read_log(desk.loops[0].log.path).entries)
    assert "word 0 word 1" in str(desk.model.requests[-1].messages)


@pytest.mark.slow
def test_a_summary_is_asked_about_with_one_key(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text=LONG), Step(text="Two."), Step(text=RECORD))

    async def act(seat: Seat) -> None:
        seat.say("one")
        seat.say("two")
        seat.say("/compact --show")
        await seat.keys("[y]es, apply it")
        seat.press("n")
        await seat.until("not applied; nothing has changed")

    _, glass = drive(desk, act)
    assert "Session Intent" in glass.all()
    assert not any(isinstance(e, Summary) for e in read_log(desk.loops[0].log.path).entries)


@pytest.mark.slow
def test_uncompact_after_a_later_turn_goes_on_in_a_copy(tmp_path: Path) -> None:
    steps = [Step(text=LONG), Step(text="Two."), Step(text=RECORD)]
    desk = Desk(tmp_path, *steps, Step(text="Three."), Step(text="Four."))

    async def act(seat: Seat) -> None:
        for words in ("one", "two", "/compact", "three", "/uncompact", "four"):
            seat.say(words)
        await seat.until("Four.")

    _, glass = drive(desk, act, glass=Glass(columns=120))
    first, copy = desk.loops
    assert first.log.path != copy.log.path
    assert f"/resume {first.log.path.parent.name}" in glass.all()
    assert desk.said(0) == ["one", "two", "three"]
    assert desk.said(1) == ["one", "two", "four"]
    sent = str(desk.model.requests[-1].messages)
    assert "word 0 word 1" in sent
    assert "[Conversation compressed]" not in sent


@pytest.mark.slow
def test_ctrl_c_clears_then_leaves(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def act(seat: Seat) -> None:
        await seat.idle()
        seat.press("half a thought")
        await seat.until("half a thought")
        seat.press(CTRL_C)
        await seat.until("half a thought", gone=True)
        seat.press(CTRL_C)
        await seat.until("Press Ctrl-C again to leave.")
        seat.press(CTRL_C)
        await seat.until(lambda: not seat.repl.screen.app.is_running)  # type: ignore[attr-defined]

    code, glass = drive(desk, act)
    assert code == 0
    assert "--resume" not in glass.all()  # nothing was said, so there is nothing to go on with
    assert glass.raw.rindex("?2004l") > glass.raw.rindex("?2004h")  # bracketed paste is off again


@pytest.mark.slow
def test_leaving_ends_a_running_turn(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text=long_text(5_000)), pace=0.005)

    async def act(seat: Seat) -> None:
        seat.say("talk")
        await seat.until("word 0 word 1")
        seat.press(CTRL_D)
        await seat.until("--resume")

    drive(desk, act)
    assert read_log(desk.loops[0].log.path).entries[-1].kind == "end"


@pytest.mark.slow
@pytest.mark.parametrize("newline", ["\\" + ENTER, ESC + ENTER, "\n"])
def test_words_of_several_lines(tmp_path: Path, newline: str) -> None:
    desk = Desk(tmp_path, Step(text="Yes."))

    async def act(seat: Seat) -> None:
        seat.say(f"one{newline}two")
        await seat.until("Yes.")

    drive(desk, act)
    assert desk.said() == ["one\ntwo"]


@pytest.mark.slow
def test_a_paste_is_taken_as_it_is(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Yes."))

    async def act(seat: Seat) -> None:
        seat.press("\x1b[200~def f():\r\n\treturn 1\r\n\x1b[201~")
        await seat.until("return 1")
        seat.press(ENTER)
        await seat.until("Yes.")

    drive(desk, act)
    assert desk.said() == ["def f():\n\treturn 1\n"]


@pytest.mark.slow
def test_history_is_private_and_can_be_searched(tmp_path: Path) -> None:
    history = tmp_path / "state" / "history"

    async def say(seat: Seat) -> None:
        seat.say("find the needle")
        await seat.until("One.")
        seat.say("something else")
        await seat.until("Two.")

    desk = Desk(tmp_path, Step(text="One."), Step(text="Two."))
    drive(desk, say, history=history)
    assert history.stat().st_mode & 0o777 == 0o600

    async def search(seat: Seat) -> None:
        await seat.idle()
        seat.press(CTRL_R + "need")
        await seat.until("find the needle")
        seat.press(ENTER)
        await seat.until(lambda: seat.repl.screen.draft.text == "find the needle")  # type: ignore[attr-defined]
        seat.press(ENTER)
        await seat.until("Found.")

    desk.model = ScriptedModel([Step(text="Found.")])
    drive(desk, search, history=history)
    assert desk.said() == ["find the needle"]


@pytest.mark.slow
def test_completion_of_commands_and_paths(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Read it."))
    (desk.cwd / "src").mkdir()
    (desk.cwd / "src" / "Needle.py").write_text("")
    (desk.cwd / "other.txt").write_text("")

    async def act(seat: Seat) -> None:
        seat.press("/perm")
        await seat.until("show the rules, or set the mode")
        seat.press("\t" + CTRL_C)
        seat.press("look at @need")
        await seat.until("src/Needle.py")
        assert "other.txt" not in seat.glass.all()
        seat.press("\t please")
        await seat.until("@src/Needle.py please")
        seat.press(ENTER)
        await seat.until("Read it.")

    drive(desk, act)
    assert desk.said() == ["look at @src/Needle.py please"]


@pytest.mark.slow
def test_keys_of_other_agents(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    def draft(seat: Seat) -> str:
        return seat.repl.screen.draft.text  # type: ignore[attr-defined,no-any-return]

    async def act(seat: Seat) -> None:
        await seat.until("% full")
        seat.press("some words\x13")
        await seat.until("The message is set aside")
        assert draft(seat) == ""
        seat.press("\x13")
        await seat.until(lambda: draft(seat) == "some words")
        seat.press("\x1b")
        await seat.until("Press Esc again to clear the input")
        seat.press("\x1b")
        await seat.until(lambda: draft(seat) == "")
        seat.press("\x14")
        await seat.until("the todo list is empty")
        await seat.idle()
        seat.press("\x1b")
        await seat.until("Press Esc again to go back")
        seat.press("\x1b")
        await seat.until("❯ /rewind")
        await seat.idle()

    drive(desk, act)
    assert desk.said() == []


@pytest.mark.slow
def test_the_status_line(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Yes."))
    (desk.cwd / ".git").mkdir()
    (desk.cwd / ".git" / "HEAD").write_text("ref: refs/heads/topic/one\n")

    async def act(seat: Seat) -> None:
        await seat.until("scripted model · ask · topic/one")
        assert "% full" in seat.glass.all()
        for name in ("accept-edits", "plan", "ask"):  # `bypass` only where it began
            seat.press(SHIFT_TAB)
            await seat.until(f"scripted model · {name} ·")
            assert desk.loops[0].approval.mode == name
        seat.say("/permissions bypass")
        await seat.until("ask nothing from now on")
        seat.say("n")
        await seat.until("the mode stays ask")
        assert desk.loops[0].approval.mode == "ask"
        seat.say("/yolo")  # what other agents call it
        await seat.until("asks nothing from then on")
        assert desk.loops[0].approval.mode == "ask"
        seat.say("/permissions bypass")
        await seat.until("ask nothing from now on")
        seat.say("y")
        await seat.until("scripted model · bypass: asks nothing ·")

    drive(desk, act)


@pytest.mark.slow
def test_commands_that_change_the_session(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="One."), Step(text="Two."), Step(text="Three."))

    async def act(seat: Seat) -> None:
        seat.say("first words")
        await seat.until("One.")
        seat.say("/clear")
        await seat.until(lambda: len(desk.loops) == 2)
        seat.say("second words")
        await seat.until("Two.")
        seat.say("/sessions")
        await seat.until("resume one")
        seat.say(f"/resume {desk.loops[0].log.path.parent.name}")
        await seat.until("resumed (")
        seat.say("third words")
        await seat.until("Three.")
        seat.say("/fork")
        await seat.until(lambda: len(desk.loops) == 4)
        seat.say("/nonsense")
        await seat.until("there is no command /nonsense")

    drive(desk, act)
    assert desk.said(0) == ["first words", "third words"]
    assert desk.said(1) == ["second words"]
    assert desk.said(3) == ["first words", "third words"]
    assert desk.loops[2].log.path == desk.loops[0].log.path


@pytest.mark.slow
def test_a_new_session_is_told_nothing_and_the_old_one_stays(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="One."), Step(text="Two."), Step(text="Three."))

    async def act(seat: Seat) -> None:
        seat.say("first words")
        await seat.until("One.")
        old = desk.loops[0].log.path.parent.name
        seat.say("/new")
        await seat.until(f"/resume {old}")
        seat.say("second words")
        await seat.until("Two.")
        assert "first words" not in str(desk.model.requests[-1].messages)
        seat.say(f"/resume {old}")
        await seat.until("resumed (")
        seat.say("third words")
        await seat.until("Three.")

    drive(desk, act)
    assert [desk.said(place) for place in range(2)] == [
        ["first words", "third words"],
        ["second words"],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("words", ["exit", "quit", "/exit", "/quit"])
def test_words_that_leave(tmp_path: Path, words: str) -> None:
    """At once, also during a turn; within a sentence they are ordinary words."""
    step = Step(tools=[("Bash", {"command": "echo under way; sleep 60"})])
    desk = Desk(tmp_path, Step(text="How?"), step, mode="bypass")

    async def act(seat: Seat) -> None:
        seat.say(f"{words} is what I type") if words.isalpha() else seat.say("how do I leave?")
        await seat.until("How?")
        seat.say("go")
        await seat.until("under way")
        seat.say(words)
        await seat.until(lambda: not seat.repl.screen.app.is_running)  # type: ignore[attr-defined]

    code, _ = drive(desk, act)
    assert code == 0
    assert len(desk.said()) == 2


@pytest.mark.slow
def test_init_is_a_turn_that_is_seen_and_asked_about(tmp_path: Path) -> None:
    write = Step(tools=[("Write", {"path": "AGENTS.md", "content": "make test\n"})])
    desk = Desk(tmp_path, write, Step(text="It is written."), Step(text="Later words."))

    async def act(seat: Seat) -> None:
        seat.say("/init")
        seat.say("typed ahead")
        await seat.keys()
        assert "sent its instructions: " in seat.glass.all()
        assert "Write AGENTS.md in the root of this project" not in seat.glass.all()
        assert not (desk.cwd / "AGENTS.md").exists()
        seat.press("y")
        await seat.until("Later words.")
        await seat.idle()
        seat.press("\x0f\x0f")  # the newest folds: the diff of the file, or the instructions
        await seat.until("Write AGENTS.md in the root of this project")

    drive(desk, act)
    assert (desk.cwd / "AGENTS.md").read_text() == "make test\n"
    first, second = desk.said()
    assert first.startswith("Write AGENTS.md")
    assert second == "typed ahead"


@pytest.mark.slow
def test_read_only_commands_run_during_a_turn(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text=long_text(5_000)), pace=0.005)

    async def act(seat: Seat) -> None:
        seat.say("talk")
        await seat.until("word 0 word 1")
        seat.say("/cost")
        await seat.until("from cache")
        assert seat.repl.working
        seat.say("/quit")
        await seat.until("--resume")

    drive(desk, act)


@pytest.mark.slow
def test_a_failed_attempt_is_removed_from_the_screen(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Whole answer."))

    async def act(seat: Seat) -> None:
        await seat.idle()
        seat.repl.emit(TextDelta("A finished block.\n\nand a half"))
        await seat.until("and a half")
        seat.repl.emit(Retrying(2, 8, 30.0, "the connection was cut"))
        await seat.until("and a half", gone=True)
        await seat.until("Esc to stop · attempt 2 of 8 failed: the connection was cut")
        seat.say("go")
        await seat.until("Whole answer.")

    _, glass = drive(desk, act)
    assert "the reply was cut off and starts again" in glass.all()
    assert "half" not in glass.all()


def test_a_script_is_played_to_its_end(tmp_path: Path) -> None:
    steps = [
        Step(tools=[("Bash", {"command": "touch made"})]),
        Step(text="Done."),
        Step(text="Bye."),
    ]
    desk = Desk(tmp_path, *steps)
    glass = Glass()

    async def play(keys: PipeInput) -> int:
        return await Seat(desk, keys, glass).repl.run(["make it", "thanks"])

    with create_pipe_input() as keys:
        assert asyncio.run(play(keys)) == 0
    assert desk.said() == ["make it", "thanks"]
    assert (desk.cwd / "made").exists()
    assert "Bye." in glass.all()


def test_a_script_tells_of_a_failure(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(error=ModelUnavailable("it is down")))

    async def play(keys: PipeInput) -> int:
        return await Seat(desk, keys, Glass()).repl.run(["hello"])

    with create_pipe_input() as keys:
        assert asyncio.run(play(keys)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "rows"), [(40, 12), (20, 6), (200, 60)])
def test_any_size_of_terminal(tmp_path: Path, columns: int, rows: int) -> None:
    text = "A long paragraph of words. " * 10 + "\n\n| a | b |\n|---|---|\n| 1 | 漢字 |\n\nThe end."
    desk = Desk(tmp_path, Step(tools=[("Bash", {"command": "touch made"})]), Step(text=text))

    async def act(seat: Seat) -> None:
        seat.say("go " + "long words " * 20)
        await seat.keys()
        seat.press("y")
        await seat.until("The end.")

    _, glass = drive(desk, act, glass=Glass(columns, rows))
    assert "漢字" in glass.all().replace("漢 字", "漢字")


@pytest.mark.slow
def test_resizing_while_text_streams(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="word " * 300 + "\n\nThe end."), pace=0.001)
    glass = Glass()

    async def act(seat: Seat) -> None:
        seat.say("talk")
        await seat.until("word word")
        glass.size = Size(rows=12, columns=40)
        glass.screen.resize(12, 40)
        seat.repl.screen.app._on_resize()  # type: ignore[attr-defined]
        await seat.until("The end.")

    drive(desk, act, glass=glass)
    assert desk.said() == ["talk"]


@pytest.mark.slow
def test_without_colour(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Some `code` and **bold**."))
    glass = Glass()

    async def act(seat: Seat) -> None:
        seat.say("hi")
        await seat.until("Some code")

    glass.output = lambda: BatchedOutput(  # type: ignore[method-assign]
        glass, lambda: glass.size, ColorDepth.DEPTH_1_BIT
    )
    drive(desk, act, glass=glass)
    codes = {c for found in re.findall(r"\x1b\[([0-9;]*)m", glass.raw) for c in found.split(";")}
    assert codes <= {"", "0", "1", "2", "3", "4", "7"}, codes


def run_plain(desk: Desk, typed: str = "", script: Sequence[str] = ()) -> tuple[int, str]:
    """The REPL over pipes."""
    out = io.StringIO()
    reading, writing = os.pipe()
    os.write(writing, typed.encode())
    os.close(writing)

    async def run(source: Any) -> int:
        repl = Repl(desk.services(), UiSettings(plain=True), input=source, output=out)
        return await repl.run(script)

    with os.fdopen(reading) as source:
        return asyncio.run(run(source)), out.getvalue()


@pytest.mark.slow
def test_lines_for_a_terminal_that_can_do_little(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="**One.**"), Step(text="Two."))
    code, out = run_plain(desk, "first\n/cost\n\nsecond")
    assert code == 0
    assert desk.said() == ["first", "second"]
    assert out.index("One.") < out.index("from cache") < out.index("Two.")
    assert "**" not in out
    assert "\x1b" not in out
    assert "ctxagent --resume" in out


def test_lines_of_a_pipe_are_a_turn_each(tmp_path: Path) -> None:
    until = {"command": "until [ -e go ]; do sleep 0.02; done"}
    steps = [Step(tools=[("Bash", until)]), Step(text="One."), Step(text="Two.")]
    desk = Desk(tmp_path, *steps, mode="bypass")
    reading, writing = os.pipe()

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            if "a scripted model plays" in text:
                os.write(writing, b"first\n")
            if "❯ first" in text:  # the turn runs
                os.write(writing, b"second\n/cost\n")
            if "from cache" in text:  # so "second" was heard before
                (desk.cwd / "go").touch()
                os.close(writing)
            return super().write(text)

    async def run(source: Any) -> int:
        repl = Repl(desk.services(), UiSettings(plain=True), input=source, output=Out())
        return await repl.run()

    with os.fdopen(reading) as source:
        assert asyncio.run(run(source)) == 0
    said = [e for e in read_log(desk.loops[0].log.path).entries if isinstance(e, User)]
    assert [(each.content, each.mid_turn) for each in said] == [("first", False), ("second", False)]


def test_a_question_that_nobody_can_answer_is_declined(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(tools=[("Bash", {"command": "touch made"})]), Step(text="I see."))
    _, out = run_plain(desk, "go\n")
    assert "declined: nobody is there to answer" in out
    assert not (desk.cwd / "made").exists()
    assert "I see." in out


def test_a_script_in_plain_lines(tmp_path: Path) -> None:
    steps = [
        Step(tools=[("Bash", {"command": "touch made"})]),
        Step(text="Done."),
        Step(text="Bye."),
    ]
    desk = Desk(tmp_path, *steps)
    code, out = run_plain(desk, script=["make it", "thanks"])
    assert code == 0
    assert (desk.cwd / "made").exists()
    assert out.index("❯ make it") < out.index("● Bash  touch made") < out.index("Done.")
    assert out.index("Done.") < out.index("❯ thanks") < out.index("Bye.")


def test_an_interrupt_signal_in_plain_lines(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="word.\n\n" * 5_000), pace=0.002)
    reading, writing = os.pipe()

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            if text == "word.\n" and "interrupted" not in self.getvalue():
                os.kill(os.getpid(), signal.SIGINT)
            if "interrupted" in text:
                os.close(writing)
            return super().write(text)

    out = Out()
    os.write(writing, b"talk\n")

    async def run(source: Any) -> int:
        repl = Repl(desk.services(), UiSettings(plain=True), input=source, output=out)
        return await repl.run()

    with os.fdopen(reading) as source:
        assert asyncio.run(run(source)) == 0
    assert read_log(desk.loops[0].log.path).entries[-1].kind == "end"


@pytest.mark.slow
def test_vi_keys(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(tools=[("Bash", {"command": "touch made"})]), Step(text="Ran."))

    async def act(seat: Seat) -> None:
        seat.press("do iit")
        await seat.until("do iit")
        seat.press(ESC)
        await seat.until(lambda: seat.repl.screen.app.vi_state.input_mode == "vi-navigation")  # type: ignore[attr-defined]
        seat.press("0wx" + ENTER)
        await seat.keys()
        seat.press("y")
        await seat.until("Ran.")

    drive(desk, act, editing_mode="vi")
    assert desk.said() == ["do it"]
    assert (desk.cwd / "made").exists()


@pytest.mark.slow
def test_words_that_were_not_sent_are_named_on_leaving(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text=long_text(5_000)), pace=0.005)

    async def act(seat: Seat) -> None:
        seat.say("talk")
        await seat.until("word 0 word 1")
        seat.say("one more thing")
        await seat.until("❯ one more thing")
        seat.press(CTRL_D)
        await seat.until("not sent: one more thing")

    drive(desk, act)
    assert desk.said() == ["talk"]


@pytest.mark.slow
def test_mode_effort_and_model_apply_to_the_next_session(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="One."), mode="bypass")

    async def act(seat: Seat) -> None:
        seat.say("first words")
        await seat.until("One.")
        for words in ("/permissions plan", "/effort high", "/model other", "/clear"):
            seat.say(words)
        await seat.until(lambda: len(desk.loops) == 2)
        seat.say(f"/resume {desk.loops[0].log.path.parent.name}")
        await seat.until(lambda: len(desk.loops) == 3)

    drive(desk, act)
    for loop in desk.loops[1:]:
        assert loop.approval.mode == "plan"
        assert loop.model.effort == "high"
    assert desk.chosen == [(loop, "other") for loop in desk.loops]


@pytest.mark.slow
def test_a_changed_mode_is_announced_to_the_model_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path, *(Step(text=f"Answer {n}.") for n in range(5)))

    async def act(seat: Seat) -> None:
        await seat.idle()  # the session is open
        for n, presses in enumerate((1, 1, 0, 3)):
            for _ in range(presses):
                seat.press(SHIFT_TAB)
            seat.say(f"words {n}")
            await seat.until(f"Answer {n}.")
        seat.say("/permissions ask")
        seat.say("/fork")
        seat.say("words 4")
        await seat.until("Answer 4.")

    drive(desk, act)
    plan, ask = permission_mode.mode_notice("plan"), permission_mode.mode_notice("ask")
    assert desk.said() == ["words 0", plan, "words 1", "words 2", "words 3", ask, "words 4"]


def test_the_mode_that_the_model_knows_of(tmp_path: Path) -> None:
    told = User(content=permission_mode.mode_notice("plan"), source="notice")
    quoted = User(content="Why is there\nPermission mode: bypass\nin my notes?")
    renewed = entry_after_summary(
        tmp_path,
        mode="accept-edits",
        todos=[],
        jobs="",
        preserved="",
    )
    assert permission_mode.announced_mode(fold([quoted])) is None
    assert permission_mode.announced_mode(fold([told, quoted])) == "plan"
    assert permission_mode.announced_mode(fold([told, renewed, quoted])) == "accept-edits"


@pytest.mark.slow
def test_going_on_shows_where_it_was_left(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Old answer."), Step(text="New answer."))

    async def act(seat: Seat) -> None:
        for words in ("old words", "new words", "/clear"):
            seat.say(words)
        await seat.until(lambda: len(desk.loops) == 2)
        seat.say(f"/resume {desk.loops[0].log.path.parent.name}")
        await seat.until(lambda: seat.glass.all().count("New answer.") == 2)
        seat.say("/fork")
        await seat.until(lambda: len(desk.loops) == 4)

    _, glass = drive(desk, act)
    shown = glass.all().split("resumed (")
    assert "❯ new words\n\nNew answer." in shown[1]
    assert "Old answer." not in shown[1]
    assert "New answer." not in shown[2]  # a copy of what is on the screen


@pytest.mark.slow
@pytest.mark.parametrize("key", [ESC, CTRL_C])
def test_an_interrupt_ends_a_script(tmp_path: Path, key: str) -> None:
    desk = Desk(tmp_path, Step(text=long_text(5_000)), Step(text="Never."), pace=0.005)
    glass = Glass()

    async def play(keys: PipeInput) -> int:
        seat = Seat(desk, keys, glass)
        playing = asyncio.create_task(seat.repl.run(["talk", "go on"]))
        await seat.until("word 0 word 1")
        seat.press(key)
        return await playing

    with create_pipe_input() as keys:
        assert asyncio.run(play(keys)) == 130
    assert desk.said() == ["talk"]
    assert read_log(desk.loops[0].log.path).entries[-1].kind == "end"


@pytest.mark.slow
@pytest.mark.parametrize("key", [ESC, CTRL_C])
def test_an_interrupt_ends_a_script_that_is_being_typed(tmp_path: Path, key: str) -> None:
    desk = Desk(tmp_path, Step(text="One."))
    glass = Glass()

    async def play(keys: PipeInput) -> int:
        seat = Seat(desk, keys, glass)
        playing = asyncio.create_task(seat.repl.run(["talk", "x" * 40_000], pace=0.001))
        await seat.until("xxx")
        seat.press(key)
        return await playing

    with create_pipe_input() as keys:
        assert asyncio.run(play(keys)) == 130
    assert desk.said() == ["talk"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_end_signals_on_the_plain_screen(tmp_path: Path, number: signal.Signals) -> None:
    desk = Desk(tmp_path, Step(text="word.\n\n" * 5_000), pace=0.002)
    reading, writing = os.pipe()
    os.write(writing, b"talk\n")

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            if text == "word.\n" and self.getvalue().count("word.") < 2:
                os.kill(os.getpid(), number)
                os.kill(os.getpid(), number)  # a shell passes on what the kernel has sent
            return super().write(text)

    out = Out()

    async def run(source: Any) -> int:
        repl = Repl(desk.services(), UiSettings(plain=True), input=source, output=out)
        return await repl.run()

    with os.fdopen(reading) as source:
        assert asyncio.run(run(source)) == 130
    os.close(writing)
    assert read_log(desk.loops[0].log.path).entries[-1].kind == "end"
    assert "ctxagent --resume" in out.getvalue()
