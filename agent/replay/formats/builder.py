"""The builder of a recording. A format's reader adds words, replies, compactions and results as it
reads them; `build` then puts every result into its call, so that each call is answered inside its
reply, wherever in the file the result stood.
"""

from collections import Counter, deque
from collections.abc import Hashable
from dataclasses import field, replace
from typing import Any

from ...lazy import dataclass
from ..recording import (
    UNANSWERED,
    RecordedCall,
    RecordedCompaction,
    RecordedReply,
    RecordedStep,
    RecordedWords,
    Recording,
)
from .fields import JsonObject, as_list, as_object, as_text


@dataclass(frozen=True, slots=True)
class RecordedResult:
    """The result of a call."""

    text: str
    is_error: bool = False
    at: float | None = None
    ref: str = ""  # as in RecordedCall
    recalls: str = ""


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    input: JsonObject
    result: RecordedResult | None


@dataclass(slots=True)
class RecordedReplyDraft:
    """A reply to which more may be added."""

    at: float | None = None
    prompt: int = 0  # true tokens, 0 for unknown
    output: int = 0
    texts: list[str] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)

    def add_text(self, text: str) -> None:
        if text.strip():
            self.texts.append(text)


@dataclass(slots=True)
class TranscriptBuilder:
    """The parts of a recorded session, as far as they were read."""

    steps: list[RecordedWords | RecordedReplyDraft | RecordedCompaction] = field(
        default_factory=list
    )
    system: str = ""  # the first prompt that was recorded
    cwd: str = ""  # the first that was recorded
    skipped: int = 0  # items of the wrong shape
    notes: list[str] = field(default_factory=list)
    _models: Counter[str] = field(default_factory=Counter)
    _open: dict[Hashable, RecordedReplyDraft] = field(default_factory=dict)
    _results: dict[str, deque[RecordedResult]] = field(default_factory=dict)

    def add_words(
        self,
        text: str,
        at: float | None = None,
        *,
        mid_turn: bool = False,
        by_client: bool = False,
        is_summary: bool = False,
    ) -> None:
        """Add words to the model, unless they are blank."""
        if text.strip():
            self.steps.append(RecordedWords(text, at, mid_turn, by_client, is_summary))

    def set_system(self, text: str) -> None:
        """Set the system prompt, unless one was set before."""
        self.system = self.system or text * bool(text.strip())

    def set_cwd(self, path: Any) -> None:
        """Set the working directory, unless one was set before."""
        self.cwd = self.cwd or as_text(path)

    def add_compaction(
        self,
        at: float | None = None,
        summary: str = "",
        *,
        kept: int = 0,
        keeps_words: bool = False,
    ) -> None:
        """Add a compaction, with what it left in the context as `RecordedCompaction` says; its
        summary, where the file has it, is added as words."""
        self.steps.append(RecordedCompaction(at, kept, keeps_words))
        self._open.clear()
        self.add_words(summary, at, is_summary=True)

    def objects(self, value: Any) -> list[JsonObject]:
        """Return the objects of a list; count its other items as skipped."""
        found = [item for item in as_list(value) if isinstance(item, dict)]
        self.skipped += len(as_list(value)) - len(found)
        return found

    def draft_reply(
        self, key: Hashable, at: float | None = None, model: Any = None
    ) -> RecordedReplyDraft:
        """Return the draft of a key, a new one if there is none since the last compaction. `at` is
        when its newest part came."""
        draft = self._open.get(key)
        if draft is None:
            draft = self._open[key] = RecordedReplyDraft()
            self.steps.append(draft)
            if isinstance(model, str) and model:
                self._models[model] += 1
        draft.at = at if at is not None else draft.at
        return draft

    def add_call(
        self,
        draft: RecordedReplyDraft,
        id: Any,
        name: Any,
        given: JsonObject,
        result: RecordedResult | None = None,
    ) -> None:
        """Add a call to a reply, with its `result` where the file has both in one place; then the
        call needs no id."""
        own = id if isinstance(id, str) else ""
        if isinstance(name, str) and name and (own or result):
            draft.calls.append(_Call(own or "call", name, given, result))
        else:
            self.skipped += 1

    def add_block(self, draft: RecordedReplyDraft, block: JsonObject) -> None:
        """Add a text or a call, as the Messages API has them."""
        if block.get("type") == "text":
            draft.add_text(as_text(block.get("text")))
        elif block.get("type") == "tool_use":
            self.add_call(draft, block.get("id"), block.get("name"), as_object(block.get("input")))

    def add_result(self, id: Any, result: RecordedResult) -> None:
        """Add the result of a call, which may stand before or after it."""
        if isinstance(id, str) and id:
            self._results.setdefault(id, deque()).append(result)
        else:
            self.skipped += 1

    def build(self, name: str, format: str, skipped: int) -> Recording:
        """Return the recording; `skipped` counts what the file's reader skipped.

        Results go to the calls of their id in order, and a call whose id came before gets another
        one. Replies with neither text nor call are left out, as they leave nothing in the context.
        """
        taken: dict[str, int] = {}
        steps: list[RecordedStep] = []
        sizes = [0]  # how many of `steps` come before each of our steps
        for step in self.steps:
            if isinstance(step, RecordedCompaction):
                kept = len(steps) - sizes[max(0, len(sizes) - 1 - step.kept)]
                steps.append(replace(step, kept=kept))
            elif isinstance(step, RecordedWords):
                steps.append(step)
            elif step.texts or step.calls:
                calls = tuple(self._recorded(call, taken) for call in step.calls)
                text = "\n\n".join(step.texts)
                counts = step.prompt or None, step.output or None
                steps.append(RecordedReply(text, calls, step.at, *counts))
            sizes.append(len(steps))
        return Recording(
            name=name,
            format=format,
            steps=tuple(steps),
            model=next((model for model, _ in self._models.most_common(1)), None),
            system=self.system,
            cwd=self.cwd,
            skipped=skipped + self.skipped,
            orphans=sum(map(len, self._results.values())),
            notes=tuple(self.notes),
        )

    def _recorded(self, call: _Call, taken: dict[str, int]) -> RecordedCall:
        waiting = self._results.get(call.id)
        result = call.result or (waiting.popleft() if waiting else None)
        id = call.id
        while id in taken:
            taken[call.id] += 1
            id = f"{call.id}_{taken[call.id]}"
        taken[id] = 1
        if result is None:
            return RecordedCall(id, call.name, call.input, UNANSWERED, answered=False)
        return RecordedCall(
            id,
            call.name,
            call.input,
            result.text,
            result.is_error,
            at=result.at,
            ref=result.ref,
            recalls=result.recalls,
        )
