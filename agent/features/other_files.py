"""Files of other agents: those used here, those that can be copied and how, and the unsupported."""

import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...tools.system.files import make_private_folder, write_private
from ...tools.system.phrasing import count_of
from ..config.trust import folders_within_project, is_file_trusted
from ..extensions.front_matter import split_front_matter, text_value
from ..launch import LaunchOptions
from ..lazy import dataclass, regex
from ..permissions.rules import TOOL_NAMES
from ..session.store import Project

FOLDER = ".claude"
SHOWN_FILE = "told-of-other-agents"  # in the folder of sessions, once the line was shown
# Patterns of the files that are used, by display name.
_PARTS = {
    "instruction file": ("CLAUDE.md", "rules/**/*.md"),
    "command": ("commands/**/*.md",),
    "subagent": ("agents/**/*.md",),
    "skill": ("skills/*/SKILL.md",),
}
_NEED_TRUST = ("subagent", "skill")
_WRITTEN_BY_OTHER_AGENT = (
    "worktrees",
    "plans",
    "todos",
    "agent-memory",
)  # written by the other agent


def used_files_line(launch: LaunchOptions) -> str:
    """Return a line on what is used of the `.claude` folder, or "" if there is no folder or the
    user has seen the line. Blocks.
    """
    home = launch.places.home.resolve()
    way = (
        each for each in folders_within_project(launch.places.cwd.resolve(), home) if each != home
    )
    folder = next((each / FOLDER for each in way if (each / FOLDER).is_dir()), None)
    if folder is None or launch.extras.safe:
        return ""
    shown = Project(launch.places.state, launch.places.cwd).folder / SHOWN_FILE
    known = {pattern.partition("/")[0] for patterns in _PARTS.values() for pattern in patterns}
    try:
        if shown.exists():
            return ""
        taken = ", ".join(_used_files(folder, launch.places.trust_dir)) or "nothing"
        left = [
            each.name
            for each in folder.iterdir()
            if each.name not in {*known, *_WRITTEN_BY_OTHER_AGENT}
        ]
        make_private_folder(shown.parent)  # a session without messages has no folder yet
        write_private(shown, b"")
    except OSError:
        return ""  # without a readable folder or a writable state, never print the line
    rest = f" · not taken: {', '.join(sorted(left))} (`ctxagent import-settings`)" if left else ""
    return f"from {FOLDER} in this project: {taken}{rest}"


def _used_files(folder: Path, trust_dir: Path) -> Iterator[str]:
    """Yield the number of used files of each kind, and whether they still need trust."""
    for name, patterns in _PARTS.items():
        files = [path for pattern in patterns for path in folder.glob(pattern)]
        if files:
            needed = files if name in _NEED_TRUST else ()
            is_open = all(is_file_trusted(each, trust_dir) for each in needed)
            yield count_of(len(files), name) + ("" if is_open else " (not trusted)")


MAX_SKILL_FILES = 200

