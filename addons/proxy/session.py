"""One conversation of a client: its log, the mapping from log entries to messages, and its edits.

A client sends its complete history with each request. `take` records the new messages. `edits`
returns the differences between the request and the context view. The rest of the request is not
changed.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from ...api.base import LimitReached, PromptTooLong, __version__, dataclass
from ...api.context import (
    BY_REF,
    KEPT_IN,
    THINKING,
    UNNUMBERED,
    ClearResults,
    CompactionEngine,
    Item,
    Policy,
    file_sha256,
    move_to_file,
    plan_all,
    recall_pages,
    tokens,
    unnumbered,
    without_file,
)
from ...api.models import cost
from ...api.record import (
    BOUND,
    FREE,
    OFFLOADED,
    RECALLED,
    Assistant,
    Block,
    Content,
    Entry,
    Mask,
    Note,
    Session,
    ToolResult,
    Usage,
    User,
    content_text,
    offload,
    recorded_sources,
)
from ...api.recordings import RecordedCall, TranslatedCall, translate
from ...api.text import strings_in
from ...api.tools import MAX_CHARS
from .bodies.base import (
    BodyFormat,
    BodyPiece,
    BodyPlace,
    Edits,
    Json,
    Preamble,
    ServerReply,
    is_same,
    split_reminders,
)
from .history import (
    PROXY_TOPIC,
    SHORTENED,
    Batch,
    Digest,
    Digests,
    KnownMessage,
    comparable,
    count_common,
    digest_of,
    is_sent_back,
    text_of_result,
)
from .host import ProxyHost, binds_thinking
from .way_back import policy_with, reads_session_files, way_back_of

EDITING_STOPPED = "left_alone"  # key in the data of a note
_ID_MARK = "~"  # separates an ID and the suffix that makes it unique


@dataclass(slots=True)
class SentPart:
    """The part of the client's request that corresponds to one log entry."""

    places: tuple[BodyPlace, ...]
    size: int  # estimated tokens, unedited
    calls: Mapping[str, BodyPlace] = field(default_factory=dict)  # position by the log's call ID
    thinking: tuple[BodyPlace, ...] = ()
    is_replaced: bool = False  # the view has another text instead


