"""The permission mode as the model is told of it: by a notice before the next words, whenever it
is another than the newest one that stands in the view."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..approval import Mode
    from ..context.view import View
    from ..loop import Loop

MEANINGS: "dict[Mode, str]" = {
    "ask": "looking is free, the user is asked about everything else",
    "accept-edits": "files of the project may be edited too, the user is asked about the rest",
    "plan": "change nothing; look around, then present a plan",
    "bypass": "nothing is asked, all that no rule denies may be done",
}
# In a notice of ours, or in what stands after a summary (`prompt.renewal`).
_NAMED = re.compile(
    r"(?:The permission mode is now|After the compression,.*^Permission mode:) ([a-z-]+)",
    re.MULTILINE | re.DOTALL,
)


def tell(loop: "Loop", then: str) -> None:
    """Record for the model that the mode is another than it knows of. `then` is the mode of its
    newest turn, which counts where the view names none. Raises RecordError."""
    from ..record.entries import User

    now = loop.approval.mode
    if loop.view.items and now != (named(loop.view) or then):
        loop.record(User(content=notice(now), source="notice"))


def notice(mode: "Mode") -> str:
    return f"The permission mode is now {mode}: {MEANINGS[mode]}."


def named(view: "View") -> str | None:
    """The mode that the view names last, None when it names none."""
    for item in reversed(view.items):
        for block in item.blocks if item.role == "user" else ():
            if found := _NAMED.match(str(block.get("text", ""))):
                return found[1]
    return None
