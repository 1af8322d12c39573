"""Moving: a text too large to send goes to a file of the session, a reference takes its place.

What is too large, and how the reference reads, is planned purely in `demote`.
"""

from dataclasses import replace
from datetime import datetime
from pathlib import Path

from ..record.archive import offload
from . import demote
from .policy import Policy

WORDS_SHARE = 4  # of the window: what the words of a person may fill of it, as its part
PREVIEW_SHARE = 20  # of the window: the characters that are shown of longer ones


def moved(
    text: str, *, tool: str, seq: int, folder: Path, policy: Policy, room: int | None = None
) -> tuple[demote.Demotion, str] | None:
    """The reference, once the text is in a file, whose path under the session's `folder` it comes
    with; None where the text may stay. `seq` names the file; `room` are the tokens that a result
    of the tool may have, where that is less than usual. Raises OSError."""
    path = folder / "offloaded" / demote.name(tool, seq, datetime.now())
    if room is None:
        plan = demote.plan(text, path=str(path), policy=policy)
    else:
        plan = demote.bounded(text, path=str(path), policy=policy, room=room)
    if plan is None:
        return None
    offload(path, text)
    return plan, str(path.relative_to(folder))


def words(text: str, *, size: int, seq: int, folder: Path, policy: Policy) -> str:
    """The words of a person, or the reference to a file that holds them when they would fill a
    quarter of a window of `size` tokens. Raises OSError."""
    most = replace(policy, demote_above=size // WORDS_SHARE, preview_chars=size // PREVIEW_SHARE)
    found = moved(text, tool="words", seq=seq, folder=folder, policy=most)
    return text if found is None else found[0].reference
