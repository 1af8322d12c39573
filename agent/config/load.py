"""Loads the layers of settings: defaults < user file < project file < environment < flags.

`load_settings` checks every value and remembers its origin. A wrong value raises a ConfigError with
file, line and the nearest known key. The standard parser reads the TOML; a scan of its tokens finds
the line of each key.

Lists of permission rules and hooks add up over the layers; other values replace lower ones. A
project file may make settings stricter. Values that loosen them are ignored with a notice until the
user trusts the file's content.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple

from ...tools.system.phrasing import shorten
from ..errors import ConfigError, UsageError, conceal
from ..lazy import regex
from .keyboard import check_keys
from .keys import (
    ENV_PREFIX,
    RULES,
    Setting,
    provider_in,
    value_text,
)
from .places import USER_FILE_VARIABLE, home_folder, state_dir, state_notice, user_file
from .settings import (
    EXTENSIONS,
    KEYS,
    OLD_SECTIONS,
    SECTIONS,
    Settings,
    build_settings,
    current_name,
    values_by_key,
)
from .trust import folders_within_project, is_trusted

KeyPath = tuple[str | int, ...]

_TOKEN = regex(
    r'"""(?:[^\\]|\\.)*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*|\n"
    r"|[=,.\[\]{}]"
    r"|[A-Za-z0-9_+:-]+",
    re.DOTALL,
)
_POSITION = regex(r" \(at (?:line (\d+), column \d+|end of document)\)$")


def parse_toml(data: bytes, path: Path) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """Return the document, and the line (from 1) of each table, key and array item by its path,
    such as `("permissions", "allow", 0)`. Raises ConfigError with file and line if the data is not
    UTF-8 or not TOML.
    """
    import tomllib

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("not UTF-8", where=f"{path}:{line}", hint="Save it as UTF-8.") from None
    try:
        return tomllib.loads(text), _TokenWalk(text).lines
    except ValueError as error:  # TOMLDecodeError, or an integer of thousands of digits
        found = _POSITION.search(str(error))
        line = int(found[1]) if found and found[1] else max(1, len(text.splitlines()))
        raise ConfigError(
            f"not TOML: {_POSITION.sub('', str(error))}",
            where=f"{path}:{line}",
            hint='Write `key = value` lines below a [section]; put text in "quotes".',
        ) from None
    except RecursionError:
        raise ConfigError(
            "not a settings file: nested too deeply",
            where=f"{path}:1",
            hint="Rewrite the file; `ctxagent config` lists the keys.",
        ) from None


class _TokenWalk:
    """A scan of the tokens of a valid document. The result is in `lines`."""

    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._tokens: list[tuple[str, int]] = []
        line = 1
        for token in _TOKEN.findall(text):
            if not token.startswith("#"):
                self._tokens.append((token, line))
            line += token.count("\n")
        self._tokens.append(("", line))
        self._at = 0
        self._document()

    @property
    def _token(self) -> str:
        return self._tokens[self._at][0]

    def _next(self) -> str:
        token = self._token
        self._at += 1
        return token

    def _note(self, place: KeyPath) -> None:
        self.lines.setdefault(place, self._tokens[self._at][1])

    def _document(self) -> None:
        table: KeyPath = ()
        while self._token:
            if self._token == "\n":
                self._next()
            elif self._token == "[":
                table = self._key((), "]")
                while self._token == "]":
                    self._next()
            else:
                self._pair(table)

    def _key(self, place: KeyPath, end: str) -> KeyPath:
        """Return the path of a key below `place`. Stop before the token `end`."""
        while self._token != end:
            if self._token not in (".", "["):
                place = (*place, _key_name(self._token))
                self._note(place)
            self._next()
        return place

    def _pair(self, table: KeyPath) -> None:
        place = self._key(table, "=")
        self._next()
        self._value(place)

    def _value(self, place: KeyPath) -> None:
        opened = self._token
        if opened not in ("{", "["):
            while self._token not in ("", "\n", ",", "]", "}"):
                self._next()
            return
        self._next()
        index = 0
        while self._token not in ("}", "]"):
            if self._token in (",", "\n"):
                self._next()
            elif opened == "{":
                self._pair(place)
            else:
                self._note((*place, index))
                self._value((*place, index))
                index += 1
        self._next()


