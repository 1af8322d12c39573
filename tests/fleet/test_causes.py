"""The causes of failures: groups, and the command for each."""

from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.fleet.attempt import FAILURES
from ctxagent.addons.fleet.causes import causes_of
from ctxagent.addons.fleet.ledger import AttemptOutcome

RUN = ["--model", "m", "fleet", "run", "tasks.jsonl", "-j", "2"]


def failure(kind: str, message: str = "", **reason: Any) -> AttemptOutcome:
    return AttemptOutcome(exit_code=1, kind=kind, message=message, reason=reason)


def remedy(*outcomes: AttemptOutcome) -> tuple[str, str]:
    (cause,) = causes_of((f"t{n}", outcome) for n, outcome in enumerate(outcomes))
    return cause.remedy(Path("tasks.jsonl"), RUN)


def test_failures_that_differ_in_names_and_numbers_have_one_cause() -> None:
    found = causes_of(
        [
            ("b", failure("error", "cannot read /tmp/b/x: no such file")),
            ("t1", failure("rejected", "request 17: no model m")),
            ("t2", failure("rejected", "request 29: no model m")),
            ("t3", failure("rejected", "too long")),
            ("c", failure("error", "cannot read /tmp/c/y: no such file")),
            ("t4", failure("rejected", "request 1: no model m")),
        ]
    )
    assert [(cause.kind, cause.tasks) for cause in found] == [
        ("rejected", ["t1", "t2", "t4"]),
        ("error", ["b", "c"]),
        ("rejected", ["t3"]),
    ]
    assert found[0].text == "rejected: request 17: no model m"


@pytest.mark.parametrize(
    ("rules", "options"),
    [
        (["Edit(a.py)", "Write(b.py)"], "--permission-mode accept-edits"),
        (["Bash(make *)", "Edit"], "--allow 'Bash(make *)' --allow Edit"),
        ([f"Bash({n})" for n in range(6)], "--permission-mode sandboxed"),
        ([], "--permission-mode sandboxed"),
    ],
)
def test_the_command_for_denials_allows_the_calls(rules: list[str], options: str) -> None:
    assert remedy(failure("denied", rules=rules[:1]), failure("denied", rules=rules)) == (
        "",
        "ctxagent fleet retry tasks.jsonl --failed-by denied && "
        f"ctxagent --model m {options} fleet run tasks.jsonl -j 2",
    )


def test_each_kind_of_failure_has_a_command() -> None:
    for kind in FAILURES:
        change, command = remedy(failure(kind, limit="budget", value=1.0))
        assert command.startswith("ctxagent "), kind
        assert change or "retry" in command or command.endswith("fleet show tasks.jsonl t0")
    _, command = remedy(failure("limit", limit="turns", value=1_000))
    assert "--max-turns 2000 fleet run" in command
    show = "ctxagent fleet show tasks.jsonl t0"
    assert remedy(failure("limit", "too full", limit="context"))[1] == show


def test_limits_with_different_values_have_different_causes() -> None:
    limits = [failure("limit", limit="turns", value=value) for value in (5, 9, 5)]
    found = causes_of((f"t{n}", outcome) for n, outcome in enumerate(limits))
    assert [cause.tasks for cause in found] == [["t0", "t2"], ["t1"]]


def test_failures_in_older_ledgers_are_grouped_by_their_text() -> None:
    old = [failure("limit", f"the limit of {n} model calls has been reached") for n in (5, 9)]
    assert remedy(*old)[1] == "ctxagent fleet show tasks.jsonl t0"
