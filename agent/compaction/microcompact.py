"""Microcompact: stubs take the place of old results (S4, "Microcompact: Silent Cleanup").

Only the content goes: the call and the structure around it stay, and a stub says what was run,
how it ended and where the full text is. `plan` looks at a view and changes nothing; when it is done
is for `account` to say.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from ..context import tokens
from ..context.view import Result, View
from .account import Due
from .policy import Policy

LONGEST_ARGUMENT = 80  # characters of a call's main argument in a stub

_ASIDE = ("description", "timeout")  # arguments that do not change what a call does
_CHANGING = ("Write", "Edit")
_KINDS = {  # categories of S3 that results of a tool can be of, besides "tool_results"
    "Bash": {"debug_output", "intermediate_outputs"},
    "Grep": {"intermediate_outputs"},
    "Glob": {"intermediate_outputs"},
    "Read": {"redundant_reads"},
}


def plan(view: View, policy: Policy, folder: str = "") -> list[Due]:
    """All results that are due now, oldest first.

    Due are results of `clear_tools` over `clear_above` tokens, except the newest `clear_keep` and
    those the model has not seen yet (which S4, so preset v5, clears too), and those of no category
    that the policy's rules let go. `folder` is the session's, for stubs of results that were
    offloaded.
    """
    results = list(view.results())
    spared = _kept(results, policy) | _unsent(view, policy)
    due = [r for r in results if _clearable(r, view, policy) and r.item.seq not in spared]
    fates = _fates(results, due, policy)
    due = [r for r in due if _permitted(r, fates.get(r.item.seq), policy)]
    newer = {seq: fate.newer for seq, fate in fates.items()} if policy.brief_reads else {}
    return [
        Due("microcompact", target, round(saved * view.ratio))
        for target, saved in _cleared(due, view, folder, newer)
    ]


def plan_all(view: View, folder: str = "") -> list[dict[str, Any]]:
    """Targets for every result that a stub makes smaller, whatever its tool and age: the last
    resort before a context that does not fit."""
    unmasked = [result for result in view.results() if not result.masked]
    return [target for target, _ in _cleared(unmasked, view, folder, {})]


def oldest_clearable(view: View, policy: Policy) -> int | None:
    """The seq of the oldest result that `plan` may still clear, now or later: what stands before
    it is settled."""
    if policy.clear_when == "off":
        return None
    return next((r.item.seq for r in view.results() if _clearable(r, view, policy)), None)


def stub(result: Result, tokens: int, folder: str = "", newer: int | None = None) -> str:
    """The line that stands for a result of `tokens` scaled tokens: tool, main argument, outcome,
    size, and where the full text is. For a page of a file that the entry `newer` superseded: path,
    lines and that entry (S3 "Path + line refs")."""
    where = f"#{result.item.seq}"
    if result.offloaded:
        where += f", or {Path(folder, result.offloaded)}"
    if newer is not None and (lines := _lines(result)) is not None:
        name = f"{result.call.name} {_argument(result)} lines {lines[0]}-{lines[1]}"
        parts = [name, f"superseded by #{newer}"]
    else:
        parts = [_headline(result), _outcome(result), f"{tokens:,} tokens compacted"]
    line = f"[{' · '.join(parts)} · full text: {where}]"
    return "".join(c if c.isprintable() else "\ufffd" for c in line)


def _cleared(
    results: Iterable[Result], view: View, folder: str, newer: Mapping[int, int | None]
) -> list[tuple[dict[str, Any], int]]:
    """A target for each result that a stub makes smaller, and the unscaled tokens it saves."""
    cleared = []
    for result in results:
        size, later = round(result.size * view.ratio), newer.get(result.item.seq)
        text = stub(result, size, folder, later)
        saved = result.size - tokens.of_block({**result.block, "content": text})
        if saved > 0:
            seq, call = result.item.seq, result.call.id
            cleared.append(({"seq": seq, "tool_use_id": call, "stub": text}, saved))
    return cleared


def _clearable(result: Result, view: View, policy: Policy) -> bool:
    eligible = result.call.name in policy.clear_tools and not result.masked
    eligible = eligible and result.call.id not in view.spared
    kinds = {"tool_results", *_KINDS.get(result.call.name, ())}
    eligible = eligible and not kinds.isdisjoint(policy.rules.compactable)
    return eligible and result.size > policy.clear_above


def _permitted(result: Result, fate: "_Fate | None", policy: Policy) -> bool:
    """Whether the rules let go what is due: one of the categories on their list fits it."""
    kinds = {"tool_results"}
    if "intermediate_outputs" in _KINDS.get(result.call.name, ()):
        kinds.add("intermediate_outputs")  # what is due is not among the newest
    if fate is not None and fate.newer is not None and result.call.name == "Read":
        kinds.add("redundant_reads")
    if fate is not None and fate.solved:
        kinds.add("debug_output")
    return not kinds.isdisjoint(policy.rules.compactable)


def _argument(result: Result) -> str:
    """A call's main argument, cut to what a stub may have of it."""
    line = result.call.argument
    return line if len(line) <= LONGEST_ARGUMENT else line[: LONGEST_ARGUMENT - 1] + "…"


