"""Find, open, read and replace files for Read, Write and Edit.

Only regular files are opened, so that no call can hang on a FIFO or a device. A change is worked
out first, as a `Change`, and then made in one step: until the new file stands in its place, whole
and on disk, the old one is untouched. Whatever goes wrong is a `ToolError` that names the file.
"""

import asyncio
import difflib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from ..agent.errors import ToolError
from ..agent.lazy import dataclass
from . import text as texts
from .base import Context, Interrupted, Output
from .system.files import edit_file
from .system.process import MISSING_CWD
from .system.safe_open import entered, open_regular
from .text import Diff, Form, NotText

MAX_FILE_BYTES = 16 * 1024 * 1024  # bytes of a file that is taken in whole
ELSEWHERE = "{name} leads elsewhere since it was looked at. Nothing was done. Call it again."
MAX_NEIGHBOURS = 5_000  # names that a missing one is compared with

_SPECIAL = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """A file that a call names."""

    name: str  # for people and the model
    path: Path  # with links resolved, as it was judged
    is_moved: bool = False  # it is a session's own file, which only its commands find by this name

    @contextmanager
    def reporting(self, doing: str) -> Iterator[None]:
        """Turn an OSError into a ToolError that names the file and the reason."""
        try:
            yield
        except OSError as error:
            if error.errno == errno.ELOOP and not _in_a_circle(self.path):
                raise ToolError(ELSEWHERE.format(name=self.name), path=str(self.path)) from error
            reason = error.strerror or str(error)
            raise ToolError(
                f"Could not {doing} {self.name}: {reason}. Nothing was changed. Look at it with "
                "ls -ld in Bash.",
                path=str(self.path),
            ) from error


def locate(context: Context, path: str) -> Place:
    """Return where a path leads: where it led when the call was judged.

    The file need not exist, but the project must: a file in a project that was moved away would be
    a new project in its old place. Raises ToolError.
    """
    try:
        named = context.resolve(path)
        if named.is_relative_to(context.cwd) and not context.cwd.is_dir():
            raise ToolError(MISSING_CWD.format(cwd=context.cwd))
        path = context.judged or os.path.realpath(named)
        moved = context.sandbox.moved(os.path.realpath(named)) if context.sandbox else ""
        return Place(context.shown(named), Path(path), path == moved != os.path.realpath(named))
    except OSError as error:  # a link that is exchanged for a file just then cannot be followed
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
    """Open the regular file at a place for reading. Raises ToolError."""
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
    """Yield a path of the directory at a place, in whose place no other can be put as long as the
    block lasts. Raises ToolError for what is no directory, or not there."""
    with ExitStack() as stack:
        with place.reporting("search"):
            try:
                inside = stack.enter_context(entered(place.path))
            except (FileNotFoundError, NotADirectoryError) as error:
                raise ToolError(_missing(place), path=str(place.path)) from error
        yield inside


def _in_a_circle(path: Path) -> bool:
    """Return True if links lead from one to the other without an end."""
    try:
        os.path.realpath(path, strict=True)
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def check_regular(place: Place, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise ToolError(f"{place.name} is a directory. List it with Glob, or with ls in Bash.")
    special = next((name for test, name in _SPECIAL if test(mode)), None)
    if special:
        raise ToolError(f"{place.name} is {special}, not a file. Bash can work with it.")


def contents(place: Place) -> bytes:
    """Return all bytes of a file. Raises ToolError for one of more than MAX_FILE_BYTES."""
    with opened(place) as file:
        data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            size = os.fstat(file.fileno()).st_size
            raise ToolError(
                f"{place.name} has {size:,} bytes; at most {MAX_FILE_BYTES:,} can be edited here. "
                "Use Bash (sed, awk or a script)."
            )
    return data


def decoded(place: Place, data: bytes) -> tuple[str, Form]:
    try:
        return texts.decode(data)
    except NotText:
        raise ToolError(f"{binary(place, data, len(data))} Use Bash to change it.") from None


def binary(place: Place, start: bytes, size: int) -> str:
    return f"{place.name} is binary, not text: {texts.kind(start) or 'data'}, {size:,} bytes."


def encoded(place: Place, text: str, form: Form) -> bytes:
    """Return the bytes of a text in a file's own encoding. Raises ToolError."""
    try:
        return texts.encode(text, form)
    except UnicodeEncodeError as error:
        character = text[error.start]
        line = texts.line_at(text, error.start)
        raise ToolError(
            f"{character} (U+{ord(character):04X}, line {line}) does not exist in {form.encoding},"
            f" the encoding of {place.name}. Use other characters, or first convert the file:"
            f" iconv -f {form.encoding} -t utf-8."
        ) from error


def check_text(name: str, text: str) -> None:
    """Refuse half characters, which JSON can carry and no file can. Raises ToolError."""
    found = texts.lone_surrogate(text)
    if found:
        code, line = ord(found.group()), texts.line_at(text, found.start())
        raise ToolError(
            f"{name} has a lone surrogate, \\u{code:04x}, in line {line}: half a character. "
            "Nothing was written. Send the whole character."
        )


@dataclass(frozen=True, slots=True)
class Change:
    """What a call makes of one file, worked out and not yet written."""

    place: Place
    before: str | None  # None for a file that does not exist yet
    after: str
    form: Form
    data: bytes
    diff: Diff


def draft(place: Place, before: str | None, after: str, form: Form) -> Change:
    """Work a change out; nothing is written. Raises ToolError."""
    data = encoded(place, after, form)
    return Change(place, before, after, form, data, texts.compare(before, after, place.name))


def apply(change: Change, context: Context) -> dict[str, Any]:
    """Write a change and return its `details`. Raises ToolError."""
    place = change.place
    with place.reporting("write"), entered(place.path.parent, make=True) as folder:
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
    writing = asyncio.ensure_future(asyncio.to_thread(apply, change, context))
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
    """Say that a file does not exist, with the nearest names there are."""
    parent, wanted = place.path.parent, place.path.name
    while not parent.is_dir() and parent != parent.parent:
        parent, wanted = parent.parent, parent.name
    what = "" if parent == place.path.parent else f" (there is no {wanted} in {parent})"
    names: dict[str, str] = {}
    with suppress(OSError), entered(parent) as inside:
        some = islice(os.scandir(inside), MAX_NEIGHBOURS)
        names = {entry.name.lower(): entry.name for entry in some}
    near = [names[n] for n in difflib.get_close_matches(wanted.lower(), names, 3, 0.6)]
    found = f" Near in name: {', '.join(near)}." if near else ""
    return f"{place.name} does not exist{what}.{found} Glob **/{place.path.name} searches for it."
