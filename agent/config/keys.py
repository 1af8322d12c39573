"""A single setting: its value type, its help text, and when a project file needs trust to set it.

The functions `loosens_…` compare a key's new value with its current one. They return True if the
new value may give the agent more freedom or cost more. A project file needs the user's trust to set
such a value. Each key states its function, so that none is free by oversight.
"""

import json
import re
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

from ..errors import conceal
from ..lazy import regex
from .preservation import ALWAYS, COMPACTABLE, canonical_category

T = TypeVar("T")

ENV_PREFIX = "CTXAGENT_"
SCRIPTED = "scripted:"  # prefix of the ID of a scripted model, which replays a file of steps
PRESET = "preset"  # the value that stands for the preset's own value
MAX_WHOLE_NUMBER = 1_000_000_000
_PERCENT = regex(r"([0-9]+(?:\.[0-9]+)?) ?%")


class ValueType(NamedTuple):
    """The allowed values of a setting."""

    wanted: str  # description, for error messages
    read: Callable[[Any], Any]  # converts a TOML value; raises ValueError if it is invalid
    literal: Callable[[str], Any] = str  # converts the text of a variable or flag to a TOML value
    none: str = ""  # the word for None
    words: tuple[str, ...] = ()  # the allowed words of a value or its items, if limited to words


def text_matching(wanted: str, pattern: str, kind: Callable[[str], Any] = str) -> ValueType:
    expression = re.compile(pattern)

    def read(value: Any) -> Any:
        if not isinstance(value, str) or not expression.fullmatch(value):
            raise ValueError(value)
        return kind(value)

    return ValueType(wanted, read)


def whole_number(unit: str, least: int) -> ValueType:
    def read(value: Any) -> int:
        # isinstance would accept bool.
        if type(value) is not int or not least <= value <= MAX_WHOLE_NUMBER:
            raise ValueError(value)
        return value

    return ValueType(f"a whole number of {unit}, {least} to {MAX_WHOLE_NUMBER:_}", read, int)


def one_of(literal: Any) -> ValueType:
    """Return a type that allows the words of a `Literal` or a tuple."""
    names: tuple[str, ...] = literal if isinstance(literal, tuple) else get_args(literal)

    def read(value: Any) -> str:
        if value not in names:
            raise ValueError(value)
        return str(value)

    wanted = "one of " + ", ".join(f'"{name}"' for name in names)
    return ValueType(wanted, read, words=names)


def with_spelling(spell: Callable[[str], str], value_type: ValueType) -> ValueType:
    """Return a type that normalises text with `spell` before reading it."""

    def read(value: Any) -> Any:
        return value_type.read(spell(value) if isinstance(value, str) else value)

    return value_type._replace(read=read)


def list_of(item: ValueType) -> ValueType:
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

    return ValueType(f"a list, each item {item.wanted}", read, literal, words=item.words)


def list_including(item: str, value_type: ValueType) -> ValueType:
    """Return a list type whose values must include an item."""

    def read(value: Any) -> Any:
        items = value_type.read(value)
        if item not in items:
            raise ValueError(value)
        return items

    return value_type._replace(wanted=f'{value_type.wanted}, and "{item}" among them', read=read)


def _or_word(word: str, meaning: str | None, value_type: ValueType) -> ValueType:
    """Return a type that also accepts `word`, which is read as `meaning`."""

    def read(value: Any) -> Any:
        return meaning if value == word else value_type.read(value)

    def literal(text: str) -> Any:
        return word if text == word else value_type.literal(text)

    none = word if meaning is None else value_type.none
    return ValueType(f'{value_type.wanted}, or "{word}"', read, literal, none, value_type.words)


def or_none(word: str, value_type: ValueType) -> ValueType:
    """Return a type that also accepts `word`, which is read as None."""
    return _or_word(word, None, value_type)


def or_preset(value_type: ValueType) -> ValueType:
    """Return a type that also accepts "preset", which is read unchanged."""
    return _or_word(PRESET, PRESET, value_type)


def _read_switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _switch_literal(text: str) -> bool:
    word = text.lower()
    if word not in ("true", "1", "false", "0"):
        raise ValueError(text)
    return word in ("true", "1")


