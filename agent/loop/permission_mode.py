"""Announce changes of the permission mode to the model, with a notice before the next message."""

import re
from typing import TYPE_CHECKING

from ...tools.offered import EVERY, Offered
from ..lazy import regex

if TYPE_CHECKING:
    from ..config.settings import PermissionMode
    from ..context.view import View
    from .live_session import LiveSession

MEANINGS: "dict[PermissionMode, str]" = {
    "ask": "looking is free, the user is asked about everything else",
    "accept-edits": "files of the project may be edited too, the user is asked about the rest",
    "sandboxed": "files of the project may be edited, and commands run unasked where the sandbox "
    "confines them: they write to the project and temporary files, without a network; the user is "
    "asked about the rest",
    "plan": "change nothing; look around, then propose a plan",
    "bypass": "nothing is asked, all that no rule denies may be done",
}
_WITH_PLAN = " with {Plan}"
# In a notice of the program, or in the entry after a summary (`prompt.entry_after_summary`).
_MODE_NOTICE = regex(
    r"(?:The permission mode is now|After the compression,.*^Permission mode:) ([a-z-]+)",
    re.MULTILINE | re.DOTALL,
)


def announce_mode(session: "LiveSession", last_mode: str) -> None:
    """Record a notice for the model if the mode has changed since the last announcement.

    If the view names no mode, `last_mode`, the mode of the model's newest turn, is used. Raises
    RecordError.
    """
    from ..session.entries import User

    now = session.approval.mode
    if session.view.items and now != (announced_mode(session.view) or last_mode):
        session.record(User(content=mode_notice(now, session.context.offered), source="notice"))


def mode_notice(mode: "PermissionMode", offered: Offered = EVERY) -> str:
    return f"The permission mode is now {mode}: {meaning(mode, offered)}."


def meaning(mode: "PermissionMode", offered: Offered) -> str:
    """Return what a mode means for the model."""
    return MEANINGS[mode] + (offered.say(_WITH_PLAN) if mode == "plan" else "")


def announced_mode(view: "View") -> str | None:
    """Return the last mode that the view names; None if it names none."""
    for item in reversed(view.items):
        for block in item.blocks if item.role == "user" else ():
            if found := _MODE_NOTICE.match(str(block.get("text", ""))):
                return found[1]
    return None
