"""Instruction files (AGENTS.md, CLAUDE.md): their text, and what changed since it was given.

Each text becomes one user entry whose details name the file and the digest of the text. Comparing
these details with the disk at the start of each turn finds every file that is new, changed or
deleted, also after a resume. The model then gets one more entry; earlier entries stay as they are.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.trust import is_file_trusted, is_trusted, other_writer
from ..context.tokens import estimate
from ..lazy import dataclass, regex
from ..session.entries import Entry, User
from ..session.store import content_text

if TYPE_CHECKING:
    from ..context.view import Item, View

INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md")
MAX_INSTRUCTION_CHARS = 100_000  # of one file
SOURCE = "instructions"  # of the entries, and the key of their details
OTHERS_WRITE = "[not taken in: {why}. It counts once the user has read and trusted it]"
LINK_OUTSIDE = "[a link that leaves the project: not followed]"

_FIRST = "Instructions from {path}:\n\n{text}"
_NEW = "Instructions from {path}, which is new:\n\n{text}"
_CHANGED = (
    "Instructions from {path}, which has changed. This text replaces the one given earlier:\n\n"
    "{text}"
)
_GONE = "{path} was deleted or is empty now: the instructions given from it no longer apply."
_SAME = "{path} has changed: it now says the same as {other}. Its earlier text no longer applies."
_IN_OLD_LOGS = regex(r"Instructions from (?P<path>[^\n]+):\n\n(?P<text>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class InstructionFile:
    """A file that exists, and the text that the model gets from it."""

    path: Path
    text: str  # "" for an empty file
    same_as: Path | None = None  # the earlier file that has the same text

    def entry(self, form: str = _FIRST) -> User:
        """Return the entry that gives the model this text, or refers to where it was given."""
        content = form.format(path=self.path, text=self.text, other=self.same_as)
        return User(content=content, source=SOURCE, details=_details(self.path, self.text))


def instruction_entries(files: Iterable[InstructionFile]) -> list[Entry]:
    """Return an entry for each text; a text that several files have is given once."""
    return [file.entry() for file in files if file.text and file.same_as is None]


def changed_entries(
    folders: Iterable[Path],
    files: Iterable[InstructionFile],
    view: "View",
    redact: Callable[[User], User],
) -> list[tuple[User, str]]:
    """Return an entry, and a line for the user, for each file whose text the model does not have.
    `folders` are the folders that were searched, `files` the files that were found there."""
    known, changes = _told(view.items, view), list[tuple[User, str]]()
    found = {file.path: file for file in files}
    for path in candidates(folders):
        file = found.get(path)
        entry = redact(file.entry() if file else User(content="", details=_details(path, "")))
        key, digest = _told_by(entry.details)
        before = known.get(key, _digest(""))
        if before == digest or (file is None and not _is_gone(path)):
            continue
        is_known = before != _digest("")
        if file is None or not file.text:
            gone = User(content=_GONE.format(path=path), source=SOURCE, details=entry.details)
            changes.append((redact(gone), f"{path} was deleted or is empty: the model is told"))
        elif file.same_as is None:
            entry = redact(file.entry(_CHANGED if is_known else _NEW))
            what = "has changed" if is_known else "is new"
            changes.append((entry, f"{path} {what}: the model gets its text now"))
        elif is_known:
            same = f"{path} now says the same as {file.same_as}: the model is told"
            changes.append((redact(file.entry(_SAME)), same))
    return changes


@dataclass(frozen=True, slots=True)
class InstructionState:
    """An instruction file, for people."""

    path: Path
    tokens: int  # of the text that the model gets
    origin: str
    state: str


def instruction_states(
    files: Iterable[InstructionFile],
    view: "View",
    redact: Callable[[User], User],
    cwd: Path,
    config_home: Path,
) -> list[InstructionState]:
    """Return what the model has of each file that is not empty."""
    known, root = _told(view.items, view), _project_root(cwd)

    def origin(folder: Path) -> str:
        if folder == config_home:
            return "yours"
        return "project" if folder.is_relative_to(root) else "above project"

    def state(file: InstructionFile) -> str:
        if file.same_as:
            return f"given once: it says the same as {file.same_as}"
        if file.text == LINK_OUTSIDE or file.text.startswith(OTHERS_WRITE.partition("{")[0]):
            return f"the model gets a note instead: {file.text}"
        path, digest = _told_by(redact(file.entry()).details)
        if known.get(path) == digest:
            return "in the context now"
        what = "the new text" if path in known else "it"
        return f"not in the context yet: the model gets {what} with your next message"

    return [
        InstructionState(file.path, estimate(file.text), origin(file.path.parent), state(file))
        for file in files
        if file.text
    ]


def _project_root(cwd: Path) -> Path:
    return next((folder for folder in (cwd, *cwd.parents) if (folder / ".git").exists()), cwd)


def search_folders(cwd: Path, config_home: Path) -> list[Path]:
    """Return the folders that may have instruction files, the nearest last."""
    return [config_home, *reversed(cwd.parents), cwd]


def instruction_files(cwd: Path, config_home: Path, trust_dir: Path) -> list[InstructionFile]:
    """Return each instruction file with its text.

    The user's own file comes first, then those from the root of the file system down to `cwd`, so
    that the nearest is read last. Only the user's own file may be a link out of its folder. If
    other users may write a file, a note replaces its text until the user trusts the content.
    """
    found: list[InstructionFile] = []
    first_with: dict[str, Path] = {}
    root = _project_root(cwd)
    for path in candidates(search_folders(cwd, config_home)):
        try:
            if not path.is_file():
                continue
            text, counts = _text_of(path, root, trust_dir, is_own=path.parent == config_home)
        except OSError:
            continue
        same = first_with.setdefault(text, path) if counts else path
        found.append(InstructionFile(path, text, None if same == path else same))
    return found


def _text_of(path: Path, root: Path, trust_dir: Path, *, is_own: bool) -> tuple[str, bool]:
    """Return what the model gets from a file of the project at `root`, and whether that is the
    file's own text. Raises OSError."""
    if not is_own and _leads_outside(path, root):
        return LINK_OUTSIDE, False
    with path.open("rb") as file:  # never more than what may matter: it may be of any size
        data = file.read(4 * MAX_INSTRUCTION_CHARS + 1)
    why = "" if is_own else other_writer(path)
    if why and not is_trusted(path, data, trust_dir):
        return OTHERS_WRITE.format(why=why), False
    text = data.decode("utf-8", "replace").strip()
    if len(text) > MAX_INSTRUCTION_CHARS:
        cut = f"[cut at {MAX_INSTRUCTION_CHARS:,} characters; Read {path} for the rest]"
        text = f"{text[:MAX_INSTRUCTION_CHARS]}\n{cut}"
    return text, True


