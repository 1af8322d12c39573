"""The settings of other agents: which are used here, which can be copied, and which are not
supported.

Copies only add: missing rules and servers, a model if none is set, and missing files. This module
writes nothing to disk.
"""

import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from ...api.base import ConfigError, CtxagentError, dataclass
from ...api.guard import (
    LINK_LEAVES_PROJECT,
    convert_rule,
    folders_within_project,
    is_file_trusted,
    read_untrusted,
)
from ...api.models import DEFAULT_PROVIDER, find_provider
from ...api.session import (
    COPIED,
    HOOKS_NAME,
    NOT_TAKEN,
    OWN_FILE,
    PROJECT_FILE,
    SERVERS_KEY,
    TAKEN_PLACES,
    CopiedKind,
    check_server,
    codex_server,
    gemini_server,
    opencode_server,
    plain_name,
    read_document,
)
from ...api.settings import PROJECT_FILE as SETTINGS_FILE
from ...api.settings import USER_FILE_MODE, read_settings_file, with_section
from ...api.text import Drops, Given, count_of, read_object

Status = Literal["taken", "copy", "kept", "not"]
Server = Callable[[Mapping[str, Any]], Mapping[str, Any]]

PROJECT_FILE_MODE = 0o644
MAX_SETTINGS_BYTES = 50_000_000  # ~/.claude.json has more than settings
RULE_KINDS = ("allow", "ask", "deny")
_MODES = {"acceptEdits": "accept-edits", "plan": "plan"}


@dataclass(frozen=True, slots=True)
class SettingsFinding:
    """An item in the settings of another agent."""

    source: str  # the file or folder, as displayed
    status: Status  # "kept": a different item exists here and stays
    what: str
    target: str = ""  # the target file of the copy


@dataclass(slots=True)
class SettingsScope:
    """The project or the home directory, and the target files of copies."""

    folder: Path
    root: Path | None  # root of the project, which symlinks may not leave; None for the home
    settings: Path
    servers: Path
    parts: Path  # the folder with our commands, subagents and skills

    @property
    def in_project(self) -> bool:
        return self.root is not None

    def leaves(self, path: Path) -> bool:
        """Return True if a path of the project points outside of the project."""
        return self.root is not None and not Path(os.path.realpath(path)).is_relative_to(self.root)


@dataclass(slots=True)
class OtherSettings:
    """All findings, and the new contents of the target files."""

    home: Path
    config_home: Path
    user_file: Path
    trust_dir: Path
    root: Path | None = None  # of the project
    findings: list[SettingsFinding] = field(default_factory=list)
    before: dict[Path, bytes] = field(default_factory=dict)  # b"" for a missing file
    after: dict[Path, bytes] = field(default_factory=dict)

    def note(self, path: Path, status: Status, what: str, target: Path | None = None) -> None:
        shown = self.shown(target) if target else ""
        self.findings.append(SettingsFinding(self.shown(path), status, what, shown))

    def shown(self, path: Path) -> str:
        """Return a path for display: relative to the project's root or to the home directory."""
        for base, mark in ((self.root, ""), (self.home, "~/")):
            if base is not None and path.is_relative_to(base):
                return f"{mark}{path.relative_to(base)}"
        return str(path)

    def content(self, path: Path) -> bytes:
        """Return the planned content of a file, b"" for a missing file. Raises ConfigError."""
        if path not in self.before:
            self.before[path] = read_settings_file(path) or b""
        return self.after.get(path, self.before[path])

    def new_mode(self, path: Path) -> int:
        """Return the mode of a new file."""
        is_own = path.is_relative_to(self.config_home) or path == self.user_file
        return USER_FILE_MODE if is_own else PROJECT_FILE_MODE

    def put(self, path: Path, data: bytes) -> None:
        self.content(path)
        self.after[path] = data


def other_settings(
    cwd: Path, *, config_home: Path, home: Path, user_file: Path, trust_dir: Path
) -> OtherSettings:
    """Return the findings in other agents' folders of the project and the home directory. Raises
    ConfigError for an unreadable ctxagent file.
    """
    found = OtherSettings(home, config_home, user_file, trust_dir)
    way = [each for each in folders_within_project(cwd.resolve(), home.resolve()) if each != home]
    found.root = way[-1] if way else None
    for folder in way:
        settings, servers = (
            next((each for each in way if (each / name).is_file()), way[-1]) / name
            for name in (SETTINGS_FILE, PROJECT_FILE)
        )
        _scan(found, SettingsScope(folder, way[-1], settings, servers, folder / ".ctxagent"))
    _scan(found, SettingsScope(home, None, user_file, config_home / OWN_FILE, config_home))
    return found


