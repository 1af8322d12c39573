"""The variants of a task: the cells of its matrix, for example each model with each preset.

An axis maps names to values. A value of `model`, `preset` or `effort` is a value of that setting; a
value of `prompt` is a text with {prompt} in it; a value of any other axis is an object with
settings. A list is short for an axis whose values are their own names.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from ..lazy import dataclass, regex

Matrix = Mapping[str, Any]

MAX_CELLS, MAX_NAME_CHARS = 100, 100
PROMPT, PLACEHOLDER = "prompt", "{prompt}"
SETTINGS = {"model": "model.id", "preset": "compact.preset", "effort": "model.effort"}

_NAME = regex(r"(?!.*\.\.)[A-Za-z]([A-Za-z0-9._-]{0,30}[A-Za-z0-9])?")
_NAME_HINT = "a name has up to 32 letters, digits, dots, - and _, and begins with a letter"


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of each axis."""

    name: str = ""  # the names of the values, joined by dots
    settings: Mapping[str, Any] = field(default_factory=dict)
    template: str = PLACEHOLDER

    def prompt(self, prompt: str) -> str:
        """Return the prompt of a task in this cell."""
        return self.template.replace(PLACEHOLDER, prompt)


def find_cells(matrix: Matrix) -> Iterator[Cell]:
    """Yield the cells of a matrix, at least one. Raises ValueError for an invalid matrix."""
    axes = [list(_values(axis, values)) for axis, values in matrix.items()]
    seen = set[str]()
    for number, chosen in enumerate(itertools.product(*axes), 1):
        name = ".".join(value.name for value in chosen)
        if name in seen:
            raise ValueError(f"two cells of the matrix have the name {name}")
        if len(name) > MAX_NAME_CHARS:
            raise ValueError(f"the name {name} of a cell has more than {MAX_NAME_CHARS} characters")
        if number > MAX_CELLS:
            raise ValueError(f"the matrix has more than {MAX_CELLS} cells")
        seen.add(name)
        settings = {key: setting for value in chosen for key, setting in value.settings.items()}
        template = PLACEHOLDER
        for value in chosen:
            template = value.prompt(template)
        yield Cell(name, settings, template)


def _values(axis: str, values: Any) -> Iterator[Cell]:
    """Yield the values of an axis. Raises ValueError."""
    if isinstance(values, list) and all(isinstance(value, str) for value in values):
        names = [value.rpartition("/")[2] for value in values]
        if wrong := next((name for name in names if not _NAME.fullmatch(name)), ""):
            way = json.dumps({"good": wrong})
            raise ValueError(f"matrix.{axis}: {wrong!r} is not a valid name: write {way}")
        if len(set(names)) < len(names):
            raise ValueError(f"matrix.{axis} has duplicate names: give an object with names")
        values = dict(zip(names, values, strict=True))
    if not isinstance(values, dict) or not values:
        raise ValueError(f"matrix.{axis} must be an object of names and values, or a list")
    for name, value in values.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"matrix.{axis}: {name!r} is not a valid name: {_NAME_HINT}")
        if axis == PROMPT:
            if not isinstance(value, str) or PLACEHOLDER not in value:
                raise ValueError(f"matrix.{axis}.{name} must be a text with {PLACEHOLDER} in it")
            yield Cell(name, template=value)
        elif axis in SETTINGS:
            if not isinstance(value, str):
                raise ValueError(f"matrix.{axis}.{name} must be a text")
            yield Cell(name, {SETTINGS[axis]: value})
        elif isinstance(value, dict):
            yield Cell(name, value)
        else:
            raise ValueError(f"matrix.{axis}.{name} must be an object with settings")
