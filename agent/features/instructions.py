"""Give the model instruction files (AGENTS.md, CLAUDE.md) and their later changes.

Each text becomes a user entry whose details have the path and the digest of the text. At the start
of each turn, a comparison of these details with the disk finds new, changed and deleted files, also
after a resume. The model then gets another entry; earlier entries stay unchanged.

All texts together use at most BUDGET_SHARE of the window. The largest are cut or left out, and
their entries name the file.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compaction.summary.request import first_tokens
from ..compaction.summary.standing import SECTION, SOURCE, section_of
from ..context.tokens import estimate, estimate_content
from ..lazy import dataclass, regex
from ..session.entries import Entry, User
from ..session.store import content_text
from .instruction_places import (
    LINK_OUTSIDE,
    UNTRUSTED,
    InstructionFile,
    InstructionPlaces,
    InstructionReader,
)

if TYPE_CHECKING:
    from ..context.items import Item
    from ..context.view import View

BUDGET_SHARE = 0.10  # of the window, for all instruction files
MIN_PART_TOKENS = 200  # of a cut text; a text with less room is left out

_FIRST = "Instructions from {path}{about}:\n\n{text}"
_NEW = "Instructions from {path}{about}, which is new:\n\n{text}"
_CHANGED = (
    "Instructions from {path}{about}, which has changed. This text replaces the one given earlier:"
    "\n\n{text}"
)
_GONE = "{path} was deleted or is empty now: the instructions given from it no longer apply."
_NOT_IMPORTED = "{path} is not imported any more: the instructions given from it no longer apply."
_SAME = "{path} has changed: it now says the same as {other}. Its earlier text no longer applies."
_ALIKE = "{path}{about}, says the same as {other}."
_CUT = "[cut here: the rest is over the budget for instruction files; read the file for it]"
_LEFT_OUT = "[left out: over the budget for instruction files; read the file before you work{to}]"
_IN_OLD_LOGS = regex(r"Instructions from (?P<path>[^\n]+):\n\n(?P<text>.*)", re.DOTALL)

RedactEntry = Callable[[User], User]


@dataclass(frozen=True, slots=True)
class TextInContext:
    """The newest text of a file in the model's context."""

    digest: str  # of the full text, even if the entry has only a part
    seq: int
    size: int  # in unscaled tokens
    details: Mapping[str, Any]

    @property
    def left_out(self) -> int:
        """The tokens of the text that exceeded the budget."""
        found = self.details.get("left_out")
        return found if isinstance(found, int) else 0


def entry_of(file: InstructionFile, form: str = _FIRST, max_tokens: int | None = None) -> User:
    """Return the entry with the text of a file, or with a reference to an earlier entry that has
    this text. Cut a text above `max_tokens`, or leave it out if too little would remain.
    """
    details: dict[str, Any] = {"path": str(file.path), "sha256": _digest(file.text)}
    if file.folder:
        details["folder"] = str(file.folder)
    if file.by:
        details["by"] = str(file.by)
    if file.globs:
        details["globs"] = list(file.globs)
    if form == _ALIKE:
        details["same_as"] = str(file.same_as)

    def filled(text: str) -> str:
        return form.format(path=file.path, about=_about(file), text=text, other=file.same_as)

    content = filled(file.text)
    if max_tokens is not None and (size := estimate(content)) > max_tokens:
        room = max_tokens - estimate(filled(f"\n{_CUT}"))
        shorter = filled(f"{first_tokens(file.text, room)}\n{_CUT}")
        if room < MIN_PART_TOKENS:
            shorter = filled(_LEFT_OUT.format(to=" there" * (file.folder is not None)))
        if saved := max(0, size - estimate(shorter)):
            content, details["left_out"] = shorter, saved
            if section := section_of(file.text):
                details[SECTION] = section
    return User(content=content, source=SOURCE, details={SOURCE: details})


def _about(file: InstructionFile) -> str:
    return "".join(
        (
            f", which {file.by} imports" if file.by else "",
            f", for work in {_place(file)}" if file.folder else "",
            f", for files that match {', '.join(file.globs)}" if file.globs else "",
        )
    )


def _place(file: InstructionFile) -> str:
    return "its folder" if file.path.parent == file.folder else str(file.folder)


def entries_within(texts: Sequence[tuple[InstructionFile, str]], room: int) -> list[User]:
    """Return an entry for each (file, format). Cut or leave out the largest until all fit into
    `room` tokens.
    """
    entries = [entry_of(*each) for each in texts]
    sizes = [estimate_content(entry.content) for entry in entries]
    for place in sorted(range(len(sizes)), key=lambda each: -sizes[each]):
        over = sum(sizes) - room
        if over <= 0:
            break
        entries[place] = entry_of(*texts[place], max_tokens=max(0, sizes[place] - over))
        sizes[place] = estimate_content(entries[place].content)
    return entries


