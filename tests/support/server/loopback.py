"""A Messages API server on the loopback interface: real HTTP, real server-sent events, strict.

    steps = [Say("Let me look.", tools=[("Bash", {"command": "ls"})]), Say("Done.")]
    with Server(steps) as server:
        run(environ={"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "test"})
    assert server.rejected == []
    assert len(server.requests) == 2

Each request is checked by `validator`; an invalid one is answered with 400 and kept in `rejected`.
Steps are played in order, one per request, or chosen by a function of the request's body. A request
after the last step counts as rejected. `Say` is a reply, complete or with a fault in the stream;
`Fail` is an error status. The first request sets `asked`; a client that disconnects sets `hung_up`.
`said` is the streamed text; `halted_after` pauses all streams after a given text.
"""

import hashlib
import json
import os
import select
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any, Literal
from urllib.parse import unquote

from ctxagent.agent.context import tokens

from .compactions import Compactions
from .validator import LARGEST_BODY, Invalid, validate

Body = dict[str, Any]
SEARCH_BLOCKS = ("server_tool_use", "web_search_tool_result")
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
NOISE: tuple[Body, ...] = (
    {"type": "ping"},
    {"type": "session_state", "state": {"new": True}},
    {
        "type": "content_block_start",
        "index": 90,
        "content_block": {"type": "hologram", "shape": "cube"},
    },
    {
        "type": "content_block_delta",
        "index": 90,
        "delta": {"type": "hologram_delta", "points": [1, 2]},
    },
    {"type": "content_block_stop", "index": 90},
)
Fault = Literal[
    "mute",  # no answer at all
    "hang up",  # the connection is reset instead of an answer
    "silence",  # the stream stalls
    "pings",  # the stream goes on with pings only
    "cut",  # the connection breaks
    "reset",  # the connection is reset
    "end",  # the stream ends properly, but too early
    "garbage",  # an event that is not JSON
]


@dataclass(frozen=True, slots=True)
class Say:
    """A reply, as the API streams it. `tools` are (name, input); a str as input is sent as the raw
    arguments, valid JSON or not. `blocks` come first, unchanged. `usage` replaces the computed
    usage.

    `fault` happens after `after` events (None: after the content); `error` is another fault: (type,
    message) of an `error` event. `pieces` is the number of bytes per write; `noise` adds pings,
    comments, and events and blocks of unknown types. A block comes in `deltas` parts, `pace`
    seconds apart. `edit` changes the events before they are sent; a str among them is sent as the
    data of an event. `headers` are added to the answer's own.
    """

    text: str = ""
    thinking: str = ""
    tools: Sequence[tuple[str, Body | str]] = ()
    blocks: Sequence[Body] = ()
    stop_reason: str | None = None
    usage: Body | None = None
    fault: Fault | None = None
    error: tuple[str, str] | None = None
    after: int | None = None
    pieces: int | None = None
    noise: bool = False
    deltas: int = 2
    pace: float = 0.0
    edit: Callable[[list[Body]], Sequence[Body | str]] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fail:
    """An error answer. `body` replaces the API's usual error body."""

    status: int
    message: str = "no"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    kind: str | None = None


Step = Say | Fail


