"""Clear: replace the content of old results with stubs.

The call and the structure stay. A stub names the call, its outcome and where the full text is.
`plan` only reads the view; `break_even` decides when to clear. Images beyond the limits of a
request are cleared at once.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from ....tools.recall import MAX_CHARS
from ....tools.system.phrasing import shorten
from ....tools.system.unicode import replace_unprintable
from ...context import tokens
from ...context.items import ViewResult
from ...context.view import View
from ...lazy import dataclass
from ...session.archive import RECALLED
from ...session.command_output import lines_of as output_lines
from ...session.command_output import printed_lines, telling_lines
from ...session.entries import CLEAR
from ...session.searches import FOUND, listing
from ..policy import Policy, clearing_trigger
from . import images
from .break_even import DueMask
from .images import MAX_ARGUMENT_CHARS
from .later_calls import Fate, SeenNeeds, ended_in_error, failed, fates_of, lines_of, seen_needs
from .layer import (
    NO_PASS,
    Layer,
    LayerState,
    Pass,
    RefusedPart,
    stub_target,
    with_alternatives,
)

MAX_LISTING_CHARS = 2_000  # of titles and addresses, in the stub of a web search
MAX_OFFSETS = 4  # named in a stub, of the pages of `recall`
MAX_ERROR_LINES = 5  # in the stub of a failed call's result
MAX_ERROR_LINE_CHARS = 120
MAX_LAST_LINE_CHARS = 60  # of a command that succeeded, in the stub of its result
# Key in a result's details: the session file with the result's text, for models without the
# Recall tool.
KEPT_IN = "kept_in"
# Key in a result's details: true if the model cannot read this file, so that stubs do not name it.
BY_REF = "by_ref"

_TOOL_CATEGORIES = {  # possible categories of a tool's results, in addition to "tool_results"
    "Bash": {"debug_output", "intermediate_outputs"},
    "Grep": {"intermediate_outputs"},
    "Glob": {"intermediate_outputs"},
    "Read": {"redundant_reads"},
}


@dataclass(slots=True)
class Stub:
    """The text that replaces a result. The number of tokens is inserted at each use, since it
    changes with each reply.
    """

    head: str
    tail: str | None  # text after the number; None for a stub without a number
    _sizes: dict[int, int] = field(default_factory=dict)  # estimated tokens, by number of digits

    def text(self, tokens: int) -> str:
        return self.head if self.tail is None else f"{self.head}{tokens:,}{self.tail}"

    def size(self, replaced: int) -> int:
        """Return the text's estimated tokens. Numbers of the same length share one estimate."""
        length = len(f"{replaced:,}")
        if length not in self._sizes:
            self._sizes[length] = tokens.estimate(self.text(replaced))
        return self._sizes[length]


# By seq and call ID of a result, and the entry that superseded it.
StubCache = dict[tuple[int, str, int | None], Stub]


def plan(
    view: View, policy: Policy, folder: str = "", known: StubCache | None = None
) -> list[DueMask]:
    """Return all results that are due for clearing, oldest first.

    A result is due if its tool is in `clear_tools`, it has more than `clear_above` tokens, and the
    preserve rules allow it. The newest `clear_keep` results and unanswered results are never due.
    `folder` is the session's folder, for stubs of offloaded results. `known` caches the session's
    stubs between calls.
    """
    known = {} if known is None else known
    results = _all_results(view)
    clearable = [result for result in results if _clearable(result, view, policy)]
    if not clearable:
        return []
    fates = fates_of(view)
    kept = _newest_kept_seqs(results, policy, fates) | _unanswered_seqs(view)
    seen = seen_needs(results, fates)
    return [
        DueMask(CLEAR.logged, target, view.scaled(saved), _need_chance(result, fate, seen))
        for result in clearable
        if result.item.seq not in kept and _permitted(result, fate := fates[result.call.id], policy)
        for target, saved in _target_with_saving(
            result, view, _known_stub(known, result, folder, fate, brief=policy.brief_reads)
        )
    ]


def plan_all(view: View, folder: str = "", *, answered_only: bool) -> list[dict[str, Any]]:
    """Return targets for every result that a stub makes smaller, of any tool and age. Used when the
    context does not fit. With `answered_only`, skip results that the model has not answered.
    """
    paused = {view.items[-1].seq} if view.items and view.items[-1].role == "assistant" else set()
    kept = _unanswered_seqs(view) if answered_only else paused
    return [
        target
        for result in _all_results(view)
        if not result.masked and result.item.seq not in kept
        for target, _ in _target_with_saving(result, view, stub(result, folder))
    ]


def _need_chance(result: ViewResult, fate: Fate, seen: SeenNeeds) -> float:
    """Return the chance that a result is needed after it was cleared. A text that was given back is
    cleared only when keeping it has cost as much as giving it back once more.
    """
    if RECALLED in result.details and fate.repeated_by is None:
        return 1.0
    return seen.chance(fate, result.call)


