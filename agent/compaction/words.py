"""Analyse texts in any language without a vocabulary: find terms, names, paths and questions.

A term is the beginning of a word, so that "deploy" and "deployment" have the same term. In scripts
without spaces, each pair of characters is a term. Short words are left out, unless they are part of
a name. A name is a path or an identifier of several parts.
"""

import re
import unicodedata
from collections import Counter
from functools import lru_cache

from ..context.tokens import estimate
from ..lazy import regex

MIN_TEXT_NAME_CHARS = 8  # shorter names are common words
MAX_NAME_CHARS = 120
MAX_SEARCHED_CHARS = 400_000  # of a text
MAX_RUN_CHARS = 500  # longer runs, such as Base64, are no names, and searching one takes long

_NAME_RUN = regex(r"[\w./@~-]++")  # may have several names
_NAME = regex(
    r"(?<![\w/-])(?:"
    r"[\w.@~-]*/[\w./@-]*\w"  # a path
    r"|_*[^\W\d_]+[^\W_]*(?:_[^\W_]+)+"  # snake_case
    r"|[^\W\d_]+\d*(?<=[a-z\d])[A-Z]\w*"  # camelCase
    r")(?!\w)"
)


def frequent_names(text: str, room: int, *, known: str = "") -> list[str]:
    """Return the names that a text has most often, in `room` tokens, without those in `known`."""
    runs = Counter(_NAME_RUN.findall(text[:MAX_SEARCHED_CHARS]))
    counts = Counter[str]()
    for run, times in runs.items():
        if MIN_TEXT_NAME_CHARS <= len(run) <= MAX_RUN_CHARS:
            for name in _NAME.findall(run):
                counts[name] += times
    found = list[str]()
    for name, _ in counts.most_common():
        if not MIN_TEXT_NAME_CHARS <= len(name) <= MAX_NAME_CHARS or name in known:
            continue
        room -= estimate(name) + 1
        if room < 0:
            break
        found.append(name)
    return found


MAX_TEXT_CHARS = 16_000  # read from one text
MAX_LINE_CHARS = 160  # of a quotation in one line
MAX_CACHED_TEXTS = 256
STEM_CHARS = 5  # the first letters of a word, its term
MIN_NAME_CHARS = 3  # of a part of a name
MAX_BRIEF_WORDS = 3
MAX_QUESTION_CHARS = 240  # of a text that only asks; longer texts also explain
MAX_REST_SHARE = 3  # length of a text that only asks, as a multiple of its questions
# Scripts that write without spaces: Thai, Lao, Burmese, Khmer, kana, Chinese.
UNSPACED = regex(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]+")

