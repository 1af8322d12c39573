"""Hooks in the published format: JSON files with commands and URLs to call at events.

The format is https://code.claude.com/docs/en/hooks. An invalid hook is skipped with a warning; the
other hooks of the file are used.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ...tools.system.phrasing import shorten
from ..border.values import Drops, Given, read_object
from ..config.start_gate import ProgramRights, ProgramStart
from ..config.trust import (
    LINK_LEAVES_PROJECT,
    folders_within_project,
    is_trusted,
    read_untrusted,
)
from ..lazy import dataclass, regex

EVENTS = (
    "SessionStart", "SessionEnd", "UserPromptSubmit", "PreToolUse", "PermissionRequest",
    "PostToolUse", "PostToolUseFailure", "Stop", "SubagentStart", "SubagentStop", "Notification",
    "PreCompact", "PostCompact",
)  # fmt: skip
TOOL_EVENTS = ("PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure")
UNMATCHED_EVENTS = ("UserPromptSubmit", "Stop")  # whose matchers are ignored
DEFAULT_HOOK_S, MAX_HOOK_S = 600.0, 3600.0
HOOKS_NAME = "hooks.json"  # in the user's configuration folder and in a project's .ctxagent
SETTINGS_NAMES = ("settings.json", "settings.local.json")  # of another agent, with further keys
PROJECT_VARIABLE = "CLAUDE_PROJECT_DIR"  # in the environment of each command
PROJECT_FILES = (f".ctxagent/{HOOKS_NAME}", *(f".claude/{name}" for name in SETTINGS_NAMES))
NOT_TRUSTED = "not trusted: read the file, then accept it with `ctxagent config --trust`"
MAX_SHOWN_CHARS = 40  # of an invalid value in a message

HookKind = Literal["command", "http"]

_LIST_OF_NAMES = regex(r"[\w\s,|-]*")
# Errors that invalid data raises, also for numbers that are too large.
_WRONG_SHAPES = (
    ValueError, TypeError, AttributeError, OverflowError, RecursionError, re.error,
)  # fmt: skip
_SEPARATORS = regex(r"[,|]")


@dataclass(frozen=True, slots=True)
class PublishedHook:
    """A hook in the published format."""

    origin: str  # e.g. "plugin kit", shown to the user and the model
    event: str  # one of EVENTS
    run: str  # the command, or the URL
    kind: HookKind = "command"
    matcher: str = ""  # "" matches everything
    condition: str = ""  # a permission rule that the call must match
    seconds: float = DEFAULT_HOOK_S
    in_background: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)  # of an HTTP request
    allowed_variables: tuple[str, ...] = ()  # environment variables to expand in the headers
    of_project: bool = False  # whether a file of the project defines it
    rights: ProgramRights = field(default_factory=ProgramRights)

    def environment(self, env: Mapping[str, str], cwd: Path) -> dict[str, str]:
        """Return the environment of a hook in the folder `cwd`."""
        return {**env, PROJECT_VARIABLE: str(cwd), **self.environ}

    def program(self, cwd: Path, env: Mapping[str, str]) -> ProgramStart:
        """Return the program of a hook with a command."""
        what = f"the hook {self.event} of the {self.origin}"
        return ProgramStart(what, self.run, cwd, env, self.of_project, self.rights)

    def matches(self, *subjects: str) -> bool:
        """Return True if the matcher matches one of the subjects (tool names, or the kind of the
        event). A matcher with names, separated by | or commas, matches if a name equals a subject.
        Any other matcher is a regular expression to search for.
        """
        if self.matcher in ("", "*") or self.event in UNMATCHED_EVENTS:
            return True
        if _LIST_OF_NAMES.fullmatch(self.matcher):
            names = {name.strip() for name in _SEPARATORS.split(self.matcher)}
            return not names.isdisjoint(subjects)
        return any(re.search(self.matcher, subject) for subject in subjects)


class HookFiles:
    """The hooks in files of the user and in trusted files of the project. Files are read once, at
    the first access.
    """

    def __init__(self, config_home: Path, cwd: Path, home: Path, trust_dir: Path) -> None:
        self._own, self._trust_dir = config_home / HOOKS_NAME, trust_dir
        self._cwd, self._home = cwd, home

    @property
    def hooks(self) -> list[PublishedHook]:
        """The valid hooks."""
        return self._read[0]

    @property
    def warnings(self) -> list[str]:
        """A warning for each skipped file or hook, with the reason."""
        return self._read[1]

    @cached_property
    def _read(self) -> tuple[list[PublishedHook], list[str]]:
        hooks, (held, leaving) = list[PublishedHook](), _project_files(self._cwd, self._home)
        warnings = [
            f"{self._shown(path)}: no hook in it is used: {LINK_LEAVES_PROJECT}" for path in leaving
        ]
        for path in (self._own, *held):
            shown = self._shown(path)
            environ = {} if path == self._own else project_environ(path)
            found, problems = read_hooks(path, f"file {shown}", environ, self._trusts(path))
            hooks += [replace(hook, of_project=path != self._own) for hook in found]
            warnings += [f"{shown}: {problem}" for problem in problems]
        return hooks, warnings

    def _shown(self, path: Path) -> str:
        at_home = path.is_relative_to(self._home)
        return f"~/{path.relative_to(self._home)}" if at_home else str(path)

    def _trusts(self, path: Path) -> Callable[[bytes], bool]:
        return lambda data: path == self._own or is_trusted(path, data, self._trust_dir)


def project_environ(path: Path) -> dict[str, str]:
    """Return the variables for the commands of a project's hook file."""
    return {PROJECT_VARIABLE: str(path.parent.parent)}


