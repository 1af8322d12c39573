"""The real command in a pseudo-terminal."""

import json
import os
import secrets
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from ..support.command import AS_MODULE, Place, comes, gone, running
from ..support.server.loopback import Say, Server
from ..support.sessions.setup import long_text
from ..support.terminal.screen import Terminal


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_day_in_the_repl(place: Place) -> None:
    (place.project / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    change = {"path": "calc.py", "old_string": "a - b", "new_string": "a + b"}
    sleep = f"sleep 300.{secrets.randbelow(10**9)}"
    long = ("Bash", {"command": f"touch begun; echo under way; {sleep}"})
    steps = [
        Say("I make a **file** first.", tools=[("Bash", {"command": "touch made && echo yes"})]),
        Say("Now the bug.", tools=[("Edit", change)]),
        Say("Both are done."),
        Say("This takes long.", tools=[long]),
        Say("I am still here."),
    ]
    with Server(steps) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("fix the bug in @calc.py")
        terminal.see("fix the bug in @calc.py")
        terminal.press("enter")
        terminal.see("touch made && echo yes")
        terminal.keys()
        assert not (place.project / "made").exists()
        terminal.type("y")
        shown = terminal.see(
            lambda text: "a + b" in text and "mode `ask` requires approval for edits" in text
        )
        assert (place.project / "made").exists()
        assert "return a - b" in shown
        assert "a - b" in (place.project / "calc.py").read_text()
        terminal.keys()
        terminal.type("y")
        terminal.see("Both are done.")
        assert "a + b" in (place.project / "calc.py").read_text()
        terminal.type("now something long\r")
        terminal.see("sleep 300")
        terminal.keys()
        terminal.type("y")
        terminal.see(lambda _: (place.project / "begun").exists() and running(sleep) != [])
        pids = running(sleep)
        terminal.press("ctrl-c")
        terminal.see("nterrupted")
        assert gone(*pids)
        terminal.type("are you there?\r")
        terminal.see("I am still here.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert server.rejected == []
    assert b"\x1b[?1049h" not in terminal.raw, "the alternate screen was used"
    assert b"\x1b[2J" not in terminal.raw, "the screen was cleared"
    kinds = [entry["kind"] for entry in place.entries()]
    assert kinds.count("tool_result") == 3
    assert kinds.count("end") == 3


def test_a_title_is_seen_in_lists_and_on_the_window(place: Place) -> None:
    with Server([Say("Mended.")]) as server:
        env = place.server(server.url)
        terminal = Terminal(cwd=place.project, env=env)
        terminal.see("/help")
        terminal.type("fix the parser\r")
        terminal.see("Mended.")
        terminal.type("/rename The parser\r")
        terminal.see("this session is now called: The parser")
        terminal.see(lambda _: terminal.screen.title == "The parser")
        assert b"\x1b[23;2t" not in terminal.raw
        terminal.type("/exit\r")
        assert terminal.leave() == 0
        assert terminal.raw.count(b"\x1b[22;2t") == terminal.raw.count(b"\x1b[23;2t") == 1
        assert place.run("sessions").stdout.rstrip().endswith("The parser")
        (log,) = place.logs()
        done = place.run("sessions", "rename", log.parent.name, "Parser,", "again")
        assert done.stderr == ""
        assert done.stdout == f"{log.parent.name} is now called: Parser, again\n"
        terminal = Terminal("--continue", cwd=place.project, env=env)
        terminal.see("❯ fix the parser")
        terminal.see(lambda _: terminal.screen.title == "Parser, again")
        terminal.type("/new\r")
        terminal.see("new session")
        terminal.see(lambda _: terminal.screen.title == place.project.name)
        terminal.type("/resume\r")
        terminal.see(lambda text: "Parser, again" in text and "Enter: open" in text)
        terminal.press("esc")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    titles = [e["text"] for e in place.entries() if e.get("topic") == "title"]
    assert titles == ["The parser", "Parser, again"]


def test_no_with_a_reason_reaches_the_model(place: Place) -> None:
    with Server([Say(tools=[("Bash", {"command": "touch a"})]), Say("As you wish.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("go\r")
        terminal.see("[y]es")
        terminal.type("n")
        terminal.type("not in this folder\r")
        terminal.see("As you wish.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert not (place.project / "a").exists()
    assert "not in this folder" in json.dumps(server.requests[-1]["messages"])


@pytest.mark.parametrize("plain", [False, True])
def test_without_a_key_the_repl_says_so_before_the_first_word_and_stays(
    place: Place, plain: bool
) -> None:
    more = ["--plain"] if plain else []
    place.state.mkdir()
    (place.state / "keys.json").write_text('{"keys": {}}')  # the first start was before
    terminal = Terminal(*more, cwd=place.project, env=place.environ(), columns=80)
    terminal.see("try ctxagent without a key: `ctxagent demo`")
    text = terminal.text()
    places = [text.index(each) for each in ("/help", "No key for the model", "To continue, do one")]
    assert places == sorted(places)
    for way in ("/login", "export ANTHROPIC_API_KEY=…", "another provider", "ctxagent models"):
        assert way in text
    terminal.type("hello\r")
    terminal.see(lambda shown: shown.count("To continue, do one of these:") == 2)
    terminal.type("/quit\r")
    assert terminal.leave() == 0


def test_a_silent_model_can_be_interrupted(place: Place) -> None:
    asked = threading.Event()

    def step(body: dict[str, Any]) -> Say:
        first = not asked.is_set()
        asked.set()
        return Say("half a word", fault="silence") if first else Say("Fine again.")

    with Server(step) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("hello\r")
        terminal.see("half")
        terminal.press("esc")
        terminal.see("nterrupted")
        terminal.type("and now?\r")
        terminal.see("Fine again.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert server.rejected == []


def working(place: Place, server: Server, *arguments: str) -> tuple[Terminal, list[int]]:
    """A terminal with a running command and a running job, and their processes."""
    terminal = Terminal(
        "--permission-mode", "bypass", *arguments, cwd=place.project, env=place.server(server.url)
    )
    terminal.see("/help")
    terminal.type("go\r")
    terminal.see(lambda text: all(map(running, SLEEPS)))
    return terminal, [pid for words in SLEEPS for pid in running(words)]


SLEEPS = [f"sleep 300.{secrets.randbelow(10**9)}" for _ in range(2)]
BUSY = [
    Say(tools=[("Bash", {"command": f"exec {SLEEPS[0]}", "run_in_background": True})]),
    Say(tools=[("Bash", {"command": SLEEPS[1]})]),
]


def test_a_request_to_end_leaves_nothing_behind(place: Place) -> None:
    with Server(BUSY) as server:
        terminal, pids = working(place, server)
        terminal.signal(signal.SIGTERM)
        assert terminal.leave() == 130
    assert gone(*pids)
    assert place.entries()[-1]["status"] == "interrupted"
    terminal.see("Resume with: ctxagent --resume")
    assert "% full" not in terminal.text(), "the status line is left on the screen"
    assert terminal.raw.rindex(b"?2004l") > terminal.raw.rindex(b"?2004h")


@pytest.mark.parametrize("arguments", [[], ["-c", "ui.plain=true"]], ids=["inline", "plain"])
def test_a_closed_window_leaves_nothing_behind(place: Place, arguments: list[str]) -> None:
    with Server(BUSY) as server:
        terminal, pids = working(place, server, *arguments)
        terminal.hang_up()
    assert gone(*pids)
    assert place.entries()[-1]["status"] == "interrupted"


def test_a_closed_window_at_rest(place: Place) -> None:
    with Server([Say("Yes.")]) as server:
        terminal = Terminal(cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("go\r")
        terminal.see("Yes.")
        terminal.hang_up()
    assert place.entries()[-1]["status"] == "ok"


def test_no_escape_of_the_model_reaches_the_terminal(place: Place) -> None:
    evil = "so \x1b]0;pwn\x07 be it\x9b2J"
    with Server([Say(evil), Say(error=("invalid_request_error", evil))]) as server:
        env = place.server(server.url)
        answered = Terminal("-p", evil, cwd=place.project, env=env)
        assert answered.leave() == 0
        refused = Terminal("-p", evil, cwd=place.project, env=env)
        assert refused.leave() == 5
    shown = Terminal("sessions", "show", place.logs()[0].parent.name, cwd=place.project, env=env)
    assert shown.leave() == 0
    for terminal in (answered, refused, shown):
        assert b"pwn" in terminal.raw
        assert b"\x1b" not in terminal.raw
        assert "\x9b".encode() not in terminal.raw


def test_continue_shows_that_the_session_goes_on(place: Place) -> None:
    with Server([Say("One."), Say("Two.")]) as server:
        env = place.server(server.url)
        place.run("-p", "first", env=env)
        terminal = Terminal("--continue", cwd=place.project, env=env)
        terminal.see("❯")
        terminal.type("second\r")
        terminal.see("Two.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    assert len(place.logs()) == 1
    assert [m["role"] for m in server.requests[-1]["messages"]] == ["user", "assistant", "user"]


def test_a_summary_is_edited_in_the_persons_editor(place: Place) -> None:
    record = (
        "## Session Intent\nTalk.\n\n## Key Decisions\n1. None yet.\n\n"
        "## Current State\nPhase: talking\n\n## Next Steps\n1. Wait.\n"
    )
    editor = place.root / "editor"
    editor.write_text(
        "#!/bin/sh\necho THE EDITOR of ${1##*/}\n"
        'read key; sed -i s/Talk/Speak/ "$1"; echo "got $key"\n'
    )
    editor.chmod(0o755)
    with Server([Say(long_text(2_000)), Say("Two."), Say(record), Say("Three.")]) as server:
        env = {**place.server(server.url), "EDITOR": str(editor)}
        little = ("-c", "compact.keep_tokens=0", "-c", "compact.keep_messages=1")
        terminal = Terminal(*little, cwd=place.project, env=env)
        terminal.see("❯")
        terminal.type("one\r")
        terminal.see(" out · ")
        terminal.type("two\r")
        terminal.see("Two.")
        terminal.type("/compact --show\r")
        terminal.keys("[e]dit")
        terminal.type("e")
        terminal.see("THE EDITOR of summary.md")
        terminal.type("hello\r")
        terminal.see("Speak.")
        terminal.keys()
        terminal.type("y")
        terminal.see("/uncompact undoes it")
        terminal.type("three\r")
        terminal.see("Three.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    terminal.see("got hello")
    assert "Speak." in json.dumps(server.requests[-1]["messages"])
    assert server.rejected == []


def test_the_prompt_is_painted_before_the_client_is_imported(place: Place) -> None:
    """A fake module `httpx2` that waits for a file replaces the slow import."""
    slow = place.root / "slow"
    (slow / "httpx2").mkdir(parents=True)
    gate = place.root / "gate"
    os.mkfifo(gate)
    (slow / "httpx2" / "__init__.py").write_text(f"open({str(gate)!r}).read()\n")
    env = {**place.server("http://127.0.0.1:9"), "PYTHONPATH": str(slow)}
    python, *module = AS_MODULE
    terminal = Terminal(*module, cwd=place.project, env=env, command=python)
    terminal.see("❯")
    terminal.type("typed while it is imported")
    terminal.see("typed while it is imported")
    terminal.press("ctrl-c")

    def is_imported() -> bool:
        """Whether somebody reads at the gate; who opens it lets the import end."""
        try:
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    assert comes(is_imported)
    terminal.type("/quit\r")
    terminal.leave()


def test_the_demo_in_a_terminal(place: Place) -> None:
    terminal = Terminal("demo", "--fast", cwd=place.project, env=place.environ())
    terminal.see("scripted")
    text = terminal.see("all four tests pass")
    assert "FAILED (failures=1)" in text
    assert "+     return (whole * (1 - discount)).quantize(CENT)" in text
    assert terminal.leave() == 0
    assert place.logs() == []


def test_an_interrupt_ends_the_demo(place: Place) -> None:
    terminal = Terminal("demo", cwd=place.project, env=place.environ())
    terminal.see("❯")
    terminal.press("ctrl-c")
    assert terminal.leave() == 130
    assert "all four tests pass" not in terminal.text()


def test_the_ledger_preset_keeps_how_a_session_ended(place: Place) -> None:
    with Server([Say("Hello.")]) as server:
        terminal = Terminal("--preset", "ledger", cwd=place.project, env=place.server(server.url))
        terminal.see("❯")
        terminal.type("hi\r")
        terminal.see("Hello.")
        terminal.type("/quit\r")
        assert terminal.leave() == 0
    *_, last = place.entries()
    assert (last["kind"], last["trigger"]) == ("checkpoint", "end of the session")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["--resume", "nosuch"], "nosuch"), (["--continue"], "no session to continue")],
)
def test_a_session_that_is_not_there_is_told_before_the_prompt(
    place: Place, arguments: list[str], told: str
) -> None:
    terminal = Terminal(*arguments, cwd=place.project, env=place.server("http://127.0.0.1:9"))
    assert terminal.leave() == 2
    terminal.see(told)
    assert "/help" not in terminal.text()
