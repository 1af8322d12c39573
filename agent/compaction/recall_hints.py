"""Words in lines of a record that name the tool that brings a text back.

A record is a part of the log and is read again, so its lines always have these words. A text for a
model without the tool is made without them.
"""

RECALL = "Recall"
FINDS_THEM = f": {RECALL} finds them"
FOUND_BY = f", found by {RECALL}"


def names_each(file: str) -> str:
    """Return the hint that a file of the session lists what a line only counts."""
    return f" ({RECALL} `{file}` names each)"


def without_hints(text: str, *hints: str) -> str:
    """Return the text of a record without the hints."""
    for hint in (FINDS_THEM, FOUND_BY, *hints):
        text = text.replace(hint, "")
    return text