@dataclass
class ProxySession:
    """A recorded conversation of a client."""

    format: BodyFormat
    host: ProxyHost
    policy: Policy
    cwd: Path  # base of the client's relative paths
    client: dict[str, Any]  # stored in the log
    known: list[KnownMessage] = field(default_factory=list)
    parts: dict[int, SentPart] = field(default_factory=dict)  # by seq
    pending: Assistant | None = None  # reply that the client has not sent back yet
    editing_stopped: str = ""  # why the session is no longer edited
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _calls: dict[str, RecordedCall] = field(default_factory=dict)  # by the client's call ID
    _has_reply: bool = False
    _is_by_ref: bool = False  # the model gets removed texts only by their refs
    _decided_at: int = 0  # newest seq when the engine last ran
    _stable_before: int | None = None  # seq of the first entry just edited, or to be edited next

    def __post_init__(self) -> None:
        self.engine = CompactionEngine(self.host, self.policy)

    @property
    def id(self) -> str:
        return self.host.folder.name

    @property
    def newest(self) -> int:
        """The seq of the newest message. Newer entries can be notes, edits and summaries."""
        return self.pending.seq if self.pending else max(self.parts, default=0)

    def common(self, digests: Digests) -> int:
        """Return the number of leading messages that are those of a request."""
        pairs = zip(self.known, range(len(digests.messages)), strict=False)
        found = (known.likeness(digests, index) for known, index in pairs)
        return count_common(found, digests, self.pending)

    def is_followed_by(self, messages: Sequence[Json]) -> bool:
        """Return True if the messages, which begin with the known ones, can be the client's next
        request.
        """
        if self.pending is None or self.is_repeated_by(messages):
            return True
        return is_sent_back(self.format, messages, len(self.known), self.pending)

    def is_repeated_by(self, messages: Sequence[Json]) -> bool:
        """Return True if a request that begins with the known messages has no new ones: a retry of
        the client, or a request that keeps the cache warm.
        """
        count = len(self.known)
        return len(messages) < count or (self.pending is not None and len(messages) == count)

    def take(self, messages: Sequence[Json], preamble: Preamble, model: str) -> bool:
        """Record the new messages of a request. Return True if the last one is from the user. For a
        request that is not understood, raise ValueError, KeyError or TypeError before anything is
        recorded.
        """
        start = len(self.known)
        pieces = [*self.format.pieces(messages, start)]
        if self.pending is not None and len(pieces) == 1:
            return False  # the reply itself, for the model to continue
        self._take_preamble(preamble, model)
        self._follow_history(messages)
        new = [KnownMessage(digest_of(self.format, each), each) for each in messages[start:]]
        client: dict[str, Any] = {"messages": [str(each.digest) for each in new]}
        is_words = False
        for number, (piece, is_mid_turn) in enumerate(_in_turns(pieces)):
            if number == 0 and self.pending is not None:
                self._match(self.pending, piece)
                self.pending = None
                continue
            is_words = piece.kind == "words" and not piece.by_client
            self._record(piece, {"client": client}, mid_turn=is_mid_turn)
            client = {}
        if not client:
            self.known += new
        return is_words

    def resume(self, digests: Digests, batches: Sequence[Batch]) -> bool:
        """Match the entries of the log with the client's messages. Record messages of the last
        batch that a killed process did not record. Return False if log and messages do not match.
        """
        self._follow_tools()
        messages = digests.messages
        for batch in batches:
            start = len(self.known)
            end = start + len(batch.digests)
            pieces = [*self.format.pieces(messages[:end], start)]
            missing = len(pieces) - len(batch.entries)
            if missing < 0 or (missing and batch is not batches[-1]):
                return False
            for number, (piece, is_mid_turn) in enumerate(_in_turns(pieces)):
                if number < len(batch.entries):
                    self._match(batch.entries[number], piece)
                else:
                    self._record(piece, {"client": {}}, mid_turn=is_mid_turn)
            for digest, message in zip(batch.digests, messages[start:end], strict=True):
                is_unchanged = digests.of(len(self.known)).whole == digest.whole
                self.known.append(KnownMessage(digest, message if is_unchanged else None))
        return True

    async def decide(self, *, turn_start: bool) -> None:
        """Run the engine before a request is sent."""
        before = self.host.view.last_seq
        if self.editing_stopped or self._decided_at == before:
            return  # a retry is not a new call
        try:
            await self.engine.before_call(turn_start=turn_start)
        except LimitReached as error:
            self.note(error.message)
        self._decided_at = self.host.view.last_seq
        edited = [i.seq for i in self.host.view.items if i.masked_at > before]
        self._stable_before = edited[0] if edited else self.engine.stable_before()

    async def shorten(self, refusal: PromptTooLong) -> None:
        """Shrink the context after the server has refused a request as too long."""
        self.host.learn(refusal)
        with suppress(LimitReached):
            await self.engine.force_fit()

    def edits(self, upto: int) -> Edits:
        """Return the edits for the first `upto` messages of the client's request."""
        edits, view = Edits(), self.host.view
        pending = self.pending.seq if self.pending else None  # not sent back by the client yet
        if self.editing_stopped:
            return edits
        if view.summary is not None:
            stays = (i.seq for i in view.items if i.seq >= view.summary.keep_from)
            edits.start = next(
                (self.parts[s].places[0].message for s in stays if s in self.parts), 0
            )
            if edits.start >= upto:
                return Edits()  # an older request: the summary covers later messages too
        for item in view.items:
            part = self.parts.get(item.seq)
            is_later = part.places[-1].message >= upto if part else item.seq == pending
            if is_later:
                continue
            if part is None or part.places[0].message < edits.start:
                edits.head += [
                    {"type": "text", "text": block["text"]}
                    for block in item.blocks
                    if block.get("type") == "text"
                ]
            elif item.role == "assistant":
                self._edit_reply(item, part, edits)
            elif item.stubs:
                edits.results[part.places[0]] = next(iter(item.stubs.values()))
            elif part.is_replaced:
                edits.results[part.places[0]] = content_text(item.blocks[0]["content"])
        if edits.head:
            gone = (part for seq, part in self.parts.items() if view.position(seq) is None)
            edits.dropped.update(
                place for part in gone for place in part.places if place.message == edits.start
            )
        stable = self.parts.get(self._stable_before or 0)
        if edits and stable is not None and 0 < (message := stable.places[0].message) < upto:
            edits.mark = message - 1
        return edits

    def saved_tokens(self) -> int:
        """Return the tokens that the edits remove from the client's request."""
        view, sent = self.host.view, 0
        for item in view.items:
            part = self.parts.get(item.seq)
            is_whole = part is not None and not (item.stubs or item.inputs or part.is_replaced)
            sent += part.size if part and is_whole else item.size
        return view.scaled(max(0, sum(part.size for part in self.parts.values()) - sent))

    def finish(self, reply: ServerReply, saved: int, *, is_newest: bool) -> None:
        """Record a reply of the server. `saved` are the tokens removed from its request. Of a reply
        to an older request, and of an empty reply, record only the price, because the client does
        not send it back.
        """
        request = {"client": {}, "saved": saved}
        if is_newest and self.pending is None and comparable(reply.content) != ("", 0):
            self.pending = self._record_reply(reply.content, reply, request)
        else:
            self._record_reply([], reply, request, purpose="attempt")

    def undo_edit(self, seq: int) -> None:
        """Undo the edit at `seq`: the next request has the client's original content there. Raises
        CompactionFailed if there is no such edit.
        """
        self.engine.uncompact(self.host.log.entries(), seq)

    def stop_editing(self, why: str) -> None:
        """Stop editing this session."""
        self.editing_stopped = why
        self.note(f"left alone: {why}", {EDITING_STOPPED: True})

    def note(self, text: str, data: Mapping[str, Any] | None = None) -> None:
        """Record a note that neither the client nor the model sees."""
        self.host.record(Note(topic=PROXY_TOPIC, text=text, data=dict(data or {})))

    # Recording

    def _take_preamble(self, preamble: Preamble, model: str) -> None:
        """Record the system prompt, the tools and the model if they have changed."""
        view = self.host.view
        is_first = not view.last_seq
        system = None if preamble.system == view.system and not is_first else preamble.system
        tools = None if preamble.tools == view.tools and not is_first else preamble.tools
        self.host.model_id = model
        if is_first or system is not None or tools is not None or model != view.model:
            self.host.record(
                Session(
                    id=self.id,
                    cwd=str(self.cwd),
                    version=__version__,
                    model=model,
                    thinking=BOUND if binds_thinking(model) else FREE,
                    client=self.client if is_first else {},
                    system=system,
                    tools=tools,
                )
            )
        self._follow_tools()

    def _follow_tools(self) -> None:
        """Remove only what the client's tools can get back."""
        way_back, agent = way_back_of(self.host.view.tools), str(self.client.get("agent"))
        self._is_by_ref = way_back == "recall" and not reads_session_files(agent)
        self.engine.use_policy(policy_with(self.policy, way_back))

    def _follow_history(self, messages: Sequence[Json]) -> None:
        """Remember the known messages as the client sends them now. Replace each result that the
        client has shortened with a stub, because the log has the whole text.
        """
        shortened = dict[int, Digest]()
        for index, (known, message) in enumerate(zip(self.known, messages, strict=False)):
            if known.message is None or not is_same(known.message, message):
                digest = digest_of(self.format, message)
                if digest.whole != known.digest.whole:
                    shortened[index] = known.digest = digest
            known.message = message
        if not shortened:
            return
        seqs, sent = {part.places[0]: seq for seq, part in self.parts.items()}, dict[int, Content]()
        for index in shortened:
            for piece in self.format.pieces(messages[: index + 1], index):
                seq = seqs.get(piece.places[0])
                if piece.kind == "result" and seq is not None:
                    self.parts[seq].size = _size_of_result(piece)
                    sent[seq] = piece.content
        self._clear_shortened(sent)
        digests = {str(index): str(digest) for index, digest in shortened.items()}
        self.note("the client has shortened results", {SHORTENED: digests})

    def _clear_shortened(self, sent: Mapping[int, Content]) -> None:
        """Clear results of which the client now sends another text. Keep those that were edited
        already, and those that no file has.
        """
        view, before = self.host.view, self.host.current_window().tokens
        if self.editing_stopped or self.engine.policy.clear_when == "off":
            return
        whole = {
            result.item.seq
            for result in view.results()
            if KEPT_IN in result.details
            and (seq := result.item.seq) in sent
            and not self.parts[seq].is_replaced
            and _own_text(sent[seq]) != _own_text(result.block.get("content", ""))
        }
        due = plan_all(view, str(self.host.folder), answered_only=False)
        if targets := [target for target in due if target["seq"] in whole]:
            mask = Mask(
                layer=ClearResults.name, targets=targets, tokens_before=before, tokens_after=before,
                trigger="shortened by the client",
            )  # fmt: skip
            saved = view.scaled(view.size - view.size_with(mask))
            self.host.record(replace(mask, tokens_after=max(0, before - saved)))

    def _record(self, piece: BodyPiece, details: dict[str, Any], *, mid_turn: bool) -> None:
        if piece.kind == "reply":
            reply = ServerReply(piece.blocks, Usage(), None, None)
            self._match(self._record_reply(piece.blocks, reply, details), piece)
        elif piece.kind == "result":
            self._record_result(piece, details)
        else:
            entry = self.host.record(
                User(
                    content=piece.content,
                    source="instructions" if piece.by_client else "person",
                    mid_turn=mid_turn,
                    details=details,
                )
            )
            self._match(entry, piece)

    def _record_reply(
        self,
        content: Sequence[Block],
        reply: ServerReply,
        request: dict[str, Any],
        purpose: str = "turn",
    ) -> Assistant:
        """Record a reply. Translate its calls to calls of our tools."""
        taken, blocks = self.host.view.calls, list[Block]()
        for block in content:
            if block.get("type") == "tool_use":
                id = block["id"]
                if id in taken:
                    id = f"{id}{_ID_MARK}{self.host.log.last_seq + 1}"
                ours = translate(RecordedCall(id, block["name"], block["input"], ""))
                block = {**block, "id": id, "name": ours.name, "input": ours.input}
            blocks.append(block)
        recorded = self.host.record(
            Assistant(
                content=blocks,
                usage=reply.usage.to_json(),
                stop_reason=reply.stop_reason,
                model=self.host.model_id,
                purpose=purpose,
                message_id=reply.message_id,
                cost_usd=cost(self.host.model_id, reply.usage) if reply.usage.total else None,
                request=request,
            )
        )
        assert isinstance(recorded, Assistant)
        return recorded

    def _record_result(self, piece: BodyPiece, details: dict[str, Any]) -> None:
        host, text, reminders = self.host, text_of_result(piece.content), ""
        call = self._calls.get(piece.call)
        seq, content, offloaded = host.log.last_seq + 1, piece.content, None
        ours, sources = TranslatedCall("", {}), list[str]()
        if text is not None:
            content = text
            text, reminders = split_reminders(text)
        if call is not None:
            sources = recorded_sources(call.name, call.input, text or "")
            ours = translate(replace(call, text=text or "", is_error=piece.is_error))
            details = {**self._details_of(ours), **details}
        if text is not None:
            moved = None
            if sources:
                details[RECALLED] = sources
            else:
                moved = move_to_file(
                    text, tool=ours.name or "result", seq=seq, folder=host.folder,
                    policy=self.engine.policy,
                )  # fmt: skip
            if len(text) > MAX_CHARS:
                details["characters"] = len(text)
            if moved is not None:
                reference, by = moved[0].reference, "Or with"
                if self._is_by_ref:
                    reference, by = without_file(reference), "Full content: with"
                shown = f"*{by} the ref {self.id}#{seq}, {recall_pages(len(text))}*"
                content, offloaded = f"{reference}\n{shown}{reminders}", moved[1]
                details |= {"tokens_saved": moved[0].saved, KEPT_IN: offloaded}
            elif tokens.estimate(text) > self.policy.clear_above:
                if not (sources or self.policy.line_numbers):
                    details |= unnumbered(ours.name, text)
                details[KEPT_IN] = self._file_with(text, seq, sources)
            if self._is_by_ref and KEPT_IN in details:
                details[BY_REF] = True
        entry = host.record(
            ToolResult(
                tool_use_id=call.id if call else piece.call,
                content=content,
                is_error=piece.is_error or ours.is_error,
                details=details,
                offloaded=offloaded,
            )
        )
        self._match(entry, piece)

    def _file_with(self, text: str, seq: int, sources: Sequence[str]) -> str:
        """Return the session file with the text of a result, relative to the session's folder. A
        text read from such a file is not written again. Raises OSError.
        """
        folder = self.host.folder
        for source in sources:
            path = Path(source)
            if path.parent == folder / OFFLOADED and path.is_file():
                return f"{OFFLOADED}/{path.name}"
        name = f"{OFFLOADED}/result_{seq}.md"
        (folder / name).unlink(missing_ok=True)  # left by a killed process
        offload(folder / name, text)
        return name

    def _details_of(self, call: TranslatedCall) -> dict[str, Any]:
        """Return the details of a result. Read the digest of a written file from disk now, because
        only content that is on disk may be removed from the context.
        """
        details = dict(call.details)
        path = details.get("path")
        if isinstance(path, str):
            details["path"] = str(self.cwd / path)
            details.pop("seen", None)
            is_change = call.name in ("Write", "Edit") and not call.is_error
            if is_change and (digest := file_sha256(details["path"])):
                details["seen"] = {"path": details["path"], "sha256": digest}
        return details

    def _match(self, entry: Entry, piece: BodyPiece) -> None:
        """Store the position of an entry's content in the client's request."""
        place = self.host.view.position(entry.seq)
        item = None if place is None else self.host.view.items[place]
        is_replaced = isinstance(entry, ToolResult) and (
            entry.offloaded is not None or entry.details.get(UNNUMBERED) is True
        )
        whole = item is not None and not (is_replaced or item.stubs or item.inputs)
        blocks = piece.blocks if piece.kind != "result" else [
            {"type": "tool_result", "content": piece.content}
        ]  # fmt: skip
        size = item.size if item and whole else sum(map(tokens.estimate_block, blocks))
        part = SentPart(piece.places, size, is_replaced=is_replaced)
        if isinstance(entry, Assistant):
            part.calls = self._match_calls(entry, piece)
            part.thinking = tuple(
                at for block, at in zip(piece.blocks, piece.places, strict=False)
                if block.get("type") in THINKING
            )  # fmt: skip
        elif isinstance(entry, User) and piece.by_client and not self._has_reply:
            self.host.instructions.append(entry)
        self.parts[entry.seq] = part

    def _match_calls(self, entry: Assistant, piece: BodyPiece) -> Mapping[str, BodyPlace]:
        """Return the position of each call in a reply, and remember the calls for their results."""
        self._has_reply = True
        ours = [block for block in entry.content if block.get("type") == "tool_use"]
        theirs = [
            (block, place)
            for block, place in zip(piece.blocks, piece.places, strict=False)
            if block.get("type") == "tool_use"
        ]
        found = {}
        for block, (sent, place) in zip(ours, theirs, strict=False):
            found[block["id"]] = place
            self._calls[sent["id"]] = RecordedCall(block["id"], sent["name"], sent["input"], "")
        return found

    def _edit_reply(self, item: Item, part: SentPart, edits: Edits) -> None:
        for id, shorter in item.inputs.items():
            call, place = self.host.view.calls.get(id), part.calls.get(id)
            if call and place:
                pairs = zip(strings_in(call.input), strings_in(shorter), strict=False)
                edits.inputs[place] = {old: new for old, new in pairs if new != old}
        if item.edited and self.host.view.binds_thinking:
            edits.dropped.update(part.thinking)


def _own_text(content: Content) -> str | None:
    """Return the text of a result without reminders, None if it contains more than text."""
    text = text_of_result(content)
    return None if text is None else split_reminders(text)[0]


def _size_of_result(piece: BodyPiece) -> int:
    return tokens.estimate_block({"type": "tool_result", "content": piece.content})


def _in_turns(pieces: Iterable[BodyPiece]) -> Iterator[tuple[BodyPiece, bool]]:
    """Yield each piece, and True if it is in the middle of a turn."""
    is_mid_turn = False
    for piece in pieces:
        is_mid_turn = piece.kind == "result" or (is_mid_turn and piece.kind == "words")
        yield piece, is_mid_turn
