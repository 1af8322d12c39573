"""The types of subagents: three built-in ones, and those in files of the user, projects and
plugins.

A file is `agents/<any>.md`: front matter (`name`, `description`, `tools`, `model`) between two
lines of `---`, followed by the prompt. A project's file needs the user's trust in its content. An
untrusted or broken file, and a symlink out of the project, is left out with a warning. No type can
do more than the conversation that starts it. Files of plugins and in `.claude` were written for
another agent, so unknown keys and tools in them are ignored.
"""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...tools.system.phrasing import count_of, shorten
from ..config.trust import LINK_LEAVES_PROJECT, folders_within_project, is_trusted, read_untrusted
from ..extensions.front_matter import list_value, split_front_matter, text_value
from ..extensions.plugins import Plugin, free_name, subagent_files
from ..launch import LaunchOptions
from ..lazy import dataclass, regex
from ..permissions.rules import TOOL_NAMES
from ..prompts import prompt_text
from ..session.store import AGENTS

if TYPE_CHECKING:
    from ...tools.base import Tool

TYPES_FOLDER = "agents"  # in the user's configuration, and in .ctxagent of a project
OTHER_AGENT_FOLDER = ".claude"  # another agent's folder in a project or in the home directory
MAX_OTHER_AGENT_FILES = 200  # per folder of another agent
MAX_DESCRIPTION_CHARS = (
    500  # characters of a description, because every model call includes all descriptions
)
READ_ONLY_TOOLS = ("Bash", "Read", "Grep", "Glob", "Recall")
BUILT_IN = "built in"  # the source of a built-in type
SMALL = "small"  # the model in the setting model.small
TASK, PLAN = "Task", "Plan"  # tools that subagents do not have

_NAME = regex(r"[a-z][a-z0-9-]{0,79}")
_OTHERS_NAME = regex(r"[A-Za-z0-9][\w.-]{0,79}", re.ASCII)
# Our names for tools of another agent. All its MCP tools are our tool Mcp.
_OTHERS_TOOLS = {
    "TodoWrite": "Todo", "TodoRead": "Todo", "MultiEdit": "Edit", "LS": "Glob", "BashOutput": "Job",
    "KillShell": "Job", "NotebookRead": "Read",
}  # fmt: skip
_MCP_PREFIX, _MCP = "mcp__", "Mcp"
_KEYS = ("name", "description", "tools", "model")
_OTHERS_KEYS = (*_KEYS, "disallowedTools")


@dataclass(frozen=True, slots=True)
class AgentType:
    """A type of subagent."""

    name: str
    description: str
    prompt: str
    tools: tuple[str, ...] | None = None  # names; None for all tools
    model: str | None = None  # SMALL, an ID or a family; None for the parent's
    source: str = BUILT_IN  # or a path
    is_read_only: bool = False  # no edits, and only commands that are clearly read-only
    plugin: str = ""  # the plugin it comes from
    ignored: tuple[str, ...] = ()  # unknown keys and tools in its file

    def allowed_tools(self, tools: Sequence["Tool[Any]"]) -> "list[Tool[Any]]":
        """Return the parent's tools that a subagent of this type may use."""
        own = [tool for tool in tools if tool.name not in (TASK, PLAN)]
        return [t for t in own if self.tools is None or t.name in self.tools]


def built_in_types() -> list[AgentType]:
    return [
        AgentType(
            "explore",
            "finds things out, and changes nothing",
            _prompt("explore"),
            READ_ONLY_TOOLS,
            SMALL,
            is_read_only=True,
        ),
        AgentType("general", f"does any work; has all tools but {TASK}", _prompt("general")),
        AgentType(
            "review",
            "reviews a change or plan, and changes nothing",
            _prompt("review"),
            READ_ONLY_TOOLS,
            is_read_only=True,
        ),
    ]


def types_of_conversation(launch: LaunchOptions, log: Path) -> tuple[list[AgentType], list[str]]:
    """Return the subagent types that a conversation can start, and warnings. A subagent can
    start none.
    """
    return ([], []) if log.parent.parent.name == AGENTS else types_of(launch)


