"""A log under construction, for tests of views: numbered entries, without model and disk.

history = History()
history.say("go")
seq = history.call("Bash", {"command": "ls"}, "a.py", details={"exit_code": 0})
view = history.view()
"""

from typing import Any

from ctxagent.agent.context.request import build_request
from ctxagent.agent.context.view import View, fold
from ctxagent.agent.models.messages.body import body
from ctxagent.agent.session.entries import (
    Assistant,
    Block,
    Content,
    Entry,
    Mask,
    Session,
    ToolResult,
    User,
)

from ..server.validator import validate

MODEL = "claude-sonnet-5-5"


class History:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.add(Session, id="s", cwd="/", version="1", model=MODEL, system="Be good.")

    def add(self, kind: type[Entry], **fields: Any) -> int:
        """Append an entry; return its seq."""
        seq = len(self.entries) + 1
        self.entries.append(kind(seq=seq, **fields))
        return seq

    def say(self, text: str) -> int:
        return self.add(User, content=text)

    def reply(self, *blocks: Block, usage: dict[str, int] | None = None) -> int:
        return self.add(
            Assistant, content=list(blocks), usage=usage or {}, stop_reason=None, model=MODEL
        )

    def answer(self, id: str, content: Content, **fields: Any) -> int:
        return self.add(ToolResult, tool_use_id=id, content=content, **fields)

    def call(self, name: str, given: dict[str, Any], content: Content, **fields: Any) -> int:
        """Append a reply with one call, and its result; return the seq of the result."""
        use = called(f"c{len(self.entries)}", name, given)
        self.reply(use)
        return self.answer(use["id"], content, **fields)

    def mask(self, layer: str, targets: list[dict[str, Any]]) -> int:
        return self.add(
            Mask, layer=layer, targets=targets, tokens_before=0, tokens_after=0, trigger="test"
        )

    def view(self) -> View:
        return fold(self.entries)

    def request(self) -> dict[str, Any]:
        """Return the body of the next request, checked against the API's rules."""
        sent = body(build_request(self.view(), model=MODEL, max_tokens=1_000))
        validate(sent)
        return sent


def called(id: str, name: str, given: dict[str, Any]) -> Block:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def words(count: int) -> str:
    """Return a text of `count` estimated tokens."""
    return "word " * count
