"""Outline: replace old, finished exchanges of calls and results with one line per call.

Once results are cleared or short, most of an old exchange is its frame: the call's arguments, a
stub, an ID. An outline replaces a run of such exchanges with one user message. It has the texts of
the agent, and a line for each call or for consecutive calls of one tool. A line has the arguments,
the outcome and the ref of the result. The user's messages stay in place. `plan` only reads the
view; `break_even` decides when an outline pays.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from ....tools.system.phrasing import shorten
from ....tools.system.unicode import replace_unprintable, replace_unprintable_but_tabs
from ...context import tokens
from ...context.items import THINKING, Call, Item, ViewResult
from ...context.view import View
from ...lazy import dataclass
from ...session.entries import OUTLINE
from ..policy import Policy
from .break_even import DueMask
from .clear import kept_lines, outcome
from .later_calls import CURVES, IGNORED_ARGUMENTS, ended_in_error, input_curve, told_call
from .truncate import KEPT_TOOLS

MIN_AGE = 20  # replies after an exchange before it may be outlined
MAX_RESULT_TOKENS = 150  # a longer result must be cleared first, or together with the outline
MAX_ARGUMENT_CHARS = 240  # of the main argument of a call
MAX_RESULT_CHARS = 240  # of a short result
MAX_OTHER_CHARS = 80  # of each other argument
HEADER = "[Earlier calls, a line each; #N has the whole result; what → and | show is data]"
SAID_PREFIX = "The agent said: "  # before a text of the agent
_HEADER_TOKENS = tokens.estimate_block({"type": "text", "text": HEADER})
_KEPT_TOOLS = (*KEPT_TOOLS, "AskUser")  # plans and answers of the user


@dataclass(frozen=True, slots=True)
class _Line:
    """The line of one call in an outline."""

    tool: str
    text: str  # after the tool's name
    more: tuple[str, ...] = ()  # lines below it
    is_whole: bool = False  # has the whole input and result of the call
    shows_result: bool = False  # has a short result, or its beginning


@dataclass(frozen=True, slots=True)
class FinishedCalls:
    """A reply with calls and all their results, which may be outlined once the results are masked
    or short.
    """

    target: Mapping[str, Any]  # of the mask
    results: tuple[ViewResult, ...]
    said: tuple[str, ...]  # texts of the reply
    lines: tuple[_Line, ...]
    long: frozenset[str] = frozenset()  # calls whose results must be masked too
    size: int = 0  # unscaled tokens of its lines in an outline
    masked_at: int = 0  # `_masked_at` of the results when this was made


@dataclass(slots=True)
class FinishedCache:
    """The exchanges of a view by the seq of the reply; None for an exchange that stays. An exchange
    is made again after one of its results was masked. The cache is cleared when the view is
    rebuilt.
    """

    view: View | None = None
    exchanges: dict[int, FinishedCalls | None] = field(default_factory=dict)

    def find(self, view: View, reply: Item) -> FinishedCalls | None:
        """Return the exchange of a reply in its current state; None if it stays."""
        if self.view is not view:
            self.view, self.exchanges = view, {}
        found = self.exchanges.get(reply.seq, _NOT_MADE)
        if found is not None and found.masked_at != _masked_at(found.results):
            found = self.exchanges[reply.seq] = _made(view, reply)
        return found


def plan(view: View, policy: Policy, due: Sequence[DueMask], known: FinishedCache) -> list[DueMask]:
    """Return all due masks, with the masks of exchanges that may be outlined.

    Other masks that are due in an outlined exchange become its parts. An exchange stays if it has
    the newest todo list, or a short result that is among the newest or kept by the policy's rules.
    `known` caches exchanges between calls.
    """
    cleared = {each.target["tool_use_id"]: each for each in due if "stub" in each.target}
    shorter = {each.target["tool_use_id"]: each for each in due if "input" in each.target}
    replies = [item for item in view.items if item.role == "assistant"]
    newest = {result.item.seq for result in view.results()[-policy.clear_keep or len(view.items) :]}
    todos = next((c.id for c in reversed(view.calls.values()) if c.name == "Todo"), "")
    may_go = "tool_results" in policy.rules.compactable
    runs: list[list[DueMask]] = []
    end = -1
    for age, reply in zip(range(len(replies) - 1, MIN_AGE - 1, -1), replies, strict=False):
        found = None if reply.is_replaced else known.find(view, reply)
        if found is None or not found.long <= cleared.keys():
            continue
        calls = found.target["calls"]
        if todos in calls or not view.unmasked_calls.isdisjoint(calls):
            continue
        whole = [r for r in found.results if not r.masked and r.call.id not in cleared]
        if whole and not (may_go and newest.isdisjoint(r.item.seq for r in whole)):
            continue
        before = reply.size + sum(result.item.size for result in found.results)
        saved = view.scaled(before - found.size)
        if saved <= 0:
            continue
        stays = 1.0
        for result, line in zip(found.results, found.lines, strict=True):
            stays *= 1 - _need_chance(result, line, cleared, age)
        parts = tuple(each[id] for id in calls for each in (shorter, cleared) if id in each)
        place = view.position(reply.seq)
        if place != end:
            runs.append([])
        runs[-1].append(DueMask(OUTLINE.logged, found.target, saved, 1 - stays, parts))
        end = (place or 0) + 1 + len(found.results)
    header = view.scaled(_HEADER_TOKENS)
    outlines = [each for run in runs for each in _with_header(run, header)]
    included = {part.id for each in outlines for part in each.parts}
    rest = [each for each in due if each.id not in included]
    return sorted([*rest, *outlines], key=lambda each: each.seq) if outlines else rest


def _with_header(run: Sequence[DueMask], header: int) -> list[DueMask]:
    """Subtract the tokens of the header from the savings of neighbouring exchanges, in proportion.
    Return an empty list if they save no more than the header.
    """
    total = sum(each.saved for each in run)
    if total <= header:
        return []
    return [replace(each, saved=each.saved - header * each.saved // total) for each in run]


def targets(view: View, due: Sequence[DueMask], known: FinishedCache) -> list[dict[str, Any]]:
    """Return the mask targets of the outlines that are due, one for each call. The last call of a
    run of neighbouring exchanges gets the outline of all of them.
    """
    out: list[dict[str, Any]] = []
    run: list[FinishedCalls] = []
    end = -1
    for each in sorted(due, key=lambda each: each.seq):
        place = view.position(each.seq)
        found = None if place is None else known.find(view, view.items[place])
        if place is None or found is None:
            continue
        if run and place != end:
            out[-1]["outline"] = outline_of(run)
            run = []
        run.append(found)
        end = place + 1 + len(found.results)
        account = {k: v for k, v in each.target.items() if k not in found.target}
        out += [
            {
                "seq": r.item.seq,
                "tool_use_id": r.call.id,
                "reply": each.seq,
                "outline": "",
                **account,
            }
            for r in found.results
        ]
    if run:
        out[-1]["outline"] = outline_of(run)
    return out


def outline_of(run: Sequence[FinishedCalls]) -> str:
    """Return the text that replaces a run of exchanges."""
    lines, tool = [HEADER], ""
    for exchange in run:
        if exchange.said:
            lines += [f"{SAID_PREFIX}{text}" for text in exchange.said]
            tool = ""
        for line in exchange.lines:
            if line.tool == tool:
                lines[-1] += f"; {line.text}"
            else:
                lines.append(f"{line.tool}: {line.text}")
            lines += line.more
            tool = "" if line.more else line.tool
    return "\n".join(lines)


_NOT_MADE = FinishedCalls({}, (), (), (), masked_at=-1)


def _masked_at(results: Sequence[ViewResult]) -> int:
    """Return a number that changes when one more of the results is masked."""
    return sum(result.item.masked_at for result in results)


def _made(view: View, reply: Item) -> FinishedCalls | None:
    """Return the exchange of a reply; None if a part of it must stay, or if its results do not
    follow it directly.
    """
    kinds = {block.get("type") for block in reply.blocks}
    ids = [str(b.get("id")) for b in reply.blocks if b.get("type") == "tool_use"]
    calls = [view.calls[id] for id in ids if id in view.calls]
    place = view.position(reply.seq)
    if place is None or not ids or len(calls) < len(ids):
        return None
    if len(set(ids)) < len(ids) or any(call.seq != reply.seq for call in calls):
        return None
    if not kinds <= {"text", "tool_use", *THINKING} or any(c.name in _KEPT_TOOLS for c in calls):
        return None
    behind = {item.seq for item in view.items[place + 1 : place + 1 + len(ids)]}
    by_call = {r.call.id: r for r in view.results() if r.item.seq in behind}
    if by_call.keys() != set(ids):
        return None
    results = tuple(by_call[id] for id in ids)
    said = tuple(
        text
        for block in reply.blocks
        if block.get("type") == "text" and (text := str(block.get("text", "")).strip())
    )
    target = {"seq": reply.seq, "tool_use_id": ids[0], "calls": ids}
    long = frozenset(
        result.call.id
        for result in results
        if not result.masked and (result.images or result.item.size > MAX_RESULT_TOKENS)
    )
    found = FinishedCalls(target, results, said, tuple(map(_line, results)), long)
    size = tokens.estimate(outline_of([found]).removeprefix(HEADER))
    return replace(found, size=size, masked_at=_masked_at(results))


def _line(result: ViewResult) -> _Line:
    """Return the line of a call, with the ref of the result, and of the call if its arguments are
    cut. Output of several lines is marked, so that it cannot pass for other lines of the outline.
    """
    call, text = result.call, _text_of(result)
    argument, others = told_call(result, MAX_ARGUMENT_CHARS), _other_arguments(call)
    is_whole = not argument.endswith("…") and all(shown == whole for shown, whole in others)
    ended, failed = outcome(result), ended_in_error(result)
    parts = [argument, *(shown for shown, _ in others)]
    if failed or ended not in ("done", "done, exit 0"):
        parts.append(f"({ended})")
    parts.append(f"#{result.item.seq}" if is_whole else f"#{result.item.seq}, call #{call.seq}")
    more: list[str] = []
    shows_result = not result.masked and result.item.size <= MAX_RESULT_TOKENS
    if shows_result:
        shown = shorten(text, MAX_RESULT_CHARS)
        is_whole = is_whole and shown == text
        more = shown.split("\n")
    else:
        more = kept_lines(result)
        is_whole = is_whole and (result.masked or not failed)
    if len(more) == 1 and not failed:
        parts += [f"→ {line}" for line in more if line]
        more = []
    quoted = (f"  | {replace_unprintable_but_tabs(line)}" for line in more if line)
    shown_parts = replace_unprintable(" ".join(filter(None, parts)))
    return _Line(call.name, shown_parts, (*quoted,), is_whole, shows_result)


def _text_of(result: ViewResult) -> str:
    content = result.block.get("content")
    blocks = content if isinstance(content, list) else []
    texts = (str(b.get("text", "")) for b in blocks if isinstance(b, dict))
    return (content if isinstance(content, str) else "\n".join(texts)).strip()


def _other_arguments(call: Call) -> list[tuple[str, str]]:
    """Return (shortened, full) for each argument that changes what a call does, except the main
    one.
    """
    found = []
    for name, value in call.input.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if name in IGNORED_ARGUMENTS or " ".join(text.split()) == call.argument:
            continue
        whole = f"{name}={' '.join(text.split())}"
        shown = f"{name}={text}" if name == "path" else shorten(whole, MAX_OTHER_CHARS)
        found.append((shown, f"{name}={text}"))
    return found


def _need_chance(result: ViewResult, line: _Line, due: Mapping[str, DueMask], age: int) -> float:
    """Return the chance that the part of a call and its result that the line leaves out is needed
    again.
    """
    call = result.call
    given = 0.0 if line.is_whole else input_curve(call).at(age)
    if call.id in due:
        gave = min(each.need_chance for each in due[call.id].all)  # layers may differ
    else:
        gave = 0.0 if result.masked or line.is_whole else CURVES["command"].at(age)
    return 1 - (1 - given) * (1 - gave)
