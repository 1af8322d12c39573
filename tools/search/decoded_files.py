"""Decide on the encodings of the files of a search that are not UTF-8, as Read does."""

import os
from collections.abc import Iterable, Iterator

from ..project_encodings import ProjectEncodings
from ..system.process import unnamed_file
from ..system.safe_open import open_regular
from ..text import CHUNK_BYTES, Form, NotText, recognise
from .request import DecodedFile, OpenText, Search

MAX_WHOLE_BYTES = 16 * 1024 * 1024  # as in Read; of a larger file, the first bytes are judged
MAX_DECODED_BYTES = 1 << 28  # of one file; the rest is not searched
MAX_OPEN_FILES, MAX_OPEN_BYTES = 200, 1 << 25  # in one run of ripgrep


# The certain forms of files, by path, size, time of the last change and stated encoding.
_KNOWN: dict[tuple[str, int, int, str], Form] = {}
MAX_KNOWN = 50_000


def decoded_files(search: Search, paths: Iterable[str]) -> list[DecodedFile]:
    """Return those of the files that are text in another encoding than UTF-8. Blocks."""
    project = ProjectEncodings()
    found: list[DecodedFile] = []
    for path in paths:
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
    Blocks.
    """
    texts, size = list[OpenText](), 0
    while len(texts) < MAX_OPEN_FILES and size < MAX_OPEN_BYTES and (file := next(waiting, None)):
        try:
            with os.fdopen(open_regular(search.root / file.path), "rb") as source:
                data = source.read(MAX_DECODED_BYTES)[file.bom_bytes :]
        except OSError:  # it was removed or exchanged
            continue
        text = data.decode(file.encoding, "replace").encode("utf-8", "replace")
        texts.append(OpenText(file.path, unnamed_file(text)))
        size += len(text)
    return texts