def _headline(result: Result) -> str:
    argument = _argument(result)
    return f'{result.call.name} "{argument}"' if argument else result.call.name


def _outcome(result: Result) -> str:
    if result.details.get("timed_out") is True:
        return "failed, timed out"
    code = result.details.get("exit_code")
    if isinstance(code, int):
        return f"{'failed' if code < 0 else 'done'}, exit {code}"
    return "failed" if _failed(result) else "done"


def _failed(result: Result) -> bool:
    """Whether the call did not do its work. A command that ran and exits with 1 did."""
    ran = isinstance(result.details.get("exit_code"), int)
    return result.block.get("is_error") is True and not ran


def _succeeded(result: Result) -> bool:
    return result.details.get("exit_code") == 0 and not result.block.get("is_error")


def _unsent(view: View, policy: Policy) -> set[int]:
    """Seqs of what stands after the last reply: the model has not seen it yet. S4 does not ask."""
    if policy.preset == "v5":
        return set()
    tail = takewhile(lambda item: item.role == "user", reversed(view.items))
    return {item.seq for item in tail}


def _kept(results: Sequence[Result], policy: Policy) -> set[int]:
    """Seqs of the newest results. Except in S4's own preset, one that a later call superseded
    gives its place to an older one that still holds."""
    if policy.preset == "v5":
        newest = [r for r in reversed(results) if r.call.name in policy.clear_tools]
        return _seqs(newest[: policy.clear_keep])
    later = _Later()
    holding: list[Result] = []
    superseded: list[Result] = []
    for result in reversed(results):
        if len(holding) >= policy.clear_keep:
            break
        if result.call.name in policy.clear_tools:
            gone = later.newer(result) is not None
            (superseded if gone else holding).append(result)
        later.note(result)
    return _seqs([*holding, *superseded][: policy.clear_keep])


@dataclass(frozen=True, slots=True)
class _Fate:
    """What later calls did to a result: the entry that superseded it, if one did, and whether a
    command that had failed succeeded then."""

    newer: int | None
    solved: bool


def _fates(results: Sequence[Result], due: Sequence[Result], policy: Policy) -> dict[int, _Fate]:
    """The fates of the results that are due, by seq; none where the policy does not ask."""
    if not due or ("tool_results" in policy.rules.compactable and not policy.brief_reads):
        return {}
    later, wanted, oldest = _Later(), _seqs(due), due[0].item.seq
    fates = {}
    for result in reversed(results):
        seq = result.item.seq
        if seq in wanted:
            fates[seq] = _Fate(later.newer(result), later.solved(result))
        if seq == oldest:
            break
        later.note(result)
    return fates


def _seqs(results: Iterable[Result]) -> set[int]:
    return {result.item.seq for result in results}


@dataclass(slots=True)
class _Later:
    """What was done after a result, gathered from the newest back; each with the newest entry that
    did it.

    `calls` were made, those in `passed` with success, files at `changed` were written, and files
    were read from their first line up to the one in `reach`.
    """

    calls: dict[str, int] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    changed: dict[str, int] = field(default_factory=dict)
    reach: dict[str, tuple[int, int]] = field(default_factory=dict)

    def newer(self, result: Result) -> int | None:
        """The later entry that tells what this result told, or made it untrue."""
        found = [self.calls.get(_signature(result))]
        if result.call.name == "Read":
            path, lines = _path(result), _lines(result)
            last, seq = self.reach.get(path, (0, None))
            found.append(self.changed.get(path))
            found.append(seq if lines is not None and lines[1] <= last else None)
        return max((seq for seq in found if seq is not None), default=None)

    def solved(self, result: Result) -> bool:
        """Whether this is a command that failed, and succeeded later."""
        code = result.details.get("exit_code")
        failed = result.block.get("is_error") is True or code not in (None, 0)
        return failed and result.call.name == "Bash" and _signature(result) in self.passed

    def note(self, result: Result) -> None:
        if _failed(result):
            return
        seq, signature = result.item.seq, _signature(result)
        self.calls.setdefault(signature, seq)
        if _succeeded(result):
            self.passed.add(signature)
        path, lines = _path(result), _lines(result)
        if result.call.name in _CHANGING:
            self.changed.setdefault(path, seq)
        elif lines is not None and lines[0] <= 1 and lines[1] > self.reach.get(path, (0, 0))[0]:
            self.reach[path] = (lines[1], seq)


def _signature(result: Result) -> str:
    """What a call asks for, the same for two calls that ask for the same."""
    given = {name: value for name, value in result.call.input.items() if name not in _ASIDE}
    return json.dumps([result.call.name, given], sort_keys=True)


def _path(result: Result) -> str:
    """The file a call is about: as the tool resolved it, else as the model wrote it."""
    return str(result.details.get("path") or result.call.input.get("path"))


def _lines(result: Result) -> tuple[int, int] | None:
    """First and last line of the page that a Read showed."""
    match result.details.get("lines"):
        case [int(first), int(last)] if result.call.name == "Read":
            return first, last
    return None
