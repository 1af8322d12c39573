"""Test which features a model's server supports, with a few small requests.

Each request uses one feature, and omits all others that servers may lack. The results are stored,
so that sessions do not send requests that the server would refuse.
"""

import base64
import zlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from ..context.items import COMPACTION, compaction_in
from ..context.request import Request
from ..errors import ModelError, RequestRejected
from ..lazy import dataclass
from ..session.entries import Block
from .base import FeatureTestResult, Reply, text_of
from .catalog import known_model
from .chat_templates import ask_template, template_advice, written_form
from .gaps import IMAGES
from .http_client import Timeouts
from .retry import RetryPolicy
from .server_model import MAX_WHY_CHARS, ServerModel

MAX_REPLY_TOKENS = 512
TRIAL_TIMEOUT_S = 60.0  # for the first byte; a local server may load the model first
TOOL_CALLS = "tool calls"
_TOOL = {
    "name": "ping",
    "description": "Answers with a word.",
    "input_schema": {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
    },
}
_CALL = {"type": "tool_use", "id": "call_1", "name": "ping", "input": {"word": "walrus"}}
_RESULT = {"type": "tool_result", "tool_use_id": "call_1", "content": "walrus"}


@dataclass(frozen=True, slots=True)
class _Probe:
    what: str
    content: Sequence[Block]
    gap: str = ""  # gap to record if the request is refused
    tools: Sequence[dict[str, Any]] = ()
    before: Sequence[dict[str, Any]] = ()  # earlier messages


async def check_server(model: ServerModel) -> AsyncGenerator[FeatureTestResult]:
    """Yield the result of each test. Raises NoCredentials."""
    first: Reply | None = None
    table = model.wire.gaps
    probes = [probe for probe in _probes() if not probe.gap or probe.gap in table]
    for probe in probes:
        request = _request(model, probe)
        # Cache marks require text in blocks.
        wanted = {probe.gap, IMAGES, *({"blocks"} if probe.gap == "cache" else ())}
        gaps = [name for name in table if name not in wanted]
        content = model.wire.fitted_body(request, gaps)
        without = model.wire.fitted_body(request, (*gaps, probe.gap))
        if probe.gap not in ("", IMAGES) and without == content:
            yield FeatureTestResult(probe.what, "not tested for this model")
            continue
        try:
            reply = await _ask(model, request, gaps)
        except RequestRejected as refusal:
            why = refusal.message[:MAX_WHY_CHARS]
            if first is None:
                yield FeatureTestResult("answers", why, ok=False)
                return
            if probe.gap:
                model.gaps.add(probe.gap)
            yield FeatureTestResult(probe.what, f"not supported: {why}", note=True)
            continue
        except ModelError as error:
            yield FeatureTestResult(probe.what, error.message, ok=first is not None, note=True)
            if first is None:
                return
            continue
        if probe.gap and _is_met(probe, reply):
            model.gaps.drop(probe.gap)
            if probe.gap == COMPACTION:
                model.gaps.mark_supported(COMPACTION)
        elif probe.gap:
            model.gaps.add(probe.gap)
        yield FeatureTestResult(probe.what, _outcome(probe, reply), note=not _is_met(probe, reply))
        if probe.what == TOOL_CALLS and not _is_met(probe, reply) and model.is_local:
            yield await _template_finding(model, reply)
        if first is None:
            first = reply
            usage = f"{reply.usage.prompt:,} tokens in, {reply.usage.output:,} out"
            counted = reply.usage.prompt > 0
            yield FeatureTestResult(
                "usage",
                usage if counted else "not reported: token counts are estimates",
                note=not counted,
            )
            reason = str(reply.stop_reason)
            yield FeatureTestResult(
                "stop reason", reason, note=reason not in ("end_turn", "max_tokens")
            )
    limits = await model.limits()
    known = limits.source != "default"
    window = f"{limits.window:,} tokens ({limits.source})"
    yield FeatureTestResult(
        "window", window if known else f"{window}: set model.context_window", note=not known
    )


async def _template_finding(model: ServerModel, reply: Reply) -> FeatureTestResult:
    """Return what to do about a model on a local server that made no call."""
    transport = model.access.transport
    await transport.connect()
    report = await ask_template(
        transport.get_local, transport.post_local, model.access.endpoint.name
    )
    form = written_form(text_of(reply.content), str(_TOOL["name"]))
    return FeatureTestResult("chat template", template_advice(report, form), note=True)


async def try_model(model: ServerModel) -> None:
    """Send one small request without retries. Raises ModelError."""
    model.retry = RetryPolicy(attempts=1)
    model.timeouts = Timeouts(first_byte=TRIAL_TIMEOUT_S)
    async with aclosing(model.stream(_request(model, _probes()[0]))) as stream:
        async for _ in stream:
            pass


def _probes() -> list[_Probe]:
    say = _text("Answer with the word walrus alone.")
    image = {"type": "base64", "media_type": "image/png", "data": _png()}
    call = [{"role": "assistant", "content": [_CALL]}]
    asked = [{"role": "user", "content": [_text("Call ping.")]}]
    return [
        _Probe("answers", [say]),
        _Probe("text blocks", [say], "blocks"),
        _Probe("cache_control", [say], "cache"),
        _Probe("thinking", [say], "thinking"),
        _Probe("output_config", [say], "effort"),
        _Probe("images", [say, {"type": "image", "source": image}], IMAGES),
        _Probe("server-side summaries", [say], COMPACTION),
        _Probe(TOOL_CALLS, [_text("Call ping with the word walrus.")], tools=[_TOOL]),
        _Probe("tool results", [_RESULT], tools=[_TOOL], before=[*asked, *call]),
    ]


def _request(model: ServerModel, probe: _Probe) -> Request:
    message: dict[str, Any] = {"role": "user", "content": [*probe.content]}
    if probe.gap == "cache":
        message["content"] = [{**probe.content[0], "cache_control": {"type": "ephemeral"}}]
    row = known_model(model.id)
    compacts = probe.gap == COMPACTION and row is not None and row.compaction
    return Request(
        model.id,
        [],
        [*probe.tools],
        [*probe.before, message],
        MAX_REPLY_TOKENS,
        effort="low" if probe.gap == "effort" else None,
        compaction="Say in a word what was asked." if compacts else None,
        thinking=probe.gap == "thinking",
    )


async def _ask(model: ServerModel, request: Request, gaps: Sequence[str]) -> Reply:
    async with aclosing(model.send(request, gaps)) as stream:
        async for delta in stream:
            if isinstance(delta, Reply):
                return delta
    raise ModelError("the stream ended without a reply")


def _is_met(probe: _Probe, reply: Reply) -> bool:
    if probe.gap == COMPACTION:
        return compaction_in(reply.content) is not None
    called = any(block.get("type") == "tool_use" for block in reply.content)
    return called if probe.what == TOOL_CALLS else True


def _outcome(probe: _Probe, reply: Reply) -> str:
    if _is_met(probe, reply):
        return "supported"
    made = "makes none" if probe.gap == COMPACTION else "did not call one"
    return f"supported, but this model {made}"


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _png() -> str:
    """Return a black PNG image of 16 x 16 pixels in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data).to_bytes(4, "big")
        return len(data).to_bytes(4, "big") + kind + data + checksum

    size = (16).to_bytes(4, "big")
    header = chunk(b"IHDR", size + size + b"\1\0\0\0\0")
    data = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(3 * 16)))
    return base64.b64encode(data + chunk(b"IEND", b"")).decode()