def files_of_others(cwd: Path) -> list[tuple[Path, str]]:
    """Return each instruction file of a project, or above it, that others may write, and why."""
    found = []
    for path in candidates((*cwd.parents, cwd)):
        with suppress(OSError):
            if path.is_file() and (why := other_writer(path)):
                found.append((path, why))
    return found


def instruction_warnings(cwd: Path, trust_dir: Path) -> list[str]:
    """Return a warning for each instruction file that is not taken in, and what to do."""
    return [
        f"{path} is not taken in: {why}. Read it, then accept it with `ctxagent config --trust`, "
        "or take the right to write it from others."
        for path, why in files_of_others(cwd)
        if not is_file_trusted(path, trust_dir)
    ]


def candidates(folders: Iterable[Path]) -> list[Path]:
    """Return the paths at which instruction files may be, the nearest last."""
    return [folder / name for folder in folders for name in INSTRUCTION_FILES]


def without_standing(
    entries: Iterable[Entry], view: "View", staying: Collection[int]
) -> list[Entry]:
    """Return the entries without the instruction texts that the model still has in the items with
    the seqs `staying`."""
    told = _told((item for item in view.items if item.seq in staying), view)
    return [
        entry
        for entry in entries
        if not (isinstance(entry, User) and _told_by(entry.details) in told.items())
    ]


def _told(items: "Iterable[Item]", view: "View") -> dict[str, str]:
    """Return the digest of the text that the items give last of each file, by path."""
    told = dict[str, str]()
    for item in items:
        if item.source != SOURCE:
            continue
        path, digest = _told_by(view.facts(item)[0])
        old = _IN_OLD_LOGS.fullmatch(content_text(item.blocks)) if not path else None
        if old:
            path, digest = old["path"], _digest(old["text"])
        if path:
            told[path] = digest
    return told


def _details(path: Path, text: str) -> dict[str, Any]:
    return {SOURCE: {"path": str(path), "sha256": _digest(text)}}


def _told_by(details: Mapping[str, Any]) -> tuple[str, str]:
    """Return path and digest from the details of an entry; two empty texts for none."""
    found = details.get(SOURCE)
    found = found if isinstance(found, dict) else {}
    return str(found.get("path", "")), str(found.get("sha256", ""))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _is_gone(path: Path) -> bool:
    """Return True if a file certainly does not exist. A file that cannot be read may exist."""
    try:
        return not path.is_file()
    except OSError:
        return False


def _leads_outside(path: Path, root: Path) -> bool:
    """Return True for a link out of the project at `root` or, above that, out of its folder.

    Such a link could lead to anything that the user can read.
    """
    within = root if path.is_relative_to(root) else path.parent
    return not path.resolve().is_relative_to(within.resolve())
