"""The manifest of a fleet: a file with one task per line, each a JSON object.

All lines are checked before anything starts, and all mistakes of all lines are collected. Prompts
stay in the file: memory has only the offset, a digest and the scheduling fields of each task.

A line can expand to several tasks: the cells of its matrix, for example each model with each
preset. An axis maps names to values. A value of `model`, `preset` or `effort` is a value of that
setting; a value of `prompt` is a text with {prompt} in it; a value of any other axis is an object
with settings. A list is short for an axis whose values are their own names.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

from ...api.base import UsageError, dataclass, regex
from ...api.settings import SCRIPTED
from ...api.text import count_of, cut_at_word
from .findings import ManifestFindings, Wrong
from .ledger import FleetFolder

Matrix = Mapping[str, Any]
Mistake = tuple[str, str]  # what is wrong, the right form

MAX_CELLS, MAX_NAME_CHARS = 100, 100
PROMPT, PLACEHOLDER = "prompt", "{prompt}"
SETTINGS = {"model": "model.id", "preset": "compact.preset", "effort": "model.effort"}

_NAME = regex(r"(?!.*\.\.)[A-Za-z]([A-Za-z0-9._-]{0,30}[A-Za-z0-9])?")
_NAME_HINT = "A name has up to 32 letters, digits, dots, - and _, and begins with a letter."
_MATRIX = {"preset": ["default", "lean"]}


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
    """Yield the cells of a matrix, at least one. Raises Wrong with all mistakes in the axes."""
    axes, mistakes = list[list[Cell]](), list[tuple[str, str]]()
    for axis, values in matrix.items():
        try:
            axes.append(list(_values(axis, values)))
        except Wrong as wrong:
            mistakes += wrong.mistakes
    if mistakes:
        raise Wrong(*mistakes)
    seen = set[str]()
    for number, chosen in enumerate(itertools.product(*axes), 1):
        name = ".".join(value.name for value in chosen)
        if name in seen:
            raise Wrong((f"two cells of the matrix have the name {name}", "Rename a value."))
        if len(name) > MAX_NAME_CHARS:
            why = f"the name {name} of a cell has more than {MAX_NAME_CHARS} characters"
            raise Wrong((why, "Give its values shorter names."))
        if number > MAX_CELLS:
            why = f"the matrix has more than {MAX_CELLS} cells"
            raise Wrong((why, "Split it into several manifests."))
        seen.add(name)
        settings = {key: setting for value in chosen for key, setting in value.settings.items()}
        template = PLACEHOLDER
        for value in chosen:
            template = value.prompt(template)
        yield Cell(name, settings, template)


def _values(axis: str, values: Any) -> Iterator[Cell]:
    """Yield the values of an axis. Raises Wrong."""
    if isinstance(values, list) and all(isinstance(value, str) for value in values):
        names = [value.rpartition("/")[2] for value in values]
        if wrong := next((name for name in names if not _NAME.fullmatch(name)), ""):
            way = json.dumps({"good": wrong})
            raise Wrong((f"matrix.{axis}: {wrong!r} is not a valid name", f"Write {way}."))
        if len(set(names)) < len(names):
            right = json.dumps({f"{name}-{number}": value for number, (name, value) in
                                enumerate(zip(names, values, strict=True), 1)})  # fmt: skip
            raise Wrong((f"matrix.{axis} has duplicate names", f"Write {right}."))
        values = dict(zip(names, values, strict=True))
    if not isinstance(values, dict) or not values:
        why = f"matrix.{axis} must be an object of names and values, or a list"
        raise Wrong((why, _written("matrix", _MATRIX)))
    for name, value in values.items():
        if not _NAME.fullmatch(name):
            raise Wrong((f"matrix.{axis}: {name!r} is not a valid name", _NAME_HINT))
        if axis == PROMPT:
            if not isinstance(value, str) or PLACEHOLDER not in value:
                why = f"matrix.{axis}.{name} must be a text with {PLACEHOLDER} in it"
                raise Wrong((why, _written(name, f"{PLACEHOLDER} Write tests first.")))
            yield Cell(name, template=value)
        elif axis in SETTINGS:
            if not isinstance(value, str):
                raise Wrong((f"matrix.{axis}.{name} must be a text", _written(name, str(value))))
            yield Cell(name, {SETTINGS[axis]: value})
        elif isinstance(value, dict):
            yield Cell(name, value)
        else:
            why = f"matrix.{axis}.{name} must be an object with settings"
            raise Wrong((why, _written(name, {"clear.keep": 2})))


MAX_PROMPT_BYTES = 100_000  # the prompt must fit in one command line argument
MAX_LINE_BYTES = 1 << 20
MAX_SHOWN_CHARS = 200  # of a corrected line in an error
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
# For each key: a check of its value, a description of valid values, and an example.
_KEYS: dict[str, tuple[Callable[[Any], Any], str, Any]] = {
    "id": (lambda value: _is_text(value) and _ID.fullmatch(value), f"a name. {NAME_HINT}", "t-1"),
    "prompt": (_is_prompt, f"a text of at most {MAX_PROMPT_BYTES:,} bytes", "Fix the parser."),
    "dir": (*_ARGUMENT, "repos/a"),
    "worktree": (lambda value: isinstance(value, bool), "true or false", False),
    "git": (*_ARGUMENT, "https://example.com/a.git"),
    "commit": (*_ARGUMENT, "main"),
    "image": (*_ARGUMENT, "python:3.13"),
    "settings": (
        lambda value: isinstance(value, dict),
        "an object with names and values of settings",
        {"model.effort": "low"},
    ),
    "budget_usd": (*_AMOUNT, 0.5),
    "time_limit": (*_AMOUNT, 600),
    "cores": (*_COUNT, 2),
    "memory_mb": (*_COUNT, 2_048),
    "env": (_are_variables, "a list of names of variables", ["DATABASE_URL"]),
    "score": (*_STEP, "make test"),
    "after": (*_STEP, "git push"),
    "repeat": (_is_repeat, f"a whole number from 1 to {MAX_ATTEMPTS:,}", 5),
    "matrix": (
        lambda value: isinstance(value, dict), "an object with axes and their values", _MATRIX
    ),
}  # fmt: skip


def _written(name: str, value: Any) -> str:
    """Return the right form of a key."""
    return f"Write {json.dumps({name: value}, ensure_ascii=False)[1:-1]}."


def _right_form(name: str, value: Any) -> str:
    """Return a key with a valid value: the value in another type if that is valid, or an
    example.
    """
    is_right, _, example = _KEYS[name]
    values: list[Any] = [value.strip().lower(), [value]] if isinstance(value, str) else []
    with suppress(ValueError, AttributeError):
        values.insert(0, json.loads(value.lower()))
    return _written(name, next((each for each in values if is_right(each)), example))


def _mistakes_in_keys(found: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield (key, (what is wrong, the right form)) for unknown keys and invalid values."""
    for name, value in found.items():
        if name == _DEFAULTS:
            yield name, ("defaults must be on the first line", "Move it there, on its own line.")
        elif name not in _KEYS:
            near = get_close_matches(name, _KEYS, 1)
            right = f"Did you mean {near[0]}?" if near else f"Use {', '.join(_KEYS)}."
            yield name, (f"unknown key {name}", right)
        elif not _KEYS[name][0](value):
            yield name, (f"{name} must be {_KEYS[name][1]}", _right_form(name, value))


