"""Where settings come from: defaults < user file < project file < environment < flags.

`load` reads the layers, checks every value (a bad one is a ConfigError that names file, line and
the nearest known key) and remembers where each came from. Lists of permission rules add up over
the layers, everything else replaces. A project file may tighten, never loosen: until the person
has trusted its content, what would loosen is left out and named in a notice.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple

from . import toml
from .errors import ConfigError, UsageError, conceal
from .keys import ENV_PREFIX, Key, show
from .settings import KEYS, SECTIONS, Settings, build, by_key
from .settings.values import RULES
from .trust import is_trusted, reach, trust

__all__ = [
    "PROJECT_FILE",
    "Loaded",
    "Origin",
    "Row",
    "Settings",
    "config_home",
    "explain",
    "load",
    "loosening",
    "rules_in",
    "state_dir",
    "trust",
    "user_file",
]

PROJECT_FILE = ".agentrc"
USER_FILE_VARIABLE = ENV_PREFIX + "CONFIG"
LISTING = "`ctxagent config --explain` lists every setting."


class Origin(NamedTuple):
    """Where a value came from. `source` is "default", `FILE:LINE`, a variable's name or "-c";
    several, with commas between, for a list that added up."""

    source: str


class Loaded(NamedTuple):
    """The settings, where each came from by key (`"model.id"`), and lines a person should see.

    `project` is the project file, None when there is none; `trust_dir` is the state folder that
    decides whether it is trusted: `trust(loaded.project, loaded.trust_dir)` accepts it.
    """

    settings: Settings
    origins: dict[str, Origin]
    notices: list[str]
    project: Path | None
    trust_dir: Path


class Row(NamedTuple):
    """A setting as `ctxagent config` shows it: all text."""

    key: str
    value: str
    origin: str
    help: str


class _Given(NamedTuple):
    """One value that a layer gives. `places` is where each item of a list stands, if known."""

    key: Key
    value: Any
    source: str
    places: tuple[str, ...] = ()


def load(
    cwd: Path,
    *,
    environ: Mapping[str, str],
    flags: Sequence[str] = (),
    check_rule: Callable[[str], object] | None = None,
) -> Loaded:
    """The settings for work in `cwd`. `flags` are `section.key=value`, later ones win;
    `check_rule` raises UsageError for a malformed permission rule.

    Raises ConfigError for anything that is not a setting or not a value for it.
    """
    user, above = _user_file(environ), _variables(environ) + _flags(flags)
    given = _read(user) if user else []
    trust_dir = state_dir(_settle(given + above)[0], environ)
    notices: list[str] = []
    project = _project_file(cwd.resolve(), _home(environ).resolve())
    if project and not (user and project.samefile(user)):
        given, held = _with_project(given, project, trust_dir)
        if held:
            notices.append(
                f"{project} is not trusted, so {', '.join(held)} in it was ignored. "
                "Read the file, then accept it with `ctxagent config --trust`."
            )
    given += above
    if check_rule:
        _check_rules(given, check_rule)
    settings, origins = _settle(given)
    return Loaded(settings, origins, notices, project, trust_dir)


def flagged(flags: Sequence[str]) -> Settings:
    """The settings where nothing but these flags is given. Raises ConfigError."""
    return _settle(_flags(flags))[0]


def written(name: str, text: str) -> str:
    """The value that a flag gives a key, as it would stand in a file. Raises ConfigError."""
    given = _given_text(_key(name, "-c"), text, "-c")
    return show(given.key, given.value)


def explain(loaded: Loaded) -> list[Row]:
    """Every setting, its value as it would stand in a file, where it came from, what it does."""
    value = by_key(loaded.settings)
    return [
        Row(name, show(key, value[name]), loaded.origins[name].source, key.help)
        for name, key in KEYS.items()
    ]


def state_dir(settings: Settings, environ: Mapping[str, str]) -> Path:
    """The folder of everything that ctxagent keeps; it need not exist yet."""
    chosen = settings.state.dir
    if chosen is None:
        return _base(environ, "XDG_STATE_HOME", ".local/state") / "ctxagent"
    return _home(environ).joinpath(*chosen.parts[1:]) if chosen.parts[0] == "~" else chosen


def config_home(environ: Mapping[str, str]) -> Path:
    """The folder of the user's own settings and instructions; it need not exist."""
    return _base(environ, "XDG_CONFIG_HOME", ".config") / "ctxagent"


