"""Make a session of the first part of a recording, so that the real command can go on with it."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ctxagent.addons.replay.formats import load_recording
from ctxagent.addons.replay.player import Player, Terms
from ctxagent.agent.compaction.policy import policy_of
from ctxagent.agent.config.load import settings_from_flags
from ctxagent.agent.context import tokens
from ctxagent.agent.features.environment import system_prompt
from ctxagent.agent.recordings.recording import (
    RecordedMessage,
    RecordedReply,
    RecordedStep,
    Recording,
)
from ctxagent.agent.session.store import Project

from ..support.command import Place

MAX_RESULT_TOKENS = 1_000  # longer results are moved to files
MOVED_TOKENS = 700  # about what stays of them in the context
UNCOMPACTED = ("clear.when=off", "truncate.at=off", "compact.mode=off")


def recordings(folder: Path) -> Iterator[Recording]:
    """Yield the recordings in a folder, in the order of their names."""
    yield from map(load_recording, sorted(folder.rglob("*.gz")))


def beginning(recording: Recording, max_tokens: int) -> Recording:
    """Return the first steps of a recording that have at most `max_tokens`, with long results cut;
    at least two steps.
    """
    return replace(recording, steps=recording.steps[: _fitting(recording.steps, max_tokens)])


def make_session(
    place: Place, recording: Recording, *, brief: bool = False,
    tools: Sequence[Mapping[str, Any]] = (),
) -> Path:  # fmt: skip
    """Make a session of a whole recording, with our system prompt; return its log. `brief` selects
    the prompt for small models.
    """
    policy = policy_of(settings_from_flags((f"move.above={MAX_RESULT_TOKENS}", *UNCOMPACTED)))
    window = 2 * sum(map(_size, recording.steps)) + 100_000  # nothing is compacted
    system = system_prompt(brief=brief)
    terms = Terms("", policy, "claude-sonnet-5", window, system, tuple(map(dict, tools)))
    log = Project(place.state, place.project).new_log()
    with tempfile.TemporaryDirectory() as scratch:
        player = Player(replace(recording, system=""), terms, Path(scratch))
        asyncio.run(player.run())
        made = shutil.move(Path(scratch, "session"), log.parent)
    text = log.read_text("utf-8").replace(str(Path(scratch, "session")), str(made))
    first, _, rest = text.partition("\n")
    opened = {**json.loads(first), "id": log.parent.name, "cwd": str(place.project)}
    log.write_text(f"{json.dumps(opened, ensure_ascii=False)}\n{rest}", "utf-8")
    return log


def _fitting(steps: Sequence[RecordedStep], max_tokens: int) -> int:
    total = 0
    for number, step in enumerate(steps):
        total += _size(step)
        if total > max_tokens:
            return max(number, 2)
    return len(steps)


def _size(step: RecordedStep) -> int:
    """Return the tokens of a step, with long results cut."""
    if isinstance(step, RecordedMessage):
        return tokens.estimate(step.text)
    if not isinstance(step, RecordedReply):
        return 0
    said = [step.text, *(json.dumps(call.input) for call in step.calls)]
    results = (tokens.estimate(call.text) for call in step.calls)
    shown = (MOVED_TOKENS if size > MAX_RESULT_TOKENS else size for size in results)
    return sum(map(tokens.estimate, said)) + sum(shown)
