"""Manual commands of the user: a shell command, a note."""

import asyncio
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.compaction.breakdown import break_down
from ctxagent.agent.compaction.history import acts
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.context.view import fold
from ctxagent.agent.errors import UsageError
from ctxagent.agent.events import ToolFinished, ToolOutput, ToolStarted
from ctxagent.agent.loop import user_commands
from ctxagent.agent.loop.file_changes import ChangeTracker
from ctxagent.agent.loop.tool_calls import ToolRunner
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Checkpoint, Note, Pin, Summary, ToolResult, User
from ctxagent.agent.session.log import read_log
from ctxagent.agent.session.store import full_text
from ctxagent.agent.ui.commands import COMMANDS, parse
from ctxagent.agent.worktree import WorkTree
from ctxagent.tools.base import Output

from ..support.command import gone
from ..support.sessions.conversation import Conversation
from ..support.terminal.seat import CTRL_C, ENTER, ESC, Desk, Seat, drive


def run(talk: Conversation, command: str) -> User:
    asyncio.run(user_commands.run_shell_command(talk.agent, command))
    found = talk.of(User)[-1]
    assert isinstance(found, User)
    assert found.source == "shell"
    return found


def sent(talk: Conversation) -> str:
    return str(talk.model.requests[-1].messages)  # type: ignore[attr-defined]


def test_a_command_joins_the_context_with_the_next_words(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, [Step(text="I see."), Step(text="Yes.")], mode="ask")
    entry = run(talk, "echo out; echo err >&2; exit 3")
    assert (entry.details["exit_code"], entry.details["command"][:8]) == (3, "echo out")
    assert talk.model.requests == []  # type: ignore[attr-defined]
    assert talk.kinds()[:2] == ["session", "user"]
    talk.say("what was that?")
    messages = talk.model.requests[0].messages  # type: ignore[attr-defined]
    assert len(messages) == 1
    texts = [block["text"] for block in messages[0]["content"]]
    assert texts[0].endswith("in " + str(tmp_path) + ":]\necho out; echo err >&2; exit 3")
    assert texts[1] == "[What it said:]\nout\nerr\n[exit 3]"
    assert texts[2] == "what was that?"
    run(talk, "true")
    talk.say("and now?")
    assert "[no output; exit 0]" in sent(talk)
    assert fold(talk.entries()) == talk.agent.view


def test_a_running_command_emits_tool_events(tmp_path: Path) -> None:
    talk = Conversation(tmp_path)
    entry = run(talk, "echo working; echo done")
    (started,), (finished,) = talk.seen(ToolStarted), talk.seen(ToolFinished)
    assert (started.name, started.title) == ("Shell", "echo working; echo done")
    assert "working" in "".join(event.text for event in talk.seen(ToolOutput))
    assert (finished.id, finished.text, finished.ref) == (started.id, "working\ndone", entry.seq)


@pytest.mark.slow
def test_the_ledger_has_manual_commands(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "a.txt").write_text("one\n")
    talk = Conversation(tmp_path, [Step(tools=[("Bash", {"command": "sort b"})]), Step(text="No.")])
    index = talk.agent.folder / "worktree.index"
    tree = WorkTree(
        tmp_path, store=talk.agent.folder / "store", index=index, env=talk.agent.context.env
    )
    talk.agent.runner.change_tracker = ChangeTracker(tree, talk.agent.context)
    talk.say("begin")
    assert [fact.command for fact in talk.agent.ledger.unresolved()] == ["sort b"]
    entry = run(talk, "echo two >> a.txt; echo new > b")
    assert "[It changed: a.txt (modified), b (created)]" in str(entry.content)
    files = talk.agent.ledger.files
    assert {(path, fact.action, fact.tool, fact.ref) for path, fact in files.items()} == {
        ("a.txt", "modified", "user", entry.seq),
        ("b", "created", "user", entry.seq),
    }
    run(talk, "sort b")
    assert talk.agent.ledger.unresolved() == []
    run(talk, "echo AssertionError: no; false")
    assert talk.agent.ledger.unresolved()[0].errors == ("AssertionError: no",)
    assert any(isinstance(entry, Checkpoint) for entry in talk.entries())


