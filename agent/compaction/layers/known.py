"""The layers of the product, in the order in which they act. Extensions add theirs."""

from collections.abc import Iterable
from typing import Any

from ....tools.system.phrasing import shorten
from ...lazy import regex
from ...session.entries import SUMMARY
from .by_user import DropItems, RestoreItems, SummarizeSpan
from .clear import ClearResults
from .layer import NO_PASS, Layer, LayerState, Pass, RefusedPart
from .move import MoveResults
from .short_outline import OutlineCalls
from .truncate import TruncateInputs

_NAME = regex(r"[a-z][a-z0-9-]*")


class Summarize(Layer):
    """The summary. `engine` decides when it is made."""

    name, word = SUMMARY.logged, SUMMARY.word
    nouns = ("old message", "old messages")
    done = ("summary", "summary")
    title = "Summarisations performed"
    tier = "TIER_3"
    mark = '<path d="M0 -7L6 0L0 7L-6 0Z" fill="var(--act)"/>'


class DropThinking(Layer):
    """Leaves out the thinking of all replies so far, after the server refused it."""

    name = "thinking"
    nouns = ("reply", "replies")
    done = ("without thinking", "without thinking")

    def refused(self, state: LayerState, refusal: RefusedPart) -> Pass:
        if refusal.part != "thinking":
            return NO_PASS
        found = [{"seq": item.seq, "thinking": False} for item in state.view.thinking_items()]
        return found, refusal.message


LAYERS: tuple[type[Layer], ...] = (
    MoveResults, ClearResults, TruncateInputs, OutlineCalls, Summarize, DropThinking,
    DropItems, RestoreItems, SummarizeSpan,
)  # fmt: skip
_OWN = {each.name: each for each in LAYERS}
_known = {**_OWN}


def ordered(names: Iterable[str]) -> list[str]:
    """Return the names of layers in the order in which they are shown, each once."""
    found = dict.fromkeys(names)
    return [*(name for name in _known if name in found), *(n for n in found if n not in _known)]


def known_layers() -> list[type[Layer]]:
    """Return all loaded layers, in the order in which they are shown."""
    return [*_known.values()]


def layer_named(name: str) -> type[Layer]:
    """Return a layer. For a layer that is not loaded, return one that has only its name."""
    return _known.get(name) or type("UnknownLayer", (Layer,), {"name": name})


def word_for(name: str) -> str:
    """Return the word for a layer that has this name in the log."""
    return layer_named(name).word or name


def done_by(name: str, count: int) -> str:
    """Return the effect of one pass of a layer, e.g. "3 old results cleared"."""
    return layer_named(name).done_by(count)


def add_layer(kind: Any) -> None:
    """Register a layer of an extension. Raises TypeError or ValueError if it cannot be used."""
    if not (isinstance(kind, type) and issubclass(kind, Layer)):
        raise TypeError(f"{shorten(repr(kind), 80)} in layers must be a subclass of Layer")
    if kind.name in _OWN or not _NAME.fullmatch(str(kind.name)):
        raise ValueError(f"{kind.name!r} cannot be the name of a layer: it is taken or not a word")
    known = ", ".join(each.word or each.name for each in LAYERS)
    if kind.before and not any(each.is_called(kind.before) for each in LAYERS):
        raise ValueError(f"the layer {kind.name} is before {kind.before!r}, not one of {known}")
    _known[kind.name] = kind
