"""The manifest of a fleet: a file with one task a line, each a JSON object.

All lines are checked before anything starts. What is kept of a task in memory is where its line
stands and a digest of it, so that the prompts of ten thousand tasks do not have to fit. A line may
stand for several tasks (`variants.py`).
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from ...tools.system.plural import count_of
from ...tools.system.shorten import as_sentences, cut_at_word
from ..config.keys import SCRIPTED
from ..errors import UsageError
from ..lazy import dataclass, regex
from .ledger import FleetFolder
from .variants import Matrix, find_cells

MAX_PROMPT_BYTES = 100_000  # that one argument of a command line can have
MAX_LINE_BYTES = 1 << 20
MAX_ERRORS, MAX_ERROR_CHARS = 20, 400  # of a manifest that are named
EXAMPLE = '{"id": "a", "dir": "repos/a", "prompt": "…"}'
NAME_HINT = "Use up to 64 letters, digits, dots, - and _, beginning with a letter or digit."

_WANTED = f"A line is such as {EXAMPLE}"
_ID = regex(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DEFAULTS = "defaults"  # the only key of the first line, if it has keys for all tasks
MAX_ATTEMPTS = 1_000
STEP_SECONDS = 600.0  # that a step may take where nothing is said
_STEP_KEYS = ("command", "time_limit", "sandbox")
_VARIABLE = regex(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class TaskStep:
    """A command of the manifest's author that is run when the agent of a task has ended."""

    command: str
    time_limit: float = STEP_SECONDS
    sandbox: bool = True

    @classmethod
    def of(cls, value: Any) -> "TaskStep | None":
        """Return the step that a line gives as a command or as an object."""
        if value is None:
            return None
        return cls(**value) if isinstance(value, dict) else cls(value)


@dataclass(frozen=True, slots=True)
class Task:
    """One line of a manifest, or one attempt in one cell of its matrix."""

    id: str
    prompt: str
    dir: str | None = None  # a directory; relative to the manifest
    worktree: bool = True  # whether the task has a git worktree of it, or works in it itself
    git: str | None = None  # the URL or path of a repository, of which the task has a clone
    commit: str | None = None  # that is checked out
    image: str | None = None  # of a container in which the agent runs
    settings: Mapping[str, Any] = field(default_factory=dict)
    budget_usd: float | None = None
    time_limit: float | None = None  # seconds
    cores: int = 1
    memory_mb: int = 0  # 0: not said
    env: tuple[str, ...] = ()  # names of variables that the agent's commands get, and a container
    score: TaskStep | None = None  # says whether an attempt has passed
    after: TaskStep | None = None  # run once, when an attempt has passed
    repeat: int | None = None  # attempts, None for one that has no number
    matrix: Matrix = field(default_factory=dict)
    line: str = ""  # the id that the line gives
    cell: str = ""  # the name of the cell of the matrix
    variant: Mapping[str, Any] = field(default_factory=dict)  # the settings of the cell

    @property
    def has_own_model(self) -> bool:
        """Whether its settings name a model or a server, which others need not have."""
        return any(f"model.{name}" in self.settings for name in ("id", "base_url"))

    @property
    def server(self) -> str:
        """The model and the server of its own; "" where it uses those of all tasks."""
        names = ("model.id", "model.base_url")
        return json.dumps([self.settings.get(n) for n in names]) if self.has_own_model else ""

    @property
    def digest(self) -> str:
        """A digest of what the task is about: its prompt and its place. Another one makes it
        another task, while limits and settings may change in the middle of it."""
        about: list[Any] = [self.prompt, self.dir, self.worktree, self.git, self.commit, self.image]
        about += [dict(self.variant)] if self.variant else []
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class TaskLine:
    """Where a task stands in its manifest."""

    id: str
    name: str  # the id that the line gives
    cell: str
    has_score: bool
    start: int
    size: int
    digest: str  # of what it is about: its prompt and its place
    cores: int
    memory_mb: int
    budget_usd: float | None
    server: str = ""  # the model and the server of its own


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def _is_prompt(value: Any) -> bool:
    size = len(value.encode("utf-8", "replace")) if _is_text(value) else 0
    return 0 < size <= MAX_PROMPT_BYTES and value != "-"


def _is_argument(value: Any) -> bool:
    """Return True for a text that no command takes for an option of it."""
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
# By its key, whether a value is right, and what it is to be.
_KEYS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "id": (lambda value: _is_text(value) and _ID.fullmatch(value), f"a name. {NAME_HINT}"),
    "prompt": (_is_prompt, f"a text of at most {MAX_PROMPT_BYTES:,} bytes"),
    "dir": _ARGUMENT,
    "worktree": (lambda value: isinstance(value, bool), "true or false"),
    "git": _ARGUMENT,
    "commit": _ARGUMENT,
    "image": _ARGUMENT,
    "settings": (lambda value: isinstance(value, dict), "an object with settings by their names"),
    "budget_usd": _AMOUNT,
    "time_limit": _AMOUNT,
    "cores": _COUNT,
    "memory_mb": _COUNT,
    "env": (_are_variables, "a list of names of variables"),
    "score": _STEP,
    "after": _STEP,
    "repeat": (_is_repeat, f"a whole number from 1 to {MAX_ATTEMPTS:,}"),
    "matrix": (lambda value: isinstance(value, dict), "an object with values by their axes"),
}


def parse_task(line: bytes, defaults: Mapping[str, Any] | None = None) -> Task:
    """Return the task of a line, with what `defaults` say where the line does not. Raises
    ValueError, saying what is wrong with it."""
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
        raise ValueError("dir and git are two places")
    if task.dir is None and task.git is None and task.image is None:
        raise ValueError("no place: give dir, git or image")
    if task.commit is not None and task.git is None:
        raise ValueError("commit needs git")
    return task


