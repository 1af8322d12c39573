"""The settings: one declaration of every key, its shape, its default and what it does.

A section is a frozen dataclass, a key one of its fields, annotated with the `Key` that tells how
to read it. Parsing, the names of environment variables, `config --explain`, the documentation and
the checks of `.agentrc.example` all follow from `KEYS`; to add a key, add a field (to add a
section, a class and a field of `Settings`). Where values come from is `config.py`'s concern.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

ENV_PREFIX = "CTXAGENT_"

_MOST = 1_000_000_000
_VISIBLE = r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]"  # nothing that moves a cursor when it is shown
_CREDENTIALS = re.compile(r"//[^/\s]*@")


class Shape(NamedTuple):
    """What a value may be. `wanted` says it in words. `read` turns a TOML value into the
    setting's value and `literal` the text of a variable or flag into a TOML value; both raise
    ValueError for one that does not fit. `none` is the word that stands for None."""

    wanted: str
    read: Callable[[Any], Any]
    literal: Callable[[str], Any] = str
    none: str = ""


def _never(new: Any, current: Any) -> bool:
    return False


def _differs(new: Any, current: Any) -> bool:
    return bool(new != current)


def _scripted(new: Any, current: Any) -> bool:
    return str(new).startswith("scripted:")  # such a model says what the project wrote for it


def _laxer(new: Any, current: Any) -> bool:
    modes = get_args(Mode)
    return modes.index(new) > modes.index(current)


class Key(NamedTuple):
    """One setting. `adds` marks lists that add up over the layers instead of replacing.
    `loosens(new, current)` tells whether a project file needs the person's trust to set `new`.
    `alias` is a variable with a name of its own that counts as this key's. `name` and `default`
    come from the field."""

    shape: Shape
    help: str
    adds: bool = False
    loosens: Callable[[Any, Any], bool] = _never
    alias: str = ""
    name: str = ""
    default: Any = None

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper().replace(".", "_")


def _matching(wanted: str, pattern: str, kind: Callable[[str], Any] = str) -> Shape:
    expression = re.compile(pattern)

    def read(value: Any) -> Any:
        if not isinstance(value, str) or not expression.fullmatch(value):
            raise ValueError(value)
        return kind(value)

    return Shape(wanted, read)


def _whole(unit: str, least: int) -> Shape:
    def read(value: Any) -> int:
        if type(value) is not int or not least <= value <= _MOST:  # a bool is an int by descent
            raise ValueError(value)
        return value

    return Shape(f"a whole number of {unit}, {least} to {_MOST:_}", read, int)


def _one_of(literal: Any) -> Shape:
    names: tuple[str, ...] = get_args(literal)

    def read(value: Any) -> str:
        if value not in names:
            raise ValueError(value)
        return str(value)

    return Shape("one of " + ", ".join(f'"{name}"' for name in names), read)


def _many(item: Shape) -> Shape:
    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError(value)
        return tuple(item.read(v) for v in value)

    def literal(text: str) -> list[Any]:
        if not text.startswith("["):
            return [text]
        import tomllib

        items: list[Any] = tomllib.loads(f"items = {text}")["items"]
        return items

    return Shape(f"a list, each item {item.wanted}", read, literal)


def _or(word: str, shape: Shape) -> Shape:
    """The shape, or `word` for None."""

    def read(value: Any) -> Any:
        return None if value == word else shape.read(value)

    def literal(text: str) -> Any:
        return word if text == word else shape.literal(text)

    return Shape(f'{shape.wanted}, or "{word}"', read, literal, word)


def _read_switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _switch_literal(text: str) -> bool:
    word = text.lower()
    if word not in ("true", "1", "false", "0"):
        raise ValueError(text)
    return word in ("true", "1")


Effort = Literal["low", "medium", "high", "xhigh", "max"]
Mode = Literal["plan", "ask", "accept-edits", "bypass"]  # from the strictest to the laxest
Theme = Literal["auto", "dark", "light"]
Editing = Literal["emacs", "vi"]

MODEL_ID = _matching("the id of a model", rf"(?!\s){_VISIBLE}+")
ADDRESS = _matching("an http:// or https:// address", r"https?://[!-.0-~][!-~]*")
FOLDER = _matching('a folder, absolute or below "~/"', rf"(?:/|~(?=/|$)){_VISIBLE}*", Path)
VARIABLES = _many(_matching("the name of a variable", r"[A-Za-z_][A-Za-z0-9_]*"))
RULES = _many(_matching('a rule such as "Bash(git status:*)"', rf"(?!\s){_VISIBLE}+"))
SWITCH = Shape("true or false", _read_switch, _switch_literal)


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """[model]"""

    # The same id as `model.base.DEFAULT_MODEL`, which would bring the whole wire along.
    id: Annotated[str, Key(MODEL_ID, "The model that answers.", loosens=_scripted)] = (
        "claude-sonnet-5-5"
    )
    context_window: Annotated[
        int | None,
        Key(_or("auto", _whole("tokens", 1)), 'Its window. "auto": what is known of the model.'),
    ] = None
    max_tokens: Annotated[
        int | None,
        Key(_or("auto", _whole("tokens", 1)), 'The longest reply. "auto": as the model allows.'),
    ] = None
    effort: Annotated[
        Effort | None,
        Key(_or("auto", _one_of(Effort)), 'How hard it thinks. "auto": the model\'s own default.'),
    ] = None
    base_url: Annotated[
        str | None,
        Key(
            _or("auto", ADDRESS),
            'The server that is asked, and is sent the key. "auto": the public API.',
            loosens=_differs,
            alias="ANTHROPIC_BASE_URL",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class DemoteSettings:
    """[demote]"""

    above: Annotated[
        int | None,
        Key(
            _or("off", _whole("tokens", 1)),
            'A larger tool result goes to a file, and a preview to the model. "off": never.',
        ),
    ] = 10_000
    preview_chars: Annotated[int, Key(_whole("characters", 0), "The length of that preview.")] = (
        2_000
    )


@dataclass(frozen=True, slots=True)
class PermissionSettings:
    """[permissions]"""

    mode: Annotated[
        Mode,
        Key(
            _one_of(Mode),
            'What is done where no rule speaks. "plan" changes nothing, "bypass" asks nothing.',
            loosens=_laxer,
        ),
    ] = "ask"
    allow: Annotated[
        tuple[str, ...],
        Key(RULES, "Calls that need no question.", adds=True, loosens=_differs),
    ] = ()
    ask: Annotated[
        tuple[str, ...], Key(RULES, "Calls that are always asked about.", adds=True)
    ] = ()
    deny: Annotated[tuple[str, ...], Key(RULES, "Calls that are never made.", adds=True)] = ()


@dataclass(frozen=True, slots=True)
class BashSettings:
    """[bash]"""

    keep_env: Annotated[
        tuple[str, ...],
        Key(
            VARIABLES,
            "Variables that commands may see although they look like secrets.",
            loosens=_differs,
        ),
    ] = ()


@dataclass(frozen=True, slots=True)
class StateSettings:
    """[state]"""

    dir: Annotated[
        Path | None,
        Key(
            _or("auto", FOLDER),
            'Where sessions are kept. "auto": $XDG_STATE_HOME/ctxagent or ~/.local/state/ctxagent.',
            loosens=_differs,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class UiSettings:
    """[ui]"""

    theme: Annotated[
        Theme, Key(_one_of(Theme), 'Colours for a "dark" or a "light" background; "auto" guesses.')
    ] = "auto"
    editing_mode: Annotated[Editing, Key(_one_of(Editing), "Keys of the input line.")] = "emacs"
    plain: Annotated[bool, Key(SWITCH, "Lines only: no colour, nothing animated or redrawn.")] = (
        False
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, checked."""

    model: ModelSettings = ModelSettings()
    demote: DemoteSettings = DemoteSettings()
    permissions: PermissionSettings = PermissionSettings()
    bash: BashSettings = BashSettings()
    state: StateSettings = StateSettings()
    ui: UiSettings = UiSettings()


def _declared() -> Iterator[Key]:
    for section, group in SECTIONS.items():
        for field in fields(group):
            key: Key = get_args(field.type)[1]
            yield key._replace(name=f"{section}.{field.name}", default=field.default)


SECTIONS: dict[str, Any] = {field.name: field.type for field in fields(Settings)}
KEYS: dict[str, Key] = {key.name: key for key in _declared()}


def build(values: dict[str, Any]) -> Settings:
    """Settings from a value for each of `KEYS`."""
    return Settings(
        **{
            section: group(**{f.name: values[f"{section}.{f.name}"] for f in fields(group)})
            for section, group in SECTIONS.items()
        }
    )


def show(key: Key, value: Any) -> str:
    """A key's value as it would stand in a settings file, without credentials."""
    if value is None:
        value = key.shape.none
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, tuple):
        return conceal(json.dumps(value, ensure_ascii=False))
    return conceal(json.dumps(str(value), ensure_ascii=False))


def conceal(text: str) -> str:
    """The text without the user name and password of an address in it."""
    return _CREDENTIALS.sub("//…@", text)