_TOKEN = regex(r"[^\s`'\"<>()\[\]{},;|&=]+")
_RUN = regex(r"[^\W\d_]+")
_CAMEL = regex(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_EXTENSION = regex(r"(?<=\w)\.[a-z]\w{0,4}$")
_COMMAND_SPAN = regex(r"`[^`\n]*\s[^`\n]*`")  # a command in a rule: its paths are only arguments
_PATH_WORD = regex(r"[\w.@~*/-]+")
_NAMED_PATH = regex(r".*/.*|.*\*.*|.*\.[a-z]\w{0,4}|\.env")
_PROSE = regex(r"[^\W\d_]+/[^\W\d_]+|\w\.\w|[\w*-]+")  # "read/write" and "z.B" are not paths
_IS_NAME = regex(r"[\w)][./_:@-]\w|[\d/_]|[a-z][A-Z]|^[A-Z]{2}")
# Bounded and possessive, so that a long run of letters without a match takes linear time.
_FILE = regex(r"(?<![\w.@~-])[\w.@~-]*+/[\w./@~-]+|[\w-]{1,255}+\.[a-z]\w{0,4}\b")
_SEARCHED = regex(r"\w[\w.-]+\w")
_LIST_LINE = regex(r"[-*+•] |\w{1,3}[.)] |\|")
_SENTENCE_END = regex(r"(?<=[.!?؟।])\s+|(?<=[。！？])|\n+")
_QUESTION_MARKS = "?？؟⸮՞፧⁇⁈"


def terms(text: str, least: int = STEM_CHARS) -> frozenset[str]:
    """Return the terms of a text: from words with at least `least` letters, and from parts of
    names.
    """
    return _terms(text[:MAX_TEXT_CHARS], least)


@lru_cache(MAX_CACHED_TEXTS)
def _terms(text: str, least: int) -> frozenset[str]:
    found = set[str]()
    for token in {*_TOKEN.findall(text)}:
        token = token.rstrip(".:!?")
        is_name = _IS_NAME.search(token) is not None
        for run in _RUN.findall(_EXTENSION.sub("", token) if is_name else token):
            for unspaced in UNSPACED.findall(run):
                found.update(unspaced[at : at + 2] for at in range(max(1, len(unspaced) - 1)))
            for word in _CAMEL.split(UNSPACED.sub(" ", run)):
                if len(word.strip()) >= (MIN_NAME_CHARS if is_name else least):
                    found.add(word.strip().casefold()[:STEM_CHARS])
    return frozenset(found)


def search_words(text: str, count: int) -> str:
    """Return up to `count` search words of a text: its first names and long words."""
    words = dict.fromkeys(_SEARCHED.findall(text[:MAX_TEXT_CHARS]))
    return " ".join([word for word in words if terms(word)][:count])


def ends_with_question(text: str) -> bool:
    """Return True if a text ends with a question, ignoring a list of choices after it."""
    lines = [line.strip() for line in text[-MAX_TEXT_CHARS:].splitlines() if line.strip()]
    while lines and _LIST_LINE.match(lines[-1]) and not _is_question(lines[-1]):
        lines.pop()
    return bool(lines) and _is_question(lines[-1])


def _is_question(line: str) -> bool:
    said = line.rstrip("*_`\"'”’»)】」』. ")
    greek = said.endswith((";", "\u037e")) and _has_greek(said)
    return said.endswith(tuple(_QUESTION_MARKS)) or greek


def _has_greek(text: str) -> bool:
    return any("GREEK" in unicodedata.name(char, "") for char in text[-40:])


def only_asks(text: str) -> bool:
    """Return True if a text ends with a question and has little other content. Texts with a code
    span or a path do not count.
    """
    sentences = _SENTENCE_END.split(text[-MAX_TEXT_CHARS:])
    asked = sum(len(sentence) for sentence in sentences if _is_question(sentence))
    is_short = len(text.strip()) <= min(MAX_REST_SHARE * asked, MAX_QUESTION_CHARS)
    return is_short and ends_with_question(text) and "`" not in text and not paths_in(text)


def is_brief(text: str) -> bool:
    """Return True if a message has at most three words and is not a question."""
    runs = _RUN.findall(text[:MAX_TEXT_CHARS])
    words = sum(len(run) // 2 if UNSPACED.match(run) else 1 for run in runs)
    return words <= MAX_BRIEF_WORDS and not ends_with_question(text)


def paths_in(text: str) -> list[str]:
    """Return the paths in a text."""
    return _FILE.findall(text[:MAX_TEXT_CHARS])


def named_paths(text: str) -> tuple[str, ...]:
    """Return the paths, folders and patterns in a text. A character of a script without spaces ends
    a path.
    """
    bare = UNSPACED.sub(" ", _COMMAND_SPAN.sub(" ", text[:MAX_TEXT_CHARS]))
    found = (each.rstrip(".").removeprefix("./") for each in _PATH_WORD.findall(bare))
    return tuple(each for each in found if _NAMED_PATH.fullmatch(each) and _has_name(each))


def _has_name(path: str) -> bool:
    return re.search(r"\w\w", path) is not None and not _PROSE.fullmatch(path)


def folder_of(path: str) -> str:
    return path.removeprefix("./").rpartition("/")[0]


def fit_line(text: str, limit: int) -> str:
    """Return a text as one line, cut to `limit` characters."""
    text = " ".join(text[: 4 * limit].split())
    return text if len(text) <= limit else f"{text[: limit - 2].rstrip()} …"


def quote(text: str) -> str:
    return f"“{fit_line(text, MAX_LINE_CHARS)}”"