def _mistakes_in_place(names: Collection[str], found: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield the mistakes in the combination of keys."""
    if "dir" in names and "git" in names:
        yield "give dir or git, not both", "git clones the repository; dir makes a worktree of it."
    elif not {"dir", "git", "image"} & set(names):
        yield "no working directory: give dir, git or image", _written("dir", "repos/a")
    elif "commit" in names and "git" not in names:
        right = {"git": found.get("dir", "repos/a"), "commit": found.get("commit", "main")}
        yield "commit needs git", f"Write {json.dumps(right)[1:-1]} without dir."


def read_line(
    found: dict[str, Any], defaults: Mapping[str, Any], names: Collection[str] = ()
) -> tuple[Task, list[Mistake]]:
    """Return the task of a line, with missing keys from `defaults`, and all mistakes. Invalid keys
    are left out of the task. `names` are all keys of the defaults, also invalid ones.
    """
    wrong = list(_mistakes_in_keys(found))
    mistakes = [mistake for _, mistake in wrong]
    present = {**dict.fromkeys([*names, *defaults]), **found}
    for name in () if _DEFAULTS in found else ("id", "prompt"):
        if name not in present:
            mistakes.append((f"{name} is missing", _written(name, _KEYS[name][2])))
    mistakes += () if _DEFAULTS in found else _mistakes_in_place(present, {**defaults, **found})
    valid = {name: value for name, value in found.items() if name not in dict(wrong)}
    settings = {**defaults.get("settings", {}), **valid.get("settings", {})}
    valid = {"id": "", "prompt": "", **defaults, **valid, "settings": settings}
    valid["env"] = tuple(valid.get("env", ()))
    for name in ("score", "after"):
        valid[name] = TaskStep.of(valid.get(name))
    return Task(**valid, line=valid["id"]), mistakes


def tasks_of(task: Task, attempts: int | None) -> Iterator[Task]:
    """Yield the tasks that a line expands to: each attempt in each cell of its matrix, with unique
    IDs. `attempts` applies if the line has no `repeat`. Raises Wrong.
    """
    count = task.repeat or attempts
    if count is None and not task.matrix:
        yield task
        return
    if not task.worktree and (task.matrix or (count or 1) > 1):
        raise Wrong(("each attempt needs its own worktree", 'Remove "worktree": false.'))
    for cell in find_cells(task.matrix):
        id = f"{task.id}@{cell.name}" if cell.name else task.id
        prompt = cell.prompt(task.prompt)
        if task.prompt and not _is_prompt(prompt):
            why = f"the prompt of {id} must be {_KEYS['prompt'][1]}"
            raise Wrong((why, "Make it shorter, or name a file: @notes.md."))
        settings = {**task.settings, **cell.settings}
        one = replace(
            task, id=id, prompt=prompt, cell=cell.name, variant=cell.settings, settings=settings
        )
        numbers = range(1, (count or 0) + 1)
        yield from (replace(one, id=f"{id}@{number}") for number in numbers) if count else (one,)


def _parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line. Raises Wrong."""
    try:
        found = json.loads(line.rstrip())
    except json.JSONDecodeError as error:
        why = f"invalid JSON at column {error.colno}: {error.msg}"
        raise Wrong((why, _WANTED)) from None
    except (ValueError, RecursionError):
        raise Wrong(("invalid JSON", _WANTED)) from None
    if not isinstance(found, dict):
        raise Wrong(("not a JSON object", _WANTED))
    return found


class LineCheck(Protocol):
    """Checks of the lines of a manifest that need more than their text."""

    def defaults(self, number: int, settings: Mapping[str, Any]) -> None:
        """Check the default settings, in line `number`."""

    def task(self, manifest: "Manifest", number: int, task: Task) -> None:
        """Check a task of line `number`."""


class Manifest:
    """The tasks of a file, in file order. Paths in the file are relative to its folder."""

    def __init__(
        self,
        path: Path,
        attempts: int | None = None,
        findings: ManifestFindings | None = None,
        check: LineCheck | None = None,
    ) -> None:
        """Read and check the file. Add all mistakes to `findings`; without `findings`, raise
        UsageError that lists them. `attempts` applies to lines without `repeat`; the default is the
        value of the last run.
        """
        self.path, self.folder = path, path.absolute().parent
        self.attempts = attempts or FleetFolder.of(path).attempts
        self.lines: dict[str, TaskLine] = {}
        self._defaults: dict[str, Any] = {}
        self._default_names: Collection[str] = ()  # also of invalid defaults
        self._numbers: dict[str, int] = {}  # the line of each ID
        self._findings, self._check = (
            ManifestFindings(path) if findings is None else findings,
            check,
        )
        try:
            self._read()
        except OSError as error:
            hint = "Give a file with one task per line; `ctxagent guide fleet` shows an example."
            raise UsageError(f"cannot read {path}: {error.strerror}", hint=hint) from None
        if findings is None:
            self._findings.raise_errors()
        if not self.lines and not self._findings.of("error"):
            hint = f"Write one per line: {EXAMPLE}"
            raise UsageError(f"{path} has no task", hint=hint)

    def _read(self) -> None:
        """Read all lines. Raises OSError, and UsageError for a line that is too long."""
        after, is_first = 0, True  # the first line after a value over several lines
        for number, start, line in _lines(self.path):
            if number < after:
                continue
            try:
                found = [_parse_object(line)]
            except Wrong as wrong:
                after, found, mistake = self._read_value(number, start, *wrong.mistakes)
                self._findings.add(*mistake, lines=[number])
            for each in found:
                if is_first and _DEFAULTS in each:
                    self._read_defaults(number, each)
                else:
                    self._add(number, start, len(line), each)
                is_first = False

    def _read_value(
        self, number: int, start: int, mistake: Mistake
    ) -> tuple[int, list[dict[str, Any]], Mistake]:
        """Read an array, or an object over several lines. Return (the number of the next line, the
        objects, what is wrong). `mistake` is what is wrong with the first line alone.
        """
        with self.path.open("rb") as file:
            file.seek(start)
            text = file.read(MAX_LINE_BYTES).decode("utf-8", "replace")
        begin = len(text) - len(text.lstrip())
        if text[begin] not in "{[":
            return 0, [], mistake
        try:
            value, end = json.JSONDecoder().raw_decode(text, begin)
        except (ValueError, RecursionError):
            return 0, [], mistake
        found = [each for each in (value if isinstance(value, list) else [value])
                 if isinstance(each, dict)]  # fmt: skip
        lines = text.count("\n", 0, end) + 1
        if not found or (lines == 1 and isinstance(value, dict)):
            return 0, [], mistake
        what = f"an object over {lines} lines"
        if isinstance(value, list):
            what = f"an array of {count_of(len(value), 'task')}"
        shown = cut_at_word(json.dumps(found[0], ensure_ascii=False), MAX_SHOWN_CHARS)
        right = f"Write each object on one line, without [ ] and commas between objects: {shown}"
        return number + lines, found, (what, right)

    def _read_defaults(self, number: int, found: Mapping[str, Any]) -> None:
        """Read the defaults in the first line; leave invalid keys out."""
        given = found[_DEFAULTS]
        if len(found) > 1 or not isinstance(given, dict) or "id" in given:
            what = "defaults must be an object without id, and the only key of its line"
            self._findings.add(what, _written(_DEFAULTS, {"dir": "repo"}), lines=[number])
        if not isinstance(given, dict):
            return
        wrong = dict(_mistakes_in_keys(given))
        try:
            list(find_cells({} if "matrix" in wrong else given.get("matrix", {})))
            mistakes = list(wrong.values())
        except Wrong as why:
            mistakes = [*wrong.values(), *why.mistakes]
            wrong["matrix"] = mistakes[-1]
        for mistake in mistakes:
            self._findings.add(*mistake, lines=[number])
        self._default_names = given
        wrong["id"] = ("", "")
        self._defaults = {name: value for name, value in given.items() if name not in wrong}
        if self._check is not None:
            self._check.defaults(number, self._defaults.get("settings", {}))

    def _add(self, number: int, start: int, size: int, found: dict[str, Any]) -> None:
        """Add the tasks of a line, and its mistakes to the findings."""
        task, mistakes = read_line(found, self._defaults, self._default_names)
        if task.line and (other := self._numbers.setdefault(task.line, number)) != number:
            right = f'Give another, such as "{task.line}-{number}".'
            mistakes.append((f"line {other} has the same id {task.line}", right))
        try:
            tasks = list(self._with_paths(task))
        except Wrong as wrong:
            tasks = [task]
            mistakes += wrong.mistakes
        for mistake in mistakes:
            self._findings.add(*mistake, lines=[number])
        for task in tasks:
            self.lines[task.id] = TaskLine(
                id=task.id,
                name=task.line,
                cell=task.cell,
                has_score=task.score is not None,
                start=start,
                size=size,
                digest=task.digest,
                cores=task.cores,
                memory_mb=task.memory_mb,
                budget_usd=task.budget_usd,
                server=task.server,
            )
            if self._check is not None:
                self._check.task(self, number, task)

    def _with_paths(self, task: Task) -> Iterator[Task]:
        """Yield the tasks that a line expands to, with absolute paths of scripts. Raises Wrong."""
        for each in tasks_of(task, self.attempts):
            model = each.settings.get("model.id")
            if isinstance(model, str):
                whole = absolute_model(model, self.folder)
                yield replace(each, settings={**each.settings, "model.id": whole})
            else:
                yield each

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
            found, mistakes = read_line(_parse_object(line), self._defaults)
            for task in () if mistakes else self._with_paths(found):
                if (task.id, task.digest) == (id, known.digest):
                    return task
        except (OSError, ValueError):
            pass
        hint = "Run the fleet again; no result is lost. During a run, only append lines."
        raise UsageError(f"the line of {id} in {self.path} has changed", hint=hint)


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield (number, offset, line) for each line that is not blank. Raises OSError, and UsageError
    for a line that is too long.
    """
    start = 0
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), 1):
            if len(line) > MAX_LINE_BYTES:
                raise UsageError(
                    f"{path}:{number}: more than {MAX_LINE_BYTES:,} bytes",
                    hint="Put long texts into files, and name them in the prompt.",
                )
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
