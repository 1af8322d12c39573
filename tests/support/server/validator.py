"""The Messages API's rules for the body of a request, as strict as documented.

Source: the Messages API reference (Create a Message; tool use; extended thinking; prompt caching;
vision), November 2026. It is stricter than the API in two ways: it refuses consecutive messages of
one role, which the API merges, and any field or block that this agent has no reason to send.
"""

import base64
import binascii
import io
import json
import re
from collections.abc import Iterator
from typing import Any

import PIL.Image

LARGEST_BODY = 32 * 1024 * 1024
LARGEST_IMAGE = 5 * 1024 * 1024
MOST_IMAGES = 100
MANY_IMAGES = 20  # above this number, LONGEST_SIDE_OF_MANY applies
LONGEST_SIDE_OF_MANY = 2_000  # pixels
MOST_BREAKPOINTS = 4
LONGEST_INSTRUCTIONS = 16_384  # characters of the instructions for a summary
EFFORTS = ("low", "medium", "high", "xhigh", "max")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_MAGIC = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
_TOP = {
    "model": str,
    "max_tokens": int,
    "messages": list,
    "system": list,
    "tools": list,
    "tool_choice": dict,
    "stream": bool,
    "thinking": dict,
    "output_config": dict,
    "metadata": dict,
    "stop_sequences": list,
    "compaction": dict,
}
# For each role: block type -> (required fields, optional fields).
_TEXT = ({"type", "text"}, {"cache_control"})
_CITED_TEXT = ({"type", "text"}, {"citations", "cache_control"})
_IMAGE = ({"type", "source"}, {"cache_control"})
_DOCUMENT = ({"type", "source"}, {"title", "context", "citations", "cache_control"})
_BLOCKS: dict[str, dict[str, tuple[set[str], set[str]]]] = {
    "user": {
        "text": _TEXT,
        "image": _IMAGE,
        "document": _DOCUMENT,
        "tool_result": ({"type", "tool_use_id"}, {"content", "is_error", "cache_control"}),
    },
    "assistant": {
        "text": _CITED_TEXT,
        "server_tool_use": ({"type", "id", "name", "input"}, {"caller", "cache_control"}),
        "web_search_tool_result": (
            {"type", "tool_use_id", "content"},
            {"caller", "cache_control"},
        ),
        "thinking": ({"type", "thinking", "signature"}, set()),
        "redacted_thinking": ({"type", "data"}, set()),
        "tool_use": ({"type", "id", "name", "input"}, {"cache_control"}),
        "compaction": ({"type", "content", "signature"}, {"cache_control"}),
    },
    "system": {"text": _TEXT, "tool_addition": ({"type", "tool"}, {"cache_control"})},
    "result": {"text": _TEXT, "image": _IMAGE, "document": _DOCUMENT},
}
_THINKING = ("thinking", "redacted_thinking")
_SEARCH_TOOL = {"type": "web_search_20250305", "name": "web_search"}
_SEARCH_ID = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")
_PAGE = ({"type", "url", "title", "encrypted_content"}, {"page_age"})
_CITATION = {"type", "url", "title", "encrypted_index", "cited_text"}