def first_entries(
    files: Iterable[InstructionFile], view: "View", staying: Collection[int], window: int
) -> list[User]:
    """Return an entry for each text that is missing from the items `staying`. A text shared by
    several files is given once.
    """
    known = files_in_context(view, staying)
    found = {file.path: file for file in files}
    texts = [
        (file, _ALIKE if file.same_as else _FIRST)
        for file in found.values()
        if file.text and not _is_in_context(entry_of(file), known)
        if not file.same_as or not _is_covered(file, found.get(file.same_as))
    ]
    return entries_within(texts, room_left(window, view, staying))


def room_left(window: int, view: "View", staying: Collection[int] | None = None) -> int:
    """Return the free tokens of the budget, counting all items or only those `staying`. Replaced
    texts count too, because they stay in the context until a summary.
    """
    items = (each for each in view.items if staying is None or each.seq in staying)
    return int(BUDGET_SHARE * window) - sum(each.size for each in items if each.source == SOURCE)


def new_entries(
    files: Iterable[InstructionFile], view: "View", redact: RedactEntry, window: int
) -> list[tuple[User, str]]:
    """Return (entry, line for the user) for each file whose text the model does not have. The first
    text of a folder's file is not announced as new.
    """
    known, texts, lines = files_in_context(view), list[tuple[InstructionFile, str]](), list[str]()
    found = {file.path: file for file in files}
    earlier = {text.digest: _file_in_context(path, text) for path, text in reversed(known.items())}
    for file in found.values():
        key, digest = _path_and_digest(redact(entry_of(file)).details)
        before = known[key].digest if key in known else _digest("")
        if before == digest or not file.text:
            continue
        is_known = before != _digest("")
        other = found.get(file.same_as) if file.same_as else file.folder and earlier.get(digest)
        if other:
            file = replace(file, same_as=other.path)
        if file.same_as and is_known:
            texts.append((file, _SAME))
            lines.append(f"{file.path} now says the same as {file.same_as}: the model is told")
        elif file.same_as and _is_covered(file, other or None):
            continue
        elif file.same_as:
            texts.append((file, _ALIKE))
            lines.append(f"{file.path} says the same as {file.same_as}: the model is told")
        elif is_known:
            texts.append((file, _CHANGED))
            lines.append(f"{file.path} has changed: the model gets its text now")
        elif file.folder or file.globs:
            texts.append((file, _FIRST))
            lines.append(f"{file.path}{_about(file)}: the model gets its text now")
        else:
            texts.append((file, _NEW))
            lines.append(f"{file.path} is new: the model gets its text now")
    entries = entries_within(texts, room_left(window, view))
    return [*zip(map(redact, entries), lines, strict=True)]


def _is_covered(file: InstructionFile, other: InstructionFile | None) -> bool:
    """Return True if the text of `other` applies wherever `file` does. None stands for a text that
    applies to all work. A symlink counts as its target.
    """
    if other is None or file.path.resolve() == other.path.resolve():
        return True
    inside = file.folder and other.folder and file.folder.is_relative_to(other.folder)
    return (other.folder is None or bool(inside)) and other.globs in ((), file.globs)


def _file_in_context(path: str, text: TextInContext) -> InstructionFile:
    """Return the file of an earlier entry, without its text."""
    folder, globs = text.details.get("folder"), text.details.get("globs")
    return InstructionFile(
        Path(path),
        "",
        folder=Path(folder) if isinstance(folder, str) else None,
        globs=tuple(map(str, globs)) if isinstance(globs, list) else (),
    )


def gone_entries(
    reader: InstructionReader, paths: Iterable[Path], view: "View", redact: RedactEntry
) -> list[tuple[User, str]]:
    """Return (entry, line for the user) for each file whose text no longer applies. Check `paths`
    and the files of earlier entries.
    """
    known, found, changes = files_in_context(view), {file.path: file for file in reader.files}, []
    here = (*reader.places.roots, *reader.places.own_folders)
    earlier = (Path(path) for path in known)
    covered = (path for path in earlier if any(path.is_relative_to(each) for each in here))
    for path in dict.fromkeys((*paths, *covered)) if known else ():
        file = found.get(path) or InstructionFile(path, "")
        if file.text:
            continue
        key, _ = _path_and_digest(redact(entry_of(file)).details)
        if key not in known or known[key].digest == _digest(""):
            continue
        is_gone = path in found or _is_gone(path)
        if is_gone or known[key].details.get("by"):
            form = _GONE if is_gone else _NOT_IMPORTED
            what = "was deleted or is empty" if is_gone else "is not imported any more"
            changes.append((redact(entry_of(file, form)), f"{path} {what}: the model is told"))
    return changes


