"""A searchable menu from which the user chooses one option. Screens show it."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from prompt_toolkit.utils import get_cwidth

from ..lazy import dataclass

MIN_KEY_PART_CHARS = 5  # shortest key part that finds an option
Styled = tuple[str, str]  # a role of the theme, and text


@dataclass(frozen=True, slots=True)
class Option:
    """A menu option, found by its title, detail and words, and by a part of its key."""

    key: str
    title: str
    facts: tuple[str, ...] = ()  # columns, least important last
    detail: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Menu:
    """A menu with options in scopes. `load` and `preview` run in threads."""

    title: str
    load: Callable[[int], Iterator[Sequence[Option]]]  # yields the options of a scope in batches
    action: str  # name of the action on the selected option
    empty_text: str  # shown when there is no option
    leaving: str = "back"  # name of the action on Esc
    takes_other: bool = False  # whether an unknown single word can be chosen
    scopes: Sequence[str] = ("",)  # display names of the option sources
    searches_all: bool = False  # a search uses the scope number len(scopes), for all options
    preview: Callable[[str], Sequence[Styled]] | None = None  # lines about the option with this key
    preview_rows: int = 10  # maximum, including the separator line
    moved: Callable[[str], None] = lambda key: None  # called with the key of the selected option

    def other(self, typed: str) -> Option | None:
        """Return the typed word as an option if the menu accepts words outside its list."""
        word = typed.strip()
        return Option(word, word) if self.takes_other and len(word.split()) == 1 else None


class OptionList:
    """The options of one scope, the search matches among them, and the selected option."""

    def __init__(self) -> None:
        self.complete = False  # whether all options have been added
        self.total = 0
        self.has_details = False  # whether any option has a detail text
        self.columns: list[int] = []  # cells of the widest fact in each column
        self.matches: list[Option] = []
        self.index = 0  # index of the selected option in `matches`
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
        """Keep the options that match these words. Select the option whose key equals them, else
        the first.
        """
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
