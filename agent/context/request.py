"""Builds requests from a view. The API accepts each of them.

`build_request` works for every log, even if entries are missing, duplicated or reordered. Calls and
results are complete, adjacent and in order (a call without a recorded result gets "interrupted;
outcome unknown"). A web search appears together with its result or is left out. IDs are unique and
well formed, no text is blank, and roles alternate, starting with a user message. Thinking is sent
byte for byte with its signature or not at all. There are no lone surrogates and at most four blocks
with `cache_control`. Only a compaction block may come before the first user message, as a message
of its own.

The messages are also stable. The messages of a log are a prefix of the messages of the same log
with more entries, until an entry edits history. The prompt cache depends on this.
"""

import re
from binascii import a2b_base64
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from ..border.values import clean_text, is_too_deep, without_surrogates
from ..lazy import dataclass, regex
from ..session.entries import Block
from ..session.searches import CITATION, FOUND, SEARCH, addresses, is_search
from .items import COMPACTION, THINKING, Item, begins_with_block, is_compaction, shown_blocks
from .view import View

UNKNOWN_OUTCOME = "[interrupted; outcome unknown: no result of this call was recorded]"
LOST_SEARCH = "[A search of the web was cut short.]"
LOST_BEGINNING = "[The beginning of this conversation is missing.]"
GO_ON_PROMPT = "Go on."
EMPTY_RESULT = "(no output)"
# Type of a block that adds a tool from this point on. It is no longer written, but older logs have
# it, and their requests must be rebuilt byte for byte.
ADDITION = "tool_addition"
PAUSED_STOP_REASON = "pause_turn"

