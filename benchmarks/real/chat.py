"""Ask the served model directly, over Chat Completions."""

import json
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]
REPLY_S = 1800.0  # a bound, for busy machines


@dataclass(frozen=True)
class Answer:
    """One reply. Tokens as the server reports them."""

    text: str
    calls: tuple[Message, ...]
    prefilled: int  # tokens of the prompt that were not in the server's cache
    cached: int
    written: int
    seconds: float  # of the server, for reading and writing
    finish: str

    def message(self) -> Message:
        """Return the reply as a message. The server refuses arguments that are not JSON."""
        for call in self.calls:
            try:
                json.loads(call["function"]["arguments"])
            except ValueError:
                call["function"]["arguments"] = "{}"
        calls = {"tool_calls": list(self.calls)} if self.calls else {}
        return {"role": "assistant", "content": self.text or None, **calls}


def ask(
    url: str, messages: Sequence[Message], *, tools: Sequence[Message] = (), max_tokens: int = 200,
    **more: Any,
) -> Answer:  # fmt: skip
    """Send one request; `more` adds fields. Raises urllib.error.HTTPError."""
    body = {"model": "served", "messages": list(messages), "max_tokens": max_tokens, **more}
    if tools:
        body["tools"] = list(tools)
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=REPLY_S) as reply:
        said = json.load(reply)
    choice, timings = said["choices"][0], said["timings"]
    message = choice["message"]
    return Answer(
        text=message.get("content") or "",
        calls=tuple(message.get("tool_calls") or ()),
        prefilled=timings["prompt_n"],
        cached=timings["cache_n"],
        written=timings["predicted_n"],
        seconds=(timings["prompt_ms"] + timings["predicted_ms"]) / 1000,
        finish=choice["finish_reason"],
    )