class Invalid(Exception):
    """The API would answer 400 with this message. `status` is 413 for a body that is too large."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def validate(request: dict[str, Any], *, allow_paused: bool = False) -> None:
    """Raise Invalid unless the API must accept this body. `allow_paused` allows a last message from
    the assistant, as after a reply that stopped with `pause_turn`.
    """
    try:
        size = len(json.dumps(request, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        _check_text(request, "body")  # raises Invalid with the position
        raise
    _check(isinstance(request, dict), "body: not an object")
    if size > LARGEST_BODY:
        raise Invalid(f"Request exceeds the maximum size ({size} > {LARGEST_BODY} bytes)", 413)
    _check_top(request)
    _check_system(request.get("system", []))
    _check_tools(request.get("tools", []))
    _check_messages(request["messages"], allow_paused)
    _check_added_tools(request)
    _check_breakpoints(request)


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise Invalid(message)


def _check_text(node: Any, where: str) -> None:
    """Check that no text, including keys, has a lone surrogate, which UTF-8 cannot encode."""
    if isinstance(node, str):
        _check(not _SURROGATE.search(node), f"{where}: str is not valid UTF-8: lone surrogate")
    elif isinstance(node, dict):
        for key, value in node.items():
            _check_text(key, where)
            _check_text(value, f"{where}.{key}")
    elif isinstance(node, list):
        for place, value in enumerate(node):
            _check_text(value, f"{where}.{place}")


def _check_fields(node: Any, where: str, must: set[str], may: set[str]) -> None:
    if not isinstance(node, dict):
        raise Invalid(f"{where}: Input should be an object")
    if missing := must - node.keys():
        raise Invalid(f"{where}.{min(missing)}: Field required")
    if extra := node.keys() - must - may:
        raise Invalid(f"{where}.{min(extra)}: Extra inputs are not permitted")


def _check_top(request: dict[str, Any]) -> None:
    _check_fields(request, "body", {"model", "max_tokens", "messages"}, set(_TOP))
    for name, value in request.items():
        typed = isinstance(value, _TOP[name]) and (_TOP[name] is not int or value is not True)
        _check(typed, f"{name}: Input should be a valid {_TOP[name].__name__}")
    _check(bool(request["model"].strip()), "model: at least 1 character is required")
    _check(request["max_tokens"] >= 0, "max_tokens: Input should be greater than or equal to 0")
    streams = request.get("stream", False)
    _check(not streams or request["max_tokens"] > 0, "stream cannot be true when max_tokens is 0")
    if "thinking" in request:
        thinking = request["thinking"]
        _check_fields(thinking, "thinking", {"type"}, {"display"})
        _check(thinking["type"] == "adaptive", 'thinking.type: only "adaptive" is supported')
        shown = thinking.get("display") in (None, "summarized", "omitted")
        _check(shown, "thinking.display: Input should be 'summarized' or 'omitted'")
    if "compaction" in request:
        asked = request["compaction"]
        _check_fields(asked, "compaction", {"type"}, {"instructions"})
        _check(asked["type"] == "summarize", "compaction.type: Input should be 'summarize'")
        short = len(asked.get("instructions", "")) <= LONGEST_INSTRUCTIONS
        _check(short, f"compaction.instructions: more than {LONGEST_INSTRUCTIONS} characters")
    if "output_config" in request:
        _check_fields(request["output_config"], "output_config", {"effort"}, set())
        effort = request["output_config"]["effort"]
        _check(effort in EFFORTS, f"output_config.effort: Input should be one of {EFFORTS}")


def _check_system(system: list[Any]) -> None:
    for place, block in enumerate(system):
        where = f"system.{place}"
        _check_fields(block, where, *_TEXT)
        _check(block["type"] == "text", f"{where}.type: Input should be 'text'")
        _check_block(block, where)


def _check_tools(tools: list[Any]) -> None:
    names = set()
    for place, tool in enumerate(tools):
        where = f"tools.{place}"
        if "type" in tool:
            _check_fields(tool, where, {"type", "name"}, {"max_uses", "cache_control"})
            own = {name: tool[name] for name in _SEARCH_TOOL} == _SEARCH_TOOL
            _check(own, f"{where}: Input tag {tool['type']!r} does not match any expected tag")
            _check(tool.get("max_uses", 1) >= 1, f"{where}.max_uses: should be at least 1")
            _check(tool["name"] not in names, "tools: Tool names must be unique.")
            names.add(tool["name"])
            continue
        _check_fields(tool, where, {"name", "description", "input_schema"}, {"cache_control"})
        named = isinstance(tool["name"], str) and _NAME.fullmatch(tool["name"])
        _check(bool(named), f"{where}.name: String should match pattern '{_NAME.pattern}'")
        _check(tool["name"] not in names, "tools: Tool names must be unique.")
        names.add(tool["name"])
        _check_said(tool["description"], f"{where}.description")
        schema = tool["input_schema"]
        shaped = isinstance(schema, dict) and schema.get("type") == "object"
        _check(shaped, f"{where}.input_schema.type: Field required and should be 'object'")


def _check_messages(messages: list[Any], allow_paused: bool) -> None:
    _check(bool(messages), "messages: at least one message is required")
    ids: set[str] = set()
    calls: list[str] = []  # calls of the previous message
    searches = Searches()
    expected = "user"
    for place, message in enumerate(messages):
        where = f"messages.{place}"
        _check_fields(message, where, {"role", "content"}, set())
        role, content = message["role"], message["content"]
        if role == "system":
            fits = place > 0 and messages[place - 1]["role"] == "user"
            _check(fits, f"{where}: a system message follows a user message")
            _check(bool(content), f"{where}: all messages must have non-empty content")
            _check_blocks(content, _BLOCKS[role], f"{where}.content")
            expected = ""  # a reply or another user message
            searches.bare = False
            continue
        if "compaction" in [b.get("type") for b in content if isinstance(b, dict)]:
            first = place == 0 and role == "assistant" and len(content) == 1
            _check(first, f"{where}: compaction_block_misplaced: it must come first, once")
            _check_blocks(content, _BLOCKS[role], f"{where}.content")
            expected = ""
            continue
        expected = expected or role
        _check(role == expected, f"{where}: roles must alternate from 'user' on, found {role!r}")
        _check(isinstance(content, list), f"{where}.content: Input should be a list of blocks")
        _check(bool(content), f"{where}: all messages must have non-empty content")
        _check_blocks(content, _BLOCKS[role], f"{where}.content")
        searches.check(role, content, where)
        expected = "user" if role == "assistant" else "assistant"
        if role == "user":
            _check_results(content, calls, where)
            calls = []
            continue
        final = content[-1]["type"]
        _check(
            final not in _THINKING,
            f"{where}: The final block in an assistant message cannot be `{final}`.",
        )
        calls = [block["id"] for block in content if block["type"] == "tool_use"]
        _check(
            len(set(calls)) == len(calls) and not ids & set(calls),
            f"{where}: `tool_use` ids must be unique",
        )
        ids |= set(calls)
    bare = all(block["type"] == "tool_result" for block in messages[-1]["content"])
    if not (messages[-1]["role"] == "assistant" or bare):
        searches.check_ended(f"messages.{len(messages) - 1}")
    if messages[-1]["role"] == "assistant":
        _check(allow_paused, "messages: the last message must be the user's (no prefill)")
        _check(not calls, f"messages: `tool_use` ids without `tool_result` blocks: {calls}")
    _check_number_of_images([block for block in _walk(messages) if block["type"] == "image"])


class Searches:
    """The web searches in the messages so far. The result of each search is in the same message or,
    if only results of parallel calls come between, at the beginning of the next reply.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, str] = {}  # positions of searches without a result yet
        self.known: set[str] = set()
        self.pages: set[str] = set()  # addresses of results
        self.bare = False  # the previous user message has only results of calls

    def check(self, role: str, content: list[dict[str, Any]], where: str) -> None:
        if role == "user":
            self.bare = all(block["type"] == "tool_result" for block in content)
            return
        if not self.bare:
            self.check_ended(where)
        earlier = set(self.waiting)
        for block in content:
            kind = block["type"]
            if kind == "server_tool_use":
                id = block["id"]
                _check(id not in self.known, f"{where}: `server_tool_use` ids must be unique")
                self.known.add(id)
                self.waiting[id] = where
            elif kind == "web_search_tool_result":
                id = block["tool_use_id"]
                _check(
                    id in self.waiting,
                    f"{where}: unexpected `tool_use_id` found in `web_search_tool_result` blocks: "
                    f"{id}. Each must have a corresponding `server_tool_use` block before it.",
                )
                del self.waiting[id]
                found = block["content"] if isinstance(block["content"], list) else []
                self.pages |= {page["url"] for page in found}
            for cited in block.get("citations", ()):
                _check(cited["url"] in self.pages, f"{where}: a citation of a page never found")
        if left := earlier & set(self.waiting):
            self.check_ended(where, only=left)

    def check_ended(self, where: str, only: set[str] | None = None) -> None:
        for id, place in self.waiting.items():
            _check(
                only is not None and id not in only,
                f"{place}: `web_search` tool use with id `{id}` was found without a corresponding "
                "`web_search_tool_result` block",
            )