def _scan(found: OtherSettings, scope: SettingsScope) -> None:
    for pattern, noun, needs_trust in TAKEN_PLACES[scope.in_project]:
        files = [each for each in sorted(scope.folder.glob(pattern)) if each.is_file()]
        if files:
            closed = needs_trust and not all(is_file_trusted(p, found.trust_dir) for p in files)
            trust = ", once `ctxagent config --trust` accepts them" if closed else ""
            place = scope.folder / pattern.partition("/*")[0].removesuffix("/**")
            found.note(place, "taken", f"{count_of(len(files), noun)}{trust}")
    for pattern, why in NOT_TAKEN:
        for path in sorted(scope.folder.glob(pattern)):
            found.note(path, "not", why)
    for pattern, kind in COPIED:
        for path in sorted(scope.folder.glob(pattern)):
            _copy_file(found, scope, path, kind)
    for name, read in _READERS:
        path = scope.folder / name
        if path.is_file() and scope.leaves(path):
            found.note(path, "not", LINK_LEAVES_PROJECT)
        elif path.is_file():
            try:
                read(found, scope, path, _document(path))
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                found.note(path, "not", f"it cannot be read: {error}")
            except OSError as error:
                found.note(path, "not", f"it cannot be read: {error.strerror}")


def _document(path: Path) -> dict[str, Any]:
    """Parse a settings file: TOML, or JSON with comments. Raises ValueError and OSError."""
    data = read_untrusted(path, MAX_SETTINGS_BYTES)
    if path.suffix == ".toml":
        return tomllib.loads(data.decode("utf-8-sig"))
    return read_object(data)


def _claude(found: OtherSettings, scope: SettingsScope, path: Path, given: dict[str, Any]) -> None:
    drops = Drops()
    sent = Given(given, "", drops)
    permissions = sent.section("permissions")
    rules = permissions.object
    for kind in RULE_KINDS:
        for rule in permissions.items(kind):
            _copy_rule(found, scope, path, kind, str(rule.value))
    mode = permissions.text("defaultMode")
    if mode in _MODES:
        _copy_value(found, scope, path, "permissions", "mode", _MODES[mode])
    elif mode not in ("", "default"):
        found.note(path, "not", f"the mode {mode}")
    for folder in permissions.items("additionalDirectories"):
        place = str(folder.value)
        if not place.startswith("~"):
            place = os.path.normpath(scope.folder / place)
        _copy_item(found, scope, path, "permissions", "directories", place)
    if model := given.get("model"):
        _copy_model(found, scope, path, str(model))
    hooks = sent.section("hooks")
    if hooks.object:
        if scope.in_project:
            found.note(path, "taken", "hooks, once `ctxagent config --trust` accepts them")
        else:
            _copy_hooks(found, scope, path, hooks)
    for name, is_on in sent.section("enabledPlugins").object.items():
        if is_on:
            found.note(path, "not", f"the plugin {name}: `ctxagent plugin add {name}`")
    markets = sent.section("extraKnownMarketplaces")
    for name in markets.object:
        source = markets.section(name).section("source")
        repository = f"https://github.com/{source.text('repo', '?')}"
        place = source.text("url") or source.text("path") or repository
        found.note(
            path, "not", f"the marketplace {name}: `ctxagent plugin marketplace add {place}`"
        )
    known = ("permissions", "model", "hooks", "enabledPlugins", "extraKnownMarketplaces", "$schema")
    others = [f"permissions.{key}" for key in rules if key not in _KNOWN_PERMISSIONS]
    for line in drops.lines():
        found.note(path, "not", line)
    _note_unused(found, path, [*(key for key in given if key not in known), *others])


_KNOWN_PERMISSIONS = (*RULE_KINDS, "defaultMode", "additionalDirectories")


