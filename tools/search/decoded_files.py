"""Decide on the encodings of the files of a search that are not UTF-8, as Read does."""

import codecs
import errno
import os
import time
from collections.abc import Iterator
from typing import IO

from ..project_encodings import ProjectEncodings
from ..system.descriptors import has_spare_descriptors
from ..system.process import unnamed_file
from ..system.safe_open import open_regular
from ..text import CHUNK_BYTES, Form, NotText, recognise
from .request import DecodedFile, OpenText, Search

MAX_WHOLE_BYTES = 16 * 1024 * 1024  # as in Read; of a larger file, the first bytes are judged
MAX_DECODED_BYTES = 1 << 28  # of one file; the rest is not searched
MAX_OPEN_FILES, MAX_OPEN_BYTES = 200, 1 << 25  # in one run of ripgrep
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC)


# The certain forms of files, by path, size, time of the last change and stated encoding.
_KNOWN: dict[tuple[str, int, int, str], Form] = {}
MAX_KNOWN = 50_000


def decoded_files(search: Search, paths: Iterator[str], end: float) -> list[DecodedFile]:
    """Return those of the files that are text in another encoding than UTF-8. Blocks. Takes no more
    paths from the time `end` of the monotonic clock on.
    """
    project = ProjectEncodings()
    found: list[DecodedFile] = []
    while time.monotonic() < end and (path := next(paths, "")):
        try:
            form = _form(search, path, project)
        except (OSError, NotText):  # such a file is searched as it is
            continue
        if form.encoding != "utf-8":
            found.append(DecodedFile(path, form.encoding, len(form.bom)))
    return found


def _form(search: Search, path: str, project: ProjectEncodings) -> Form:
    """Return the form of a file. Raises OSError, and NotText."""
    evidence = project.evidence(search.root / path)
    with os.fdopen(open_regular(search.root / path), "rb") as file:
        found = os.fstat(file.fileno())
        key = str(search.root / path), found.st_size, found.st_mtime_ns, evidence.stated
        if key in _KNOWN:
            return _KNOWN[key]
        data, size = file.read(CHUNK_BYTES), found.st_size
        if size <= MAX_WHOLE_BYTES and not is_binary(data):
            data += file.read()
    whole = size == len(data)
    form = recognise(data, whole=whole, evidence=evidence)
    if form.is_certain and len(_KNOWN) < MAX_KNOWN:
        _KNOWN[key] = form
    return form


def is_binary(start: bytes) -> bool:
    """Return True if the first bytes show that a file is not text."""
    if b"\0" not in start:
        return False
    try:
        recognise(start, whole=False)
    except NotText:
        return True
    return False


def open_decoded(search: Search, waiting: Iterator[DecodedFile]) -> list[OpenText]:
    """Return the texts of the next files that can be read, as many as one run of ripgrep searches.
    Blocks. Raises OSError if there is no descriptor or no room for a text.
    """
    texts, size = list[OpenText](), 0
    while _has_room(len(texts), size) and (file := next(waiting, None)):
        try:
            with os.fdopen(open_regular(search.root / file.path), "rb") as source:
                text = unnamed_file(b"")
                size += _decode(source, file, text)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise
            continue  # it was removed or exchanged
        texts.append(OpenText(file.path, text))
    return texts


def _has_room(files: int, size: int) -> bool:
    """Return True if a run of ripgrep with this many files and bytes can have one more."""
    if not files:
        return True
    return files < MAX_OPEN_FILES and size < MAX_OPEN_BYTES and has_spare_descriptors(2)


def _decode(source: IO[bytes], file: DecodedFile, text: IO[bytes]) -> int:
    """Write the text of a file as UTF-8, in parts. Return its bytes."""
    decoder = codecs.getincrementaldecoder(file.encoding)("replace")
    source.seek(file.bom_bytes)
    while data := source.read(min(CHUNK_BYTES, MAX_DECODED_BYTES - source.tell())):
        text.write(decoder.decode(data).encode("utf-8", "replace"))
    text.write(decoder.decode(b"", final=True).encode("utf-8", "replace"))
    size = text.tell()
    text.seek(0)
    return size
