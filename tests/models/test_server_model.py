"""The common parts of models behind servers, tested with a minimal protocol."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ctxagent.agent.context.request import Request
from ctxagent.agent.errors import ModelUnavailable, PromptTooLong, RequestRejected
from ctxagent.agent.events import Accepted, Delta, TextDelta
from ctxagent.agent.models.base import Reply
from ctxagent.agent.models.gaps import NO_IMAGES_GAP, ServerGaps
from ctxagent.agent.models.providers import endpoint_of
from ctxagent.agent.models.refusals import ServerHints
from ctxagent.agent.models.retry import RetryPolicy
from ctxagent.agent.models.server_model import ServerAccess, ServerModel
from ctxagent.agent.models.transport import HttpTransport
from ctxagent.agent.models.wire import StreamError, Wire
from ctxagent.agent.session.entries import Usage

from .test_transport import server

QUICK = RetryPolicy(attempts=2, first_wait=0.001, longest_wait=0.001)


class TextDraft:
    """A reply that joins the texts of its events."""

    def __init__(self, request: Request) -> None:
        self.texts: list[str] = []
        self.stopped, self.model = False, request.model
        self.sent: Mapping[str, Any] = {}

    @property
    def began(self) -> bool:
        return bool(self.texts)

    @property
    def complete(self) -> bool:
        return self.stopped

    def take(self, event: dict[str, Any]) -> Iterator[Delta]:
        if event.get("failed"):
            raise StreamError(event["failed"], "it failed")
        if not self.texts:
            yield Accepted({}, self.sent)
        self.texts.append(event["text"])
        self.stopped = event.get("end", False)
        yield TextDelta(event["text"])

    def take_unstreamed(self, answer: dict[str, Any]) -> Iterator[Delta]:
        return self.take({**answer, "end": True})

    def reply(self) -> Reply:
        content = [{"type": "text", "text": "".join(self.texts)}]
        return Reply(content, "end_turn", Usage(), self.model, sent=self.sent)


WIRE = Wire(
    "texts",
    "texts",
    "/texts",
    "/models",
    {"images": NO_IMAGES_GAP},
    lambda request: {"model": request.model},
    lambda request, given: {**given, "messages": request.messages},
    TextDraft,
)


def model_at(url: str, **options: Any) -> ServerModel:
    environ = {"OPENAI_API_KEY": "secret-key-1"}
    endpoint = endpoint_of("openai/walrus", url, environ)
    access = ServerAccess(
        endpoint,
        HttpTransport(endpoint, environ),
        ServerHints("OPENAI_BASE_URL", "OPENAI_API_KEY"),
        ("secret-key-1",),
    )
    gaps = ServerGaps(None, url, "openai/walrus", WIRE.gaps)
    return ServerModel("openai/walrus", WIRE, access, gaps, retry=QUICK, **options)


def ask(model: ServerModel) -> list[Any]:
    async def gather() -> list[Any]:
        words = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
        try:
            return [d async for d in model.stream(Request(model.id, [], [], words, 100))]
        finally:
            await model.close()

    return asyncio.run(gather())


def events(*texts: str) -> bytes:
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def test_what_another_conversation_has_learned_meanwhile_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both conversations were refused for the same reason; the first one learned the gap."""
    model, asked = model_at("http://127.0.0.1:9"), list[Any]()

    async def send(request: Request, gaps: tuple[str, ...]) -> Any:
        asked.append(gaps)
        if len(asked) == 1:
            model.gaps.add("images")
            raise RequestRejected("no", status=400)
        yield Reply([{"type": "text", "text": "hello"}], "end_turn", Usage(), model.id)

    monkeypatch.setattr(model, "send", send)
    (reply,) = ask(model)
    assert reply.content[0]["text"] == "hello"
    assert asked == [(), ("images",)]


STREAM = {"content-type": "text/event-stream"}


def test_a_stream_becomes_a_reply() -> None:
    body = events('{"text": "he"}', '{"text": "llo", "end": true}', "[DONE]", "no JSON")
    with server(200, body, **STREAM) as (url, _):
        *deltas, reply = ask(model_at(url))
    assert [d.text for d in deltas if isinstance(d, TextDelta)] == ["he", "llo"]
    assert reply.content == [{"type": "text", "text": "hello"}]
    assert reply.sent["protocol"] == "texts"
    assert reply.sent["parameters"] == {"model": "openai/walrus"}


def test_an_answer_that_is_not_streamed_is_a_reply_too() -> None:
    with server(200, {"text": "hello"}, **{"content-type": "application/json"}) as (url, _):
        reply = ask(model_at(url))[-1]
    assert reply.content == [{"type": "text", "text": "hello"}]


