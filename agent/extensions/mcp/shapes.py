"""Lists and results of a server, in a shape that the SDK accepts.

The SDK validates an answer as a whole: one wrong part would lose all of it, although the call has
acted. So each part is judged alone before. An unusable part is left out or becomes text, and a note
in `_meta` names it.
"""

from collections.abc import Callable
from typing import Any

from ...border.values import Drops, Given, JsonObject, as_json, usable_schema

NOTES = "ctxagent/notes"  # key in `_meta` of a result, and of a tool
# What every result needs in one of the protocol's versions.
_COMPLETE: JsonObject = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
_START_KEYS = ("protocolVersion", "capabilities", "serverInfo")
_FLAGS = ("listChanged", "subscribe")
_DATA_TYPES = ("image", "audio")


def usable_result(method: str, sent: Any) -> JsonObject:
    """Return the result of a request in a valid shape."""
    drops = Drops()
    read = _READERS.get(method)
    if read is None or _is_step(sent):
        return sent if isinstance(sent, dict) else {}
    result = read(Given(sent, "", drops))
    notes = drops.lines()
    return {**_COMPLETE, **result, **({"_meta": {NOTES: notes}} if notes else {})}


def notes_in(part: Any) -> list[str]:
    """Return the notes in a result or a tool of the SDK."""
    return list((part.meta or {}).get(NOTES, ()))


def _is_step(sent: Any) -> bool:
    """Return True for a result that leads to another request: a task, or questions."""
    return isinstance(sent, dict) and (
        sent.get("resultType") == "input_required" or isinstance(sent.get("task"), dict)
    )


def _start(given: Given) -> JsonObject:
    """Return the result of `initialize`."""
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS as KNOWN

    if given.object.keys().isdisjoint(_START_KEYS):
        return given.object  # not a server of this protocol: the SDK refuses it
    version = given.text("protocolVersion")
    if version not in KNOWN:
        nearest = max((known for known in KNOWN if known <= version), default=KNOWN[0])
        given.at("protocolVersion").drop(f"{version or 'nothing'} is unknown, {nearest} is used")
        version = nearest
    told, info = given.at("capabilities"), given.at("serverInfo")
    names = ("tools", "prompts", "resources", "completions", "logging")
    offered = {name: told.at(name).object for name in names if told.object.get(name)}
    offered |= {name: {} for name in names if told.object.get(name) == {}}
    return {
        "protocolVersion": version,
        "capabilities": {
            name: {flag: True for flag in _FLAGS if each.get(flag) is True}
            for name, each in offered.items()
        },
        "serverInfo": {"name": info.text("name", "?"), "version": info.text("version", "?")},
        "instructions": given.text("instructions"),
    }


def _page(
    key: str, item: Callable[[Given, str], JsonObject], name_key: str = "name"
) -> Callable[[Given], JsonObject]:
    """Return the reader of one page of a list."""

    def read(given: Given) -> JsonObject:
        if isinstance(given.value, list):
            given = Given({key: given.value}, given.place, given.drops)
        if given.object.get(key) is None:
            given.at(key).called(f"{key}/list").drop(f"its answer has no {key}")
        found = list[JsonObject]()
        for each in given.items(key):
            name = each.text(name_key)
            if name:
                found.append(item(each.called(f"{key[:-1]} {name}"), name))
            else:
                each.drop(f"it has no {name_key} and is left out")
        cursor = given.text("nextCursor")
        return {key: found, **({"nextCursor": cursor} if cursor else {})}

    return read


def _tool(given: Given, name: str) -> JsonObject:
    own = Drops()
    schema = usable_schema(Given(given.object.get("inputSchema"), given.place, own))
    given.drops.extend(own)
    needs_task = given.at("execution").object.get("taskSupport") == "required"
    return {
        "name": name,
        "description": given.text("description") or given.text("title"),
        "inputSchema": schema,
        **({"execution": {"taskSupport": "required"}} if needs_task else {}),
        **({"_meta": {NOTES: own.lines()}} if own.lines() else {}),
    }


