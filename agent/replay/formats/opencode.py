"""OpenCode's exports: one JSON object of messages in parts. A call and its result are one part, and
a reply is what stands between two beginnings of a step.
"""

from collections.abc import Iterable
from typing import Any

from .parts import Row, arguments, count, items, mapping, plain, seconds, words
from .transcript import Draft, Result, Transcript

_DONE = ("output", "error")


def recognises(row: Row) -> bool:
    messages = items(row.get("messages"))
    return isinstance(row.get("info"), dict) and any("parts" in mapping(m) for m in messages)


def read(rows: Iterable[Row]) -> Transcript:
    transcript = Transcript()
    for row in rows:
        for message in transcript.objects(row.get("messages")):
            info = mapping(message.get("info"))
            parts = [p for p in transcript.objects(message.get("parts")) if not p.get("ignored")]
            if info.get("role") == "assistant" and info.get("summary") is True:
                transcript.say(_told(parts), _end(info))
            elif info.get("role") == "assistant":
                _replied(transcript, info, parts)
            elif info.get("role") == "user":
                _said(transcript, info, parts)
            else:
                transcript.skipped += 1
    return transcript


def _told(parts: list[dict[str, Any]]) -> str:
    """The texts and pictures among the parts; what else a file holds stands in a text beside it."""
    return "\n".join(
        plain(part)
        for part in parts
        if part.get("type") == "text" or "image" in words(part.get("mime"))
    )


def _said(transcript: Transcript, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    at = _end(info)
    if any(part.get("type") == "compaction" for part in parts):
        transcript.compact(at)
    transcript.say(_told(parts), at)


def _replied(transcript: Transcript, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    draft = _begun(transcript, info)
    _count(draft, info.get("tokens"))
    for number, part in enumerate(parts):
        kind = part.get("type")
        if kind == "step-start" and number:
            draft = _begun(transcript, info)
        elif kind == "text":
            draft.say(words(part.get("text")))
        elif kind == "tool":
            state = mapping(part.get("state"))
            given = arguments(state.get("input"))
            transcript.ask(draft, part.get("callID"), part.get("tool"), given, _result(state))
        elif kind == "step-finish":
            _count(draft, part.get("tokens"))


def _begun(transcript: Transcript, info: dict[str, Any]) -> Draft:
    return transcript.reply(object(), _end(info), info.get("modelID"))


def _end(info: dict[str, Any]) -> float | None:
    time = mapping(info.get("time"))
    return seconds(time.get("completed")) or seconds(time.get("created"))


def _count(draft: Draft, tokens: Any) -> None:
    """Thinking is counted beside the output, and what the cache had beside the input."""
    used, cache = mapping(tokens), mapping(mapping(tokens).get("cache"))
    parts = used.get("input"), cache.get("read"), cache.get("write")
    draft.prompt = sum(map(count, parts)) or draft.prompt
    draft.output = count(used.get("output")) + count(used.get("reasoning")) or draft.output


def _result(state: dict[str, Any]) -> Result | None:
    told = next((state[name] for name in _DONE if state.get(name) is not None), None)
    if told is None:
        return None
    end = seconds(mapping(state.get("time")).get("end"))
    return Result(plain(told), state.get("status") == "error", end)
