"""Compare an edited request with the client's own request."""

from typing import Any

from ctxagent.addons.proxy.bodies.base import plain, unmarked

Json = dict[str, Any]
THINKING = ("thinking", "redacted_thinking")


def messages_of(body: Json) -> list[Json]:
    found: list[Json] = body[name_of_messages(body)]
    return found


def name_of_messages(body: Json) -> str:
    """Return the field of a body with its messages."""
    return next(name for name in ("messages", "input", "contents") if name in body)


def prefix_of(earlier: Json, later: Json) -> bool:
    """Return True if the later request begins with the whole earlier one, so that a cache serves
    it.
    """
    before, after = ([*map(plain, messages_of(body))] for body in (earlier, later))
    preamble = ("system", "systemInstruction", "tools")
    fixed = [unmarked([*map(body.get, preamble)]) for body in (earlier, later)]
    return fixed[0] == fixed[1] and after[: len(before)] == before


def count_edits(client: Json, sent: Json) -> int:
    """Return the number of blocks changed in an edited request without a summary. Raises
    AssertionError if anything else differs.
    """
    name = name_of_messages(client)
    assert [*client] == [*sent]
    assert {**client, name: 0} == {**sent, name: 0}
    assert len(client[name]) == len(sent[name])
    compare = {"input": _items, "messages": _messages, "contents": _contents}[name]
    return sum(compare(*pair) for pair in zip(client[name], sent[name], strict=True))


def _items(one: Json, other: Json) -> int:
    if one == other:
        return 0
    (field,) = {name for name in one if one[name] != other.get(name)}
    assert [*one] == [*other]
    assert (field == "output" and one["type"].endswith("_output")) or field == "arguments"
    assert isinstance(other[field], str)
    return 1


def _messages(one: Json, other: Json) -> int:
    if one == other:
        return 0
    assert {**one, "content": 0, "tool_calls": 0} == {**other, "content": 0, "tool_calls": 0}
    assert [*one] == [*other]
    if one["role"] == "tool":
        assert isinstance(other["content"], str)
        return 1
    if "tool_calls" in one:
        return _calls(one["tool_calls"], other["tool_calls"])
    found = 0
    kept = [b for b in one["content"] if b["type"] not in THINKING or b in other["content"]]
    assert len(kept) == len(other["content"])
    for before, after in zip(kept, other["content"], strict=True):
        assert [*before] == [name for name in after if name in before]
        assert {*after} - {*before} <= {"cache_control"}
        (field,) = {name for name in before if before[name] != after[name]} or {""}
        assert (before["type"], field) in (
            ("tool_result", "content"), ("tool_use", "input"), (before["type"], ""),
        )  # fmt: skip
        found += field != ""
    return found + len(one["content"]) - len(kept)


def _contents(one: Json, other: Json) -> int:
    assert {**one, "parts": 0} == {**other, "parts": 0}
    found = 0
    for before, after in zip(one["parts"], other["parts"], strict=True):
        (name,) = {name for name in before if before[name] != after[name]} or {""}
        assert [*before] == [*after]
        if name:
            field = {"functionResponse": "response", "functionCall": "args"}[name]
            assert {**before[name], field: 0} == {**after[name], field: 0}
        found += name != ""
    return found


def _calls(before: list[Json], after: list[Json]) -> int:
    assert len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        changed = {**other["function"], "arguments": one["function"]["arguments"]}
        assert one == {**other, "function": changed}
    return sum(one != other for one, other in zip(before, after, strict=True))