def budget_warning(entry: Entry) -> str:
    """Return the warning about a shortened text, or "" for any other entry."""
    details = entry.details.get(SOURCE) if isinstance(entry, User) else None
    left_out = details.get("left_out") if isinstance(details, dict) else None
    if not isinstance(details, dict) or not left_out:
        return ""
    return (
        f"{details['path']}: {left_out:,} of its tokens are left out, since instruction files take "
        f"at most {BUDGET_SHARE:.0%} of the window. The model is told to Read it."
    )


@dataclass(frozen=True, slots=True)
class InstructionState:
    """The state of an instruction file, for the user."""

    path: Path
    tokens: int  # of the text that the model gets
    origin: str
    state: str


def instruction_states(
    reader: InstructionReader, view: "View", redact: RedactEntry
) -> list[InstructionState]:
    """Return the state of each non-empty file, in file order."""
    known, places = files_in_context(view), reader.places
    root, own = places.root, places.own_folders

    def origin(file: InstructionFile) -> str:
        if any(file.path.is_relative_to(each) for each in own):
            return "yours"
        if any(file.path.is_relative_to(each) for each in places.added):
            return "added"
        return "project" if file.path.is_relative_to(root) else "above project"

    def state(file: InstructionFile) -> str:
        if file.same_as:
            return f"given once: it says the same as {file.same_as}"
        if file.text == LINK_OUTSIDE or file.text.startswith(UNTRUSTED.partition("{")[0]):
            return f"the model gets a note instead: {file.text}"
        path, digest = _path_and_digest(redact(entry_of(file)).details)
        text = known.get(path)
        if text and text.digest == digest:
            over = f", without {text.left_out:,} tokens over the budget" if text.left_out else ""
            return f"in the context now{over}{_about(file)}"
        if file in reader.waiting:
            return f"not in the context: it is{_about(file)[1:]}"
        what = "the new text" if text else "it"
        return f"not in the context yet: the model gets {what} with your next message"

    return [
        InstructionState(file.path, estimate(file.text), origin(file), state(file))
        for file in (*reader.files, *reader.waiting)
        if file.text
    ]


def rows_in_context(view: "View") -> Iterator[tuple[str, int, str]]:
    """Yield (path, tokens, remark) for each text in the context, in order."""
    newest = {each.seq for each in files_in_context(view).values()}
    for item in view.items:
        for path, text in _texts_of([item], view).items():
            notes = [f"{text.left_out:,} tokens left out"] if text.left_out else []
            notes += [] if text.seq in newest else ["replaced by a later text"]
            yield path, view.scaled(text.size), ", ".join(notes)


def files_in_context(
    view: "View", staying: Collection[int] | None = None
) -> dict[str, TextInContext]:
    """Return the newest text of each file in the context, by path. Search all items, or only the
    seqs `staying`. Leave out references to a text that is not in the context.
    """
    items = view.items if staying is None else (i for i in view.items if i.seq in staying)
    known = _texts_of(items, view)
    whole = {each.digest for each in known.values() if not each.details.get("same_as")}
    return {path: each for path, each in known.items() if each.digest in whole}


def _texts_of(items: "Iterable[Item]", view: "View") -> dict[str, TextInContext]:
    found = dict[str, TextInContext]()
    for item in items:
        if item.source != SOURCE:
            continue
        details = view.facts(item)[0]
        path, digest = _path_and_digest(details)
        old = _IN_OLD_LOGS.fullmatch(content_text(item.blocks)) if not path else None
        if old:
            path, digest = old["path"], _digest(old["text"])
        if path:
            found[path] = TextInContext(digest, item.seq, item.size, details.get(SOURCE) or {})
    return found


def folders_in_context(known: Mapping[str, TextInContext]) -> list[Path]:
    """Return the folders whose own instructions the model has."""
    folders = (each.details.get("folder") for each in known.values())
    return [Path(each) for each in dict.fromkeys(folders) if isinstance(each, str)]


def _path_and_digest(details: Mapping[str, Any]) -> tuple[str, str]:
    """Return path and digest from the details of an entry, or two empty strings."""
    found = details.get(SOURCE)
    found = found if isinstance(found, dict) else {}
    return str(found.get("path", "")), str(found.get("sha256", ""))


def _is_in_context(entry: User, known: Mapping[str, TextInContext]) -> bool:
    path, digest = _path_and_digest(entry.details)
    return path in known and known[path].digest == digest


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _is_gone(path: Path) -> bool:
    """Return True if a file certainly does not exist. An unreadable file may exist."""
    try:
        return not path.is_file()
    except OSError:
        return False


def reader_for_all_work(
    places: InstructionPlaces, view: "View", denies: Callable[[str], bool]
) -> InstructionReader:
    """Read the files that apply to all work, and those of folders whose instructions the model has.
    Blocks.
    """
    known = files_in_context(view)
    reader = InstructionReader(places, denies, in_context=known)
    reader.read([*places.for_all_work(), *places.in_folders(folders_in_context(known))])
    return reader
