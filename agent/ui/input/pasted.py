"""Long texts and images in the input, each shown as a short mark, so that typing stays fast.

The mark is replaced by the full text when it is sent, edited elsewhere or saved in the history. For
an image, the full text is the mention of its file.

A terminal cannot pass on an image. A dropped file arrives as a paste of its shell-quoted path; a
desktop program reads the clipboard.
"""

import hashlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ....tools import image as images
from ....tools.system.files import make_private_folder, write_private
from ....tools.system.phrasing import count_of
from ....tools.system.programs import program
from ...errors import CtxagentError
from ...lazy import regex
from .completion import mention_of

CLIPBOARD_TIMEOUT_S = 5.0
MAX_DROPPED_CHARS = 8_000  # longest paste that is checked for paths
MAX_DROPPED_FILES = 20
KEPT_DAYS = 30  # lifetime of clipboard files; sessions keep what was sent

_HEAD_BYTES = 32  # enough to detect the image format
_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp", "image/tiff")
PASTE_HINT = "Text is pasted with the terminal's own key, often Ctrl-Shift-V."
_APPLE_SCRIPT = b"get the clipboard as \xc2\xabclass PNGf\xc2\xbb".decode()  # printed in hex
_APPLE_DATA = regex(rb"PNGf([0-9A-F]+)")


def mentions_of_dropped(text: str, cwd: Path) -> str:
    """Return `@` mentions if a paste consists of paths of image files, else "". Blocks briefly."""
    text = text.strip()
    if not text or len(text) > MAX_DROPPED_CHARS or text[0] not in "/~'\"\\f":
        return ""
    try:
        names = shlex.split(text)
    except ValueError:
        return ""
    whole = Path(text)  # an unquoted path with spaces
    paths = [whole] if _is_image(whole) else [_path_of(name) for name in names[:MAX_DROPPED_FILES]]
    if len(names) > MAX_DROPPED_FILES or not all(_is_image(path) for path in paths):
        return ""
    return " ".join(mention_of(_shortest(path, cwd)) for path in paths)


def _path_of(name: str) -> Path:
    if name.startswith("file://"):
        return Path(unquote(urlsplit(name).path))
    with suppress(RuntimeError):  # the home of an unknown user
        return Path(name).expanduser()
    return Path(name)


def _is_image(path: Path) -> bool:
    try:
        if not path.is_absolute() or not path.is_file():
            return False
        with path.open("rb") as file:
            return bool(images.format_of(file.read(_HEAD_BYTES)))
    except (OSError, ValueError):
        return False


def _shortest(path: Path, cwd: Path) -> str:
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