def _read_threshold(value: Any) -> int | float:
    """Return tokens as an int, or a share of the window as a float."""
    if isinstance(value, str) and (percent := _PERCENT.fullmatch(value)):
        value = float(percent[1]) / 100
    if type(value) is int and 1 < value <= MAX_WHOLE_NUMBER:
        return value
    if type(value) in (int, float) and 0 < value <= 1:
        return float(value)
    raise ValueError(value)


def _threshold_literal(text: str) -> str | int | float:
    if text.endswith("%"):
        return text
    try:
        return int(text)
    except ValueError:
        return float(text)


SWITCH = ValueType("true or false", _read_switch, _switch_literal)


def switch_or(value_type: ValueType) -> ValueType:
    """Return a type that also accepts true and false."""

    def read(value: Any) -> Any:
        return value if isinstance(value, bool) else value_type.read(value)

    def literal(text: str) -> Any:
        if text.lower() in ("true", "1", "false", "0"):
            return _switch_literal(text)
        return value_type.literal(text)

    return ValueType(f"true, false, or {value_type.wanted}", read, literal)


THRESHOLD = ValueType(
    'a share of the window such as 0.93 or "93%", or a number of tokens above 1',
    _read_threshold,
    _threshold_literal,
)


def _read_positive(value: Any) -> int | float:
    if type(value) not in (int, float) or not 0 < value <= MAX_WHOLE_NUMBER:
        raise ValueError(value)
    return value  # type: ignore[no-any-return]


def _number_literal(text: str) -> int | float:
    return int(text) if text.isdecimal() else float(text)


POSITIVE_NUMBER = ValueType("a number above 0", _read_positive, _number_literal)


def loosens_never(new: Any, current: Any) -> bool:
    return False


def loosens_if_different(new: Any, current: Any) -> bool:
    return bool(new != current)


def loosens_if_shorter(new: Any, current: Any) -> bool:
    return not set(current) <= set(new)


def loosens_if_longer(new: Any, current: Any) -> bool:
    return not set(new) <= set(current)


def loosens_if_larger(new: Any, current: Any) -> bool:
    return bool(new > current)


def loosens_if_turned(to: bool) -> Callable[[Any, Any], bool]:
    return lambda new, current: bool(new) is to and bool(current) is not to


def provider_in(model: Any) -> str:
    """Return the provider in a model ID, or "" for the default provider."""
    first, slash, _ = str(model).partition("/")
    return first if slash else ""


def loosens_if_later(strict_to_lax: Any) -> Callable[[Any, Any], bool]:
    """Return a function that returns True if the new word comes later in this `Literal` than the
    current one, or if one of them is another word and they differ.
    """
    words = get_args(strict_to_lax)

    def loosens(new: Any, current: Any) -> bool:
        if new in words and current in words:
            return bool(words.index(new) > words.index(current))
        return bool(new != current)

    return loosens


def _plain(value: Any) -> Any:
    """Return the value of an extension's setting. Raises ValueError for a table or a date."""
    if isinstance(value, list) and all(isinstance(each, str | int | float) for each in value):
        return tuple(value)
    if not isinstance(value, str | int | float):
        raise ValueError(value)
    return value


def _toml_value(text: str) -> Any:
    """Return the value of a TOML literal. Return text that is not valid TOML unchanged."""
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


PLAIN_VALUE = ValueType("text, a number, true, false or a list of these", _plain, _toml_value)


