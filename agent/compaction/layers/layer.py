"""The class of a layer: one way to make the context smaller.

A layer owns its name, the words and the mark that are shown for it, its plan, and what break-even
needs to know. `apply.LayerRunner` calls the layers of the product and of extensions alike, in
order. `known` lists them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar, Literal

from ....tools.offered import Offered
from ....tools.system.phrasing import count_of
from ...context import tokens
from ...context.items import ViewResult
from ...context.view import View
from ...context.window import Window
from ...lazy import dataclass
from ..host import EngineHost
from ..policy import Policy, clearing_trigger
from .break_even import DueMask
from .later_calls import input_ages

WITH_SUMMARY = "with the summary"  # trigger of masks made together with an automatic summary
FOREIGN = "a layer of an extension"  # trigger

Pass = tuple[list[dict[str, Any]], str]  # the targets of a mask, and its trigger
NO_PASS: Pass = ([], "")


@dataclass(frozen=True, slots=True)
class Clear:
    """A result in the view, and the short text that replaces it."""

    result: ViewResult
    text: str


@dataclass(frozen=True, slots=True)
class LayerState:
    """The state of a conversation in which a layer plans."""

    host: EngineHost
    policy: Policy
    window: Window  # how full it is

    @property
    def view(self) -> View:
        """The messages for the model."""
        return self.host.view

    @property
    def offered(self) -> Offered:
        """The tools of the conversation; texts for the model name only these."""
        return self.host.offered


@dataclass(frozen=True, slots=True)
class RefusedPart:
    """A part of the context that a server refused."""

    part: Literal["images", "thinking"]
    message: str  # of the server, or the reason to show
    every: bool = True  # leave out all of them; False: choose by the message
    only_unseen: bool = False  # choose only what is new in this request


class Layer:
    """One way to make the context smaller. Each conversation has its own object.

    A layer of an extension sets `name` and overrides `plan`. With `need_chance`, break-even decides
    when its replacements pay. Without it, they are made before the next model call.
    """

    name: ClassVar[str] = ""  # in the log
    word: ClassVar[str] = ""  # in reports; "": the name
    nouns: ClassVar[tuple[str, str]] = ("result", "results")  # what it changes: one, several
    done: ClassVar[tuple[str, str]] = ("", "")  # its effect on one and on several, e.g. "cleared"
    title: ClassVar[str] = ""  # row of the status report
    tier: ClassVar[str] = ""  # in the compression log
    gate: ClassVar[str] = ""  # in its triggers
    mark: ClassVar[str] = '<circle r="4" fill="none" stroke="var(--s4)" stroke-width="2"/>'  # SVG
    off: ClassVar[tuple[str, ...]] = ()  # the settings that switch it off
    before: ClassVar[str] = ""  # the name of the layer that it precedes
    joins: ClassVar[bool] = False  # its masks include those of other layers and move the state
    moves_files: ClassVar[bool] = False  # its stubs name files
    by_user: ClassVar[bool] = False  # the user asks for each mask, and each is undone alone

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        """`settings` has the values of the settings that the extension declares."""
        self.settings = settings or {}
        self.guard: Callable[[], AbstractContextManager[Any]] = nullcontext  # around foreign code

    @classmethod
    def is_called(cls, name: str) -> bool:
        """Return True if this is the layer's word, or its name in the log."""
        return bool(name) and name in (cls.word, cls.name)

    @classmethod
    def heading(cls) -> str:
        """Return the effect as a heading, e.g. "cleared"."""
        return cls.done[1] or f"cleared by {cls.name}"

    @classmethod
    def done_by(cls, count: int) -> str:
        """Return the effect of one pass, e.g. "3 old results cleared". It is also shown when the
        pass is undone.
        """
        return f"{count_of(count, *cls.nouns)} {cls.done[count != 1] or cls.heading()}"

    def plan(self, state: LayerState) -> Sequence[Clear]:
        """Return the results to clear. Must not change anything."""
        return ()

    def need_chance(self, result: ViewResult, age: int) -> float:
        """Return the chance that a result is needed after it was cleared. `age` is the number of
        replies since its call.
        """
        return 0.0

    def price(self, clear: Clear) -> float:
        """Return what a replacement costs in addition to the rewrite, in input tokens."""
        return 0.0

    def first(self, state: LayerState) -> Pass:
        """Return what must be masked before anything else, in every mode."""
        return NO_PASS

    def now(self, state: LayerState) -> Pass:
        """Return what to mask at this call without asking break-even."""
        trigger = clearing_trigger(state.policy, state.window) if self._pays else FOREIGN
        targets = [{**each.target} for each in self._masks(state)] if trigger else []
        return targets, trigger

    def due(self, state: LayerState, due: Sequence[DueMask]) -> list[DueMask]:
        """Return the masks of the layers before, with the masks of this layer that may be applied
        when they pay.
        """
        return with_alternatives(due, self._masks(state) if self._pays else ())

    def targets(self, state: LayerState, due: Sequence[DueMask]) -> list[dict[str, Any]]:
        """Return the targets of the due masks that are applied."""
        return [{**each.target} for each in due]

    def to_fit(self, state: LayerState, *, answered_only: bool) -> list[dict[str, Any]]:
        """Return the targets of all masks that are possible, when nothing else fits. With
        `answered_only`, keep what the model has not answered.
        """
        return []

    def refused(self, state: LayerState, refusal: RefusedPart) -> Pass:
        """Return what to leave out after a server refused it."""
        return NO_PASS

    def oldest_clearable(self, state: LayerState) -> int | None:
        """Return the seq of the oldest entry that may be masked now or later; None if unknown."""
        return None

    def is_silent(self, policy: Policy) -> bool:
        """Return True if a pass emits no event for the user."""
        return False

    @property
    def _pays(self) -> bool:
        """True if break-even decides about this layer."""
        return type(self).need_chance is not Layer.need_chance

    def _masks(self, state: LayerState) -> list[DueMask]:
        """Return the planned masks: each result in the view once, if that makes it smaller."""
        view, found = state.view, list[DueMask]()
        with self.guard():
            planned = {each.result.call.id: each for each in map(self._checked, self.plan(state))}
            ages = input_ages(view) if planned else {}
            for result in view.results() if planned else ():
                clear = planned.get(result.call.id)
                if clear is None or result.masked or result.call.id in view.unmasked_calls:
                    continue
                saved = result.size - tokens.RESULT_FRAME - tokens.estimate(clear.text)
                if saved > 0:
                    chance = float(self.need_chance(result, ages.get(result.call.id, 0)))
                    price, target = float(self.price(clear)), stub_target(result, clear.text)
                    mask = DueMask(self.name, target, view.scaled(saved), chance, price=price)
                    found.append(mask)
        return found

    def _checked(self, clear: Any) -> Clear:
        if isinstance(clear, Clear) and isinstance(clear.text, str):
            return clear
        raise TypeError(f"the layer {self.name} must give Clear(RESULT, TEXT), not {clear!r:.80}")


def stub_target(result: ViewResult, text: str) -> dict[str, Any]:
    """Return the target of a mask that replaces a result by a text."""
    return {"seq": result.item.seq, "tool_use_id": result.call.id, "stub": text}


def with_alternatives(due: Sequence[DueMask], own: Sequence[DueMask]) -> list[DueMask]:
    """Add the masks of a layer. Of several masks for one result, each is a part of the next larger
    one, so that break-even chooses between them.
    """
    found = {each.id: each for each in due}
    by_call = {each.target["tool_use_id"]: each for each in due if "stub" in each.target}
    for mask in own:
        largest, call = mask, mask.target["tool_use_id"]
        if (other := by_call.get(call)) is not None:
            del found[other.id]
            parts: tuple[DueMask, ...] = ()
            for each in sorted((mask, *other.all), key=lambda each: each.saved):
                parts = (replace(each, parts=parts),)
            (largest,) = parts
        by_call[call] = found[largest.id] = largest
    return [*found.values()]
