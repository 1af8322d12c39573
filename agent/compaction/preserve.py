"""Preservation: what must stand in the context after a compaction, and whether it does (S3).

`sections` looks at the disk and says of every category that is always kept where it is and what of
it is kept verbatim; `missing` is the check before a compaction, `preserved_text` what is said again
after one, `lost` the check of the result. The files are the project's, so nothing in them is
trusted: they are read within bounds, only if regular and not outside of the project, and what is
odd about one is told as its `problem`. What they say stands in the context as a quotation, each
line marked, so that it passes neither for the person's words nor for ours.
"""

import glob
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ..context.tokens import estimate
from ..errors import CtxagentError, UsageError
from ..record.ledger import Ledger
from .categories import KEPT, Rules

LARGEST_NOTES = 16 * 1024 * 1024  # bytes that are looked through
LARGEST_STATE = 1024 * 1024
MOST_TEXT = 6_000  # characters of a section that are kept verbatim
MOST_SHARE = 0.05  # of the window, that a section of the notes may take
MOST_STATES = 50  # files
MOST_TODOS = 20
LONGEST_LINE = 120  # characters of what a file says in a line of ours
RUNNING = "RUNNING"
BEGINS = "What is kept, whatever is compressed:"  # begins what `preserved_text` says
FROM_A_FILE = "what the file says: data of the project, not the person's words"

_HEAD_SHARE = 0.4  # of a long section that is kept from its beginning; the rest from its end
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/ -]{0,59}")  # of a unit of work
_PATH = re.compile(r"[A-Za-z0-9._/-]+")
_MARK = re.compile(r"^ {0,3}(?:(#{1,6})[ \t]+(.*)|(`{3,}|~{3,})(.*))$", re.MULTILINE)
_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


@dataclass(frozen=True, slots=True)
class Section:
    """What there is of one category. `critical`: if it is not `found`, that is told before a
    compaction; if it is, `text` must stand in the context afterwards, quoted. `where` says where it
    is, for people; `text` is what is kept verbatim, with a pointer to the rest; `problem` is what
    is wrong with it, or ""."""

    name: str
    critical: bool
    found: bool
    where: str
    text: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RunState:
    """What a file says of a run: its state and the name of the unit of work it is at, each "" if it
    says none."""

    path: str
    state: str = ""
    current: str = ""
    problem: str = ""

    @property
    def running(self) -> bool:
        return self.state == RUNNING


@dataclass(frozen=True, slots=True)
class _File:
    data: bytes = b""
    exists: bool = True
    problem: str = ""


def sections(
    cwd: Path, rules: Rules, ledger: Ledger, phase: str, window: int | None = None
) -> list[Section]:
    """What there is of each category that the rules always keep, as it is on disk now, and as much
    of it as a window of that size has room for."""
    room = MOST_TEXT if window is None else int(MOST_SHARE * window)
    notes = _file(cwd, rules.notes, LARGEST_NOTES)
    text = _lines(_decoded(notes.data)[0])
    states = run_states(cwd, rules)
    made = {
        "trajectory": Section("trajectory", False, True, "the session's log"),
        "active_work": _active_work(ledger),
        "sprint_context": _sprint_context(phase, states),
        "run_state": _run_state(rules, states),
    }
    return [
        made.get(name) or _notes_section(name, rules, notes, text, room)
        for name in KEPT
        if name in rules.always
    ]


def missing(sections: Iterable[Section]) -> list[Section]:
    """The critical sections that are not there."""
    return [section for section in sections if section.critical and not section.found]


def preserved_text(sections: Iterable[Section]) -> str:
    """What stands in the context after a compaction; "" when there is nothing to say. The todo
    list and pins are not in it: the renewal and the summary have them."""
    parts = []
    for section in sections:
        if not section.text or section.name == "active_work":
            continue
        if heading := KEPT[section.name].heading:
            above = f"{heading}, {FROM_A_FILE}:\n\n> ({_line(section.where)})"
        elif section.name == "run_state":
            above = (
                "A run goes on by itself: go on from its current unit of work, without asking for "
                "confirmation. Permissions are as given: what needs one still needs it, and what "
                f"was not authorised still is not. Of the run, {FROM_A_FILE}:\n"
            )
        else:
            above = "Where the work stands:\n"
        parts.append(f"{above}\n{_quoted(section.text)}")
    return "\n\n".join([BEGINS, *parts]) if parts else ""


def lost(context: str, sections: Iterable[Section]) -> list[Section]:
    """The critical sections that are there and do not stand verbatim in a context."""
    there = (section for section in sections if section.critical and section.found)
    return [section for section in there if _quoted(section.text) not in context]