class Server:
    """Server of the Messages API; servers of other protocols override `answer` and the methods from
    `refusal` on.

    `bound` binds thinking to its model and the preceding context, as newer models do. `window`
    answers "prompt is too long" above that many tokens; with `strict`, the tokens reserved for the
    reply count too, and a request that does not fit is `rejected`. `size_of` counts the tokens of a
    block. `models` is the content of GET /v1/models: ID to (window, output). `lenient` allows
    contents that are strings.
    """

    protocol, model = "messages", "claude-sonnet-5-5"
    address_variable, address_end = "ANTHROPIC_BASE_URL", ""
    key_variable = "ANTHROPIC_API_KEY"

    def __init__(
        self,
        steps: Sequence[Step] | Callable[[Body], Step],
        *,
        bound: bool = False,
        window: int | None = None,
        strict: bool = False,
        size_of: Callable[[Body], int] = tokens.estimate_block,
        models: Mapping[str, tuple[int, int]] | None = None,
        lenient: bool = False,
    ) -> None:
        self.lenient = lenient
        self.bound = bound
        self.searches = True  # accepts the web search tool
        self.compacts = False  # accepts `compaction` and its own compaction blocks
        self.compactions = Compactions()
        self.takes_found = True  # accepts search blocks in the messages
        self.given: dict[str, str] = {}  # search blocks that it returned, by type and ID
        self.window = window
        self.strict = strict
        self.size_of = size_of
        self.models = models or {}
        self.listed: list[Body] | None = None  # answer of GET /v1/models; None if not supported
        self.own: dict[str, Body] = {}  # answers of its own interfaces (GET), by path
        self.requests: list[Body] = []
        self.bodies = self.requests  # unconverted
        self.digests: list[str] = []  # digest of each request's bytes
        self.headers: list[dict[str, str]] = []
        self.rejected: list[tuple[str, Body]] = []
        self.paths: list[str] = []
        self.connections: set[int] = set()
        self.asked = threading.Event()
        self.hung_up = threading.Event()
        self.stopping = threading.Event()
        self._flow = threading.Lock()  # while held, all streams pause
        self.said = ""  # text streamed so far
        self._steps = steps if callable(steps) else list(steps)
        self._lock = threading.Lock()
        self._paused = False
        self._before: dict[str, list[str]] = {}  # previous prompt of each model
        self._sizes: dict[str, int] = {}
        self._http = _Http(("127.0.0.1", 0), _Exchange)
        self._http.owner = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that make the command use this server."""
        return {
            self.address_variable: self.url + self.address_end,
            self.key_variable: "test-key-1",
            "CTXAGENT_MODEL_ID": self.model,
        }

    def __enter__(self) -> "Server":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    @contextmanager
    def halted_after(self, text: str) -> Iterator[None]:
        """Pause all streams as soon as this text has been streamed."""
        while True:
            with self._flow:
                if text in self.said:
                    yield
                    return
            time.sleep(0.001)

    def answer(self, body: Body, headers: dict[str, str], raw: bytes) -> tuple[Step, str, Body]:
        """Return the step, its message ID, and the usage of the prompt."""
        with self._lock:
            self.requests.append(self._sharing(body))
            self.digests.append(hashlib.sha256(raw).hexdigest())
            self.headers.append(headers)
            self.asked.set()
            number, given = len(self.requests), body
            if self.lenient:
                body = in_blocks(body)
            try:
                validate(body, allow_paused=self._paused)
                if any(message["role"] == "system" for message in body["messages"]):
                    check_betas(headers)
                if refused := self._refused_search(body):
                    return Fail(400, refused), "", {}
                self._check_searches(body)
                if not self.compacts and (refused := self.compactions.refusal(body)):
                    return Fail(400, refused), "", {}
                self.compactions.check(body, headers)
                if self.bound:
                    check_bound(body, self.compactions.told([*flat(body)]))
                step = self._step(given, number)
                check_step(step)
            except Invalid as error:
                self.rejected.append((str(error), body))
                return Fail(error.status, str(error)), "", {}
            usage = self._usage(body)
            prompt = sum(usage.values())
            room = body["max_tokens"] if self.strict else 0
            if self.window is not None and prompt + room > self.window:
                message = f"prompt is too long: {prompt} tokens > {self.window} maximum"
                if self.strict:
                    figures = f"{prompt} + {room} > {self.window}"
                    message = f"input length and `max_tokens` exceed context limit: {figures}"
                    self.rejected.append((message, body))
                return Fail(400, message), "", {}
            self._paused = isinstance(step, Say) and step.stop_reason == "pause_turn"
            return step, f"msg_{number:04d}", usage

    def _sharing(self, body: Body) -> Body:
        """Return a request that shares equal messages with the previous one, to save memory in long
        sessions.
        """
        before, after = (
            each.get("messages") if isinstance(each, dict) else None
            for each in (self.requests[-1] if self.requests else None, body)
        )
        if not isinstance(before, list) or not isinstance(after, list):
            return body
        messages = [old if old == new else new for old, new in zip(before, after, strict=False)]
        return {**body, "messages": [*messages, *after[len(messages) :]]}

    def _refused_search(self, body: Body) -> str:
        """Return why a server without web search refuses a request; "" if it accepts it."""
        place = next((n for n, t in enumerate(body.get("tools", [])) if "type" in t), None)
        if not self.searches and place is not None:
            return (
                f"tools.{place}: Input tag 'web_search_20250305' found using 'type' does not match "
                "any of the expected tags: 'custom'"
            )
        for number, message in enumerate(body["messages"] if not self.takes_found else ()):
            if any(block["type"] in SEARCH_BLOCKS for block in message["content"]):
                return f"messages.{number}: Input tag 'server_tool_use' does not match: 'text'"
        return ""

    def _check_searches(self, body: Body) -> None:
        """Raise Invalid unless search blocks come back unchanged, byte for byte."""
        for message in body["messages"]:
            for block in message["content"]:
                if block["type"] in SEARCH_BLOCKS:
                    plain = {k: v for k, v in block.items() if k != "cache_control"}
                    given = self.given.get(named(plain))
                    if given is not None and given != json.dumps(plain):
                        raise Invalid(f"messages: a block of a search was altered: {named(plain)}")

    def message(self, step: "Say", body: Body, id: str, usage: Body) -> Body:
        """Return the whole reply."""
        if "compaction" not in body and not step.thinking:
            return message(step, body, id, usage, self.size_of)
        told = self.compactions.told([*flat(in_blocks(body) if self.lenient else body)])
        whole = message(step, body, id, usage, self.size_of, told)
        if "compaction" not in body:
            return whole
        return self.compactions.answer("" if step.tools else step.text, body, told, whole)

    def keep_searches(self, whole: Body) -> None:
        """Remember the search blocks in a reply."""
        for block in whole["content"]:
            if block["type"] in SEARCH_BLOCKS:
                self.given[named(block)] = json.dumps(block)

    def refusal(self, path: str, headers: Mapping[str, str]) -> Fail | None:
        """Return the error for a request that is refused before its body is read, or None."""
        if path != "/v1/messages":
            return Fail(404, f"no such path: {path}")
        if not (headers.get("x-api-key") or headers.get("authorization")):
            return Fail(401, "x-api-key header is required")
        if not headers.get("anthropic-version"):
            return Fail(400, "anthropic-version: header is required")
        return None

    def streams(self, body: Body) -> bool:
        return bool(body.get("stream"))

    def whole(self, whole: Body) -> Body:
        """Return the body of a reply that is not streamed."""
        return whole

    def events(self, say: "Say", whole: Body) -> Iterator[Body]:
        """Yield the events that stream a reply; the last two follow its content."""
        yield from events(say, whole)

    def framed(self, event: Body | str) -> str:
        kind = event.get("type") if isinstance(event, dict) else "raw"
        return f"event: {kind}\ndata: {data_of(event)}\n\n"

    def text_of(self, event: Body) -> str | None:
        """Return the text that an event adds to a block; None if it adds nothing to a block."""
        if event.get("type") != "content_block_delta":
            return None
        return str(event["delta"].get("text", ""))

    def error(self, kind: str, words: str) -> Body:
        return {"type": "error", "error": {"type": kind, "message": words}}

    def last(self) -> str:
        """Return the data that ends a stream."""
        return ""

    def _step(self, body: Body, number: int) -> Step:
        if callable(self._steps):
            return self._steps(body)
        if number > len(self._steps):
            raise Invalid(f"the script has {len(self._steps)} steps, this is request {number}")
        return self._steps[number - 1]

    def _usage(self, body: Body) -> Body:
        """Return the prompt's tokens as the cache charges them: the prefix equal to the model's
        previous request is read; the rest is written if the request has breakpoints.
        """
        parts = list(flat(body))
        plain = [json.dumps(part, sort_keys=True) for part in parts]
        same, before = 0, self._before.get(body["model"], [])
        while same < min(len(plain), len(before)) and plain[same] == before[same]:
            same += 1
        caches = "cache_control" in json.dumps(body)
        self._before[body["model"]] = plain if caches else []
        for text, (_, block) in zip(plain, parts, strict=True):
            if text not in self._sizes:  # counting dominates the time of a long session
                self._sizes[text] = self.size_of(block)
        read = sum(self._sizes[text] for text in plain[:same])
        rest = sum(self._sizes[text] for text in plain[same:])
        return {
            "input_tokens": 0 if caches else rest,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": rest if caches else 0,
        }


def in_blocks(body: Body) -> Body:
    """Return a request with strings converted to blocks."""

    def blocks(content: Any) -> Any:
        return [{"type": "text", "text": content}] if isinstance(content, str) else content

    messages = [{**message, "content": blocks(message["content"])} for message in body["messages"]]
    return {**body, "messages": messages, "system": blocks(body.get("system", []))}


def named(block: Body) -> str:
    """Return the type and ID of a search block."""
    return f"{block['type']} {block.get('id') or block.get('tool_use_id')}"


def message(
    say: Say,
    body: Body,
    id: str,
    usage: Body,
    size_of: Callable[[Body], int] = tokens.estimate_block,
    told: Sequence[tuple[str, Body]] | None = None,
) -> Body:
    """Return the whole reply, as the API answers without `stream`. A raw input that is not JSON
    becomes {}. Thinking is bound to the complete prompt `told`, by default that of the body.
    """
    content: list[Body] = [dict(block) for block in say.blocks]
    if say.thinking:
        before = [*(flat(body) if told is None else told)]
        before += (("assistant", b) for b in content)
        signature = sign(before, say.thinking, body["model"])
        block = {"type": "thinking", "thinking": say.thinking, "signature": signature}
        content.append(block)
    if say.text:
        content.append({"type": "text", "text": say.text})
    for place, (name, given) in enumerate(say.tools):
        call = {"type": "tool_use", "id": f"toolu_{id[4:]}_{place}", "name": name}
        content.append({**call, "input": given if isinstance(given, dict) else {}})
    output: Body = {"output_tokens": max(1, sum(map(size_of, content)))}
    found = [b for b in content if b["type"] == SEARCH_BLOCKS[1] and isinstance(b["content"], list)]
    if found:
        output["server_tool_use"] = {"web_search_requests": len(found), "web_fetch_requests": 0}
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": say.stop_reason or ("tool_use" if say.tools else "end_turn"),
        "stop_sequence": None,
        "usage": say.usage if say.usage is not None else {**usage, **output},
    }


def events(say: Say, whole: Body) -> Iterator[Body]:
    """Yield the events that stream a message."""
    usage = whole["usage"]
    empty = {"content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": {**whole, **empty}}
    yield {"type": "ping"}
    if say.noise:
        yield from NOISE
    raws = [given for _, given in say.tools]
    first = len(whole["content"]) - len(raws)
    for index, block in enumerate(whole["content"]):
        given = raws[index - first] if index >= first else None
        start, deltas = _pieces(block, given, say.deltas)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": usage}
    yield {"type": "message_stop"}


def data_of(event: Body | str) -> str:
    """Return the data of an event; unescaped, unless it cannot be encoded in UTF-8."""
    if isinstance(event, str):
        return event
    text = json.dumps(event, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(event)
    return text


def _pieces(block: Body, given: Body | str | None, count: int) -> tuple[Body, list[Body]]:
    """Return the start of a block, and the deltas that fill it."""
    if block["type"] == "text":
        cited = block.get("citations")
        start = {**block, "text": "", "citations": [] if cited else None}
        parts = _parts(block["text"], count)
        texts = [{"type": "text_delta", "text": part} for part in parts]
        return start, [
            *({"type": "citations_delta", "citation": each} for each in cited or ()),
            *texts,
        ]
    if block["type"] == "thinking":
        start = {**block, "thinking": "", "signature": ""}
        parts = _parts(block["thinking"], count)
        thoughts = [{"type": "thinking_delta", "thinking": part} for part in parts]
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return start, [*thoughts, signed]
    if block["type"] in ("tool_use", "server_tool_use") and (given is not None or "input" in block):
        raw = given if isinstance(given, str) else json.dumps(block["input"])
        parts = ["", *_parts(raw, count)]
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
        return {**block, "input": {}}, deltas
    return block, []


def _parts(text: str, count: int) -> list[str]:
    cuts = [len(text) * n // count for n in range(count + 1)]
    return [text[a:b] for a, b in pairwise(cuts) if b > a]


def sign(before: Sequence[tuple[str, Body]], thinking: str, model: str) -> str:
    """Return a model's signature over its thinking and the preceding context."""
    told = hashlib.sha256()
    for part in before:
        _tell(told, part)
    return _signature(told, thinking, model)


