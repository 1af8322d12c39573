"""Find, open, read and replace files for Read, Write and Edit.

Only regular files are opened, so that no call hangs on a FIFO or a device. A change is first
computed as a `Change` and then written in one step: the old file stays untouched until the new one
is complete on disk. Every failure is a `ToolError` that names the file.
"""

import asyncio
import difflib
import errno
import os
import shlex
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from ..agent.errors import ToolError
from ..agent.lazy import dataclass, regex
from . import text as texts
from .base import Context, Interrupted, Output
from .offered import FIND_FILE, LIST_DIRECTORY, Offered
from .project_encodings import ProjectEncodings
from .system.files import edit_file
from .system.process import MISSING_CWD
from .system.project_files import look_of, printable
from .system.safe_open import open_regular, stable_path
from .system.take_turn import in_thread
from .text import Diff, Form, NotText

MAX_FILE_BYTES = 16 * 1024 * 1024  # bytes of the largest file that can be edited
ELSEWHERE = "{name} leads elsewhere since it was looked at. Nothing was done. Call it again."
MAX_NEIGHBOURS = 5_000  # names that a missing name is compared with

_NOT_ASCII = regex(r"[^\x00-\x7f]")
_SPECIAL = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """A file that a call names."""

    name: str  # for the user and the model
    path: Path  # links resolved, as at the permission check
    offered: Offered  # the tools that messages about it may name
    is_moved: bool = False  # in the private temporary folder; `name` is valid only in the sandbox

    @contextmanager
    def reporting(self, doing: str) -> Iterator[None]:
        """Convert an OSError to a ToolError that names the file and the reason."""
        try:
            yield
        except OSError as error:
            if error.errno == errno.ELOOP and not _in_a_circle(self.path):
                raise ToolError(ELSEWHERE.format(name=self.name), path=str(self.path)) from error
            reason = error.strerror or str(error)
            raise ToolError(
                f"Could not {doing} {self.name}: {reason}. Nothing was changed."
                f"{self.offered.say(' Look at it with ls -ld in {Bash}.')}",
                path=str(self.path),
            ) from error


def locate(context: Context, path: str) -> Place:
    """Return the file of a path: the target at the time of the permission check.

    The file need not exist, but the project must: otherwise a write would recreate a project that
    was moved away. Raises ToolError.
    """
    try:
        named = context.resolve(path)
        if named.is_relative_to(context.cwd) and not context.cwd.is_dir():
            raise ToolError(MISSING_CWD.format(cwd=context.cwd))
        path = context.judged_path or os.path.realpath(named)
        moved = context.sandbox.moved(os.path.realpath(named)) if context.sandbox else ""
        is_moved = path == moved != os.path.realpath(named)
        return Place(printable(context.shown(named)), Path(path), context.offered, is_moved)
    except OSError as error:  # a link was replaced by a file during the lookup
        why = error.strerror or str(error)
        raise ToolError(
            f"{path} cannot be found: {why}. Something may have exchanged it for another file just "
            "now. Nothing was done. Call it again."
        ) from error
    except (ValueError, RuntimeError) as error:  # a NUL, a lone surrogate; an unknown ~user
        reason = str(error).rstrip(".")
        raise ToolError(f"{path!r} cannot be a path: {reason}. Give another path.") from error


