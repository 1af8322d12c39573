"""Extensions in a conversation: their additions, which of these apply, and reloading."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.replay import formats
from ctxagent.addons.replay.formats import load_recording
from ctxagent.agent.config.settings import ModelSettings, Settings
from ctxagent.agent.errors import CtxagentError, UsageError
from ctxagent.agent.events import Delta, Event, Notice
from ctxagent.agent.extensions.command import Command, Prompt, command
from ctxagent.agent.extensions.python_extensions import Extension, ExtensionSource, LoadedExtensions
from ctxagent.agent.features.extension_features import (
    add_extensions,
    extensions_of,
    has_provider,
    load_extensions,
    model_of,
    without_clashes,
)
from ctxagent.agent.launch import Extras, LaunchOptions, Places
from ctxagent.agent.library.custom_model import CustomModel
from ctxagent.agent.loop.dispatch import Features, guarded_command
from ctxagent.agent.loop.interface import Feature, tool
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.models.base import Reply
from ctxagent.agent.permissions.rules import parse_rule
from ctxagent.agent.recordings import builder
from ctxagent.tools.read import ReadTool
from ctxagent.tools.todo import TodoTool

START = "from ctxagent.api.extension import *\n\n\nclass Mine(Feature):\n"


class Model(CustomModel):
    async def stream(self, request: Any) -> AsyncGenerator[Delta | Reply, None]:
        raise NotImplementedError
        yield


def fixed(*kinds: type[Feature]) -> Any:
    """Return a source with these classes."""

    class Fixed(ExtensionSource):
        def load(self, *given: Any) -> LoadedExtensions[Any]:
            return LoadedExtensions([Extension("fixed", "here", kinds)])

    return Fixed(Path(), Path(), Path(), Path())


def launched(id: str, *kinds: type[Feature]) -> LaunchOptions:
    settings = Settings(model=ModelSettings(id=id))
    here = Path()
    return LaunchOptions(
        settings,
        Places(cwd=here, state=here, config_home=here, environ={"KEY": "1"}),
        extras=Extras(extensions=fixed(*kinds)),
    )


def providing(make: Any) -> type[Feature]:
    return type("Provider", (Feature,), {"name": "p", "providers": {"mine": make}})


def loaded(tmp_path: Path, text: str) -> LoadedExtensions[Feature]:
    """Load a file of the user with this text."""
    folder = tmp_path / "own/extensions"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.py").write_text(START + text)
    home = tmp_path / "home"
    return load_extensions(ExtensionSource(tmp_path / "own", home, home, tmp_path))


def test_without_a_source_there_are_none() -> None:
    here = Path()
    assert (
        extensions_of(
            LaunchOptions(Settings(), Places(cwd=here, state=here, config_home=here, environ={}))
        ).classes
        == []
    )


def test_its_tools_can_be_named_by_rules(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        parse_rule("letters_of")
    text = "    @tool()\n    def letters_of(self, path: str) -> str:\n        'Counts.'\n"
    (kind,) = loaded(tmp_path, text).classes
    assert kind.parts() == ["tool letters_of"]
    assert str(parse_rule("letters_of")) == "letters_of"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("    name = 5", "its name must be a text, not 5"),
        ("    providers = 5", "AttributeError"),
        ("    providers = {'mine': 5}", "'mine' in providers must be a new prefix"),
        ("    providers = {'a:b': print}", "'a:b' in providers must be a new prefix"),
        ("    providers = {'scripted': print}", "'scripted' in providers must be a new prefix"),
        ("    recording_formats = {'mine': 5}", "no attribute 'recognizes'"),
        ("    @tool()\n    def f(self, x): 'F.'", "the parameter x of f has no type hint"),
        ("    @tool\n    def f(self): 'F.'", "write @tool(EFFECT), with an effect of none, read"),
        ("    @tool('fly')\n    def f(self): 'F.'", "write @tool(EFFECT)"),
        ("    @command\n    def f(self, x): 'F.'", "write @command(HELP)"),
    ],
)
def test_a_class_that_cannot_be_used(tmp_path: Path, text: str, why: str) -> None:
    found = loaded(tmp_path, text)
    assert found.classes == []
    assert why in found.warnings[0]


FORMAT = """    class Reader:
        recognizes = staticmethod(lambda row: {recognizes})
        read = staticmethod(lambda rows: {read})
    recording_formats = {{"{name}": Reader}}
