"""Decide on the encodings of the files of a search that are not UTF-8, as Read does."""

import os
from collections.abc import Iterable

from ..project_encodings import ProjectEncodings
from ..system.safe_open import open_regular
from ..text import CHUNK_BYTES, Form, NotText, recognise
from .request import DecodedFile, Search

MAX_WHOLE_BYTES = 16 * 1024 * 1024  # as in Read; of a larger file, the first bytes are judged


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
