"""A strict server of Gemini's `generateContent` on the loopback interface, with the steps of
`loopback`.

Source of the rules: Google's reference of the Gemini API and its guides to function calling and
thought signatures, November 2026. `requests` has the requests converted to the Messages API,
`bodies` has them as received. Calls have no ID, as with models before Gemini 3. The first call of
a reply is signed. The signature must come back in the turn of the call.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from .loopback import Body, Fail, Say, Server, Step
from .validator import Invalid

_TOP = {
    "contents", "systemInstruction", "tools", "toolConfig", "safetySettings", "generationConfig",
    "labels",
}  # fmt: skip
_PARTS = {
    "user": {"text", "inlineData", "functionResponse"},
    "model": {"text", "functionCall", "inlineData"},
}
_REASONS = {"max_tokens": "MAX_TOKENS", "refusal": "SAFETY"}
_PLACES = ("/v1/models/", "/v1beta/models/")
_ACTIONS = (":generateContent", ":streamGenerateContent")


class GeminiServer(Server):
    protocol, model = "gemini", "gemini-2.5-pro"
    address_variable, key_variable = "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"

    def __init__(self, steps: Any, **options: Any) -> None:
        super().__init__(steps, **options)
        self.bodies: list[Body] = []

    def refusal(self, path: str, headers: Mapping[str, str]) -> Fail | None:
        if not (path.startswith(_PLACES) and path.endswith(_ACTIONS)):
            return Fail(404, f"no such path: {path}")
        return None if headers.get("x-goog-api-key") else Fail(403, "Method needs an API key")

    def answer(self, body: Body, headers: dict[str, str], raw: bytes) -> tuple[Step, str, Body]:
        self.bodies.append(body)
        try:
            check_gemini(body)
        except Invalid as error:
            self.rejected.append((str(error), body))
            return Fail(400, str(error)), "", {}
        return super().answer(in_blocks(body), headers, raw)

    def _usage(self, body: Body) -> Body:
        """Return the usage: prefixes are cached without marks, and writing them costs nothing
        extra.
        """
        usage = super()._usage({**body, "metadata": "cache_control"})
        written = usage["cache_creation_input_tokens"]
        return {**usage, "input_tokens": written, "cache_creation_input_tokens": 0}

    def streams(self, body: Body) -> bool:
        return ":streamGenerateContent" in self.paths[-1]

    def message(self, step: Say, body: Body, id: str, usage: Body) -> Body:
        return super().message(step, in_blocks(body), id, usage)

    def whole(self, whole: Body) -> Body:
        return _chunk(whole, _parts(whole), is_last=True)

    def events(self, say: Say, whole: Body) -> Iterator[Body]:
        *before, last = _parts(whole) or [{"text": ""}]
        for part in before:
            yield _chunk(whole, [part], is_last=False)
        yield _chunk(whole, [last], is_last=True)

    def framed(self, event: Body | str) -> str:
        return f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n"

    def text_of(self, event: Body) -> str | None:
        parts = event["candidates"][0]["content"]["parts"]
        return "".join(part.get("text", "") for part in parts)

    def error(self, kind: str, words: str) -> Body:
        return {"error": {"code": 400, "message": words, "status": kind.upper()}}


def _chunk(whole: Body, parts: list[Body], *, is_last: bool) -> Body:
    candidate: Body = {"content": {"role": "model", "parts": parts}, "index": 0}
    if is_last:
        candidate["finishReason"] = _REASONS.get(whole["stop_reason"], "STOP")
    usage = {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, **whole["usage"]}
    read = usage["cache_read_input_tokens"]
    prompt = usage["input_tokens"] + read + usage["cache_creation_input_tokens"]
    counts = {
        "promptTokenCount": prompt,
        "cachedContentTokenCount": read,
        "candidatesTokenCount": usage["output_tokens"],
        "totalTokenCount": prompt + usage["output_tokens"],
    }
    named = {"modelVersion": whole["model"], "responseId": whole["id"]}
    return {"candidates": [candidate], "usageMetadata": counts, **named}


def _parts(whole: Body) -> list[Body]:
    """Return the content of a reply as parts. The first call is signed."""
    parts: list[Body] = []
    signature = signature_of(whole["id"])
    for block in whole["content"]:
        if block["type"] == "text":
            parts.append({"text": block["text"]})
        elif block["type"] == "thinking":
            parts.append({"text": block["thinking"], "thought": True})
        elif block["type"] == "tool_use":
            call = {"functionCall": {"name": block["name"], "args": block["input"]}}
            parts.append({**call, "thoughtSignature": signature} if signature else call)
            signature = ""
    return parts


def signature_of(id: str) -> str:
    """Return the signature of a reply."""
    return hashlib.sha256(id.encode()).hexdigest()


def check_gemini(body: Body) -> None:
    """Raise Invalid for a body that the API would refuse."""
    if unknown := body.keys() - _TOP:
        raise Invalid(f"Unknown name {sorted(unknown)[0]!r}: Cannot find field.")
    contents = body["contents"]
    if not contents:
        raise Invalid("* GenerateContentRequest.contents: contents is not specified")
    calls, before = list[str](), ""
    for place, content in enumerate(_joined(contents)):
        role, where = content.get("role", "user"), f"contents[{place}]"
        if role not in _PARTS or content.keys() - {"role", "parts"}:
            raise Invalid(f"{where}: Please use a valid role: user, model.")
        if not content.get("parts"):
            raise Invalid(f"{where}.parts must not be empty.")
        for part in content["parts"]:
            data = part.keys() & {"text", "inlineData", "functionCall", "functionResponse"}
            if len(data) != 1 or not data <= _PARTS[role]:
                raise Invalid(f"{where}.parts: {sorted(part)} in a content of {role}")
        if _answered(content) != sorted(calls):
            raise Invalid(
                f"{where}: Please ensure that the number of function response parts is equal to "
                "the number of function call parts of the function call turn."
            )
        calls = _names(content, "functionCall")
        if calls and before != "user":
            raise Invalid(
                f"{where}: Please ensure that function call turn comes immediately after a user "
                "turn or after a function response turn."
            )
        before = role
    if before == "model":
        raise Invalid("Please ensure that multiturn requests end with a user role.")
    _check_signatures(contents)


def _joined(contents: list[Body]) -> list[Body]:
    """Return contents in which the contents of one reply are one. Google's SDK sends each chunk of
    a streamed reply back as a content of its own.
    """
    joined: list[Body] = []
    for content in contents:
        if joined and content.get("role") == joined[-1].get("role") == "model":
            joined[-1] = {**content, "parts": [*joined[-1]["parts"], *content.get("parts", ())]}
        else:
            joined.append(content)
    return joined


def _answered(content: Body) -> list[str]:
    """Return the names of the calls that a content answers, each call once. Gemini CLI sends a
    result twice after it has resumed a session.
    """
    answers = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
    once = {str(each.get("id", place)): each["name"] for place, each in enumerate(answers)}
    return sorted(once.values())


def _names(content: Body, kind: str) -> list[str]:
    return [part[kind]["name"] for part in content["parts"] if kind in part]


def _check_signatures(contents: list[Body]) -> None:
    """Raise Invalid if the first call of a reply in the current turn has no signature. A turn
    begins with a text of the user.
    """
    texts = [
        place for place, content in enumerate(contents)
        if content.get("role", "user") == "user" and not _names(content, "functionResponse")
    ]  # fmt: skip
    for place, content in enumerate(contents[texts[-1] if texts else 0 :]):
        found = [part for part in content["parts"] if "functionCall" in part]
        if found and not found[0].get("thoughtSignature"):
            raise Invalid(f"Function call is missing a thought_signature: content {place}")


def in_blocks(body: Body) -> Body:
    """Convert a valid body to the Messages API."""
    room = body.get("generationConfig", {}).get("maxOutputTokens", 8_192)
    out: Body = {"model": GeminiServer.model, "max_tokens": room, "messages": []}
    calls: list[Body] = []
    for place, content in enumerate(body["contents"]):
        role = "assistant" if content.get("role") == "model" else "user"
        blocks = [
            _block(part, f"call_{place}_{n}", calls) for n, part in enumerate(content["parts"])
        ]
        if not out["messages"] or out["messages"][-1]["role"] != role:
            out["messages"].append({"role": role, "content": []})
        out["messages"][-1]["content"] += [block for block in blocks if block]
    if "systemInstruction" in body:
        texts = [{"type": "text", "text": p["text"]} for p in body["systemInstruction"]["parts"]]
        out["system"] = texts
    declared = [each for tool in body.get("tools", ()) for each in tool["functionDeclarations"]]
    if declared:
        out["tools"] = [
            {"name": each["name"], "description": each.get("description") or "-",
             "input_schema": each.get("parametersJsonSchema") or {"type": "object"}}
            for each in declared
        ]  # fmt: skip
    return out


def _block(part: Body, id: str, calls: list[Body]) -> Body | None:
    """Return a part as a block, None for a thought and a repeated result. `calls` are the calls
    without a result.
    """
    if "functionCall" in part:
        call = part["functionCall"]
        calls.append({"type": "tool_use", "id": id, "name": call["name"], "input": call["args"]})
        return calls[-1]
    if "functionResponse" in part:
        response = part["functionResponse"]
        call = next((each for each in calls if each["name"] == response["name"]), None)
        if call is None:  # a second time
            return None
        calls.remove(call)
        text = json.dumps(response["response"], ensure_ascii=False)
        return {"type": "tool_result", "tool_use_id": call["id"], "content": [
            {"type": "text", "text": text}
        ]}  # fmt: skip
    if "inlineData" in part:
        data = part["inlineData"]
        source = {"type": "base64", "media_type": data["mimeType"], "data": data["data"]}
        return {"type": "image", "source": source}
    return None if part.get("thought") else {"type": "text", "text": part["text"] or "-"}
