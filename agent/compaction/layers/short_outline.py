"""Short outline: old outlines become one line per run of like calls.

An outline has a line for each call, so in a session of thousands of calls the outlines fill the
window. A short outline replaces the outlines of calls that are `MIN_AGE` replies old. It keeps all
texts of the agent. Each run of calls of one tool gets one line with the number of calls and
failures, the programs and files, and the refs. The telling lines of each failure follow.

After `OLDEST_AGE` replies, a list of steps replaces the short outline: the first sentence of each
text of the agent, and the calls of each tool until the next other sentence, with the files that
they changed. `plan` is pure; `break_even` decides when a shorter form pays.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from itertools import groupby
from typing import Any

from ....tools.offered import EVERY, Offered, Phrase
from ....tools.system.phrasing import shorten
from ....tools.system.unicode import replace_unprintable, replace_unprintable_but_tabs
from ...context import tokens
from ...context.items import Item, ViewResult
from ...context.view import View
from ...lazy import dataclass, regex
from ...session.entries import OUTLINE
from . import outline
from .break_even import DueMask
from .clear import kept_lines
from .later_calls import CHANGING_TOOLS, CURVES, ended_in_error, input_curve, told_call
from .layer import Layer, LayerState
from .outline import SAID_PREFIX, FinishedCache, FinishedCalls

MIN_AGE = 80  # replies that came after the newest exchange of an outline
OLDEST_AGE = 400  # likewise, for the list of steps
MIN_SAVED = 40  # unscaled tokens that a short outline of one outline must save
HEADER = "[Older calls in brief; #N has the whole result]"
_OLDEST: Phrase = (
    "[Oldest steps; {Recall} #N has each in full]",
    "[Oldest steps; #N has each in full]",
)
OLDEST_HEADER = EVERY.say(_OLDEST)
_OLDEST_MARK = OLDEST_HEADER.partition(";")[0]
_MAX_SENTENCE_CHARS = 120  # of the first sentence of a text
_MAX_ARGUMENT_CHARS = 40  # of the argument of each call; a path is whole
_MAX_ARGUMENTS_CHARS = 160  # of all arguments of a run of calls that change no file
_LISTED_REFS = 3  # a longer run gives the first and the last ref

_SENTENCE = regex(r"(?:\d+[.)] +)?\S.*?(?:[.!?:](?=\s|$)|$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Outlined:
    """The exchanges that one outline replaces, and what a shorter form of it saves."""

    exchanges: tuple[FinishedCalls, ...]
    header: str  # of the shorter form
    saved: int  # unscaled tokens

    @property
    def calls(self) -> list[str]:
        return [id for exchange in self.exchanges for id in exchange.target["calls"]]


@dataclass(slots=True)
class ShortOutlineCache:
    """The savings of shorter forms of a view's outlines, by the seq of the item that has the
    outline and the header of the form. They are dropped when the view is rebuilt."""

    view: View | None = None
    outlines: dict[tuple[int, str], _Outlined | None] = field(default_factory=dict)

    def find(
        self, view: View, items: Sequence[Item], header: str, known: FinishedCache
    ) -> _Outlined | None:
        """Return the outline of these items; None if the form would not save enough."""
        if self.view is not view:
            self.view, self.outlines = view, {}
        key = items[-1].seq, header
        if key not in self.outlines:
            self.outlines[key] = _outlined(view, items, header, known)
        return self.outlines[key]


def plan(view: View, known: FinishedCache, known_short: ShortOutlineCache) -> list[DueMask]:
    """Return a mask for each outline that a shorter form may replace."""
    replies = sum(item.role == "assistant" for item in view.items)
    due: list[DueMask] = []
    for items, last_reply in _outlines(view):
        age = replies - last_reply
        if age < MIN_AGE:
            break
        header, now = OLDEST_HEADER if age >= OLDEST_AGE else HEADER, items[-1].outline or ""
        if now.startswith((header, _OLDEST_MARK)):
            continue
        found = known_short.find(view, items, header, known)
        if found is None or not view.unmasked_calls.isdisjoint(found.calls):
            continue
        stays = 1.0
        for exchange in found.exchanges:
            stays *= 1 - _need_chance(exchange, age)
        first = found.exchanges[0].target
        target = {
            "seq": first["seq"],
            "tool_use_id": first["tool_use_id"],
            "outlined": (items[-1].seq, header),
        }
        due.append(DueMask(OUTLINE.logged, target, view.scaled(found.saved), 1 - stays))
    return due


def targets(
    view: View,
    due: Sequence[DueMask],
    known_short: ShortOutlineCache,
    offered: Offered = EVERY,
) -> list[dict[str, Any]]:
    """Return the mask targets of the outlines that are due, one for each call. The last call of
    neighbouring outlines of one form gets the text for all of them."""
    out: list[dict[str, Any]] = []
    run: list[FinishedCalls] = []
    end, header = -1, ""
    for each in sorted(due, key=lambda each: each.seq):
        found = known_short.outlines.get(each.target["outlined"])
        place = view.position(each.seq)
        if found is None or place is None:
            continue
        if run and (place, found.header) != (end, header):
            out[-1]["outline"] = _text_of(run, header, offered)
            run = []
        run += found.exchanges
        header = found.header
        end = place + sum(1 + len(exchange.results) for exchange in found.exchanges)
        account = {k: each.target[k] for k in ("need_chance", "read_for") if k in each.target}
        for exchange in found.exchanges:
            reply = exchange.target["seq"]
            for result in exchange.results:
                ids = {"seq": result.item.seq, "tool_use_id": result.call.id, "reply": reply}
                out.append({**ids, "outline": "", **account})
    if run:
        out[-1]["outline"] = _text_of(run, header, offered)
    return out


def _text_of(exchanges: Sequence[FinishedCalls], header: str, offered: Offered = EVERY) -> str:
    if header == OLDEST_HEADER:
        return list_of_steps(exchanges, offered)
    return short_outline_of(exchanges)


def short_outline_of(exchanges: Sequence[FinishedCalls]) -> str:
    """Return the text that replaces the outlines of these exchanges."""
    lines = [HEADER]
    run: list[ViewResult] = []
    for exchange in exchanges:
        if exchange.said:
            lines += _lines_of(run)
            lines += [f"{SAID_PREFIX}{text}" for text in exchange.said]
            run = []
        run += exchange.results
    return "\n".join([*lines, *_lines_of(run)])


def list_of_steps(exchanges: Sequence[FinishedCalls], offered: Offered = EVERY) -> str:
    """Return the shortest text for these exchanges: a line for each step. A step is a first
    sentence of the agent, with the calls until the next other sentence.
    """
    lines = [offered.say(_OLDEST)]
    step, calls = "", list[ViewResult]()
    for exchange in exchanges:
        sentence = _first_sentence(exchange.said)
        if sentence and sentence != step:
            lines += _step_lines(step, calls)
            step, calls = sentence, []
        calls += exchange.results
    return "\n".join([*lines, *_step_lines(step, calls)])


def _step_lines(sentence: str, results: Sequence[ViewResult]) -> Iterator[str]:
    """Yield the line of a step, if it has calls: what was said, the calls of each tool, the files
    that they changed, and the commands that failed.
    """
    if not results:
        return
    told = []
    for name, calls in _by_tool(results):
        failures = [each for each in calls if ended_in_error(each)]
        shown = calls if name in CHANGING_TOOLS else failures if name == "Bash" else []
        subjects = dict.fromkeys(_subject(each) for each in shown)
        count = f"{name} ×{len(calls)}" if len(calls) > 1 else name
        failed = f"({len(failures)} failed)" if failures else ""
        told.append(" ".join(filter(None, (count, failed, "; ".join(subjects)))))
    said = f"{SAID_PREFIX}{sentence} ·" if sentence else ""
    shown_line = " ".join(filter(None, (said, ", ".join(told), *_refs(results))))
    yield replace_unprintable(shown_line)
    yield from _failure_lines(each for each in results if ended_in_error(each))


def _by_tool(results: Sequence[ViewResult]) -> list[tuple[str, list[ViewResult]]]:
    found: dict[str, list[ViewResult]] = {}
    for result in results:
        found.setdefault(result.call.name, []).append(result)
    return [*found.items()]


def _first_sentence(said: Sequence[str]) -> str:
    found = _SENTENCE.search("\n".join(said))
    return shorten(found[0], _MAX_SENTENCE_CHARS) if found else ""


def _refs(results: Sequence[ViewResult]) -> list[str]:
    """Return the refs of a run of results; of a long run, the first and the last."""
    refs = [f"#{result.item.seq}" for result in results]
    return [refs[0], "to", refs[-1]] if len(refs) > _LISTED_REFS else refs


def _lines_of(results: Sequence[ViewResult]) -> Iterator[str]:
    """Yield a line for each run of calls of one tool, and the telling lines of failures."""
    for tool, calls in groupby(results, key=lambda result: result.call.name):
        run = list(calls)
        failures = [each for each in run if ended_in_error(each)]
        name = f"{tool} ×{len(run)}" if len(run) > 1 else tool
        if failures:
            name += " (failed)" if len(failures) == len(run) else f" ({len(failures)} failed)"
        shown = _listed(dict.fromkeys(map(_subject, run)), tool in CHANGING_TOOLS)
        yield replace_unprintable(" ".join(filter(None, (f"{name}:", shown, *_refs(run)))))
        yield from _failure_lines(failures)


def _failure_lines(failures: Iterable[ViewResult]) -> Iterator[str]:
    """Yield the telling lines of failures, each once."""
    for line in dict.fromkeys(line for each in failures for line in kept_lines(each)):
        yield f"  | {replace_unprintable_but_tabs(line)}"


def _listed(subjects: Iterable[str], every: bool) -> str:
    """Join the subjects of a run of calls. Without `every`, those beyond the limit are counted."""
    left = [each for each in subjects if each]
    shown, used = list[str](), 0
    while left and (every or not shown or used + len(left[0]) <= _MAX_ARGUMENTS_CHARS):
        used += len(left[0])
        shown.append(left.pop(0))
    return "; ".join([*shown, *([f"{len(left)} more"] if left else [])])


def _outlines(view: View) -> Iterator[tuple[list[Item], int]]:
    """Yield the items that each outline replaces, oldest first, and how many replies the view has
    up to the last of them."""
    items: list[Item] = []
    replies = 0
    for item in view.items:
        replies += item.role == "assistant"
        if item.outline is None:
            items = []
            continue
        items.append(item)
        if item.outline:
            yield items, replies
            items = []


def _outlined(
    view: View, items: Sequence[Item], header: str, known: FinishedCache
) -> _Outlined | None:
    exchanges = [known.find(view, item) for item in items if item.role == "assistant"]
    found = tuple(exchange for exchange in exchanges if exchange is not None)
    if not found or len(found) < len(exchanges):
        return None
    size = tokens.estimate_block({"type": "text", "text": _text_of(found, header)})
    saved = sum(item.size for item in items) - size
    return _Outlined(found, header, saved) if saved >= MIN_SAVED else None


def _subject(result: ViewResult) -> str:
    """Return the program or the file of a call."""
    return told_call(result, _MAX_ARGUMENT_CHARS, short=True)


def _need_chance(exchange: FinishedCalls, age: int) -> float:
    """Return the chance that what a short outline leaves out of an exchange is needed again."""
    stays = 1.0
    for result, line in zip(exchange.results, exchange.lines, strict=True):
        stays *= 1 - input_curve(result.call).at(age)
        if line.shows_result:
            stays *= 1 - CURVES["command"].at(age)
    return 1 - stays


class OutlineCalls(Layer):
    """Replaces old, finished calls and their results with one line each, then with fewer."""

    name, word = OUTLINE.logged, OUTLINE.word
    nouns = ("old call", "old calls")
    done = ("outlined", "outlined")
    title = "Tool calls outlined"
    tier = "TIER_2"
    mark = (
        '<path d="M-5 -4H5M-5 0H5M-5 4H2" fill="none" stroke="var(--s6)" stroke-width="2" '
        'stroke-linecap="round"/>'
    )
    joins = True

    def __init__(self) -> None:
        super().__init__()
        self._finished, self._short = FinishedCache(), ShortOutlineCache()

    def due(self, state: LayerState, due: Sequence[DueMask]) -> list[DueMask]:
        if not state.policy.outline:
            return [*due]
        shorter = plan(state.view, self._finished, self._short)
        return [*shorter, *outline.plan(state.view, state.policy, due, self._finished)]

    def targets(self, state: LayerState, due: Sequence[DueMask]) -> list[dict[str, Any]]:
        old = [each for each in due if "outlined" in each.target]
        new = [each for each in due if "outlined" not in each.target]
        found = targets(state.view, old, self._short, state.offered)
        return found + outline.targets(state.view, new, self._finished)
