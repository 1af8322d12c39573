"""The scripted model and its servers, one for each protocol of the clients.

The servers are the strict ones of the tests, and the script is that of `benchmarks/peers`. Requests
of real clients are first normalized to the form the strict server accepts, so that only rules that
apply to every client are checked.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scripted import SUMMARY, Script, Scripted, asks_for_summary, common

from ctxagent.agent.compaction.summary.request import is_summary_question
from ctxagent.tests.support.server.chat import ChatServer
from ctxagent.tests.support.server.gemini import GeminiServer
from ctxagent.tests.support.server.loopback import Body, Fail, Say, Server, Step
from ctxagent.tests.support.server.responses import ENCRYPTED, ResponsesServer

EMPTY = "(empty)"
ROOM = 32_000  # maximum tokens of a reply for clients that set no limit
OURS, OF_CLIENT, QUESTION = "of the proxy", "of the client", "question"
TITLE = json.dumps({"title": "Scripted"})


@dataclass(slots=True)
class Model(Script):
    """Player of the script's replies. Side requests (summaries, titles) get a short answer."""

    has_tools: bool = True  # the client offers tools
    thinks: bool = False  # before each reply
    faults: dict[int, Step] = field(default_factory=dict)  # sent once before the reply N
    overloads: int = 0  # refusals sent as a fault
    subagents: Mapping[str, "Model"] = field(default_factory=dict)  # by their task
    asides: Counter[str] = field(default_factory=Counter)

    def __call__(self, body: Body) -> Step:
        for task, subagent in self.subagents.items():
            if task in _said(body):
                return subagent(body)
        if self.said in self.faults and body.get("tools"):
            self.overloads += isinstance(self.faults[self.said], Fail)
            return self.faults.pop(self.said)
        step = Script.__call__(self, body)  # super() needs arguments in a class with slots
        if self.thinks and isinstance(step, Say):
            return replace(step, thinking=f"I think about reply {self.said}.")
        return step

    def aside(self, body: Body) -> Step | None:
        if is_summary_question(body["messages"][-1]["content"][-1].get("text", "")):
            kind = OURS
        elif asks_for_summary(body):
            kind = OF_CLIENT
        elif self.has_tools and not body.get("tools"):
            kind = QUESTION
        else:
            return None
        self.asides[kind] += 1
        return Say(TITLE if kind == QUESTION else SUMMARY)


def _said(body: Body) -> str:
    """Return the first texts of the user."""
    parts = (block for message in body["messages"][:3] if message["role"] == "user"
             for block in message["content"])  # fmt: skip
    return "\n".join(block["text"] for block in parts if block["type"] == "text")


@dataclass(slots=True)
class Capture:
    """Writer of each request as one JSON document per line; without a file it writes nothing."""

    file: Path | None = None

    def write(self, path: str, headers: Mapping[str, str], raw: bytes) -> None:
        if self.file is not None:
            row = {"path": path, "headers": dict(headers), "body": json.loads(raw)}
            with self.file.open("a") as file:
                file.write(json.dumps(row) + "\n")


class Messages(Scripted):
    capture = Capture()

    def answer(self, body: Body, headers: dict[str, str], raw: bytes) -> tuple[Step, str, Body]:
        self.capture.write(self.paths[-1], headers, raw)
        return super().answer(body, headers, raw)

    def message(self, step: Say, body: Body, id: str, usage: Body) -> Body:
        return super().message(step, common(body), id, usage)


class Responses(ResponsesServer):
    capture = Capture()
    path = "/v1/responses"
    address_end = "/v1"
    namespaces: Mapping[str, str] = {}  # of tools

    def answer(self, body: Body, headers: dict[str, str], raw: bytes) -> tuple[Step, str, Body]:
        self.capture.write(self.paths[-1], headers, raw)
        return super().answer(plain_responses(body), headers, raw)

    def message(self, step: Say, body: Body, id: str, usage: Body) -> Body:
        groups = [tool for tool in body.get("tools", []) if tool.get("type") == "namespace"]
        self.namespaces = {tool["name"]: g["name"] for g in groups for tool in g["tools"]}
        return super().message(step, plain_responses(body), id, usage)

    def events(self, say: Say, whole: Body) -> Iterator[Body]:
        for event in super().events(say, whole):
            yield self._with_namespaces(event)

    def _with_namespaces(self, value: Any) -> Any:
        """Name the namespace in each call of a tool of a namespace."""
        if isinstance(value, list):
            return [self._with_namespaces(each) for each in value]
        if not isinstance(value, dict):
            return value
        value = {name: self._with_namespaces(each) for name, each in value.items()}
        if value.get("type") == "function_call" and value["name"] in self.namespaces:
            value["namespace"] = self.namespaces[value["name"]]
        return value


class Chat(ChatServer):
    capture = Capture()

    def __init__(self, steps: Any, **options: Any) -> None:
        super().__init__(steps, dialect="groq", **options)

    def answer(self, body: Body, headers: dict[str, str], raw: bytes) -> tuple[Step, str, Body]:
        self.capture.write(self.paths[-1], headers, raw)
        return super().answer(plain_chat(body), headers, raw)

    def message(self, step: Say, body: Body, id: str, usage: Body) -> Body:
        return super().message(step, plain_chat(body), id, usage)

    def error(self, kind: str, words: str) -> Body:
        told = super().error(kind, words)
        if words.startswith("prompt is too long"):
            told["error"]["code"] = "context_length_exceeded"
            told["error"]["message"] = (
                f"This model's maximum context length was exceeded: {words}. Please reduce the "
                "length of the messages."
            )
        return told


