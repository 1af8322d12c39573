"""A recording of our own making, and the playing of one through a window too small for it, with a
model that writes whatever summaries a test likes. Every request is held against the API's rules.

played = play(made(), folder, window=20_000, record=USELESS)
played.summaries, played.context, played.run.recovered
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.context.request import Request
from ctxagent.agent.models.request_body import body
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.replay.player import Player, Terms
from ctxagent.agent.replay.recording import RecordedCall, RecordedReply, RecordedWords, Recording
from ctxagent.agent.replay.results import ReplayRun
from ctxagent.agent.session.entries import Summary
from ctxagent.agent.session.log import Entries

from ..server.validator import validate

USELESS = """## Session Intent
The person wants something done in this project.
## Key Decisions
None.
## Current State
Phase: the work goes on
## Next Steps
None.
"""


class Strict(Player):
    """Refuses what the API would."""

    def request(self) -> Request:
        made = super().request()
        validate(body(made))
        return made


@dataclass(frozen=True, slots=True)
class Played:
    """What came of it: the run, the folder of its session, and all text of the last context."""

    run: ReplayRun
    log: Path
    context: str

    @property
    def summaries(self) -> list[Summary]:
        return [entry for entry in Entries(self.log) if isinstance(entry, Summary)]


def play(
    recording: Recording,
    folder: Path,
    *,
    window: int,
    record: str = USELESS,
    policy: Policy = DEFAULT,
) -> Played:
    """Play a recording in a folder of its own, where every summary is `record`."""
    writer = ScriptedModel(lambda request: Step(text=record), check=validate, window=window)
    terms = Terms("strict", policy, "claude-sonnet-5", window, "", (), writer=writer)
    player = Strict(recording, terms, folder)
    run = asyncio.run(player.run())
    return Played(run, player.host.path, player.context())


def made(calls: int = 120) -> Recording:
    """A recording of our own making: an agent that reads, edits, runs and fails, told now and then
    what it must not do. Every result is different, and every fifth is large."""
    asked = [
        "Bring `src/billing` over to decimal amounts. Never touch migrations/0007_freeze.sql.",
        "Use the ROUND_HALF_EVEN of the decimal module, not round(). The ticket is PAY-4711.",
        "Now the reports, please. Do not change the column names of the CSV.",
    ]
    steps: list[RecordedWords | RecordedReply] = []
    for number in range(calls):
        if number % (calls // len(asked)) == 0:
            text = asked[min(number * len(asked) // calls, len(asked) - 1)]
            if number:
                steps.append(RecordedReply(f"Part {number} is done."))
            steps.append(RecordedWords(text))
        name, given, told, failed = _work(number)
        said = f"We decided to keep module {number} apart because its tests are slow."
        steps.append(RecordedReply(said, (RecordedCall(f"r{number}", name, given, told, failed),)))
    return Recording("made here", "none", tuple(steps))


def _work(number: int) -> tuple[str, dict[str, Any], str, bool]:
    path = f"src/billing/part_{number:03}/amounts.py"
    lines = [f"{number}.{n}: total = money({n * number}) # row {n}" for n in range(40)]
    large = "\n".join(lines * (8 if number % 5 == 0 else 1))
    if number % 4 == 1:
        return "Edit", {"file_path": path, "old_string": "a", "new_string": "b"}, "Done.", False
    if number % 4 == 2:
        code = number % 8 == 2
        tail = f"E   AssertionError: part {number} rounds to {number}.005" if code else "ok"
        command = {"command": f"pytest -q tests/part_{number:03}"}
        return "Bash", command, f"{large}\n{tail}\nexit code {int(code)}", code
    return "Read", {"file_path": path}, large, False
