"""Cutting a text to a length."""


def shorten(text: str, limit: int) -> str:
    """Return the text in at most `limit` characters: the last is "…" if something was cut off."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def cut_after(text: str, length: int, mark: str = "…") -> str:
    """Return the first `length` characters of a text, with `mark` behind them if there are more."""
    return text if len(text) <= length else f"{text[:length]}{mark}"


def one_line(text: str, length: int) -> str:
    """Return the beginning of a text as one line, cut after `length` characters."""
    return cut_after(" ".join(text[: 4 * length].split()), length)
