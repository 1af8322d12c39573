"""Errors that a summary marks as resolved: the author and the reason are kept until a later
failure.
"""

from typing import Any

import pytest

from ctxagent.agent.compaction.document import SummaryDocument
from ctxagent.agent.compaction.summary.facts import (
    open_failures_text,
    resolution_rows,
    resolved_error,
)
from ctxagent.agent.compaction.summary.merge import document_from_ledger, with_ledger_facts
from ctxagent.agent.compaction.verify import choose_probes
from ctxagent.agent.session.entries import Revert, Summary
from ctxagent.agent.session.ledger import Ledger

from ..support.sessions.history import History

REDIS = "node store.js"
REDIS_ERROR = "Error: connect failed: REDIS_URL is not set"


class Session(History):
    """A log with commands that fail, and summaries with claims about them."""

    def __init__(self) -> None:
        super().__init__()
        self.say("Add a login.")

    def run(self, command: str, code: int, output: str = "") -> int:
        details = {"command": command, "exit_code": code}
        return self.call("Bash", details, output, is_error=code != 0, details=details)

    def ledger(self) -> Ledger:
        ledger = Ledger()
        for entry in self.entries:
            ledger.add(entry)
        return ledger

    def summarise(self, *errors: str) -> tuple[dict[str, Any], ...]:
        """Record a summary with such lines under its errors; what it says of earlier ones."""
        ledger = self.ledger()
        rows = resolution_rows(errors, "model", ledger, ledger.unresolved())
        self.add(Summary, document={}, text="", covers=[1, 2], keep_from=3, resolved=list(rows))
        return rows

    def failing(self) -> list[int]:
        return [fact.ref for fact in self.ledger().unresolved()]


@pytest.mark.parametrize(
    "line",
    [
        "Resolved: KeyError", "**Resolved:** KeyError", "resolved (#12): KeyError", "RESOLVED — x",
        "[Resolved] KeyError", "~~Resolved~~: KeyError", "- Resolved: #12",
    ],
)  # fmt: skip
def test_a_line_that_begins_with_the_word_says_that_an_error_is_resolved(line: str) -> None:
    assert resolved_error(line) is not None


def test_resolved_errors_are_recorded_with_their_refs() -> None:
    assert resolved_error("**Resolved (#12):** KeyError") == "KeyError (#12)"
    assert resolved_error("Resolved: KeyError") == "KeyError"


@pytest.mark.parametrize(
    "line",
    [
        "Unresolved: KeyError", "KeyError is not resolved", "KeyError (not resolved)",
        "DNS error: resolved to 10.0.0.1", "KeyError, to be resolved", "not resolved: KeyError",
        "KeyError: partially resolved", "Blocked until DNS is resolved", "KeyError: fixed size",
        "could not be resolved: host", "Previous attempt failed", "resolved", "Fixed: KeyError",
        "KeyError in a.py — resolved by a default", "#12 is resolved.",
    ],
)  # fmt: skip
def test_an_open_error_stays_open(line: str) -> None:
    assert resolved_error(line) is None


@pytest.mark.parametrize(
    "line",
    [
        "Resolved: #{ref}, JWT is used now",
        "Resolved: `node store.js` — JWT needs no store",
        f"Resolved: {REDIS_ERROR}",
    ],
)
def test_a_model_resolves_what_never_runs_again(line: str) -> None:
    session = Session()
    ref = session.run(REDIS, 1, REDIS_ERROR)
    other = session.run("make", 2, "error: no rule for x")
    line = line.format(ref=ref)
    assert session.summarise(line) == ({"by": "model", "why": line, "refs": [ref]},)
    assert session.failing() == [other]
    ledger = session.ledger()
    assert ledger.to_json()["resolutions"] == [{"by": "model", "why": line, "refs": [ref]}]
    asked = choose_probes(session.view().items, ledger, None, 4_000)
    assert "REDIS_URL" not in str([p.entry for p in asked if p.section == "errors"])
    assert "REDIS_URL" not in str(document_from_ledger(ledger, None).errors)
    old = SummaryDocument(errors=(f"`{REDIS}` failed (exit 1, #{ref}):\n{REDIS_ERROR}", "a race"))
    assert with_ledger_facts(old, ledger).errors == ("a race",)