@contextmanager
def opened(place: Place) -> Iterator[BinaryIO]:
    """Open a regular file for reading. Raises ToolError."""
    with place.reporting("read"):
        try:
            descriptor = open_regular(place.path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ToolError(_missing(place), path=str(place.path)) from error
        except OSError as error:
            if error.errno == errno.EINVAL:
                check_regular(place, place.path.lstat().st_mode)
            raise
        with os.fdopen(descriptor, "rb") as file:
            yield file


@contextmanager
def listed(place: Place) -> Iterator[Path]:
    """Open a directory and yield a path to it that stays valid even if the directory is replaced
    during the block. Raises ToolError if it is missing or not a directory.
    """
    with ExitStack() as stack:
        with place.reporting("search"):
            try:
                inside = stack.enter_context(stable_path(place.path))
            except (FileNotFoundError, NotADirectoryError) as error:
                raise ToolError(_missing(place), path=str(place.path)) from error
        yield inside


def _in_a_circle(path: Path) -> bool:
    """Return True if the path contains a loop of links."""
    try:
        os.path.realpath(path, strict=True)
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def check_regular(place: Place, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise ToolError(f"{place.name} is a directory.{place.offered.say(LIST_DIRECTORY)}")
    special = next((name for test, name in _SPECIAL if test(mode)), None)
    if special:
        way = place.offered.say(" {Bash} can work with it.")
        raise ToolError(f"{place.name} is {special}, not a file.{way}")


def contents(place: Place) -> bytes:
    """Return all bytes of a file. Raises ToolError if it has more than MAX_FILE_BYTES."""
    with opened(place) as file:
        data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            size = os.fstat(file.fileno()).st_size
            raise ToolError(
                f"{place.name} has {size:,} bytes; at most {MAX_FILE_BYTES:,} can be edited here."
                f"{place.offered.say(' Use {Bash} (sed, awk or a script).')}"
            )
    return data


def decoded(place: Place, data: bytes, encoding: str | None = None) -> tuple[str, Form]:
    """Return the text of a file and its form: as the call states it, or by the evidence of the
    project. Raises ToolError.
    """
    try:
        form = form_of(place, data, encoding)
        return texts.decode_as(data, form), form
    except NotText:
        way = place.offered.say(" Use {Bash} to change it.")
        raise ToolError(f"{binary(place, data, len(data))}{way}") from None


def form_of(place: Place, data: bytes, encoding: str | None, *, whole: bool = True) -> Form:
    """Return the form of a file, or of its first bytes if not `whole`. Raises NotText, and
    ToolError for a stated encoding that does not fit.
    """
    if not encoding:
        evidence = ProjectEncodings().evidence(place.path)
        return texts.recognise(data, whole=whole, evidence=evidence)
    try:
        return texts.in_encoding(data, encoding, whole=whole)
    except ValueError as error:
        raise ToolError(f"{place.name} is not text in the encoding {encoding}: {error}.") from None


def binary(place: Place, start: bytes, size: int) -> str:
    return f"{place.name} is binary, not text: {texts.kind(start) or 'data'}, {size:,} bytes."


def check_text(name: str, text: str) -> None:
    """Reject lone surrogates, which JSON can contain but files cannot. Raises ToolError."""
    found = texts.lone_surrogate(text)
    if found:
        code, line = ord(found.group()), texts.line_at(text, found.start())
        raise ToolError(
            f"{name} has a lone surrogate, \\u{code:04x}, in line {line}: half a character. "
            "Nothing was written. Send the whole character."
        )


def check_bytes_kept(place: Place, text: str, before: str) -> None:
    """Reject a text with the characters that Read shows for invalid bytes: written to the file,
    they would replace these bytes. Raises ToolError.
    """
    if "\ufffd" in text and "\ufffd" not in before and texts.printable(before) != before:
        raise ToolError(
            f"\ufffd stands for bytes of {place.name} that are not valid UTF-8, and is not in the "
            "file. Nothing was changed."
            + place.offered.say(" Use {Edit} on the text around these bytes, which keeps them.")
        )


@dataclass(frozen=True, slots=True)
class Change:
    """A computed change of one file that is not written yet."""

    place: Place
    before: str | None  # None for a file that does not exist yet
    after: str
    form: Form
    data: bytes
    diff: Diff


@dataclass(frozen=True, slots=True)
class Replacement:
    """A new text for a part of a text."""

    start: int
    end: int
    text: str


def draft_new(place: Place, before: str | None, after: str, form: Form) -> Change:
    """Compute a change that writes a whole file. Raises ToolError."""
    data = form.bom + _encoded(place, after, form, first_line=1)
    return Change(place, before, after, form, data, texts.compare(before, after, place.name))


def draft(
    place: Place, old: bytes, before: str, parts: Sequence[Replacement], form: Form
) -> Change:
    """Compute a change of parts of a text, without writing it. All bytes outside the changed
    characters stay as they are. `parts` are sorted. Raises ToolError.
    """
    parts = [_trimmed(before, part) for part in parts]
    offsets = texts.byte_offsets(old, before, (n for p in parts for n in (p.start, p.end)), form)
    after, data = list[str](), list[bytes]()
    done = done_bytes = 0
    for part, start, end in zip(parts, offsets[::2], offsets[1::2], strict=True):
        line = texts.line_at(before, part.start)
        if not form.is_certain:
            _check_ascii(place, part.text, form, line)
            if not (_is_boundary(old, start) and _is_boundary(old, end)):
                raise ToolError(_unknown(place, form, f"a change within characters of line {line}"))
        after += [before[done : part.start], part.text]
        data += [old[done_bytes:start], _encoded(place, part.text, form, first_line=line)]
        done, done_bytes = part.end, end
    whole = "".join([*after, before[done:]])
    new = b"".join([*data, old[done_bytes:]])
    return Change(place, before, whole, form, new, texts.compare(before, whole, place.name))


def _trimmed(before: str, part: Replacement) -> Replacement:
    """Return a replacement without the characters that stay the same at both ends."""
    old, new = before[part.start : part.end], part.text
    first = texts.same_start(old, new)
    old, new = old[first:], new[first:]
    same = texts.same_start(old[::-1], new[::-1])
    return Replacement(part.start + first, part.end - same, new[: len(new) - same])


def _is_boundary(data: bytes, at: int) -> bool:
    """Return True if a character begins at this place in every encoding: the second byte of a
    character is at least 0x30.
    """
    return data[max(0, at - 1) : at] < b"\x80" or data[at : at + 1] < b"\x30"


def _encoded(place: Place, text: str, form: Form, *, first_line: int) -> bytes:
    """Encode a new text in the encoding of its file. Raises ToolError."""
    try:
        return text.encode(form.encoding, form.errors)
    except UnicodeEncodeError as error:
        line = first_line - 1 + texts.line_at(text, error.start)
        raise ToolError(
            f"{_named(text[error.start], line)} does not exist in {form.encoding}, the encoding of "
            f"{place.name}. Nothing was changed. Use other characters."
            + place.offered.say(
                (
                    " To convert the file, {Write} all of it with encoding=utf-8.",
                    " To convert the file, use iconv in {Bash}.",
                )
            )
        ) from error


def _check_ascii(place: Place, text: str, form: Form, first_line: int) -> None:
    """Reject other characters than ASCII for a file in an unknown encoding. Raises ToolError."""
    if found := _NOT_ASCII.search(text):
        line = first_line - 1 + texts.line_at(text, found.start())
        raise ToolError(_unknown(place, form, _named(found.group(), line)))


def _named(character: str, line: int) -> str:
    return f"{character} (U+{ord(character):04X}, line {line})"


def _unknown(place: Place, form: Form, what: str) -> str:
    return (
        f"The encoding of {place.name} is unknown, so only ASCII can be written to it, not {what}. "
        f"Nothing was changed. State the encoding: encoding={form.encoding} is the most likely."
    )


def apply(change: Change, context: Context) -> dict[str, Any]:
    """Write a change and return its `details`. Raises ToolError."""
    place = change.place
    with place.reporting("write"), stable_path(place.path.parent, make=True) as folder:
        edit_file(folder / place.path.name, change.data)
    return {
        "path": str(place.path),
        "created": change.before is None,
        "diff": change.diff.text,
        "added": change.diff.added,
        "removed": change.diff.removed,
        "encoding": change.form.encoding,
        "seen": context.seen.note(place.path, change.data),
    }


async def applied(
    change: Change, context: Context, report: Callable[[], str], **details: Any
) -> Output:
    """Write a change in a thread, as that waits for the disk. Return the output of the call, with
    the text of `report` and with these `details` too.

    A cancellation waits for the write. Raises ToolError, and Interrupted with the output.
    """
    writing = asyncio.ensure_future(in_thread(apply, change, context))
    interrupted = False
    while not writing.done():
        try:
            await asyncio.wait([writing])
        except asyncio.CancelledError:
            interrupted = True
    output = Output(report(), {**writing.result(), **details})
    if interrupted:
        raise Interrupted(output)
    return output


def _missing(place: Place) -> str:
    """Return a message that a file does not exist, with similar names."""
    parent, wanted = place.path.parent, place.path.name
    while not parent.is_dir() and parent != parent.parent:
        parent, wanted = parent.parent, parent.name
    what = "" if parent == place.path.parent else f" (there is no {wanted} in {parent})"
    names: dict[str, str] = {}
    with suppress(OSError), stable_path(parent) as inside:
        some = islice(os.scandir(inside), MAX_NEIGHBOURS)
        names = {entry.name.lower(): entry.name for entry in some}
    near = [
        _distinct(names[n], wanted)
        for n in difflib.get_close_matches(wanted.lower(), names, 3, 0.6)
    ]
    found = f" Near in name: {', '.join(near)}." if near else ""
    name = place.path.name
    way = place.offered.say(FIND_FILE, file=name, quoted=shlex.quote(name))
    return f"{place.name} does not exist{what}.{found}{way}"


def _distinct(name: str, wanted: str) -> str:
    """Return a name for a message; with its code points if it looks like the wanted name."""
    shown = printable(name)
    return f"{shown} ({ascii(name)[1:-1]})" if look_of(name) == look_of(wanted) else shown
