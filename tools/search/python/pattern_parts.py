"""The parts of a parsed pattern, and what they say about every match."""

from collections.abc import Iterator, Sequence

from .char_sets import CharSet

MAX_FORMS = 256  # alternatives of a look-behind, each with a fixed length
MAX_REQUIRED = 16  # alternatives of the text that each match contains


class PatternError(Exception):
    """The pattern is not valid. The message gives the reason."""


class PatternPart:
    """A part of a pattern."""

    __slots__ = ()


class Literal(PatternPart):
    """One character."""

    __slots__ = ("character", "ignores_case")

    def __init__(self, character: str, ignores_case: bool) -> None:
        self.character = character
        self.ignores_case = ignores_case


class AnyCharacter(PatternPart):
    """`.`"""

    __slots__ = ("crosses_lines",)

    def __init__(self, crosses_lines: bool) -> None:
        self.crosses_lines = crosses_lines


class OneOf(PatternPart):
    """A class of characters. `ignores_case` is for cases that the set does not list."""

    __slots__ = ("chars", "ignores_case")

    def __init__(self, chars: CharSet, ignores_case: bool) -> None:
        self.chars = chars
        self.ignores_case = ignores_case


class Assertion(PatternPart):
    """A condition on a place, by a name that `expression.py` knows."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Chain(PatternPart):
    """Parts that follow each other."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[PatternPart]) -> None:
        self.parts = parts


class Alternation(PatternPart):
    """Alternatives."""

    __slots__ = ("branches",)

    def __init__(self, branches: Sequence[PatternPart]) -> None:
        self.branches = branches


class CaptureGroup(PatternPart):
    """A group that a backreference may name."""

    __slots__ = ("number", "part")

    def __init__(self, number: int, part: PatternPart) -> None:
        self.number = number
        self.part = part


class Repeat(PatternPart):
    """A repetition; `high` is None for no limit. `mode` is "", "?" (lazy) or "+" (possessive)."""

    __slots__ = ("high", "low", "mode", "part")

    def __init__(self, part: PatternPart, low: int, high: int | None, mode: str) -> None:
        self.part = part
        self.low = low
        self.high = high
        self.mode = mode


class LookAround(PatternPart):
    """A part that must match, or must not, before or after a place."""

    __slots__ = ("ahead", "negative", "part")

    def __init__(self, part: PatternPart, *, ahead: bool, negative: bool) -> None:
        self.part = part
        self.ahead = ahead
        self.negative = negative


class Atomic(PatternPart):
    """A part that is not entered again once it has matched."""

    __slots__ = ("part",)

    def __init__(self, part: PatternPart) -> None:
        self.part = part


class BackReference(PatternPart):
    """The text of a group."""

    __slots__ = ("ignores_case", "number")

    def __init__(self, number: int, ignores_case: bool) -> None:
        self.number = number
        self.ignores_case = ignores_case


class Condition(PatternPart):
    """A part to match if a group has matched, and another one if not."""

    __slots__ = ("number", "otherwise", "then")

    def __init__(self, number: int, then: PatternPart, otherwise: PatternPart) -> None:
        self.number = number
        self.then = then
        self.otherwise = otherwise


def children(part: PatternPart) -> Sequence[PatternPart]:
    match part:
        case Chain():
            return part.parts
        case Alternation():
            return part.branches
        case CaptureGroup() | Repeat() | LookAround() | Atomic():
            return (part.part,)
        case Condition():
            return (part.then, part.otherwise)
    return ()


def all_parts(part: PatternPart) -> Iterator[PatternPart]:
    yield part
    for child in children(part):
        yield from all_parts(child)


def can_cross_lines(part: PatternPart) -> bool:
    """Return True if a match may contain or touch a line end. ripgrep searches by line if not."""
    return any(
        isinstance(each, BackReference)
        or (isinstance(each, Assertion) and each.name.startswith("line"))
        or (isinstance(each, AnyCharacter) and each.crosses_lines)
        or (isinstance(each, Literal) and each.character == "\n")
        or (isinstance(each, OneOf) and "\n" in each.chars)
        for each in all_parts(part)
    )


def required_texts(part: PatternPart, *, folded: bool) -> Sequence[str]:
    """Return texts of which each match contains at least one; () if there are none.

    With `folded`, the texts are in lower case, and only valid for ASCII text in lower case.
    Without, a part that ignores case has no text.
    """
    match part:
        case Literal():
            return (_literal_text(part, folded),) if _literal_text(part, folded) else ()
        case Chain():
            return _required_of_chain(part.parts, folded)
        case Alternation():
            found = [required_texts(branch, folded=folded) for branch in part.branches]
            if all(found) and sum(map(len, found)) <= MAX_REQUIRED:
                return [text for texts in found for text in texts]
        case CaptureGroup() | Atomic():
            return required_texts(part.part, folded=folded)
        case Repeat() if part.low:
            return required_texts(part.part, folded=folded)
    return ()


def _required_of_chain(parts: Sequence[PatternPart], folded: bool) -> Sequence[str]:
    """Return the longest of the texts that the parts require."""
    found: list[Sequence[str]] = [()]
    run = ""
    for part in parts:
        if isinstance(part, Literal) and (text := _literal_text(part, folded)):
            run += text
            continue
        found += [(run,)] if run else []
        run = ""
        found.append(required_texts(part, folded=folded))
    found += [(run,)] if run else []
    return max(found, key=lambda texts: min(map(len, texts), default=0))


def _literal_text(part: Literal, folded: bool) -> str:
    if folded:
        return part.character.lower() if part.character.isascii() else ""
    return "" if part.ignores_case else part.character


def forms(part: PatternPart) -> list[PatternPart]:
    """Return alternatives with fixed lengths that match the same texts as a part. Raises
    PatternError if the length is not limited, or there are too many.
    """
    match part:
        case Chain():
            out: list[list[PatternPart]] = [[]]
            for each in part.parts:
                out = [[*start, end] for start in out for end in forms(each)]
                _check_number(out)
            return [Chain(parts) for parts in out]
        case Alternation():
            found = [form for branch in part.branches for form in forms(branch)]
            _check_number(found)
            return found
        case CaptureGroup():
            return [CaptureGroup(part.number, form) for form in forms(part.part)]
        case Atomic():
            return forms(part.part)
        case Repeat():
            return _repeated_forms(part)
        case BackReference() | Condition():
            raise PatternError("look-behind with a reference to a group")
    return [part]


def _repeated_forms(part: Repeat) -> list[PatternPart]:
    if part.high is None:
        raise PatternError("length of look-behind assertion is not limited")
    inner = forms(part.part)
    if len(inner) == 1:
        counts = range(part.low, part.high + 1)
        _check_number(counts)
        return [Repeat(inner[0], count, count, "") for count in counts]
    out: list[PatternPart] = []
    for count in range(part.low, part.high + 1):
        out += forms(Chain([Alternation(inner)] * count))
        _check_number(out)
    return out


def _check_number(found: Sequence[object]) -> None:
    if len(found) > MAX_FORMS:
        raise PatternError("look-behind assertion has too many lengths")
