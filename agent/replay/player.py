"""Playing a recording: its words, replies and results, with our engine deciding what stays.

Everything the recorded agent and its person said and got is taken as it was; the context is ours.
Each request is made as the loop makes it, and priced as a caching server would. What a replay
cannot have is what the model would have done with another context: `needs` shows where it would
have missed something.
"""

import asyncio
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from secrets import randbelow
from typing import Any

from ..compaction.engine import Engine
from ..compaction.filling import fill
from ..compaction.moving import moved, words
from ..compaction.policy import Policy
from ..context import tokens
from ..context.view import shown
from ..context.wire import Request, wire
from ..errors import LimitReached
from ..events import Compacted
from ..model.base import Model, Usage, cost
from ..model.body import body
from ..record.entries import Assistant, Session, ToolResult, User
from ..record.sessions import plain
from .naming import Known, known
from .needs import Needs
from .outcome import Act, Fill, Need, Priced, Run, Share
from .prices import Bill
from .recording import Call, Recording, Reply, Words
from .recording import Compacted as ThenCompacted
from .stage import Stage

OUTPUT = 32_000  # tokens of reply that each request leaves room for, as the loop does
FILLS = 48  # points at which what fills the window is looked at, at most
ERROR_LINES = 2  # of a failed result that are looked for in the end
ERROR_CHARS = 120
ROUND = 60  # tokens of output that one more call takes

_TELLING = re.compile(r"error|exception|\bfail|\bfatal|\bpanic|denied|not found|no such", re.I)


@dataclass(frozen=True, slots=True)
class Terms:
    """Under what a recording is played: a `label` for people, the policy, the model whose prices
    and window count, and what stands before its messages. `writer` writes the summaries; without
    one they are made from the ledger, and priced as if a model had written them."""

    label: str
    policy: Policy
    model: str
    window: int
    system: str
    tools: tuple[dict[str, Any], ...]
    writer: Model | None = None
    fills: int = FILLS


def play(recording: Recording, terms: Terms, place: Path | None = None) -> Run:
    """Play a recording to its end, or to where nothing makes the context fit any more. What is
    written meanwhile is in the folder `place`, which is gone in the end."""
    if place is None:
        with own_folder() as folder:
            return play(recording, terms, numbered(folder, 0))
    try:
        return asyncio.run(Player(recording, terms, place).run())
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def own_folder() -> Iterator[Path]:
    """A folder for what is written meanwhile, gone in the end. What stands for a text in a file
    tells its path, which is of digits, so that it weighs the same each time."""
    folder = Path(tempfile.gettempdir()) / f"ctxagent-replay-{randbelow(10**12):012}"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def numbered(folder: Path, number: int) -> Path:
    """The place of one play of many."""
    return folder / f"{number:06}"


