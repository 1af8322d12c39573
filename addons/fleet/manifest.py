"""The manifest of a fleet: a file with one task per line, each a JSON object.

All lines are checked before anything starts. Prompts stay in the file: memory has only the offset,
a digest and the scheduling fields of each task.

A line can expand to several tasks: the cells of its matrix, for example each model with each
preset. An axis maps names to values. A value of `model`, `preset` or `effort` is a value of that
setting; a value of `prompt` is a text with {prompt} in it; a value of any other axis is an object
with settings. A list is short for an axis whose values are their own names.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from ...api.base import UsageError, dataclass, regex
from ...api.settings import SCRIPTED
from ...api.text import as_sentences, count_of, cut_at_word
from .ledger import FleetFolder

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


MAX_PROMPT_BYTES = 100_000  # the prompt must fit in one command line argument
MAX_LINE_BYTES = 1 << 20
MAX_ERRORS, MAX_ERROR_CHARS = 20, 400  # listed errors of a manifest, characters of each
EXAMPLE = '{"id": "a", "dir": "repos/a", "prompt": "…"}'
NAME_HINT = "Use up to 64 letters, digits, dots, - and _, beginning with a letter or digit."

_WANTED = f"Example of a line: {EXAMPLE}"
_ID = regex(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DEFAULTS = "defaults"  # the only key of a first line with default values for all tasks
MAX_ATTEMPTS = 1_000
STEP_SECONDS = 600.0  # default time limit of a step
_STEP_KEYS = ("command", "time_limit", "sandbox")
_VARIABLE = regex(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class TaskStep:
    """A command from the manifest's author that runs after the agent of a task has ended."""

    command: str
    time_limit: float = STEP_SECONDS
    sandbox: bool = True

    @classmethod
    def of(cls, value: Any) -> "TaskStep | None":
        """Return the step for a value in a line: a command or an object."""
        if value is None:
            return None
        return cls(**value) if isinstance(value, dict) else cls(value)


@dataclass(frozen=True, slots=True)
class Task:
    """One line of a manifest, or one attempt in one cell of its matrix."""

    id: str
    prompt: str
    dir: str | None = None  # directory, relative to the manifest
    worktree: bool = True  # work in a git worktree of `dir`, or else in `dir` itself
    git: str | None = None  # URL or path of the repository to clone
    commit: str | None = None  # commit to check out
    image: str | None = None  # image of the container in which the agent runs
    settings: Mapping[str, Any] = field(default_factory=dict)
    budget_usd: float | None = None
    time_limit: float | None = None  # seconds
    cores: int = 1
    memory_mb: int = 0  # 0: not specified
    env: tuple[str, ...] = ()  # variables passed to the agent's commands and to the container
    score: TaskStep | None = None  # decides whether an attempt has passed
    after: TaskStep | None = None  # runs once, after an attempt has passed
    repeat: int | None = None  # number of attempts; None for a single unnumbered one
    matrix: Matrix = field(default_factory=dict)
    line: str = ""  # ID in the line
    cell: str = ""  # the name of the cell of the matrix
    variant: Mapping[str, Any] = field(default_factory=dict)  # the settings of the cell

    @property
    def has_own_model(self) -> bool:
        """True if the task's settings name a model or server, so that its failures may not affect
        other tasks.
        """
        return any(f"model.{name}" in self.settings for name in ("id", "base_url"))

    @property
    def server(self) -> str:
        """The task's own model and server as JSON; "" if it uses the shared ones."""
        names = ("model.id", "model.base_url")
        return json.dumps([self.settings.get(n) for n in names]) if self.has_own_model else ""

    @property
    def digest(self) -> str:
        """A digest of the task's identity: its prompt and its place. A change makes it a different
        task; limits and settings can change while it is unfinished.
        """
        about: list[Any] = [self.prompt, self.dir, self.worktree, self.git, self.commit, self.image]
        about += [dict(self.variant)] if self.variant else []
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class TaskLine:
    """The position of a task in its manifest, with the fields needed to schedule it."""

    id: str
    name: str  # ID in the line
    cell: str
    has_score: bool
    start: int
    size: int
    digest: str  # as Task.digest
    cores: int
    memory_mb: int
    budget_usd: float | None
    server: str = ""  # as Task.server


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def _is_prompt(value: Any) -> bool:
    size = len(value.encode("utf-8", "replace")) if _is_text(value) else 0
    return 0 < size <= MAX_PROMPT_BYTES and value != "-"


def _is_argument(value: Any) -> bool:
    """Return True for a text that a command cannot mistake for an option."""
    return _is_text(value) and not value.startswith("-")


def _is_amount(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < 1e9


def _are_variables(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, str) and _VARIABLE.fullmatch(each) for each in value
    )


def _is_step(value: Any) -> bool:
    if not isinstance(value, dict):
        return _is_text(value)
    return (
        _is_text(value.get("command"))
        and set(value) <= set(_STEP_KEYS)
        and _is_amount(value.get("time_limit", STEP_SECONDS))
        and isinstance(value.get("sandbox", True), bool)
    )