def save_clipboard_image(folder: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Write the clipboard's image to a file in `folder`, named by its content hash, and return its
    path. Blocks. Raises CtxagentError if there is no image or no program to read it.
    """
    data = _clipboard(environ)
    format = images.format_of(data)
    if not format:
        raise CtxagentError("there is no image in the clipboard", hint=PASTE_HINT)
    path = folder / f"{hashlib.sha256(data).hexdigest()[:16]}.{format.lower()}"
    try:
        make_private_folder(folder)
        oldest = time.time() - KEPT_DAYS * 86_400
        for other in folder.iterdir():
            if other.lstat().st_mtime < oldest:
                other.unlink()
        write_private(path, data)
    except OSError as error:
        why = f"the image cannot be saved in {folder}: {error.strerror}"
        raise CtxagentError(why, hint="Save it to a file, and attach the file with @.") from None
    return path


def _clipboard(environ: Mapping[str, str]) -> bytes:
    """Return the image in the clipboard, b"" if there is none. Raises CtxagentError."""
    search = environ.get("PATH")
    if environ.get("WAYLAND_DISPLAY") and (reader := program("wl-paste", search)):
        there = _output([reader, "--list-types"], environ)
        return _of_type([reader, "--no-newline", "--type"], there, environ)
    if environ.get("DISPLAY") and (reader := program("xclip", search)):
        reads = [reader, "-selection", "clipboard", "-out", "-target"]
        return _of_type(reads, _output([*reads, "TARGETS"], environ), environ)
    if sys.platform == "darwin" and (reader := program("osascript", search)):
        found = _APPLE_DATA.search(_output([reader, "-e", _APPLE_SCRIPT], environ))
        return bytes.fromhex(found[1].decode()) if found else b""
    raise CtxagentError(
        "no program to read the clipboard is installed",
        hint="Install wl-clipboard (Wayland) or xclip (X11), or name a file with @.",
    )


def _of_type(command: Sequence[str], types: bytes, environ: Mapping[str, str]) -> bytes:
    there = types.decode("utf-8", "replace").split()
    chosen = next((each for each in _TYPES if each in there), "")
    return _output([*command, chosen], environ) if chosen else b""


def _output(command: Sequence[str], environ: Mapping[str, str]) -> bytes:
    """Return the output of a program, b"" if it fails. Raises CtxagentError."""
    try:
        done = subprocess.run(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=CLIPBOARD_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        why = f"the clipboard did not answer in {CLIPBOARD_TIMEOUT_S:.0f} s"
        raise CtxagentError(why, hint=PASTE_HINT) from None
    except OSError as error:
        why = f"the clipboard cannot be read: {error.strerror}"
        raise CtxagentError(why, hint=PASTE_HINT) from None
    return b"" if done.returncode else done.stdout


MAX_PASTED_LINES, MAX_PASTED_CHARS = 20, 2_000  # longer pastes are shown as marks
MAX_TEXT_CHARS, MAX_LINE_CHARS = 100_000, 5_000  # any longer text is shown as a mark
MARK_TEXT_CHARS = 24  # shown of the text's beginning

_MARK = regex(r"\[(?:text|image) (\d+), [^\n\]]*\]")
_MARK_LENGTH = 100  # longest mark


class PastedTexts:
    """The texts behind the marks, by the number in the mark. Thread-safe."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[str, str]] = {}  # mark and text
        self._numbers = count(1)

    def paste(self, text: str) -> str:
        """Return the input's form of a pasted text: the text, or a mark if it is long."""
        long = text.count("\n") >= MAX_PASTED_LINES or len(text) > MAX_PASTED_CHARS
        return self._add_mark(text) if long else text

    def add_image(self, mention: str, about: str) -> str:
        """Return a mark for an image file; `about` describes the image."""
        number = str(next(self._numbers))
        mark = f"[image {number}, {about}]"
        self._texts[number] = mark, mention
        return mark

    def fold(self, message: str) -> str:
        """Replace known long texts by their marks. If the result is still too long for fast typing,
        return one mark for all of it.
        """
        for mark, text in list(self._texts.values()):
            message = message.replace(text, mark)
        longest = max(map(len, message.split("\n")))
        slow = len(message) > MAX_TEXT_CHARS or longest > MAX_LINE_CHARS
        return self._add_mark(message) if slow else message

    def unfold(self, message: str) -> str:
        """Replace every mark by its text. A mark that was edited or is unknown stays unchanged."""
        return _MARK.sub(lambda found: self._text_of(found) or found[0], message)

    def mark_length_at_end(self, message: str) -> int:
        """Return the length of the mark at the end of the text, 0 if there is none."""
        for found in _MARK.finditer(message, max(0, len(message) - _MARK_LENGTH)):
            if found.end() == len(message) and self._text_of(found):
                return len(found[0])
        return 0

    def _add_mark(self, text: str) -> str:
        lines = text.count("\n") + 1
        size = f"{lines:,} lines" if lines > 1 else count_of(len(text), "character")
        begins = " ".join(text[: 4 * MARK_TEXT_CHARS].replace("]", " ").split())[:MARK_TEXT_CHARS]
        number = str(next(self._numbers))
        mark = f"[text {number}, {size}: {begins}…]"
        self._texts[number] = mark, text
        return mark

    def _text_of(self, found: re.Match[str]) -> str:
        mark, text = self._texts.get(found[1], ("", ""))
        return text if mark == found[0] else ""