def _check_search(block: dict[str, Any], where: str) -> None:
    name = "id" if block["type"] == "server_tool_use" else "tool_use_id"
    fits = isinstance(block[name], str) and _SEARCH_ID.fullmatch(block[name])
    _check(bool(fits), f"{where}.{name}: String should match pattern '^{_SEARCH_ID.pattern}$'")
    _check(block.get("caller", {"type": "direct"}) == {"type": "direct"}, f"{where}.caller")
    if name == "id":
        _check(block["name"] == "web_search", f"{where}.name: Input should be 'web_search'")
        _check(isinstance(block["input"], dict), f"{where}.input: Input should be an object")
        return
    content = block["content"]
    if isinstance(content, dict):
        _check_fields(content, f"{where}.content", {"type", "error_code"}, set())
        return
    for place, page in enumerate(content):
        _check_fields(page, f"{where}.content.{place}", *_PAGE)
        for field in ("url", "title", "encrypted_content"):
            _check_said(page[field], f"{where}.content.{place}.{field}")


def _check_citations(citations: Any, where: str) -> None:
    _check(isinstance(citations, list) and bool(citations), f"{where}: should be a list of some")
    for place, each in enumerate(citations):
        _check_fields(each, f"{where}.{place}", _CITATION, set())
        fits = each["type"] == "web_search_result_location"
        _check(fits, f"{where}.{place}.type: not a place in a result of a search")


