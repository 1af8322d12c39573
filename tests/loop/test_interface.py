"""The interface of features: without an override nothing happens, and each event is dispatched."""

import asyncio
import inspect
from typing import Any, ClassVar

import pytest

from ctxagent.agent.config.keys import Setting
from ctxagent.agent.extensions.command import Prompt, command
from ctxagent.agent.loop.dispatch import Features
from ctxagent.agent.loop.interface import Feature, Veto, tool
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.extension import SessionHandle

from ..support.sessions.setup import options_with

EVENTS = {
    name: method
    for name, method in vars(Feature).items()
    if inspect.isfunction(method) and not name.startswith("_") and name not in ("layers", "setting")
}


def test_each_event_is_dispatched_with_the_same_arguments() -> None:
    for name, method in EVENTS.items():
        given = inspect.signature(getattr(Features, name)).parameters
        assert list(given) == list(inspect.signature(method).parameters), name


@pytest.mark.parametrize("name", EVENTS)
def test_without_an_override_nothing_happens(session: LiveSession, name: str) -> None:
    names = list(inspect.signature(EVENTS[name]).parameters)[1:]
    given: dict[str, Any] = dict.fromkeys(names)
    result = getattr(Feature(session), name)(**given)
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    assert not result
    assert session.log.last_seq == 0


def test_a_veto_has_a_reason() -> None:
    veto = Veto("not on a Sunday")
    assert (veto.message, str(veto)) == ("not on a Sunday", "not on a Sunday")


class Walrus(Feature):
    """A feature with marked methods."""

    name = "walrus"
    settings: ClassVar = {"fish": Setting(3, "How many fish.")}
    providers: ClassVar = {"echo": lambda settings, environ: None}
    recording_formats: ClassVar = {"tape": object()}

    @tool("read")
    def count(self, place: str) -> str:
        """Count the walruses at a place."""
        return f"four at {place}"

    @tool()
    def catch(self) -> str:
        """Catch a fish."""
        return "caught"

    @command("Feed it.", argument="[FISH]")
    async def feed_it(self, words: str) -> Prompt:
        return Prompt(f"Feed it {words}.")

    @command("Count it.", name="how-many")
    def number(self, words: str) -> str:
        return "one"

    def status(self) -> str:
        return "asleep"

    def _private(self) -> None:
        pass


def test_marked_methods_are_tools_and_commands(session: LiveSession) -> None:
    walrus = Walrus(session)
    tools = walrus.tools()
    assert [(each.name, each.effect) for each in tools] == [("count", "read"), ("catch", "run")]
    assert tools[0].schema()["description"] == "Count the walruses at a place."
    feed, number = walrus.commands()
    assert (feed.name, feed.help, feed.argument) == ("feed-it", "Feed it.", "[FISH]")
    assert asyncio.run(feed.run("two")) == Prompt("Feed it two.")  # type: ignore[arg-type]
    assert (number.name, number.argument, number.run("")) == ("how-many", "", "one")
    assert (Walrus.tool_names(), Walrus.command_names()) == (
        ["count", "catch"],
        ["feed-it", "how-many"],
    )


def test_the_parts_of_a_feature_are_named() -> None:
    assert Walrus.parts() == [
        "tool count", "tool catch", "command /feed-it", "command /how-many", "setting fish",
        "provider echo", "format tape", "status",
    ]  # fmt: skip
    assert Feature.tool_names() == []


def test_a_setting_has_its_default(session: LiveSession) -> None:
    walrus = Walrus(session)
    assert walrus.setting("fish") == 3
    given = {"walrus": {"fish": 5}, "heron": {"fish": 7}}
    session.options = options_with(given, session.options)
    assert walrus.setting("fish") == 5
    with pytest.raises(KeyError):
        walrus.setting("bread")


def test_marks_without_their_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match=r"write @tool\(EFFECT\), with an effect of none, read"):
        tool(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"write @command\(HELP\)"):
        command(lambda: None)  # type: ignore[arg-type]


def test_older_extensions_find_the_session_by_its_old_name(session: LiveSession) -> None:
    assert Feature(session).handle is session
    assert SessionHandle is LiveSession