def _tell(told: "hashlib._Hash", part: tuple[str, Body]) -> None:
    told.update(json.dumps(part, sort_keys=True).encode() + b"\n")


def _signature(told: "hashlib._Hash", thinking: str, model: str) -> str:
    whole = told.copy()
    whole.update(json.dumps([thinking, model]).encode())
    return "sig" + whole.hexdigest()


def flat(body: Body) -> Iterator[tuple[str, Body]]:
    """Yield all parts of the prompt in order, without cache marks."""
    parts = [("system", b) for b in body.get("system", [])]
    parts += [("tools", b) for b in body.get("tools", [])]
    parts += [(m["role"], b) for m in body["messages"] for b in m["content"]]
    for role, block in parts:
        yield role, {k: v for k, v in block.items() if k != "cache_control"}


def uneven(spread: float) -> Callable[[Body], int]:
    """Return a tokenizer that differs from ours: our estimate of a block times a factor from 1 -
    `spread` / 2 to 1 + `spread` that depends on its content.
    """

    def size_of(block: Body) -> int:
        named = ("id", "tool_use_id", "signature", "is_error")  # without effect on the factor
        told = json.dumps({k: v for k, v in block.items() if k not in named}, sort_keys=True)
        place = zlib.crc32(told.encode()) / 2**32
        return 4 + round(tokens.estimate_block(block) * (1 - spread / 2 + 1.5 * spread * place))

    return size_of


