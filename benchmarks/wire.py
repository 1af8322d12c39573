"""Measure the CPU time of each step from a log to the body of a request, by number of messages.

The view is folded from recorded calls and results; `build_request` makes its messages, `body` the
arguments of the SDK, `json` the bytes. `changed` counts messages of a request that differ in the
next request; the prompt cache depends on this being 0.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import measure

from ctxagent.agent.context.request import Request, build_request
from ctxagent.agent.context.view import View, fold
from ctxagent.agent.models.messages.body import body
from ctxagent.tests.support.sessions.history import MODEL, History

SIZES: dict[str, dict[str, Any]] = {
    "full": {"lengths": (500, 1_000, 2_000), "runs": 25},
    "quick": {"lengths": (1_000, 2_000), "runs": 9},
    "tiny": {"lengths": (10, 20), "runs": 1},
}
RESULT = "    return self.parent.find(name, default=None)  # as before\n" * 20


def main(lengths: Sequence[int], runs: int) -> Iterator[measure.Table]:
    rows: dict[str, dict[str, float]] = {}
    for length in lengths:
        rows[f"{length:,} messages"] = one(length, runs)
    *_, half, whole = rows.values()
    whole["x_last"] = whole["wire_ms"] / half["wire_ms"]
    yield measure.Table("a request from a view", rows)


def one(length: int, runs: int) -> dict[str, float]:
    history = History()
    history.say("Look at all of it.")
    for number in range(length // 2):
        history.call("Read", {"path": f"part{number}.py"}, RESULT)
    view = history.view()
    request = _wired(view)
    sent = body(request)
    figures = {
        "messages": float(len(request.messages)),
        "kB": len(json.dumps(sent)) / 1e3,
        "fold_ms": _median(lambda: fold(history.entries), runs),
        "wire_ms": _median(lambda: _wired(view), runs),
        "body_ms": _median(lambda: body(request), runs),
        "json_ms": _median(lambda: json.dumps(sent), runs),
    }
    history.call("Read", {"path": "one_more.py"}, RESULT)
    after = _wired(history.view()).messages
    figures["changed"] = sum(
        _plain(one) != _plain(other) for one, other in zip(request.messages, after, strict=False)
    )
    return figures


def _wired(view: View) -> Request:
    return build_request(view, model=MODEL, max_tokens=1_000)


def _plain(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a message without its cache marks, which move between requests."""
    return [{k: v for k, v in b.items() if k != "cache_control"} for b in message["content"]]


def _median(act: Callable[[], object], runs: int) -> float:
    """Return the median CPU milliseconds of an act."""
    taken = []
    for _ in range(runs):
        before = time.thread_time()
        act()
        taken.append(time.thread_time() - before)
    return statistics.median(taken) * 1e3


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
