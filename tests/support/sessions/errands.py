"""The model of the kill tests: its calls have effects that can be counted afterwards.

Each call with an effect has a unique mark: `echo MARK >> done.txt` adds a line each time it runs,
and a file `made/MARK` must appear in a ledger. Events (a request arrived, a command began or ended)
are written to a pipe, one line each, so that a kill can be timed by them.
"""

import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..server.loopback import Body, Say

PIPE = "wire"  # in the project, because a sandbox may hide other folders
DONE = "done.txt"
MADE = "made"
RECORD = """## Session Intent
Have every errand done once.
## Key Decisions
1. One after the other, so that each can be counted.
## Current State
Phase: errands
- Done: some of them
- In progress: the rest
## Critical Facts
- Each has a mark.
## Next Steps
1. Do the next errand.
"""

_LEFT = re.compile(r"^- (general-\w+) \(general\)", re.MULTILINE)


def kind_of(body: Body) -> str:
    """Return the kind of a request: "summary", "agent" (of a subagent) or "turn"."""
    if "about to be compressed" in str(body["messages"][-1]["content"][-1].get("text", "")):
        return "summary"
    if "You are a subagent" in json.dumps(body.get("system", "")):
        return "agent"
    return "turn"


class Errands:
    """Model that returns the reply to a request. `first` are the kinds of the first calls in the
    next turn; `ending` means that nothing is left to do.
    """

    def __init__(self, project: Path, seed: int) -> None:
        (project / MADE).mkdir()
        os.mkfifo(project / PIPE)
        # Open for reading and writing, so that writers never block on a missing reader.
        self.pipe = os.open(project / PIPE, os.O_RDWR | os.O_NONBLOCK)
        self.first: list[str] = []
        self.ending = False
        self._random = random.Random(seed)
        self._count = 0
        self._seed = seed
        self._written: list[str] = []
        self._calls: dict[str, Callable[[Body], tuple[str, Body]]] = {
            "effect": self._effect,
            "large": self._large,
            "write": self._write,
            "edit": self._edit,
            "todo": self._todo,
            "recall": self._recall,
            "task": self._task,
            "job": self._job,
        }

    def close(self) -> None:
        os.close(self.pipe)

    def __call__(self, body: Body) -> Say:
        kind = kind_of(body)
        os.write(self.pipe, f"asked {kind}\n".encode())
        if kind == "summary":
            return Say(RECORD, deltas=6, pace=0.01)
        if self.ending and kind == "turn":
            return Say("All errands are done.")
        if kind == "agent":
            return self._of_agent(body)
        names = [self.first.pop(0)] if self.first else self._some()
        thinking = self._random.choice(("", "One after the other."))
        calls = [self._calls[name](body) for name in names]
        return Say("Next.", thinking=thinking, tools=calls, deltas=4, pace=0.008)

    def _some(self) -> list[str]:
        """Choose one kind of call, or several for one message."""
        count = self._random.choice((1, 1, 1, 2, 3))
        weights = (8, 4, 3, 2, 1, 1, 1, 1)
        return self._random.choices(list(self._calls), weights, k=count)

    def _of_agent(self, body: Body) -> Say:
        rounds = sum(message["role"] == "assistant" for message in body["messages"])
        if rounds % 3 == 2:
            return Say("My part is done.")
        call = self._effect(body) if rounds % 3 == 0 else self._large(body)
        return Say("My part.", tools=[call], deltas=4, pace=0.008)

    def _mark(self) -> str:
        self._count += 1
        return f"mark{self._seed}x{self._count:05d}"

    def _effect(self, body: Body) -> tuple[str, Body]:
        """Return a call that must not run twice; some take longer."""
        mark = self._mark()
        lasting = self._random.choice(("", "", "sleep 0.1; "))
        command = (
            f"echo begun {mark} > {PIPE}; {lasting}echo {mark} >> {DONE}; "
            f"echo of {mark} > {MADE}/{mark}; echo ended {mark} > {PIPE}"
        )
        return "Bash", {"command": command}

    def _large(self, body: Body) -> tuple[str, Body]:
        mark, lines = self._mark(), self._random.choice((150, 400, 900))
        return "Bash", {"command": f"seq -f 'item %g of {mark}' {lines}; echo told > {PIPE}"}

    def _write(self, body: Body) -> tuple[str, Body]:
        mark = self._mark()
        self._written.append(mark)
        text = "".join(f"line {n} of {mark}\n" for n in range(120))
        return "Write", {"path": f"{MADE}/{mark}", "content": text}

    def _edit(self, body: Body) -> tuple[str, Body]:
        mark = self._random.choice(self._written) if self._written else "nothing"
        line = self._random.randrange(120)
        change = {"old_string": f"line {line} of {mark}\n", "new_string": f"{self._mark()}\n"}
        return "Edit", {"path": f"{MADE}/{mark}", **change}

    def _todo(self, body: Body) -> tuple[str, Body]:
        status = self._random.choice(("pending", "in_progress", "completed"))
        return "Todo", {"todos": [{"content": f"Do {self._mark()}", "status": status}]}

    def _recall(self, body: Body) -> tuple[str, Body]:
        number = self._random.randint(1, max(1, self._count))
        return "Recall", {"query": f"mark{self._seed}x{number:05d}"}

    def _task(self, body: Body) -> tuple[str, Body]:
        left = _LEFT.findall(_texts(body))
        if left and self._random.random() < 0.5:
            return "Task", {"description": "errand", "prompt": "Go on.", "resume": left[-1]}
        given = {"description": "errand", "prompt": f"Do {self._mark()}.", "type": "general"}
        return "Task", given

    def _job(self, body: Body) -> tuple[str, Body]:
        return "Bash", {"command": "sleep 300", "run_in_background": True}


def _texts(body: Body) -> str:
    """Return all text blocks of user messages in a request."""
    blocks: list[dict[str, Any]] = [
        block
        for message in body["messages"]
        for block in message["content"]
        if message["role"] == "user" and block["type"] == "text"
    ]
    return "\n".join(block["text"] for block in blocks)
