"""Extensions: the features of other people, added to a conversation."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ...tools.base import Tool
from ..config.settings import Settings
from ..errors import CtxagentError, UsageError
from ..events import Emit, Notice
from ..extensions.foreign_code import foreign_code
from ..extensions.python_extensions import ExtensionSource, LoadedExtensions
from ..launch import LaunchOptions
from ..loop.agent import AgentState
from ..loop.feature import Feature, FeatureCommand, MakeModel, Prompt
from ..loop.features import Features
from ..loop.session_handle import SessionHandle
from ..models.base import Model
from ..models.factory import make_model
from ..permissions.rules import add_tool_names


def extensions_of(launch: LaunchOptions, *, again: bool = False) -> LoadedExtensions[Feature]:
    """Return the extensions for conversations that are started so; `again` loads their files again.
    Blocking; their code runs."""
    if launch.extensions is None:
        return LoadedExtensions()
    return load_extensions(launch.extensions, again=again)


def load_extensions(source: ExtensionSource, *, again: bool = False) -> LoadedExtensions[Feature]:
    """Return the extensions of a source, and make what they add known to the whole process."""
    loaded = source.reload(Feature) if again else source.load(Feature)
    for each in loaded.classes:
        add_tool_names(each.tool_names())
        if each.recording_formats:
            from ..replay.formats import add_format

            for name, reader in each.recording_formats.items():
                add_format(name, reader)
    return loaded


def add_extensions(launch: LaunchOptions, handle: SessionHandle, features: Features) -> None:
    """Add the extensions to a conversation. One that cannot be made is left out with a warning."""
    for kind in extensions_of(launch).classes:
        with foreign_code() as problems:
            check_settings(kind, handle.extension_settings.get(kind.name, {}))
            features.add(kind(handle), guarded=True)
        for problem in problems:
            handle.notify("warning", f"the extension {kind.name} is left out: {problem}")


def check_settings(kind: type[Feature], given: Mapping[str, Any]) -> None:
    """Raise ValueError for settings that an extension does not declare, or of another type."""
    for key, value in given.items():
        if key not in kind.settings:
            known = ", ".join(kind.settings) or "none"
            raise ValueError(f"extensions.{kind.name}.{key} is no setting; there are: {known}")
        if type(value) is not type(default := kind.settings[key].default):
            text = f"extensions.{kind.name}.{key} is {value!r}"
            raise ValueError(f"{text}; expected a value like {default!r}")


async def reload_extensions(
    launch: LaunchOptions, agent: AgentState
) -> tuple[list[str], list[str]]:
    """Load the extensions again, put them in place of those of a conversation, and return their
    names and warnings. Raises RecordError."""
    handle, features = agent.handle, agent.features
    loaded = await asyncio.to_thread(extensions_of, launch, again=True)
    old = features.extensions
    gone = {tool.name for each in old for tool in each.tools()}
    for each in old:
        await each.close()
        features.drop(each)
    add_extensions(launch, handle, features)
    new = [tool for each in features.extensions for tool in each.tools()]
    kept = [tool for tool in handle.tools if tool.name not in gone]
    handle.tools[:] = without_clashes([*kept, *new], handle.emit)
    if agent.is_open and [tool.schema() for tool in handle.tools] != handle.view.tools:
        handle.record_opening()
        handle.notify("info", "the list of tools has changed: the prompt cache starts again")
    return list(dict.fromkeys(each.name for each in features.extensions)), loaded.warnings


def without_clashes(tools: Sequence[Tool[Any]], emit: Emit) -> list[Tool[Any]]:
    """Return the tools without those of extensions whose names are taken, and warn of these."""
    found = dict[str, Tool[Any]]()
    for tool in tools:
        if tool.name in found:
            text = f"the tool {tool.name} of an extension is left out: the name is taken"
            emit(Notice("warning", text))
        else:
            found[tool.name] = tool
    return [*found.values()]


def model_of(launch: LaunchOptions, settings: Settings) -> Model:
    """Return the model that the settings name, from the provider of an extension if its ID begins
    with the provider's prefix. Raises UsageError for a provider that fails."""
    provider = _providers(launch).get(settings.model.id.partition(":")[0])
    if provider is None or ":" not in settings.model.id:
        return make_model(settings, launch.environ, launch.state)
    with foreign_code() as problems:
        return provider(settings.model, launch.environ)
    raise UsageError(
        f"the provider of the model {settings.model.id} failed: {problems[0]}",
        hint="Choose another model, or repair the extension.",
    )


def has_provider(launch: LaunchOptions) -> bool:
    """Return True if an extension provides the model of the settings."""
    prefix, colon, _ = launch.settings.model.id.partition(":")
    return bool(colon) and prefix in _providers(launch)


def _providers(launch: LaunchOptions) -> Mapping[str, MakeModel]:
    classes = extensions_of(launch).classes
    return {name: make for each in classes for name, make in each.providers.items()}


def find_command(agent: AgentState, name: str) -> FeatureCommand | None:
    """Return the slash command of a feature, None for an unknown name."""
    return next((each for each in agent.features.commands() if each.name == name), None)


async def run_command(command: FeatureCommand, argument: str) -> str | Prompt | None:
    """Run a slash command of a feature. Raises CtxagentError for one that fails."""
    with foreign_code() as problems:
        return await command.run(argument)
    raise CtxagentError(f"the command /{command.name} failed: {problems[0]}")