def _check_added_tools(request: dict[str, Any]) -> None:
    """Check that tools in system messages are complete, new, and added only once."""
    names = {tool["name"] for tool in request.get("tools", [])}
    for place, message in enumerate(request["messages"]):
        for block in message["content"]:
            if block["type"] != "tool_addition":
                continue
            where = f"messages.{place}"
            _check_fields(block["tool"], where, {"type", "definition"}, set())
            _check(block["tool"]["type"] == "tool_definition", f"{where}: not inline")
            _check_tools([block["tool"]["definition"]])
            name = block["tool"]["definition"]["name"]
            _check(name not in names, f"{where}: {name} is there already")
            names.add(name)


def _check_blocks(
    blocks: list[Any], known: dict[str, tuple[set[str], set[str]]], where: str
) -> None:
    for place, block in enumerate(blocks):
        kind = block.get("type") if isinstance(block, dict) else None
        if not (isinstance(kind, str) and kind in known):
            raise Invalid(
                f"{where}.{place}: Input tag {kind!r} does not match any of the expected tags "
                f"{sorted(known)}"
            )
        _check_fields(block, f"{where}.{place}", *known[kind])
        _check_block(block, f"{where}.{place}")


def _check_block(block: dict[str, Any], where: str) -> None:
    kind = block["type"]
    if kind == "text":
        _check_said(block["text"], f"{where}.text")
        if "citations" in block:
            _check_citations(block["citations"], f"{where}.citations")
    elif kind in ("server_tool_use", "web_search_tool_result"):
        _check_search(block, where)
    elif kind == "image":
        _check_image(block["source"], f"{where}.source")
    elif kind == "document":
        _check_document(block["source"], f"{where}.source")
    elif kind == "tool_use":
        for name in ("id", "name"):
            fits = isinstance(block[name], str) and _NAME.fullmatch(block[name])
            _check(bool(fits), f"{where}.{name}: String should match pattern '{_NAME.pattern}'")
        _check(isinstance(block["input"], dict), f"{where}.input: Input should be an object")
    elif kind == "thinking":
        _check(isinstance(block["thinking"], str), f"{where}.thinking: Input should be a string")
        _check_said(block["signature"], f"{where}.signature")
    elif kind == "compaction":
        for name in ("content", "signature"):
            _check_said(block[name], f"{where}.{name}")
    elif kind == "redacted_thinking":
        _check_said(block["data"], f"{where}.data")
    elif kind == "tool_result":
        _check_result(block, where)
    if "cache_control" in block:
        control = block["cache_control"]
        _check_fields(control, f"{where}.cache_control", {"type"}, {"ttl"})
        fits = control["type"] == "ephemeral" and control.get("ttl") in (None, "5m", "1h")
        _check(fits, f"{where}.cache_control: not an ephemeral breakpoint of 5m or 1h")


