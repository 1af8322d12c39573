"""The contents of a plugin, as lines for the user to review."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...tools.system.plural import count_of
from ..errors import conceal
from ..lazy import dataclass
from .command_files import CommandFile, commands_of
from .hook_files import PublishedHook
from .lsp.kinds import ServerKind
from .lsp.plugin_servers import servers_of as language_servers_of
from .mcp.config import servers_of
from .plugin_layout import layout_problems, subagent_files
from .plugins import ROOT_VARIABLE, Plugin, file_digests, hooks_of
from .skills import Skill, skills_of

MAX_FILES_SHOWN = 30  # files listed in an update


@dataclass(frozen=True, slots=True)
class PluginContents:
    """The parts of a plugin."""

    folder: Path
    commands: Mapping[str, CommandFile]
    skills: Mapping[str, Skill]
    subagents: list[str]  # file names without suffix
    hooks: list[PublishedHook]
    servers: Mapping[str, Any]  # unchanged from the plugin's files
    language_servers: Mapping[str, ServerKind]
    problems: list[str]  # skipped parts with the reason

    @property
    def counts(self) -> str:
        """The number of parts of each kind, on one line."""
        counted = (
            (self.commands, "command"), (self.skills, "skill"), (self.subagents, "subagent"),
            (self.hooks, "hook"), (self.servers, "MCP server"),
            (self.language_servers, "language server"),
        )  # fmt: skip
        return ", ".join(count_of(len(each), noun) for each, noun in counted if each) or "nothing"

    def lines(self) -> Iterator[str]:
        """Yield a line for each part. Show commands that start automatically as they will run."""
        for command in self.commands.values():
            rules = self._with_variable(", ".join(command.allowed_tools))
            yield f"command /{command.name}" + (f", allows for its turn: {rules}" if rules else "")
            for text, is_shell in command.parts(""):
                if is_shell:
                    yield f"  runs, by the rules: {self._with_variable(text)}"
        for skill in self.skills.values():
            rules = self._with_variable(", ".join(skill.allowed_tools))
            yield f"skill {skill.name}" + (f", allows for its turn: {rules}" if rules else "")
        yield from (f"subagent {name}" for name in self.subagents)
        for hook in self.hooks:
            of = f" of {hook.matcher}" if hook.matcher not in ("", "*") else ""
            does = "runs" if hook.kind == "command" else "posts to"
            yield f"hook {hook.event}{of}, {does}: {hook.run}"
        for name, values in self.servers.items():
            yield f"MCP server {name}, {_server_line(values)}"
        for name, kind in self.language_servers.items():
            started = self._with_variable(" ".join(kind.commands[0]))
            yield f"language server {name} for {' '.join(kind.languages)}, runs: {started}"
        yield from (f"note: {problem}" for problem in self.problems)

    def _with_variable(self, text: str) -> str:
        """Replace the plugin's current folder by its variable, since the folder can change."""
        return text.replace(str(self.folder), f"${{{ROOT_VARIABLE}}}")


def contents_of(
    plugin: Plugin,
) -> PluginContents:
    """Return the contents of a plugin's folder."""
    commands, problems = commands_of(plugin, plugin.folder, plugin.folder)
    hooks, wrong = hooks_of(plugin)
    problems += wrong
    try:
        servers: Mapping[str, Any] = servers_of(plugin)
    except (OSError, ValueError) as error:
        servers = {}
        why = error.strerror if isinstance(error, OSError) else error
        problems.append(f"no MCP server of the plugin is started: {why}")
    language_servers, wrong = language_servers_of(plugin, None)
    skills, unread = skills_of(plugin.folder)
    try:
        problems += [*wrong, *unread, *layout_problems(plugin.folder)]
    except (OSError, ValueError) as error:
        problems.append(str(error))
    return PluginContents(
        folder=plugin.folder,
        commands=commands,
        skills=dict(sorted(skills.items())),
        subagents=sorted(path.stem for path in subagent_files(plugin.folder)),
        hooks=hooks,
        servers=servers,
        language_servers=language_servers,
        problems=[problem.replace(f"{plugin.folder}/", "") for problem in problems],
    )


def differences(before: Plugin, after: Plugin) -> Iterator[str]:
    """Yield the lines that an update adds (+) and removes (-), then the files that differ."""
    old, new = ([*contents_of(each).lines()] for each in (before, after))
    yield from (f"- {line.strip()}" for line in old if line not in new)
    yield from (f"+ {line.strip()}" for line in new if line not in old)
    was, now = (file_digests(each.folder) for each in (before, after))
    changed = sorted(path for path in {*was, *now} if was.get(path) != now.get(path))
    marks = {(True, False): "gone", (False, True): "new", (True, True): "changed"}
    for path in changed[:MAX_FILES_SHOWN]:
        yield f"{marks[path in was, path in now]}: {path}"
    if len(changed) > MAX_FILES_SHOWN:
        yield f"and {count_of(len(changed) - MAX_FILES_SHOWN, 'more file')}"


def _server_line(values: Any) -> str:
    """Return how a server is started or reached, with its environment variables and headers."""
    if not isinstance(values, dict):
        return "whose entry is not an object"
    arguments = values.get("args")
    words = [values.get("command"), *(arguments if isinstance(arguments, list) else [])]
    started = " ".join(str(word) for word in words if word is not None)
    line = f"runs: {started}" if started else f"at {conceal(str(values.get('url')))}"
    for key in ("env", "headers"):
        if isinstance(given := values.get(key), dict) and given:
            line += f"; {key}: " + ", ".join(f"{name}={value}" for name, value in given.items())
    return line
