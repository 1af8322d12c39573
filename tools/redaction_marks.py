"""Marks that replace secrets in the text for the model.

If a mark were written to a file, it would overwrite the secret. The tools that write check for
marks.
"""

from ..agent.lazy import regex
from .offered import Offered

_MARK = regex(r"\[redacted: [^\[\]\r\n]{1,60}\]")
_AROUND = (" Use {Edit} on the parts around it.", " Change the parts around it.")
_STANDS_FOR = "stands for a secret that was taken out of what you were shown"


def mark(kind: str) -> str:
    """Return the mark that replaces a secret of this kind."""
    return f"[redacted: {kind}]"


def not_found(name: str, old: str) -> str:
    """Return why a text with a mark is not in a file; "" for a text without a mark."""
    found = _MARK.search(old)
    if not found:
        return ""
    return (
        f"{found[0]} {_STANDS_FOR}: {name} has the secret itself there, so old_string was not "
        "found. Choose one that ends before it or begins after it."
    )


def lost(name: str, text: str, before: str, offered: Offered) -> str:
    """Return why a new text may not replace an old one: it has a mark that the old text lacks.

    Returns "" if it may.
    """
    new = next((m[0] for m in _MARK.finditer(text) if m[0] not in before), "")
    if not new:
        return ""
    return (
        f"{new} {_STANDS_FOR}. Written to {name} it would take the secret's place, so nothing was "
        f"written.{offered.say(_AROUND)}"
    )
