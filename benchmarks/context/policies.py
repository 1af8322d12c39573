"""External policies, as functions from all messages of a session to the messages that are sent.

A policy is called before each request with all messages so far, in the form of the Messages API,
and returns the messages for the model. It must not change its argument. These policies follow the
documentation named with each; the code is our own.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

Message = dict[str, Any]
Messages = list[Message]
ContextPolicy = Callable[[Messages], Messages]

CLEARED = "[cleared]"
CLEARS_ABOVE, CLEARS_ALL_BUT = 100_000, 3  # tokens, results: defaults of clear_tool_uses
ERROR_TURNS = 4  # user messages after which the input of a failed call is dropped
READS = ("Read", "read", "view", "read_file")
WRITES = ("Write", "write", "create", "write_file", "Edit", "edit")


def nothing(messages: Messages) -> Messages:
    """Send all messages."""
    return messages


def last_results(messages: Messages, keep: int) -> Messages:
    """Keep the newest tool results and clear all others."""
    results = [*_blocks(messages, "tool_result")]
    return _with(messages, dict.fromkeys(map(_key, results[: len(results) - keep]), CLEARED))


def clear_tool_uses(
    messages: Messages, above: int = CLEARS_ABOVE, keep: int = CLEARS_ALL_BUT
) -> Messages:
    """Clear all results except the newest once a prompt is large: `clear_tool_uses_20250919` with
    its defaults (Anthropic, "Context editing").
    """
    return last_results(messages, keep) if estimate(messages) > above else messages


def prune(messages: Messages) -> Messages:
    """Drop superseded content: results of repeated calls, text written to a file that was read
    later, and inputs of calls that failed ERROR_TURNS turns ago. These are the rules of the
    OpenCode plugin Dynamic Context Pruning (its README).
    """
    calls = {block["id"]: block for block in _blocks(messages, "tool_use")}
    results = {block["tool_use_id"]: block for block in _blocks(messages, "tool_result")}
    newest = {_signature(call): id for id, call in calls.items()}
    read = {str(_path(c)): place for place, c in enumerate(calls.values()) if c["name"] in READS}
    turns = {id: turn for turn, id in _answered_at(messages)}
    last = sum(message["role"] == "user" for message in messages)
    replaced: dict[tuple[str, str], str] = {}
    for place, (id, call) in enumerate(calls.items()):
        if newest[_signature(call)] != id:
            replaced["tool_result", id] = CLEARED
        if call["name"] in WRITES and read.get(str(_path(call)), -1) > place:
            replaced["tool_use", id] = CLEARED
        failed = results.get(id, {}).get("is_error")
        if failed and last - turns.get(id, last) >= ERROR_TURNS:
            replaced["tool_use", id] = CLEARED
    return _with(messages, replaced)


POLICIES: dict[str, ContextPolicy] = {
    "everything": nothing,
    "last 3 results": partial(last_results, keep=3),
    "last 10 results": partial(last_results, keep=10),
    "clear_tool_uses": clear_tool_uses,
    "pruning": prune,
}


def estimate(messages: Messages) -> int:
    """Return the approximate tokens of messages, at four characters per token."""
    return len(json.dumps(messages, ensure_ascii=False)) // 4


def _blocks(messages: Messages, kind: str) -> Iterator[dict[str, Any]]:
    for message in messages:
        if isinstance(message["content"], list):
            yield from (block for block in message["content"] if block["type"] == kind)


def _answered_at(messages: Messages) -> Iterator[tuple[int, str]]:
    """Yield (number of the user message, call ID) for each result."""
    turn = 0
    for message in messages:
        turn += message["role"] == "user"
        yield from ((turn, b["tool_use_id"]) for b in _blocks([message], "tool_result"))


def _key(block: dict[str, Any]) -> tuple[str, str]:
    return block["type"], str(block.get("tool_use_id") or block.get("id"))


def _signature(call: dict[str, Any]) -> str:
    return json.dumps([call["name"], call["input"]], sort_keys=True, default=str)


def _path(call: dict[str, Any]) -> Any:
    return call["input"].get("path") or call["input"].get("file_path")


def _with(messages: Messages, replaced: dict[tuple[str, str], str]) -> Messages:
    """Return the messages with results and long inputs replaced by texts."""
    return [
        {**message, "content": [_replaced(block, replaced) for block in message["content"]]}
        if isinstance(message["content"], list)
        else message
        for message in messages
    ]


def _replaced(block: dict[str, Any], replaced: dict[tuple[str, str], str]) -> dict[str, Any]:
    text = replaced.get(_key(block))
    if text is None:
        return block
    if block["type"] == "tool_result":
        return {**block, "content": text}
    given = block["input"].items()
    long = {key: text for key, value in given if isinstance(value, str) and len(value) > 200}
    return {**block, "input": {**block["input"], **long}}