def _key_name(token: str) -> str:
    if token[0] not in "\"'":
        return token
    import tomllib

    (name,) = tomllib.loads(f"{token} = 0")
    return name


PROJECT_FILE = ".agentrc"
LISTING_HINT = "`ctxagent config --explain` lists every setting."
_EXTENSION_KEY = regex(r"extensions\.[\w-]+\.[\w-]+")  # extensions.NAME.KEY
MAX_SHOWN_VALUE_CHARS = 80  # of a wrong value in a message


class LayerValue(NamedTuple):
    """A value set by one layer."""

    key: Setting
    value: Any
    source: str
    item_sources: tuple[str, ...] = ()  # origin of each list item, if known

    def rules(self) -> Iterator[tuple[str, str]]:
        """Yield each permission rule in the value with its origin."""
        if self.key.value_type is RULES:
            yield from self.items()

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield each item of a list with its origin."""
        sources = self.item_sources or [self.source] * len(self.value)
        yield from zip(self.value, sources, strict=True)


class LoadedSettings(NamedTuple):
    """The settings with their origins and notices, for front ends."""

    settings: Settings
    # By key (`"model.id"`): "default", `FILE:LINE`, a variable or "-c". Several origins, separated
    # by commas, for a list that adds up.
    origins: dict[str, str]
    notices: list[str]  # lines for the user
    project: Path | None  # the project file
    trust_dir: Path  # the state folder with the list of trusted files
    given: Sequence[LayerValue] = ()  # the values in force, lowest layer first
    untrusted: Sequence[LayerValue] = ()  # values of the untrusted project file, not in force
    problems: Sequence[str] = ()  # errors in the project file that were skipped


class SettingRow(NamedTuple):
    """A setting as `ctxagent config` shows it, all as text."""

    key: str
    value: str
    origin: str
    help: str
    untrusted: str = ""  # value and origin in an untrusted project file; not in force


def load_settings(
    cwd: Path,
    *,
    environ: Mapping[str, str],
    flags: Sequence[str] = (),
    check_rule: Callable[[str], object] | None = None,
    skip_invalid: bool = False,
) -> LoadedSettings:
    """Return the settings for work in `cwd`. `flags` are `section.key=value`; later flags win.
    `check_rule` raises UsageError for a malformed permission rule. Raises ConfigError for unknown
    settings and invalid values. With `skip_invalid`, invalid values of the project file are left
    out. This is only for commands that start nothing, because such a value may be a deny rule.
    """
    problems: list[str] | None = [] if skip_invalid else None
    user, above = _user_file(environ), _read_variables(environ) + _read_flags(flags)
    given = _read_document(user, _read_bytes(user)) if user else []
    trust_dir = state_dir(_merge(given + above)[0], environ)
    notices: list[str] = []
    untrusted: list[LayerValue] = []
    project: Path | None = None
    with _skipping(problems):
        project = _project_file(cwd.resolve(), home_folder(environ).resolve())
        if project and not (user and project.samefile(user)):
            given, untrusted = _add_project_layer(given, project, trust_dir, problems)
    if untrusted:
        names = ", ".join(dict.fromkeys(each.key.name for each in untrusted))
        notices.append(
            f"{project} is not trusted, so {names} in it was ignored. "
            "Read the file, then accept it with `ctxagent config --trust`."
        )
    given += above
    if check_rule:
        with _skipping(problems):
            _check_rules(given, check_rule)
    settings, origins = _merge(given)
    with _skipping(problems):
        check_keys(settings.keys, origins)
    if where := state_notice(settings, environ):
        notices.append(where)
    found = (settings, origins, notices, project, trust_dir, given, untrusted)
    return LoadedSettings(*found, problems or ())


@contextmanager
def _skipping(problems: list[str] | None) -> Iterator[None]:
    """End the block at a ConfigError and add the error to `problems`, unless that is None."""
    try:
        yield
    except ConfigError as error:
        if problems is None:
            raise
        problems.append(str(error))


def settings_from_flags(flags: Sequence[str]) -> Settings:
    """Return the defaults with these flags only. Raises ConfigError."""
    return _merge(_read_flags(flags))[0]


def flag_value_text(name: str, text: str) -> str:
    """Return the value of a flag as written in a settings file. Raises ConfigError."""
    given = _layer_value(setting_key(name, "-c"), text, "-c")
    return value_text(given.key, given.value)


def raw_value(key: Setting, text: str, where: str) -> Any:
    """Return the TOML value of a typed text for a key. Raises ConfigError."""
    _layer_value(key, text, where)
    return key.value_type.literal(text.strip())


def explain_settings(loaded: LoadedSettings) -> list[SettingRow]:
    """Return a row for each setting."""
    value = values_by_key(loaded.settings)
    untrusted = {
        each.key.name: f"{value_text(each.key, each.value)} in {each.source}"
        for each in loaded.untrusted
    }
    return [
        SettingRow(
            name,
            value_text(key, value[name]),
            loaded.origins[name],
            key.help,
            untrusted.get(name, ""),
        )
        for name, key in KEYS.items()
    ]


def rules_in_file(path: Path, data: bytes) -> list[tuple[str, str, str]]:
    """Return the permission rules of a settings file with this content as (kind such as `allow`,
    rule, `FILE:LINE`). Raises ConfigError.
    """
    return [
        (given.key.name.partition(".")[2], rule, source)
        for given in _read_document(path, data)
        for rule, source in given.rules()
    ]


def keys_needing_trust(path: Path, data: bytes) -> list[str]:
    """Return the keys for which a project file with this content can need the user's trust,
    depending on the user's other settings. Raises ConfigError.
    """
    return [key.name for key, _ in values_needing_trust(path, data)]


def values_needing_trust(path: Path, data: bytes) -> list[tuple[Setting, Any]]:
    """Return these keys with their values. Raises ConfigError."""
    given = _read_document(path, data)
    return [(key, value) for key, value, *_ in given if key.may_loosen(value)]


def _user_file(environ: Mapping[str, str]) -> Path | None:
    """Return the user's file if it exists or if the variable CTXAGENT_CONFIG requires it."""
    path = user_file(environ)
    return path if environ.get(USER_FILE_VARIABLE) or _exists(path) else None


