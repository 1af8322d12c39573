"""Chat Completions as a wire protocol, no more of it than a session needs: a module with the
functions of `models.base.Provider` and a row in `models.factory` are all that a protocol takes.

    python -c "from ctxagent.tests.support.chat_protocol import main; main()" -p "..."
"""

import asyncio
import hashlib
import json
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ctxagent.agent.config.settings import ModelSettings, ServerName
from ctxagent.agent.context.request import Request
from ctxagent.agent.errors import ModelUnavailable, UsageError
from ctxagent.agent.events import Accepted, Delta, TextDelta
from ctxagent.agent.models.base import Abilities, Model, Reply, ServerAnswer, abilities_of
from ctxagent.agent.models.catalog import Limits, known_model
from ctxagent.agent.models.factory import PROTOCOLS, WireProtocol
from ctxagent.agent.models.refusals import ServerHints, classify_answer
from ctxagent.agent.models.sse import parse_arguments
from ctxagent.agent.session.entries import Block, Usage

NAME = "chat"
ADDRESS_VAR = "CHAT_BASE_URL"
HINTS = ServerHints(ADDRESS_VAR, "CHAT_API_KEY")
STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def main() -> None:
    """Run the command with this protocol in its table."""
    from ctxagent.agent.cli.main import main

    PROTOCOLS[NAME] = WireProtocol(lambda: sys.modules[__name__], address=ADDRESS_VAR)
    main()


class ChatModel:
    """A model behind Chat Completions. See `models.base.Model`."""

    def __init__(self, id: str, url: str) -> None:
        self.id, self.url = id, url

    @property
    def abilities(self) -> Abilities:
        return replace(abilities_of(self.id), images=False)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        parameters = {"model": request.model, "max_tokens": request.max_tokens}
        data = encode(request, parameters)
        digest = hashlib.sha256(data).hexdigest()
        sent = {"protocol": NAME, "parameters": parameters, "sha256": digest}
        answer = await asyncio.to_thread(self.post, data)
        used = answer["usage"]
        yield Accepted(Usage(input=used["prompt_tokens"]).to_json(), sent)
        choice = answer["choices"][0]
        if text := choice["message"].get("content"):
            yield TextDelta(text)
        broken: dict[str, str] = {}
        content = [*reply_blocks(choice["message"], broken)]
        reason = STOP_REASONS[choice["finish_reason"]]
        usage = Usage(input=used["prompt_tokens"], output=used["completion_tokens"])
        yield Reply(content, reason, usage, self.id, answer["id"], broken, sent)

    def post(self, data: bytes) -> Any:
        headers = {"content-type": "application/json"}
        asked = urllib.request.Request(f"{self.url}/v1/chat/completions", data, headers)
        try:
            with urllib.request.urlopen(asked) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            words = error.read().decode()
            found = classify_answer(
                error.code, words, model=self.id, headers=dict(error.headers), hints=HINTS
            )
            raise found from error
        except OSError as error:
            raise ModelUnavailable(f"no connection: {error}") from error

    def assumed_limits(self) -> Limits:
        row = known_model(self.id)
        assert row is not None
        return row.limits

    async def limits(self) -> Limits:
        return self.assumed_limits()

    async def close(self) -> None:
        pass


def encode(request: Request, parameters: Mapping[str, Any]) -> bytes:
    """Return the bytes of a request in this protocol."""
    body = {**parameters, "messages": [*messages_of(request)]}
    if request.tools:
        body["tools"] = [{"type": "function", "function": function_of(t)} for t in request.tools]
    return json.dumps(body, sort_keys=True).encode()


def function_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    named = {"name": tool["name"], "description": tool["description"]}
    return {**named, "parameters": tool["input_schema"]}


def messages_of(request: Request) -> Iterator[dict[str, Any]]:
    """Yield the messages of a request: results are messages of their own, marks are left out."""
    if request.system:
        yield {"role": "system", "content": text_of(request.system)}
    for message in request.messages:
        blocks = message["content"]
        if message["role"] == "user":
            for block in blocks:
                if block["type"] == "tool_result":
                    said = block["content"]
                    said = said if isinstance(said, str) else text_of(said)
                    yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": said}
            if text := text_of(blocks):
                yield {"role": "user", "content": text}
            continue
        said = {"role": "assistant", "content": text_of(blocks)}
        calls = [call_of(block) for block in blocks if block["type"] == "tool_use"]
        yield {**said, "tool_calls": calls} if calls else said


def call_of(block: Block) -> dict[str, Any]:
    function = {"name": block["name"], "arguments": json.dumps(block["input"])}
    return {"type": "function", "id": block["id"], "function": function}


def text_of(blocks: list[Block]) -> str:
    return "\n\n".join(block["text"] for block in blocks if block["type"] == "text")


def reply_blocks(message: Mapping[str, Any], broken: dict[str, str]) -> Iterator[Block]:
    """Yield the blocks of a reply; note arguments that are no JSON object in `broken`."""
    if message.get("content"):
        yield {"type": "text", "text": message["content"]}
    for call in message.get("tool_calls") or ():
        raw = call["function"]["arguments"]
        given = parse_arguments(raw)
        if given is None:
            broken[call["id"]] = raw
        name = call["function"]["name"]
        yield {"type": "tool_use", "id": call["id"], "name": name, "input": given or {}}


def make(chosen: ModelSettings, environ: Mapping[str, str], state: Path) -> Model:
    return ChatModel(chosen.id, chosen.base_url or environ[ADDRESS_VAR])


def find_key(environ: Mapping[str, str]) -> str:
    return ""


def environment(server: ServerName | None, environ: Mapping[str, str]) -> Mapping[str, str]:
    return environ


def start_import() -> None:
    pass


def rebuild(request: Request, sent: Mapping[str, Any]) -> bytes:
    return encode(request, sent["parameters"])


async def check_server(model: Model) -> AsyncIterator[ServerAnswer]:
    raise UsageError("a server of this protocol is not asked")
    yield