def _check_said(text: Any, where: str) -> None:
    _check(isinstance(text, str), f"{where}: Input should be a valid string")
    _check(bool(text.strip()), f"{where}: text content blocks must contain non-whitespace text")


def _check_result(block: dict[str, Any], where: str) -> None:
    called = block["tool_use_id"]
    fits = isinstance(called, str) and _NAME.fullmatch(called)
    _check(bool(fits), f"{where}.tool_use_id: String should match pattern '{_NAME.pattern}'")
    if "is_error" in block:
        _check(isinstance(block["is_error"], bool), f"{where}.is_error: should be a boolean")
    content = block.get("content", "nothing")
    if isinstance(content, list):
        _check(bool(content), f"{where}.content: at least one block is required")
        _check_blocks(content, _BLOCKS["result"], f"{where}.content")
    else:
        _check_said(content, f"{where}.content")


def _check_results(content: list[dict[str, Any]], calls: list[str], where: str) -> None:
    """Check that every call of the previous message is answered here exactly once, before any other
    content.
    """
    results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
    for answered in results:
        _check(
            answered in calls,
            f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {answered}. Each "
            "`tool_result` block must have a corresponding `tool_use` block in the previous "
            "message.",
        )
    _check(len(set(results)) == len(results), f"{where}: each call has exactly one `tool_result`")
    missing = [call for call in calls if call not in results]
    _check(
        not missing,
        f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(missing)}",
    )
    first = [block["type"] for block in content[: len(results)]]
    _check(set(first) <= {"tool_result"}, f"{where}: `tool_result` blocks must come first")


def _check_image(source: Any, where: str) -> None:
    _check_fields(source, where, {"type", "media_type", "data"}, set())
    _check(source["type"] == "base64", f"{where}.type: Input should be 'base64'")
    _check(
        source["media_type"] in list(_MAGIC), f"{where}.media_type: should be one of {list(_MAGIC)}"
    )
    data = _decode(source["data"], where)
    _check(len(data) <= LARGEST_IMAGE, f"{where}: image exceeds 5 MB maximum: {len(data)} bytes")
    _check(
        data.startswith(_MAGIC[source["media_type"]]),
        f"{where}: the bytes are not {source['media_type']}",
    )


def _check_document(source: Any, where: str) -> None:
    _check_fields(source, where, {"type", "media_type", "data"}, set())
    kinds = [["base64", "application/pdf"], ["text", "text/plain"]]
    fits = [source["type"], source["media_type"]] in kinds
    _check(fits, f"{where}: a document is a base64 application/pdf or a text/plain text")
    if source["type"] == "base64":
        _check(_decode(source["data"], where).startswith(b"%PDF"), f"{where}: not a valid PDF")
    else:
        _check_said(source["data"], f"{where}.data")


def _decode(data: Any, where: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise Invalid(f"{where}.data: invalid base64 data") from error


def _check_breakpoints(request: dict[str, Any]) -> None:
    blocks = [*request.get("system", []), *request.get("tools", []), *_walk(request["messages"])]
    marks = sum("cache_control" in block for block in blocks)
    _check(
        marks <= MOST_BREAKPOINTS,
        f"A maximum of {MOST_BREAKPOINTS} blocks with cache_control may be provided. "
        f"Found {marks}.",
    )


def _walk(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield every block, including those in results."""
    for message in messages:
        for block in message["content"]:
            yield block
            if block["type"] == "tool_result" and isinstance(block.get("content"), list):
                yield from block["content"]


def _check_number_of_images(images: list[dict[str, Any]]) -> None:
    _check(len(images) <= MOST_IMAGES, f"messages: more than {MOST_IMAGES} images")
    if len(images) > MANY_IMAGES:
        datas = (io.BytesIO(base64.b64decode(image["source"]["data"])) for image in images)
        longest = max(max(PIL.Image.open(data).size) for data in datas)
        _check(
            longest <= LONGEST_SIDE_OF_MANY,
            "messages: At least one of the image dimensions exceed max allowed size for many-image "
            f"requests: {LONGEST_SIDE_OF_MANY} pixels",
        )
