"""Cutting a text to a length."""


def shorten(text: str, limit: int) -> str:
    """Return the text in at most `limit` characters: the last is "…" if something was cut off."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def cut_after(text: str, length: int, mark: str = "…") -> str:
    """Return the first `length` characters of a text, with `mark` behind them if there are more."""
    return text if len(text) <= length else f"{text[:length]}{mark}"


def cut_at_word(text: str, limit: int) -> str:
    """Return the text in at most `limit` characters, cut behind a word where there is one."""
    if len(text) <= limit:
        return text
    head, blank, _ = text[:limit].rpartition(" ")
    head = head if blank and len(head) > limit // 2 else text[: limit - 1]
    return f"{head.rstrip(' ,;:·')}…"


def as_sentences(text: str) -> str:
    """Return the lines of a text on one line, each with a full stop where it has no end."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    ended = [line if line[-1] in ".!?:;,…" else f"{line}." for line in lines[:-1]]
    return " ".join([*ended, *lines[-1:]])


def one_line(text: str, length: int) -> str:
    """Return the beginning of a text as one line, cut after `length` characters."""
    return cut_after(" ".join(text[: 4 * length].split()), length)