def test_an_answer_that_is_something_else_is_refused() -> None:
    with (
        server(200, b"<html>", **{"content-type": "text/html"}) as (url, _),
        pytest.raises(
            RequestRejected, match=r"answered with text/html.*this is not a texts server"
        ) as e,
    ):
        ask(model_at(url))
    assert "OPENAI_BASE_URL" in e.value.hint


@pytest.mark.parametrize(
    ("body", "kind", "what"),
    [
        (b'{"text"', "application/json", "broken JSON"),
        (b"data: {}", "", "no content type"),
    ],
)
def test_an_unexpected_answer_is_described(body: bytes, kind: str, what: str) -> None:
    with (
        server(200, body, **{"content-type": kind}) as (url, _),
        pytest.raises(RequestRejected, match=f"answered with {what}, not with a stream"),
    ):
        ask(model_at(url))


def test_where_a_redirect_leads_is_told_without_what_may_be_secret() -> None:
    to = "https://me:pass-word-1@other.example/v1/chat?token=abc"
    with server(307, b"", location=to) as (url, _), pytest.raises(RequestRejected) as e:
        ask(model_at(url))
    assert e.value.message == (
        "the server redirects to another address (307): https://…@other.example/v1/chat"
    )


def test_an_address_without_its_version_is_told_of() -> None:
    page = b"<html><head><title>404</title><style>a{}</style></head><h1>Not &amp; Found</h1></html>"
    with (
        server(404, page, **{"content-type": "text/html"}) as (url, _),
        pytest.raises(RequestRejected) as e,
    ):
        ask(model_at(url))
    assert e.value.message == "not found (404): 404 Not & Found"
    assert e.value.hint.endswith("OPENAI_BASE_URL, if set, ends with the version, such as /v1.")


@pytest.mark.parametrize(
    "words",
    [
        "registry.ollama.ai/library/gemma:2b does not support tools",
        "No endpoints found that support tool use. To learn more about provider routing, visit",
    ],
)
def test_a_model_without_tools_is_told_of(words: str) -> None:
    with server(400, {"error": words}) as (url, _), pytest.raises(RequestRejected) as e:
        ask(model_at(url))
    assert e.value.hint == "Use a model that calls tools: --model ID."


@pytest.mark.parametrize(
    "event",
    ['{"error": {"message": "busy", "code": "server_error"}}', '{"failed": "server_error"}'],
)
def test_an_error_in_mid_stream_is_tried_again(event: str) -> None:
    with server(200, events('{"text": "a"}', event), **STREAM) as (url, asked):
        with pytest.raises(ModelUnavailable, match="the server failed"):
            ask(model_at(url))
        assert len(asked) == 2


def test_a_stream_that_ends_early_is_tried_again() -> None:
    with server(200, events('{"text": "a"}'), **STREAM) as (url, asked):
        with pytest.raises(ModelUnavailable, match="ended before the reply was finished"):
            ask(model_at(url))
        assert len(asked) == 2


def test_an_empty_account_is_not_asked_again() -> None:
    body = {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}
    with server(429, body) as (url, asked):
        with pytest.raises(RequestRejected, match="cannot pay for this"):
            ask(model_at(url))
        assert len(asked) == 1


def test_a_key_that_a_server_repeats_is_not_shown() -> None:
    body = {"error": {"message": "Incorrect API key: secret-key-1"}}
    with server(401, body) as (url, _), pytest.raises(RequestRejected) as caught:
        ask(model_at(url))
    assert "secret-key-1" not in str(caught.value)
    assert "Check OPENAI_API_KEY" in caught.value.hint


@pytest.mark.parametrize(
    ("words", "code", "figures"),
    [
        ("This model's maximum context length is 8192 tokens. However, your messages resulted in "
         "9000 tokens.", None, (9_000, 8_192)),
        ("Your input is too big", "context_length_exceeded", (None, None)),
        ("Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum "
         "context length", None, (40_000, 32_768)),
        ("This model's maximum prompt length is 131072 but the request contains 199000 tokens.",
         None, (199_000, 131_072)),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
         None, (1_200_000, 1_048_576)),
    ],
)  # fmt: skip
def test_a_prompt_that_is_too_long_is_known(
    words: str, code: str | None, figures: tuple[int | None, int | None]
) -> None:
    body = {"error": {"message": words, "code": code}}
    with server(400, body) as (url, _), pytest.raises(PromptTooLong) as caught:
        ask(model_at(url))
    assert (caught.value.tokens, caught.value.maximum) == figures


def test_the_window_is_the_one_that_the_server_tells() -> None:
    rows = {"data": [{"id": "walrus", "max_model_len": 32_000}, {"id": "other"}]}

    async def limits(model: ServerModel) -> int:
        try:
            return (await model.limits()).window
        finally:
            await model.close()

    with server(200, rows) as (url, _):
        assert asyncio.run(limits(model_at(url))) == 32_000
        assert asyncio.run(limits(model_at(url, context_window=9_000))) == 9_000
