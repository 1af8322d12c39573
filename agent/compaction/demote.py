"""Demotion: an oversize result goes to a file before it is first sent; a reference takes its place.

Form and file name are S0's (Tier 1): path, tokens saved, preview; ours adds the end of the text,
where errors and totals stand, and how to read the rest.
"""

from dataclasses import dataclass
from datetime import datetime

from ..context.tokens import estimate


@dataclass(frozen=True, slots=True)
class Demotion:
    """`reference` is what the model gets instead; `saved` is in estimated tokens."""

    reference: str
    saved: int


def name(tool: str, seq: int, at: datetime) -> str:
    """The file's name: `<time>_<tool>_<seq>.md`."""
    return f"{at:%Y%m%d_%H%M%S}_{tool}_{seq}.md"


def plan(text: str, *, path: str, above: int, preview_chars: int) -> Demotion | None:
    """What would stand in place of `text` if it went to `path`; None when it is small enough.

    `above` is in estimated tokens. The preview is whole lines from both ends where lines are
    short enough, `preview_chars` characters in all.
    """
    tokens = estimate(text)
    if tokens <= above:
        return None
    half = preview_chars // 2
    head, tail = _cut(text[:half], end=True), _cut(text[-half:], end=False)
    lines = text.count("\n") + 1
    reference = "\n".join(
        (
            "## Offloaded Content Reference",
            f"**File:** {path}",
            f"**Tokens Saved:** {tokens - estimate(head) - estimate(tail):,}",
            f"**Preview:** the beginning and the end of {lines:,} lines, {len(text):,} characters",
            _quoted(head),
            "> […]",
            _quoted(tail),
            "",
            "*Full content: Read this file with offset and limit, or Grep it for what you need.*",
        )
    )
    return Demotion(reference, tokens - estimate(reference))


def _cut(text: str, *, end: bool) -> str:
    """Drop the partial line at one end, unless that would drop more than half."""
    at = text.rfind("\n") if end else text.find("\n")
    if end:
        return text[:at] if at > len(text) // 2 else text
    return text[at + 1 :] if 0 <= at < len(text) // 2 else text


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.split("\n"))
