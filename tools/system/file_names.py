"""Find a file whose name looks like another name: with composed or decomposed accents, or with
bytes that are not UTF-8 and are shown as U+FFFD.
"""

import os
import unicodedata
from contextlib import suppress
from itertools import islice

from .project_files import printable

MAX_COMPARED_NAMES = 5_000  # of one folder


def spelled_on_disk(path: str) -> str:
    """Return an absolute path with the names of existing files that look the same. A part of the
    path without a file, or with several such files, stays as it is.
    """
    if path.isascii() or os.path.lexists(path):
        return path
    found = ""
    for part in path.removeprefix("/").split("/"):
        is_there = os.path.lexists(f"{found}/{part}")
        found = f"{found}/{part if is_there else _same_look(found or '/', part)}"
    return found


def _same_look(folder: str, wanted: str) -> str:
    """Return the only name in a folder that looks like the wanted one, else the wanted one."""
    names = list[str]()
    with suppress(OSError, ValueError), os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, MAX_COMPARED_NAMES)]
    same = [name for name in names if look_of(name) == look_of(wanted)]
    return same[0] if len(same) == 1 else wanted


def look_of(name: str) -> str:
    """Return the same text for all names that look the same."""
    return unicodedata.normalize("NFC", printable(name))
