"""The last request of recorded sessions, read as a model reads it: every changed file, every open
failure and the newest state of each todo item are in it.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxagent.agent.compaction.summary.open_failures import error_line
from ctxagent.agent.recordings.recording import Recording
from ctxagent.agent.session.entries import Mask, Summary
from ctxagent.agent.session.ledger import Ledger
from ctxagent.agent.session.log import Entries

from ..support.sessions.checks import FAILING, PASSED_LATER, PATHS, TODOS, checks
from ..support.sessions.recording import Played, made, play
from ..support.sessions.workday import workday

RECORDINGS: dict[str, Callable[[], Recording]] = {
    "checks": checks, "billing": made, "workday": lambda: workday(8),
}  # fmt: skip


def _flat(text: str) -> str:
    return " ".join(text.replace("  | ", " ").split())


def _ledger(played: Played) -> Ledger:
    found = Ledger()
    for entry in Entries(played.log):
        found.add(entry)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("window", [20_000, 200_000])
@pytest.mark.parametrize("name", RECORDINGS)
def test_nothing_that_the_log_knows_is_missing(name: str, window: int, tmp_path: Path) -> None:
    played = play(RECORDINGS[name](), tmp_path / "play", window=window)
    ledger, context = _ledger(played), _flat(played.context)
    assert ledger.files
    assert [path for path in ledger.files if path not in played.context] == []
    for fact in ledger.unresolved():
        assert _flat(fact.command) in context
        told = fact.errors if window >= 200_000 else [error_line(fact)]
        assert [line for line in told if _flat(line) not in context] == []


@pytest.mark.slow
@pytest.mark.parametrize("window", [12_000, 20_000, 200_000])
def test_checks_in_any_language_stay_and_only_those_that_fail(window: int, tmp_path: Path) -> None:
    played = play(checks(), tmp_path / "play", window=window)
    edits = [entry for entry in Entries(played.log) if isinstance(entry, Mask | Summary)]
    assert edits or window == 200_000
    context = _flat(played.context)
    for command, told in FAILING.items():
        assert command in context
        assert _flat(told) in context
    assert all(path in played.context for path in PATHS)
    failing = {fact.command.rpartition("&& ")[2] for fact in _ledger(played).unresolved()}
    assert failing == set(FAILING)
    told = re.findall(r"Still failing: `(.*?)`|^- `(.*?)` failed", played.context, re.MULTILINE)
    assert all(PASSED_LATER not in f"{block}{summary}" for block, summary in told)
    newest = [f"({todo['status']}) {todo['content']}" for todo in TODOS]
    if not played.summaries:  # after a summary, the surroundings have the list
        assert all(todo in played.context for todo in newest) or str(TODOS) in played.context
