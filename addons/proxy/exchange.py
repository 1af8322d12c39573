"""One request of a client: record it, edit it for the server, and record the reply."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import httpx2

from ...api.base import ModelError, PromptTooLong, dataclass
from ...api.models import (
    DEFAULT_PROVIDER,
    MAX_UNPACKED_BYTES,
    Fault,
    ServerHints,
    StreamError,
    classify_answer,
    host_of,
    parse_error,
    parse_events,
    providers,
)
from ...api.record import End
from .bodies.base import BodyFormat, Json, ServerReply, text_of
from .conversations import Conversations
from .forward import UPSTREAMS, Headers, Upstream, chunks_of, decoded, read_ahead
from .host import EngineQuestion
from .session import ProxySession

COMPACTION_TRIGGER = "compaction_trigger"  # type of codex's last item with OpenAI's API
# Contained in the last message.
PHRASES = (
    "create a detailed summary of the conversation so far",  # Claude Code, copilot
    "CONTEXT CHECKPOINT COMPACTION",  # codex
    "Create a handoff summary",  # Kimi Code
)


def asks_for_compaction(messages: Sequence[Json]) -> bool:
    """Return True if a client asks for a summary in place of its history."""
    if not messages:
        return False
    if messages[-1].get("type") == COMPACTION_TRIGGER:
        return True
    if messages[-1].get("role") != "user":
        return False
    text = text_of(messages[-1].get("content"))
    return any(phrase in text for phrase in PHRASES)


MAX_QUESTION_S = 300.0  # for the engine's request while the client waits
_HINTS = ServerHints("the address of the upstream", "the key of the client")


@dataclass(frozen=True, slots=True)
class Exchange:
    """A client's request and the bytes that are sent to the server."""

    format: BodyFormat
    body: Json  # sent by the client
    data: bytes  # to send to the server
    original: bytes  # sent by the client
    session: ProxySession | None = None  # None if the answer is not recorded
    is_edited: bool = False
    saved: int = 0  # tokens removed by edits
    turn: int = 0  # seq of the session's newest message, 0 for a repeated request


@dataclass
class Exchanges:
    """Handles the requests of all clients of one proxy."""

    conversations: Conversations
    upstream: Upstream

    async def prepare(
        self, format: BodyFormat, data: bytes, url: str, headers: Headers, agent: str
    ) -> Exchange:
        """Record a request, run the engine, and return the request for the server. Raises any
        exception for a request that is not understood.
        """
        body = json.loads(data)
        messages = format.messages(body)
        if messages is None:
            return Exchange(format, body, data, data)
        preamble = format.preamble(body)
        messages = messages[preamble.messages :]
        is_compaction = asks_for_compaction(messages)
        if is_compaction or not preamble.tools:
            known = self.conversations.closest(format, messages)
            if known and (is_compaction or known[0].host.view.tools):
                return self._aside(*known, body, data)
        model = model_id(format.model(body, url), format, url)
        client = {"protocol": format.name, "upstream": host_of(url), "agent": agent}
        while True:
            session = self.conversations.repeated(format, messages)
            session = session or await self.conversations.find(
                format, messages, preamble, model, client
            )
            if session is None or not session.lock.locked():
                break
            async with session.lock:  # wait: the other request may turn this one into a fork
                pass
        if session is None:
            return Exchange(format, body, data, data)
        if session.is_repeated_by(messages):
            exchange = self._aside(session, len(messages), body, data)
            return replace(exchange, session=session)
        async with session.lock, self.conversations.close_on_error(session):
            host = session.host
            is_words = session.take(messages, preamble, model)
            window = self.conversations.window_of(model)
            host.window_tokens = max(window // 2, window - format.output_room(body))
            host.is_cached = format.is_cached(body)
            host.ask = self._asking(session, body, url, headers)
            await session.decide(turn_start=is_words)
            sent, is_edited = _edited(session, body, data, len(messages))
            host.last_call = time.time()
            saved = session.saved_tokens() if is_edited else 0
            return Exchange(format, body, sent, data, session, is_edited, saved, session.newest)

    def preview(self, format: BodyFormat, data: bytes) -> Exchange:
        """Return a token-counting request with the conversation as the server would get it. Record
        nothing.
        """
        body = json.loads(data)
        messages = format.messages(body)
        if messages is not None:
            known = self.conversations.closest(format, messages[format.preamble(body).messages :])
            if known:
                return self._aside(*known, body, data)
        return Exchange(format, body, data, data)

    async def shorten(self, exchange: Exchange, refusal: PromptTooLong) -> Exchange | None:
        """Return a smaller form of a request that exceeds the window, None if it cannot be made
        smaller.
        """
        session = exchange.session
        if session is None or session.editing_stopped:
            return None
        async with session.lock:
            await session.shorten(refusal)
            data, is_edited = _edited(session, exchange.body, exchange.data, len(session.known))
            if len(data) >= len(exchange.data):
                return None
            turn = session.newest
            saved = session.saved_tokens()
        return replace(exchange, data=data, is_edited=is_edited, saved=saved, turn=turn)

    async def finish(self, exchange: Exchange, data: bytes, headers: Mapping[str, str]) -> None:
        """Record the reply to a request. Raises ValueError for an answer without a reply."""
        session = exchange.session
        if session is None:
            return
        data = await decoded(data, headers)
        reply = await read_reply(exchange.format, exchange.body, data, headers)
        async with session.lock:
            is_newest = session.newest == exchange.turn
            session.finish(reply, exchange.saved, is_newest=is_newest)
            if reply.stop_reason != "tool_use":
                session.host.record(End(status="ok"))
                session.host.log.sync_all()

    def _aside(self, session: ProxySession, count: int, body: Json, data: bytes) -> Exchange:
        """Return a request outside of the main line, with the session's edits applied to its first
        `count` messages, which the server has in its cache.
        """
        sent, is_edited = _edited(session, body, data, count)
        return Exchange(session.format, body, sent, data, is_edited=is_edited)

    def _asking(self, session: ProxySession, body: Json, url: str, headers: Headers) -> Any:
        """Return a function that asks the client's model with the client's key."""
        format = session.format

        async def ask(question: EngineQuestion) -> ServerReply:
            if question.texts:
                asked = format.with_only_texts(body, question.texts, question.max_tokens)
            else:
                count = len(format.messages(body) or ()) - (skip := format.preamble(body).messages)
                sent = format.edited(body, session.edits(count), skip)
                asked = format.with_question(sent, question.asked)
            try:
                async with asyncio.timeout(MAX_QUESTION_S):
                    answer = await self.upstream.send("POST", url, headers, dumps(asked))
                    data, rest = await read_ahead(chunks_of(answer), MAX_UNPACKED_BYTES)
                    if rest is not None:
                        await answer.aclose()
                        raise ValueError(f"an answer of more than {MAX_UNPACKED_BYTES >> 20} MB")
                    data = await decoded(data, answer.headers)
            except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, TimeoutError) as error:
                raise ModelError(f"no answer: {error!r}") from error
            if answer.status_code >= 300:
                model = format.model(body, url)
                raise refusal_of(answer.status_code, data, model, answer.headers)
            try:
                return await read_reply(format, asked, data, answer.headers)
            except (StreamError, ValueError) as error:
                raise ModelError(f"the answer is not a reply: {error}") from error

        return ask