def user_file(environ: Mapping[str, str]) -> Path:
    """The file of the user's own settings; it need not exist."""
    named = environ.get(USER_FILE_VARIABLE)
    if named:
        return Path(os.path.abspath(named))  # noqa: PTH100 - resolve() would follow symlinks
    return config_home(environ) / "agentrc"


def rules_in(path: Path, data: bytes) -> list[tuple[str, str, str]]:
    """The permission rules of a settings file with this content: the key of each such as `allow`,
    the rule, and `FILE:LINE`. Raises ConfigError."""
    return [
        (key.name.partition(".")[2], rule, place)
        for key, value, source, places in _document(path, data)
        if key.shape is RULES
        for rule, place in zip(value, places or [source] * len(value), strict=True)
    ]


def loosening(path: Path, data: bytes) -> list[str]:
    """Keys that a project file with this content could not set without the person's trust,
    whatever the person's own file says now or later. Raises ConfigError."""
    return [key.name for key, value, *_ in _document(path, data) if key.may_loosen(value)]


def _home(environ: Mapping[str, str]) -> Path:
    try:
        return Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    except RuntimeError:  # nor has the user an entry in the system's list
        hint = "Set HOME to a folder for settings and sessions."
        raise ConfigError("not set, and the user has no home", where="HOME", hint=hint) from None


def _base(environ: Mapping[str, str], variable: str, below_home: str) -> Path:
    """A base directory as XDG defines them: a relative one does not count."""
    named = Path(environ.get(variable, ""))
    return named if named.is_absolute() else _home(environ) / below_home


def _user_file(environ: Mapping[str, str]) -> Path | None:
    """The same where it is, or must be, read."""
    path = user_file(environ)
    return path if environ.get(USER_FILE_VARIABLE) or _is_there(path) else None


def _project_file(cwd: Path, home: Path) -> Path | None:
    """The nearest one within the project."""
    files = (folder / PROJECT_FILE for folder in reach(cwd, home))
    return next(filter(_is_there, files), None)


