"""Find a text that differs from another only by characters that look the same: quotes, spaces,
hyphens, full-width forms, and characters without a width.
"""

from difflib import SequenceMatcher
from unicodedata import category, decomposition, name

from ..agent.lazy import dataclass

MAX_NAMED = 4  # characters named in a message
MAX_PAIRS = 4_000_000  # characters of the old text times those of the new one
_OF_CATEGORY = {"Zs": " ", "Cf": "", "Pd": "-"}  # spaces, no width, hyphens and dashes
_PLAIN = {
    **dict.fromkeys("‘’‚‛′ʼ", "'"),
    **dict.fromkeys("“”„‟″", '"'),
    "−": "-",
}


@dataclass(frozen=True, slots=True)
class LookAlike:
    """A place in a file where a text stands with other characters."""

    start: int
    text: str  # as it is in the file
    named: str  # the characters that differ


def look_alikes(text: str, old: str, limit: int) -> list[LookAlike]:
    """Return at most `limit` places of `text` that look like `old` and are not equal to it."""
    wanted, _ = _folded(old)
    if not wanted.strip():
        return []
    folded, places = _folded(text)
    found = list[LookAlike]()
    at = folded.find(wanted)
    while at >= 0 and len(found) < limit:
        start, end = places[at], places[at + len(wanted) - 1] + 1
        found.append(LookAlike(start, text[start:end], _named(text[start:end], old)))
        at = folded.find(wanted, at + len(wanted))
    return found


def with_characters_of(there: str, old: str, new: str) -> str | None:
    """Return `new` with the file's characters where `new` is equal to `old`. `there` is the text in
    the file that looks like `old`. Return None for texts that are too long to compare.
    """
    if len(old) * len(new) > MAX_PAIRS:
        return None
    places, starts = iter(_folded(there)[1]), [0]  # the end of each part of `old`, in `there`
    for character in old:
        starts.append(next(places) + 1 if _plain(character) else starts[-1])
    parts = []
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for kind, start, end, first, last in matcher.get_opcodes():
        parts.append(there[starts[start] : starts[end]] if kind == "equal" else new[first:last])
    return "".join(parts)


def _folded(text: str) -> tuple[str, list[int]]:
    """Return a text with plain characters, and the place of each of them in the text."""
    pairs = [(plain, n) for n, c in enumerate(text) if (plain := _plain(c))]
    return "".join(plain for plain, _ in pairs), [place for _, place in pairs]


def _plain(character: str) -> str:
    if character.isascii():
        return character
    kind, _, code = decomposition(character).partition(" ")
    if kind == "<wide>":
        return chr(int(code, 16))
    return _OF_CATEGORY.get(category(character), _PLAIN.get(character, character))


def _named(there: str, old: str) -> str:
    """Return the names of the characters that only one of the texts has."""
    rows = [
        (whose, character)
        for whose, text, other in (("the file", there, old), ("old_string", old, there))
        for character in dict.fromkeys(text)
        if character not in other and _plain(character) != character
    ]
    named = [
        f"U+{ord(character):04X} ({name(character, 'no name').lower()}) in {whose}"
        for whose, character in rows[:MAX_NAMED]
    ]
    return ", ".join([*named, "and more"] if len(rows) > MAX_NAMED else named)
