"""Chat Completions as a `Wire`, with the features that servers lack or additionally require.

The patterns match error messages of OpenAI, Gemini, DeepSeek, Moonshot, Mistral, Groq, OpenRouter,
vLLM, Ollama, LM Studio and llama.cpp. A complete body is changed after it is built, so the requests
in a log can be rebuilt from the names of the gaps.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from ...lazy import regex
from ..gaps import IMAGES, NO_IMAGES_GAP, SHORT_REPLIES, Gap, short_reply_gap
from ..providers import CHAT
from ..wire import Wire
from .body import EXTRA, REASONING_DETAILS, REASONING_FIELDS, ChatMessage, body, parameters
from .draft import draft

_Body = dict[str, Any]

OMITTED_FILE = "[A PDF document, which this server does not take.]"
FILLER_REPLY = "OK."  # reply inserted between a result and a user message, if roles must alternate
# Gemini accepts this signature for calls of other models.
# https://ai.google.dev/gemini-api/docs/thought-signatures
_NO_SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}
_NO_REASONING = " "  # Moonshot treats an empty text as missing
_ID_CHARS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH = 9  # Mistral accepts only this length
_HIGHEST_EFFORT = "high"  # known to every server
_SCHEMA_WORDS = ("type", "description", "properties", "required", "items", "enum", "anyOf")


def _without(*names: str) -> Callable[[_Body], _Body]:
    return lambda body: {name: value for name, value in body.items() if name not in names}


def _with_messages(change: Callable[[ChatMessage], ChatMessage]) -> Callable[[_Body], _Body]:
    return lambda body: {**body, "messages": [change(message) for message in body["messages"]]}


def _renamed_length(body: _Body) -> _Body:
    out = {name: value for name, value in body.items() if name != "max_tokens"}
    return {**out, "max_completion_tokens": body["max_tokens"]} if "max_tokens" in body else body


def _lower_effort(body: _Body) -> _Body:
    too_high = body.get("reasoning_effort") in ("xhigh", "max")
    return {**body, "reasoning_effort": _HIGHEST_EFFORT} if too_high else body


def _without_reasoning(message: ChatMessage) -> ChatMessage:
    gone = (*REASONING_FIELDS, REASONING_DETAILS)
    out = {name: value for name, value in message.items() if name not in gone}
    if isinstance(content := out.get("content"), list):
        out["content"] = [part for part in content if part["type"] != "thinking"] or None
    return out


def _with_reasoning(message: ChatMessage) -> ChatMessage:
    lacks = message["role"] == "assistant" and "reasoning_content" not in message
    return {**message, "reasoning_content": _NO_REASONING} if lacks else message


def _with_signature(message: ChatMessage) -> ChatMessage:
    first, *rest = message.get("tool_calls") or [{EXTRA: {}}]  # only the first call needs one
    if EXTRA in first:
        return message
    return {**message, "tool_calls": [{**first, EXTRA: _NO_SIGNATURE}, *rest]}


def _with_short_ids(message: ChatMessage) -> ChatMessage:
    out = dict(message)
    if "tool_call_id" in out:
        out["tool_call_id"] = _short(out["tool_call_id"])
    if "tool_calls" in out:
        out["tool_calls"] = [{**call, "id": _short(call["id"])} for call in out["tool_calls"]]
    return out


def _short(id: str) -> str:
    if len(id) == _ID_LENGTH and id.isascii() and id.isalnum():
        return id
    digest = hashlib.sha256(id.encode()).digest()[:_ID_LENGTH]
    return "".join(_ID_CHARS[byte % len(_ID_CHARS)] for byte in digest)


def _with_parts(change: Callable[[list[dict[str, Any]]], Any]) -> Callable[[_Body], _Body]:
    def changed(message: ChatMessage) -> ChatMessage:
        content = message["content"]
        return {**message, "content": change(content)} if isinstance(content, list) else message

    return _with_messages(changed)


def _plain(parts: list[dict[str, Any]]) -> Any:
    """Return parts without cache marks, as one string if all are text."""
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return [{name: part[name] for name in part if name != "cache_control"} for part in parts]


def _without_files(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": OMITTED_FILE} if p["type"] == "file" else p for p in parts]


def _system_as_user(body: _Body) -> _Body:
    first, *rest = body["messages"]
    if first["role"] != "system" or not rest:
        return body
    texts, user = first["content"], rest[0]["content"]
    if isinstance(texts, str) and isinstance(user, str):
        content: Any = f"{texts}\n\n{user}"
    else:
        content = [*_as_parts(texts), *_as_parts(user)]
    return {**body, "messages": [{**rest[0], "content": content}, *rest[1:]]}


def _as_parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _alternating(body: _Body) -> _Body:
    out: list[ChatMessage] = []
    for message in body["messages"]:
        if message["role"] == "user" and out and out[-1]["role"] == "tool":
            out.append({"role": "assistant", "content": FILLER_REPLY})
        out.append(message)
    return {**body, "messages": out}


def _plain_schemas(body: _Body) -> _Body:
    if "tools" not in body:
        return body
    functions = [tool["function"] for tool in body["tools"]]
    plain = [{**each, "parameters": _plain_schema(each["parameters"])} for each in functions]
    return {**body, "tools": [{"type": "function", "function": each} for each in plain]}


def _plain_schema(schema: Any) -> Any:
    """Return a JSON schema with only the keywords that every server knows."""
    if not isinstance(schema, dict):
        return {"type": "string"}
    out = {name: schema[name] for name in _SCHEMA_WORDS if name in schema}
    if isinstance(out.get("properties"), dict):
        out["properties"] = {name: _plain_schema(s) for name, s in out["properties"].items()}
    if "items" in out:
        out["items"] = _plain_schema(out["items"])
    if isinstance(out.get("anyOf"), list):
        out["anyOf"] = [_plain_schema(each) for each in out["anyOf"]]
    return out


_fill_reasoning = _with_messages(_with_reasoning)
_fill_signatures = _with_messages(_with_signature)
_shorten_ids = _with_messages(_with_short_ids)


def _gap(
    what: str,
    words: str,
    fit: Callable[[_Body], _Body],
    *,
    optional: bool = False,
    hides_thinking: bool = False,
) -> Gap:
    named_by = regex(words, re.I | re.S)
    return Gap(what, named_by, fit, optional, hides_thinking=hides_thinking)


def _checked_gap(what: str, words: str, fit: Callable[[_Body], _Body]) -> Gap:
    """Return a gap that is found by an error message and by the body: it applies only if it changes
    the body. Its error message would also match another gap.
    """
    named = regex(words, re.I | re.S)

    def matches(said: str, body: Mapping[str, Any]) -> bool:
        return bool(named.search(said)) and fit(dict(body)) != body

    return Gap(what, None, fit, matches=matches)


GAPS: Mapping[str, Gap] = {
    "stream_options": _gap("no stream_options", r"stream_options|include_usage",
                           _without("stream_options"), optional=True),
    "max_tokens": _checked_gap("max_completion_tokens in place of max_tokens",
                               r"max_completion_tokens['\"` ]*instead|max_tokens.{0,9}not supp",
                               _renamed_length),
    "length": _checked_gap("no limit of a reply's length", r"max_(?:completion_)?tokens",
                           _without("max_tokens", "max_completion_tokens")),
    "highest_effort": _gap("no reasoning_effort above high", r"reasoning_effort|\beffort\b",
                           _lower_effort),
    "effort": _gap("no reasoning_effort", r"reasoning_effort|\beffort\b",
                   _without("reasoning_effort"), optional=True),
    "reasoning": _gap("no reasoning of earlier replies",
                      r"\breasoning(?:_content|_details|_text)?\b|\bthinking\b",
                      _with_messages(_without_reasoning), optional=True,
                      hides_thinking=True),
    "no_reasoning": _checked_gap("no reply without reasoning_content",
                                 r"reasoning_content.{0,60}(?:must be passed|missing|required)|"
                                 r"missing.{0,20}reasoning_content", _fill_reasoning),
    "no_signature": _checked_gap("no call without a signature", r"missing.{0,20}thought.?signature",
                                 _fill_signatures),
    "ids": _checked_gap("IDs of calls with nine letters and digits only",
                        r"tool.?calls?(?:\[\d+\])?\W{0,3}_?id\b.{0,80}(?:length|too long|must be)",
                        _shorten_ids),
    "cache": _gap("no cache_control, and text in strings only",
                  r"cache_control|ephemeral|prompt caching|(?:content|messages).*(?:expected|"
                  r"must be|valid|should be) (?:an? )?str(?:ing)?\b|unexpected list|"
                  r"invalid type: sequence|cannot unmarshal array", _with_parts(_plain),
                  optional=True),
    "files": _gap("no files", r"\bfiles?\b|file_data|\bpdf\b|document|content.{0,40}type|"
                  r"message format", _with_parts(_without_files)),
    "system": _gap("no system message",
                   r"system (?:role|messages?|prompt)s?\b.{0,30}(?:not|n't|un)|role.{0,12}system",
                   _system_as_user),
    "roles": _gap("no message behind a result",
                  r"roles? must alternate|after role .?tool|role .?user.? after", _alternating),
    "schemas": _gap("simple schemas of tools only",
                    r"schema|additionalProperties|unknown name|parameters.*(?:invalid|not supp)",
                    _plain_schemas),
    "stream": _gap("no streams",
                   r"\bstream(?:s|ed|ing)?\b.{0,60}(?:not|n't|un)\W?(?:supp|allow|avail|impl)",
                   _without("stream", "stream_options")),
    SHORT_REPLIES: short_reply_gap("max_tokens", "max_completion_tokens"),
    IMAGES: NO_IMAGES_GAP,
}  # fmt: skip


WIRE = Wire(CHAT, "Chat Completions", "/chat/completions", "/models", GAPS, parameters, body, draft)