def test_a_large_output_goes_to_a_file(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, [Step(text="Long.")])
    entry = run(talk, "seq 1 40000; false")
    assert entry.offloaded
    whole = (talk.agent.folder / entry.offloaded).read_text()
    assert whole.startswith("1\n2\n")
    assert whole.endswith("40000\n[exit 1]")
    assert full_text(talk.agent.log.path, entry.seq) == whole
    talk.say("look")
    assert str(talk.agent.folder / entry.offloaded) in sent(talk)
    assert len(sent(talk)) < 40_000
    assert "40000" in talk.agent.ledger.unresolved()[0].errors[-1] + whole


@pytest.mark.slow
def test_an_interrupted_command_is_ended_and_recorded(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, [Step(text="Well.")])

    async def act() -> None:
        running = asyncio.create_task(
            user_commands.run_shell_command(talk.agent, "echo $$ > pid; echo begun; sleep 300")
        )
        talk.agent.emit = lambda event: (
            asyncio.get_running_loop().call_soon(running.cancel) and None
            if isinstance(event, ToolOutput)
            else None
        )
        await running

    asyncio.run(act())
    assert gone(int((tmp_path / "pid").read_text()))
    talk.say("go on")
    assert "begun\\n[interrupted by the user]" in sent(talk)
    assert talk.agent.ledger.unresolved() == []


@pytest.mark.parametrize("way", ["command", "words"])
def test_startup_entries_lost_to_an_interrupt_are_recorded_later(tmp_path: Path, way: str) -> None:
    """The next action starts with the environment entries, recorded once."""
    talk = Conversation(tmp_path, [Step(text="Yes."), Step(text="And yes.")])
    begun, go, looks = threading.Event(), threading.Event(), 0

    def surroundings() -> list[User]:
        nonlocal looks
        looks += 1
        begun.set()
        assert go.wait(100)
        return [User(content="Here you are.", source="environment")]

    talk.environment.startup = surroundings

    async def interrupted() -> None:
        work = (
            user_commands.run_shell_command(talk.agent, "true")
            if way == "command"
            else run_turn(talk.agent, "one")
        )
        running: asyncio.Task[object] = asyncio.ensure_future(work)
        await asyncio.to_thread(begun.wait, 100)
        running.cancel()
        await asyncio.wait({running})
        go.set()

    asyncio.run(interrupted())
    assert "Here you are." not in str(talk.entries())
    talk.say("two")
    assert sent(talk).count("Here you are.") == 1
    run(talk, "true")
    talk.say("three")
    assert sent(talk).count("Here you are.") == 1
    assert looks == 1
    first, second = (request.messages for request in talk.model.requests)  # type: ignore[attr-defined]
    assert second[0]["content"] == first[0]["content"]
    assert fold(talk.entries()) == talk.agent.view


def test_a_large_output_counts_as_any_other(tmp_path: Path) -> None:
    talk = Conversation(tmp_path)
    entry = run(talk, "seq 1 40000")
    saved = entry.details["tokens_saved"]
    assert saved > 10_000
    assert talk.agent.totals.all.compaction["demoted"] == 1
    assert talk.agent.totals.all.compaction["tokens_saved"] == saved
    (act,) = acts(talk.entries())
    assert (act.layer, act.saved, act.files) == ("demote", saved, (entry.offloaded,))
    filling = break_down(talk.agent.view, talk.agent.model.current_window())
    assert [(p.kind, p.count, p.saved) for p in filling.parts if p.kind == "commands"] == [
        ("commands", 1, saved)
    ]
    assert [large.offloaded for large in filling.largest] == [True]