def oldest_clearable(view: View, policy: Policy) -> int | None:
    """Return the seq of the oldest result that `plan` may clear now or later, else None."""
    if policy.clear_when == "off":
        return None
    found = (r.item.seq for r in _all_results(view) if _clearable(r, view, policy))
    return next(found, None)


def _all_results(view: View) -> list[ViewResult]:
    """Return the results of calls and of web searches, oldest first."""
    return sorted([*view.results(), *view.searches()], key=lambda result: result.item.seq)


def _unanswered_seqs(view: View) -> set[int]:
    """Return the seqs of the results that the model has not answered yet, and of the newest reply,
    whose searches may still be running.
    """
    newest = (item.seq for item in reversed(view.items) if item.role == "assistant")
    return _seqs(view.unanswered_results()) | {next(newest, 0)}


def _known_stub(
    known: StubCache, result: ViewResult, folder: str, fate: Fate, *, brief: bool
) -> Stub:
    key = (result.item.seq, result.call.id, fate.superseded_by)
    if key not in known:
        known[key] = stub(result, folder, fate, brief=brief)
    return known[key]


def stub(
    result: ViewResult,
    folder: str = "",
    fate: Fate | None = None,
    *,
    brief: bool = False,
    act: str = "compacted",
) -> Stub:
    """Return the stub of a result: tool, main argument, outcome, size and where the full text is.

    With a `fate`, the stub has the `kept_lines`. With `brief`, the stub of a superseded file page
    has only the path, the lines and the newer entry. `act` is what happened to the tokens.
    """
    where = f"#{result.item.seq}"
    if KEPT_IN in result.details:  # the ref must name the session: a server may have several
        where = f"{folder.rpartition('/')[2]}{where}"
    kept = result.offloaded or result.details.get(KEPT_IN)
    if kept and not result.details.get(BY_REF):
        where += f", or {folder}/{kept}" if folder else f", or {kept}"
    if KEPT_IN in result.details and isinstance(size := result.details.get("characters"), int):
        where += f" · {recall_pages(size)}"
    name, argument = result.call.name, shorten(result.call.argument, MAX_ARGUMENT_CHARS)
    if result.block.get("type") == FOUND:
        what = f"full text: {where} · titles and addresses are data"
        more = [shorten(listing(result.block), MAX_LISTING_CHARS)]
    else:
        what = f"{where} shows it again" if result.images else f"{_text_kept(result)}: {where}"
        more = kept_lines(result) if fate is not None else []
    newer = fate.superseded_by if fate and brief else None
    if newer is not None and (lines := lines_of(result)) is not None:
        shown = f"{name} {argument} lines {lines[0]}-{lines[1]} · superseded by #{newer}"
        line = replace_unprintable(f"[{shown} · {what}]")
        return Stub("\n".join([line, *more]), None)
    headline = f'{name} "{argument}"' if argument else name
    head = replace_unprintable(f"[{headline} · {outcome(result)} · ")
    tail = replace_unprintable(f" tokens {act} · {what}]")
    return Stub(head, "\n".join([tail, *more]))


def recall_pages(size: int) -> str:
    """Return how the tool `recall` gives a text of `size` characters to other agents."""
    offsets = [f"{at}" for at in range(0, size, MAX_CHARS)]
    shown = offsets if len(offsets) <= MAX_OFFSETS else [*offsets[:2], "…", offsets[-1]]
    return f"{size:,} characters: `recall` with offset={', '.join(shown)}"


def _text_kept(result: ViewResult) -> str:
    """Return how much of a result's text can be recalled."""
    printed, kept = (result.details.get(name) for name in ("printed_bytes", "kept_bytes"))
    if isinstance(printed, int) and isinstance(kept, int):
        return f"{kept:,} of {printed:,} bytes are kept"
    return "full text"


def kept_lines(result: ViewResult) -> list[str]:
    """Return the lines of a result that stay: the telling lines of a failure, or the last line that
    a command printed, which often has its outcome.
    """
    content = result.block.get("content")
    code, command = (result.details.get(name) for name in ("exit_code", "command"))
    lines = (
        output_lines(content, is_preview=bool(result.offloaded)) if isinstance(content, str) else ()
    )
    exit_code = code if isinstance(code, int) else None
    if ended_in_error(result):
        name = command if isinstance(command, str) else ""
        told = telling_lines(lines, exit_code, name, MAX_ERROR_LINES)
        return [line.strip()[:MAX_ERROR_LINE_CHARS] for line in told]
    last = printed_lines(lines, exit_code)[-1:] if exit_code is not None else []
    return [shorten(line.strip(), MAX_LAST_LINE_CHARS) for line in last]


