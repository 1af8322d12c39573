"""The settings of compaction in a project's file."""

from ctxagent.agent.config.settings import KEYS, build_settings

from .conftest import Place

DEFAULTS = build_settings({name: key.default for name, key in KEYS.items()})

COSTS = """\
[compact]
mode = "off"
at = 2_000
[clear]
when = "off"
"""


def test_a_project_file_that_is_not_trusted_cannot_raise_the_bill(place: Place) -> None:
    place.theirs(COSTS)
    loaded = place.load()
    assert loaded.settings == DEFAULTS
    for name in ("compact.mode", "compact.at", "clear.when"):
        assert name in loaded.notices[0]
