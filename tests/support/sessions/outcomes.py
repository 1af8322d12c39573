"""Synthetic comparisons, for tests of reports: sessions of any length under settings that keep the
context small in different ways. They are deterministic.

    comparison(sessions=15, calls=500, labels=LABELS)

Recordings named as in `HOSTILE` come first: texts that cause harm if they are treated as markup,
paths or terminal commands.
"""

import math
from collections.abc import Sequence
from typing import cast

from ctxagent.addons.replay.results import (
    Comparison,
    Fill,
    Need,
    NeedKind,
    PricedCall,
    ReplayAct,
    ReplayRun,
    Share,
)
from ctxagent.agent.compaction.breakdown import KINDS

LABELS = ("none", "default", "v5", "ctx-001", "anchored", "ledger")
HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>.jsonl',
    "a\x1b[31mred\x1b]0;title\x07\u202egnp.jsonl",
    "\udce9t\udce9.jsonl",
    "一" * 60 + ".jsonl",
)
_FORMATS = ("claude-code", "codex", "pi", "opencode", "copilot", "swe-agent", "ctxagent")
_LAYERS: tuple[str, ...] = ("demote", "microcompact", "truncate")
_CLEARED = {"none": 0, "default": 12, "v5": 3, "ctx-001": 19, "anchored": 27, "ledger": 8}
_SUMMED = {"none": 0.97, "default": 0.93, "v5": 0.93, "ctx-001": 0.75, "anchored": 0.85}
_SHARES = {"system": 3, "tools": 8, "words": 2, "text": 6, "calls": 9, "results": 60, "stubs": 4}


def comparison(
    sessions: int = 3,
    calls: int = 40,
    labels: Sequence[str] = LABELS[:3],
    *,
    hostile: bool = False,
    window: int = 200_000,
) -> Comparison:
    rows = []
    for n in range(sessions):
        name = f"{_FORMATS[n % len(_FORMATS)]}-{n + 1:02}.jsonl"
        if hostile:
            name = HOSTILE[n % len(HOSTILE)]
        length = max(1, calls - 7 * n % max(1, calls // 2))
        rows.append(tuple(run(name, label, n, length, window, hostile) for label in labels))
    return Comparison(tuple(labels), tuple(rows))


def run(
    name: str, label: str, n: int = 0, calls: int = 40, window: int = 200_000, hostile: bool = False
) -> ReplayRun:
    """Return one session: its context grows in steps, is cleared sometimes, and is summarized near
    the end of the window.
    """
    every, bound = _CLEARED.get(label, 5), _SUMMED.get(label, 0.9) * window
    size, cached, priced, acts, fills = 12_000, 0, [], [], []
    for number in range(1, calls + 1):
        before, written = size, 0
        if every and number % every == 0 and size > 30_000:
            size = max(24_000, round(size * 0.45))
            layer = _LAYERS[number // every % 3]
            trigger = HOSTILE[1] if hostile else "pays"
            acts.append(ReplayAct(number, layer, trigger, 1 + number % 6, before, size))
        if size > bound:
            acts.append(
                ReplayAct(number, "summary", "near the end of the window", 80, size, 26_000)
            )
            priced.append(PricedCall(number, "summary", size, 0, 400, 2_000, 0.03 + size * 3e-7))
            size = 26_000
        read = min(cached, size) if size >= before else min(cached, size * 2 // 3)
        written = size - read
        cost = read * 3e-7 + written * 3.75e-6 + 300 * 1.5e-5
        at = None if n % 4 == 3 else 1.79e9 + 40 * number
        priced.append(PricedCall(number, "turn", read, written, 0, 300, cost, at, cold=read == 0))
        fills.append(Fill(number, _parts(size, number)))
        cached = size
        size += 700 + round(2_600 * (1 + math.sin(number * 1.7 + n)) ** 2)
    what = HOSTILE[0] if hostile else "Read src/shop/cart.py"
    missed = [act.number + 1 for act in acts[::11] if act.number < calls]
    ways = cast(tuple[NeedKind, ...], ("asked again", "used"))
    needs = [Need(at, ways[at % 2], what, at, 3_000, 0.012) for at in missed]
    kept = 60 - len(acts) % 20
    return ReplayRun(
        name, _FORMATS[n % len(_FORMATS)], label, "claude-sonnet-5-5", window,
        tuple(priced), tuple(acts), tuple(needs), tuple(fills),
        Share(kept, 60), Share(min(kept, 12), 12), Share(calls, calls),
        peak_then=None if n % 3 == 2 else max(call.prompt for call in priced) + 900,
        stopped="nothing that could leave is left" if label == "none" and n == 1 else "",
    )  # fmt: skip


def _parts(size: int, number: int) -> tuple[tuple[str, int], ...]:
    weights = {**_SHARES, "results": 20 + 40 * (number % 30) // 30, "summary": 5 * (number > 60)}
    whole = sum(weights.values())
    return tuple((kind, size * weights[kind] // whole) for kind in KINDS if weights.get(kind))
