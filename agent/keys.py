"""What one setting is: its shape, what it does, and when a project file needs trust to set it."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from .errors import conceal
from .shapes import Shape

ENV_PREFIX = "CTXAGENT_"


def never(new: Any, current: Any) -> bool:
    return False


def differs(new: Any, current: Any) -> bool:
    return bool(new != current)


def fewer(new: Any, current: Any) -> bool:
    """Whether a list lacks what is on it now."""
    return not set(current) <= set(new)


def more(new: Any, current: Any) -> bool:
    """Whether a list has what is not on it now."""
    return not set(new) <= set(current)


def off(new: Any, current: Any) -> bool:
    """Whether a switch that is on is turned off."""
    return bool(current and not new)


def on(new: Any, current: Any) -> bool:
    """Whether a switch that is off is turned on."""
    return bool(new and not current)


class Key(NamedTuple):
    """One setting. `adds` marks lists that add up over the layers instead of replacing.
    `loosens(new, current)` tells whether a project file needs the person's trust to set `new`.
    `alias` is a variable with a name of its own that counts as this key's. `name` and `default`
    come from the field."""

    shape: Shape
    help: str
    adds: bool = False
    loosens: Callable[[Any, Any], bool] = never
    alias: str = ""
    name: str = ""
    default: Any = None

    def may_loosen(self, new: Any) -> bool:
        """Whether a project file needs trust to set `new`, whatever else the key is set to."""
        if self.loosens is differs:
            return bool(new) or not self.adds
        words = self.shape.words
        others = {tuple: (words, ()), bool: (True, False)}.get(type(new), words or (self.default,))
        return any(self.loosens(new, other) for other in others)

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper().replace(".", "_")


def show(key: Key, value: Any) -> str:
    """A key's value as it would stand in a settings file, without credentials."""
    if value is None:
        value = key.shape.none
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, tuple):
        return conceal(json.dumps(value, ensure_ascii=False, default=str))
    return conceal(json.dumps(str(value), ensure_ascii=False))