def model_id(name: str, format: BodyFormat, url: str) -> str:
    """Return the model's ID with the provider that serves this URL."""
    place = urlsplit(url).netloc
    rows = (row for row in providers().values() if row.address)
    found = (row.name for row in rows if urlsplit(row.address).netloc == place)
    provider = next(found, UPSTREAMS[format.upstream].provider)
    return name if provider == DEFAULT_PROVIDER else f"{provider}/{name}"


def dumps(body: Json) -> bytes:
    """Return a body as bytes, keeping the order of its fields."""
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # lone surrogates: not UTF-8, but JSON can escape them
        return json.dumps(body, separators=(",", ":")).encode()


async def read_reply(
    format: BodyFormat, body: Json, data: bytes, headers: Mapping[str, str]
) -> ServerReply:
    """Return the reply in an answer. Raises ValueError if there is none."""
    draft = format.draft(body)
    if "text/event-stream" in headers.get("content-type", ""):

        async def chunks() -> AsyncIterator[bytes]:
            yield data + b"\n\n"

        async with aclosing(parse_events(chunks())) as events:
            async for event in events:
                for _ in draft.take(event):
                    pass
    else:
        answer = json.loads(data)
        # An array has the events of a stream that is not in server-sent events.
        events_of = draft.take if isinstance(answer, list) else draft.take_unstreamed
        for each in answer if isinstance(answer, list) else [answer]:
            for _ in events_of(each):
                pass
    if not draft.complete:
        raise ValueError("the reply is incomplete")
    return format.reply(draft)


def _edited(session: ProxySession, body: Json, data: bytes, upto: int) -> tuple[bytes, bool]:
    """Return a body with the session's edits applied to its first `upto` messages, and True if
    there are edits.
    """
    edits = session.edits(upto)
    if not edits:
        return data, False
    format = session.format
    return dumps(format.edited(body, edits, format.preamble(body).messages)), True


def refusal_of(status: int, data: bytes, model: str, headers: Mapping[str, str]) -> ModelError:
    """Return the error in an error answer."""
    words, kind = data.decode(errors="replace"), ""
    with suppress(ValueError):
        kind, words = parse_error(json.loads(data)) or ("", words)
    found = classify_answer(status, words, kind=kind, model=model, headers=headers, hints=_HINTS)
    return ModelError(found.reason, status=status) if isinstance(found, Fault) else found
