"""What a plugin contains, in lines for the user who is to decide about it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...tools.system.plural import count_of
from ..errors import conceal
from ..lazy import dataclass
from .command_files import CommandFile, commands_of
from .hook_files import PublishedHook
from .mcp.config import servers_of
from .plugins import ROOT_VARIABLE, Plugin, hooks_of

SKILLS_GLOB = "skills/*/SKILL.md"
TYPES_GLOB = "agents/*.md"
# Keys of a manifest that may name more than lies in the usual places, which are these.
PLACES_ELSEWHERE = (
    "commands", "skills", "agents", "hooks", "mcpServers", "lspServers", "outputStyles",
)  # fmt: skip
USUAL_PLACES = ("commands", "skills", "agents", "hooks/hooks.json", ".mcp.json")


@dataclass(frozen=True, slots=True)
class PluginContents:
    """What a plugin brings along."""

    folder: Path
    commands: Mapping[str, CommandFile]
    skills: list[str]
    subagents: list[str]  # the names of their files
    hooks: list[PublishedHook]
    servers: Mapping[str, Any]  # as its file has them
    problems: list[str]  # what is left out, and why

    @property
    def counts(self) -> str:
        """How much of each kind there is, on one line."""
        counted = (
            (self.commands, "command"), (self.skills, "skill"), (self.subagents, "subagent"),
            (self.hooks, "hook"), (self.servers, "MCP server"),
        )  # fmt: skip
        return ", ".join(count_of(len(each), noun) for each, noun in counted if each) or "nothing"

    def lines(self) -> Iterator[str]:
        """Yield what there is, and whatever of it runs by itself as it will run."""
        for command in self.commands.values():
            rules = self._with_variable(", ".join(command.allowed_tools))
            yield f"command /{command.name}" + (f", allows for its turn: {rules}" if rules else "")
            for text, is_shell in command.parts(""):
                if is_shell:
                    yield f"  runs, by the rules: {self._with_variable(text)}"
        yield from (f"skill {name}" for name in self.skills)
        yield from (f"subagent {name}" for name in self.subagents)
        for hook in self.hooks:
            of = f" of {hook.matcher}" if hook.matcher not in ("", "*") else ""
            does = "runs" if hook.kind == "command" else "posts to"
            yield f"hook {hook.event}{of}, {does}: {hook.run}"
        for name, values in self.servers.items():
            yield f"MCP server {name}, {_server_line(values)}"
        yield from (f"note: {problem}" for problem in self.problems)

    def _with_variable(self, text: str) -> str:
        """Return a text as its file has it: where the plugin lies now, it does not stay."""
        return text.replace(str(self.folder), f"${{{ROOT_VARIABLE}}}")


def contents_of(
    plugin: Plugin, manifest: Mapping[str, Any] = MappingProxyType({})
) -> PluginContents:
    """Return what lies in a plugin's folder; what its `manifest` names elsewhere is a problem."""
    commands, problems = commands_of(plugin, plugin.folder, plugin.folder)
    hooks, wrong = hooks_of(plugin)
    problems += wrong
    try:
        servers: Mapping[str, Any] = servers_of(plugin)
    except (OSError, ValueError) as error:
        servers = {}
        problems.append(f".mcp.json: {error.strerror if isinstance(error, OSError) else error}")
    named = {key: manifest[key] for key in PLACES_ELSEWHERE if key in manifest}
    if elsewhere := [key for key, value in named.items() if not _is_usual(value)]:
        problems.append(f"what plugin.json names under {', '.join(elsewhere)} is not read")
    return PluginContents(
        folder=plugin.folder,
        commands=commands,
        skills=sorted(path.parent.name for path in plugin.folder.glob(SKILLS_GLOB)),
        subagents=sorted(path.stem for path in plugin.folder.glob(TYPES_GLOB)),
        hooks=hooks,
        servers=servers,
        problems=[problem.replace(f"{plugin.folder}/", "") for problem in problems],
    )


def _is_usual(place: object) -> bool:
    return isinstance(place, str) and place.removeprefix("./").rstrip("/") in USUAL_PLACES


def _server_line(values: Any) -> str:
    """Return how a server is started or reached, with the variables that it is given."""
    if not isinstance(values, dict):
        return "which is broken"
    arguments = values.get("args")
    words = [values.get("command"), *(arguments if isinstance(arguments, list) else [])]
    started = " ".join(str(word) for word in words if word is not None)
    line = f"runs: {started}" if started else f"at {conceal(str(values.get('url')))}"
    for key in ("env", "headers"):
        if isinstance(given := values.get(key), dict) and given:
            line += f"; {key}: " + ", ".join(f"{name}={value}" for name, value in given.items())
    return line
