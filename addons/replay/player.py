"""The player of a recording: it feeds recorded messages, replies and results to our compaction
engine.

All recorded content is used unchanged. Each request is built as the agent builds it and priced as a
caching server would price it. A replay cannot predict what the model would have done with a
different context; `ReplayRun.needs` lists the calls that would have missed something.
"""

import asyncio
import functools
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import field
from math import ceil
from pathlib import Path
from secrets import randbelow
from typing import Any

from ...api.base import LimitReached, ModelError, dataclass, regex
from ...api.context import (
    WHILE_AWAY,
    BareHost,
    CompactionEngine,
    CompactionPurpose,
    Layer,
    MoveResults,
    Policy,
    Request,
    break_down,
    build_request,
    document_from_ledger,
    max_summary_tokens,
    shortened_to,
    shown_blocks,
    tokens,
)
from ...api.context import render_summary as render
from ...api.models import Model, Reply, cost
from ...api.record import LOG_NAME, Assistant, Log, Session, Usage, User, content_text
from ...api.recordings import (
    RecordedCall,
    RecordedMessage,
    RecordedReply,
    Recording,
    TranslatedCall,
    translate,
)
from ...api.session import Compacted, Event
from ...api.text import strings_in
from .cache_prices import CacheBill, PromptCache, ThinkingMeter, prompt_of
from .lost_facts import FactDetector, LostFact
from .results import Fill, Need, NeedKind, Pause, PricedCall, ReplayAct, ReplayRun, Share
from .session_log import EntryStorage, message_entry, reply_blocks, result_entry

MIN_TELLING_LINE_CHARS = 16  # shorter lines occur in many results
_LINE_NUMBER = regex(r"^\s*\d+\s*[→|:\t]\s?", re.MULTILINE)  # line number prefixes of other agents
WRITTEN_ARGUMENTS = ("content", "new_string")
_INCIDENTAL = ("description", "timeout", "timeout_ms", "yield_time_ms", "max_output_tokens")


@dataclass(frozen=True, slots=True)
class NeededResult:
    """A result that was needed after it had left the context."""

    ref: int  # its entry
    how: NeedKind
    text: str


@dataclass(frozen=True, slots=True)
class _Result:
    ref: int
    text: str


@dataclass(slots=True)
class NeedDetector:
    """Detector of the results in one session that a call needs and the context lacks. Each result
    is found at most once, because a repeated call brings it back into the context.
    """

    _results: list[_Result] = field(default_factory=list)
    _newest: dict[tuple[str, str], _Result] = field(default_factory=dict)  # by _key of the call
    _given: dict[str, _Result] = field(default_factory=dict)  # by ref in the recording

    def add(self, ref: int, call: TranslatedCall, text: str, *, recorded: str = "") -> None:
        """Record a result; `recorded` is its ref, or the ref it repeats, in the recording."""
        result = _Result(ref, text)
        self._results.append(result)
        self._newest[_key(call)] = result
        self._given[recorded] = result

    def add_input(self, ref: int, call: TranslatedCall) -> None:
        """Record the input of a call; for a call that changes a file, only the text it wrote."""
        given = [call.input.get(name) for name in WRITTEN_ARGUMENTS] if call.changes else call.input
        if text := "\n".join(strings_in(given)):
            self._results.append(_Result(ref, text))

    def find(
        self,
        call: TranslatedCall,
        text: str,
        is_gone: Callable[[int], bool],
        context: Callable[[], str],
        recalls: str = "",
    ) -> NeededResult | None:
        """Return the result that a call needs although it has left the context, or None.

        `text` is the call's own result. `is_gone` returns True if an entry's text has left the
        context; `context()` returns the whole text of the context. `recalls` is the ref, in the
        recording, of the result that the call reads again.
        """
        if recalls:
            given = self._given.get(recalls)
            if given is None or not is_gone(given.ref):
                return None
            return NeededResult(given.ref, "asked again", given.text)
        same = self._newest.get(_key(call))
        if same is not None and same.text == text and text.strip() and is_gone(same.ref):
            return NeededResult(same.ref, "asked again", same.text)
        line = max((line.strip() for line in call.replaced.splitlines()), key=len, default="")
        if len(line) < MIN_TELLING_LINE_CHARS:
            return None
        shown = (old for old in reversed(self._results) if line in old.text and is_gone(old.ref))
        used = next(shown, None)
        if used is None or line in _LINE_NUMBER.sub("", context()):
            return None
        self._results.remove(used)
        return NeededResult(used.ref, "used", used.text)


