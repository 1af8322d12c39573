"""Fold: old, finished exchanges of calls and results become one line each.

Where results are cleared or short, most of what an old exchange still fills is its frame: the
call's arguments, a stub, an id. A digest takes the place of a run of such exchanges, in one user
message: a line for each reply that said something, in its own words, and one for each call, or for
several of one tool, with what it was given, how it ended and its entry. The user's words stand
where they stood. `plan` looks at a view and changes nothing; `break_even` says when it is done.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ....tools.system.shorten import shorten
from ....tools.system.unicode import replace_unprintable
from ...context import tokens
from ...context.view import THINKING, Call, Item, View, ViewResult
from ...lazy import dataclass
from ...session.entries import ATTACHMENT
from .break_even import DueMask
from .later_calls import ended_in_error, input_ages, input_curve
from .microcompact import error_lines, outcome
from .need_chances import CURVES
from .truncate import CHANGING_TOOLS, KEPT_TOOLS

MIN_AGE = 20  # replies that came after an exchange
MAX_RESULT_TOKENS = 150  # a longer result is cleared before its exchange is folded, or with it
MAX_ARGUMENT_CHARS = 240  # of the main argument of a call
MAX_RESULT_CHARS = 240  # of a short result
HEADER = "[Earlier calls, a line each. #N is the entry that has the whole result]"


@dataclass(frozen=True, slots=True)
class _Line:
    """What stands for one call."""

    tool: str
    text: str  # behind the tool's name
    more: tuple[str, ...] = ()  # lines of its own
    is_whole: bool = False  # all of what the call was given and gave is in it


@dataclass(frozen=True, slots=True)
class Exchange:
    """A reply with calls, each with its result, that may be folded."""

    reply: Item
    results: tuple[ViewResult, ...]
    said: tuple[str, ...]
    lines: tuple[_Line, ...]
    size: int  # in unscaled tokens, of what stands for it


# By the seq of the reply, and whether each of its results is masked.
ExchangeCache = dict[tuple[int, tuple[bool, ...]], Exchange | None]


def plan(view: View, due: Sequence[DueMask], known: ExchangeCache) -> list[DueMask]:
    """Return what is due with the exchanges that may be folded: what else is due of an exchange
    are the parts of its fold. `known` keeps exchanges from call to call."""
    results = {result.call.id: result for result in view.results()}
    cleared = {each.target["tool_use_id"]: each for each in due if each.layer == "microcompact"}
    shorter = {each.target["tool_use_id"]: each for each in due if each.layer == "truncate"}
    ages, folds, included = input_ages(view), [], set[str]()
    for reply, calls in _old_replies(view):
        found = _exchange(view, reply, calls, results, set(cleared), known)
        if found is None:
            continue
        before = reply.size + sum(result.size for result in found.results)
        saved = view.scaled(before - found.size)
        if saved <= 0:
            continue
        stays = 1.0
        for result, line in zip(found.results, found.lines, strict=True):
            stays *= 1 - _need_chance(result, line, cleared, ages)
        parts = [each[c.id] for c in calls for each in (shorter, cleared) if c.id in each]
        included.update(part.id for part in parts)
        target = {"seq": reply.seq, "tool_use_id": calls[0].id, "calls": [c.id for c in calls]}
        folds.append(DueMask("fold", target, saved, 1 - stays, tuple(parts)))
    rest = [each for each in due if each.id not in included]
    return sorted([*rest, *folds], key=lambda each: each.seq) if folds else rest


def targets(view: View, due: Sequence[DueMask], known: ExchangeCache) -> list[dict[str, Any]]:
    """Return a mask's targets for the folds that are due: one for each call. The last one of a run
    of neighbours has the digest, the others nothing."""
    results = {result.call.id: result for result in view.results()}
    out: list[dict[str, Any]] = []
    run: list[Exchange] = []
    end = -1
    for each in sorted(due, key=lambda fold: fold.seq):
        place = view.position(each.seq)
        ids = each.target["calls"]
        if place is None:
            continue
        if run and place != end:
            out[-1]["fold"] = digest(run)
            run = []
        found = known[each.seq, tuple(results[id].masked for id in ids)]
        assert found is not None
        run.append(found)
        end = place + 1 + len(ids)
        more = {k: v for k, v in each.target.items() if k not in ("seq", "tool_use_id", "calls")}
        out += [{"seq": results[id].item.seq, "tool_use_id": id, "fold": "", **more} for id in ids]
    if run:
        out[-1]["fold"] = digest(run)
    return out


def digest(run: Sequence[Exchange]) -> str:
    """Return the text that stands for a run of exchanges."""
    lines, tool = [HEADER], ""
    for exchange in run:
        if exchange.said:
            lines += [f"You: {text}" for text in exchange.said]
            tool = ""
        for line in exchange.lines:
            if line.tool == tool:
                lines[-1] += f"; {line.text}"
            else:
                lines.append(f"{line.tool}: {line.text}")
            lines += line.more
            tool = "" if line.more else line.tool
    return "\n".join(lines)


def _old_replies(view: View) -> Iterator[tuple[Item, list[Call]]]:
    """Yield the replies with calls that are old enough, with their calls, oldest first."""
    replies = [item for item in view.items if item.role == "assistant"]
    for reply in replies[:-MIN_AGE]:
        if reply.folded is not None:
            continue
        kinds = {block.get("type") for block in reply.blocks}
        ids = [str(b.get("id")) for b in reply.blocks if b.get("type") == "tool_use"]
        calls = [view.calls[id] for id in ids if id in view.calls]
        if not ids or len(calls) < len(ids) or not kinds <= {"text", "tool_use", *THINKING}:
            continue
        if any(c.name in KEPT_TOOLS or c.id in view.unmasked_calls for c in calls):
            continue
        yield reply, calls


def _exchange(
    view: View,
    reply: Item,
    calls: Sequence[Call],
    results: Mapping[str, ViewResult],
    due: set[str],
    known: ExchangeCache,
) -> Exchange | None:
    """Return the exchange of a reply; None where something of it must stay. The ids in `due` are
    those of results that may be cleared now."""
    its = [results[call.id] for call in calls if call.id in results]
    if len(its) < len(calls) or not all(
        r.masked or r.size <= MAX_RESULT_TOKENS or r.call.id in due for r in its
    ):
        return None
    key = reply.seq, tuple(result.masked for result in its)
    if key not in known:
        known[key] = _made(view, reply, its)
    return known[key]


def _made(view: View, reply: Item, results: list[ViewResult]) -> Exchange | None:
    place = view.position(reply.seq)
    behind = [] if place is None else view.items[place + 1 : place + 1 + len(results)]
    if {item.seq for item in behind} != {result.item.seq for result in results}:
        return None  # something else stands between
    if any((r.images and not r.masked) or r.item.source == ATTACHMENT for r in results):
        return None
    said = tuple(
        text
        for block in reply.blocks
        if block.get("type") == "text" and (text := str(block.get("text", "")).strip())
    )
    lines = tuple(map(_line, results))
    whole = Exchange(reply, tuple(results), said, lines, 0)
    return replace(whole, size=tokens.estimate(digest([whole]).removeprefix(HEADER)))


def _line(result: ViewResult) -> _Line:
    call, content = result.call, result.block.get("content")
    argument = shorten(call.argument, MAX_ARGUMENT_CHARS)
    parts, more, is_whole = [argument] * bool(argument), list[str](), argument == call.argument
    text = content if isinstance(content, str) else ""
    ended = outcome(result)
    failed = ended_in_error(result)
    if failed or ended != "done":
        parts.append(f"({ended})")
    parts.append(f"#{result.item.seq}")
    if failed:
        more = error_lines(result)
    elif not result.masked and result.size <= MAX_RESULT_TOKENS and text.strip():
        shown = shorten(" ".join(text.split()), MAX_RESULT_CHARS)
        parts.append(f"→ {shown}")
        is_whole = is_whole and not shown.endswith("…")
    if call.name in CHANGING_TOOLS or len(call.input) > 2:
        is_whole = False
    if not is_whole and call.argument != argument:
        parts.append(f"(whole call: #{call.seq})")
    line = replace_unprintable(" ".join(parts))
    return _Line(call.name, line, tuple(map(replace_unprintable, more)), is_whole)


def _need_chance(
    result: ViewResult, line: _Line, due: Mapping[str, DueMask], ages: Mapping[str, int]
) -> float:
    """Return the chance that what a line leaves out of a call and its result is needed again."""
    call, age = result.call, ages[result.call.id]
    given = 0.0 if line.is_whole else input_curve(call).at(age)
    if call.id in due:
        gave = due[call.id].need_chance
    else:
        gave = 0.0 if result.masked or line.is_whole else CURVES["command"].at(age)
    return 1 - (1 - given) * (1 - gave)
