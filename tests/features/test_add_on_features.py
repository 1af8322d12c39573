"""Features of add-ons: which a session has, in which order, and what becomes of those that fail."""

import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from ctxagent.agent import features
from ctxagent.agent.border.entry_points import EntryPoint
from ctxagent.agent.config.add_on_settings import LspSettings, TelemetrySettings
from ctxagent.agent.errors import UsageError
from ctxagent.agent.events import Answer, Event, Notice, Question
from ctxagent.agent.features import add_on_features, learn_add_on_tools
from ctxagent.agent.loop.agent import AgentState
from ctxagent.agent.loop.interface import Feature, Setting, tool
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.permissions import rules
from ctxagent.agent.permissions.rules import parse_rule

from ..support.sessions.setup import options_with

LAST = "zebra"


class ZebraFeature(Feature):
    name = LAST
    settings: ClassVar = {"stripes": Setting(7, "How many.")}

    @tool("none")
    def count_stripes(self) -> str:
        """Count."""
        return "7"


class DiagnosticsFeature(Feature):
    name = "diagnostics"


class LackingFeature(Feature):
    def __init__(self, session: LiveSession) -> None:
        raise UsageError("there is no walrus", hint="Install it.")


class BrokenFeature(Feature):
    def __init__(self, session: LiveSession) -> None:
        raise KeyError("walrus")


Installed = Callable[..., None]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Return a function that installs classes as add-ons, by their names."""

    def install(**kinds: type[Feature]) -> None:
        module = ModuleType("zoo")
        vars(module).update(kinds)
        monkeypatch.setitem(sys.modules, "zoo", module)
        points = {name: EntryPoint(name, f"zoo:{name}", "zoo 1.0") for name in kinds}
        monkeypatch.setattr(features, "entry_points", lambda group: points)

    return install


def names(session: LiveSession, *off: str) -> list[str]:
    return [each.name for each in add_on_features(cast(AgentState, session), off=off)]


def warnings(events: list[Event]) -> list[str]:
    return [each.text for each in events if isinstance(each, Notice)]


def give(session: LiveSession, **sections: Any) -> None:
    settings = replace(session.options.settings, **sections)
    session.options = replace(session.options, settings=settings)


async def asked(question: Question) -> Answer | None:
    return None


def test_they_come_by_their_names_unless_they_are_off(
    session: LiveSession, installed: Installed
) -> None:
    session.ask = asked
    installed(zebra=ZebraFeature, diagnostics=DiagnosticsFeature)
    assert names(session) == ["diagnostics", LAST]
    assert names(session, "diagnostics") == [LAST]
    assert parse_rule("count_stripes").tool == "count_stripes"


def test_a_safe_start_has_none(session: LiveSession, installed: Installed) -> None:
    installed(zebra=ZebraFeature)
    options = session.options
    session.options = replace(options, extras=replace(options.extras, safe=True))
    assert names(session) == []


def test_the_settings_say_whether_a_session_needs_one(
    session: LiveSession, installed: Installed
) -> None:
    installed(diagnostics=DiagnosticsFeature)
    assert names(session) == []  # without a user, language servers run only if requested
    give(session, lsp=LspSettings(enabled="on"))
    assert names(session) == ["diagnostics"]


def test_a_subagent_has_what_its_parent_has(session: LiveSession, installed: Installed) -> None:
    installed(diagnostics=DiagnosticsFeature)
    cast(AgentState, session).parent = cast(AgentState, SimpleNamespace(ask=None))
    assert names(session) == []
    cast(AgentState, session).parent = cast(AgentState, SimpleNamespace(ask=asked))
    assert names(session) == ["diagnostics"]


def test_a_missing_one_is_named_if_the_user_requested_it(
    session: LiveSession, events: list[Event], installed: Installed
) -> None:
    installed()
    session.ask = asked
    give(session, lsp=LspSettings(servers=(".x: y",)))
    assert names(session) == []
    assert warnings(events) == []
    give(session, lsp=LspSettings(enabled="on"), telemetry=TelemetrySettings(on=True))
    assert names(session) == []
    assert warnings(events) == [
        "[lsp] has no effect: the add-on 'diagnostics' is not installed",
        "[telemetry] has no effect: the add-on 'telemetry' is not installed",
    ]


def test_a_failing_one_is_left_out_with_a_warning(
    session: LiveSession, events: list[Event], installed: Installed
) -> None:
    installed(broken=BrokenFeature, lacking=LackingFeature, zebra=ZebraFeature)
    assert names(session) == [LAST]
    assert warnings(events) == [
        "the add-on 'broken' of zoo 1.0 is left out: KeyError: 'walrus'",
        "there is no walrus. Install it.",
    ]


class NamelessFeature(Feature):
    settings: ClassVar = {"stripes": Setting(7, "How many.")}


def test_one_without_a_name_has_that_of_its_entry_point(
    session: LiveSession, installed: Installed
) -> None:
    installed(okapi=NamelessFeature)
    assert names(session) == ["okapi"]
    session.options = options_with({"okapi": {"stripes": 8}}, session.options)
    (feature,) = add_on_features(cast(AgentState, session))
    assert feature.setting("stripes") == 8


def test_a_warning_names_an_object_that_is_no_feature(
    session: LiveSession, events: list[Event], installed: Installed
) -> None:
    installed(zebra=cast(Any, object))
    assert names(session) == []
    (warning,) = warnings(events)
    assert warning == (
        "the add-on 'zebra' of zoo 1.0 is left out: "
        "TypeError: zoo:zebra is not a subclass of Feature"
    )


def test_their_tools_are_known_before_a_session(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "_added_names", {})
    installed(zebra=ZebraFeature, diagnostics=BrokenFeature)
    assert not learn_add_on_tools(off=(), safe=True)
    assert not learn_add_on_tools(off=(LAST,), safe=False)
    with pytest.raises(UsageError):
        parse_rule("count_stripes")
    assert learn_add_on_tools(off=(), safe=False)
    assert parse_rule("count_stripes").tool == "count_stripes"
    installed(broken=cast(Any, object), zebra=ZebraFeature)
    assert not learn_add_on_tools(off=(), safe=False)


def test_a_wrong_setting_is_an_error(session: LiveSession, installed: Installed) -> None:
    installed(zebra=ZebraFeature)
    session.options = options_with({LAST: {"stripes": "many"}}, session.options)
    with pytest.raises(UsageError, match=r"zebra.stripes is 'many'"):
        names(session)