def types_of(launch: LaunchOptions) -> tuple[list[AgentType], list[str]]:
    """Return the subagent types for these options, and warnings. Blocks."""
    if "subagents" in launch.settings.features.off:
        return [], []
    if launch.extras.safe:
        return built_in_types(), []
    return load_types(
        launch.places.cwd,
        config_home=launch.places.config_home,
        home=launch.places.home,
        trust_dir=launch.places.trust_dir,
        tools=[*TOOL_NAMES, *(tool.name for tool in launch.extras.tools)],
        plugins=launch.extras.plugins,
    )


def load_types(
    cwd: Path,
    *,
    config_home: Path,
    home: Path,
    trust_dir: Path,
    tools: Collection[str],
    plugins: Sequence[Plugin] = (),
) -> tuple[list[AgentType], list[str]]:
    """Return all types for work in `cwd`, and a warning for each file that was left out.

    `tools` are the names of all tools. If types share a name, the first wins: built-in, user,
    project, plugin. A plugin's type is then called PLUGIN:NAME.
    """
    types, warnings = {each.name: each for each in built_in_types()}, []
    foreign, leaving = _project_files(cwd, home)
    warnings += [f"{path}: this subagent is left out: {LINK_LEAVES_PROJECT}" for path in leaving]
    files = [(path, "") for path in sorted((config_home / TYPES_FOLDER).glob("*.md"))]
    files += [(path, "") for path in (*_other_agent_files(home), *foreign)]
    files += [(path, plugin.name) for plugin in plugins for path in subagent_files(plugin.folder)]
    untrusted = dict[Path, int]()  # files for another agent, by folder
    for path, plugin in files:
        try:
            data = read_untrusted(path)
            if path in foreign and not is_trusted(path, data, trust_dir):
                if _is_of_other_agent(path):
                    untrusted[path.parent] = untrusted.get(path.parent, 0) + 1
                    continue
                warnings.append(
                    f"{path} is not trusted, so the subagent in it is left out. Read the file, "
                    "then accept it with `ctxagent config --trust`."
                )
                continue
            parse = parse_other_agent_type if plugin or _is_of_other_agent(path) else parse_type
            found = replace(parse(data.decode("utf-8"), str(path), tools), plugin=plugin)
            if plugin:
                found = replace(found, name=free_name(found.name, plugin, types))
            if found.name in types:
                raise ValueError(f"the type {found.name} already exists")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            warnings.append(f"{path}: this subagent is left out: {why}")
        else:
            types[found.name] = found
    warnings += [
        f"{folder}: {count_of(count, 'subagent')} not trusted, so left out. Read the files, then "
        "accept them with `ctxagent config --trust`."
        for folder, count in untrusted.items()
    ]
    return list(types.values()), warnings


def project_files(cwd: Path, home: Path) -> list[Path]:
    """Return the files of the nearest `.ctxagent/agents` and `.claude/agents` in the project,
    without symlinks that leave the project.
    """
    return _project_files(cwd, home)[0]


def parse_type(text: str, source: str, tools: Collection[str]) -> AgentType:
    """Return the type in a file. Raises ValueError with the problem."""
    values, prompt = split_front_matter(text)
    if not values:
        raise ValueError("it does not begin with front matter between two lines of ---")
    if unknown := [key for key in values if key not in _KEYS]:
        raise ValueError(f"{unknown[0][:60]!r} is not one of {', '.join(_KEYS)}")
    description = text_value(values, "description")
    if len(description) > MAX_DESCRIPTION_CHARS:
        raise ValueError(
            f"description has {len(description):,} characters; the limit is {MAX_DESCRIPTION_CHARS}"
        )
    return _checked(
        AgentType(
            name=text_value(values, "name"),
            description=description,
            prompt=prompt,
            tools=_tools(values, tools),
            model=text_value(values, "model") or None,
            source=source,
        )
    )


