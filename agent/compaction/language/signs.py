"""Tell a message that only says to go on, in English."""

import re

from .words import MAX_TEXT_CHARS, paths_in

__all__ = ["paths_in", "says_go_on"]

_GO_ON = {
    "please", "yes", "ok", "okay", "continue", "proceed", "go", "on", "ahead", "keep", "going",
    "carry", "resume",
}  # fmt: skip


def says_go_on(words: str) -> bool:
    """Return True if a message only says to continue."""
    said = re.findall(r"\w+", words[:MAX_TEXT_CHARS].lower())
    return bool(said) and _GO_ON.issuperset(said)
