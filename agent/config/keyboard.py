"""The terminal keys that settings can change, by action.

A key is written as `ctrl-o`, `alt-x`, `alt-enter`, `shift-tab` or `f5`, or as a sequence of two
keys: `ctrl-x ctrl-e`. Ctrl-C, Ctrl-D, Ctrl-Z, Tab and the arrow keys are fixed.
"""

from collections.abc import Mapping
from dataclasses import fields
from itertools import combinations
from string import ascii_lowercase, digits
from typing import Any

from ..errors import ConfigError
from ..lazy import dataclass
from .keys import ValueType, loosens_if_different, setting

SECTION = "keys"
ENTER, ALT_ENTER, CTRL_J, ESC = "enter", "alt-enter", "ctrl-j", "esc"
_OTHER_SPELLINGS = {"escape": ESC, "return": ENTER, "option": "alt", "meta": "alt"}
# Letters with Ctrl. C, D and Z are fixed; Backspace, Tab and Enter send H, I, J and M.
_CTRL = [f"ctrl-{letter}" for letter in ascii_lowercase if letter not in "cdhijmz"]
_SINGLE = frozenset(
    [
        *_CTRL,
        *(f"ctrl-{sign}" for sign in ("space", "\\", "]", "^")),
        *(f"alt-{letter}" for letter in ascii_lowercase + digits),
        *(f"f{number}" for number in range(1, 13)),
        "shift-tab",
    ]
)
_SECOND = frozenset([*_CTRL, *ascii_lowercase, *digits])  # after a first key with Ctrl


def _key(*more: str) -> ValueType:
    """Return the type of a key. The keys in `more` are allowed too."""

    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(value)
        key = _canonical(value)
        first, _, second = key.partition(" ")
        if not (key in _SINGLE or key in more or (first in _CTRL and second in _SECOND)):
            raise ValueError(value)
        return key

    examples = [*more, "ctrl-o", "alt-x", "shift-tab", "f5"]
    wanted = f'a key such as {", ".join(map(_quoted, examples))} or "ctrl-x ctrl-e"'
    fixed = "Ctrl-C, Ctrl-D or Ctrl-Z, nor Ctrl-H, Ctrl-I or Ctrl-M (Backspace, Tab and Enter)"
    return ValueType(f"{wanted}, but not {fixed}", read)


def _quoted(key: str) -> str:
    return f'"{key}"'


def _canonical(text: str) -> str:
    """Return a key in the spelling of the settings: `Ctrl+O` becomes `ctrl-o`."""
    keys = (key.replace("+", "-").split("-") for key in text.lower().split())
    return " ".join("-".join(_OTHER_SPELLINGS.get(part, part) for part in key) for key in keys)


_KEY = _key()
_TYPING_KEY = _key(ENTER, ALT_ENTER, CTRL_J)
_STOP_KEY = _key(ESC)


def _bound(default: str, help: str, kind: ValueType = _KEY) -> str:
    return setting(default, kind, help, loosens=loosens_if_different)


@dataclass(frozen=True, slots=True)
class KeyboardSettings:
    """[keys]"""

    send: str = _bound(ENTER, "The key that sends the message.", _TYPING_KEY)
    send_other: str = _bound(
        ALT_ENTER,
        "New line. During a turn: send at the other time (ui.enter_while_working).",
        _TYPING_KEY,
    )
    newline: str = _bound(CTRL_J, "New line, also during a turn.", _TYPING_KEY)
    interrupt: str = _bound(ESC, "Interrupt the current work, like Ctrl-C.", _STOP_KEY)
    background: str = _bound("ctrl-b", "Send the running command or subagent to the background.")
    unfold: str = _bound("ctrl-o", "Show the newest folded result in full.")
    cycle_mode: str = _bound("shift-tab", "Switch to the next permission mode.")
    editor: str = _bound("ctrl-x ctrl-e", "Continue the message in your editor.")
    history_search: str = _bound("ctrl-r", "Search your earlier messages.")
    paste_image: str = _bound("ctrl-v", "Attach the image in the clipboard.")
    redraw: str = _bound("ctrl-l", "Redraw the bottom of the screen.")


DEFAULT_KEYS = KeyboardSettings()


def key_name(key: str) -> str:
    """Return a key in display form: `Ctrl-O`."""
    return " ".join(
        "-".join(part.capitalize() for part in each.split("-")) for each in key.split(" ")
    )


def check_keys(keys: KeyboardSettings, origins: Mapping[str, str]) -> None:
    """Raise ConfigError if two actions have the same key, or if one key is the start of another."""
    named = ((f"{SECTION}.{each.name}", getattr(keys, each.name)) for each in fields(keys))
    for (first, one), (second, other) in combinations(named, 2):
        if f"{one} ".startswith(f"{other} ") or f"{other} ".startswith(f"{one} "):
            given, taken = (first, second) if origins[second] == "default" else (second, first)
            if given == second:
                one, other = other, one
            raise ConfigError(
                f'{given} is "{one}", but {taken} is "{other}" ({origins[taken]})',
                where=origins[given],
                hint="Give one of them another key.",
            )