def _key(call: TranslatedCall) -> tuple[str, str]:
    """Return a key that is equal for calls with the same request."""
    given = sorted((k, str(v)) for k, v in call.input.items() if k not in _INCIDENTAL)
    return call.name, repr(given)


class ReplayHost(BareHost):
    """One replayed conversation, as the compaction engine sees it."""

    def __init__(
        self, path: Path, model_id: str, window_tokens: int, writer: Model | None = None
    ) -> None:
        """`path` is the log to write; `writer` is the model that writes summaries."""
        super().__init__(Log(path), model_id, window_tokens)
        self.writer = writer
        self.cache = PromptCache(self.cache_terms().life)
        self.clock: float | None = None  # the time in the recording, in seconds
        self.user_wrote = False  # since the newest call
        # Compactions of the engine and its model calls; the player collects and clears them.
        self.acts: list[Compacted] = []
        self.engine_calls: list[tuple[CacheBill, Usage]] = []
        self.file_digests: dict[str, str] = {}  # sha256 by path

    def emit(self, event: Event) -> None:
        if isinstance(event, Compacted):
            self.acts.append(event)

    def sync(self) -> None:
        """Do nothing: the log of a replay is deleted at the end."""

    def cache_is_cold(self) -> bool:
        return self.cache.is_cold(self.clock)

    def user_was_away(self) -> bool:
        return self.user_wrote and self.cache.pause(self.clock) > self.cache.life

    def file_sha256(self, path: str) -> str | None:
        return self.file_digests.get(path)

    async def ask_model(self, request: Request, purpose: CompactionPurpose) -> Reply:
        """Answer a request from the engine and record its bill."""
        bill = self.cache.charge(prompt_of(request), self.clock)
        if self.writer is None:
            return self._from_ledger(bill)
        reply = await _whole_reply(self.writer, request)
        self.engine_calls.append((bill, reply.usage))
        return reply

    def _from_ledger(self, bill: CacheBill) -> Reply:
        """Return a summary made from the ledger, within the size limit for a model's summary."""
        document = document_from_ledger(self.ledger, None)
        text = render(shortened_to(document, max_summary_tokens(self.current_window())))
        usage = bill.usage(tokens.estimate(text))
        self.engine_calls.append((bill, usage))
        return Reply([{"type": "text", "text": text}], "end_turn", usage, self.model_id)


async def _whole_reply(model: Model, request: Request) -> Reply:
    async with aclosing(model.stream(request)) as stream:
        async for delta in stream:
            if isinstance(delta, Reply):
                return delta
    raise ModelError("the model ended its stream without a reply", hint="Try again.")


MAX_REPLY_TOKENS = 32_000  # reserved for the reply in each request, as the agent does
MAX_FILLS = 48  # samples of the window's contents in one run
ERROR_LINES_PER_RESULT = 2  # per failed result, searched for in the last context
MAX_ERROR_LINE_CHARS = 120
EXTRA_CALL_TOKENS = 60  # output tokens of one more call

_ERROR_LINE = regex(r"error|exception|\bfail|\bfatal|\bpanic|denied|not found|no such", re.I)


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings for playing a recording."""

    label: str  # shown to the user
    policy: Policy
    model: str  # ID of the model that sets the prices
    window: int  # tokens
    system: str  # the system prompt if the recording has none
    tools: tuple[dict[str, Any], ...]  # schemas
    # Writes the summaries. Without a writer, summaries come from the ledger and are priced as if a
    # model had written them.
    writer: Model | None = None
    fills: int = MAX_FILLS
    layers: tuple[Callable[[], Layer], ...] = ()  # of extensions; each play has its own objects


def play(recording: Recording, terms: Terms, place: Path | None = None) -> ReplayRun:
    """Play a recording to its end, or until no compaction makes the context fit. The session's
    files are written to the folder `place`, which is deleted at the end.
    """
    if place is None:
        with scratch_folder() as folder:
            return play(recording, terms, play_folder(folder, 0))
    try:
        return asyncio.run(Player(recording, terms, place).run())
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Create a temporary folder and delete it on exit. References to offloaded texts contain its
    path, so its random part is 12 digits: every run then uses the same number of tokens.
    """
    folder = Path(tempfile.gettempdir()) / f"ctxagent-replay-{randbelow(10**12):012}"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def play_folder(folder: Path, number: int) -> Path:
    """Return the folder of the play with this number."""
    return folder / f"{number:06}"


