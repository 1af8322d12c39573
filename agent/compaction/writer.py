"""The writer: gets a summary document written, by the model or, when that fails, from the ledger.

The model is asked with the session's own prefix, or in chunks where that no longer fits. Its answer
is checked, asked for once more when it falls short, and merged with the summary before it. Its
facts are put right from the ledger when it is applied. Cancelling it changes nothing.
"""

import time
from dataclasses import dataclass, replace

from ..context.window import Window
from ..errors import ModelError, PromptTooLong
from ..events import Emit, Event, Notice, Waiting, waiting
from ..record.entries import Summary
from . import summarize
from .host import Host, Said
from .policy import Policy
from .summarize import Cut
from .summary import Document, mechanical, merge, parse, render

ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Draft:
    """A document, what asking for it cost, and who wrote it: model, ledger or person. `said` is its
    text as it was written, before anything was added from records. It took `seconds`, `ahead` of
    the need where the work went on meanwhile."""

    document: Document
    cost_usd: float | None
    by: str
    said: str
    seconds: float = 0.0
    ahead: bool = False


def _silence(event: Event) -> None:
    """Nobody waits for it."""


@dataclass(slots=True)
class Writer:
    """One conversation's."""

    host: Host
    policy: Policy

    async def write(self, cut: Cut, instructions: str = "", *, tell: Emit = _silence) -> Draft:
        """A document for the span of `cut`, merged with the summary that stands. `tell` is told how
        far it is, where that is waited for."""
        started = time.monotonic()
        with waiting(tell, "writing a summary"):
            draft = await self._write(cut, instructions, tell)
        return replace(draft, seconds=time.monotonic() - started)

    async def _write(self, cut: Cut, instructions: str, tell: Emit) -> Draft:
        previous = document_of(self.host.view.summary)
        if self.policy.summarizer == "mechanical":
            return self.from_ledger(previous)
        spent: float | None = 0.0
        why = ""
        for _ in range(ATTEMPTS):
            window = self.host.measured()  # the agent works on meanwhile
            try:
                said, new = await self._ask(cut, instructions, window, tell)
            except ModelError as error:
                why = error.message
                break
            spent = None if spent is None or said.cost_usd is None else spent + said.cost_usd
            why = summarize.fault(said.text, said.stop_reason, window)
            if not why:
                document = new if previous is None else merge(previous, new)
                return Draft(document, spent, "model", render(document))
        self.host.emit(
            Notice("warning", f"the model's summary was not usable ({why}); made from the ledger")
        )
        return replace(self.from_ledger(previous), cost_usd=spent)

    def from_ledger(self, previous: Document | None) -> Draft:
        """The mechanical summary: made from records alone."""
        ledger = self.host.ledger
        words = [text for _, text in ledger.words]
        document = mechanical(ledger, words, previous)
        return Draft(document, 0.0, "ledger", render(document))

    async def _ask(
        self, cut: Cut, instructions: str, window: Window, tell: Emit
    ) -> tuple[Said, Document]:
        asked = summarize.question(window, self.host.cleared(instructions))
        view, model, effort = self.host.view, self.host.model_id, self.host.effort
        own = self.policy.model in (None, model)  # another model cannot take this one's thinking
        if own and summarize.room(window, asked) >= summarize.cap(window) // 2:
            request = summarize.request(view, window, asked, model=model, effort=effort)
            try:
                said = await self.host.ask_aside(request)
                return said, parse(said.text)
            except PromptTooLong:
                pass  # the estimate was too low: in chunks, then
        return await self._ask_in_chunks(cut, asked, window, tell)

    async def _ask_in_chunks(
        self, cut: Cut, asked: str, window: Window, tell: Emit
    ) -> tuple[Said, Document]:
        whole: Document | None = None
        said = Said("", None, 0.0)
        spent: float | None = 0.0
        requests = summarize.chunk_requests(
            cut,
            window,
            asked,
            upto=self.host.view.last_seq,
            model=self.policy.model or self.host.model_id,
            effort=self.host.effort,
        )
        for number, request in enumerate(requests, 1):
            tell(Waiting(f"writing a summary, part {number} of {len(requests)}"))
            said = await self.host.ask_aside(request)
            spent = None if spent is None or said.cost_usd is None else spent + said.cost_usd
            if summarize.fault(said.text, said.stop_reason, window):
                break
            new = parse(said.text)
            whole = new if whole is None else merge(whole, new)
        return Said(said.text, said.stop_reason, spent), whole or parse(said.text)


def document_of(summary: Summary | None) -> Document | None:
    """The document of a recorded summary; None when there is none, or it cannot be read."""
    if summary is None:
        return None
    try:
        return Document.from_json(summary.document)
    except (KeyError, TypeError, ValueError):
        return None