def _project_file(cwd: Path, home: Path) -> Path | None:
    """Return the nearest settings file in the project, or None."""
    files = (folder / PROJECT_FILE for folder in folders_within_project(cwd, home))
    return next(filter(_exists, files), None)


def _exists(path: Path) -> bool:
    """Return True if a settings file exists. Raises ConfigError if it cannot be read, because its
    rules would be lost.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unreadable(path, error.strerror) from None
    try:
        regular = S_ISREG(path.stat().st_mode)
        masked = path.samefile(os.devnull)
    except FileNotFoundError:
        raise _unreadable(path, "it is a broken symlink") from None
    except OSError as error:
        raise _unreadable(path, error.strerror) from None
    if not (regular or masked):
        raise _unreadable(path, "it is not a regular file")
    return regular


def _unreadable(path: Path, why: str | None) -> ConfigError:
    hint = "Fix or remove it: it may contain deny rules."
    return ConfigError(f"cannot be read: {why}", where=str(path), hint=hint)


def _add_project_layer(
    given: list[LayerValue], path: Path, trust_dir: Path, problems: list[str] | None
) -> tuple[list[LayerValue], list[LayerValue]]:
    """Return the values with the project file added, and its values that need trust first."""
    data = _read_bytes(path)
    project = _read_document(path, data, problems)
    if is_trusted(path, data, trust_dir):
        return given + project, []
    values, _ = _merged_values(given)
    untrusted = [g for g in project if g.key.loosens(g.value, values.get(g.key.name))]
    return given + [g for g in project if g not in untrusted], untrusted


def _merged_values(given: Sequence[LayerValue]) -> tuple[dict[str, Any], dict[str, str]]:
    values = {name: key.default for name, key in KEYS.items()}
    sources: dict[str, list[str]] = {}
    for key, value, source, _ in given:
        if key.adds:
            values[key.name] = tuple(dict.fromkeys((*values[key.name], *value)))
            sources.setdefault(key.name, []).append(source)
        else:
            values[key.name] = value
            sources[key.name] = [source]
    for name in _keys_for_another_provider(values["model.id"], given):
        values[name] = KEYS[name].default
        sources.pop(name, None)
    origins = {name: ", ".join(sources.get(name, ["default"])) for name in KEYS}
    return values, origins


def _keys_for_another_provider(model: str, given: Sequence[LayerValue]) -> list[str]:
    """Return the keys (model.base_url, model.context_window) whose layer also sets a model of
    another provider than `model`. They are reset, because the API key for `model` must not be sent
    there.
    """
    models: dict[str, str] = {}
    layers: dict[str, str] = {}
    for key, value, source, _ in given:
        layer = "variables" if source.startswith(ENV_PREFIX) else source.rpartition(":")[0]
        if key.name == "model.id":
            models[layer] = value
        elif key.name in ("model.base_url", "model.context_window"):
            layers[key.name] = layer
    return [
        name
        for name, layer in layers.items()
        if layer in models and provider_in(models[layer]) != provider_in(model)
    ]


def _merge(given: Sequence[LayerValue]) -> tuple[Settings, dict[str, str]]:
    values, origins = _merged_values(given)
    settings = build_settings({name: values[name] for name in KEYS})
    extensions: dict[str, dict[str, Any]] = {}
    for name in values.keys() - KEYS.keys():
        _, extension, key = name.split(".")
        extensions.setdefault(extension, {})[key] = values[name]
    return replace(settings, extensions=extensions), origins


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error.strerror) from None


def _read_document(path: Path, data: bytes, problems: list[str] | None = None) -> list[LayerValue]:
    """Return the values in a settings file: those of sections with an old name, then the others,
    in file order. With `problems`, skip invalid ones.
    """
    table, lines = parse_toml(data, path)
    given = []
    for section in sorted(table, key=lambda name: name not in OLD_SECTIONS):
        content = table[section]
        where = f"{path}:{lines[(section,)]}"
        with _skipping(problems):
            if current_name(section) not in (*SECTIONS, EXTENSIONS):
                raise _unknown_key(section, where)
            if not isinstance(content, dict):
                hint = f"Write [{section}] on a line of its own, and its keys below."
                raise ConfigError(f"{section} is a section, not a key", where=where, hint=hint)
            for at, raw in _fields((section,), content):
                line = lines[at]
                source = f"{path}:{line}"
                items = range(len(raw)) if isinstance(raw, list) else ()
                sources = tuple(f"{path}:{lines.get((*at, item), line)}" for item in items)
                with _skipping(problems):
                    key = setting_key(".".join(at), source)
                    value = _checked_value(key, raw, source)
                    given.append(LayerValue(key, value, source, sources))
    return given


def _fields(at: tuple[str, ...], table: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and the value of each key in a section. Each extension has a table of its
    own.
    """
    for name, value in table.items():
        if at == (EXTENSIONS,) and isinstance(value, dict):
            yield from _fields((*at, name), value)
        else:
            yield (*at, name), value