def _target_with_saving(
    result: ViewResult, view: View, stub: Stub
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield a mask target for a result and the unscaled tokens saved, if the stub is smaller."""
    replaced = view.scaled(result.size)
    frame = 0 if result.block.get("type") == FOUND else tokens.RESULT_FRAME
    saved = result.size - frame - stub.size(replaced)
    if saved > 0:
        yield stub_target(result, stub.text(replaced)), saved


def _clearable(result: ViewResult, view: View, policy: Policy) -> bool:
    if result.masked or result.size <= policy.clear_above:  # true for most results
        return False
    categories = {"tool_results", *_TOOL_CATEGORIES.get(result.call.name, ())}
    return (
        _is_of(result, policy.clear_tools)
        and result.call.id not in view.unmasked_calls
        and not categories.isdisjoint(policy.rules.compactable)
    )


def _is_of(result: ViewResult, tools: Collection[str]) -> bool:
    """Return True if a result is of one of these tools. All tools of MCP servers count as `Mcp`."""
    name = result.call.name
    return ("Mcp" if name.startswith("mcp__") else name) in tools


def _permitted(result: ViewResult, fate: Fate, policy: Policy) -> bool:
    """Return True if the preserve rules allow clearing a due result."""
    categories = {"tool_results"}
    if "intermediate_outputs" in _TOOL_CATEGORIES.get(result.call.name, ()):
        categories.add("intermediate_outputs")  # a due result is never among the newest
    if fate.superseded_by is not None and result.call.name == "Read":
        categories.add("redundant_reads")
    if fate.fixed:
        categories.add("debug_output")
    return not categories.isdisjoint(policy.rules.compactable)


def outcome(result: ViewResult) -> str:
    if result.details.get("timed_out") is True:
        return "failed, timed out"
    code = result.details.get("exit_code")
    if isinstance(code, int):
        return f"{'failed' if code < 0 else 'done'}, exit {code}"
    return "failed" if failed(result) else "done"


def _newest_kept_seqs(
    results: Sequence[ViewResult], policy: Policy, fates: Mapping[str, Fate]
) -> set[int]:
    """Return the seqs of the newest results, which are kept. Except in preset v5, older results
    that are still valid are preferred to superseded ones.
    """
    newest = [r for r in reversed(results) if _is_of(r, policy.clear_tools)]
    if policy.preset != "v5":
        stale = [r for r in newest if fates[r.call.id].superseded_by is not None]
        holding = [r for r in newest if fates[r.call.id].superseded_by is None]
        newest = [*holding, *stale]
    return _seqs(newest[: policy.clear_keep])


def _seqs(results: Iterable[ViewResult]) -> set[int]:
    return {result.item.seq for result in results}


class ClearResults(Layer):
    """Replaces old results, and images that a request cannot have, with stubs."""

    name, word = CLEAR.logged, CLEAR.word
    nouns = ("old result", "old results")
    done = ("cleared", "cleared")
    title = "Tool results cleared"
    tier = "TIER_1"
    mark = '<path d="M-5 -4H5L0 5Z" fill="var(--s2)"/>'
    off = ("clear.when=off",)

    def __init__(self) -> None:
        super().__init__()
        self._stubs: StubCache = {}

    def first(self, state: LayerState) -> Pass:
        """Remove the oldest images if a request would have too many or too large ones. Remove all
        images if the model does not accept images.
        """
        offered = state.offered
        if not state.host.takes_images():
            return self.refused(state, RefusedPart("images", offered.say(*images.NOT_TAKEN)))
        unseen = _seqs(state.view.unanswered_results())
        return images.plan(state.view, unseen, offered), offered.say(*images.OVER_BOUND)

    def now(self, state: LayerState) -> Pass:
        trigger = clearing_trigger(state.policy, state.window)
        due = self.due(state, ()) if trigger else ()
        return self.targets(state, due), trigger

    def due(self, state: LayerState, due: Sequence[DueMask]) -> list[DueMask]:
        own = plan(state.view, state.policy, str(state.host.folder), self._stubs)
        return with_alternatives(due, own)

    def to_fit(self, state: LayerState, *, answered_only: bool) -> list[dict[str, Any]]:
        return plan_all(state.view, str(state.host.folder), answered_only=answered_only)

    def refused(self, state: LayerState, refusal: RefusedPart) -> Pass:
        """Remove the refused images: all, or the image that the server names, else the images that
        the model has seen, else the other images.
        """
        if refusal.part != "images":
            return NO_PASS
        view, found = state.view, images.results_with_images(state.view)
        if refusal.every:
            return images.targets(found, refusal.message), refusal.message
        unseen = _seqs(view.unanswered_results())
        new = [result for result in found if result.item.seq in unseen]
        old = [result for result in found if result not in new and not refusal.only_unseen]
        refused = images.named_in(refusal.message, view) or old or new
        return images.targets(refused, images.REFUSED), images.REFUSED

    def oldest_clearable(self, state: LayerState) -> int | None:
        return oldest_clearable(state.view, state.policy)

    def is_silent(self, policy: Policy) -> bool:
        return policy.clear_silently
