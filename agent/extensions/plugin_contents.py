"""What a plugin contains, in lines for the user who is to decide about it."""

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
from .plugin_layout import layout_problems, type_files
from .plugins import ROOT_VARIABLE, Plugin, file_digests, hooks_of
from .skills import Skill, skills_of

MAX_FILES_SHOWN = 30  # of those that a newer content changes


@dataclass(frozen=True, slots=True)
class PluginContents:
    """What a plugin brings along."""

    folder: Path
    commands: Mapping[str, CommandFile]
    skills: Mapping[str, Skill]
    subagents: list[str]  # the names of their files
    hooks: list[PublishedHook]
    servers: Mapping[str, Any]  # MCP servers, as its files have them
    checkers: Mapping[str, ServerKind]  # language servers
    problems: list[str]  # what is left out, and why

    @property
    def counts(self) -> str:
        """How much of each kind there is, on one line."""
        counted = (
            (self.commands, "command"), (self.skills, "skill"), (self.subagents, "subagent"),
            (self.hooks, "hook"), (self.servers, "MCP server"), (self.checkers, "language server"),
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
        for name, kind in self.checkers.items():
            started = self._with_variable(" ".join(kind.commands[0]))
            yield f"language server {name} for {' '.join(kind.languages)}, runs: {started}"
        yield from (f"note: {problem}" for problem in self.problems)

    def _with_variable(self, text: str) -> str:
        """Return a text as its file has it: where the plugin lies now, it does not stay."""
        return text.replace(str(self.folder), f"${{{ROOT_VARIABLE}}}")


def contents_of(
    plugin: Plugin,
) -> PluginContents:
    """Return what lies in a plugin's folder."""
    commands, problems = commands_of(plugin, plugin.folder, plugin.folder)
    hooks, wrong = hooks_of(plugin)
    problems += wrong
    try:
        servers: Mapping[str, Any] = servers_of(plugin)
    except (OSError, ValueError) as error:
        servers = {}
        why = error.strerror if isinstance(error, OSError) else error
        problems.append(f"no MCP server of it is started: {why}")
    checkers, wrong = language_servers_of(plugin, None)
    skills, unread = skills_of(plugin.folder)
    try:
        problems += [*wrong, *unread, *layout_problems(plugin.folder)]
    except (OSError, ValueError) as error:
        problems.append(str(error))
    return PluginContents(
        folder=plugin.folder,
        commands=commands,
        skills=dict(sorted(skills.items())),
        subagents=sorted(path.stem for path in type_files(plugin.folder)),
        hooks=hooks,
        servers=servers,
        checkers=checkers,
        problems=[problem.replace(f"{plugin.folder}/", "") for problem in problems],
    )


def differences(before: Plugin, after: Plugin) -> Iterator[str]:
    """Yield what a plugin's newer content adds (+) and removes (-), and the files that differ."""
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