class Setting(NamedTuple):
    """The declaration of a setting, of ctxagent or of an extension."""

    default: Any
    help: str  # one or two sentences for the user
    value_type: ValueType = PLAIN_VALUE  # this one also asks for the type of the default
    loosens: Callable[[Any, Any], bool] = loosens_if_different  # given the new and current value
    adds: bool = False  # True if the lists of all layers are joined
    name: str = ""  # such as "compact.at"

    @property
    def wanted(self) -> str:
        """The description of the allowed values."""
        return f"a value like {self.default!r}" if self._is_typed else self.value_type.wanted

    def read(self, value: Any) -> Any:
        """Return the checked value for a TOML value. Raises ValueError if it is invalid."""
        found = self.value_type.read([*value] if isinstance(value, tuple) else value)
        if self._is_typed and type(found) is not type(self.default):
            raise ValueError(value)
        return found

    @property
    def _is_typed(self) -> bool:
        return self.value_type is PLAIN_VALUE and self.default is not None

    def may_loosen(self, new: Any) -> bool:
        """Return True if `new` is looser than at least one possible current value. A project file
        may then need trust to set it.
        """
        if self.loosens is loosens_if_different:
            return bool(new) or not self.adds
        words = self.value_type.words
        others = {tuple: (words, ()), bool: (True, False)}.get(type(new), words or (self.default,))
        return any(self.loosens(new, other) for other in others)

    @property
    def env(self) -> str:
        """The environment variable that sets this key."""
        return ENV_PREFIX + self.name.upper().replace(".", "_")


def setting(
    default: T,
    value_type: ValueType,
    help: str,
    *,
    adds: bool = False,
    loosens: Callable[[Any, Any], bool],
) -> T:
    """Return a dataclass field with its Setting. For the type checker, return the default."""
    key = Setting(default, help, value_type, loosens, adds)
    return field(default=default, metadata={"key": key})


def value_text(key: Setting, value: Any) -> str:
    """Return a key's value as written in a settings file, without credentials."""
    if value is None:
        value = key.value_type.none
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, tuple):
        return conceal(json.dumps(value, ensure_ascii=False, default=str))
    return conceal(json.dumps(str(value), ensure_ascii=False))


_VISIBLE = r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]"  # no control characters
_VISIBLE_TEXT = rf"(?!\s){_VISIBLE}+"
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"

MODEL_ID = text_matching("the id of a model", _VISIBLE_TEXT)
ADDRESS = text_matching("an http:// or https:// address", r"https?://[!-.0-~][!-~]*")
HOSTS = switch_or(
    list_of(text_matching('a name such as "pypi.org" or "*.npmjs.org"', r"[\w*.:-]+", str.lower))
)
FILE = text_matching("a file, absolute", rf"/{_VISIBLE}+", Path)
FOLDER = text_matching('a folder, absolute or below "~/"', rf"(?:/|~(?=/|$)){_VISIBLE}*", Path)
PROJECT_PATH = text_matching(
    "a path within the project", rf"(?![/~\s])(?!(?:.*/)?\.\.(?:/|$)){_VISIBLE}+"
)
VARIABLE_NAMES = list_of(text_matching("the name of a variable", _IDENTIFIER))
TOOL_NAME_LIST = list_of(text_matching("the name of a tool", _IDENTIFIER))
RULES = list_of(text_matching('a rule such as "Bash(git status:*)"', _VISIBLE_TEXT))
COMMAND = text_matching("a shell command on one line", rf"(?:{_VISIBLE_TEXT})?")
COMMANDS = list_of(text_matching("a shell command on one line", _VISIBLE_TEXT))
SENTENCES = list_of(text_matching("a text on one line", _VISIBLE_TEXT))
THRESHOLDS = list_of(THRESHOLD)
THRESHOLD_OR_OFF = or_none("off", THRESHOLD)
TOKENS = whole_number("tokens", 0)
GIGABYTES_OR_OFF = or_none("off", POSITIVE_NUMBER)
DAYS_OR_OFF = or_none("off", whole_number("days", 1))
SERVER_NAMES = list_of(text_matching("the name of an MCP server", r"[A-Za-z0-9_-]{1,64}"))
LANGUAGE_SERVERS = list_of(
    text_matching(
        'suffixes and a command, such as ".zig: zls"', rf"\.\S+(?: \.\S+)*: ?{_VISIBLE_TEXT}"
    )
)
SECONDS = whole_number("seconds", 1)
SECONDS_OR_AUTO = or_none("auto", whole_number("seconds", 0))
TOKENS_OR_AUTO = or_none("auto", whole_number("tokens", 1))
KEPT_CATEGORIES = list_of(with_spelling(canonical_category, one_of(ALWAYS)))
COMPACTABLE_CATEGORIES = list_including(
    "thinking_blocks", list_of(with_spelling(canonical_category, one_of(COMPACTABLE)))
)
