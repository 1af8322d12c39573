"""Answers of MCP servers made from the published schema, and the damage that is done to them.

The schema is that of the SDK's wire types, which are generated from it. Every answer follows from
its seed. `fuzzed.py` is a server that sends these answers.
"""

import copy
import json
import random
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from mcp_types.methods import SERVER_RESULTS

VERSIONS = ("2025-11-25", "2026-07-28")
LISTS = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
}
PARTS = {"tools/call": "content", "prompts/get": "messages", "resources/read": "contents"}
JUNK: tuple[Any, ...] = (
    None, True, 0, -1.5, "", "x", "\ud83d", [], {}, [None], {"x": {"y": []}}, [[[]]], 10**30,
)  # fmt: skip
MAX_DEPTH = 4


@dataclass
class Sample:
    """A result with its damage."""

    method: str
    version: str
    result: Any
    whole: list[str] = field(default_factory=list)  # marks of the parts without damage
    damaged: int | None = None  # index of the damaged part, None if the damage is around the parts


@cache
def schema_of(method: str, version: str) -> dict[str, Any]:
    """Return the published schema of a result."""
    from pydantic import TypeAdapter

    return TypeAdapter(SERVER_RESULTS[method, version]).json_schema(by_alias=True)


def sample(seed: int) -> Sample:
    """Return a result with damage in one part or around the parts."""
    rng = random.Random(seed)
    method = rng.choice([*LISTS, *PARTS])
    version = rng.choice(VERSIONS)
    root = schema_of(method, version)
    main = root
    if "anyOf" in root:  # a result, or questions to the user
        main = _resolved(root["anyOf"][0], root)
    key = LISTS[method][0] if method in LISTS else PARTS[method]
    result = _value(main, root, rng, 0)
    result.pop("structuredContent", None)
    items = main["properties"][key]["items"]
    result[key] = [_value(items, root, rng, 0) for _ in range(rng.randint(1, 5))]
    marks = [_marked(method, item, f"mark-{seed}-{n}") for n, item in enumerate(result[key])]
    made = Sample(method, version, result)
    if rng.random() < 0.7:
        made.damaged = rng.randrange(len(marks))
        result[key][made.damaged] = _damaged(result[key][made.damaged], rng)
    else:
        others = [name for name in result if name != key]
        result[rng.choice([*others, "_meta", "nextCursor", "isError"])] = rng.choice(JUNK)
    made.whole = [mark for n, mark in enumerate(marks) if n != made.damaged]
    return made


def _marked(method: str, item: dict[str, Any], mark: str) -> str:
    """Write a mark into the part of an item that its reader needs."""
    if method in LISTS:
        item[LISTS[method][1]] = mark
        return mark
    block = item["content"] if method == "prompts/get" else item
    block = block["resource"] if block.get("type") == "resource" else block
    place = next(each for each in ("text", "data", "blob", "uri") if each in block)
    block[place] = mark
    return mark


def _damaged(value: Any, rng: random.Random) -> Any:
    """Return a copy with one damaged place."""
    value = copy.deepcopy(value)
    if not isinstance(value, dict | list) or not value or rng.random() < 0.15:
        return rng.choice(JUNK)
    place: Any = rng.choice([*value] if isinstance(value, dict) else [*range(len(value))])
    if rng.random() < 0.3:
        del value[place]
    else:
        value[place] = _damaged(value[place], rng)
    return value


def _value(schema: Any, root: dict[str, Any], rng: random.Random, depth: int) -> Any:
    """Return a valid value."""
    schema = _resolved(schema, root)
    if not schema or schema is True:
        return rng.choice([None, 1, "free", {"a": 1}])
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return _value(rng.choice(schema[key]), root, rng, depth)
    kind = schema.get("type")
    if kind == "object":
        return _object(schema, root, rng, depth)
    if kind == "array":
        size = rng.randint(0, 2) if depth < MAX_DEPTH else 0
        return [_value(schema.get("items", {}), root, rng, depth + 1) for _ in range(size)]
    if kind in ("integer", "number"):
        return rng.randint(int(schema.get("minimum", 0)), int(schema.get("maximum", 100)))
    return {"boolean": rng.random() < 0.5, "null": None}.get(str(kind), rng.choice(["", "é", "t"]))


def _object(
    schema: dict[str, Any], root: dict[str, Any], rng: random.Random, depth: int
) -> dict[str, Any]:
    required = schema.get("required", ())
    found = {
        name: _value(each, root, rng, depth + 1)
        for name, each in schema.get("properties", {}).items()
        if name in required or (depth < MAX_DEPTH and rng.random() < 0.5)
    }
    more = schema.get("additionalProperties")
    if isinstance(more, dict) and depth < MAX_DEPTH and rng.random() < 0.5:
        found["free"] = _value(more, root, rng, depth + 1)
    return found


def _resolved(schema: Any, root: dict[str, Any]) -> Any:
    while isinstance(schema, dict) and "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    return schema


def lines(seed: int, id: Any) -> tuple[list[bytes], str]:
    """Return the lines with which a server answers a call, and a mark that must arrive ("" if the
    answer is an error or broken).
    """
    rng = random.Random(seed)
    mark = f"mark-{seed}"
    blocks: list[Any] = [{"type": "text", "text": mark}, rng.choice([*JUNK, {"type": "hologram"}])]
    rng.shuffle(blocks)
    answer: Any = {"jsonrpc": "2.0", "id": id, "result": {"content": blocks}}
    noise = rng.choice([b"", b"Listening on port 1 {", b"[1, 2]", b'{"method": 5}', b"\xff\xfe"])
    kind = rng.randrange(8)
    if kind == 0:
        error = rng.choice([{"code": -32000, "message": "no"}, "no", None, {"data": 1}, 5, []])
        answer, mark = {"jsonrpc": "2.0", "id": id, "error": error}, ""
    elif kind == 1:
        answer["result"], mark = rng.choice([None, {}, [], 0]), ""
    elif kind == 2:
        answer = [{"method": "notifications/message", "params": []}, answer]
    elif kind == 3:
        answer["jsonrpc"], answer["error"] = rng.choice([None, 2.0, "1.0"]), None
    data = json.dumps(answer, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if kind == 4:
        data, mark = data[: rng.randrange(len(data) // 2, len(data) - 1)], ""
    elif kind == 5:
        data = json.dumps({"method": "notifications/x"}).encode() + data
    return ([noise] if noise else []) + [data], mark
