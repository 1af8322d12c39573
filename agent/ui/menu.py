"""A menu of many options, of which one is chosen, and how words find them. Screens show it."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from prompt_toolkit.utils import get_cwidth

from ..lazy import dataclass

MIN_KEY_PART_CHARS = 5  # characters of a key by which an option is found
Styled = tuple[str, str]  # a role of the theme, and text


@dataclass(frozen=True, slots=True)
class Option:
    """Something to choose, found by its title, detail and words, and by part of its key."""

    key: str
    title: str
    facts: tuple[str, ...] = ()  # short, in columns; the first is the last to go for lack of room
    detail: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Menu:
    """Options by scope. `load` and `preview` run in threads."""

    title: str
    load: Callable[[int], Iterator[Sequence[Option]]]  # the options of a scope, in parts
    action: str  # what choosing does
    empty_text: str  # said where there is no option
    leaving: str = "back"  # what Esc does
    takes_other: bool = False  # whether a single word that finds no option is itself the choice
    scopes: Sequence[str] = ("",)  # names, for people, of where options come from
    searches_all: bool = False  # a search is for the options of the scope after the last one
    preview: Callable[[str], Sequence[Styled]] | None = None  # lines about an option, by its key
    preview_rows: int = 10  # at most, with the line above
    moved: Callable[[str], None] = lambda key: None  # called with the key of the chosen option

    def other(self, typed: str) -> Option | None:
        """Return what is typed as an option of its own, if that may be chosen."""
        word = typed.strip()
        return Option(word, word) if self.takes_other and len(word.split()) == 1 else None


class OptionList:
    """The options of one scope, those among them that match the search, and the chosen one."""

    def __init__(self) -> None:
        self.complete = False  # whether all options have been added
        self.total = 0
        self.has_details = False  # whether any option has more to say than fits in one row
        self.columns: list[int] = []  # cells of the widest fact in each column
        self.matches: list[Option] = []
        self.index = 0  # of the chosen one in `matches`
        self._all: list[tuple[str, Option]] = []
        self._words: list[str] = []

    @property
    def chosen(self) -> Option | None:
        return self.matches[self.index] if self.matches else None

    def add(self, options: Iterable[Option]) -> None:
        more = [(f"{o.title}\n{o.detail}\n{o.words}".casefold(), o) for o in options]
        self._all += more
        self.total = len(self._all)
        self.has_details = self.has_details or any(option.detail for _, option in more)
        self.matches += [option for text, option in more if self._matches_words(text, option.key)]
        for _, option in more:
            self.columns += [0] * (len(option.facts) - len(self.columns))
            for place, fact in enumerate(option.facts):
                self.columns[place] = max(self.columns[place], get_cwidth(fact))

    def search(self, text: str) -> None:
        """Keep the options that match these words. Choose the one with these words as its key,
        else the first."""
        words = text.casefold().split()
        if words != self._words:
            self._words = words
            self.matches = [o for text, o in self._all if self._matches_words(text, o.key)]
            name = " ".join(words).removeprefix("/")
            same = (place for place, o in enumerate(self.matches) if o.key.casefold() == name)
            self.index = next(same, 0)

    def move(self, step: int) -> None:
        self.index = max(0, min(self.index + step, len(self.matches) - 1))

    def _matches_words(self, text: str, key: str) -> bool:
        return all(
            word in text or (len(word) >= MIN_KEY_PART_CHARS and word in key)
            for word in self._words
        )