def _claude_home(
    found: OtherSettings, scope: SettingsScope, path: Path, given: dict[str, Any]
) -> None:
    """Copy the user's MCP servers. Servers for single projects are only reported."""
    _copy_servers(found, scope, path, given.get(SERVERS_KEY) or {}, dict)
    for folder, row in (given.get("projects") or {}).items():
        if names := [*(row.get(SERVERS_KEY) or ())]:
            found.note(path, "not", f"MCP servers for {folder} alone: {', '.join(names)}")


def _codex(found: OtherSettings, scope: SettingsScope, path: Path, given: dict[str, Any]) -> None:
    _copy_servers(found, scope, path, given.get("mcp_servers") or {}, codex_server)
    if model := given.get("model"):
        provider = given.get("model_provider", "openai")
        _copy_model(found, scope, path, f"{provider}/{model}")
    known = ("mcp_servers", "model", "model_provider", "projects", "notice", "tui")
    _note_unused(found, path, [key for key in given if key not in known])


def _opencode(
    found: OtherSettings, scope: SettingsScope, path: Path, given: dict[str, Any]
) -> None:
    _copy_servers(found, scope, path, given.get("mcp") or {}, opencode_server)
    if model := given.get("model"):
        _copy_model(found, scope, path, str(model))
    known = ("mcp", "model", "$schema", "theme", "autoupdate")
    _note_unused(found, path, [key for key in given if key not in known])


def _gemini(found: OtherSettings, scope: SettingsScope, path: Path, given: dict[str, Any]) -> None:
    _copy_servers(found, scope, path, given.get(SERVERS_KEY) or {}, gemini_server)
    model = given.get("model")
    if name := model.get("name") if isinstance(model, dict) else model:
        _copy_model(found, scope, path, f"gemini/{name}")
    known = (SERVERS_KEY, "model", "$schema", "ui", "theme", "security", "selectedAuthType")
    _note_unused(found, path, [key for key in given if key not in known])


def _note_unused(found: OtherSettings, path: Path, keys: list[str]) -> None:
    if keys:
        found.note(path, "not", f"settings without effect here: {', '.join(sorted(keys))}")


_READERS = (
    (".claude/settings.json", _claude),
    (".claude/settings.local.json", _claude),
    (".claude.json", _claude_home),
    (".codex/config.toml", _codex),
    *((name, _opencode) for name in (
        "opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc",
        ".config/opencode/opencode.json", ".config/opencode/opencode.jsonc",
    )),
    (".gemini/settings.json", _gemini),
)  # fmt: skip


def _copy_rule(
    found: OtherSettings, scope: SettingsScope, path: Path, kind: str, text: str
) -> None:
    try:
        rule = convert_rule(text, allows=kind == "allow", in_project=scope.in_project)
    except ValueError as error:
        found.note(path, "not", f"{kind} {text}: {error}")
        return
    _copy_item(found, scope, path, "permissions", kind, rule)


def _copy_item(
    found: OtherSettings, scope: SettingsScope, path: Path, section: str, key: str, item: str
) -> None:
    """Add an item to a list in our settings."""

    def change(table: Any) -> None:
        if item not in table.setdefault(key, []):
            table[key].append(item)

    _change(found, scope, path, section, change, f"{key} {item}")


def _copy_model(found: OtherSettings, scope: SettingsScope, path: Path, model: str) -> None:
    provider = model.partition("/")[0] if "/" in model else DEFAULT_PROVIDER
    if find_provider(provider) is None or "-" not in model:
        found.note(path, "not", f"the model {model} is not known here: choose one with /model")
        return
    _copy_value(found, scope, path, "model", "id", model)


def _copy_value(
    found: OtherSettings, scope: SettingsScope, path: Path, section: str, key: str, value: str
) -> None:
    """Set a key in our settings if it has no value."""
    has = list[str]()

    def change(table: Any) -> None:
        has.append(str(table.setdefault(key, value)))

    _change(found, scope, path, section, change, f"{section}.{key} = {value}")
    if has and has[0] != value:
        found.findings.pop()
        what = f"{section}.{key} = {value}: your file has {has[0]}"
        found.note(path, "kept", what, scope.settings)


def _change(
    found: OtherSettings,
    scope: SettingsScope,
    path: Path,
    section: str,
    change: Callable[[Any], None],
    what: str,
) -> None:
    try:
        data = _own_content(found, scope, scope.settings)
        changed = with_section(scope.settings, data, section, change)
    except CtxagentError as error:
        found.note(path, "not", f"{what}: {error.message}")
        return
    if changed != data:
        found.put(scope.settings, changed)
    before = found.before[scope.settings]
    if with_section(scope.settings, before, section, change) == before:
        found.note(path, "taken", f"{what}, which is there already", scope.settings)
    else:
        found.note(path, "copy", what, scope.settings)


