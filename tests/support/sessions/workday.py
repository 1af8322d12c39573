"""A long synthetic session for pictures: a user lets an agent work on an invented shop for some
hours, with breaks in which the prompt cache expires. The agent reads, searches, edits, writes, runs
tests that fail at first, sometimes prints a whole log, and reads files again. It contains no real
session and is deterministic.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

from ctxagent.agent.recordings.recording import (
    RecordedCall,
    RecordedMessage,
    RecordedReply,
    RecordedStep,
    Recording,
)

PARTS = ("cart", "orders", "prices", "stock", "refunds", "vouchers", "taxes", "parcels", "invoices",
         "ratings", "search", "mails", "accounts", "reports")  # fmt: skip
ASKED = (
    "Bring the shop over to decimal amounts, part by part. Leave migrations/ as it is.",
    "Now orders placed at night. They get the wrong day in every part that knows dates.",
    "Rounding is half to even, in all parts. The ticket is SHOP-4711.",
    "The reports count refunds twice. Find out where, and mend it.",
)
BEGIN = 1_790_000_000.0  # seconds since 1970
BREAK = 900.0  # seconds until the user continues; the cache expires in this time
EACH = 20.0  # seconds per call
_WORDS = ("amount", "line", "total", "share", "price", "count", "date", "state", "owner", "rate",
          "place", "order", "limit", "note")  # fmt: skip


def workday(parts: int = len(PARTS)) -> Recording:
    """Return a recording with about thirteen model calls for each part."""
    return Recording("a day of work", "none", tuple(_timed(_steps(parts))))


def _timed(steps: Iterator[RecordedStep]) -> Iterator[RecordedStep]:
    """Yield the steps with times."""
    at = BEGIN
    for number, step in enumerate(steps):
        if isinstance(step, RecordedMessage):
            at += BREAK if number else 0.0
            yield RecordedMessage(step.text, at)
        elif isinstance(step, RecordedReply):
            at += EACH
            calls = tuple(
                RecordedCall(c.id, c.name, c.input, c.text, c.is_error, at) for c in step.calls
            )
            yield RecordedReply(step.text, calls, at)


def _steps(parts: int) -> Iterator[RecordedStep]:
    ids = count()
    each = -(-parts // len(ASKED))
    for number, part in enumerate(PARTS[:parts]):
        if number % each == 0:
            if number:
                yield RecordedReply("That is done, and all tests of these parts pass.")
            yield RecordedMessage(ASKED[number // each])
        for said, name, given, text, failed in _work(number, part):
            yield RecordedReply(said, (RecordedCall(f"c{next(ids)}", name, given, text, failed),))
    yield RecordedReply("All of it is done.")


def _work(number: int, part: str) -> Iterator[tuple[str, str, dict[str, Any], str, bool]]:
    """Yield the work on one part: text, tool, input, output, and whether it failed."""
    here, tests = f"shop/{part}/{part}.py", f"tests/test_{part}.py"
    model, new = f"shop/{part}/model.py", f"shop/{part}/amounts.py"
    run = {"command": f"pytest -q {tests}"}
    yield "Where amounts are used:", "Grep", {"pattern": part}, _found(number, 90), False
    yield "The part itself.", "Read", {"path": here}, _code(number, 320), False
    yield "What it is built on.", "Read", {"path": model}, _code(number + 100, 200), False
    yield "And its tests.", "Read", {"path": tests}, _code(number + 200, 180), False
    for at in (40, 140):
        old, fresh = _line(number, at), f"{_line(number, at)}  # exact"
        change = {"path": here, "old_string": old, "new_string": fresh}
        yield "I change this line.", "Edit", change, "Edited.", False
    yield "The tests.", "Bash", run, f"{_trace(number)}\nexit code 1", True
    written = {"path": new, "content": _code(number + 300, 400)}
    yield "Amounts get a module of their own.", "Write", written, "Written.", False
    if number % 4 == 1:
        log = {"command": f"cat logs/{part}.log"}
        yield "What the log says.", "Bash", log, _found(number + 400, 1_100), False
    if number % 5 == 4:
        again = f"tests/test_{PARTS[number - 2]}.py"
        yield "I did this before.", "Read", {"path": again}, _code(number + 198, 180), False
    change = {"path": model, "old_string": _line(number + 100, 60), "new_string": "    pass"}
    yield "The model, too.", "Edit", change, "Edited.", False
    yield "The tests again.", "Bash", run, "." * 40 + f"\n40 passed\n{_found(number, 30)}", False
    diff = {"command": f"git diff shop/{part}"}
    yield "I look at the whole change.", "Bash", diff, _code(number + 500, 130), False
    yield "And keep it.", "Bash", {"command": f"git commit -am {part}"}, "1 file changed", False


def _code(seed: int, lines: int) -> str:
    return "\n".join(_line(seed, at) for at in range(lines))


def _line(seed: int, at: int) -> str:
    first, second = (_WORDS[(seed * k + at * (k + 4)) % len(_WORDS)] for k in (3, 5))
    return f"    {first}_{at} = self.{second}({seed * 7 + at}, exact={at % 3 == 0})"


def _found(seed: int, lines: int) -> str:
    return "\n".join(f"shop/{_WORDS[at % 7]}.py:{at}:{_line(seed, at)}" for at in range(lines))


def _trace(seed: int) -> str:
    return f"{_code(seed + 600, 140)}\nE   AssertionError: {seed}.005 is not {seed}.01"