"""


@pytest.mark.parametrize(
    ("recognizes", "read", "why"),
    [
        ("1 / 0", "5", "the format f0 of an extension failed: ZeroDivisionError"),
        ("'f1' in row", "5", "the format f1 of an extension gives no TranscriptBuilder"),
        ("'f2' in row", "rows.nothing", "the format f2 of an extension failed: AttributeError"),
    ],
)
def test_a_recording_format_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recognizes: str, read: str, why: str
) -> None:
    name = why.split()[2]
    monkeypatch.setattr(builder, "ADDED_FORMATS", {})
    monkeypatch.setattr(formats, "ADDED_FORMATS", builder.ADDED_FORMATS)
    text = FORMAT.format(recognizes=recognizes, read=read, name=name)
    assert loaded(tmp_path, text).warnings == []
    recording = tmp_path / "r.jsonl"
    recording.write_text(f'{{"{name}": 1}}\n')
    with pytest.raises(UsageError, match=why):
        load_recording(recording)


def test_a_failing_extension_is_left_out(session: LiveSession, events: list[Event]) -> None:
    class Broken(Feature):
        name = "broken"

        def __init__(self, session: LiveSession) -> None:
            raise CtxagentError("no")

    class Whole(Feature):
        name = "whole"

    features = Features(events.append)
    session.options = launched("m", Broken, Whole)
    add_extensions(session, features)
    assert [each.name for each in features.extensions] == ["whole"]
    text = "the extension broken is left out: CtxagentError: no"
    assert events == [Notice("warning", text)]


def test_of_tools_with_one_name_the_first_stays(events: list[Event]) -> None:
    first, second, other = ReadTool(), ReadTool(), TodoTool()
    assert without_clashes([first, other, second], events.append) == [first, other]
    text = "the tool Read of an extension is left out: the name is taken"
    assert events == [Notice("warning", text)]


def test_the_provider_of_a_prefix_makes_the_model() -> None:
    given: list[tuple[str, Mapping[str, str]]] = []

    def make(settings: ModelSettings, environ: Mapping[str, str]) -> Model:
        given.append((settings.id, environ))
        return Model(settings.id)

    launch = launched("mine:small", providing(make))
    assert has_provider(launch)
    assert isinstance(model_of(launch, launch.settings), Model)
    assert given == [("mine:small", {"KEY": "1"})]
    assert not has_provider(launched("mine", providing(make)))
    assert not has_provider(launched("yours:small", providing(make)))


class NoText(Model):
    def __init__(self) -> None:
        super().__init__("x")
        self.id = 5  # type: ignore[assignment]


@pytest.mark.parametrize("made", [None, 5, NoText(), type("M", (), {"id": "x"})()])
def test_a_provider_that_makes_no_model(made: Any) -> None:
    launch = launched("mine:small", providing(lambda settings, environ: made))
    with pytest.raises(UsageError, match="the provider of the model mine:small failed"):
        model_of(launch, launch.settings)


def test_a_provider_that_says_what_is_wrong() -> None:
    def make(settings: ModelSettings, environ: Mapping[str, str]) -> Model:
        raise UsageError("set MY_KEY")

    launch = launched("mine:small", providing(make))
    with pytest.raises(UsageError, match=r"^set MY_KEY"):
        model_of(launch, launch.settings)


async def in_time(argument: str) -> str:
    return f"<{argument}>"


async def called(run: Any, argument: str) -> Any:
    command = guarded_command(Command("c", "h", run))
    assert command.run
    return await command.run(argument)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (in_time, "<a b>"),
        (lambda argument: argument, "a b"),
        (lambda argument: None, None),
        (Prompt, Prompt("a b")),
    ],
)
def test_a_command_may_be_async_or_not(run: Any, expected: Any) -> None:
    assert asyncio.run(called(run, "a b")) == expected


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (lambda argument: 5, "it must give a text, a Prompt or None, not int"),
        (lambda argument: Prompt(5), "not int"),  # type: ignore[arg-type]
        (lambda: None, "takes 0 positional arguments"),
        (exit, "the command /c failed: SystemExit"),
    ],
)
def test_a_command_that_fails(run: Any, why: str) -> None:
    with pytest.raises(CtxagentError, match=why):
        asyncio.run(called(run, "a"))


def test_the_decorators_give_tools_and_commands(session: LiveSession) -> None:
    class Mine(Feature):
        @tool("read")
        def words(self, text: str) -> int:
            """Counts words."""
            return len(text.split())

        @command("say it", argument="[X]")
        async def say_it(self, argument: str) -> str:
            return argument

        @command("other", name="named")
        async def other(self, argument: str) -> str:
            return argument

    feature = Mine(session)
    (made,) = feature.tools()
    assert (made.name, made.effect, made.description) == ("words", "read", "Counts words.")
    assert [(each.name, each.help, each.argument) for each in feature.commands()] == [
        ("say-it", "say it", "[X]"),
        ("named", "other", ""),
    ]
    assert Mine.command_names() == ["say-it", "named"]
    assert Mine.parts() == ["tool words", "command /say-it", "command /named"]