def test_a_note_is_seen_at_once_and_after_every_summary(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("word " * 3_000)
    summary = "## Session Intent\nRead.\n\n## Current State\nDone.\n\n## Next Steps\n1. Wait.\n"
    steps = [
        Step(tools=[("Read", {"path": "big.txt"})]),
        *map(Step, ("Words. " * 200, "3,000.", summary, "Yes.", "Free.")),
    ]
    policy = replace(DEFAULT, keep_tokens=0, keep_messages=1, clear_when="off")
    talk = Conversation(tmp_path, steps, policy=policy)
    ref = asyncio.run(user_commands.pin_note(talk.agent, "tabs, not blanks"))
    assert [(pin.ref, pin.text) for pin in talk.of(Pin)] == [(ref, "tabs, not blanks")]
    talk.say("begin")
    assert "until they take it back:]\\ntabs, not blanks" in sent(talk)
    talk.say("how many?")
    asyncio.run(talk.agent.engine.compact())
    talk.say("and now?")
    assert f"## Pinned\\n#{ref}: tabs, not blanks" in sent(talk)
    user_commands.unpin(talk.agent, ref)
    talk.say("and now?")
    assert f"takes back what they pinned in #{ref}" in sent(talk)
    assert talk.agent.ledger.pins == {}


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("!ls -l", ("shell", "ls -l")),
        ("! for f in *; do\n  echo $f\ndone", ("shell", "for f in *; do\n  echo $f\ndone")),
        ("!", ("shell", "")),
        ("# tabs, not blanks ", ("pin", "tabs, not blanks")),
        ("#tabs", ("pin", "tabs")),
        ("#", ("pin", "")),
        ("#42", None),
        ("# 42", None),
        ("#-1", None),
        ("#42 is wrong", None),
        ("## A heading", None),
        ("#!/bin/sh", None),
        ("# A heading\nand words", None),
        (" !ls", None),
        ("what! #now", None),
    ],
)
def test_which_inputs_are_manual_commands(words: str, command: tuple[str, str] | None) -> None:
    found = parse(words, COMMANDS)
    assert (found and (found[0].name, found[1])) == command


def test_a_command_that_is_interrupted_before_it_runs_is_recorded(tmp_path: Path) -> None:
    talk = Conversation(tmp_path, [Step(text="Well.")])

    async def act() -> None:
        running = asyncio.create_task(user_commands.run_shell_command(talk.agent, "touch a"))
        talk.agent.emit = lambda event: (
            talk.events.append(event),
            running.cancel() if isinstance(event, ToolStarted) else None,
        )[0]
        await running

    asyncio.run(act())
    (entry,) = talk.of(User)
    assert (entry.details["interrupted"], entry.details["command"]) == (True, "touch a")
    assert "[interrupted by the user]" in str(entry.content)
    (finished,) = talk.seen(ToolFinished)
    assert (finished.is_error, finished.text) == (True, "[interrupted by the user]")
    assert list(tmp_path.iterdir()) == []
    assert talk.say("go on").text == "Well."


def test_a_session_gets_a_title(tmp_path: Path) -> None:
    talk = Conversation(tmp_path)
    assert user_commands.rename(talk.agent, "  All   walruses ") == "All walruses"
    assert talk.kinds() == ["session", "note"]
    (note,) = talk.of(Note)
    assert (note.topic, note.text) == ("title", "All walruses")
    assert "All walruses" in (talk.agent.folder / "title").read_text()
    with pytest.raises(UsageError, match="the title is empty"):
        user_commands.rename(talk.agent, " ")


def test_secrets_are_removed_from_a_title(tmp_path: Path) -> None:
    talk = Conversation(tmp_path)
    talk.agent.log.redact = lambda entry: (  # type: ignore[method-assign]
        replace(entry, text="[key]") if isinstance(entry, Note) else entry
    )
    assert user_commands.rename(talk.agent, "key-1234") == "[key]"