def _is_there(path: Path) -> bool:
    """Whether a settings file is there. Raises ConfigError for one that cannot be read: what it
    denies must not be left out in silence."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unreadable(path, error.strerror) from None
    try:
        regular = S_ISREG(path.stat().st_mode)
        nothing = path.samefile(os.devnull)  # a file that is masked
    except FileNotFoundError:
        raise _unreadable(path, "it is a link to nothing") from None
    except OSError as error:
        raise _unreadable(path, error.strerror) from None
    if not (regular or nothing):
        raise _unreadable(path, "it is not a regular file")
    return regular


def _unreadable(path: Path, why: str | None) -> ConfigError:
    hint = "Mend it or take it away: its rules may deny what would be allowed without it."
    return ConfigError(f"cannot be read: {why}", where=str(path), hint=hint)


def _with_project(
    given: list[_Given], path: Path, trust_dir: Path
) -> tuple[list[_Given], list[str]]:
    """What the user's file gave and then the project's; and the keys that were held back."""
    data = _bytes(path)
    project = _document(path, data)
    if is_trusted(path, data, trust_dir):
        return given + project, []
    values, _ = _values(given)
    held = [g.key.name for g in project if g.key.loosens(g.value, values[g.key.name])]
    return given + [g for g in project if g.key.name not in held], held


def _values(given: Iterable[_Given]) -> tuple[dict[str, Any], dict[str, Origin]]:
    values = {name: key.default for name, key in KEYS.items()}
    sources: dict[str, list[str]] = {}
    for key, value, source, _ in given:
        if key.adds:
            values[key.name] = tuple(dict.fromkeys((*values[key.name], *value)))
            sources.setdefault(key.name, []).append(source)
        else:
            values[key.name] = value
            sources[key.name] = [source]
    origins = {name: Origin(", ".join(sources.get(name, ["default"]))) for name in KEYS}
    return values, origins


def _settle(given: Iterable[_Given]) -> tuple[Settings, dict[str, Origin]]:
    values, origins = _values(given)
    return build(values), origins


def _read(path: Path) -> list[_Given]:
    return _document(path, _bytes(path))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error.strerror) from None


def _document(path: Path, data: bytes) -> list[_Given]:
    """What a settings file gives, in its order."""
    table, lines = toml.parse(data, path)
    given = []
    for section, content in table.items():
        where = f"{path}:{lines[(section,)]}"
        if section not in SECTIONS:
            raise _unknown(section, where)
        if not isinstance(content, dict):
            hint = f"Write [{section}] on a line of its own, and its keys below."
            raise ConfigError(f"{section} is a section, not a key", where=where, hint=hint)
        for field, raw in content.items():
            place = (section, field)
            source = f"{path}:{lines[place]}"
            key = _key(f"{section}.{field}", source)
            items = range(len(raw)) if isinstance(raw, list) else ()
            places = tuple(f"{path}:{lines.get((*place, index), lines[place])}" for index in items)
            given.append(_Given(key, _value(key, raw, source), source, places))
    return given


def _variables(environ: Mapping[str, str]) -> list[_Given]:
    """What the environment gives; an empty variable is one that is not set."""
    given = [
        _given_text(key, environ[key.alias], key.alias)
        for key in KEYS.values()
        if environ.get(key.alias)
    ]
    names = {key.env: key for key in KEYS.values()}
    for variable in sorted(environ):
        if not variable.startswith(ENV_PREFIX) or variable == USER_FILE_VARIABLE:
            continue
        if not environ[variable]:
            continue
        if variable not in names:
            near = _nearest(variable, names)
            hint = f"Did you mean {near}?" if near else LISTING
            raise ConfigError("no setting has this variable", where=variable, hint=hint)
        given.append(_given_text(names[variable], environ[variable], variable))
    return given


def _flags(flags: Iterable[str]) -> list[_Given]:
    given = []
    for flag in flags:
        name, sign, text = flag.partition("=")
        if not sign:
            hint = "For example: -c demote.above=20_000"
            raise ConfigError(f"{flag!r} is not KEY=VALUE", where="-c", hint=hint)
        given.append(_given_text(_key(name.strip(), "-c"), text, "-c"))
    return given


def _given_text(key: Key, text: str, source: str) -> _Given:
    try:
        raw = key.shape.literal(text.strip())
    except ValueError:
        raise _misfit(key, text, source) from None
    return _Given(key, _value(key, raw, source), source)


def _value(key: Key, raw: object, where: str) -> Any:
    try:
        return key.shape.read(raw)
    except ValueError:
        raise _misfit(key, raw, where) from None


def _misfit(key: Key, raw: object, where: str) -> ConfigError:
    try:
        shown = conceal(repr(raw))
    except ValueError:  # Python does not write out integers of thousands of digits
        shown = "a number beyond all bounds"
    shown = shown if len(shown) <= 80 else shown[:79] + "…"
    message = f"{key.name} is {shown}; expected {key.shape.wanted}"
    known = key.shape.words
    words = [w for w in (raw if isinstance(raw, list) else [raw]) if isinstance(w, str)]
    near = next(filter(None, (_nearest(w, known) for w in words if w not in known)), None)
    return ConfigError(message, where=where, hint=f"Did you mean {near}?" if near else key.help)


def _key(name: str, where: str) -> Key:
    if name not in KEYS:
        raise _unknown(name, where)
    return KEYS[name]


def _unknown(name: str, where: str) -> ConfigError:
    same = [known for known in KEYS if known.partition(".")[2] == name.rpartition(".")[2]]
    near = _nearest(name, [*KEYS, *SECTIONS]) or next(iter(same), None)
    hint = f"Did you mean {near}?" if near else LISTING
    return ConfigError(f"no setting is called {name!r}", where=where, hint=hint)


def _nearest(name: str, known: Iterable[str]) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(name, known, n=1)), None)


def _check_rules(given: Iterable[_Given], check_rule: Callable[[str], object]) -> None:
    for key, value, source, places in given:
        if key.shape is not RULES:
            continue
        for rule, where in zip(value, places or [source] * len(value), strict=True):
            try:
                check_rule(rule)
            except UsageError as error:
                message = f"{key.name}: {error.message}"
                raise ConfigError(message, where=where, hint=error.hint) from None