@dataclass
class Player:
    """One recording under one set of terms, in a folder of its own."""

    recording: Recording
    terms: Terms
    folder: Path
    _priced: list[Priced] = field(default_factory=list)
    _acts: list[Act] = field(default_factory=list)
    _needs: list[Need] = field(default_factory=list)
    _fills: list[Fill] = field(default_factory=list)
    _results: dict[int, str] = field(default_factory=dict)  # whole texts, by entry
    _errors: list[str] = field(default_factory=list)
    _seen: Needs = field(default_factory=Needs)

    def __post_init__(self) -> None:
        terms = self.terms
        path = self.folder / "session" / "log.jsonl"
        self.stage = Stage(path, terms.model, terms.window, terms.writer)
        self.engine = Engine(self.stage, terms.policy)
        self._every = ceil(max(1, self.recording.replies) / terms.fills) if terms.fills else 0

    async def run(self) -> Run:
        """Raises ModelError from the model that writes the summaries."""
        stopped = ""
        try:
            self._open()
            await self._steps()
        except LimitReached as error:
            stopped = error.message
        finally:
            await self.engine.close()
        context = self.context()
        paths = list(self.stage.ledger.files)
        errors = list(dict.fromkeys(self._errors))
        whole = sum(self.stage.recall(seq) == text for seq, text in self._results.items())
        self.stage.log.close()
        return Run(
            name=self.recording.name,
            format=self.recording.format,
            label=self.terms.label,
            model=self.terms.model,
            window=self.terms.window,
            priced=tuple(self._priced),
            acts=tuple(self._acts),
            needs=tuple(self._needs),
            fills=tuple(self._fills),
            paths=Share(sum(path in context for path in paths), len(paths)),
            errors=Share(sum(line in context for line in errors), len(errors)),
            recovered=Share(whole, len(self._results)),
            peak_then=_peak(self.recording),
            stopped=stopped,
        )

    def _open(self) -> None:
        """The session begins with the recording's own system prompt, where it has one."""
        self.stage.record(
            Session(
                id="replay",
                cwd="/",
                version="",
                model=self.terms.model,
                system=self.recording.system or self.terms.system,
                tools=list(self.terms.tools),
            )
        )

    async def _steps(self) -> None:
        start = True
        for step in self.recording.steps:
            if isinstance(step, Words):
                self._pass(step.at)
                start = True
                self._say(step.text)
            elif isinstance(step, Reply):
                await self._reply(step, start=start)
                start = False
            else:
                assert isinstance(step, ThenCompacted)  # what they did then is not ours

    def _pass(self, at: float | None) -> None:
        if at is not None:
            self.stage.clock = max(self.stage.clock or at, at)

    def _say(self, text: str) -> None:
        stage = self.stage
        given = words(
            text,
            size=stage.size,
            seq=stage.log.last_seq + 1,
            folder=stage.folder,
            policy=self.terms.policy,
        )
        stage.record(User(content=given))

    async def _reply(self, reply: Reply, *, start: bool) -> None:
        """One call of the model as the loop makes it, then its tool calls."""
        if self.stage.clock is None:
            self._pass(reply.at)
        await self.engine.before_call(turn_start=start)
        await asyncio.sleep(0)  # for what is written in the background
        self._take_acts()
        request = self.request()
        calls = [(call, known(call)) for call in reply.calls]
        content = list(_blocks(reply, calls))
        bill = self.stage.cache.charge(body(request), self.stage.clock)
        usage = bill.usage(tokens.of_content(content))
        self._pay("turn", bill, usage)
        for call, ours in calls:
            self._miss(ours, call.text, bill)
        self.stage.record(
            Assistant(
                content=content,
                usage=usage.to_json(),
                stop_reason="tool_use" if calls else "end_turn",
                model=self.terms.model,
            )
        )
        self._pass(reply.at)
        for call, ours in calls:
            self._result(call, ours)
        if self._every and len(self._priced) % self._every == 0:
            self._look()

    def request(self) -> Request:
        """The next request, as the loop makes it."""
        return wire(
            self.stage.view,
            model=self.terms.model,
            max_tokens=self.stage.measured().output(OUTPUT),
            settled=self.engine.settled(),
        )

    def _result(self, call: Call, ours: Known) -> None:
        stage, text = self.stage, call.text or "[empty]"
        details, content, offloaded = dict(ours.details), text, None
        seen = details.get("seen")
        if isinstance(seen, dict):
            stage.disk[seen["path"]] = seen["sha256"]
        found = moved(
            text,
            tool=ours.name,
            seq=stage.log.last_seq + 1,
            folder=stage.folder,
            policy=self.terms.policy,
        )
        if found is not None:
            plan, offloaded = found
            content, details["tokens_saved"] = plan.reference, plan.saved
        recorded = stage.record(
            ToolResult(
                tool_use_id=call.id,
                content=content,
                is_error=ours.is_error,
                details=details,
                offloaded=offloaded,
            )
        )
        self._pass(call.at)
        self._results[recorded.seq] = text
        if offloaded:
            after = stage.measured().tokens
            number = len(self._priced) + 1
            self._acts.append(Act(number, "demote", "HOOK-CTX-001", 1, after + plan.saved, after))
        if ours.is_error:
            telling = (line.strip() for line in text.splitlines() if _TELLING.search(line))
            lines = [line[:ERROR_CHARS] for line in telling if line]
            self._errors += lines[-ERROR_LINES:]
        self._seen.add(recorded.seq, ours, text)

    def _miss(self, ours: Known, text: str, bill: Bill) -> None:
        """What this call needs that the context no longer has."""
        found = self._seen.missed(ours, text, self._gone, self.context)
        if found is None:
            return
        size = tokens.estimate(found.text)
        extra = Usage(cache_read=bill.prompt, cache_creation=size, output=ROUND)
        dollars = cost(self.terms.model, extra) or 0.0
        self._needs.append(
            Need(
                number=len(self._priced),
                how="used" if found.how == "used" else "asked again",
                what=_title(ours),
                ref=found.ref,
                tokens=size,
                dollars=dollars,
            )
        )

    def _gone(self, seq: int) -> bool:
        """Whether the text of a result has left the context."""
        place = self.stage.view.position(seq)
        if place is None:
            return True
        item = self.stage.view.items[place]
        return bool(item.stubs) or self.stage.view.facts(item)[1] is not None

    def context(self) -> str:
        """All text that the next request would have."""
        return "\n".join(
            text for item in self.stage.view.items for b in shown(item) for text in _texts(b)
        )

    def _pay(self, purpose: str, bill: Bill, usage: Usage) -> None:
        number = len(self._priced) + 1
        dollars = cost(self.terms.model, usage) or 0.0
        read, written, plain_, at = bill.read, bill.written, bill.plain, self.stage.clock
        cold, output = bool(bill.cold), usage.output
        self._priced.append(
            Priced(number, purpose, read, written, plain_, output, dollars, at, cold)
        )

    def _take_acts(self) -> None:
        """What the engine did before this call, and the calls it made for that."""
        for bill, usage in self.stage.asked:
            self._pay("summary", bill, usage)
        self.stage.asked.clear()
        number = len(self._priced) + 1
        self._acts += [_act(number, act) for act in self.stage.acts]
        self.stage.acts.clear()

    def _look(self) -> None:
        room = self.stage.measured().output(OUTPUT)
        filling = fill(self.stage.view, self.stage.measured(), room)
        parts: dict[str, int] = {}
        for part in filling.parts:
            parts[part.kind] = parts.get(part.kind, 0) + part.tokens
        self._fills.append(Fill(len(self._priced), tuple(parts.items())))


def _act(number: int, act: Compacted) -> Act:
    layer = act.layer
    assert layer in ("demote", "microcompact", "truncate", "summary")
    return Act(number, layer, act.trigger, act.refs, act.tokens_before, act.tokens_after)


def _blocks(reply: Reply, calls: Sequence[tuple[Call, Known]]) -> Iterator[dict[str, Any]]:
    if reply.text.strip() or not calls:
        yield {"type": "text", "text": reply.text.strip() or "[nothing]"}
    for call, ours in calls:
        yield {"type": "tool_use", "id": call.id, "name": ours.name, "input": ours.input}


def _texts(block: dict[str, Any]) -> Iterator[str]:
    yield str(block.get("text", ""))
    given = block.get("input")
    if isinstance(given, dict):
        yield from (str(value) for value in given.values())
    if "content" in block:
        yield plain(block["content"])


def _title(ours: Known) -> str:
    given = (ours.input.get(name) for name in ("command", "path", "pattern"))
    told = " ".join(next((text for text in given if isinstance(text, str)), "").split())
    return f"{ours.name} {told}".strip()


def _peak(recording: Recording) -> int | None:
    prompts = [step.prompt for step in recording.steps if isinstance(step, Reply) and step.prompt]
    return max(prompts, default=None)