_ARGUMENTS = regex(r"\{\{\s*args\s*\}\}")  # in commands of gemini-cli
_COMMAND = regex(r"!\{([^{}]+)\}")
_FILE = regex(r"@\{([^{}]+)\}")
# The tool switch of opencode for each of our tools.
_SWITCHES = {
    "Write": "write", "Edit": "edit", "Bash": "bash", "Job": "bash", "Read": "read", "Grep": "grep",
    "Glob": "glob", "WebFetch": "webfetch",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CopiedKind:
    """How files of one kind are copied."""

    noun: str
    folder: str  # target, below our folder
    convert: Callable[[str, bytes], bytes] | None  # converts (name, content); None: copy unchanged
    max_files: int = MAX_SKILL_FILES


def _plain(name: str, data: bytes) -> bytes:
    return data


def _gemini_command(name: str, data: bytes) -> bytes:
    """Convert a command of gemini-cli from TOML to a command file. Raises ValueError."""
    given = tomllib.loads(data.decode("utf-8-sig"))
    prompt = str(given["prompt"]) if "prompt" in given else ""
    prompt = _ARGUMENTS.sub("$ARGUMENTS", prompt)
    prompt = _FILE.sub(r"@\1", _COMMAND.sub(r"!`\1`", prompt))
    return _with_head({"description": given.get("description")}, prompt)


def _opencode_command(name: str, data: bytes) -> bytes:
    """Convert the head of an opencode command to the keys used here. Raises ValueError."""
    values, prompt = split_front_matter(data.decode("utf-8", "replace"), lenient=True)
    return _with_head({"description": text_value(values, "description")}, prompt)


def _opencode_agent(name: str, data: bytes) -> bytes:
    """Convert a subagent of opencode to a subagent file. Raises ValueError."""
    values, prompt = split_front_matter(data.decode("utf-8", "replace"), lenient=True)
    if values.get("mode") == "primary":
        raise ValueError("its mode is primary, which subagents do not have")
    given = values.get("tools")
    switches = given if isinstance(given, dict) else {}
    denied = [tool for tool, key in _SWITCHES.items() if switches.get(key) is False]
    allowed = [tool for tool in TOOL_NAMES if tool not in (*denied, "Task", "Plan")]
    head = {
        "name": name.lower().replace("_", "-"),
        "description": text_value(values, "description"),
    }
    return _with_head(head | ({"tools": ", ".join(allowed)} if denied else {}), prompt)


def _with_head(values: dict[str, Any], text: str) -> bytes:
    lines = [f"{key}: {json.dumps(given)}" for key, given in values.items() if given]
    return "\n".join(["---", *lines, "---", text.strip(), ""]).encode()


_COMMAND_KIND = CopiedKind("command", "commands", _plain)
_SKILL_KIND = CopiedKind("skill", "skills", None)
COPIED = (
    (".codex/prompts/*.md", _COMMAND_KIND),
    *(
        (f"{folder}/{name}", CopiedKind("command", "commands", _opencode_command))
        for folder in (".opencode", ".config/opencode")
        for name in ("command/*.md", "commands/*.md")
    ),
    *(
        (f"{folder}/{name}", CopiedKind("subagent", "agents", _opencode_agent))
        for folder in (".opencode", ".config/opencode")
        for name in ("agent/*.md", "agents/*.md")
    ),
    (".gemini/commands/**/*.toml", CopiedKind("command", "commands", _gemini_command)),
    *(
        (f"{folder}/*/SKILL.md", _SKILL_KIND)
        for folder in (
            ".codex/skills", ".gemini/skills", ".opencode/skill", ".opencode/skills",
            ".config/opencode/skill", ".config/opencode/skills",
        )
    ),
)  # fmt: skip

_CLAUDE = (
    (".claude/CLAUDE.md", "instruction file", False),
    (".claude/rules/**/*.md", "rule", False),
    (".claude/commands/**/*.md", "command", False),
)
# Files that are used in place: pattern, noun, and whether trust is needed. Of a project (True), and
# of the home directory (False).
TAKEN_PLACES = {
    True: (
        *_CLAUDE,
        ("CLAUDE.md", "instruction file", False),
        ("CLAUDE.local.md", "instruction file", False),
        (".claude/agents/**/*.md", "subagent", True),
        (".claude/skills/*/SKILL.md", "skill", True),
        (".agents/skills/*/SKILL.md", "skill", True),
        (".mcp.json", "file of MCP servers", True),
    ),
    False: (
        *_CLAUDE,
        (".claude/agents/**/*.md", "subagent", False),
        (".claude/skills/*/SKILL.md", "skill", False),
        (".agents/skills/*/SKILL.md", "skill", False),
        (".codex/AGENTS.md", "instruction file", False),
    ),
}
# Files that are not used, with the reason or an alternative.
NOT_TAKEN = (
    (".claude/output-styles", "output styles are not supported"),
    (".claude/keybindings.json", "keys are set under [keys] in the settings"),
    (".claude/plugins/installed_plugins.json", "`ctxagent plugin add` adds plugins"),
    (".codex/rules", "rules for commands in Starlark are not supported"),
    (".codex/hooks.json", "hooks of codex are not read"),
    (".codex/agents", "subagents in TOML are not supported"),
    *(
        (f"{folder}/{name}", f"what opencode has in {name}/ is not supported")
        for folder in (".opencode", ".config/opencode")
        for name in ("plugin", "plugins", "tool", "tools", "themes", "modes")
    ),
    (".config/opencode/AGENTS.md", "not read: copy it to AGENTS.md in the folder of your settings"),
    (".gemini/GEMINI.md", "not read: AGENTS.md can import it with a line @.gemini/GEMINI.md"),
    ("GEMINI.md", "not read: AGENTS.md can import it with a line @GEMINI.md"),
    (".gemini/extensions", "extensions of gemini-cli are not supported"),
    (".gemini/policies", "policies of gemini-cli are not supported"),
)
