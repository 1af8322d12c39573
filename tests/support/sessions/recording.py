"""A synthetic recording, and its replay in a window that is too small for it, with a model that
writes summaries chosen by the test. Every request is checked against the API's rules.

    played = play(made(), folder, window=20_000, record=USELESS)
    played.summaries, played.context, played.run.recovered
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctxagent.addons.replay.player import Player, ReplayHost, Terms
from ctxagent.addons.replay.results import ReplayRun
from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.context.request import Request
from ctxagent.agent.context.view import View
from ctxagent.agent.errors import CompactionFailed
from ctxagent.agent.models.messages.body import body
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.recordings.recording import (
    RecordedCall,
    RecordedMessage,
    RecordedReply,
    Recording,
)
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


@dataclass
class Strict(Player):
    """Player that refuses requests that the API would refuse, and that can summarize every
    `summary_every` replies.
    """

    summary_every: int = 0
    _replies: int = 0

    async def _play_reply(self, reply: RecordedReply, *, start: bool) -> None:
        self._replies += 1
        if self.summary_every and self._replies % self.summary_every == 0:
            with suppress(CompactionFailed):
                await self.engine.compact()
        await super()._play_reply(reply, start=start)

    def request(self) -> Request:
        made = super().request()
        validate(body(made))
        return made


@dataclass(frozen=True, slots=True)
class Played:
    """The result of a replay: the run, its log, all text of the last context, and its view."""

    run: ReplayRun
    log: Path
    context: str
    view: View

    @property
    def summaries(self) -> list[Summary]:
        return [entry for entry in Entries(self.log) if isinstance(entry, Summary)]


def play(
    recording: Recording,
    folder: Path,
    *,
    window: int,
    record: str | Callable[[ReplayHost], str] = USELESS,
    policy: Policy = DEFAULT,
    summary_every: int = 0,
) -> Played:
    """Play a recording in a folder. Every summary is `record`, or its result for the host."""

    def answer(request: Request) -> Step:
        return Step(text=record if isinstance(record, str) else record(player.host))

    writer = ScriptedModel(answer, check=validate, window=window)
    terms = Terms("strict", policy, "claude-sonnet-5", window, "", (), writer=writer)
    player = Strict(recording, terms, folder, summary_every=summary_every)
    run = asyncio.run(player.run())
    return Played(run, player.host.log.path, player.context(), player.host.view)


def made(calls: int = 120) -> Recording:
    """Return a synthetic recording: an agent reads, edits, runs commands and fails, and the user
    sometimes forbids something. Every result is different, and every fifth is large.
    """
    asked = [
        "Bring `src/billing` over to decimal amounts. Never touch migrations/0007_freeze.sql.",
        "Use the ROUND_HALF_EVEN of the decimal module, not round(). The ticket is PAY-4711.",
        "Now the reports, please. Do not change the column names of the CSV.",
    ]
    steps: list[RecordedMessage | RecordedReply] = []
    for number in range(calls):
        if number % (calls // len(asked)) == 0:
            text = asked[min(number * len(asked) // calls, len(asked) - 1)]
            if number:
                steps.append(RecordedReply(f"Part {number} is done."))
            steps.append(RecordedMessage(text))
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