def test_a_note_that_the_model_never_saw_is_unpinned_silently(tmp_path: Path) -> None:
    talk = Conversation(tmp_path)
    user_commands.unpin(talk.agent, 7)
    assert talk.kinds() == ["unpin"]


def changed(name: str, **more: object) -> dict[str, object]:
    return {"path": name, "action": "modified", "added": 1, "removed": 1, **more}


@pytest.mark.parametrize(
    ("details", "told"),
    [
        ({}, []),
        ({"changes": [changed("a")]}, ["[It changed: a (modified)]"]),
        (
            {
                "changes": [changed("a"), changed("b", certain=False)],
                "changed_meanwhile": [{"path": "c", "action": "deleted"}],
            },
            ["[It changed: a (modified)]", "[Changed while it ran: b (modified), c (deleted)]"],
        ),
        (
            {"changes": [changed(str(n)) for n in range(12)]},
            [f"[It changed: {', '.join(f'{n} (modified)' for n in range(10))}, and 2 more]"],
        ),
    ],
)
def test_the_model_reads_what_a_command_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, details: dict[str, object], told: list[str]
) -> None:
    async def watched(self: ToolRunner, *given: object) -> Output:
        return Output("done", {"exit_code": 0, **details})

    monkeypatch.setattr(ToolRunner, "watched", watched)
    talk = Conversation(tmp_path)
    ran, output = run(talk, "make").content
    assert ran["text"].splitlines()[1:] == ["make", *told]
    assert output["text"] == "[What it said:]\ndone"


# In front of the REPL.


@pytest.mark.slow
def test_a_command_runs_live_without_a_question(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="I see it."))

    async def act(seat: Seat) -> None:
        seat.say("!echo begun; until [ -e go ]; do sleep 0.02; done; seq 1 60; exit 4")
        await seat.until("begun")
        seat.say("what does it say?")
        await seat.until("❯ what does it say?")
        (desk.cwd / "go").touch()
        await seat.until("I see it.")

    _, glass = drive(desk, act)
    assert "wants to" not in glass.all()
    assert "exit 4" in glass.all()
    assert "+5" in glass.all()  # folded
    assert glass.all().count("❯ !echo begun") == 1
    asked = str(desk.model.requests[0].messages)
    assert asked.index("echo begun") < asked.index("60\\n[exit 4]") < asked.index("what does it")


@pytest.mark.slow
@pytest.mark.parametrize("key", [ESC, CTRL_C])
def test_a_command_is_interrupted(tmp_path: Path, key: str) -> None:
    desk = Desk(tmp_path, Step(text="Well."))

    async def act(seat: Seat) -> None:
        seat.say("!echo be''gun; sleep 300")
        await seat.until("begun")  # by the command, not by what was typed
        seat.press(key)
        await seat.until("interrupted")
        await seat.idle()
        seat.say("and?")
        await seat.until("Well.")

    _, glass = drive(desk, act)
    assert "nothing has changed" not in glass.all()
    assert "[interrupted by the user]" in str(desk.model.requests[0].messages)


@pytest.mark.slow
def test_a_prefix_without_text_prints_its_usage(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def act(seat: Seat) -> None:
        seat.say("!")
        await seat.until("!COMMAND runs a command here")
        seat.say("#")
        await seat.until("nothing is pinned")

    drive(desk, act)


@pytest.mark.slow
def test_a_pinned_note_says_how_to_unpin_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Step(text="Noted."))

    async def act(seat: Seat) -> None:
        seat.press("#mind the gap" + ENTER)
        await seat.until("pinned as #2: mind the gap · /unpin 2 removes it")
        seat.say("go")
        await seat.until("Noted.")
        seat.say("/unpin 2")
        await seat.until("#2 is no longer pinned")

    drive(desk, act)
    entries = read_log(desk.loops[0].log.path).entries
    assert [e.source for e in entries if isinstance(e, User)] == ["note", "person", "notice"]
    assert not any(isinstance(entry, (Summary, ToolResult)) for entry in entries)
