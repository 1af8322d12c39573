"""A feature that needs only the session is found by its name, with its commands and settings."""

import sys
from types import ModuleType
from typing import Any, ClassVar, cast

import pytest

from ctxagent.agent import features
from ctxagent.agent.assembly import NOT_BRIEF, not_brief
from ctxagent.agent.errors import UsageError
from ctxagent.agent.features import built_in_features, plain_feature, plain_features
from ctxagent.agent.features.run_state import RunStateFeature
from ctxagent.agent.loop.agent import AgentState
from ctxagent.agent.loop.interface import Feature, Setting, command, tool
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.permissions import rules

from ..support.sessions.setup import every_tool, options_with

NOTHING = cast(Any, None)  # a plain feature needs the session alone


class FarGreetingFeature(Feature):
    settings: ClassVar = {"words": Setting("hello", "What it says.")}

    @command("greet")
    def greet(self, argument: str) -> str:
        return f"{self.setting('words')} {argument}"

    @tool("none")
    def greet_far(self, name: str) -> str:
        """Greets."""
        return name


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a module with the feature "far-greeting" to the product."""
    module = ModuleType(f"{features.__name__}.far_greeting")
    vars(module)["FarGreetingFeature"] = FarGreetingFeature
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(features, "FEATURE_NAMES", ("far-greeting", "run-state"))


def features_of(session: LiveSession, *off: str) -> list[Feature]:
    agent = cast(AgentState, session)
    return [*built_in_features(agent, *[NOTHING] * 6, off=off)]


def made(session: LiveSession, *off: str, **given: object) -> list[Feature]:
    session.options = options_with({"far-greeting": given}, session.options)
    return features_of(session, *off)


def test_a_feature_is_found_by_its_name(session: LiveSession) -> None:
    assert plain_feature("run-state") is RunStateFeature
    assert [(type(each), each.name) for each in made(session)] == [
        (FarGreetingFeature, "far-greeting"),
        (RunStateFeature, "run-state"),
    ]
    assert [each.name for each in made(session, "far-greeting")] == ["run-state"]
    assert plain_features() == [FarGreetingFeature, RunStateFeature]
    assert plain_features(["run-state"]) == [FarGreetingFeature]


def test_its_tool_is_known_to_rules_and_not_to_small_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "_added_names", {})
    with pytest.raises(UsageError):
        rules.parse_rule("greet_far")
    assert not_brief() == [*NOT_BRIEF, "far-greeting"]
    assert rules.parse_rule("greet_far").tool == "greet_far"
    assert "greet_far" in [tool.name for tool in every_tool()]


def test_its_command_uses_its_setting(session: LiveSession) -> None:
    for given, said in (({}, "hello you"), ({"words": "ahoy"}, "ahoy you")):
        (found,) = made(session, **given)[0].commands()
        assert found.run
        assert found.run("you") == said


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"word": "ahoy"}, "far-greeting.word is not a setting; known settings: words"),
        ({"words": 5}, "far-greeting.words is 5; expected a value like 'hello'"),
    ],
)
def test_a_wrong_setting_is_an_error(
    session: LiveSession, given: dict[str, object], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        made(session, **given)


def test_an_extension_may_have_the_name_of_a_feature_without_settings(
    session: LiveSession,
) -> None:
    session.options = options_with({"run-state": {"mine": 1}}, session.options)
    assert len(features_of(session)) == 2