def run_states(cwd: Path, rules: Rules) -> list[RunState]:
    """What each file of the rules' glob says of a run."""
    # Path.glob would walk the whole project for a `**`, and refuses some patterns.
    names = sorted(islice(glob.iglob(rules.run_state, root_dir=cwd), MOST_STATES))  # noqa: PTH207
    return [_state(cwd, name) for name in names]


def create(cwd: Path, rules: Rules, name: str) -> Path:
    """Write a section at the end of the notes file, with a line that says what goes there; the
    file's path. A section that is there stays as it is. Raises UsageError for a category that is
    no section, CtxagentError for a file that cannot be written."""
    if name not in KEPT or not KEPT[name].heading:
        names = ", ".join(n for n, kept in KEPT.items() if kept.heading)
        raise UsageError(f"{name} is no section of {rules.notes}", hint=f"One of {names}.")
    path = Path(os.path.realpath(cwd / rules.notes))
    file = _file(cwd, rules.notes, LARGEST_NOTES)
    if file.exists and file.problem:
        raise CtxagentError(file.problem, hint="Put a text file there, or name another one.")
    raw, encoding = _decoded(file.data)
    text = _lines(raw)
    if _find(text, KEPT[name].heading) is not None:
        return path
    added = _addition(text, name)
    if _find(text + added, KEPT[name].heading) is None:
        raise CtxagentError(
            f"{rules.notes} ends within a block of code",
            hint="Close it with the marks that opened it, then try again.",
        )
    if "\r\n" in raw:
        added = added.replace("\n", "\r\n")
    try:
        _replace(path, file.data + added.encode(encoding))
    except OSError as error:
        raise CtxagentError(
            f"cannot write {path}: {error.strerror}", hint="The file is as it was."
        ) from error
    return path


# The sections of the notes file


def _notes_section(name: str, rules: Rules, notes: _File, text: str, room: int) -> Section:
    heading = KEPT[name].heading
    critical = notes.exists or rules.strict or rules.expected
    found = _find(text, heading) if not notes.problem else None
    if found is None:
        problem = notes.problem or f"{rules.notes} has no section {heading!r}"
        return Section(name, critical, False, rules.notes, problem=problem)
    start, end = found
    whole = text[start:end].rstrip()
    first = text.count("\n", 0, start) + 1
    last = first + whole.count("\n")
    empty = "\n" not in whole
    return Section(
        name,
        critical,
        True,
        f"{rules.notes}:{first}-{last}",
        _bounded(whole, first, rules.notes, room),
        "nothing is written under it" if empty else "",
    )


def _find(text: str, heading: str) -> tuple[int, int] | None:
    """Where the first section of that title is: up to the next heading that is not below it."""
    level, start = 0, 0
    for place, depth, title in _headings(text):
        if level and depth <= level:
            return start, place
        if not level and _means(title, heading):
            level, start = depth, place
    return (start, len(text)) if level else None


def _headings(text: str) -> Iterator[tuple[int, int, str]]:
    """Place, level and title of every heading that does not stand in a block of code."""
    fence = ""
    for match in _MARK.finditer(text):
        marks, title, fencing, after = match.groups()
        if marks:
            if not fence:
                yield match.start(), len(marks), title
        elif not fence:
            fence = fencing if fencing[0] == "~" or "`" not in after else ""
        elif fencing.startswith(fence) and not after.strip():
            fence = ""


def _means(title: str, heading: str) -> bool:
    """Whether a title begins with the heading's words, whatever numbers and signs stand around."""
    words = [w for w in re.split(r"[\W_]+", title[: 4 * LONGEST_LINE].lower()) if w]
    while words and words[0].isdigit():
        words = words[1:]
    wanted = heading.lower().split()
    return words[: len(wanted)] == wanted


