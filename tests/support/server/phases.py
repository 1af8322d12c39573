"""Every phase of a turn in which the agent is busy for more than a minute, produced in the real
command: the server's replies, the user's input, and how the phase is recognized.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..command import AS_MODULE, COMMAND, Place
from ..sessions.setup import long_text
from ..terminal.screen import Terminal
from .loopback import Fail, Say, Server, Step

AGAIN = "are you there?"  # the question after an interrupt
HERE = "I am here."  # the answer to AGAIN
STUBBORN = "trap '' TERM INT HUP; echo $$ >> {pids}; echo at it; while :; do sleep 301; done"


def _asked(body: Mapping[str, Any]) -> str:
    return str(body["messages"][-1]["content"][-1].get("text", ""))


@dataclass(frozen=True)
class Phase:
    """A phase. `steps` are played in order until `AGAIN` is asked, the last one repeatedly. `seen`
    is the text on the screen once the phase is reached.
    """

    steps: tuple[Step, ...]
    seen: str
    words: tuple[str, ...] = ("go",)
    arguments: tuple[str, ...] = ("--permission-mode", "bypass")
    prepare: Callable[[Place], Mapping[str, str]] = lambda place: {}
    processes: int = 0  # number of processes it starts; their IDs are in the file `pids`
    kept: str = ""  # text of the model that must be in the log afterwards
    said: str = "nterrupted"


def bash(command: str) -> tuple[str, dict[str, Any]]:
    return ("Bash", {"command": command.format(pids="pids")})


def task(number: int) -> tuple[str, dict[str, Any]]:
    given = {"description": f"part {number}", "prompt": f"part {number}", "type": "general"}
    return ("Task", given)


def hook(place: Place) -> Mapping[str, str]:
    """Write a settings file for the user with a slow hook; return its variable."""
    path = place.root / "home" / "agentrc"
    path.write_text('[hooks]\nbefore_compact = ["echo $$ >> pids; sleep 301"]\n')
    return {"CTXAGENT_CONFIG": str(path)}


def gate(place: Place) -> Mapping[str, str]:
    """Replace the HTTP client with a module that blocks forever, to simulate its slow import;
    return the variable.
    """
    slow = place.root / "slow" / "httpx2"
    slow.mkdir(parents=True)
    fifo = place.root / "gate"
    (slow / "__init__.py").write_text(
        f"import os\nos.mkfifo({str(fifo)!r})\nopen({str(fifo)!r}).read()\n"
    )
    return {"PYTHONPATH": str(slow.parent)}


RAW = '{"command": "echo one; echo two; echo three; echo four"}'
LITTLE = ("-c", "compact.keep_tokens=0", "-c", "compact.keep_messages=1")
PHASES: dict[str, Phase] = {
    "first byte": Phase((Say(fault="mute"),), "waiting for the model"),
    "thinking": Phase((Say(thinking="Let me see. Hm.", fault="silence", after=4),), "Let me"),
    "text": Phase((Say("Half a sentence that", fault="silence", after=4),), "Half a", kept="Half"),
    "writing a call": Phase(
        (Say("I call.", tools=[("Bash", RAW)], fault="silence", after=9),),
        "writing a call to Bash", kept="I call",
    ),
    "tool": Phase(
        (Say("Now.", tools=[bash("echo $$ >> {pids}; echo at it; sleep 301")]),),
        "at it", processes=1, kept="Now.",
    ),
    "tool that ignores": Phase((Say(tools=[bash(STUBBORN)]),), "at it", processes=1),
    "question": Phase(
        (Say("I ask.", tools=[bash("touch made")]),), "[y]es", arguments=(), kept="I ask."
    ),
    "retry": Phase(
        (Fail(529, "Overloaded", headers={"retry-after": "50"}),), "again in",
        said="gave up: the model is overloaded; your message is kept",
    ),
    "subagents": Phase(
        (Say(tools=[task(n) for n in range(4)]), *[Say(tools=[bash(STUBBORN)])] * 4),
        "4 subagents", processes=4,
    ),
    "subagents with jobs": Phase(
        (
            Say(tools=[task(n) for n in range(4)]),
            *[
                Say(tools=[("Bash", {"command": STUBBORN.format(pids="pids"),
                                     "run_in_background": True}), bash(STUBBORN)])
            ] * 4,
        ),
        "4 subagents", processes=8,
    ),
    "compact": Phase(
        (Say(long_text(2_000)), Say("Two."), Say(fault="mute")), "writing",
        words=("one", "two", "/compact"), arguments=LITTLE,
    ),
    "hook": Phase(
        (Say(long_text(2_000)), Say("Two."), Say(fault="mute")), "at it",
        words=("one", "two", "/compact"), arguments=LITTLE, prepare=hook, processes=1,
    ),
    "import": Phase((Say(fault="mute"),), "waiting for the model", prepare=gate),
    "a command of the person": Phase(
        (Say(fault="mute"),), "at it", words=("!echo $$ >> pids; echo at it; sleep 301",),
        processes=1,
    ),
}  # fmt: skip


class Played:
    """The steps of a phase, for a server."""

    def __init__(self, phase: Phase) -> None:
        self._steps = list(phase.steps)

    def __call__(self, body: dict[str, Any]) -> Step:
        if AGAIN in _asked(body):
            return Say(HERE)
        return self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]


@dataclass
class Reached:
    """A terminal in a phase."""

    terminal: Terminal
    pids: list[int] = field(default_factory=list)


def reach(phase: Phase, place: Place, server: Server) -> Reached:
    """Start the command and bring it into the phase."""
    # In a sandbox, a command does not know its process ID; the sandbox would end it anyway.
    off = {"CTXAGENT_SANDBOX_MODE": "off"}
    env = {**place.server(server.url), **off, **phase.prepare(place)}
    command, *module = AS_MODULE if "PYTHONPATH" in env else (COMMAND,)
    terminal = Terminal(*module, *phase.arguments, cwd=place.project, env=env, command=command)
    terminal.see("% full")
    for number, words in enumerate(phase.words):
        terminal.type(f"{words}\r")
        if number + 1 < len(phase.words):
            terminal.see(lambda text, n=number: text.count(" out · ") == n + 1)  # type: ignore[misc]
    path = place.project / "pids"

    def there(text: str) -> bool:
        count = len(_numbers(path))
        return (phase.seen in text or bool(phase.processes)) and count >= phase.processes

    terminal.see(there)
    return Reached(terminal, _numbers(path))


def _numbers(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()] if path.exists() else []
