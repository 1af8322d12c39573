"""The index of the guide: sections ranked for a question, in the terminal and on the site.

A section scores the weights of its words (BM25, words in headings count more). Words are compared
by their stems. The site gets the same index as JSON, and `docs/search.js` ranks it in the browser.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

MIN_STEM_CHARS = 3
SUFFIXES = (
    "izations", "ization", "ations", "ation", "izing", "ising", "ized", "ised", "izes", "ises",
    "ize", "ise", "ments", "ment", "ions", "ion", "ings", "ing", "ers", "er", "ies", "ied", "ed",
    "es", "ly", "y", "e", "s",
)  # fmt: skip
_STOP_TEXT = (
    "a about again all also always am an and any are as at be because been being but by can "
    "cannot could did do does doesn don each else even for from get gets go goes got had has "
    "have he her here his how however i if in into is isn it its just know let like make "
    "makes many me more most much my need needs no not now of off on one only or other our "
    "out over own please put same say says seems set she should show so some something still "
    "such take tell than that the every their them then there these they thing things this "
    "those to too up use used uses using very want wants was way we were what when which "
    "while who why will with won would you your"
)
STOP_WORDS = frozenset(_STOP_TEXT.split())
# Words that people use for a word of the guide.
SYNONYMS = tuple(
    group.split()
    for group in (
        "undo revert rollback back",
        "cost price money expensive spend bill billing cheap dollar",
        "window limit length long full overflow",
        "compact summary summarize compress shorten",
        "forget lose lost amnesia vanish disappear keep kept stay remember",
        "delete remove erase wipe clean uninstall prune",
        "key token credential secret password login",
        "permission approve allow confirm prompt ask question",
        "never deny refuse block forbid dangerous decision guard",
        "picture image screenshot photo",
        "setting config configuration option preference",
        "offline local",
        "shortcut keybinding keyboard key",
        "certificate ssl tls corporate",
        "crash kill hang stuck freeze",
        "instruction rule",
        "subagent parallel delegate fleet several",
        "search find grep lookup",
        "container docker podman",
        "automate ci headless script pipeline cron",
        "hook before after trigger event",
        "notify notification bell sound",
        "background server daemon job",
        "attach mention include paste",
        "url page web fetch site link",
        "host domain network internet",
        "where location stored folder path",
        "claude codex opencode gemini cursor copilot other",
        "conversation history session chat recorded",
        "editor ide vscode zed",
        "system platform windows macos linux",
    )
)
SYNONYM_WEIGHT = 0.5
PAGE_BOOSTS = {"api": 0.5}  # pages for authors of extensions
HEADING_WEIGHT, PAGE_WEIGHT = 6.0, 1.0  # of a word in a heading; in the text at most K1 + 1
K1, B = 1.2, 0.3  # of BM25
SCALE = 100  # weights in JSON are whole numbers
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class GuideSection:
    """A section of a page: where it is, its headings, and its text."""

    place: str  # such as "context#undo-a-compaction"
    page: str  # title of the page
    title: str  # its own heading
    text: str
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class GuideIndex:
    """The weights of each stem in the sections that have it."""

    weights: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def rank(self, question: str) -> list[int]:
        """Return the numbers of the sections for a question, best first."""
        asked = dict.fromkeys([*stems(question)] or map(stem, words(question)))
        total, matched = Counter[int](), Counter[int]()
        for each in asked:
            found = dict(self.weights.get(each, {}))
            for other in synonyms().get(each, ()):
                for section, weight in self.weights.get(other, {}).items():
                    found[section] = max(found.get(section, 0), int(weight * SYNONYM_WEIGHT))
            total.update(found)
            matched.update(found.keys())
        return sorted(total, key=lambda n: (-total[n] * matched[n], n))

    def to_json(self) -> dict[str, object]:
        """Return what `docs/search.js` needs."""
        return {
            "weights": {term: [x for pair in found.items() for x in pair]
                        for term, found in self.weights.items()},
            "suffixes": SUFFIXES,
            "minStem": MIN_STEM_CHARS,
            "stopWords": sorted(STOP_WORDS),
            "synonyms": {word: list(others) for word, others in synonyms().items()},
            "synonymWeight": SYNONYM_WEIGHT,
        }  # fmt: skip


def build_index(sections: Sequence[GuideSection]) -> GuideIndex:
    """Return the index of sections."""
    texts = [Counter(stems(each.text)) for each in sections]
    lengths = [sum(each.values()) for each in texts]
    mean = sum(lengths) / max(len(lengths), 1)
    heads = [_heads(each) for each in sections]
    having = Counter(term for text, head in zip(texts, heads, strict=True) for term in text | head)
    weights: dict[str, dict[int, int]] = {}
    for number, section in enumerate(sections):
        text, head = texts[number], heads[number]
        room = K1 * (1 - B + B * lengths[number] / mean)
        for term in text.keys() | head.keys():
            rare = math.log(1 + (len(sections) - having[term] + 0.5) / (having[term] + 0.5))
            part = text[term] * (K1 + 1) / (text[term] + room) + head.get(term, 0)
            weights.setdefault(term, {})[number] = round(SCALE * section.boost * rare * part)
    return GuideIndex(weights)


def _heads(section: GuideSection) -> dict[str, float]:
    """Return the weights of the words in the headings of a section. A short heading counts more."""
    found: dict[str, float] = {}
    for text, weight in ((section.page, PAGE_WEIGHT), (section.title, HEADING_WEIGHT)):
        size = len(words(text))
        for term in stems(text):
            found[term] = max(found.get(term, 0), weight / math.sqrt(size))
    return found


def words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def stems(text: str) -> Iterator[str]:
    """Yield the stems of the words of a text, without stop words."""
    return (stem(word) for word in words(text) if word not in STOP_WORDS)


@cache
def stem(word: str) -> str:
    """Return a word without its suffixes."""
    while suffix := next((s for s in SUFFIXES if _ends(word, s)), ""):
        word = word[: -len(suffix)]
    return word


def _ends(word: str, suffix: str) -> bool:
    return word.endswith(suffix) and len(word) - len(suffix) >= MIN_STEM_CHARS


@cache
def synonyms() -> dict[str, tuple[str, ...]]:
    """Return the stems of the synonyms of each stem."""
    found: dict[str, dict[str, None]] = {}
    for group in SYNONYMS:
        for word in group:
            others = {stem(other): None for other in group if stem(other) != stem(word)}
            found.setdefault(stem(word), {}).update(others)
    return {word: tuple(others) for word, others in found.items()}


def sections_of(name: str, markdown: str) -> Iterator[GuideSection]:
    """Yield the sections of a page."""
    page, place, title, lines = "", name, "", list[str]()
    is_code = False
    for line in [*markdown.splitlines(), "# end"]:
        is_code ^= line.lstrip().startswith("```")
        found = None if is_code else re.match(r"(#{1,4}) (.+)", line)
        if found is None:
            lines.append(line)
            continue
        if title:
            yield GuideSection(
                place, page, title, "\n".join(lines).strip(), PAGE_BOOSTS.get(name, 1.0)
            )
        title, lines = found[2].replace("`", "").strip(), []
        place, page = (f"{name}#{anchor(title)}", page) if page else (name, title)


def anchor(title: str) -> str:
    """Return the anchor of a heading, as the site has it."""
    return re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-")