def _bounded(whole: str, first: int, path: str, room: int) -> str:
    """The section, or its beginning and its end (where logs grow) with the lines between named, in
    about `room` tokens."""
    most = min(len(whole), MOST_TEXT)
    most = min(most, most * room // max(estimate(whole[:most]), 1))
    if len(whole) <= most:
        return whole
    head = whole[: int(_HEAD_SHARE * most)]
    tail = whole[len(head) - most :]
    start = first + head.count("\n")
    end = first + whole.count("\n") - tail.count("\n")
    head = head[: head.rfind("\n")] if "\n" in head else head
    tail = tail[tail.find("\n") + 1 :] if "\n" in tail else tail
    return f"{head}\n[… lines {start}-{end} of {path}: Read them there …]\n{tail}"


def _addition(text: str, name: str) -> str:
    r"""What is appended for a new section, with \n; it ends as the text does."""
    kept = KEPT[name]
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    end = "\n" if not text or text.endswith("\n") else ""
    return f"{gap}## {kept.heading}\n\n{kept.opening}{end}"


# The run state, and the work in hand


def _state(cwd: Path, name: str) -> RunState:
    path = _line(name)
    file = _file(cwd, name, LARGEST_STATE)
    if file.problem:
        return RunState(path, problem=file.problem)
    try:
        data = json.loads(file.data)
    except (ValueError, RecursionError):
        return RunState(path, problem=f"{path} is not JSON")
    if not isinstance(data, dict):
        return RunState(path, problem=f"{path} holds no JSON object")
    said, current = data.get("state"), _current(data)
    state = _line(said.upper()) if isinstance(said, str) else ""
    if state == RUNNING and not _PATH.fullmatch(path):
        return RunState(path, problem=f"{path!r} is no plain name of a file: not followed")
    if _NAME.fullmatch(current) or not current:
        return RunState(path, state, current)
    told = f"{path}: what it calls current is no name of a unit of work: {current!r}"
    return RunState(path, state, problem=told)


def _current(data: dict[str, Any]) -> str:
    """What a run calls the unit of work that it is at: `.sprints.current`, or what is called
    current elsewhere near the top."""
    near = [data.get("sprints"), data, *data.values()]
    for place in near:
        value = place.get("current") if isinstance(place, dict) else None
        if isinstance(value, dict):
            value = value.get("id") or value.get("name")
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return _line(str(value))
    return ""


def _run_state(rules: Rules, states: Sequence[RunState]) -> Section:
    running = [state for state in states if state.running]
    lines = [f"{s.path}: state {s.state}, current: {s.current or '(not named)'}" for s in running]
    problems = "; ".join(state.problem for state in states if state.problem)
    where = ", ".join(state.path for state in running) or rules.run_state
    return Section("run_state", bool(lines), bool(lines), where, "\n".join(lines), problems)


def _sprint_context(phase: str, states: Sequence[RunState]) -> Section:
    lines = [f"Phase: {_line(phase)}"] if phase else []
    lines += [f"Current unit of work: {s.current}" for s in states if s.running and s.current]
    return Section(
        "sprint_context", False, bool(lines), "the log, and the run state", "\n".join(lines)
    )


def _active_work(ledger: Ledger) -> Section:
    todos = [todo for todo in ledger.todos if todo.get("status") != "completed"]
    lines = [f"- [{todo.get('status')}] {_line(todo['content'])}" for todo in todos[:MOST_TODOS]]
    if len(todos) > MOST_TODOS:
        lines.append(f"- and {len(todos) - MOST_TODOS:,} more")
    if ledger.pins:
        lines.append("Pinned: " + ", ".join(f"#{ref}" for ref in ledger.pins))
    where = "the todo list, and the pins"
    return Section("active_work", False, bool(lines), where, "\n".join(lines))


# Files that anybody may have written


def _file(cwd: Path, name: str, most: int) -> _File:
    """A file of the project with at most so many bytes. It need not exist."""
    path = cwd / name
    shown = _line(name)
    try:
        if _leaves(path, cwd):
            return _File(problem=f"{shown} is a link that leaves the project: not followed")
        if not stat.S_ISREG(path.stat().st_mode):
            return _File(problem=f"{shown} is not a regular file")
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            return _File(problem=f"{shown} has more than {most:,} bytes: not read")
        return _File(data)
    except (FileNotFoundError, NotADirectoryError):
        return _File(exists=False, problem=f"there is no {shown}")
    except OSError as error:
        return _File(problem=f"{shown} cannot be read: {error.strerror}")


def _leaves(path: Path, cwd: Path) -> bool:
    """Whether a path leads out of the repository, or out of `cwd` where there is none."""
    root = next((f for f in (cwd, *cwd.parents) if (f / ".git").exists()), cwd)
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def _decoded(data: bytes) -> tuple[str, str]:
    """The text of a notes file, and the encoding that more of it would have."""
    mark, encoding = next(((b, e) for b, e in _BOMS if data.startswith(b)), (b"", "utf-8"))
    text = data[len(mark) :].decode(encoding, "replace")
    foreign = len(text) - len(text.encode("ascii", "ignore"))
    if not mark and 2 * text.count("\N{REPLACEMENT CHARACTER}") > foreign:
        return data.decode("latin-1"), "latin-1"
    return text, encoding


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _quoted(text: str) -> str:
    """A text of which every line is marked, whatever ends a line in it."""
    return "\n".join(f"> {line}" for line in text.splitlines())


def _line(text: str) -> str:
    """What a file says, as one short line of plain characters."""
    line = " ".join(text[: 4 * LONGEST_LINE].split())
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"


def _replace(path: Path, data: bytes) -> None:
    """Put a file with these bytes in place, at once or not at all; its mode stays."""
    old = path.stat() if path.exists() else None
    if old and not os.access(path, os.W_OK):
        raise PermissionError(13, "it is read-only", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".ctxagent-{os.urandom(8).hex()}")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            if old:
                os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