def tasks_of(task: Task, attempts: int | None) -> Iterator[Task]:
    """Yield the tasks that a line stands for: each attempt in each cell of its matrix, with names
    of their own. `attempts` are those of lines that say none. Raises ValueError."""
    count = task.repeat or attempts
    if count is None and not task.matrix:
        yield task
        return
    if not task.worktree and (task.matrix or (count or 1) > 1):
        raise ValueError('attempts need places of their own: leave "worktree": false out')
    for cell in find_cells(task.matrix):
        id = f"{task.id}@{cell.name}" if cell.name else task.id
        prompt = cell.prompt(task.prompt)
        if not _is_prompt(prompt):
            raise ValueError(f"the prompt of {id} is to be {_KEYS['prompt'][1]}")
        settings = {**task.settings, **cell.settings}
        one = replace(
            task, id=id, prompt=prompt, cell=cell.name, variant=cell.settings, settings=settings
        )
        numbers = range(1, (count or 0) + 1)
        yield from (replace(one, id=f"{id}@{number}") for number in numbers) if count else (one,)


def _parse_object(line: bytes) -> dict[str, Any]:
    """Return the object of a line. Raises ValueError."""
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON at column {error.colno}: {error.msg}. {_WANTED}") from None
    except (ValueError, RecursionError):
        raise ValueError(f"no JSON that can be read. {_WANTED}") from None
    if not isinstance(found, dict):
        raise ValueError(f"no JSON object. {_WANTED}")
    return found


def _check_keys(found: Mapping[str, Any]) -> None:
    """Raise ValueError for a key that there is not, and for a wrong value."""
    for name, value in found.items():
        if name not in _KEYS:
            raise ValueError(f"{name} is no key of a task; they are {', '.join(_KEYS)}")
        is_right, wanted = _KEYS[name]
        if not is_right(value):
            raise ValueError(f"{name} is to be {wanted}")


Check = Callable[["Manifest", Task], None]  # raises UsageError for a task that cannot be run
CheckSettings = Callable[[Mapping[str, Any]], None]  # raises UsageError for wrong settings


class Manifest:
    """The tasks of a file, in their order. What they name in the file system is relative to the
    folder of the file."""

    def __init__(
        self,
        path: Path,
        check: Check = lambda manifest, task: None,
        attempts: int | None = None,
        check_settings: CheckSettings = lambda settings: None,
    ) -> None:
        """Read and check the file; `check` raises UsageError for a task that cannot be run,
        and `check_settings` for settings of the defaults.
        `attempts` are those of each task whose line says none, by default those of the last run.
        Raises UsageError that names the lines that are wrong."""
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
            hint = "Give a file with one task a line: `ctxagent guide fleet` shows one."
            raise UsageError(f"cannot read {path}: {error.strerror}", hint=hint) from None
        if wrong:
            raise _all_of(wrong)
        if not self.lines:
            hint = f"Write one a line: {EXAMPLE}"
            raise UsageError(f"{path} has no task", hint=hint)

    def _add(self, start: int, line: bytes, check: Check, check_settings: CheckSettings) -> None:
        """Add the tasks of a line. Raises ValueError, and what the checks raise."""
        if not self.lines and _DEFAULTS in (found := _parse_object(line)):
            self._defaults = _checked_defaults(found)
            check_settings(self._defaults.get("settings", {}))
            return
        for task in self._parse(line):
            if task.id in self.lines:
                raise ValueError(f"the id {task.id} is that of another line")
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
        """Return the directory that a task names, None where it names none."""
        return None if task.dir is None else self.folder / task.dir

    def source(self, task: Task) -> str | None:
        """Return the URL or the path of the repository that a task has a clone of, None for none.
        What is there as a path is one."""
        if task.git is None or not (path := self.folder / task.git).exists():
            return task.git
        return str(path)

    def task(self, id: str) -> Task:
        """Read a task again. Raises UsageError where the file has changed meanwhile."""
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
        hint = "Nothing is lost: run it again. While it runs, lines may only be added."
        raise UsageError(f"{self.path} was changed where {id} stood", hint=hint)


def _checked_defaults(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the first line says for all tasks. Raises ValueError."""
    defaults = found[_DEFAULTS]
    if len(found) > 1 or not isinstance(defaults, dict) or "id" in defaults:
        raise ValueError('a line with "defaults" has an object there and no more, without id')
    _check_keys(defaults)
    list(find_cells(defaults.get("matrix", {})))
    return defaults


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield the lines that are not blank, with their numbers and where they start. Raises OSError,
    and UsageError for a line that is too long."""
    start = 0
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), 1):
            if len(line) > MAX_LINE_BYTES:
                raise UsageError(f"{path}:{number}: more than {MAX_LINE_BYTES:,} bytes")
            if line.strip():
                yield number, start, line
            start += len(line)


def absolute_model(id: str, folder: Path) -> str:
    """Return the id of a model, with the path of a script that is relative to a folder made whole:
    each agent starts in a folder of its own."""
    if not id.startswith(SCRIPTED):
        return id
    return f"{SCRIPTED}{folder / id.removeprefix(SCRIPTED)}"


def _all_of(errors: Sequence[UsageError]) -> UsageError:
    """Return one error that describes several."""
    if len(errors) == 1:
        return errors[0]
    lines = [f"{count_of(len(errors), 'line')} cannot be run:"]
    texts = (as_sentences(str(error)) for error in errors[:MAX_ERRORS])
    lines += [cut_at_word(text, MAX_ERROR_CHARS) for text in texts]
    if len(errors) > MAX_ERRORS:
        lines.append(f"and {len(errors) - MAX_ERRORS:,} more")
    return UsageError("\n".join(lines))
