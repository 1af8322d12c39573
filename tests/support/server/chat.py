"""A strict Chat Completions server on the loopback interface, with the steps of `loopback`.

`requests` has the requests converted to the Messages API, so that scripts work over each protocol;
`bodies` has them as received. A `dialect` describes one kind of server.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .chat_rules import check_chat, in_blocks
from .loopback import Body, Fail, Say, Server, Step, _parts
from .validator import Invalid

_REASONS = {"tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """Differences of a server from others."""

    reasoning: str = "reasoning_content"  # field with the thinking
    numbers_calls: bool = True  # calls have an `index`; else they come whole, ended by `stop`
    streams: bool = True
    wants_reasoning: bool = False  # requires the reasoning back with every call
    takes_reasoning: bool = True  # accepts the reasoning back
    id_length: int = 0  # length of call IDs, which are alphanumeric; 0 for any
    takes_options: bool = True  # accepts `stream_options`
    length: str = "max_tokens"  # parameter that limits a reply
    signs: bool = False  # signs the first call of a reply, and requires the signature back


DIALECTS = {
    "openai": Dialect(length="max_completion_tokens"),
    "deepseek": Dialect(wants_reasoning=True),
    "gemini": Dialect("", numbers_calls=False, signs=True),
    "mistral": Dialect("", id_length=9, takes_options=False),
    "groq": Dialect("reasoning", takes_reasoning=False),
    "plain": Dialect("", streams=False, takes_options=False),
}


class ChatServer(Server):
    protocol, model = "chat", "openai/gpt-5.5"
    address_variable, address_end = "OPENAI_BASE_URL", "/v1"
    key_variable = "OPENAI_API_KEY"

    def __init__(self, steps: Any, *, dialect: str = "deepseek", **options: Any) -> None:
        super().__init__(steps, **options)
        self.dialect = DIALECTS[dialect]
        self.bodies: list[Body] = []
        self.refused: list[str] = []  # refusals by the dialect

    def refusal(self, path: str, headers: Mapping[str, str]) -> Fail | None:
        if path != "/v1/chat/completions":
            return Fail(404, f"no such path: {path}")
        has_key = headers.get("authorization", "").startswith("Bearer ")
        return None if has_key else Fail(401, "Missing bearer authentication in header")

    def answer(self, body: Body, headers: dict[str, str], raw: bytes) -> tuple[Step, str, Body]:
        self.bodies.append(body)
        if words := self._refused(body):
            self.refused.append(words)
            return Fail(400, words), "", {}
        try:
            check_chat(body)
        except Invalid as error:
            self.rejected.append((str(error), body))
            return Fail(400, str(error)), "", {}
        return super().answer(in_blocks(body), headers, raw)

    def _refused(self, body: Body) -> str:
        """Return the error of this dialect for a request that other servers accept; "" for none."""
        takes = self.dialect
        if "stream_options" in body and not takes.takes_options:
            return "Unrecognized request argument supplied: stream_options"
        if "max_tokens" in body and takes.length != "max_tokens":
            return (
                "Unsupported parameter: 'max_tokens' is not supported with this model. "
                "Use 'max_completion_tokens' instead."
            )
        for place, message in enumerate(body["messages"]):
            calls = message.get("tool_calls", [])
            if not takes.takes_reasoning and "reasoning" in message:
                return f"messages.{place}: property 'reasoning' is unsupported"
            if takes.wants_reasoning and calls and not message.get("reasoning_content"):
                return f"Missing reasoning_content field in the assistant message at index {place}"
            if takes.signs and calls and "extra_content" not in calls[0]:
                return "Function call is missing a thought_signature in functionCall parts."
            odd = [c["id"] for c in calls if not (len(c["id"]) == 9 and c["id"].isalnum())]
            if takes.id_length and odd:
                return f"Tool call id was {odd[0]} but must be a-z, A-Z, 0-9, with a length of 9."
        return ""

    def _usage(self, body: Body) -> Body:
        """Return the usage: prefixes are cached without marks, and writing them costs nothing
        extra.
        """
        usage = super()._usage({**body, "metadata": "cache_control"})
        written = usage["cache_creation_input_tokens"]
        return {**usage, "input_tokens": written, "cache_creation_input_tokens": 0}

    def message(self, step: Say, body: Body, id: str, usage: Body) -> Body:
        whole = super().message(step, in_blocks(body), id, usage)
        if length := self.dialect.id_length:
            for block in whole["content"]:
                if block["type"] == "tool_use":
                    block["id"] = hashlib.sha256(block["id"].encode()).hexdigest()[:length]
        return whole

    def streams(self, body: Body) -> bool:
        return self.dialect.streams and super().streams(body)

    def whole(self, whole: Body) -> Body:
        delta = self._delta(whole)
        choice = {"index": 0, "message": delta, "finish_reason": self._reason(whole)}
        return {"id": whole["id"], "choices": [choice], "usage": _usage_of(whole)}

    def events(self, say: Say, whole: Body) -> Iterator[Body]:
        def chunk(delta: Body, reason: str | None = None) -> Body:
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            head = {"id": whole["id"], "object": "chat.completion.chunk", "model": whole["model"]}
            return {**head, "choices": [choice], "usage": None}

        delta = self._delta(whole, [given for _, given in say.tools])
        yield chunk({"role": "assistant", "content": ""})
        for name in (self.dialect.reasoning, "content"):
            for part in _parts(delta.get(name) or "", say.deltas):
                yield chunk({name: part})
        for index, call in enumerate(delta.get("tool_calls", ())):
            if not self.dialect.numbers_calls:
                yield chunk({"tool_calls": [call]})
                continue
            function = call["function"]
            begun = {**call, "index": index, "function": {**function, "arguments": ""}}
            yield chunk({"tool_calls": [begun]})
            for part in _parts(function["arguments"], say.deltas):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
        yield chunk({}, self._reason(whole))
        yield {"id": whole["id"], "choices": [], "usage": _usage_of(whole)}

    def _reason(self, whole: Body) -> str:
        reason = _REASONS.get(whole["stop_reason"], "stop")
        return "stop" if reason == "tool_calls" and not self.dialect.numbers_calls else reason

    def _delta(self, whole: Body, raws: list[Body | str] | None = None) -> Body:
        """Return a message, with the raw arguments of its calls if given."""
        out: Body = {"role": "assistant", "content": None}
        calls: list[Body] = []
        for block in whole["content"]:
            if block["type"] == "text":
                out["content"] = (out["content"] or "") + block["text"]
            elif block["type"] == "thinking" and self.dialect.reasoning:
                out[self.dialect.reasoning] = block["thinking"]
            elif block["type"] == "tool_use":
                given = raws[len(calls)] if raws else block["input"]
                raw = given if isinstance(given, str) else json.dumps(given)
                function = {"name": block["name"], "arguments": raw}
                call = {"id": block["id"], "type": "function", "function": function}
                if self.dialect.signs and not calls:
                    call["extra_content"] = {"google": {"thought_signature": f"sig-{block['id']}"}}
                calls.append(call)
        return {**out, "tool_calls": calls} if calls else out

    def framed(self, event: Body | str) -> str:
        return f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n"

    def text_of(self, event: Body) -> str | None:
        choices = event.get("choices") or [{"delta": {}}]
        delta = choices[0]["delta"]
        return str(delta.get("content") or "") if delta else None

    def error(self, kind: str, words: str) -> Body:
        return {"error": {"message": words, "type": kind, "param": None, "code": None}}

    def last(self) -> str:
        return "data: [DONE]\n\n"


def _usage_of(whole: Body) -> Body:
    usage = {"output_tokens": 0, "cache_read_input_tokens": 0, **whole["usage"]}
    prompt, read = usage.get("input_tokens"), usage["cache_read_input_tokens"]
    counts = {"prompt_tokens": prompt, "completion_tokens": usage["output_tokens"]}
    if type(prompt) is int and type(read) is int:
        counts["prompt_tokens"] = prompt + read
    return {**counts, "prompt_tokens_details": {"cached_tokens": read}}
