"""The edits of a session as a page lists them."""

from collections.abc import Iterator

from ..lazy import dataclass
from ..session.entries import Entry, Mask, Summary, ToolResult, User
from .history import acts, readable_trigger
from .layers.known import done_by


@dataclass(frozen=True, slots=True)
class ListedEdit:
    """An edit of a session's requests."""

    seq: int
    at: str
    call: int  # number of the first call after the edit
    layer: str
    what: str
    reason: str
    before: int  # tokens of the context, or of a text moved to a file
    after: int
    can_undo: bool
    is_undone: bool = False


def listed_edits(entry: Entry, call: int) -> Iterator[ListedEdit]:
    """Yield the edit that an entry records, before the call with this number."""
    if isinstance(entry, ToolResult | User):
        what = f"{'result' if isinstance(entry, ToolResult) else 'message'} moved to a file"
    elif isinstance(entry, Mask):
        what = done_by(entry.layer, len(entry.targets))
    elif isinstance(entry, Summary):
        what = f"summary of {entry.span}"
    else:
        return
    for act in acts([entry]):
        yield ListedEdit(
            seq=act.seq,
            at=act.at,
            call=call,
            layer=act.layer,
            what=what,
            reason=readable_trigger(act.trigger),
            before=act.before,
            after=act.after,
            can_undo=isinstance(entry, Mask | Summary),
        )
