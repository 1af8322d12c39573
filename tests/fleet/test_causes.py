"""The causes of failures: groups, and the command for each."""

from pathlib import Path

import pytest

from ctxagent.addons.fleet.attempt import FAILURES
from ctxagent.addons.fleet.causes import causes_of
from ctxagent.addons.fleet.ledger import AttemptOutcome

RUN = ["--model", "m", "fleet", "run", "tasks.jsonl", "-j", "2"]


def failure(kind: str, message: str = "") -> AttemptOutcome:
    return AttemptOutcome(exit_code=1, kind=kind, message=message)


def remedy(kind: str, *messages: str) -> tuple[str, str]:
    failures = [(f"t{n}", failure(kind, message)) for n, message in enumerate(messages)]
    (cause,) = causes_of(failures)
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
    messages = [f"Bash x: asks; allow it with --allow '{rule}'" for rule in rules] or ["Bash x"]
    assert remedy("denied", *messages) == (
        "",
        "ctxagent fleet retry tasks.jsonl --failed-by denied && "
        f"ctxagent --model m {options} fleet run tasks.jsonl -j 2",
    )


def test_each_kind_of_failure_has_a_command() -> None:
    for kind in FAILURES:
        change, command = remedy(kind, "budget")
        assert command.startswith("ctxagent "), kind
        assert change or "retry" in command or command.endswith("fleet show tasks.jsonl t0")
    _, command = remedy("limit", "the limit of 1,000 model calls has been reached")
    assert "--max-turns 2000 fleet run" in command
    assert remedy("limit", "the window is too small")[1] == "ctxagent fleet show tasks.jsonl t0"
