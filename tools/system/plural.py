"""Numbers with their nouns."""


def count_of(number: int, noun: str, nouns: str = "") -> str:
    """Return a number and its noun: "1 line", "1,204 lines". `nouns` is an irregular plural."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"