def test_a_later_failure_brings_it_back() -> None:
    session = Session()
    first = session.run(REDIS, 1, REDIS_ERROR)
    session.summarise(f"Resolved: {REDIS_ERROR}")
    again = session.run(REDIS, 1, REDIS_ERROR)
    assert session.failing() == [again]
    # The same words again, or what they named by its number, do not speak of the new failure.
    assert session.summarise(f"Resolved: {REDIS_ERROR}") == ()
    session.summarise(f"Resolved: #{first} {REDIS_ERROR}")
    assert session.failing() == [again]
    session.summarise(f"Resolved: #{again}")
    assert session.failing() == []


def test_a_summary_may_say_that_it_is_open_after_all() -> None:
    session = Session()
    ref = session.run(REDIS, 1, REDIS_ERROR)
    session.summarise(f"Resolved: #{ref}")
    assert session.summarise(f"`{REDIS}` fails again (#{ref})")[0]["reopened"] == [ref]
    assert session.failing() == [ref]


def test_a_summary_that_is_undone_resolves_nothing() -> None:
    session = Session()
    ref = session.run(REDIS, 1, REDIS_ERROR)
    session.summarise(f"Resolved: #{ref}")
    session.add(Revert, target=len(session.entries))
    assert session.failing() == [ref]


def test_words_that_fit_several_failures_resolve_none() -> None:
    session = Session()
    refs = [session.run(f"python a{n}.py", 1, f"KeyError: 'key_{n}' in app.py") for n in range(2)]
    session.summarise("Resolved: the error in app.py", "Resolved: something else")
    assert session.failing() == refs


def test_open_wins_where_a_summary_says_both() -> None:
    session = Session()
    ref = session.run(REDIS, 1, REDIS_ERROR)
    other = session.run("make", 2, "error: no rule for x")
    for said in (f"Resolved: #{ref}", f"Resolved: {REDIS_ERROR}"):
        for still in (f"`{REDIS}` fails", f"#{ref} fails", REDIS_ERROR):
            (row,) = session.summarise(said, still, "Resolved: #0")[:1]
            assert row["refs"] == []
            assert session.failing() == [ref, other]
            session = Session()
            ref, other = session.run(REDIS, 1, REDIS_ERROR), session.run("make", 2, "error: x y")


@pytest.mark.parametrize("line", ["Resolved: AssertionError: error4"])
def test_a_name_that_is_a_part_of_another_does_not_name_it(line: str) -> None:
    session = Session()
    ref = session.run("./check0.sh", 1, "AssertionError: error48 in the total")
    session.summarise(line)
    assert session.failing() == [ref]
    session.summarise(line + "8")
    assert session.failing() == []


def test_an_error_that_quotes_what_has_passed_goes() -> None:
    session = Session()
    session.run("pytest -q", 1, "KeyError: 'x' in load")
    old = SummaryDocument(
        errors=("Loading gives KeyError: 'x' in load", "`pytest -q` fails", "`pytest` is slow")
    )
    assert with_ledger_facts(old, session.ledger()) == old
    session.run("pytest -q", 0, "1 passed")
    assert with_ledger_facts(old, session.ledger()).errors == ("`pytest` is slow",)
    session.run("pytest -q", 1, "KeyError: 'x' in load")
    assert with_ledger_facts(old, session.ledger()) == old


def test_the_model_is_told_what_counts_as_failing() -> None:
    session = Session()
    ref = session.run(REDIS, 1, REDIS_ERROR)
    assert f"- #{ref} `{REDIS}` {REDIS_ERROR}" in open_failures_text(session.ledger().unresolved())
    assert open_failures_text([]) == ""


def test_garbled_rows_resolve_nothing() -> None:
    session = Session()
    ref = session.run(REDIS, 1, REDIS_ERROR)
    rows: list[dict[str, Any]] = [{"refs": ref}, {"refs": ["x"]}, {"reopened": None}, {"why": 3}]
    session.add(Summary, document={}, text="", covers=[1, 2], keep_from=3, resolved=rows)
    assert session.failing() == [ref]