def _is_repeat(value: Any) -> bool:
    return type(value) is int and 0 < value <= MAX_ATTEMPTS


_STEP = (_is_step, f"a command, or an object with {', '.join(_STEP_KEYS)}")
_ARGUMENT = (_is_argument, "a text that is not blank and does not begin with -")
_AMOUNT = (_is_amount, "a number above 0")
_COUNT = (lambda value: type(value) is int and _is_amount(value), "a whole number above 0")
# For each key: a check of its value, and a description of valid values.
_KEYS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "id": (lambda value: _is_text(value) and _ID.fullmatch(value), f"a name. {NAME_HINT}"),
    "prompt": (_is_prompt, f"a text of at most {MAX_PROMPT_BYTES:,} bytes"),
    "dir": _ARGUMENT,
    "worktree": (lambda value: isinstance(value, bool), "true or false"),
    "git": _ARGUMENT,
    "commit": _ARGUMENT,
    "image": _ARGUMENT,
    "settings": (
        lambda value: isinstance(value, dict),
        "an object with names and values of settings",
    ),
    "budget_usd": _AMOUNT,
    "time_limit": _AMOUNT,
    "cores": _COUNT,
    "memory_mb": _COUNT,
    "env": (_are_variables, "a list of names of variables"),
    "score": _STEP,
    "after": _STEP,
    "repeat": (_is_repeat, f"a whole number from 1 to {MAX_ATTEMPTS:,}"),
    "matrix": (lambda value: isinstance(value, dict), "an object with axes and their values"),
}


def parse_task(line: bytes, defaults: Mapping[str, Any] | None = None) -> Task:
    """Return the task of a line, with missing keys from `defaults`. Raises ValueError with the
    reason.
    """
    found = _parse_object(line)
    _check_keys(found)
    if defaults:
        settings = {**defaults.get("settings", {}), **found.get("settings", {})}
        found = {**defaults, **found, "settings": settings}
    for name in ("id", "prompt"):
        if name not in found:
            raise ValueError(f"{name} is missing")
    found["env"] = tuple(found.get("env", ()))
    for name in ("score", "after"):
        found[name] = TaskStep.of(found.get(name))
    task = Task(**found, line=found["id"])
    if (task.dir is not None) + (task.git is not None) > 1:
        raise ValueError("give dir or git, not both")
    if task.dir is None and task.git is None and task.image is None:
        raise ValueError("no working directory: give dir, git or image")
    if task.commit is not None and task.git is None:
        raise ValueError("commit needs git")
    return task


def tasks_of(task: Task, attempts: int | None) -> Iterator[Task]:
    """Yield the tasks that a line expands to: each attempt in each cell of its matrix, with unique
    IDs. `attempts` applies if the line has no `repeat`. Raises ValueError.
    """
    count = task.repeat or attempts
    if count is None and not task.matrix:
        yield task
        return
    if not task.worktree and (task.matrix or (count or 1) > 1):
        raise ValueError('each attempt needs its own worktree: remove "worktree": false')
    for cell in find_cells(task.matrix):
        id = f"{task.id}@{cell.name}" if cell.name else task.id
        prompt = cell.prompt(task.prompt)
        if not _is_prompt(prompt):
            raise ValueError(f"the prompt of {id} must be {_KEYS['prompt'][1]}")
        settings = {**task.settings, **cell.settings}
        one = replace(
            task, id=id, prompt=prompt, cell=cell.name, variant=cell.settings, settings=settings
        )
        numbers = range(1, (count or 0) + 1)
        yield from (replace(one, id=f"{id}@{number}") for number in numbers) if count else (one,)


