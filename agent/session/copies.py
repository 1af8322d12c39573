"""Check a log against its copies before it is opened for writing.

A damaged log must not overwrite a copy of what it lost. An intact log costs one `stat`, the text of
its last entry and the head of the newest checkpoint.
"""

import re
from collections.abc import Reversible, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...tools.system.files import open_kept
from ..errors import LogDamaged
from ..lazy import regex
from .conversation import CONVERSATION_NAME, compare, conversation_texts, missing_texts, size_of
from .entries import Entry

CHECKPOINTS_FOLDER = "checkpoints"
MAX_NAMED_ENTRIES = 5
_HEAD_BYTES = 4_096  # of a checkpoint; its seq is before the state that it saves
_CHECKPOINT_NAME = regex(r"(\d{1,18})\.json")
_SEQ = regex(rb'^ "seq": (\d{1,15}),$', re.MULTILINE)


class LogScan(NamedTuple):
    """The facts about a log that its readers collect."""

    entries: int = 0  # number of entries
    highest: int = 0  # the largest seq
    warnings: Sequence[str] = ()
    conversation_bytes: int = 0  # of the texts of all entries
    in_order: bool = True  # each seq is larger than all before it
    cached_entries: int = 0  # number of entries according to a cache that does not match the log


def check_copies(
    log: Path, entries: Reversible[Entry], scan: LogScan, *, is_torn: bool = False
) -> list[bytes] | None:
    """Raise LogDamaged if a copy has more than the log. Return the texts that `conversation.md`
    lacks at its end, or None if it must be rewritten.

    `is_torn`: the log ends with an incomplete line. This is normal after a crash, so the copies may
    have the entry of this line.
    """
    found = list[str]()
    if scan.cached_entries > scan.entries + is_torn:
        found.append(f"it has {scan.entries:,} entries, and its cache {scan.cached_entries:,}")
    if (newest := newest_checkpoint(log.parent)) and newest[1] > scan.highest:
        path, seq = newest
        found.append(f"it ends at #{scan.highest}, and {path} was made at #{seq}")
    missing, path = None, log.with_name(CONVERSATION_NAME)
    with suppress(OSError):
        if size_of(path) and scan.in_order:
            missing = missing_texts(path, entries, scan.conversation_bytes)
        if size_of(path) and missing is None:
            found += _lost_text(path, entries, scan, is_torn=is_torn)
    if found:
        raise LogDamaged(log, found)
    return missing


def newest_checkpoint(folder: Path) -> tuple[Path, int] | None:
    """Return the checkpoint with the largest number, and the newest seq at that time. Return None
    if there is none or it cannot be read.
    """
    with suppress(OSError):
        places = [*(folder / CHECKPOINTS_FOLDER).iterdir()]
        named = [(int(m[1]), p) for p in places if (m := _CHECKPOINT_NAME.fullmatch(p.name))]
        if named:
            path = max(named)[1]
            with open_kept(path) as file:
                if seq := _SEQ.search(file.read(_HEAD_BYTES)):
                    return path, int(seq[1])
    return None


def _lost_text(
    path: Path, entries: Reversible[Entry], scan: LogScan, *, is_torn: bool
) -> list[str]:
    """Return what `conversation.md` has and the log does not. Raises OSError."""
    found = compare(path, conversation_texts(entries))
    if found.lost and not (is_torn and found.lost == {scan.highest + 1}):
        refs = [f"#{seq}" for seq in sorted(found.lost)]
        more = f" and {len(refs) - MAX_NAMED_ENTRIES:,} more" * (len(refs) > MAX_NAMED_ENTRIES)
        return [f"it lacks {', '.join(refs[:MAX_NAMED_ENTRIES])}{more}, which {path} has"]
    return [] if found.in_order else [f"its entries are in another order than in {path}"]
