"""Commands that still fail, in a summary."""

import re

import pytest

from ctxagent.agent.compaction.document import SummaryDocument
from ctxagent.agent.compaction.summary.open_failures import (
    MAX_EARLIER_TOKENS,
    earlier_failures,
    error_line,
    still_open,
    with_open_failures,
    written_errors,
)
from ctxagent.agent.context.tokens import estimate
from ctxagent.agent.session.ledger import CommandFact, Ledger

from ..support.sessions.history import History


def ledger(*commands: tuple[str, int, str]) -> Ledger:
    history = History()
    for command, code, said in commands:
        history.call(
            "Bash",
            {"command": command},
            said,
            is_error=code != 0,
            details={"command": command, "exit_code": code},
        )
    found = Ledger()
    for entry in history.entries:
        found.add(entry)
    return found


def fact(*errors: str) -> CommandFact:
    return CommandFact("x", 1, 1, errors)


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ([], ""), (["E   KeyError: 'x'"], "KeyError: 'x'"), (["first", "last"], "last"),
        (["ValueError: a", "last"], "ValueError: a"),
        (["error: a", "error: b", "c"], "error: b"),
        (["it failed", "error: a", "it failed"], "error: a"),
        (["not found: a", "b"], "not found: a"),
        (["[12:03:01] fatal: a"], "fatal: a"), (["> assert x"], "assert x"),
        (["", "  "], ""),
        (["x" * 200], "x" * 160), (["x " * 150 + "Error: a"], "x " * 20 + "Error: a"),
        (["y" * 100 + " error"], "y" * 100 + " error"),
    ],
)  # fmt: skip
def test_the_most_telling_line(lines: list[str], line: str) -> None:
    assert error_line(fact(*lines)) == line


def test_exit_code_1_is_a_failure_unless_the_program_means_no_by_it() -> None:
    known = ledger(
        ("make a", 2, "boom"), ("sh check.sh", 1, "合計が一致しません"), ("mytool", 1, ""),
        ("grep x f", 1, ""), ("git diff --exit-code", 1, "-a"), ("make c", 0, "ok"),
    )  # fmt: skip
    assert [each.command for each in known.unresolved()] == ["make a", "sh check.sh", "mytool"]
    assert with_open_failures(SummaryDocument(), known).errors == (
        "`make a` failed (exit 2, #3):\nboom",
        "`sh check.sh` failed (exit 1, #5):\n合計が一致しません",
        "`mytool` failed (exit 1, #7)",
    )


def test_a_models_line_does_not_replace_the_failure() -> None:
    known = ledger(("make a", 2, "error: one"))
    said = "`make a` fails: error: one"
    found = with_open_failures(SummaryDocument(errors=(said,)), known)
    assert found.errors == (said, "`make a` failed (exit 2, #3):\nerror: one")


def test_all_failures_are_listed_with_their_output() -> None:
    known = ledger(("make a", 2, "error: one"), ("make b", 3, "fatal: two"))
    first, second = (each.ref for each in known.unresolved())
    found = with_open_failures(SummaryDocument(errors=("a note",)), known)
    assert found.errors == (
        "a note",
        f"`make a` failed (exit 2, #{first}):\nerror: one",
        f"`make b` failed (exit 3, #{second}):\nfatal: two",
    )
    assert with_open_failures(found, known).errors == found.errors
    assert with_open_failures(found, known, room=1_000).errors == found.errors


def test_without_room_one_line_each_and_then_the_refs() -> None:
    lines = "\n".join(f"error: {n} {'x' * 200}" for n in range(5))
    known = ledger(*((f"make {name}", 2, lines) for name in "abc"))
    refs = [each.ref for each in known.unresolved()]
    whole = with_open_failures(SummaryDocument(), known).errors
    short = [error.partition("\n")[0] + "\nerror: 4 " + "x" * 151 for error in whole]
    room = sum(estimate(line) + 1 for line in short)
    assert list(with_open_failures(SummaryDocument(), known, room).errors) == short
    fewer = with_open_failures(SummaryDocument(), known, room - 1).errors
    assert fewer == (f"More commands that still fail, found by Recall: #{refs[0]}", *short[1:])
    none = with_open_failures(SummaryDocument(errors=("a",)), known, 0).errors
    listed = " ".join(f"#{ref}" for ref in refs)
    assert none == (f"More commands that still fail, found by Recall: {listed}", "a")


def test_past_failures_are_removed_and_the_models_lines_stay() -> None:
    failing = ledger(("make a", 2, "error: one"), ("make b", 2, "error: two"))
    errors = with_open_failures(SummaryDocument(errors=("a model's words",)), failing).errors
    assert still_open(errors, failing) == errors
    passed = ledger(("make a", 2, "error: one"), ("make b", 2, "error: two"), ("make a", 0, "ok"))
    assert still_open(errors, passed) == (errors[0], errors[2])
    more = "More commands that still fail, found by Recall: #3"
    assert still_open((more, "a"), failing) == ("a",)
    assert written_errors((more, *errors)) == ("a model's words",)


def test_the_newest_past_failures_have_their_own_limit() -> None:
    rows = [(f"make {n}", 2, f"error: {n} {'x' * 280}") for n in range(9)]
    known = ledger(*rows, *((command, 0, "ok") for command, _, _ in rows))
    earlier = earlier_failures(["a note"], known)
    assert 1 < len(earlier) < 9
    refs = [fact.ref for fact in known.past_failures()][-len(earlier) :]
    assert [line.partition(":\n")[0] for line in earlier] == [
        f"Failed earlier: `make {9 - len(refs) + n}` failed (exit 2, #{ref})"
        for n, ref in enumerate(refs)
    ]
    assert sum(map(estimate, earlier)) <= MAX_EARLIER_TOKENS
    told = (*earlier, "a note")
    assert written_errors(told) == still_open(told, known) == ("a note",)
    before_last = earlier_failures([], known, until=refs[-1] - 1)
    assert f"#{refs[-1]}" not in "".join(before_last)
    assert f"#{refs[-2]}" in before_last[-1]


def test_failed_calls_are_listed_once_without_repeated_lines() -> None:
    history = History()
    for said, details in (("error: not there", {}), ("denied", {"denied": True})):
        history.call("Edit", {"path": "a.py"}, said, is_error=True, details=details)
    history.call("Read", {"path": "b.py"}, "error: not there", is_error=True)
    found = Ledger()
    for entry in history.entries:
        found.add(entry)
    (line,) = earlier_failures([], found)
    assert re.fullmatch(r"Failed earlier: Read \(#\d+\):\nerror: not there", line)
    assert [call.tool for call in found.failed_calls] == ["Edit", "Read"]
    assert earlier_failures(["The edit said error: not there."], found) == ()
