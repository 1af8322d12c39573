"""What a format's rows come to: words, replies and compactions in their order, and results by the
id of their call. A reader adds as it goes; `recording` then puts every result into its call, so
that each call is answered inside its reply, wherever in the file the result stood.
"""

from collections import Counter, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from ..recording import UNANSWERED, Call, Compacted, Recording, Reply, Step, Words
from .parts import items


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a call."""

    text: str
    is_error: bool = False
    at: float | None = None


@dataclass(slots=True)
class _Asked:
    id: str
    name: str
    input: dict[str, Any]
    result: Result | None


@dataclass(slots=True)
class Draft:
    """A reply that more may still be added to. `prompt` and `output` are its true tokens, 0 for
    unknown."""

    at: float | None = None
    prompt: int = 0
    output: int = 0
    texts: list[str] = field(default_factory=list)
    asked: list[_Asked] = field(default_factory=list)

    def say(self, text: str) -> None:
        if text.strip():
            self.texts.append(text)


@dataclass(slots=True)
class Transcript:
    """`system` is the first prompt that was recorded; `skipped` counts items of the wrong shape."""

    steps: list[Words | Draft | Compacted] = field(default_factory=list)
    system: str = ""
    skipped: int = 0
    notes: list[str] = field(default_factory=list)
    _models: Counter[str] = field(default_factory=Counter)
    _open: dict[Hashable, Draft] = field(default_factory=dict)
    _results: dict[str, deque[Result]] = field(default_factory=dict)

    def say(self, text: str, at: float | None = None) -> None:
        """Words to the model; blank ones are none."""
        if text.strip():
            self.steps.append(Words(text, at))

    def instruct(self, text: str) -> None:
        """The system prompt."""
        self.system = self.system or text * bool(text.strip())

    def compact(self, at: float | None = None, summary: str = "") -> None:
        """The agent compacted; its summary, where the file has it, are words like any other."""
        self.steps.append(Compacted(at))
        self._open.clear()
        self.say(summary, at)

    def objects(self, value: Any) -> list[dict[str, Any]]:
        """The objects of a list; what else it has is of the wrong shape."""
        found = [item for item in items(value) if isinstance(item, dict)]
        self.skipped += len(items(value)) - len(found)
        return found

    def reply(self, key: Hashable, at: float | None = None, model: Any = None) -> Draft:
        """The reply of this key, a new one where there is none since the last compaction. `at` is
        when its newest part came."""
        draft = self._open.get(key)
        if draft is None:
            draft = self._open[key] = Draft()
            self.steps.append(draft)
            if isinstance(model, str) and model:
                self._models[model] += 1
        draft.at = at if at is not None else draft.at
        return draft

    def ask(
        self, draft: Draft, id: Any, name: Any, given: dict[str, Any], result: Result | None = None
    ) -> None:
        """A call in a reply; `result` where the file has it in the same place. Then it needs no id,
        for nothing has to be found by it."""
        own = id if isinstance(id, str) else ""
        if isinstance(name, str) and name and (own or result):
            draft.asked.append(_Asked(own or "call", name, given, result))
        else:
            self.skipped += 1

    def answer(self, id: Any, result: Result) -> None:
        """The result of a call, which may stand before or after it."""
        if isinstance(id, str) and id:
            self._results.setdefault(id, deque()).append(result)
        else:
            self.skipped += 1

    def recording(self, name: str, format: str, skipped: int) -> Recording:
        """All of it; `skipped` are what the file had besides. Results go to the calls of their id
        in order, and calls whose id came before get another one. A reply with neither text nor
        call is none: it leaves nothing in the context."""
        taken: dict[str, int] = {}
        steps: list[Step] = []
        for step in self.steps:
            if not isinstance(step, Draft):
                steps.append(step)
            elif step.texts or step.asked:
                calls = tuple(self._call(asked, taken) for asked in step.asked)
                text = "\n\n".join(step.texts)
                counts = step.prompt or None, step.output or None
                steps.append(Reply(text, calls, step.at, *counts))
        return Recording(
            name=name,
            format=format,
            steps=tuple(steps),
            model=next((model for model, _ in self._models.most_common(1)), None),
            system=self.system,
            skipped=skipped + self.skipped,
            orphans=sum(map(len, self._results.values())),
            notes=tuple(self.notes),
        )

    def _call(self, asked: _Asked, taken: dict[str, int]) -> Call:
        waiting = self._results.get(asked.id)
        result = asked.result or (waiting.popleft() if waiting else None)
        id = asked.id
        while id in taken:
            taken[asked.id] += 1
            id = f"{asked.id}_{taken[asked.id]}"
        taken[id] = 1
        if result is None:
            return Call(id, asked.name, asked.input, UNANSWERED, answered=False)
        return Call(id, asked.name, asked.input, result.text, result.is_error, at=result.at)
