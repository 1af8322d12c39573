"""The stage: a conversation without an agent, on which the engine plays a recording.

It is a `compaction.host.Host` like the loop is: a real log in a folder of its own, folded into a
real view and ledger. Nobody is asked and nothing is run; what the model would say aside is made
from the ledger, unless a real one is given. Files are taken to be as the recorded calls left them.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..compaction.host import Purpose, Said
from ..compaction.preserve import Section
from ..compaction.summarize import cap
from ..compaction.summary import bounded, mechanical, render
from ..context import tokens
from ..context.view import View, fold
from ..context.window import Window, measure
from ..context.wire import Request
from ..errors import ModelError
from ..events import Compacted, Event
from ..model.base import Model, Reply, cache_prices, cost
from ..model.body import body
from ..record.entries import Checkpoint, Entry, Revert, Usage
from ..record.ledger import Ledger
from ..record.log import Log
from ..record.sessions import whole_text
from .prices import Bill, Cache


@dataclass
class Stage:
    """One conversation with a model of that id, whose window is `size` tokens. `writer` writes its
    summaries, where there is one. `clock` is the time of the recording, in seconds. `acts` and
    `asked` are what the engine did and the calls it made aside, with their bills, until somebody
    takes them. `disk` has the digests of files."""

    path: Path
    model_id: str
    size: int
    writer: Model | None = None
    view: View = field(default_factory=View)
    ledger: Ledger = field(default_factory=Ledger)
    cache: Cache = field(default_factory=Cache)
    effort: str | None = None
    clock: float | None = None
    acts: list[Compacted] = field(default_factory=list)
    asked: list[tuple[Bill, Usage]] = field(default_factory=list)
    disk: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log = Log.create(self.path)

    @property
    def folder(self) -> Path:
        return self.path.parent

    def emit(self, event: Event) -> None:
        if isinstance(event, Compacted):
            self.acts.append(event)

    def record(self, entry: Entry) -> Entry:
        recorded = self.log.append(entry)
        if not isinstance(recorded, Revert):
            self.view.add(recorded)
        self.ledger.add(recorded)
        return recorded

    def refold(self) -> None:
        self.view = fold(self.log.entries())

    def sync(self) -> None:
        """Nothing of this is kept."""

    def measured(self) -> Window:
        return measure(self.view, self.size)

    def cold(self) -> bool:
        return self.cache.is_cold(self.clock)

    def prices(self) -> tuple[float, float]:
        return cache_prices(self.model_id)

    def price(self, read: int, written: int) -> float | None:
        return cost(self.model_id, Usage(cache_read=read, output=written))

    def digest(self, path: str) -> str | None:
        return self.disk.get(path)

    def sections(self) -> Sequence[Section]:
        return ()

    def recall(self, ref: int) -> str | None:
        return whole_text(self.path, ref)

    @property
    def renewal(self) -> Callable[[], Sequence[Entry]]:
        return lambda: ()

    @property
    def checkpoint(self) -> Callable[[str], Awaitable[Checkpoint | None]]:
        return _none

    @property
    def hook(self) -> Callable[[str, dict[str, Any]], Awaitable[str | None]]:
        return _no_veto

    def cleared(self, words: str) -> str:
        return words

    async def ask_aside(self, request: Request, purpose: Purpose = "summary") -> Said:
        """What the model says to a request of the engine's own, and its bill."""
        bill = self.cache.charge(body(request), self.clock)
        if self.writer is None:
            return self._from_ledger(bill)
        reply = await _answer(self.writer, request)
        self.asked.append((bill, reply.usage))
        said = "".join(str(b.get("text", "")) for b in reply.content if b.get("type") == "text")
        return Said(said, reply.stop_reason, cost(reply.model, reply.usage))

    def _from_ledger(self, bill: Bill) -> Said:
        """A summary of what is known without a model, as long as one of a model may be."""
        words = [text for _, text in self.ledger.words]
        document = mechanical(self.ledger, words, None)
        text = render(bounded(document, cap(self.measured())))
        usage = bill.usage(tokens.estimate(text))
        self.asked.append((bill, usage))
        return Said(text, "end_turn", cost(self.model_id, usage))


async def _none(trigger: str) -> Checkpoint | None:
    return None


async def _no_veto(point: str, event: dict[str, Any]) -> str | None:
    return None


async def _answer(model: Model, request: Request) -> Reply:
    async with aclosing(model.stream(request)) as stream:
        async for delta in stream:
            if isinstance(delta, Reply):
                return delta
    raise ModelError("the model ended its stream without a reply", hint="Try again.")
