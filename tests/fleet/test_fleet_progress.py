"""The lines that a run of a fleet prints when attempts end."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ctxagent.addons.fleet.ledger import AttemptOutcome
from ctxagent.addons.fleet.results_command import FleetProgress


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_failed_score_has_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    progress = FleetProgress(cast(Any, None), cast(Any, None))
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    order = cast(Any, SimpleNamespace(task=SimpleNamespace(id="t0")))

    def told(**score: Any) -> str:
        ended = AttemptOutcome(cost_usd=0.5, calls=2, exit_code=0, **score)
        progress.observer.ended(order, ended, False)
        return capsys.readouterr().err

    line = "done    t0  2 calls · $0.5000 · 0.0 s · not passed (0)\n"
    assert told(score=0.0, passed=False) == line
    passed = told(score=1.0, passed=True)
    assert ("passed (1)" in passed) is not is_terminal  # the terminal has a line that counts them
