"""Numbers with their nouns and units."""


def count_of(number: int, noun: str, nouns: str = "") -> str:
    """Return a number and its noun: "1 line", "1,204 lines". `nouns` is an irregular plural."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def format_size(size: int) -> str:
    """Return a number of bytes with its unit: "1 kB", "60.0 MB", "1.2 GB"."""
    if size >= 1e9:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(min(size, 1), round(size / 1e3))} kB"
