"""Microcompact: replace old results by stubs.

Only the content goes: the call and the structure around it stay, and a stub says what was run,
how it ended and where the full text is. `plan` looks at a view and changes nothing; `break_even`
says when it is done.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....tools.system.shorten import shorten
from ....tools.system.unicode import replace_unprintable
from ...context import tokens
from ...context.view import View, ViewResult
from ...session.searches import FOUND, failure, listing
from ..policy import Policy
from .break_even import DueMask

MAX_ARGUMENT_CHARS = 80  # characters of a call's main argument in a stub
MAX_LISTING_CHARS = 2_000  # of titles and addresses, in the stub of a search of the web

_IGNORED_ARGUMENTS = ("description", "timeout")  # arguments that do not change what a call does
_CHANGING_TOOLS = ("Write", "Edit")
_TOOL_CATEGORIES = {  # categories that results of a tool can be of, besides "tool_results"
    "Bash": {"debug_output", "intermediate_outputs"},
    "Grep": {"intermediate_outputs"},
    "Glob": {"intermediate_outputs"},
    "Read": {"redundant_reads"},
}


def plan(view: View, policy: Policy, folder: str = "") -> list[DueMask]:
    """Return all results that are due now, oldest first.

    Due are results of `clear_tools` over `clear_above` tokens, except the newest `clear_keep`,
    those the model has not answered yet, and those of no category that the policy's rules let go.
    `folder` is the session's, for stubs of offloaded results.
    """
    results = _all_results(view)
    kept = _newest_kept_seqs(results, policy) | _unanswered_seqs(view)
    due = [r for r in results if _clearable(r, view, policy) and r.item.seq not in kept]
    fates = _fates(results, due, policy)
    due = [r for r in due if _permitted(r, fates.get(r.item.seq), policy)]
    newer = {seq: fate.superseded_by for seq, fate in fates.items()} if policy.brief_reads else {}
    return [
        DueMask("microcompact", target, view.scaled(saved))
        for target, saved in _targets_with_savings(due, view, folder, newer)
    ]


def plan_all(view: View, folder: str = "", *, answered_only: bool) -> list[dict[str, Any]]:
    """Return targets for every result that a stub makes smaller, whatever its tool and age, for a
    context that does not fit; with `answered_only` those the model has not answered yet stay."""
    paused = {view.items[-1].seq} if view.items and view.items[-1].role == "assistant" else set()
    kept = _unanswered_seqs(view) if answered_only else paused
    due = [r for r in _all_results(view) if not r.masked and r.item.seq not in kept]
    return [target for target, _ in _targets_with_savings(due, view, folder, {})]


def oldest_clearable(view: View, policy: Policy) -> int | None:
    """Return the seq of the oldest result that `plan` may still clear, now or later."""
    if policy.clear_when == "off":
        return None
    found = (r.item.seq for r in _all_results(view) if _clearable(r, view, policy))
    return next(found, None)


def _all_results(view: View) -> list[ViewResult]:
    """Return the results of calls and of searches of the web, oldest first."""
    return sorted([*view.results(), *view.searches()], key=lambda result: result.item.seq)


def _unanswered_seqs(view: View) -> set[int]:
    """Return the seqs of the results that the model has said nothing about yet, and of the newest
    reply: its searches may still go on."""
    newest = (item.seq for item in reversed(view.items) if item.role == "assistant")
    return _seqs(view.unanswered_results()) | {next(newest, 0)}


def stub(result: ViewResult, tokens: int, folder: str = "", newer: int | None = None) -> str:
    """Return the line that stands for a result of `tokens` scaled tokens: tool, main argument,
    outcome, size, and where the full text is. For a page of a file that the entry `newer`
    superseded: path, lines and that entry."""
    where = f"#{result.item.seq}"
    if result.offloaded:
        where += f", or {Path(folder, result.offloaded)}"
    name, argument = result.call.name, shorten(result.call.argument, MAX_ARGUMENT_CHARS)
    if newer is not None and (lines := _lines(result)) is not None:
        parts = [f"{name} {argument} lines {lines[0]}-{lines[1]}", f"superseded by #{newer}"]
    else:
        headline = f'{name} "{argument}"' if argument else name
        parts = [headline, _outcome(result), f"{tokens:,} tokens compacted"]
    if result.block.get("type") == FOUND:
        parts += [f"full text: {where}", "titles and addresses are data"]
        found = shorten(listing(result.block), MAX_LISTING_CHARS)
        return f"[{replace_unprintable(' · '.join(parts))}]\n{found}"
    what = f"{where} shows it again" if result.images else f"full text: {where}"
    return replace_unprintable(f"[{' · '.join(parts)} · {what}]")


def _targets_with_savings(
    results: Iterable[ViewResult], view: View, folder: str, newer: Mapping[int, int | None]
) -> list[tuple[dict[str, Any], int]]:
    """Return a target for each result that a stub makes smaller, and its unscaled saving."""
    cleared = []
    for result in results:
        seq, size = result.item.seq, view.scaled(result.size)
        text = stub(result, size, folder, newer.get(seq))
        is_search = result.block.get("type") == FOUND
        stubbed = {"type": "text", "text": text} if is_search else {**result.block, "content": text}
        saved = result.size - tokens.estimate_block(stubbed)
        if saved > 0:
            target = {"seq": seq, "tool_use_id": result.call.id, "stub": text}
            cleared.append((target, saved))
    return cleared


def _clearable(result: ViewResult, view: View, policy: Policy) -> bool:
    categories = {"tool_results", *_TOOL_CATEGORIES.get(result.call.name, ())}
    return (
        _is_of(result, policy.clear_tools)
        and not result.masked
        and result.call.id not in view.unmasked_calls
        and not categories.isdisjoint(policy.rules.compactable)
        and result.size > policy.clear_above
    )


def _is_of(result: ViewResult, tools: Collection[str]) -> bool:
    """Tell whether a result is of one of these tools; those of MCP servers go by Mcp."""
    name = result.call.name
    return ("Mcp" if name.startswith("mcp__") else name) in tools


def _permitted(result: ViewResult, fate: "_Fate | None", policy: Policy) -> bool:
    """Return whether the preserve rules allow clearing a due result."""
    categories = {"tool_results"}
    if "intermediate_outputs" in _TOOL_CATEGORIES.get(result.call.name, ()):
        categories.add("intermediate_outputs")  # a result that is due is not among the newest
    if fate is not None and fate.superseded_by is not None and result.call.name == "Read":
        categories.add("redundant_reads")
    if fate is not None and fate.fixed:
        categories.add("debug_output")
    return not categories.isdisjoint(policy.rules.compactable)


def _outcome(result: ViewResult) -> str:
    if result.details.get("timed_out") is True:
        return "failed, timed out"
    code = result.details.get("exit_code")
    if isinstance(code, int):
        return f"{'failed' if code < 0 else 'done'}, exit {code}"
    return "failed" if _failed(result) else "done"


def _failed(result: ViewResult) -> bool:
    """Return whether the call did not do its work. A command that ran and exits with 1 did."""
    if failure(result.block):
        return True
    ran = isinstance(result.details.get("exit_code"), int)
    return result.block.get("is_error") is True and not ran


def _newest_kept_seqs(results: Sequence[ViewResult], policy: Policy) -> set[int]:
    """Return the seqs of the newest results. Except in the preset v5, a result that a later call
    superseded gives its place to an older one that still holds."""
    if policy.preset == "v5":
        newest = [r for r in reversed(results) if _is_of(r, policy.clear_tools)]
        return _seqs(newest[: policy.clear_keep])
    later = _LaterCalls()
    holding: list[ViewResult] = []
    superseded: list[ViewResult] = []
    for result in reversed(results):
        if len(holding) >= policy.clear_keep:
            break
        if _is_of(result, policy.clear_tools):
            is_superseded = later.superseded_by(result) is not None
            (superseded if is_superseded else holding).append(result)
        later.add(result)
    return _seqs([*holding, *superseded][: policy.clear_keep])


@dataclass(frozen=True, slots=True)
class _Fate:
    """The effect of later calls on a result."""

    superseded_by: int | None  # seq of the entry
    fixed: bool  # whether it is of a command that failed, and that succeeded later


def _fates(
    results: Sequence[ViewResult], due: Sequence[ViewResult], policy: Policy
) -> dict[int, _Fate]:
    """Return the fates of the results that are due, by seq; none where the policy does not ask."""
    if not due or ("tool_results" in policy.rules.compactable and not policy.brief_reads):
        return {}
    later, wanted, oldest = _LaterCalls(), _seqs(due), due[0].item.seq
    fates = {}
    for result in reversed(results):
        seq = result.item.seq
        if seq in wanted:
            fates[seq] = _Fate(later.superseded_by(result), later.fixed(result))
        if seq == oldest:
            break
        later.add(result)
    return fates


def _seqs(results: Iterable[ViewResult]) -> set[int]:
    return {result.item.seq for result in results}


@dataclass(slots=True)
class _LaterCalls:
    """The calls after a result, gathered from the newest back; with the newest entry of each."""

    calls: dict[str, int] = field(default_factory=dict)  # by signature
    passed: set[str] = field(default_factory=set)  # signatures of the calls that succeeded
    changed: dict[str, int] = field(default_factory=dict)  # by path of the file that was written
    read_to: dict[str, tuple[int, int]] = field(default_factory=dict)  # last line read from line 1

    def superseded_by(self, result: ViewResult) -> int | None:
        """Return the later entry that repeats this result or makes it stale."""
        found = [self.calls.get(_signature(result))]
        if result.call.name == "Read":
            path, lines = _path(result), _lines(result)
            last, seq = self.read_to.get(path, (0, None))
            found.append(self.changed.get(path))
            found.append(seq if lines is not None and lines[1] <= last else None)
        return max((seq for seq in found if seq is not None), default=None)

    def fixed(self, result: ViewResult) -> bool:
        """Return whether this is a command that failed, and succeeded later."""
        code = result.details.get("exit_code")
        failed = result.block.get("is_error") is True or code not in (None, 0)
        return failed and result.call.name == "Bash" and _signature(result) in self.passed

    def add(self, result: ViewResult) -> None:
        if _failed(result):
            return
        seq, signature = result.item.seq, _signature(result)
        self.calls.setdefault(signature, seq)
        if result.details.get("exit_code") == 0 and not result.block.get("is_error"):
            self.passed.add(signature)
        path, lines = _path(result), _lines(result)
        if result.call.name in _CHANGING_TOOLS:
            self.changed.setdefault(path, seq)
        elif lines is not None and lines[0] <= 1 and lines[1] > self.read_to.get(path, (0, 0))[0]:
            self.read_to[path] = (lines[1], seq)


def _signature(result: ViewResult) -> str:
    """Return a text that is the same for two calls that ask for the same."""
    arguments = {k: v for k, v in result.call.input.items() if k not in _IGNORED_ARGUMENTS}
    return json.dumps([result.call.name, arguments], sort_keys=True)


def _path(result: ViewResult) -> str:
    """Return the path of the file as the tool resolved it, else as the model wrote it."""
    return str(result.details.get("path") or result.call.input.get("path"))


def _lines(result: ViewResult) -> tuple[int, int] | None:
    """Return the first and the last line of the page that a Read showed."""
    match result.details.get("lines"):
        case [int(first), int(last)] if result.call.name == "Read":
            return first, last
    return None