def _read_variables(environ: Mapping[str, str]) -> list[LayerValue]:
    """Return the values set by environment variables: those with an old name, then the others.
    Empty variables count as unset.
    """
    keys = {key.env: key for key in KEYS.values()}
    for old, section in OLD_SECTIONS.items():
        of_section = [key for key in KEYS.values() if key.name.startswith(f"{section}.")]
        keys |= {
            key._replace(name=key.name.replace(section, old, 1)).env: key for key in of_section
        }
    given = []
    current = {key.env for key in KEYS.values()}
    for variable in sorted(environ, key=lambda name: (name in current, name)):
        if not environ[variable] or variable == USER_FILE_VARIABLE:
            continue
        if variable in keys:
            given.append(_layer_value(keys[variable], environ[variable], variable))
        elif variable.startswith(ENV_PREFIX):
            near = _nearest(variable, sorted(current))
            hint = f"Did you mean {near}?" if near else LISTING_HINT
            raise ConfigError("no setting has this variable", where=variable, hint=hint)
    return given


def _read_flags(flags: Iterable[str]) -> list[LayerValue]:
    given = []
    for flag in flags:
        name, sign, text = flag.partition("=")
        if not sign:
            hint = (
                "For example: -c move.above=20_000. To resume the newest session, use --continue."
            )
            raise ConfigError(f"{flag!r} is not KEY=VALUE", where="-c", hint=hint)
        given.append(_layer_value(setting_key(name.strip(), "-c"), text, "-c"))
    return given