def parse_other_agent_type(text: str, source: str, tools: Collection[str]) -> AgentType:
    """Return the type in a file for another agent, in the format of
    https://code.claude.com/docs/en/sub-agents. Raises ValueError with the problem."""
    values, prompt = split_front_matter(text, lenient=True)
    named, denied = list_value(values, "tools"), list_value(values, "disallowedTools")
    named = () if "*" in named else named
    known = {name: _own_tool(name) for name in named}
    allowed = [n for n in tools if n not in (*denied, TASK)]
    allowed = [n for n in allowed if not named or n in known.values()]
    if not allowed:
        raise ValueError(f"it has none of the known tools: {', '.join(tools)}")
    model = text_value(values, "model")
    return _checked(
        AgentType(
            name=text_value(values, "name").replace(" ", "-"),
            description=shorten(text_value(values, "description"), MAX_DESCRIPTION_CHARS),
            prompt=prompt,
            tools=tuple(allowed) if named or denied else None,
            model=model if model not in ("", "inherit") else None,
            source=source,
            ignored=(
                *(key for key in values if key not in _OTHERS_KEYS),
                *(f"tool {name}" for name, own in known.items() if own not in tools),
            ),
        ),
        _OTHERS_NAME,
    )


def _own_tool(name: str) -> str:
    """Return our name for a tool of another agent."""
    return _MCP if name.startswith(_MCP_PREFIX) else _OTHERS_TOOLS.get(name, name)


def _checked(found: AgentType, names: re.Pattern[str] = _NAME) -> AgentType:
    """Return the type. Raises ValueError if its name, description or prompt is missing or
    invalid.
    """
    if not names.fullmatch(found.name):
        raise ValueError(f"name is {found.name!r}; use up to 80 of a-z, 0-9 and -, a letter first")
    if not found.description:
        raise ValueError("it has no description")
    if not found.prompt:
        raise ValueError("there is no prompt below the front matter")
    return found


def names_and_descriptions(types: Sequence[AgentType]) -> list[tuple[str, str]]:
    """Return (name, description) of the types, for the tool Task."""
    return [(each.name, each.description) for each in types]


def _project_files(cwd: Path, home: Path) -> tuple[list[Path], list[Path]]:
    """Return the project's files, and the symlinks among them that leave the project."""
    home = home.resolve()
    way = folders_within_project(cwd.resolve(), home)
    held, leaving = list[Path](), list[Path]()
    for name in (".ctxagent", OTHER_AGENT_FOLDER):
        owners = (each for each in way if (each / name / TYPES_FOLDER).is_dir())
        owner = next((each for each in owners if (each, name) != (home, OTHER_AGENT_FOLDER)), None)
        if owner is None:
            continue
        root = way[-1] if (way[-1] / ".git").exists() else owner
        is_others = name == OTHER_AGENT_FOLDER
        files = (
            _other_agent_files(owner)
            if is_others
            else sorted((owner / name / TYPES_FOLDER).glob("*.md"))
        )
        for path in files:
            is_inside = Path(os.path.realpath(path)).is_relative_to(root)
            (held if is_inside else leaving).append(path)
    return held, leaving


def _other_agent_files(owner: Path) -> list[Path]:
    """Return the files for another agent in a project or the home directory, including
    subfolders.
    """
    return sorted((owner / OTHER_AGENT_FOLDER / TYPES_FOLDER).glob("**/*.md"))[
        :MAX_OTHER_AGENT_FILES
    ]


def _is_of_other_agent(path: Path) -> bool:
    return any(folder.parts[-2:] == (OTHER_AGENT_FOLDER, TYPES_FOLDER) for folder in path.parents)


def _tools(values: Mapping[str, Any], known: Collection[str]) -> tuple[str, ...] | None:
    """Return the tools in a file, with or without brackets, or None without the key `tools`."""
    if "tools" not in values:
        return None
    named = tuple(re.findall(r"[^\s,\[\]\"']+", text_value(values, "tools")))
    if not named:
        raise ValueError("tools is empty; name some, or omit the line for all tools")
    if TASK in named:
        raise ValueError(f"tools names {TASK}, but subagents cannot start subagents")
    if strange := [name for name in named if name not in known]:
        raise ValueError(f"unknown tools: {', '.join(strange)}; known: {', '.join(known)}")
    return named


def _prompt(name: str) -> str:
    return prompt_text(f"agent-{name}")