def check_step(step: Step) -> None:
    """Raise Invalid for a block of a script that cannot be streamed."""
    for block in step.blocks if isinstance(step, Say) else ():
        kind = block.get("type")
        name = str(kind) if kind in ("text", "thinking") else "type"
        if not isinstance(block.get(name), str):
            raise Invalid(f"the script has a {kind} block whose {name} is no text: {block}")


def check_betas(headers: Mapping[str, str]) -> None:
    """Raise Invalid if a request that adds tools lacks the beta headers for it."""
    asked = headers.get("anthropic-beta", "").split(",")
    for name in ("mid-conversation-tool-changes-2026-07-01", "inline-tools-2026-09-15"):
        if name not in asked:
            raise Invalid(f"anthropic-beta: {name} is missing")


def check_bound(body: Body, told: Sequence[tuple[str, Body]] | None = None) -> None:
    """Raise Invalid if thinking is from another model, or the preceding context differs from the
    signed one: `told`, by default the prompt of the body. Thinking in messages that a compaction
    block replaces is not checked, because the request does not have it.
    """
    before, sent = hashlib.sha256(), [*flat(body)]
    for part in sent if told is None else told:
        _, block = part
        if block.get("type") == "thinking" and (
            block["signature"] != _signature(before, block["thinking"], body["model"])
            and part in sent
        ):
            raise Invalid(
                "Invalid `signature` in `thinking` block. The block is bound to a different "
                "conversation"
            )
        _tell(before, part)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    owner: Server

    def handle_error(self, request: Any, client_address: Any) -> None:
        if isinstance(sys.exc_info()[1], OSError):
            self.owner.hung_up.set()
        else:
            super().handle_error(request, client_address)


