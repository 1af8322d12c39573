"""From a view to a request that the API must accept.

`wire` is total: whatever the log lost, doubled or reordered, the messages it gives satisfy the
API's rules. Calls and results are complete, adjacent and in order (a call without a recorded
result is answered "interrupted; outcome unknown"), ids are unique and well formed, no text is
blank, roles alternate from a user message on, thinking is byte-identical with its signature or
absent, no lone surrogate remains, and at most four blocks carry `cache_control`.

It is also stable: what it gives for a log is a prefix of what it gives for the same log with more
entries after it, as long as no entry edits history. That is what the prompt cache lives on.
"""

import re
from binascii import a2b_base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..record.entries import Block
from .view import Item, View, shown

UNKNOWN_OUTCOME = "[interrupted; outcome unknown: no result of this call was recorded]"
OPENING = "[The beginning of this conversation is missing.]"
GO_ON = "Go on."
NOTHING = "(no output)"
PAUSED = "pause_turn"

DEEPEST = 100  # levels of a call's arguments; what is nested deeper cannot be sent everywhere

_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_KNOWN = {
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
    "user": ("text", "image", "document", "tool_result"),
}
_FIELDS: dict[str, tuple[str, ...]] = {
    "text": ("type", "text"),
    "thinking": ("type", "thinking", "signature"),
    "redacted_thinking": ("type", "data"),
    "tool_use": ("type", "id", "name", "input"),
}
_MAGIC = {  # how the bytes of each type the API takes begin
    "image": {
        "image/png": b"\x89PNG\r\n\x1a\n",
        "image/jpeg": b"\xff\xd8\xff",
        "image/gif": b"GIF8",
        "image/webp": b"RIFF",
    },
    "document": {"application/pdf": b"%PDF"},
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a model; no field is changed after it was made.

    `messages` alternate from a user message on. `effort` None leaves it to the model; `thinking`
    asks for adaptive thinking. `origin` says how it was made, where it was made from a view: `upto`
    is that view's newest entry, `settled` as `wire` was given it, `asked` the text put behind it;
    `keep_from`, `keep` and `span` say which part of it as a text stands alone.
    """

    model: str
    system: list[Block]
    tools: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    max_tokens: int
    effort: str | None = None
    thinking: bool = True
    origin: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Draft:
    """Messages under construction, with the calls of the last assistant message still open."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    open: list[tuple[str, str]] = field(default_factory=list)  # recorded id, id on the wire
    results: dict[str, Block] = field(default_factory=dict)  # by id on the wire
    later: list[Block] = field(default_factory=list)  # user blocks that wait for the results

    def user(self, blocks: list[Block]) -> None:
        for block in blocks:
            if block["type"] != "tool_result":
                self.later.append(block)
                continue
            for recorded, wired in self.open:
                if recorded == block["tool_use_id"] and wired not in self.results:
                    self.results[wired] = {**block, "tool_use_id": wired}
                    break

    def assistant(self, blocks: list[Block]) -> None:
        if not blocks:
            return
        if self.open or self.later:
            self.close()
        if not self.messages:
            self.messages.append({"role": "user", "content": [_text(OPENING)]})
        renamed = []
        for block in blocks:
            if block["type"] == "tool_use":
                block = {**block, "id": self._unique(block["id"])}
            renamed.append(block)
        if self.messages[-1]["role"] == "assistant":
            self.messages[-1]["content"].extend(renamed)
        else:
            self.messages.append({"role": "assistant", "content": renamed})

    def _unique(self, recorded: str) -> str:
        base = recorded if _ID.fullmatch(recorded) else _clean_id(recorded)
        wired, n = base, 1
        while wired in self.ids:
            n += 1
            wired = f"{base[:120]}_{n}"
        self.ids.add(wired)
        self.open.append((recorded, wired))
        return wired

    def close(self) -> None:
        """End the user message: results in the order of their calls, then everything else."""
        content = [self.results.get(w) or _unknown(w) for _, w in self.open]
        content += self.later
        self.open, self.results, self.later = [], {}, []
        if content:
            self.messages.append({"role": "user", "content": content})


def messages(items: list[Item]) -> list[dict[str, Any]]:
    """The messages of a request, without cache marks. Never empty; the last is a user message,
    unless the model paused its turn and is to go on by itself."""
    return _messages(items, None)[0]


def _messages(items: list[Item], settled: int | None) -> tuple[list[dict[str, Any]], int | None]:
    """The messages, and the place of the last one that is whole before the entry `settled`."""
    draft, end = _Draft(), None
    for item in items:
        first = end is None and settled is not None and item.seq >= settled
        if item.role == "user":
            end = len(draft.messages) - 1 if first else end
            draft.user(_sent(item))
        else:
            waits = bool(draft.open or draft.later)  # what it ends is a message of its own
            end = len(draft.messages) - 1 + waits if first else end
            draft.assistant(_sent(item))
    draft.close()
    paused = bool(items) and items[-1].stop_reason == PAUSED
    if not draft.messages or (draft.messages[-1]["role"] == "assistant" and not paused):
        draft.messages.append({"role": "user", "content": [_text(GO_ON)]})
    return draft.messages, end


def _sent(item: Item) -> list[Block]:
    """An item's blocks as they go out, made anew only where it shows others than before."""
    now = shown(item)
    if item.sent is None or item.sent[0] != now:
        made = (
            [b for block in now if (b := _user_block(block))]
            if item.role == "user"
            else _assistant_blocks(now)
        )
        item.sent = (now, made)
    return item.sent[1]


def wire(
    view: View,
    *,
    model: str,
    max_tokens: int,
    effort: str | None = None,
    thinking: bool = True,
    settled: int | None = None,
) -> Request:
    """The request for a view. `settled` is the seq from which on items may still be edited: a
    cache breakpoint stands before it (DESIGN section 5)."""
    out, end = _messages(view.items, settled)
    system = [_text(_clean(view.system))] if view.system.strip() else []
    if system:
        system[0]["cache_control"] = {"type": "ephemeral"}
    ends = {len(out) - 1, len(out) - 3}  # this request's end, and that of the one before
    if end is not None:
        ends.add(end)
    for place in sorted(e for e in ends if 0 <= e < len(out)):
        _mark(out[place])
    origin = {"upto": view.last_seq, "settled": settled}
    return Request(model, system, view.tools, out, max_tokens, effort, thinking, origin)


def behind(request: Request, asked: str) -> Request:
    """The same request with one more text at its end."""
    asked, (*before, last) = _clean(asked), request.messages
    last = {**last, "content": [*last["content"], _text(asked)]}
    origin = {**request.origin, "asked": asked}
    return replace(request, messages=[*before, last], origin=origin)


def _mark(message: dict[str, Any]) -> None:
    for place in range(len(message["content"]) - 1, -1, -1):
        block = message["content"][place]
        if block["type"] not in ("thinking", "redacted_thinking"):
            message["content"][place] = {**block, "cache_control": {"type": "ephemeral"}}
            return


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _unknown(wired: str) -> Block:
    return {
        "type": "tool_result",
        "tool_use_id": wired,
        "content": UNKNOWN_OUTCOME,
        "is_error": True,
    }


def _user_block(block: Block) -> Block | None:
    kind = block.get("type")
    if kind == "tool_result":
        return _result_block(block)
    if kind == "text":
        text = _clean(block.get("text"))
        return _text(text) if text.strip() else None
    return _media(block) if kind in ("image", "document") else None


def _media(block: Block) -> Block | None:
    """A picture or document whose bytes begin as its type says: one the API refuses would make
    every later request fail too."""
    source = block.get("source")
    if not isinstance(source, dict) or source.get("type") != "base64":
        return None
    media, data = source.get("media_type"), source.get("data")
    if not isinstance(media, str) or not isinstance(data, str):
        return None
    begins = _MAGIC[block["type"]].get(media)
    try:
        sound = begins is not None and a2b_base64(data[:16]).startswith(begins)
    except ValueError:
        sound = False
    inline = {"type": "base64", "media_type": media, "data": data}
    return {"type": block["type"], "source": inline} if sound else None


def _result_block(block: Block) -> Block | None:
    call, content = block.get("tool_use_id"), block.get("content")
    if not isinstance(call, str):
        return None
    out: Block = {"type": "tool_result", "tool_use_id": call, "content": NOTHING}
    if isinstance(content, list):
        inner = [c for c in content if isinstance(c, dict) and c.get("type") != "tool_result"]
        out["content"] = [b for c in inner if (b := _user_block(c))] or NOTHING
    elif isinstance(content, str) and content.strip():
        out["content"] = _clean(content)
    if block.get("is_error") is True:
        out["is_error"] = True
    return out


def _assistant_blocks(blocks: list[Block]) -> list[Block]:
    """The blocks that may go back. Once one is left out or mended, the thinking after it in this
    message is bound to something that no longer stands there, so it is left out too."""
    out: list[Block] = []
    intact = True
    for block in blocks:
        kind = block.get("type")
        sent: Block | None = None
        if kind in ("thinking", "redacted_thinking"):
            sent = _thinking(block) if intact else None
        elif kind == "text":
            text = _clean(block.get("text"))
            sent = _text(text) if text.strip() else None
        elif kind == "tool_use":
            sent = _call(block)
        intact = intact and sent is not None and all(sent[k] == block.get(k) for k in sent)
        if sent is not None:
            out.append(sent)
    while out and out[-1]["type"] in ("thinking", "redacted_thinking"):
        out.pop()  # a reply cut off while thinking: the API takes no message that ends so
    return out


def _thinking(block: Block) -> Block | None:
    names = _FIELDS[block["type"]]
    sent = {k: block[k] for k in names if isinstance(block.get(k), str)}
    whole = len(sent) == len(names) and bool(sent.get("signature", sent.get("data", "")).strip())
    return sent if whole and not any(_SURROGATE.search(v) for v in sent.values()) else None


def _call(block: Block) -> Block | None:
    name, recorded, given = block.get("name"), block.get("id"), block.get("input")
    if not isinstance(recorded, str) or not isinstance(name, str):
        return None
    name = name if _ID.fullmatch(name) else _clean_id(name)
    given = scrub(given) if isinstance(given, dict) and not is_deep(given) else {}
    return {"type": "tool_use", "id": recorded, "name": name, "input": given}


def _clean_id(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)[:120] or "_"


def _clean(text: Any) -> str:
    if not isinstance(text, str):
        return ""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def is_deep(value: Any, deepest: int = DEEPEST) -> bool:
    """Whether a JSON value has more than `deepest` levels."""
    level = [value]
    for _ in range(deepest + 1):
        nodes = [node for node in level if isinstance(node, dict | list)]
        if not nodes:
            return False
        level = [v for n in nodes for v in (n.values() if isinstance(n, dict) else n)]
    return True


def scrub(node: Any) -> Any:
    """A JSON value without lone surrogates, keys included. It is not `is_deep`."""
    if isinstance(node, str):
        return _clean(node)
    if isinstance(node, dict):
        return {_clean(k): scrub(v) for k, v in node.items()}
    if isinstance(node, list):
        return [scrub(v) for v in node]
    return node
