"""Test the loop detector: no alarm in recorded sessions, an alarm in every real loop.

    .venv/bin/python benchmarks/loops.py [FILE or FOLDER...]

Each FILE is a session that `ctxagent replay` reads; by default, synthetic work is played that
repeats calls for good reasons. All calls and replies go through the detector in order. An alarm is
a notice to the model, an end of the turn, or a stopped reply. Recordings are played more strictly
than they happened: tools of other agents count as ours, and the ID that one agent adds to each part
of an output is removed, so that a job without news gives equal results.
"""

import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import measure

from ctxagent.addons.replay.formats import load_recording
from ctxagent.agent.features.loops import RepeatedCalls, Repetition
from ctxagent.agent.loop.repeated_text import RepeatedText
from ctxagent.agent.permissions.rules import TOOL_NAMES
from ctxagent.agent.recordings.recording import RecordedCall, RecordedReply
from ctxagent.agent.recordings.tool_names import translate
from ctxagent.agent.session.entries import Assistant, ToolResult, User

SIZES: dict[str, dict[str, Any]] = {"full": {}, "quick": {}, "tiny": {}}
PIECE_CHARS = 20  # of a piece of a streamed reply
MAX_REPEATS = 40  # repeats of a loop, after which it counts as missed
_CHUNK_ID = re.compile(r"^Chunk ID: \w+$", re.M)


@dataclass(slots=True)
class Alarms:
    """The alarms in one session."""

    calls: int = 0
    replies: int = 0
    told_at: int = 0  # number of calls when the model got a notice; 0 for never
    ended_at: int = 0  # number of calls when the turn was ended
    stopped: int = 0  # stopped replies
    seconds: float = 0.0  # CPU
    shown: list[str] = field(default_factory=list)  # one line per alarm

    def __add__(self, other: "Alarms") -> "Alarms":
        return Alarms(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def row(self) -> dict[str, float]:
        """Return the figures, and print the alarms to standard error."""
        print(*self.shown, sep="\n", end="\n" if self.shown else "", file=sys.stderr)
        cost = self.seconds / max(1, self.calls + self.replies)
        return {
            "calls": self.calls,
            "replies": self.replies,
            "alarms": len(self.shown),
            "us_each": 1e6 * cost,
        }


def own(call: RecordedCall) -> RecordedCall:
    """Return a call as a call of our tool, without the IDs of another agent."""
    name = translate(call).name
    text = _CHUNK_ID.sub("", call.text)
    return replace(call, name=name if name in TOOL_NAMES else "Bash", text=text)


def played(name: str, replies: Iterable[RecordedReply]) -> Alarms:
    """Play replies through the detector until it ends the turn."""
    found, calls = Alarms(), RepeatedCalls()
    for reply in replies:
        begun = time.thread_time()
        if is_stopped(reply.text):
            found.stopped += 1
            found.shown.append(f"{name}: stopped: {reply.text[-100:]!r}")
        if not_run := add(calls, reply):
            found.shown.append(f"{name}: {not_run} calls of a reply would not run")
        repeated = calls.found() if reply.calls else None
        found.seconds += time.thread_time() - begun
        found.calls, found.replies = found.calls + len(reply.calls), found.replies + 1
        if repeated and not repeated.has_notice:
            found.told_at = found.calls
            found.shown.append(f"{name}: {repeated.times} times: {shown(repeated)}")
            calls.add(User(content="", source="notice", details=repeated.details()))
        elif repeated and repeated.must_end:
            found.ended_at = found.calls
            break
    return found


def shown(repeated: Repetition) -> str:
    return "; ".join(f"{call.tool} {call.arguments[:80]}" for call in repeated.calls)


def is_stopped(text: str) -> bool:
    """Return True if the detector stops a reply."""
    stream = RepeatedText()
    pieces = (text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS))
    return any(stream.add(piece) for piece in pieces)


def add(calls: RepeatedCalls, reply: RecordedReply) -> int:
    """Add the entries of a reply; return the number of its calls that would not run."""
    blocks: list[dict[str, Any]] = [{"type": "text", "text": reply.text}] if reply.text else []
    for call in reply.calls:
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": call.input})
    reason = "tool_use" if reply.calls else "end_turn"
    calls.add(
        Assistant(at=_at(reply.at), content=blocks, usage={}, stop_reason=reason, model="recorded")
    )
    not_run = sum(calls.is_over_limit(call.id) for call in reply.calls)
    for call in reply.calls:
        calls.add(ToolResult(at=_at(call.at), tool_use_id=call.id, content=call.text))
    return not_run


