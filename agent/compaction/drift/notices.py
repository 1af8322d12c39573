"""The messages about drift for the user and the model."""

from collections.abc import Sequence

from ...context.tokens import estimate
from ..document import SummaryDocument
from ..language.words import fit_line
from .detector import Drift

GOAL_CHECK = "[Goal check]"  # begins a notice
MAX_REALIGNMENT_TOKENS = 600


def warning(drift: Drift, intent: str) -> str:
    """Return the warning for the user."""
    return (
        "⚠ **Goal Drift Warning**\n\n"
        f"**Detection:** {drift.severity}: {drift.detection}\n"
        f"**Original Intent:** {fit_line(intent, 400) or 'not recorded'}\n"
        f"**Current Action:** {drift.current}\n\n"
        f"**Recovery Action:**\nSearching the archive for: {drift.terms}\n\n"
        f"**Recommendation:** {drift.recommendation}"
    )


def realignment(
    drift: Drift, document: SummaryDocument, messages: Sequence[str], found: Sequence[str]
) -> str:
    """Return the notice for the model, in at most MAX_REALIGNMENT_TOKENS estimated tokens. It
    repeats the intent and the user's own words, and quotes lines of the archive (`found`, with
    refs).
    """
    text = ""
    for limit in (400, 200, 100, 50, 25):
        text = "\n".join(_notice(drift, document, messages, found, limit))
        if estimate(text) <= MAX_REALIGNMENT_TOKENS:
            break
    return text


def _notice(
    drift: Drift,
    document: SummaryDocument,
    messages: Sequence[str],
    found: Sequence[str],
    limit: int,
) -> list[str]:
    said = [text for text in messages if text.strip()]
    said = [*said[:1], *said[-2:]] if len(said) > 3 else said
    intent = fit_line(document.intent, 2 * limit) or "see the words below"
    lines = [
        f"{GOAL_CHECK} This is a notice of the program, not the user's words.",
        f"Noticed after the summary: {fit_line(drift.detection, 2 * limit)}",
        f"The intent of this session: {intent}",
    ]
    if said:
        lines += ["The user's own words:", *(f"> {fit_line(text, limit)}" for text in said)]
    if document.next_steps:
        lines += [
            "Next steps:",
            *(f"- {fit_line(s, limit // 2)}" for s in document.next_steps[:3]),
        ]
    if found:
        lines += [
            "From the archive:",
            *(f"- {fit_line(item, limit // 2)}" for item in found[:6]),
        ]
    lines.append(
        f"{drift.recommendation} If the user's newest words ask for just this, say so in one "
        "sentence. Then go on with the task."
    )
    return lines