def project_files(cwd: Path, home: Path) -> list[Path]:
    """Return the files that may contain hooks, from the root of the project down to `cwd`. Exclude
    links that leave the project.
    """
    return _project_files(cwd, home)[0]


def _project_files(cwd: Path, home: Path) -> tuple[list[Path], list[Path]]:
    """Return the hook files of the project, and the links to hook files outside of the project."""
    way = [folder for folder in folders_within_project(cwd, home) if folder != home]
    held, leaving = list[Path](), list[Path]()
    for path in (folder / name for folder in reversed(way) for name in PROJECT_FILES):
        if path.is_file():
            is_inside = path.resolve().is_relative_to(way[-1].resolve())
            (held if is_inside else leaving).append(path)
    return held, leaving


def read_hooks(
    path: Path,
    origin: str,
    environ: Mapping[str, str],
    trusts: Callable[[bytes], bool] = lambda data: True,
) -> tuple[list[PublishedHook], list[str]]:
    """Return the hooks of a file, and a warning for each skipped hook. Return nothing for a missing
    file. Hook commands get `environ`. Skip all hooks if `trusts` returns False for the content.
    """
    try:
        data = read_untrusted(path)
        whole = read_object(data)
        if path.name in SETTINGS_NAMES:
            whole = {"hooks": {}, **whole}
        drops = Drops()
        events = Given(whole["hooks"], "", drops)
        if not isinstance(events.value, dict):
            raise TypeError
        listed = [(event, each.value) for event in events.value for each in events.items(event)]
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    except (OSError, KeyError, *_WRONG_SHAPES) as error:
        why = error.strerror if isinstance(error, OSError) else 'it is not {"hooks": {EVENT: […]}}'
        return [], [f"no hook in it is used: {why}"]
    if listed and not trusts(data):
        return [], [f"no hook in it is used: {NOT_TRUSTED}"]
    hooks, problems = list[PublishedHook](), [f"hooks for {line}" for line in drops.lines()]
    unknown = dict.fromkeys(event for event, _ in listed if event not in EVENTS)
    if unknown:
        problems.append(f"hooks for {', '.join(unknown)} are left out: unknown events")
    for event, group in listed:
        if event not in EVENTS:
            continue
        try:
            rows = [*_checked_rows(event, group)]
        except _WRONG_SHAPES as error:
            problems.append(f"hooks for {event} are left out: {error}")
            continue
        for row in rows:
            try:
                hooks.append(_hook(event, group, row, origin, environ))
            except _WRONG_SHAPES as error:
                problems.append(f"a hook for {event} is left out: {error}")
    return hooks, problems


def _checked_rows(event: str, group: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the hooks of one matcher. Raises an error of _WRONG_SHAPES for invalid data."""
    matcher = group.get("matcher") or ""
    if matcher != "*":
        re.compile(matcher)
    yield from group.get("hooks", ())


def _hook(
    event: str,
    group: Mapping[str, Any],
    row: Mapping[str, Any],
    origin: str,
    environ: Mapping[str, str],
) -> PublishedHook:
    """Return one hook. Raises ValueError, or another error of _WRONG_SHAPES, for invalid data."""
    kind = row.get("type", "command")
    if kind not in ("command", "http"):
        raise ValueError(f"its type {shorten(str(kind), MAX_SHOWN_CHARS)!r} is not supported here")
    run = row.get("command" if kind == "command" else "url")
    if not isinstance(run, str) or not run.strip():
        raise ValueError("it has no command" if kind == "command" else "it has no url")
    if kind == "command" and (arguments := row.get("args")) is not None:
        names = (*environ, PROJECT_VARIABLE)
        run = " ".join(_quoted(str(word), names) for word in (run, *arguments))
    condition = row.get("if") or ""
    if condition and event not in TOOL_EVENTS:
        raise ValueError(f"`if` is only supported for {', '.join(TOOL_EVENTS)}")
    headers = dict(row.get("headers") or {}).items()
    return PublishedHook(
        origin=origin,
        event=event,
        run=run,
        kind=kind,
        matcher=group.get("matcher") or "",
        condition=str(condition),
        seconds=min(max(0.1, float(row.get("timeout") or DEFAULT_HOOK_S)), MAX_HOOK_S),
        in_background=row.get("async") is True,
        environ=environ,
        headers={str(name): str(value) for name, value in headers},
        allowed_variables=tuple(map(str, row.get("allowedEnvVars") or ())),
        rights=ProgramRights.of(row),
    )


def _quoted(word: str, names: Iterable[str]) -> str:
    """Quote a word of a command line. The shell still expands `${NAME}` for the given names."""
    parts = re.split(rf"(\$\{{(?:{'|'.join(names)})\}})", word)
    quoted = (f'"{part}"' if place % 2 else shlex.quote(part) for place, part in enumerate(parts))
    return "".join(part for part in quoted if part != "''") or "''"
