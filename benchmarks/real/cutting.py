"""Cut recorded sessions so that a small model can read them whole.

A cut has the user's first message and a run of consecutive steps. Long texts lose their middle.
What the recording agent added on its own (instructions, summaries) is left out.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ctxagent.agent.context import tokens
from ctxagent.agent.recordings.recording import (
    RecordedMessage,
    RecordedReply,
    RecordedStep,
    Recording,
)

MAX_TOKENS = 7_000  # of a cut, as we estimate them
MAX_TEXT_CHARS, MAX_INPUT_CHARS = 2_800, 600  # of a message or result, and of one input
MIN_REPLIES = 16  # of a cut
BEGINNINGS = 12  # tried in a recording


def cuts(recording: Recording, max_tokens: int = MAX_TOKENS) -> Iterator[Recording]:
    """Yield cuts of a recording that begin at different places, the earliest first."""
    steps = [step for step in map(_shortened, recording.steps) if step is not None]
    first = next((n for n, step in enumerate(steps) if isinstance(step, RecordedMessage)), None)
    if first is None:
        return
    rest = steps[first + 1 :]
    seen = 0
    for number in range(BEGINNINGS):
        begin = len(rest) * number // BEGINNINGS
        chosen = list(_fitting([steps[first], *rest[begin:]], max_tokens))
        replies = sum(isinstance(step, RecordedReply) for step in chosen)
        if replies >= MIN_REPLIES and begin + len(chosen) > seen:
            seen = begin + len(chosen)
            yield replace(recording, steps=tuple(chosen), system="")


def size(step: RecordedStep) -> int:
    """Return the estimated tokens of a step."""
    return sum(map(tokens.estimate, texts(step))) + 20


def texts(step: RecordedStep) -> Iterator[str]:
    """Yield the texts of a step: of the message, or of the reply and its calls."""
    if isinstance(step, RecordedMessage):
        yield step.text
    elif isinstance(step, RecordedReply):
        yield step.text
        for call in step.calls:
            yield str(call.input)
            yield call.text


def _fitting(steps: list[RecordedStep], max_tokens: int) -> list[RecordedStep]:
    """Return the steps that fit, up to the last reply."""
    total = last = 0
    for number, step in enumerate(steps):
        total += size(step)
        if total > max_tokens:
            break
        if isinstance(step, RecordedReply):
            last = number + 1
    return steps[:last]


def _shortened(step: RecordedStep) -> RecordedStep | None:
    if isinstance(step, RecordedMessage):
        own = not step.by_client and not step.is_summary and step.text.strip()
        return replace(step, text=_middle_out(step.text, MAX_TEXT_CHARS)) if own else None
    if isinstance(step, RecordedReply):
        calls = (
            replace(
                call,
                text=_middle_out(call.text, MAX_TEXT_CHARS),
                input=_input(call.input),
            )
            for call in step.calls
        )
        return replace(step, text=_middle_out(step.text, MAX_TEXT_CHARS), calls=tuple(calls))
    return None


def _middle_out(text: str, limit: int) -> str:
    """Return a text without its middle if it is longer than `limit`. Lines stay whole."""
    if len(text) <= limit:
        return text
    begin, end = text[: limit * 2 // 3], text[-limit // 3 :]
    begin = begin.rpartition("\n")[0] or begin
    return f"{begin}\n[…]\n{end.partition(chr(10))[2] or end}"


def _input(value: Any) -> Any:
    if isinstance(value, str):
        return _middle_out(value, MAX_INPUT_CHARS)
    if isinstance(value, list):
        return [_input(each) for each in value]
    if isinstance(value, dict):
        return {key: _input(each) for key, each in value.items()}
    return value