class _Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._count()
        path = self.path.split("?")[0]
        if path == "/v1/models" and self.server.owner.listed is not None:
            self._json(200, {"data": self.server.owner.listed})
            return
        if path in self.server.owner.own:
            self._json(200, self.server.owner.own[path])
            return
        id = unquote(path.removeprefix("/v1/models/"))
        known = self.server.owner.models.get(id)
        if known is None:
            self._fail(Fail(404, f"model: {id}"))
            return
        window, output = known
        self._json(200, {"type": "model", "id": id, "max_input_tokens": window,
                         "max_tokens": output, "display_name": id, "lifecycle": "active",
                         "created_at": "2026-01-01T00:00:00Z"})  # fmt: skip

    def do_POST(self) -> None:
        self._count()
        size = int(self.headers.get("content-length", 0))
        raw = self.rfile.read(size)
        headers = {k.lower(): v for k, v in self.headers.items()}
        refusal = self.server.owner.refusal(self.path.split("?")[0], headers)
        if size > LARGEST_BODY and refusal is None:
            refusal = Fail(413, "Request exceeds the maximum size")
        if refusal is not None:
            self._fail(refusal)
            return
        owner = self.server.owner
        try:
            body = json.loads(raw)
        except ValueError as error:
            self._fail(Fail(400, f"The request body is not valid JSON: {error}"))
            return
        step, id, usage = owner.answer(body, headers, raw)
        if isinstance(step, Fail):
            self._fail(step)
        elif step.fault == "mute":
            self._stand_still()
        elif step.fault == "hang up":
            self._reset()
        else:
            whole = owner.message(step, body, id, usage)
            owner.keep_searches(whole)
            if owner.streams(body):
                self._stream(step, whole)
            else:
                self._json(200, owner.whole(whole))

    def _count(self) -> None:
        self.server.owner.paths.append(self.path)
        self.server.owner.connections.add(self.client_address[1])

    def _fail(self, fail: Fail) -> None:
        kind = fail.kind or KINDS.get(fail.status, "api_error")
        error = self.server.owner.error(kind, fail.message)
        text = fail.body if fail.body is not None else json.dumps(error)
        self._send(fail.status, text, "application/json", fail.headers)

    def _json(self, status: int, body: Body) -> None:
        self._send(status, json.dumps(body), "application/json", {})

    def _send(self, status: int, text: str, kind: str, headers: Mapping[str, str]) -> None:
        data = text.encode()
        plain = {"content-type": kind, "content-length": str(len(data)), "request-id": "req_test"}
        self.send_response(status)
        for name, value in {**plain, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, say: Say, whole: Body) -> None:
        self.send_response(200)
        kind = {"content-type": "text/event-stream; charset=utf-8"}
        plain = {**kind, "transfer-encoding": "chunked", "request-id": "req_test"}
        for name, value in {**plain, **say.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        owner = self.server.owner
        listed: Sequence[Body | str] = list(owner.events(say, whole))
        if say.edit is not None:
            listed = say.edit([event for event in listed if isinstance(event, dict)])
        broken = say.fault is not None or say.error is not None
        count = len(listed) if not broken else len(listed) - 2 if say.after is None else say.after
        for event in listed[:count]:
            if say.noise:
                self._write(": a comment\r\n\r\n", say.pieces)
            added = owner.text_of(event) if isinstance(event, dict) else None
            with owner._flow:
                self._write(owner.framed(event), say.pieces)
                owner.said += added or ""
            if say.pace and added is not None:
                owner.stopping.wait(say.pace)
        if say.error is not None:
            self._write(owner.framed(owner.error(*say.error)), None)
        elif say.fault == "garbage":
            self._write('event: content_block_delta\ndata: {"type": "content_bl\n\n', None)
        elif say.fault in ("silence", "pings"):
            self._stand_still(pinging=say.fault == "pings")
            return
        elif say.fault == "cut":
            self.close_connection = True  # and no last chunk
            return
        elif say.fault == "reset":
            self._reset()
            return
        elif not broken and (last := owner.last()):
            self._write(last, say.pieces)
        self.wfile.write(b"0\r\n\r\n")

    def _write(self, text: str, pieces: int | None) -> None:
        data = text.encode(errors="surrogateescape")
        size = pieces or len(data)
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())

    def _stand_still(self, *, pinging: bool = False) -> None:
        """Wait without answering until the client disconnects or the server stops."""
        self.close_connection = True
        while not self.server.owner.stopping.is_set():
            if pinging:
                self._write('event: ping\ndata: {"type": "ping"}\n\n', None)
            readable, _, _ = select.select([self.connection], [], [], 0.02)
            if readable and not self.connection.recv(1):
                self.server.owner.hung_up.set()
                return
