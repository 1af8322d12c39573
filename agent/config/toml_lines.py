"""TOML with line numbers. The standard parser reads and checks the document; then a scan of its
tokens finds the line of each key.
"""

import re
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..lazy import regex

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
        raise ConfigError("not a settings file: nested too deeply", where=f"{path}:1") from None


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
