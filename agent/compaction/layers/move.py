"""Move an oversized result to a file before it is first sent, and leave a reference.

The reference has the path, the tokens saved, a preview and the names that the text has most often.
The preview shows the beginning and the end of the text, where errors and totals are, or only the
beginning (policy).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ....tools.base import FiledOutput
from ....tools.offered import EVERY, Offered, Phrase
from ....tools.system.phrasing import cut_after
from ....tools.text import count_lines
from ...context.items import ViewResult
from ...context.tokens import estimate
from ...lazy import dataclass
from ...session.archive import RECALLED, offload
from ...session.entries import MOVE
from ...session.user_messages import PREVIEW_MARK
from ..policy import Policy
from ..words import frequent_names
from .layer import Layer, LayerState, Pass, stub_target

MESSAGE_LIMIT_FACTOR = 3  # limit for all results of a message, as a multiple of one result's limit
MAX_WORDS_SHARE = 0.25  # of the window, for one user message
OVERSIZE_GATE = "HOOK-CTX-001"  # recorded name of the size check of a result
MAX_NAMES_TOKENS = 320  # of the line with the names in a text
PREVIEW_CHARS_PER_NAME_TOKEN = 12  # a short preview has few names
PREVIEW_CHARS_SHARE = 0.05  # characters of a user message's preview per token of the window


_TITLE = "## Offloaded Content Reference"
_FILE = "**File:** "
_CONTENT = "*Full content: "
_WAYS: Phrase = (
    "{Read} this file with offset and limit, or {Grep} it for what you need.*",
    "{Read} this file with offset and limit.*",
    "{Grep} this file for what you need.*",
    "sed -n or grep in {Bash} shows parts of this file.*",
    "this file has it.*",
)


@dataclass(frozen=True, slots=True)
class MovedText:
    """The reference in place of a text that was moved to a file."""

    reference: str  # the text for the model
    saved: int  # estimated tokens


def file_name(tool: str, seq: int, at: datetime) -> str:
    """Return the name of the file of a moved result: `<time>_<tool>_<seq>.md`."""
    return f"{at:%Y%m%d_%H%M%S}_{tool}_{seq}.md"


def plan(
    text: str,
    *,
    path: str,
    policy: Policy,
    tool: str = "",
    filed: FiledOutput | None = None,
    offered: Offered = EVERY,
) -> MovedText | None:
    """Return the reference to `text` at `path`; None if the text is small enough to stay.

    `tool` selects the size limit. `filed` describes the whole text if `text` is only a part of it.
    """
    tokens, lines, characters = estimate(text), count_lines(text), len(text)
    cut: tuple[str, ...] = ()
    if filed is not None:
        tokens = tokens * max(filed.characters, characters) // max(1, characters)
        lines, characters = filed.lines, filed.characters
        cut = (f"**Kept in Part:** it {filed.file.cut}",) if filed.file.cut else ()
    limit = policy.moves_above(tool)
    if limit is None or tokens <= limit:
        return None
    if policy.preview_lines is not None:
        which, preview = _first_lines(text, policy.preview_lines, policy.preview_chars)
    elif policy.preview_end:
        which, preview = _both_ends(text, policy.preview_chars)
    else:
        beginning = text[: policy.preview_chars]
        which, preview = "the beginning", f"{beginning}...".split("\n")
    reference = "\n".join(
        (
            _TITLE,
            f"{_FILE}{path}",
            f"**Tokens Saved:** {tokens - sum(map(estimate, preview)):,}",
            *cut,
            f"**Preview:** {which} of {lines:,} lines, {characters:,} characters",
            *(f"{PREVIEW_MARK}{line}" for line in preview),
            *_names(text, policy, preview),
            "",
            _CONTENT + offered.say(_WAYS),
        )
    )
    saved = tokens - estimate(reference)
    return MovedText(reference, saved) if saved > 0 else None


def plan_within(
    text: str,
    *,
    path: str,
    policy: Policy,
    room: int,
    tool: str = "",
    offered: Offered = EVERY,
) -> MovedText | None:
    """Plan a reference of at most `room` tokens with as much of the text as fits."""
    room = min(room, policy.moves_above(tool) or room)
    found = None
    for chars in (3 * room, room, 0):
        short = replace(policy.moving_above(room), preview_chars=chars, preview_lines=None)
        found = plan(text, path=path, policy=short, offered=offered)
        if found is None or estimate(found.reference) <= room:
            break
    return found


def is_reference(text: str) -> bool:
    """Return True if a text is the reference to a file."""
    return text.startswith(_TITLE)


def without_preview(reference: str) -> str:
    """Return a reference without its preview of the text."""
    return "\n".join(line for line in reference.split("\n") if not line.startswith(PREVIEW_MARK))


def without_file(reference: str) -> str:
    """Return a reference that does not name the file."""
    lines = reference.split("\n")
    return "\n".join(line for line in lines if not line.startswith((_FILE, _CONTENT)))


def _names(text: str, policy: Policy, preview: Sequence[str]) -> Iterator[str]:
    """Yield the line of names that the text has most often, which the model may search for. The
    published presets have none.
    """
    room = min(MAX_NAMES_TOKENS, policy.preview_chars // PREVIEW_CHARS_PER_NAME_TOKEN)
    if not policy.preview_end or policy.preview_lines is not None:
        return
    if names := frequent_names(text, room, known="\n".join(preview)):
        yield f"**Frequent Names:** {', '.join(names)}"


def _first_lines(text: str, count: int, chars: int) -> tuple[str, list[str]]:
    """Return a label and the first `count` lines, each cut to an equal share of the characters."""
    longest = chars // count
    lines = text.removesuffix("\n").split("\n", count)[:count]
    cut = [cut_after(line, longest) for line in lines]
    return f"the first {len(lines)}", cut


def _both_ends(text: str, chars: int) -> tuple[str, list[str]]:
    """Return a label and half of the characters from each end, in whole lines if possible."""
    half = min(chars, len(text)) // 2
    if not half:
        return "none", []
    head, tail = text[:half], text[-half:]
    end, start = head.rfind("\n"), tail.find("\n")
    if end > half // 2:
        head = head[:end]
    if 0 <= start < half // 2:
        tail = tail[start + 1 :]
    return "the beginning and the end", [*head.split("\n"), "[…]", *tail.split("\n")]


def move_to_file(
    text: str,
    *,
    tool: str,
    seq: int,
    folder: Path,
    policy: Policy,
    room: int | None = None,
    offered: Offered = EVERY,
) -> tuple[MovedText, str] | None:
    """Write the text to a file if it is too large. Return the reference and the path below
    the session's `folder`, or None.

    `seq` is part of the file name. `room` is a lower token limit than the policy's, if given.
    Raises OSError.
    """
    path = folder / "offloaded" / file_name(tool, seq, datetime.now())
    if room is None:
        moved = plan(text, path=str(path), policy=policy, tool=tool, offered=offered)
    else:
        moved = plan_within(
            text, path=str(path), policy=policy, room=room, tool=tool, offered=offered
        )
    if moved is None:
        return None
    offload(path, text)
    return moved, str(path.relative_to(folder))


def move_message(
    text: str, *, size: int, seq: int, folder: Path, policy: Policy, offered: Offered = EVERY
) -> tuple[str, str | None]:
    """Move a user message to a file if it would fill a quarter of a window of `size` tokens. Return
    the reference and the file's path under `folder`, or the message and None. Raises OSError.
    """
    own_policy = replace(
        policy.moving_above(int(MAX_WORDS_SHARE * size)),
        preview_chars=int(PREVIEW_CHARS_SHARE * size),
    )
    found = move_to_file(
        text, tool="words", seq=seq, folder=folder, policy=own_policy, offered=offered
    )
    return (text, None) if found is None else (found[0].reference, found[1])


class MoveResults(Layer):
    """Moves large results to files before they are first sent."""

    name, word = MOVE.logged, MOVE.word
    done = ("moved to a file", "moved to files")
    title = "Tool results offloaded"
    tier = "TIER_1"
    gate = OVERSIZE_GATE
    mark = '<circle r="4.5" fill="var(--s1)"/>'
    off = ("move.above=off", "move.line_numbers=true")
    moves_files = True

    def first(self, state: LayerState) -> Pass:
        """Move the largest unanswered results to files until the remaining ones are small enough in
        total. For a result that is already in a file, drop the preview. Results that give back
        recorded text stay.
        """
        limit, targets = state.policy.moves_above("Read"), list[dict[str, Any]]()  # the highest
        new = sorted(
            (
                result
                for result in (state.view.unanswered_results() if limit is not None else ())
                if not (result.masked or RECALLED in result.details)
            ),
            key=lambda result: result.size,
        )
        room = min(MESSAGE_LIMIT_FACTOR * (limit or 0), state.window.size // 4)
        total = sum(result.size for result in new)
        while new and total > room:
            result = new.pop()
            target = _moved(state, result)
            if target is not None:
                targets.append(target)
                total -= result.size
        return targets, "several results in one message"


def _moved(state: LayerState, result: ViewResult) -> dict[str, Any] | None:
    """Move a result to a file and return the mask target; None if that fails."""
    content, folder = result.block.get("content"), state.host.folder
    if not isinstance(content, str):
        return None
    if result.offloaded:
        stub = without_preview(content)
        return stub_target(result, stub) if stub != content else None
    every = state.policy.moving_above(0)
    try:
        moved = move_to_file(
            content,
            tool=result.call.name,
            seq=result.item.seq,
            folder=folder,
            policy=every,
            offered=state.offered,
        )
    except OSError:
        return None  # the result stays in the context
    return stub_target(result, moved[0].reference) if moved else None