@dataclass
class Player:
    """Player of one recording under one set of terms, in its own folder."""

    recording: Recording
    terms: Terms
    folder: Path
    _priced: list[PricedCall] = field(default_factory=list)
    _acts: list[ReplayAct] = field(default_factory=list)
    _needs: list[Need] = field(default_factory=list)
    _pauses: list[Pause] = field(default_factory=list)
    _fills: list[Fill] = field(default_factory=list)
    _results: dict[int, str] = field(default_factory=dict)  # whole texts, by entry
    _errors: list[str] = field(default_factory=list)
    _detector: NeedDetector = field(default_factory=NeedDetector)
    _facts: FactDetector = field(default_factory=FactDetector)
    _lost: list[LostFact] = field(default_factory=list)
    _explored: dict[str, bool] = field(default_factory=dict)  # file -> was read again
    _has_reply: bool = False
    _thinking: ThinkingMeter = field(init=False)
    _entry_storage: EntryStorage = field(init=False)

    def __post_init__(self) -> None:
        terms = self.terms
        path = self.folder / "session" / LOG_NAME
        self.host = ReplayHost(path, terms.model, terms.window, terms.writer)
        layers = [make() for make in terms.layers]
        self.engine = CompactionEngine(self.host, terms.policy, lambda: layers)
        self._thinking = ThinkingMeter(terms.model)
        replies = max(1, self.recording.replies)
        self._entry_storage = EntryStorage(self.host.folder, terms.window, terms.policy)
        self._calls_per_fill = ceil(replies / terms.fills) if terms.fills else 0

    async def run(self) -> ReplayRun:
        """Play the recording. Raises ModelError from the model that writes summaries."""
        stopped = ""
        try:
            self._open_session()
            await self._play_steps()
        except LimitReached as error:
            stopped = error.message
        finally:
            await self.engine.close()
        context = self.context()
        paths = list(self.host.ledger.files)
        errors = list(dict.fromkeys(self._errors))
        whole = sum(
            found is not None and found.whole() == text
            for found, text in (
                (self.host.recall([seq]).get(seq), t) for seq, t in self._results.items()
            )
        )
        self.host.log.close()
        return ReplayRun(
            name=self.recording.name,
            format=self.recording.format,
            label=self.terms.label,
            model=self.terms.model,
            window=self.terms.window,
            priced=tuple(self._priced),
            acts=tuple(self._acts),
            needs=tuple(self._needs),
            pauses=tuple(self._pauses),
            lost=tuple(self._lost),
            thinking=self._thinking.result(),
            fills=tuple(self._fills),
            paths=Share(sum(path in context for path in paths), len(paths)),
            errors=Share(sum(line in context for line in errors), len(errors)),
            recovered=Share(whole, len(self._results)),
            explored=Share(sum(self._explored.values()), len(self._explored)),
            peak_then=_peak(self.recording),
            stopped=stopped,
        )

    def _open_session(self) -> None:
        system, tools = self.recording.system or self.terms.system, list(self.terms.tools)
        model = self.terms.model
        self.host.record(
            Session(id="replay", cwd="/", version="", model=model, system=system, tools=tools)
        )

    async def _play_steps(self) -> None:
        start = True
        for step in self.recording.steps:  # recorded compactions are ignored
            if isinstance(step, RecordedMessage):
                self._advance_clock(step.at)
                start = start or not step.mid_turn
                self._add_message(step)
            elif isinstance(step, RecordedReply):
                await self._play_reply(step, start=start)
                start = False

    def _advance_clock(self, at: float | None) -> None:
        if at is not None:
            self.host.clock = max(self.host.clock or at, at)

    def _add_message(self, words: RecordedMessage) -> None:
        host = self.host
        source = "instructions" if words.by_client else "person"
        entry = message_entry(words, source, host.log.last_seq + 1, self._entry_storage)
        recorded = host.record(entry)
        self._facts.add(recorded.seq, words.text)
        host.user_wrote = host.user_wrote or not (words.by_client or words.mid_turn)
        if words.by_client and not self._has_reply and isinstance(recorded, User):
            host.instructions.append(recorded)

    async def _play_reply(self, reply: RecordedReply, *, start: bool) -> None:
        """Make one model call as the agent does, then add the results of its tool calls."""
        self._has_reply = True
        if self.host.clock is None:
            self._advance_clock(reply.at)
        before = self.host.current_window().tokens
        await self.engine.before_call(turn_start=start)
        await self.engine.wait_for_background()  # keeps replays deterministic
        self._record_pause(before)
        self._record_compactions()
        self._thinking.count_call(self.host.view)
        request = self.request()
        calls = [(call, translate(call)) for call in reply.calls]
        content = list(reply_blocks(reply, calls))
        bill = self.host.cache.charge(prompt_of(request), self.host.clock)
        said = tokens.estimate_content(content)
        usage = bill.usage(said)
        self._add_call("turn", bill, usage)
        for call, translated in calls:
            self._check_need(call, translated, bill)
            self._check_read(translated)
        written = "\n".join(text for block in content for text in _texts(block))
        number, partly_gone = len(self._priced), functools.cache(self._is_partly_gone)
        self._lost += self._facts.find(number, written, partly_gone, self._whole_context)
        recorded = self.host.record(
            Assistant(
                content=content,
                usage=usage.to_json(),
                stop_reason="tool_use" if calls else "end_turn",
                model=self.terms.model,
            )
        )
        self._facts.add(recorded.seq, written)
        self._thinking.add(recorded.seq, reply.output, said)
        for _, translated in calls:
            self._detector.add_input(recorded.seq, translated)
        self._advance_clock(reply.at)
        for call, translated in calls:
            self._add_result(call, translated)
        if self._calls_per_fill and len(self._priced) % self._calls_per_fill == 0:
            self._sample_fill()

    def request(self) -> Request:
        """Return the next request, built as the agent builds it."""
        return build_request(
            self.host.view,
            model=self.terms.model,
            max_tokens=self.host.current_window().max_output(MAX_REPLY_TOKENS),
            stable_before=self.engine.stable_before(),
        )

    def _add_result(self, call: RecordedCall, translated: TranslatedCall) -> None:
        host, text = self.host, call.text or "[empty]"
        seen = translated.details.get("seen")
        if isinstance(seen, dict):
            host.file_digests[seen["path"]] = seen["sha256"]
        entry, moved = result_entry(call, translated, host.log.last_seq + 1, self._entry_storage)
        recorded = host.record(entry)
        self._advance_clock(call.at)
        self._results[recorded.seq] = text
        if moved is not None:
            after, number = host.current_window().tokens, len(self._priced) + 1
            name, gate, before = MoveResults.name, MoveResults.gate, after + moved.saved
            self._acts.append(ReplayAct(number, name, gate, 1, before, after))
        if translated.is_error:
            matches = (line.strip() for line in text.splitlines() if _ERROR_LINE.search(line))
            lines = [line[:MAX_ERROR_LINE_CHARS] for line in matches if line]
            self._errors += lines[-ERROR_LINES_PER_RESULT:]
        self._detector.add(recorded.seq, translated, text, recorded=call.recalls or call.ref)
        self._facts.add(recorded.seq, text, is_result=True)
        for name in call.files:
            self._explored.setdefault(name, False)

    def _check_need(self, call: RecordedCall, translated: TranslatedCall, bill: CacheBill) -> None:
        """Record the result that a call needs if it has left the context."""
        found = self._detector.find(
            translated, call.text, self._is_gone, self.context, call.recalls
        )
        if found is None:
            return
        size, number = tokens.estimate(found.text), len(self._priced)
        extra = Usage(cache_read=bill.prompt, cache_creation=size, output=EXTRA_CALL_TOKENS)
        dollars = cost(self.terms.model, extra) or 0.0
        self._needs.append(Need(number, found.how, _title(translated), found.ref, size, dollars))

    def _check_read(self, call: TranslatedCall) -> None:
        """Note a file that a subagent had read if the call reads it again. Names of files in the
        project are relative there.
        """
        path = f"/{call.input.get('path', '')}".replace("/./", "/")
        if call.name == "Read":
            again = [name for name in self._explored if path.endswith(f"/{name.lstrip('/')}")]
            self._explored.update(dict.fromkeys(again, True))

    def _is_gone(self, seq: int) -> bool:
        """Return True if an entry's text, or part of it, has left the context."""
        place = self.host.view.position(seq)
        if place is None:
            return True
        item = self.host.view.items[place]
        is_offloaded = self.host.view.facts(item)[1] is not None
        return item.is_masked or bool(item.inputs) or is_offloaded

    def _is_partly_gone(self, seq: int) -> bool:
        """Return True if anything of an entry has left the context, even its line numbers."""
        place = self.host.view.position(seq)
        items = self.host.view.items
        return place is None or self._is_gone(seq) or self.host.view.is_unnumbered(items[place])

    def context(self) -> str:
        """Return all text of the next request, without the system prompt."""
        return "\n".join(
            text for item in self.host.view.items for b in shown_blocks(item) for text in _texts(b)
        )

    def _whole_context(self) -> str:
        """Return all text of the next request, with the system prompt."""
        return f"{self.host.view.system}\n{self.context()}"

    def _add_call(self, purpose: str, bill: CacheBill, usage: Usage) -> None:
        self._priced.append(
            PricedCall(
                number=len(self._priced) + 1,
                purpose=purpose,
                read=bill.read,
                written=bill.written,
                plain=bill.plain,
                output=usage.output,
                dollars=cost(self.terms.model, usage) or 0.0,
                at=self.host.clock,
                cold=bool(bill.cold),
            )
        )

    def _record_pause(self, before: int) -> None:
        """Record the pause before a call if the user has written since the newest call. `before` is
        the size of the context before the engine acted.
        """
        host = self.host
        if host.user_wrote and self._priced:
            done = any(act.trigger == WHILE_AWAY for act in host.acts)
            after, seconds = host.current_window().tokens, host.cache.pause(host.clock)
            number = len(self._priced) + len(host.engine_calls) + 1
            was_away = host.user_was_away()
            self._pauses.append(Pause(number, seconds, was_away, done, before, after))
        host.user_wrote = False

    def _record_compactions(self) -> None:
        """Record the engine's compactions before this call, and the calls it made for them."""
        for bill, usage in self.host.engine_calls:
            self._add_call("summary", bill, usage)
        self.host.engine_calls.clear()
        number = len(self._priced) + 1
        self._acts += [_act(number, act) for act in self.host.acts]
        self.host.acts.clear()

    def _sample_fill(self) -> None:
        filling = break_down(self.host.view, self.host.current_window())
        parts: dict[str, int] = {}
        for part in filling.parts:
            parts[part.kind] = parts.get(part.kind, 0) + part.tokens
        self._fills.append(Fill(len(self._priced), tuple(parts.items())))


def _act(number: int, act: Compacted) -> ReplayAct:
    sizes = act.tokens_before, act.tokens_after
    return ReplayAct(number, act.layer, act.trigger, act.refs, *sizes)


def _texts(block: dict[str, Any]) -> Iterator[str]:
    yield str(block.get("text", ""))
    if isinstance(input := block.get("input"), dict):
        yield from map(str, input.values())
    if "content" in block:
        yield content_text(block["content"])


def _title(translated: TranslatedCall) -> str:
    values = (translated.input.get(name) for name in ("command", "path", "pattern", "ref"))
    subject = next((value for value in values if isinstance(value, str)), "")
    return " ".join([translated.name, *subject.split()])


def _peak(recording: Recording) -> int | None:
    replies = (step for step in recording.steps if isinstance(step, RecordedReply))
    return max((reply.prompt for reply in replies if reply.prompt), default=None)
