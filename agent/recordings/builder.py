"""The builder of a recording. A format's reader adds messages, replies, compactions and results in
file order; `build` then attaches every result to its call, wherever the file has the result.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import field, replace
from typing import Any

from ...tools.system.foreign_code import foreign_code
from ..border.values import JsonObject, as_list, as_object, as_text
from ..errors import UsageError
from ..lazy import dataclass
from .recording import (
    UNANSWERED,
    RecordedCall,
    RecordedCompaction,
    RecordedMessage,
    RecordedReply,
    RecordedStep,
    Recording,
)


@dataclass(frozen=True, slots=True)
class RecordedResult:
    """The result of a call."""

    text: str
    is_error: bool = False
    at: float | None = None
    ref: str = ""  # as in RecordedCall
    recalls: str = ""
    files: tuple[str, ...] = ()


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    input: JsonObject
    result: RecordedResult | None


@dataclass(slots=True)
class RecordedReplyDraft:
    """A reply that can still grow."""

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
    """The parts of a recorded session that were read so far."""

    steps: list[RecordedMessage | RecordedReplyDraft | RecordedCompaction] = field(
        default_factory=list
    )
    system: str = ""  # the first recorded system prompt
    cwd: str = ""  # the first recorded working directory
    skipped: int = 0  # items of the wrong type
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
        """Add a message to the model, unless it is blank."""
        if text.strip():
            self.steps.append(RecordedMessage(text, at, mid_turn, by_client, is_summary))

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
        """Add a compaction and, if recorded, its summary as a message. `kept` and `keeps_words` are
        as in `RecordedCompaction`.
        """
        self.steps.append(RecordedCompaction(at, kept, keeps_words))
        self._open.clear()
        self.add_words(summary, at, is_summary=True)

    def objects(self, value: Any) -> list[JsonObject]:
        """Return the objects in a list; count its other items as skipped."""
        found = [item for item in as_list(value) if isinstance(item, dict)]
        self.skipped += len(as_list(value)) - len(found)
        return found

    def draft_reply(
        self, key: Hashable, at: float | None = None, model: Any = None
    ) -> RecordedReplyDraft:
        """Return the draft with this key, or a new draft if there is none since the last
        compaction. `at` is the time of the newest part.
        """
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
        """Add a call to a reply. `result` is given if the file has call and result in one place;
        the call then needs no ID.
        """
        own = id if isinstance(id, str) else ""
        if isinstance(name, str) and name and (own or result):
            draft.calls.append(_Call(own or "call", name, given, result))
        else:
            self.skipped += 1

    def add_block(self, draft: RecordedReplyDraft, block: JsonObject) -> None:
        """Add a text or a call in the format of the Messages API."""
        if block.get("type") == "text":
            draft.add_text(as_text(block.get("text")))
        elif block.get("type") == "tool_use":
            self.add_call(draft, block.get("id"), block.get("name"), as_object(block.get("input")))

    def add_result(self, id: Any, result: RecordedResult) -> None:
        """Add the result of a call; the call may be added before or after it."""
        if isinstance(id, str) and id:
            self._results.setdefault(id, deque()).append(result)
        else:
            self.skipped += 1

    def build(self, name: str, format: str, skipped: int) -> Recording:
        """Return the recording; `skipped` is the number of lines skipped by the file's reader.

        Results are matched to calls with the same ID in file order; repeated IDs are made unique.
        Replies without text and calls are dropped, as they add nothing to the context.
        """
        taken: dict[str, int] = {}
        steps: list[RecordedStep] = []
        sizes = [0]  # length of `steps` before each item of self.steps
        for step in self.steps:
            if isinstance(step, RecordedCompaction):
                kept = len(steps) - sizes[max(0, len(sizes) - 1 - step.kept)]
                steps.append(replace(step, kept=kept))
            elif isinstance(step, RecordedMessage):
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
            files=result.files,
        )


@dataclass(frozen=True, slots=True)
class ForeignFormat:
    """A recording format from an extension. Its methods raise UsageError if the reader fails."""

    name: str
    reader: Any

    def recognizes(self, row: JsonObject) -> bool:
        """Return True if the extension recognizes the row."""
        return bool(self._call(self.reader.recognizes, row))

    def read(self, rows: Iterable[JsonObject]) -> TranscriptBuilder:
        """Return the transcript that the extension reads from the rows."""
        found = self._call(self.reader.read, rows)
        if isinstance(found, TranscriptBuilder):
            return found
        raise UsageError(
            f"the format {self.name} of an extension gives no TranscriptBuilder",
            hint="Correct the extension; `ctxagent guide extensions` has an example.",
        )

    def _call(self, function: Callable[[Any], Any], given: Any) -> Any:
        with foreign_code() as problems:
            return function(given)
        raise UsageError(
            f"the format {self.name} of an extension failed: {problems[0]}",
            hint="Correct the extension, or start with --safe.",
        )


ADDED_FORMATS: dict[str, ForeignFormat] = {}  # of extensions, by name


def add_format(name: str, reader: Any) -> None:
    """Register a format from an extension. `reader` has the functions `recognizes` and `read`, like
    `ctxagent.addons.replay.formats.pi`.
    """
    ADDED_FORMATS.setdefault(name, ForeignFormat(name, reader))
