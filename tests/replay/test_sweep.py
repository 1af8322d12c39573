"""The sweep: which settings it tries, and which it finds."""

from collections.abc import Mapping

import pytest

from ctxagent.addons.replay.results import Share, Sums
from ctxagent.addons.replay.sweep import Axis, parse_axis, settings_lines, sweep
from ctxagent.agent.config.load import flag_value_text
from ctxagent.agent.errors import UsageError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("clear.keep=1..4", ("1", "2", "3", "4")),
        ("compact.at=0.6..0.8", ("0.6", "0.65", "0.7", "0.75", "0.8")),
        ("compact.at=80%..90%", ("0.8", "0.85", "0.9")),
        ("move.above=5000..20000/4", ("5000", "10000", "15000", "20000")),
        ("clear.above=1..1000", tuple(str(round(1 + 999 * n / 11)) for n in range(12))),
        ("clear.when=auto,off", ("auto", "off")),
        (" truncate.at = off, 0.5 ", ("off", "0.5")),
    ],
)
def test_values_of_an_axis(text: str, values: tuple[str, ...]) -> None:
    assert parse_axis(text) == Axis(text.partition("=")[0].strip(), values)


@pytest.mark.parametrize(
    "text", ["", "a.b", "a.b=", "=1..2", "a.b=2..1", "a.b=1...2..3,", "a.b=1,,2", "a.b=1..99/99"]
)
def test_an_invalid_axis_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--sweep"):
        parse_axis(text)


class Bowl:
    """Costs of settings with their minimum at x=4, y=2. With y=1, too many results are missed."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []

    def __call__(self, values: Mapping[str, str]) -> Sums:
        self.asked.append(dict(values))
        x, y = int(values.get("a.x", 1)), int(values.get("b.y", 5))
        dollars = 10 + (x - 4) ** 2 + (y - 2) ** 2 - (3 if y == 1 else 0)
        return Sums(dollars=dollars, missed=9 if y == 1 else 1, recovered=Share(100, 100))


def written_so(values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(values.items()))


AXES = (Axis("a.x", ("1", "2", "3", "4", "5")), Axis("b.y", ("1", "2", "3")))


def test_it_finds_the_cheapest_within_the_bound() -> None:
    bowl = Bowl()
    found = sweep(AXES, bowl, 0.02, written_so)
    assert found.best is not None
    assert dict(found.best.values) == {"a.x": "4", "b.y": "2"}
    assert found.now.values == ()
    assert found.best.missed == 0.01
    assert len(bowl.asked) == len({tuple(sorted(asked.items())) for asked in bowl.asked})
    assert len(bowl.asked) < 24  # of the whole grid
    assert [tried.within for tried in found.tried if dict(tried.values).get("b.y") == "1"] != []


def test_equal_settings_are_tried_once_and_not_listed() -> None:
    """The current values are x=1 and y=5; 04 equals 4."""
    bowl = Bowl()
    axes = (Axis("a.x", ("1", "4", "04")), Axis("b.y", ("5", "05")))

    def meant(values: Mapping[str, str]) -> tuple[int, int]:
        return int(values.get("a.x", 1)), int(values.get("b.y", 5))

    found = sweep(axes, bowl, 0.02, meant)
    assert bowl.asked == [{}, {"a.x": "4"}]
    assert found.best is not None
    assert dict(found.best.values) == {"a.x": "4"}


def test_a_session_that_stops_early_is_not_cheaper() -> None:
    def evaluate(values: Mapping[str, str]) -> Sums:
        small = values.get("a.x") == "1"
        return Sums(dollars=1 if small else 9, stopped=int(small), recovered=Share(9, 9))

    found = sweep([Axis("a.x", ("1", "2"))], evaluate, 0.5, written_so)
    assert found.best is found.now
    assert [tried.within for tried in found.tried] == [True, False, True]


def test_without_a_bound_no_more_is_missed_than_now() -> None:
    found = sweep(AXES, Bowl(), None, written_so)
    assert found.best is not None
    assert dict(found.best.values) == {"a.x": "4", "b.y": "2"}
    assert found.now.within


def test_a_wide_bound_lets_more_be_missed() -> None:
    found = sweep(AXES, Bowl(), 0.5, written_so)
    assert found.best is not None
    assert dict(found.best.values)["b.y"] == "1"


def test_no_best_settings_if_none_is_within_the_bound() -> None:
    assert sweep(AXES, Bowl(), 0.001, written_so).best is None


def test_current_settings_stay_if_none_is_cheaper() -> None:
    found = sweep(AXES, lambda values: Sums(dollars=1.0, recovered=Share(9, 9)), 0.01, written_so)
    assert found.best is found.now


def test_the_lines_for_a_file_of_settings() -> None:
    values = {"clear.keep": "2", "compact.at": "0.85", "clear.above": "500"}
    found = sweep([Axis(k, (v,)) for k, v in values.items()], _cheaper, 1.0, written_so)
    assert found.best is not None
    assert settings_lines(found.best, flag_value_text) == (
        "[clear]\nabove = 500\nkeep = 2\n\n[compact]\nat = 0.85"
    )


def _cheaper(values: Mapping[str, str]) -> Sums:
    return Sums(dollars=10.0 - len(values), recovered=Share(1, 1))
