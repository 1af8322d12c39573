"""A menu of many things, of which one is chosen: what they are, and how words find them. Where it
is shown is a screen's concern."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from prompt_toolkit.utils import get_cwidth

PART = 5  # characters of a key by which an option is found
Styled = tuple[str, str]  # a role of the theme, and text


@dataclass(frozen=True, slots=True)
class Option:
    """Something to choose. `facts` are short and stand in columns, the first is the last to go
    where there is no room; `below` says more of it. It is found by all of its title and of what
    stands below, by `words`, and by a good part of its key."""

    key: str
    title: str
    facts: tuple[str, ...] = ()
    below: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Menu:
    """`load` gives the options of a scope in parts, the first one soon; it runs in a thread, as
    does `preview`, which gives lines on an option by its key. `scopes` are names, for people, of
    where options come from. `act` says what choosing does, `nothing` that there is no option."""

    title: str
    load: Callable[[int], Iterator[Sequence[Option]]]
    act: str
    nothing: str
    scopes: Sequence[str] = ("",)
    preview: Callable[[str], Sequence[Styled]] | None = None


class Shelf:
    """The options of one scope: those that hold all words that are looked for, in the order they
    came, and which of them is chosen."""

    def __init__(self) -> None:
        self.complete = False  # whether no more will come
        self.total = 0
        self.columns: list[int] = []  # cells of the longest fact in each column
        self.found: list[Option] = []
        self.at = 0
        self._all: list[tuple[str, Option]] = []
        self._words: list[str] = []

    @property
    def chosen(self) -> Option | None:
        return self.found[self.at] if self.found else None

    def add(self, options: Iterable[Option]) -> None:
        more = [(_folded(option), option) for option in options]
        self._all += more
        self.total = len(self._all)
        self.found += [option for text, option in more if self._holds(text, option.key)]
        for _, option in more:
            self.columns += [0] * (len(option.facts) - len(self.columns))
            for place, fact in enumerate(option.facts):
                self.columns[place] = max(self.columns[place], get_cwidth(fact))

    def search(self, text: str) -> None:
        """Look for these words; the first option that holds them is chosen then."""
        words = text.casefold().split()
        if words != self._words:
            self._words, self.at = words, 0
            self.found = [o for text, o in self._all if self._holds(text, o.key)]

    def move(self, step: int) -> None:
        self.at = max(0, min(self.at + step, len(self.found) - 1))

    def _holds(self, text: str, key: str) -> bool:
        return all(word in text or (len(word) >= PART and word in key) for word in self._words)


def _folded(option: Option) -> str:
    return f"{option.title}\n{option.below}\n{option.words}".casefold()