def _layer_value(key: Setting, text: str, source: str) -> LayerValue:
    try:
        raw = key.value_type.literal(text.strip())
    except ValueError:
        raise _wrong_value(key, text, source) from None
    return LayerValue(key, _checked_value(key, raw, source), source)


def _checked_value(key: Setting, raw: object, where: str) -> Any:
    try:
        return key.read(raw)
    except ValueError:
        raise _wrong_value(key, raw, where) from None


def _wrong_value(key: Setting, raw: object, where: str) -> ConfigError:
    try:
        shown = conceal(repr(raw))
    except ValueError:  # repr() refuses integers of thousands of digits
        shown = "a number that is too large"
    shown = shorten(shown, MAX_SHOWN_VALUE_CHARS)
    message = f"{key.name} is {shown}; expected {key.wanted}"
    known = key.value_type.words
    words = [w for w in (raw if isinstance(raw, list) else [raw]) if isinstance(w, str)]
    near = next(filter(None, (_nearest(w, known) for w in words if w not in known)), None)
    return ConfigError(message, where=where, hint=f"Did you mean {near}?" if near else key.help)


_REPLACED = {"model.server": "Name the server with the model: --model ollama/NAME."}


def setting_key(name: str, where: str) -> Setting:
    """Return the setting with this name, current or old. Raises ConfigError for an unknown name."""
    if _EXTENSION_KEY.fullmatch(name):
        help = "A setting of an extension; `ctxagent extensions list` names all."
        return Setting(None, help, name=name)
    if (key := KEYS.get(current_name(name))) is None:
        raise _unknown_key(name, where)
    return key


def _unknown_key(name: str, where: str) -> ConfigError:
    if name in _REPLACED:
        return ConfigError(f"there is no {name} any more", where=where, hint=_REPLACED[name])
    same = [known for known in KEYS if known.partition(".")[2] == name.rpartition(".")[2]]
    near = next(iter(same), None) or _nearest(name, [*KEYS, *SECTIONS])
    hint = f"Did you mean {near}?" if near else LISTING_HINT
    return ConfigError(f"no setting is called {name!r}", where=where, hint=hint)


def _nearest(name: str, known: Iterable[str]) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(name, known, n=1)), None)


def _check_rules(given: Iterable[LayerValue], check_rule: Callable[[str], object]) -> None:
    for one in given:
        for rule, source in one.rules():
            try:
                check_rule(rule)
            except UsageError as error:
                message = f"{one.key.name}: {error.message}"
                raise ConfigError(message, where=source, hint=error.hint) from None