def _at(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def replies_with(
    calls: Sequence[tuple[str, dict[str, Any], str]], seconds: float = 0.1
) -> list[RecordedReply]:
    """Return replies with one call each, given as (tool, arguments, result), that take `seconds`
    each.
    """
    replies, now = [], 0.0
    for number, (name, given, result) in enumerate(calls):
        call = RecordedCall(str(number), name, given, result, at=now + seconds)
        replies.append(RecordedReply("", (call,), at=now))
        now += seconds + 3
    return replies


def work() -> Iterator[tuple[str, list[RecordedReply]]]:
    """Yield work that repeats calls for good reasons."""
    poll = ("Job", {"action": "wait", "id": "job-1"}, "[no new output; job-1: running, pid 7]")
    yield "a job is polled", replies_with([poll] * 12, 30.0)
    sleep = ("Bash", {"command": "sleep 20; tail -1 build.log"}, "linking")
    yield "a log is polled", replies_with([sleep] * 12, 20.0)
    test = ("Bash", {"command": "pytest -q"}, "1 failed in 0.31s")
    edits = [("Edit", {"path": "a.py", "old_string": f"{n}"}, "edited") for n in range(10)]
    yield (
        "a test is run after each edit",
        replies_with([each for edit in edits for each in (edit, test)]),
    )
    yield "a flaky test is run twice", replies_with([test, test])
    again = replies_with([test] * 5)
    answers = [RecordedReply("It still fails.", at=reply.at) for reply in again]
    asked = [each for pair in zip(again, answers, strict=True) for each in pair]
    yield "the user asks for a test", asked
    shares = (f"{n} % done, 12:0{n % 10}" for n in range(20))
    yield (
        "progress is polled",
        replies_with([("Bash", {"command": "./status"}, each) for each in shares]),
    )
    table = "| name | yes | no | maybe |\n" * 100
    drawing = ("+" + "-" * 70 + "+\n" + ("|" + " " * 70 + "|\n") * 9) * 8
    listing = "    {0x00, 0x00, 0x00, 0x00},\n" * 200
    lines = "I must not talk in class.\n" * 100
    for kind, text in (("table", table), ("drawing", drawing), ("list", listing), ("lines", lines)):
        yield f"a reply has a long {kind}", [RecordedReply(text)]


def loops() -> Iterator[tuple[str, list[RecordedReply]]]:
    """Yield loops that must be detected."""
    fails = ("Read", {"path": "path:line:text"}, "no such file: path:line:text")
    yield "a failing call", replies_with([fails] * MAX_REPEATS, 1.0)
    timed = [
        ("Bash", {"command": "pytest"}, f"1 failed in {n / 7:.2f}s") for n in range(MAX_REPEATS)
    ]
    yield "a test without an edit", replies_with(timed)
    calls = [("Bash", {"command": f"cat {name}"}, "no such file") for name in "abcd"]
    for period in (2, 3, 4):
        yield f"a cycle of {period}", replies_with(calls[:period] * MAX_REPEATS)
    slow = ("Bash", {"command": "sleep 9"}, "")
    yield "a call that waits", replies_with([slow] * MAX_REPEATS, 9.0)
    sentence = "Let me look at the file again and think about what it says. "
    yield "a sentence", [RecordedReply(sentence * 200)]
    paragraph = "".join(f"{n}. Then I read part {n} of the file again.\n" for n in range(30))
    yield "a paragraph", [RecordedReply(paragraph * 20)]
    yield "marks", [RecordedReply("=-" * 10_000)]


def recordings(given: Sequence[str]) -> Iterator[tuple[str, list[RecordedReply]]]:
    for path in map(Path, given):
        for file in sorted(path.rglob("*.gz")) if path.is_dir() else [path]:
            replies = [s for s in load_recording(file).steps if isinstance(s, RecordedReply)]
            yield file.name, [replace(r, calls=tuple(map(own, r.calls))) for r in replies]


def main(files: Sequence[str] = ()) -> Iterator[measure.Table]:
    rows = {name: played(name, replies).row() for name, replies in work()}
    yield measure.Table("work that repeats calls", rows)
    found = {}
    for name, replies in loops():
        alarms = played(name, replies)
        is_found = bool(alarms.stopped or (alarms.told_at and alarms.ended_at))
        places = {"told_at": alarms.told_at, "ended_at": alarms.ended_at}
        found[name] = {**places, "stopped": alarms.stopped, "missed": float(not is_found)}
    yield measure.Table("loops", found)
    if files:
        each = [played(name, replies) for name, replies in recordings(files)]
        row = {"sessions": float(len(each)), **sum(each, Alarms()).row()}
        yield measure.Table("recorded sessions without a loop", {"all": row})


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES, "files"))
