"""Demotion: an oversize result goes to a file before it is first sent; a reference takes its place.

Form and file name are S0's (Tier 1): path, tokens saved, a preview of the first lines. Where the
policy does not count lines the preview has the end of the text too, where errors and totals stand.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from ..context.tokens import estimate
from .policy import Policy


@dataclass(frozen=True, slots=True)
class Demotion:
    """`reference` is what the model gets instead; `saved` is in estimated tokens."""

    reference: str
    saved: int


def name(tool: str, seq: int, at: datetime) -> str:
    """The file's name: `<time>_<tool>_<seq>.md`."""
    return f"{at:%Y%m%d_%H%M%S}_{tool}_{seq}.md"


def plan(text: str, *, path: str, policy: Policy) -> Demotion | None:
    """What would stand in place of `text` if it went to `path`; None when it may stay: it is small
    enough, or the reference would be no smaller."""
    tokens = estimate(text)
    if policy.demote_above is None or tokens <= policy.demote_above:
        return None
    if policy.preview_lines is None:
        which, preview = _both_ends(text, policy.preview_chars)
    else:
        which, preview = _first_lines(text, policy.preview_lines, policy.preview_chars)
    reference = "\n".join(
        (
            "## Offloaded Content Reference",
            f"**File:** {path}",
            f"**Tokens Saved:** {tokens - sum(map(estimate, preview)):,}",
            f"**Preview:** {which} of {_lines(text):,} lines, {len(text):,} characters",
            *(f"> {line}" for line in preview),
            "",
            "*Full content: Read this file with offset and limit, or Grep it for what you need.*",
        )
    )
    saved = tokens - estimate(reference)
    return Demotion(reference, saved) if saved > 0 else None


def bounded(text: str, *, path: str, policy: Policy, room: int) -> Demotion | None:
    """As `plan`, for what may take `room` tokens, its reference included: that shows as much of
    the text as fits."""
    most = min(room, policy.demote_above or room)
    found = None
    for chars in (3 * room, room, 0):
        short = replace(policy, demote_above=most, preview_chars=chars, preview_lines=None)
        found = plan(text, path=path, policy=short)
        if found is None or estimate(found.reference) <= room:
            break
    return found


def brief(reference: str) -> str:
    """A reference without what it shows of the text."""
    return "\n".join(line for line in reference.split("\n") if not line.startswith("> "))


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _first_lines(text: str, count: int, chars: int) -> tuple[str, list[str]]:
    """So many lines; each may have its share of the characters, so that long ones stay a preview
    too."""
    longest = chars // count
    lines = text.removesuffix("\n").split("\n", count)[:count]
    cut = [line if len(line) <= longest else f"{line[:longest]}…" for line in lines]
    return f"the first {len(lines)}", cut


def _both_ends(text: str, chars: int) -> tuple[str, list[str]]:
    """Half of the characters from either end, in whole lines where lines are short enough."""
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
