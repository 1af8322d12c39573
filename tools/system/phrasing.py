"""Shorten texts, and count things in words."""


def shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text; a shortened one ends in "…"."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def cut_after(text: str, length: int, mark: str = "…") -> str:
    """Return the first `length` characters of a text, followed by `mark` if it has more."""
    return text if len(text) <= length else f"{text[:length]}{mark}"


def cut_at_word(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text, cut after a word if possible."""
    if len(text) <= limit:
        return text
    head, blank, _ = text[:limit].rpartition(" ")
    head = head if blank and len(head) > limit // 2 else text[: limit - 1]
    return f"{head.rstrip(' ,;:·')}…"


def as_sentences(text: str) -> str:
    """Join the lines of a text to one line. Lines without end punctuation get a full stop."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    ended = [line if line[-1] in ".!?:;,…" else f"{line}." for line in lines[:-1]]
    return " ".join([*ended, *lines[-1:]])


def one_line(text: str, length: int) -> str:
    """Return the beginning of a text as one line, cut after `length` characters."""
    return cut_after(" ".join(text[: 4 * length].split()), length)


def count_of(number: int, noun: str, nouns: str = "") -> str:
    """Return a number and its noun: "1 line", "1,204 lines". `nouns` is an irregular plural."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def format_size(size: int) -> str:
    """Return a number of bytes with its unit: "1 kB", "60.0 MB", "1.2 GB"."""
    if size >= 1e9:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(min(size, 1), round(size / 1e3))} kB"
