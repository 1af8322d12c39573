"""What the API wants back with a reply and the log has no place for, packed into its thinking.

A reply is a list of items. Its reasoning items must be sent back as they came, encrypted content
and all, each followed by the item that followed it then, by its id: a reasoning item without it is
refused ("provided without its required following item"), and so is an item with its id that lost
its reasoning. Of newer models a message also has a phase, which must come back. So the `signature`
of a `thinking` block has the reasoning item and, in order, what each item behind it had up to the
next one. Where the log leaves thinking out, the items behind it are sent without ids.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..sse import parse_arguments

REASONING, MESSAGE, CALL = "reasoning", "message", "function_call"  # types of items

ResponseItem = dict[str, Any]


class ReasoningState(NamedTuple):
    """What the signature of a thinking block has."""

    item: ResponseItem | None  # the reasoning item, if there is one
    behind: list[ResponseItem]  # of each item behind it: type, id, phase, arguments


def pack(state: ReasoningState) -> str:
    """Return a state as a signature."""
    told = {"behind": state.behind} if state.item is None else {**state._asdict()}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def unpack(signature: str) -> ReasoningState | None:
    """Return the state in a signature; None for that of another protocol."""
    told = parse_arguments(signature) or {}
    item, behind = told.get("item"), told.get("behind")
    if not isinstance(behind, list) or not all(isinstance(each, dict) for each in behind):
        return None
    return ReasoningState(item if isinstance(item, dict) else None, behind)


def is_resendable(item: ResponseItem) -> bool:
    """Return True if a reasoning item says something to a server that has kept nothing."""
    return bool(item.get("encrypted_content") or item.get("content"))


def remembered(item: ResponseItem, parsed: Mapping[str, Any] | None) -> ResponseItem:
    """Return what is to be sent back of an item that is not reasoning: of a call, whose arguments
    are `parsed`, also their text, unless it is what `arguments_of` makes of them."""
    kept = {name: item[name] for name in ("type", "id", "phase") if item.get(name)}
    if item.get("type") == CALL and parsed and arguments_of(parsed) != item.get("arguments"):
        kept["arguments"] = item["arguments"]
    return kept


def arguments_of(given: Mapping[str, Any]) -> str:
    """Return the arguments of a call as text."""
    return json.dumps(given, ensure_ascii=False, separators=(",", ":"))


def with_reasoning(items: Iterator[ResponseItem | ReasoningState]) -> Iterator[ResponseItem]:
    """Yield the items of one reply with what the states among them say: the reasoning items, each
    before the item that followed it, or not at all."""
    waiting: list[ResponseItem] = []
    behind: list[ResponseItem] = []
    for item in items:
        if isinstance(item, ReasoningState):
            waiting += [item.item] if item.item is not None else []
            behind = [*item.behind]
            continue
        had = behind.pop(0) if behind else {}
        if had.get("type") != item["type"]:
            waiting, behind, had = [], [], {}
        yield from waiting
        waiting = []
        yield _completed(item, had)


def _completed(item: ResponseItem, had: ResponseItem) -> ResponseItem:
    """Return an item with what it had when it came."""
    out: ResponseItem = {**item, **{name: had[name] for name in ("id", "phase") if name in had}}
    if item["type"] == CALL:
        raw = had.get("arguments")
        if isinstance(raw, str) and arguments_of(parse_arguments(raw) or {}) == item["arguments"]:
            out["arguments"] = raw
    elif "id" in out:  # the whole form of a message is that of one with an id
        out["status"] = "completed"
        out["content"] = [{"type": "output_text", "text": item["content"], "annotations": []}]
    return out
