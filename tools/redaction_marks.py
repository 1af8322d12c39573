"""The marks that stand for secrets in what the model was shown.

A file that gets a mark in the place of a secret has lost it, so the tools that write look for them.
"""

from ..agent.lazy import regex

_MARK = regex(r"\[redacted: [^\[\]\r\n]{1,60}\]")
_STANDS_FOR = "stands for a secret that was taken out of what you were shown"


def mark(kind: str) -> str:
    """Return the mark that stands in the place of a secret."""
    return f"[redacted: {kind}]"


def not_found(name: str, old: str) -> str:
    """Say why a text that holds a mark is not in a file; "" for one that holds none."""
    found = _MARK.search(old)
    if not found:
        return ""
    return (
        f"{found[0]} {_STANDS_FOR}: {name} has the secret itself there, so old_string was not "
        "found. Choose one that ends before it or begins after it."
    )


def lost(name: str, text: str, before: str) -> str:
    """Say why a new text may not replace an old one: it has a mark that the old one has not.

    Returns "" where it may.
    """
    new = next((m[0] for m in _MARK.finditer(text) if m[0] not in before), "")
    if not new:
        return ""
    return (
        f"{new} {_STANDS_FOR}. Written to {name} it would take the secret's place, so nothing was "
        "written. Use Edit on the parts around it."
    )
