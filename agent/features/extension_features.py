"""Extensions: third-party features, added to a conversation."""

import asyncio
from collections.abc import Mapping, Sequence
from types import MethodType
from typing import Any

from ...tools.base import Tool
from ...tools.function_tool import function_tool
from ...tools.system.foreign_code import foreign_code
from ..compaction.layers.known import add_layer
from ..config.keys import SCRIPTED, Setting
from ..config.settings import Settings
from ..errors import CtxagentError, UsageError
from ..events import Emit, Notice
from ..extensions.python_extensions import ExtensionSource, LoadedExtensions
from ..launch import LaunchOptions
from ..loop.agent import AgentState
from ..loop.dispatch import Features
from ..loop.interface import Feature, MakeModel, check_settings
from ..loop.live_session import LiveSession
from ..models.base import Model
from ..models.factory import make_model
from ..permissions.rules import add_tool_names

_CALLED = ("stream", "assumed_limits", "limits", "close")  # methods of a model


def extensions_of(launch: LaunchOptions, *, again: bool = False) -> LoadedExtensions[Feature]:
    """Return the extensions for these launch options. With `again`, reload their files. Runs their
    code. Blocks.
    """
    if launch.extras.extensions is None:
        return LoadedExtensions()
    return load_extensions(launch.extras.extensions, again=again)


def load_extensions(source: ExtensionSource, *, again: bool = False) -> LoadedExtensions[Feature]:
    """Return the extensions of a source, and register their additions for the whole process."""
    return (source.reload if again else source.load)(Feature, _register)


def _register(kind: type[Feature]) -> None:
    """Register the names of an extension for rules and replay. Raises TypeError, ValueError and
    UsageError for an invalid class.
    """
    if not isinstance(kind.name, str):
        raise TypeError(f"its name must be a text, not {kind.name!r}")
    if not all(isinstance(each, Setting) for each in kind.settings.values()):
        raise TypeError("its settings must be a mapping of keys to Setting(…)")
    for name, make in kind.providers.items():
        if not callable(make) or ":" in name or f"{name}:" == SCRIPTED:
            raise ValueError(f"{name!r} in providers must be a new prefix with a function")
    for method, effect in kind.marked("tool_effect"):
        bound = MethodType(getattr(kind, method), kind)
        function_tool(bound, effect)  # raises if the method cannot be a tool
    for name, reader in kind.recording_formats.items():
        from ..recordings.builder import add_format

        if not (callable(reader.recognizes) and callable(reader.read)):
            raise TypeError(f"the format {name} needs the functions recognizes and read")
        add_format(name, reader)
    if callable(kind.layers):
        raise TypeError("layers must be a list of subclasses of Layer, not a method")
    for layer in kind.layers:
        add_layer(layer)
    add_tool_names(kind.tool_names())


def add_extensions(session: LiveSession, features: Features) -> None:
    """Add the extensions to the features of a session. Skip a failing extension with a warning."""
    classes = extensions_of(session.options).classes
    declared: dict[str, dict[str, Setting]] = {}  # by name, which all classes of a file share
    for kind in classes:
        declared.setdefault(kind.name, {}).update(kind.settings)
    for kind in classes:
        with foreign_code() as problems:
            check_settings(kind.name, declared[kind.name], session.options.settings.extensions)
            features.add(kind(session), guarded=True)
        for problem in problems:
            session.notify("warning", f"the extension {kind.name} is left out: {problem}")


async def reload_extensions(agent: AgentState) -> tuple[list[str], list[str]]:
    """Reload the extensions of a conversation and return their names and warnings. Raises
    RecordError.
    """
    features = agent.features
    loaded = await asyncio.to_thread(extensions_of, agent.options, again=True)
    gone = {id(tool) for tool in features.extension_tools}
    kept = [tool for tool in agent.tools if id(tool) not in gone]
    await features.remove_extensions()
    add_extensions(agent, features)
    new = [tool for each in features.extensions for tool in features.tools_of(each)]
    agent.tools[:] = without_clashes([*kept, *new], agent.emit)
    if agent.is_open:
        await features.start_extensions()
        if agent.tool_schemas() != agent.view.tools:
            agent.record_opening()
            agent.notify("info", "the list of tools has changed: the prompt cache starts again")
    return list(dict.fromkeys(each.name for each in features.extensions)), loaded.warnings


def without_clashes(tools: Sequence[Tool[Any]], emit: Emit) -> list[Tool[Any]]:
    """Return the tools without later tools of the same name, with a warning for each of these."""
    found = dict[str, Tool[Any]]()
    for tool in tools:
        if tool.name in found:
            text = f"the tool {tool.name} of an extension is left out: the name is taken"
            emit(Notice("warning", text))
        else:
            found[tool.name] = tool
    return [*found.values()]


def model_of(launch: LaunchOptions, settings: Settings) -> Model:
    """Return the model in the settings. If its ID starts with a prefix of an extension's provider,
    the extension makes it. Raises UsageError if the provider fails.
    """
    provider = _providers(launch).get(settings.model.id.partition(":")[0])
    if provider is None or ":" not in settings.model.id:
        return make_model(settings, launch.places.environ, launch.places.state)
    with foreign_code(CtxagentError) as problems:
        model = provider(settings.model, launch.places.environ)
        if isinstance(model.id, str) and all(callable(getattr(model, name)) for name in _CALLED):
            return model
        raise TypeError("its model has no text as its id")
    raise UsageError(
        f"the provider of the model {settings.model.id} failed: {problems[0]}",
        hint="Choose another model, or repair the extension.",
    )


def has_provider(launch: LaunchOptions) -> bool:
    """Return True if an extension provides the model in the settings."""
    prefix, colon, _ = launch.settings.model.id.partition(":")
    return bool(colon) and prefix in _providers(launch)


def _providers(launch: LaunchOptions) -> Mapping[str, MakeModel]:
    classes = extensions_of(launch).classes
    return {name: make for each in classes for name, make in each.providers.items()}