class Gemini(GeminiServer):
    capture = Capture()

    def answer(self, body: Body, headers: dict[str, str], raw: bytes) -> tuple[Step, str, Body]:
        self.capture.write(self.paths[-1], headers, raw)
        return super().answer(plain_gemini(body), headers, raw)

    def message(self, step: Say, body: Body, id: str, usage: Body) -> Body:
        return super().message(step, plain_gemini(body), id, usage)


SERVERS: Mapping[str, type[Server]] = {
    "messages": Messages, "responses": Responses, "chat": Chat, "gemini": Gemini,
}  # fmt: skip


def plain_gemini(body: Body) -> Body:
    """Normalize a request without tools, such as the client's search for loops, to one text. It has
    a cut from the history, whose first and last calls have no results.
    """
    if body.get("tools"):
        return body
    text = json.dumps(body["contents"], ensure_ascii=False)
    return {**body, "contents": [{"role": "user", "parts": [{"text": text}]}]}


def plain_responses(body: Body) -> Body:
    """Normalize a request for the strict server: one developer message first, no settings, only
    function tools.
    """
    first: list[str] = [body["instructions"]] if body.get("instructions") else []
    items: list[Body] = []
    for item in body["input"]:
        if item.get("role") in ("developer", "system") and not items:
            first.append(_joined(item["content"]))
        elif (plain := _item(item)) is not None:
            items.append(plain)
    told = {"type": "input_text", "text": "\n\n".join(first) or EMPTY}
    system = {"type": "message", "role": "developer", "content": [told]}
    return {
        "model": body["model"],
        "input": [system, *items],
        "stream": body.get("stream", False),
        "store": False,
        "include": ENCRYPTED,
        "max_output_tokens": body.get("max_output_tokens") or ROOM,
        "tools": [tool for each in body.get("tools", []) for tool in _functions(each)],
    }


def _item(item: Body) -> Body | None:
    kind = item.get("type", "message")
    if kind == "message" and item["role"] == "assistant":
        return {"type": kind, "role": "assistant", "content": _joined(item["content"]) or EMPTY}
    if kind == "message":
        part = {"type": "input_text", "text": _joined(item["content"]) or EMPTY}
        return {"type": kind, "role": "user", "content": [part]}
    if kind in ("function_call", "custom_tool_call"):
        given = item.get("arguments") or json.dumps({"input": item.get("input", "")})
        call = {"type": "function_call", "call_id": item["call_id"], "name": item["name"]}
        return {**call, "arguments": given}
    if kind in ("function_call_output", "custom_tool_call_output"):
        output = _joined(item["output"]) or EMPTY
        return {"type": "function_call_output", "call_id": item["call_id"], "output": output}
    if kind == "reasoning":  # the script has none
        return None
    part = {"type": "input_text", "text": json.dumps(item)}
    return {"type": "message", "role": "user", "content": [part]}


def _functions(tool: Body) -> list[Body]:
    """Return a tool as functions; a namespace contains several."""
    if tool.get("type") == "namespace":
        return [each for inner in tool["tools"] for each in _functions(inner)]
    name = tool.get("name") or tool["type"]
    described = {"name": name, "description": tool.get("description") or EMPTY, "strict": False}
    schema = tool.get("parameters") or {"type": "object", "properties": {}}
    return [{"type": "function", **described, "parameters": schema}]


def _joined(content: Any) -> str:
    """Return the texts of a content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text") or json.dumps(part) for part in content or ())


def plain_chat(body: Body) -> Body:
    """Normalize a request for the strict server: one system message first, alternating roles, no
    settings.
    """
    system: list[str] = []
    messages: list[Body] = []
    for message in body["messages"]:
        role, text = message["role"], _joined(message.get("content"))
        if role in ("system", "developer") and not messages:
            system.append(text)
            continue
        if role in ("system", "developer"):
            role = "user"
        plain: Body = {"role": role, "content": text or EMPTY}
        if role == "tool":
            plain["tool_call_id"] = message["tool_call_id"]
        if message.get("tool_calls"):
            plain["tool_calls"] = [
                {"id": call["id"], "type": "function",
                 "function": {name: call["function"][name] for name in ("name", "arguments")}}
                for call in message["tool_calls"]
            ]  # fmt: skip
            plain["content"] = text or None
        before = messages[-1] if messages else None
        if before is not None and before["role"] == role != "tool" and "tool_calls" not in before:
            before.update(plain, content=f"{before['content']}\n\n{text}")
        else:
            messages.append(plain)
    if messages and messages[0]["role"] == "assistant":  # the client has removed what was before
        messages.insert(0, {"role": "user", "content": EMPTY})
    first = [{"role": "system", "content": "\n\n".join(system)}] if system else []
    kept = {name: body[name] for name in ("model", "stream") if name in body}
    if tools := [tool for tool in body.get("tools") or () if tool["type"] == "function"]:
        kept["tools"] = [{"type": "function", "function": _function(tool)} for tool in tools]
    return {**kept, "max_tokens": body.get("max_tokens") or ROOM, "messages": [*first, *messages]}


def _function(tool: Body) -> Body:
    function = tool["function"]
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    described = function.get("description") or EMPTY
    return {"name": function["name"], "description": described, "parameters": schema}