def _parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line. Raises ValueError."""
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON at column {error.colno}: {error.msg}. {_WANTED}") from None
    except (ValueError, RecursionError):
        raise ValueError(f"invalid JSON. {_WANTED}") from None
    if not isinstance(found, dict):
        raise ValueError(f"not a JSON object. {_WANTED}")
    return found


def _check_keys(found: Mapping[str, Any]) -> None:
    """Raise ValueError for an unknown key or an invalid value."""
    for name, value in found.items():
        if name not in _KEYS:
            raise ValueError(f"unknown key {name}; use {', '.join(_KEYS)}")
        is_right, wanted = _KEYS[name]
        if not is_right(value):
            raise ValueError(f"{name} must be {wanted}")


Check = Callable[["Manifest", Task], None]  # raises UsageError for a task that cannot be run
CheckSettings = Callable[[Mapping[str, Any]], None]  # raises UsageError for wrong settings


class Manifest:
    """The tasks of a file, in file order. Paths in the file are relative to its folder."""

    def __init__(
        self,
        path: Path,
        check: Check = lambda manifest, task: None,
        attempts: int | None = None,
        check_settings: CheckSettings = lambda settings: None,
    ) -> None:
        """Read and check the file. `check` raises UsageError for a task that cannot run, and
        `check_settings` for invalid default settings. `attempts` applies to lines without `repeat`;
        the default is the value of the last run. Raises UsageError that lists the invalid lines.
        """
        self.path, self.folder = path, path.absolute().parent
        self.attempts = attempts or FleetFolder.of(path).attempts
        self.lines: dict[str, TaskLine] = {}
        self._defaults: dict[str, Any] = {}
        wrong = list[UsageError]()
        try:
            for number, start, line in _lines(path):
                try:
                    self._add(start, line, check, check_settings)
                    continue
                except ValueError as error:
                    wrong.append(UsageError(f"{path}:{number}: {error}"))
                except UsageError as error:
                    wrong.append(UsageError(f"{path}:{number}: {error.message}", hint=error.hint))
                if not self.lines and b'"defaults"' in line:
                    break  # each line below would have the same error
        except OSError as error:
            hint = "Give a file with one task per line; `ctxagent guide fleet` shows an example."
            raise UsageError(f"cannot read {path}: {error.strerror}", hint=hint) from None
        if wrong:
            raise _all_of(wrong)
        if not self.lines:
            hint = f"Write one per line: {EXAMPLE}"
            raise UsageError(f"{path} has no task", hint=hint)

    def _add(self, start: int, line: bytes, check: Check, check_settings: CheckSettings) -> None:
        """Add the tasks of a line. Raises ValueError, and errors from the checks."""
        if not self.lines and _DEFAULTS in (found := _parse_object(line)):
            self._defaults = _checked_defaults(found)
            check_settings(self._defaults.get("settings", {}))
            return
        for task in self._parse(line):
            if task.id in self.lines:
                raise ValueError(f"another line has the id {task.id}")
            self.lines[task.id] = TaskLine(
                id=task.id,
                name=task.line,
                cell=task.cell,
                has_score=task.score is not None,
                start=start,
                size=len(line),
                digest=task.digest,
                cores=task.cores,
                memory_mb=task.memory_mb,
                budget_usd=task.budget_usd,
                server=task.server,
            )
            check(self, task)

    def _parse(self, line: bytes) -> Iterator[Task]:
        """Yield the tasks of a line. Raises ValueError."""
        for task in tasks_of(parse_task(line, self._defaults), self.attempts):
            model = task.settings.get("model.id")
            if isinstance(model, str):
                whole = absolute_model(model, self.folder)
                yield replace(task, settings={**task.settings, "model.id": whole})
            else:
                yield task

    def directory(self, task: Task) -> Path | None:
        """Return the directory of a task, or None if it has none."""
        return None if task.dir is None else self.folder / task.dir

    def source(self, task: Task) -> str | None:
        """Return the URL or path of the repository to clone for a task, or None. The value is a
        path if that path exists.
        """
        if task.git is None or not (path := self.folder / task.git).exists():
            return task.git
        return str(path)

    def task(self, id: str) -> Task:
        """Read a task from the file again. Raises UsageError if the line has changed."""
        known = self.lines[id]
        try:
            with self.path.open("rb") as file:
                file.seek(known.start)
                line = file.read(known.size)
            for task in self._parse(line):
                if (task.id, task.digest) == (id, known.digest):
                    return task
        except (OSError, ValueError):
            pass
        hint = "Run the fleet again; no result is lost. During a run, only append lines."
        raise UsageError(f"the line of {id} in {self.path} has changed", hint=hint)


def _checked_defaults(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults in the first line. Raises ValueError."""
    defaults = found[_DEFAULTS]
    if len(found) > 1 or not isinstance(defaults, dict) or "id" in defaults:
        raise ValueError('"defaults" must be an object without id, and the only key of its line')
    _check_keys(defaults)
    list(find_cells(defaults.get("matrix", {})))
    return defaults


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield (number, offset, line) for each line that is not blank. Raises OSError, and UsageError
    for a line that is too long.
    """
    start = 0
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), 1):
            if len(line) > MAX_LINE_BYTES:
                raise UsageError(f"{path}:{number}: more than {MAX_LINE_BYTES:,} bytes")
            if line.strip():
                yield number, start, line
            start += len(line)


def absolute_model(id: str, folder: Path) -> str:
    """Return a model ID; a relative path of a script is made absolute, because each agent starts in
    a different folder.
    """
    if not id.startswith(SCRIPTED):
        return id
    return f"{SCRIPTED}{folder / id.removeprefix(SCRIPTED)}"


def _all_of(errors: Sequence[UsageError]) -> UsageError:
    """Return one error that lists several errors."""
    if len(errors) == 1:
        return errors[0]
    lines = [f"{count_of(len(errors), 'line')} cannot be run:"]
    texts = (as_sentences(str(error)) for error in errors[:MAX_ERRORS])
    lines += [cut_at_word(text, MAX_ERROR_CHARS) for text in texts]
    if len(errors) > MAX_ERRORS:
        lines.append(f"and {len(errors) - MAX_ERRORS:,} more")
    return UsageError("\n".join(lines))