SEARCH_ID = regex(r"srvtoolu_[A-Za-z0-9_]{1,100}")
_ID = regex(r"[A-Za-z0-9_-]{1,128}")
_THINKING_FIELDS = {
    "thinking": ("type", "thinking", "signature"),
    "redacted_thinking": ("type", "data"),
}
_MAGIC = {  # the first bytes of each media type that the API takes
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
    """One request to a model. Its fields never change."""

    model: str
    system: list[Block]
    tools: list[dict[str, Any]]
    messages: list[dict[str, Any]]  # alternating, from a user message on
    max_tokens: int
    effort: str | None = None  # None for the model's default
    thinking: bool = True  # whether to ask for adaptive thinking
    # How the request was built from a view: `upto` is the view's newest entry, `stable_before` the
    # parameter of `build_request`, `asked` the text of `with_question`. `keep_from`, `keep` and
    # `span` name the part of the view that is sent alone, as one text.
    origin: Mapping[str, Any] = field(default_factory=dict)
    # Instructions for a compaction block, which is requested in place of a reply.
    compaction: str | None = None
    # Seconds to retry an overloaded server; None to limit the attempts, as for other errors.
    overload_wait: float | None = None
    fallback_after: float | None = None  # seconds of overload or 429 until another model is used
    # Equal failures of the server after which the request may be the cause; None to retry longer.
    same_failures: int | None = None
    failed_attempts: int = 0  # that count for this request already
    # IDs of calls that are in the view but not in the messages. New calls must not use them.
    taken_ids: frozenset[str] = frozenset()
    on_send: Callable[[], None] | None = None  # called before each attempt is sent to a server

    def has_thinking(self) -> bool:
        """Return True if a message contains thinking of an earlier reply."""
        return any(
            block["type"] in THINKING for message in self.messages for block in message["content"]
        )

    def call_ids(self) -> frozenset[str]:
        """Return the IDs that new calls and searches must not use."""
        blocks = (block for message in self.messages for block in message["content"])
        ids = (block["id"] for block in blocks if block["type"] in ("tool_use", SEARCH))
        return self.taken_ids.union(ids)


@dataclass(slots=True)
class _Draft:
    """Messages under construction. The calls of the last assistant message are still open."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    speaker: str = ""  # the model of the last reply
    open: list[tuple[str, str]] = field(default_factory=list)  # recorded id, id on the wire
    results: dict[str, Block] = field(default_factory=dict)  # by id on the wire
    later: list[Block] = field(default_factory=list)  # user blocks to place after the results
    added: list[Block] = field(default_factory=list)  # tools that are available from here on
    searches: dict[str, int] = field(default_factory=dict)  # those without result: message index
    found: set[str] = field(default_factory=set)  # URLs of search results

    def add_user(self, blocks: list[Block]) -> None:
        for block in blocks:
            if block["type"] == COMPACTION and (self.messages or self.pending_count):
                block = _text(clean_text(block["content"]))  # damaged log: it must come first
            if block["type"] == COMPACTION:
                self.messages.append({"role": "assistant", "content": [block]})
                continue
            if block["type"] == ADDITION:
                self.added.append(block)
                continue
            if block["type"] != "tool_result":
                self.later.append(block)
                continue
            for recorded, wired in self.open:
                if recorded == block["tool_use_id"] and wired not in self.results:
                    self.results[wired] = {**block, "tool_use_id": wired}
                    break

    def add_assistant(self, blocks: list[Block], model: str) -> None:
        if not blocks:
            return
        # The last reply is another model's, and this model cannot continue its paused turn.
        if self.speaker not in ("", model) and not self.pending_count:
            self.later.append(_text(GO_ON_PROMPT))
        self.speaker = model
        if self.pending_count:
            self.close()
        if not self.messages:
            self.messages.append({"role": "user", "content": [_text(LOST_BEGINNING)]})
        if self.messages[-1]["role"] != "assistant" or self.is_compacted:
            self.messages.append({"role": "assistant", "content": []})
        said, intact = self.messages[-1]["content"], True
        for block in blocks:
            kept = self._adapted(block)
            intact = intact and kept is not None
            if kept is not None and (intact or kept["type"] not in THINKING):
                said.append(kept)
        here = len(self.messages) - 1
        self.drop_searches({id for id, place in self.searches.items() if place != here})
        if not said:
            said.append(_text(LOST_SEARCH))

    def _adapted(self, block: Block) -> Block | None:
        """Return a reply block adapted to the blocks before it. Return None for a search result
        without its search, and for a duplicate search.
        """
        kind = block["type"]
        if kind == "tool_use":
            return {**block, "id": self._open_call(block["id"])}
        if kind == SEARCH:
            if block["id"] in self.ids:
                return None
            self.ids.add(block["id"])
            self.searches[block["id"]] = len(self.messages) - 1
        elif kind == FOUND:
            if self.searches.pop(block["tool_use_id"], None) is None:
                return None
            self.found |= addresses(block)
        elif "citations" in block:
            cited = [each for each in block["citations"] if each["url"] in self.found]
            plain = {name: value for name, value in block.items() if name != "citations"}
            return {**plain, "citations": cited} if cited else plain
        return block

    def drop_searches(self, ids: Collection[str]) -> None:
        """Remove searches that have no result, and the thinking after them, which is bound to
        them."""
        for place in {self.searches.pop(id) for id in ids}:
            message = self.messages[place]
            message["content"] = without_searches(message["content"], ids)

    def _open_call(self, recorded: str) -> str:
        """Add an open call and return its unique ID on the wire."""
        base = wired = _valid_id(recorded)
        n = 1
        while wired in self.ids:
            n += 1
            wired = f"{base[:120]}_{n}"
        self.ids.add(wired)
        self.open.append((recorded, wired))
        return wired

    @property
    def is_compacted(self) -> bool:
        """Whether the draft has only a compaction block so far."""
        return len(self.messages) == 1 and begins_with_block(self.messages)

    @property
    def pending_count(self) -> int:
        """The number of messages that `close` would add."""
        has_words = bool(self.open or self.later or (self.added and not self.messages))
        return has_words + bool(self.added)

    def close(self) -> None:
        """End the user message: results in the order of their calls, then all other blocks. Added
        tools follow in a system message.
        """
        content = [self.results.get(wired) or _unknown_outcome(wired) for _, wired in self.open]
        content += self.later
        if self.added and not (content or self.messages):
            content = [_text(LOST_BEGINNING)]
        if self.pending_count and (self.later or self.added or not self.open):
            # The server continues a search only if nothing but results of calls comes after it.
            self.drop_searches([*self.searches])
        if content:
            self.messages.append({"role": "user", "content": content})
        if self.added:
            self.messages.append({"role": "system", "content": self.added})
        self.open, self.results, self.later, self.added = [], {}, [], []


def build_messages(items: list[Item]) -> list[dict[str, Any]]:
    """Return the messages of a request, without cache marks. There is at least one. The last is a
    user message, unless the current model paused its turn and has to continue.
    """
    return _messages(items, None)[0]


def _messages(items: list[Item], place: int | None) -> tuple[list[dict[str, Any]], int | None]:
    """Return the messages, and the index of the last message that is complete before the item at
    index `place`.
    """
    draft, stable_end = _Draft(), None
    for index, item in enumerate(items):
        if index == place:
            # An assistant item closes the pending messages before it.
            closes = draft.pending_count if item.sent_role == "assistant" else 0
            stable_end = len(draft.messages) - 1 + closes
        if item.sent_role == "user":
            draft.add_user(_sent_blocks(item))
        else:
            draft.add_assistant(_sent_blocks(item), item.base.model)
    draft.close()
    last = items[-1] if items else None
    is_own = last and not (last.stubs or last.by_other_model) and last.text is None
    paused = is_own and last and last.stop_reason == PAUSED_STOP_REASON
    if not draft.messages or (draft.messages[-1]["role"] == "assistant" and not paused):
        draft.drop_searches([*draft.searches])
        draft.messages.append({"role": "user", "content": [_text(GO_ON_PROMPT)]})
    return draft.messages, stable_end


def _sent_blocks(item: Item) -> list[Block]:
    """Return an item's blocks as they are sent. The item caches them until its shown blocks
    change."""
    shown = shown_blocks(item)
    if item.sent is None or item.sent[0] != shown:
        made = (
            [b for block in shown if (b := _user_block(block))]
            if item.sent_role == "user"
            else _assistant_blocks(shown)
        )
        item.sent = (shown, made)
    return item.sent[1]


def build_request(
    view: View,
    *,
    model: str,
    max_tokens: int,
    effort: str | None = None,
    thinking: bool = True,
    stable_before: int | None = None,
) -> Request:
    """Return the request for a view. The items from the seq `stable_before` on may still be edited.
    Set cache breakpoints before them, at the end of this request and at the end of the previous
    one.
    """
    place = None if stable_before is None else view.position(stable_before)
    out, stable_end = _messages(view.items, place)
    system = [_text(clean_text(view.system))] if view.system.strip() else []
    if system:
        system[0]["cache_control"] = {"type": "ephemeral"}
    # The end of this request, and the end of the previous one: right before the newest reply.
    replies = [place for place, message in enumerate(out[:-1]) if message["role"] == "assistant"]
    ends = {len(out) - 1, *(place - 1 for place in replies[-1:])}
    if stable_end is not None:
        ends.add(stable_end)
    for place in sorted(e for e in ends if 0 <= e < len(out)):
        _mark(out[place])
    origin = {"upto": view.last_seq, "stable_before": stable_before}
    replaced = {item.seq for item in view.items if item.is_replaced}
    taken = frozenset(id for id, call in view.calls.items() if call.seq in replaced)
    return Request(
        model, system, view.tools, out, max_tokens, effort, thinking, origin, taken_ids=taken
    )


def with_question(request: Request, asked: str) -> Request:
    """Return the request with one more text at its end."""
    asked, (*before, last) = clean_text(asked), request.messages
    origin = {**request.origin, "asked": asked}
    if last["role"] == "user":
        more = [{**last, "content": [*last["content"], _text(asked)]}]
    else:
        more = [last, {"role": "user", "content": [_text(asked)]}]
    return replace(request, messages=_without_open_searches([*before, *more]), origin=origin)


def _without_open_searches(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Remove unfinished searches from the last reply, because the server would continue them."""
    replies = [n for n, message in enumerate(messages) if message["role"] == "assistant"]
    place = replies[-1] if replies else 0
    content = messages[place]["content"]
    there = {block.get("tool_use_id") for block in content}
    waiting = [b["id"] for b in content if b["type"] == SEARCH and b["id"] not in there]
    if not waiting:
        return messages
    finished = {"role": "assistant", "content": without_searches(content, waiting)}
    return [*messages[:place], finished, *messages[place + 1 :]]


def without_searches(content: list[Block], ids: Collection[str]) -> list[Block]:
    """Return the blocks of a reply without these searches, and without the thinking after the first
    of them, which is bound to them.
    """
    kept: list[Block] = []
    intact = True
    for block in content:
        gone = block["type"] == SEARCH and block["id"] in ids
        intact = intact and not gone
        if not gone and (intact or block["type"] not in THINKING):
            kept.append(block)
    while kept and kept[-1]["type"] in THINKING:
        kept.pop()
    return kept or [_text(LOST_SEARCH)]


def adds_tools(request: Request) -> bool:
    """Return True if a request has tools that are missing from its list of tools."""
    return any(message["role"] == "system" for message in request.messages)


def begins_with(later: Request, earlier: Request) -> bool:
    """Return True if a request starts with the whole content of an earlier one, so that the server
    can read that part from its cache.
    """
    if later.tools != earlier.tools:
        return False
    later_blocks, earlier_blocks = [*_unmarked_blocks(later)], [*_unmarked_blocks(earlier)]
    return later_blocks[: len(earlier_blocks)] == earlier_blocks


def _unmarked_blocks(request: Request) -> Iterator[tuple[int, str, Block]]:
    """Yield (message index, role, block without cache mark) for the system prompt and all
    messages."""
    for place, message in enumerate([{"role": "", "content": request.system}, *request.messages]):
        for block in message["content"]:
            unmarked = {name: block[name] for name in block if name != "cache_control"}
            yield place, message["role"], unmarked


def _mark(message: dict[str, Any]) -> None:
    """Set a cache breakpoint at the last block of a message that can carry it."""
    content = message["content"]
    for place in reversed(range(len(content))):
        if content[place]["type"] not in THINKING:
            content[place] = {**content[place], "cache_control": {"type": "ephemeral"}}
            return


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _unknown_outcome(wired: str) -> Block:
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
        return _text_block(block)
    if kind == ADDITION:
        return {"type": ADDITION, "tool": without_surrogates(block.get("tool"))}
    if kind == COMPACTION:
        sound = is_compaction(block) and without_surrogates(block) == block
        return block if sound else _text_block({"text": block.get("content")})
    return _media_block(block) if kind in ("image", "document") else None


def _text_block(block: Block) -> Block | None:
    text = clean_text(block.get("text"))
    return _text(text) if text.strip() else None


def _media_block(block: Block) -> Block | None:
    """Return an image or document if its first bytes match its type, else None. A block that the
    API refuses would make every later request fail too.
    """
    source = block.get("source")
    if not isinstance(source, dict) or source.get("type") != "base64":
        return None
    media, data = source.get("media_type"), source.get("data")
    if not isinstance(media, str) or not isinstance(data, str):
        return None
    magic = _MAGIC[block["type"]].get(media)
    try:
        sound = magic is not None and a2b_base64(data[:16]).startswith(magic)
    except ValueError:
        sound = False
    inline = {"type": "base64", "media_type": media, "data": data}
    return {"type": block["type"], "source": inline} if sound else None


def _result_block(block: Block) -> Block | None:
    call, content = block.get("tool_use_id"), block.get("content")
    if not isinstance(call, str):
        return None
    out: Block = {"type": "tool_result", "tool_use_id": call, "content": EMPTY_RESULT}
    if isinstance(content, list):
        inner = [c for c in content if isinstance(c, dict) and c.get("type") != "tool_result"]
        out["content"] = [b for c in inner if (b := _user_block(c))] or EMPTY_RESULT
    elif isinstance(content, str) and content.strip():
        out["content"] = clean_text(content)
    if block.get("is_error") is True:
        out["is_error"] = True
    return out


def _assistant_blocks(blocks: list[Block]) -> list[Block]:
    """Return the blocks of a reply that may be sent back. After a removed or fixed block, drop the
    thinking in the same message, because it is bound to the original block.
    """
    out: list[Block] = []
    intact = True
    for block in blocks:
        kind = block.get("type")
        sent: Block | None = None
        if kind in THINKING:
            sent = _thinking_block(block) if intact else None
        elif kind == "text":
            sent = _cited(block, _text_block(block))
        elif kind == "tool_use":
            sent = _call_block(block)
        elif kind == SEARCH:
            sent = _search_block(block)
        elif kind == FOUND:
            sent = _found_block(block)
        intact = intact and sent is not None and all(sent[k] == block.get(k) for k in sent)
        if sent is not None:
            out.append(sent)
    while out and out[-1]["type"] in THINKING:
        out.pop()  # a reply cut off while thinking: the API refuses messages that end in thinking
    return out


def _thinking_block(block: Block) -> Block | None:
    names = _THINKING_FIELDS[block["type"]]
    sent = {k: block[k] for k in names if isinstance(block.get(k), str)}
    whole = len(sent) == len(names) and bool(sent.get("signature", sent.get("data", "")).strip())
    return sent if whole and all(without_surrogates(v) == v for v in sent.values()) else None


def _call_block(block: Block) -> Block | None:
    name, recorded, arguments = block.get("name"), block.get("id"), block.get("input")
    if not isinstance(recorded, str) or not isinstance(name, str):
        return None
    sendable = isinstance(arguments, dict) and not is_too_deep(arguments)
    arguments = without_surrogates(arguments) if sendable else {}
    call = {"type": "tool_use", "id": recorded, "name": _valid_id(name), "input": arguments}
    signature = clean_text(block.get("signature"))  # set by protocols that sign calls
    return {**call, "signature": signature} if signature else call


def _search_block(block: Block) -> Block | None:
    """Return a web search unchanged, or None for an invalid search or another server tool."""
    sound = is_search(block) and isinstance(block.get("input"), dict) and _is_direct(block)
    id = block.get("id")
    if not sound or is_too_deep(block["input"]) or not isinstance(id, str):
        return None
    return _only(block, "id", "name", "input", "caller") if SEARCH_ID.fullmatch(id) else None


def _found_block(block: Block) -> Block | None:
    """Return the result of a web search unchanged, with its encrypted texts, or None if it is
    invalid.
    """
    content = block.get("content")
    if isinstance(content, list):
        sound = all(_has_texts(page, "url", "title", "encrypted_content") for page in content)
    else:
        sound = _has_texts(content, "error_code")
    sound = sound and isinstance(block.get("tool_use_id"), str) and _is_direct(block)
    if not sound or is_too_deep(content):
        return None
    return _only(block, "tool_use_id", "content", "caller")


def _cited(block: Block, sent: Block | None) -> Block | None:
    """Return a text block with its valid citations of search results."""
    given = block.get("citations")
    if sent is None or not isinstance(given, list):
        return sent
    needed = ("cited_text", "encrypted_index", "url")
    sound = [c for c in given if _has_texts(c, *needed) and c.get("type") == CITATION]
    return {**sent, "citations": without_surrogates(sound)} if sound else sent


def _only(block: Block, *names: str) -> Block:
    fields = {name: block[name] for name in ("type", *names) if name in block}
    return {name: without_surrogates(value) for name, value in fields.items()}


def _has_texts(value: Any, *names: str) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in names)


def _is_direct(block: Block) -> bool:
    """Return True if the model itself called the server's tool, not code that the model runs."""
    caller = block.get("caller")
    return caller is None or (isinstance(caller, dict) and caller.get("type") == "direct")


def _valid_id(text: str) -> str:
    """Return an ID or name unchanged if the API accepts it, else the nearest valid one."""
    return text if _ID.fullmatch(text) else re.sub(r"[^A-Za-z0-9_-]", "_", text)[:120] or "_"