def _own_content(found: OtherSettings, scope: SettingsScope, path: Path) -> bytes:
    """Return the planned content of a ctxagent file. Raises ConfigError."""
    if scope.leaves(path):
        raise ConfigError(LINK_LEAVES_PROJECT, where=str(path), hint="Replace the link by a file.")
    return found.content(path)


def _copy_servers(
    found: OtherSettings,
    scope: SettingsScope,
    path: Path,
    servers: Any,
    convert: Server,
) -> None:
    target = scope.servers
    if not isinstance(servers, Mapping):
        found.note(path, "not", "MCP servers: it is not an object")
        return
    for name, given in servers.items():
        plain = plain_name(name, lambda taken: False)
        what = f"MCP server {plain}"
        try:
            if not isinstance(given, dict):
                raise ValueError("it is not an object")
            data = _own_content(found, scope, target)
            document = json.loads(data) if target in found.after else read_document(target)
            values = {**convert(given)}
            check_server(values, target, _AnyVariable())
        except (ConfigError, ValueError, TypeError, AttributeError, KeyError) as error:
            found.note(path, "not", f"{what}: {error}")
            continue
        has = document[SERVERS_KEY].setdefault(plain, values)
        if has != values:
            found.note(path, "kept", f"{what}: there is another one of this name", target)
            continue
        if plain in (json.loads(found.before[target] or b"{}").get(SERVERS_KEY) or ()):
            found.note(path, "taken", f"{what}, which is there already", target)
            continue
        found.put(target, (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode())
        found.note(path, "copy", what, target)


class _AnyVariable(dict[str, str]):
    """An environment with a value for every variable."""

    def get(self, key: str, default: Any = None) -> Any:
        return "value"


def _copy_hooks(found: OtherSettings, scope: SettingsScope, path: Path, hooks: Given) -> None:
    target = scope.parts / HOOKS_NAME
    document = read_object(found.content(target) or b"{}")
    added, own = 0, document.setdefault("hooks", {})
    for event in hooks.object:
        for group in hooks.items(event):
            if group.value not in own.setdefault(event, []):
                own[event].append(group.value)
                added += 1
    if added:
        found.put(target, (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode())
        found.note(path, "copy", f"hooks for {', '.join(hooks.object)}", target)
    else:
        found.note(path, "taken", "hooks, which are there already", target)


def _copy_file(found: OtherSettings, scope: SettingsScope, path: Path, kind: CopiedKind) -> None:
    """Copy a command, a subagent, or a skill with the other files in its folder."""
    try:
        copies = dict(_copies(path, scope.parts, kind))
        if any(map(scope.leaves, (path, *copies))):
            raise ValueError(LINK_LEAVES_PROJECT)
    except (OSError, ValueError, KeyError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        found.note(path, "not", f"{kind.noun}: {why}")
        return
    target = next(iter(copies))
    if any(found.content(each) not in (b"", data) for each, data in copies.items()):
        found.note(path, "kept", f"{kind.noun}: there is another one of this name", target)
    elif all(found.content(each) for each in copies):
        found.note(path, "taken", f"{kind.noun}, which is there already", target)
    else:
        for each, data in copies.items():
            found.put(each, data)
        found.note(path, "copy", kind.noun, target)


def _copies(path: Path, parts: Path, kind: CopiedKind) -> Iterator[tuple[Path, bytes]]:
    """Yield the target files of a copy with their contents. Raises OSError and ValueError."""
    if kind.convert is not None:
        data = kind.convert(path.stem, read_untrusted(path))
        yield parts / kind.folder / f"{path.stem}.md", data
        return
    root = os.path.realpath(path.parent)
    for number, each in enumerate(sorted(path.parent.rglob("*"))):
        if number > kind.max_files:
            raise ValueError(f"it has more than {kind.max_files} files")
        if each.is_file() and Path(os.path.realpath(each)).is_relative_to(root):
            where = each.relative_to(path.parent)
            yield parts / kind.folder / path.parent.name / where, read_untrusted(each)
