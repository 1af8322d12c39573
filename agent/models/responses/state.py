"""Data that the API requires back but the log cannot store, packed into thinking blocks.

A reply is a list of items. A reasoning item must be sent back unchanged, with its encrypted
content, and followed by the same item with the same ID as before. Otherwise the API refuses it
("provided without its required following item"). The API also refuses an item with an ID if its
reasoning item is missing. Messages of newer models have a phase that must be sent back too.

Therefore the `signature` of a `thinking` block contains the reasoning item, and the ID and phase of
each following item up to the next reasoning item. If the context drops the thinking, the following
items are sent without IDs.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..sse import parse_arguments

REASONING, MESSAGE, CALL = "reasoning", "message", "function_call"  # types of items

ResponseItem = dict[str, Any]


class ReasoningState(NamedTuple):
    """The content of a thinking block's signature."""

    item: ResponseItem | None  # reasoning item, if any
    behind: list[ResponseItem]  # type, ID, phase and arguments of each following item


def pack(state: ReasoningState) -> str:
    """Return a state as a signature."""
    told = {"behind": state.behind} if state.item is None else {**state._asdict()}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def unpack(signature: str) -> ReasoningState | None:
    """Return the state in a signature, None for a signature of another protocol."""
    told = parse_arguments(signature) or {}
    item, behind = told.get("item"), told.get("behind")
    if not isinstance(behind, list) or not all(isinstance(each, dict) for each in behind):
        return None
    return ReasoningState(item if isinstance(item, dict) else None, behind)


def is_resendable(item: ResponseItem) -> bool:
    """Return True if a reasoning item has content for a server that stores nothing."""
    return bool(item.get("encrypted_content") or item.get("content"))


def data_to_resend(item: ResponseItem, parsed: Mapping[str, Any] | None) -> ResponseItem:
    """Return the data to send back for an item that is not reasoning. For a call with `parsed`
    arguments, include their text if `arguments_of` would give another text.
    """
    kept = {name: item[name] for name in ("type", "id", "phase") if item.get(name)}
    if item.get("type") == CALL and parsed and arguments_of(parsed) != item.get("arguments"):
        kept["arguments"] = item["arguments"]
    return kept


def arguments_of(given: Mapping[str, Any]) -> str:
    """Return the arguments of a call as text."""
    return json.dumps(given, ensure_ascii=False, separators=(",", ":"))


def with_reasoning(items: Iterator[ResponseItem | ReasoningState]) -> Iterator[ResponseItem]:
    """Yield the items of one reply. Insert each reasoning item before the item that followed it;
    drop it if that item is missing.
    """
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
    """Return an item with its original ID, phase and argument text."""
    out: ResponseItem = {**item, **{name: had[name] for name in ("id", "phase") if name in had}}
    if item["type"] == CALL:
        raw = had.get("arguments")
        if isinstance(raw, str) and arguments_of(parse_arguments(raw) or {}) == item["arguments"]:
            out["arguments"] = raw
    elif "id" in out:  # a message with an ID needs the complete form
        out["status"] = "completed"
        out["content"] = [{"type": "output_text", "text": item["content"], "annotations": []}]
    return out
