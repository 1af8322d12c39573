"""The state of the sandbox, as the real command tells it: once at interactive starts, as a mark in
the status line, in `/status` and `doctor`, and nowhere else.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest

from ctxagent import Agent, events
from ctxagent.agent.security import bubblewrap

from ..support.command import PATIENCE, Place
from ..support.machine import BUBBLEWRAP, LANDLOCK, Kind, every_sandbox, under
from ..support.server.loopback import Say, Server
from ..support.terminal.screen import Terminal

NEWS = "/status shows this again."
MARKS: dict[Kind, str] = {"bubblewrap": "", "Landlock": "!", "none": "!!"}
DESCRIBED: dict[Kind, str] = {
    "bubblewrap": "bubblewrap: commands write only to the project",
    "Landlock": "Landlock only, which is weaker",
    "none": "commands run without a sandbox",
}
REASON = "bwrap is not installed. Install bubblewrap"
WEAK = [LANDLOCK, "none"]
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@contextmanager
def begun(
    place: Place, kind: Kind, *arguments: str, columns: int = 250, rows: int = 30
) -> Iterator[Terminal]:
    """Start the command under a kind of sandbox, and leave it at the end."""
    program, *first = under(kind)
    terminal = Terminal(
        *first, *arguments, cwd=place.project, env=place.server(NOWHERE), columns=columns,
        rows=rows, command=program,
    )  # fmt: skip
    try:
        terminal.see("% full" if "--plain" not in arguments else "\n>")
        yield terminal
        terminal.type("/exit\r")
        assert terminal.leave() == 0
    finally:
        terminal.child.close(force=True)


def told(place: Place, kind: Kind, *arguments: str) -> str:
    """Return the notice at an interactive start, "" for none. Check the mark and `/status`."""
    with begun(place, kind, *arguments) as terminal:
        start = terminal.text()
        status = start.rstrip().rpartition("\n")[2]
        assert [part for part in status.split(" · ") if set(part) == {"!"}] == [
            *filter(None, [MARKS[kind]])
        ]
        terminal.type("/status\r")
        shown = terminal.see("subagents").rpartition("/status")[2]
        (row,) = [line.split() for line in shown.splitlines() if line.strip().startswith("sandbox")]
        assert " ".join(row).startswith(
            " ".join(filter(None, ["sandbox", MARKS[kind], DESCRIBED[kind]]))
        )
        assert (REASON in " ".join(row)) == (kind != "bubblewrap")
        assert start.count(NEWS) <= 1
        return next((line for line in start.splitlines() if NEWS in line), "")


@every_sandbox
@pytest.mark.variants
def test_the_first_interactive_start_tells_it(place: Place, kind: Kind) -> None:
    notice = told(place, kind)
    assert f"sandbox: {DESCRIBED[kind]}" in notice
    assert (REASON in notice) == (kind != "bubblewrap")
    assert told(place, kind) == ""
    (place.project / "other").mkdir()
    assert told(place, kind, "--cwd", "other") == ""


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param("bubblewrap", "Landlock", marks=[*BUBBLEWRAP.marks, *LANDLOCK.marks]),
        pytest.param("bubblewrap", "none", marks=BUBBLEWRAP.marks),
        pytest.param("Landlock", "none", marks=LANDLOCK.marks),
    ],
)
@pytest.mark.variants
def test_a_worse_sandbox_is_told_again_and_a_better_one_is_not(
    place: Place, better: Kind, worse: Kind
) -> None:
    assert told(place, better)
    assert f"sandbox: {DESCRIBED[worse]}" in told(place, worse)
    assert told(place, better) == ""


def test_a_session_carries_no_notice(place: Place) -> None:
    with Server([Say("Hello.")]) as server:
        place.run("-p", "hi", env=place.server(server.url))
    assert told(place, "none", "--continue")
    assert told(place, "none", "--continue", "--fork") == ""
    assert len(place.logs()) == 2
    assert NEWS not in "".join(log.read_text() for log in place.logs())


def test_later_sessions_of_a_run_do_not_tell_it_again(place: Place) -> None:
    with begun(place, "none") as terminal:
        terminal.type("/clear\r")
        assert terminal.see("new session").count(NEWS) == 1


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
@pytest.mark.parametrize("kind", WEAK)
@pytest.mark.variants
def test_the_mark_fits_small_terminals(place: Place, kind: Kind, size: tuple[int, int]) -> None:
    with begun(place, kind, columns=size[0], rows=size[1]) as terminal:
        status = terminal.screen.display[terminal.screen.cursor.y + 1].rstrip()
        assert status.startswith(f"sonnet-5-5 · ask · {MARKS[kind]} · ")
        assert status.isascii() or "·" in status


def test_plain_lines_tell_it_too(place: Place) -> None:
    for count in (1, 0):
        with begun(place, "none", "--plain") as terminal:
            terminal.type("/status\r")
            text = terminal.see("subagents")
            assert text.count("Warning: sandbox: commands run without a sandbox") == count


@every_sandbox
@pytest.mark.parametrize("output", ["text", "json", "stream-json"])
def test_a_run_without_a_user_prints_nothing_about_it(
    place: Place, kind: Kind, output: str
) -> None:
    with Server([Say("Hello.")]) as server:
        done = place.run(
            "-p", "hi", "--output-format", output, env=place.server(server.url),
            command=under(kind),
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "Hello." in done.stdout
    assert "sandbox" not in done.stdout
    assert not (place.state / "sandbox.json").exists()


def test_an_editor_is_told_nothing_about_it(place: Place) -> None:
    calls = [
        ("initialize", {"protocolVersion": 1, "clientCapabilities": {}}),
        ("session/new", {"cwd": str(place.project), "mcpServers": []}),
    ]
    with place.start(
        "acp",
        env=place.server(NOWHERE),
        command=under("none"),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    ) as agent:
        said = ""
        for id, (method, params) in enumerate(calls):
            call = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
            agent.stdin.write(f"{json.dumps(call)}\n")
            agent.stdin.flush()
            while json.loads(line := agent.stdout.readline()).get("id") != id:
                said += line
            assert "result" in json.loads(line)
        more, err = agent.communicate(timeout=PATIENCE)
    assert (agent.returncode, err) == (0, "")
    assert NEWS not in said + more
    assert not (place.state / "sandbox.json").exists()


def test_a_program_is_told_nothing_about_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "_installed", lambda: iter(()))
    heard: list[events.Event] = []

    async def work(url: str) -> None:
        environ = place.server(url)
        async with Agent(
            place.project, environ=environ, on_event=heard.append, approve=lambda _: False
        ) as agent:
            await agent.run("hi")

    with Server([Say("Hello.")]) as server:
        asyncio.run(work(server.url))
    assert any(isinstance(event, events.TurnFinished) for event in heard)
    assert [event for event in heard if isinstance(event, events.Notice)] == []


@pytest.mark.parametrize("kind", WEAK)
def test_a_required_sandbox_that_is_missing_is_an_error(place: Place, kind: Kind) -> None:
    required = ("-c", "sandbox.mode=require", "--model", "scripted:none")
    done = place.run("-p", "hi", *required, command=under(kind))
    assert done.returncode == 2
    assert 'sandbox.mode is "require", and bwrap is not installed' in done.stderr
    assert "apt install bubblewrap" in done.stderr
    assert place.logs() == []


@pytest.mark.parametrize("kind", WEAK)
def test_a_refused_command_names_the_reason(place: Place, kind: Kind) -> None:
    """With `permissions.sandboxed`, commands would run without a question in the sandbox."""
    steps = [Say(tools=[("Bash", {"command": "touch made"})]), Say("Not done.")]
    with Server(steps) as server:
        done = place.run(
            "-p", "go", "-c", "permissions.sandboxed=allow", env=place.server(server.url),
            command=under(kind),
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "Not done.\n")
    (line,) = [line for line in done.stderr.splitlines() if "sandbox" in line]
    assert f"`touch made` may change something; not sandboxed: {REASON}" in line
    assert line.endswith("; allow it with --allow 'Bash(touch:*)'")
    assert REASON in json.dumps(server.requests[-1]["messages"])


@every_sandbox
def test_doctor_tells_it(place: Place, kind: Kind) -> None:
    env = place.environ({"ANTHROPIC_API_KEY": "key"})
    shown = place.run("doctor", env=env, command=under(kind)).stdout
    (line,) = [line for line in shown.splitlines() if " sandbox: " in line]
    begin = {"bubblewrap": "ok    ", "Landlock": "note  sandbox: Landlock only, which is weaker"}
    assert line.startswith(begin.get(kind, "note  sandbox: none: "))
    assert (REASON in line) == (kind != "bubblewrap")