def _prompt(given: Given, name: str) -> JsonObject:
    arguments = list[JsonObject]()
    for each in given.items("arguments"):
        if own := each.text("name"):
            arguments.append({"name": own, "required": each.flag("required")})
        else:
            each.drop("it has no name and is left out")
    about = given.text("description") or given.text("title")
    return {"name": name, "description": about, "arguments": arguments}


def _resource(given: Given, uri: str) -> JsonObject:
    return {"uri": uri, "name": given.text("title") or given.text("name") or uri}


def _called(given: Given) -> JsonObject:
    """Return the result of a call. A value of another shape is the text of the result."""
    sent = given.object
    known = {"content", "structuredContent", "isError", "_meta", "resultType"}
    if not isinstance(given.value, dict):
        given = Given({"content": given.value}, given.place, given.drops)
    elif sent.keys().isdisjoint(("content", "structuredContent")) and sent.keys() - known:
        rest = {key: value for key, value in sent.items() if key not in known}
        given = Given({**sent, "content": as_json(rest)}, given.place, given.drops)
    content = _blocks(given.at("content"))
    structured = given.object.get("structuredContent")
    if structured is not None and not content:
        content = [_text(as_json(structured))]
    return {"content": content, "isError": given.flag("isError")}


def _got_prompt(given: Given) -> JsonObject:
    messages = list[JsonObject]()
    for each in given.items("messages"):
        role = each.text("role", "user")
        if role not in ("user", "assistant"):
            each.at("role").drop(f"{role} is unknown, user is used")
            role = "user"
        of = each if isinstance(each.value, dict) else Given({"content": each.value}, each.place,
                                                             each.drops)  # fmt: skip
        messages += [{"role": role, "content": block} for block in _blocks(of.at("content"))]
    return {"messages": messages}


def _read(given: Given) -> JsonObject:
    found = list[JsonObject]()
    for each in given.items("contents"):
        contents = _contents(each)
        if contents is None:
            each.drop("it has neither text nor data; it is shown as JSON")
            contents = {"uri": "", "text": as_json(each.value)}
        found.append(contents)
    return {"contents": found}


def _blocks(given: Given) -> list[JsonObject]:
    """Return the blocks of content. A text or a single block is a list of one."""
    if given.value is None:
        return []
    sent = given.value if isinstance(given.value, list) else [given.value]
    return [_block(Given(v, f"{given.place}[{n}]", given.drops)) for n, v in enumerate(sent)]


def _block(given: Given) -> JsonObject:
    """Return one block of content. A block of an unknown type or shape becomes text."""
    sent, kind = given.value, given.object.get("type")
    if isinstance(sent, str):
        return _text(sent)
    text = given.object.get("text")
    if kind in ("text", None) and isinstance(text, str):
        return _text(text)
    if kind in _DATA_TYPES and isinstance(given.object.get("data"), str):
        media_type = given.text("mimeType", "application/octet-stream")
        return {"type": kind, "data": sent["data"], "mimeType": media_type}
    if kind == "resource" and (contents := _contents(given.at("resource"))) is not None:
        return {"type": kind, "resource": contents}
    if kind == "resource_link" and (uri := given.text("uri")):
        name, media_type = given.text("name", uri), given.text("mimeType")
        return {"type": kind, "uri": uri, "name": name, "mimeType": media_type}
    shown = kind if isinstance(kind, str) else "content without a type"
    given.drop(f"{shown[:40]} of this form is unknown; it is shown as JSON")
    return _text(f"[{shown}: {as_json(sent)}]")


def _contents(given: Given) -> JsonObject | None:
    """Return the contents of a resource, None if they have neither text nor data."""
    key = next((k for k in ("text", "blob") if isinstance(given.object.get(k), str)), None)
    if key is None:
        return None
    media_type = given.text("mimeType")
    return {"uri": given.text("uri"), key: given.value[key], "mimeType": media_type}


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


_READERS: dict[str, Callable[[Given], JsonObject]] = {
    "initialize": _start,
    "tools/list": _page("tools", _tool),
    "prompts/list": _page("prompts", _prompt),
    "resources/list": _page("resources", _resource, "uri"),
    "tools/call": _called,
    "tasks/result": _called,
    "prompts/get": _got_prompt,
    "resources/read": _read,
}
