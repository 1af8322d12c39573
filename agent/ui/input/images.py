"""Images from the clipboard, and image files dropped on the terminal.

A terminal cannot pass on an image. A dropped file arrives as a paste of its shell-quoted path; the
clipboard is read by a desktop program.
"""

import hashlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ....tools import image as images
from ....tools.system.files import make_private_folder, write_private
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
