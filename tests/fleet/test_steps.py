"""The verdict of a score, by its exit code and the last line of its output."""

import pytest

from ctxagent.addons.fleet.steps import ScoreVerdict, StepError, parse_verdict


@pytest.mark.parametrize(
    ("code", "out", "verdict"),
    [
        (0, "", ScoreVerdict(1.0, True, {})),
        (1, "1", ScoreVerdict(0.0, False, {})),
        (0, "12 passed in 3 s\n", ScoreVerdict(1.0, True, {})),
        (0, '"all is well"', ScoreVerdict(1.0, True, {})),
        (0, "noise\n0.25\n\n", ScoreVerdict(0.25, False, {})),
        (0, "1", ScoreVerdict(1.0, True, {})),
        (0, "false", ScoreVerdict(0.0, False, {})),
        (0, '{"score": 0.5, "passed": true, "lines": 3}', ScoreVerdict(0.5, True, {"lines": 3})),
        (0, '{"passed": false}', ScoreVerdict(0.0, False, {})),
    ],
)
def test_a_verdict(code: int, out: str, verdict: ScoreVerdict) -> None:
    assert parse_verdict(code, out, "") == verdict


@pytest.mark.parametrize(
    ("code", "out", "why"),
    [
        (2, "said", "exit code 2: why"),
        (-9, "", "exit code -9"),
        (0, "12", "from 0 to 1, but the last line is 12"),
        (0, "NaN", "from 0 to 1"),
        (0, '{"lines": 3}', "from 0 to 1"),
    ],
)
def test_an_invalid_verdict_is_a_failure(code: int, out: str, why: str) -> None:
    with pytest.raises(StepError, match=why):
        parse_verdict(code, out, "noise\nwhy\n")
