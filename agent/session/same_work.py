"""Similarity of the tasks of two subagents, used to give a new subagent the summary of an earlier
one.

A repeated task is rarely worded the same way, and parts of one job may differ only in a name. So
files and directories count first, then the words that both tasks share:

1. Tasks that name files, but no common file, are different.
2. Tasks with the same description are similar.
3. Otherwise, most of each task's topics must occur in the other task, and the tasks must share
   enough words. Topics are the words of a description that its prompt repeats, and words with
   digits. For tasks about the same files, most topics of one of the tasks and fewer shared words
   are enough.

No word list of a language is used: short words count little, endings are ignored, and text without
spaces between words is compared by pairs of characters.
"""

import unicodedata
from collections.abc import Collection, Iterable

from ..lazy import dataclass, regex

MIN_SHARED_WORDS = 2  # for tasks without a common file
MIN_OVERLAP, MIN_OVERLAP_SAME_FILES = (
    0.5,
    0.25,
)  # part of the shorter task's words that the other has
MIN_TOPICS = 0.75  # part of each task's topics that the other task has
MIN_TOPICS_SAME_FILES = 0.65  # the same for one of the tasks
MIN_FILES = 0.5  # part of the new task's files that the earlier task has
MIN_STEM_CHARS = 4  # common beginning of two words that count as one
MIN_STEM_SHARE = 4 / 7  # the same, as a part of the longer word
MIN_WORD_CHARS, MAX_WORD_WEIGHT = 3, 6
MAX_TEXT_CHARS = 8_000  # compared characters of a task

_TOKEN = regex(r"[^\s\"'`()\[\]{}<>|,;，、。；：「」《》（）]+")
_AROUND_PATH = ".:!?…*"
_FILE = regex(r"(?:[^/]*/)*(?:[\w~@+-][\w.~@+-]*\.[a-z][a-z0-9]{0,5}|\.[a-z][\w.-]*)")
_ABBREVIATION = regex(r"(?:\w\.)+\w?")  # `e.g`, `z.B`
_UNSPACED = regex(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+)"
)


@dataclass(frozen=True, slots=True)
class GivenTask:
    """A task, and the files that a subagent read or changed for it."""

    description: str
    prompt: str
    files: Collection[str] = ()

    @property
    def text(self) -> str:
        return f"{self.description}\n{self.prompt}"


def similarity(new: GivenTask, earlier: GivenTask) -> float:
    """Return the similarity of a new task to an earlier one; 0.0 means different tasks."""
    named, known = _paths(new.text), _paths(earlier.text)
    touched = {tuple(path.casefold().strip("/").split("/")) for path in earlier.files}
    shared_files = _share(named, known | touched)
    if named and (known or touched) and not (shared_files or _share(known, named)):
        return 0.0
    description, before = _words(new.description), _words(earlier.description)
    if _is_same(description, before, new.description, earlier.description):
        return 2.0
    words, others = _words(new.text), _words(earlier.text)
    overlap = _share_of_words(*sorted((words, others), key=_weight))
    topics, others_topics = _topics(new) or description, _topics(earlier) or before
    covered = _share_of_words(topics, others), _share_of_words(others_topics, words)
    if named and shared_files >= MIN_FILES:
        is_alike = overlap >= MIN_OVERLAP_SAME_FILES and max(covered) >= MIN_TOPICS_SAME_FILES
    else:
        shared = len(_shared_words(words, others))
        is_alike = overlap >= MIN_OVERLAP and shared >= MIN_SHARED_WORDS
        is_alike = is_alike and bool(_shared_words(topics, others_topics))
        is_alike = is_alike and min(covered) >= MIN_TOPICS
    return overlap + shared_files if is_alike else 0.0


def _is_same(words: set[str], others: set[str], text: str, other: str) -> bool:
    """Return True if two descriptions have the same words, in any order and form."""
    if not words or not others:
        return text.casefold().split() == other.casefold().split()
    return _shared_words(words, others) == words and _shared_words(others, words) == others


def _paths(text: str) -> set[tuple[str, ...]]:
    """Return the files and directories named in a text, as tuples of path parts."""
    found = set()
    for token in _TOKEN.findall(text[:MAX_TEXT_CHARS]):
        path = token.rstrip(_AROUND_PATH).casefold().removeprefix("./")
        is_directory = path.endswith("/") or path.startswith(("/", "~/")) or path.count("/") > 1
        is_file = _FILE.fullmatch(path) and not _ABBREVIATION.fullmatch(path)
        if (is_directory or is_file) and "://" not in path and path.strip("/."):
            found.add(tuple(path.strip("/").split("/")))
    return found


def _share(paths: Collection[tuple[str, ...]], others: Collection[tuple[str, ...]]) -> float:
    """Return the share of `paths` that match a path in `others` or contain or are contained
    in one.
    """
    same = sum(any(_is_same_or_inside(path, other) for other in others) for path in paths)
    return same / len(paths) if paths else 0.0


def _is_same_or_inside(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return True if two paths are the same or one contains the other; either may be relative."""
    short, long = sorted((one, other), key=len)
    ends = range(len(long) - len(short) + 1)
    return any(long[start : start + len(short)] == short for start in ends)


def _words(text: str) -> set[str]:
    """Return the words of a text outside paths. Text without spaces gives pairs of characters."""
    outside = (t for t in _TOKEN.findall(text[:MAX_TEXT_CHARS]) if not _paths(t))
    text = unicodedata.normalize("NFKC", " ".join(outside)).casefold()
    letters = (c if unicodedata.category(c)[0] in "LMN" or c == "_" else " " for c in text)
    found = set[str]()
    for run in _UNSPACED.split("".join(letters)):
        if _UNSPACED.fullmatch(run):
            found |= {run[n : n + 2] for n in range(max(1, len(run) - 1))}
        else:
            found |= {w for w in run.split() if len(w) >= MIN_WORD_CHARS or _has_digit(w)}
    return found


def _topics(work: GivenTask) -> set[str]:
    """Return a task's topics: the words of its description that its prompt repeats, and words with
    digits.
    """
    words = _words(work.description)
    return _shared_words(words, _words(work.prompt)) | set(filter(_has_digit, words))


def _share_of_words(words: set[str], others: set[str]) -> float:
    """Return the share of `words` that occur in `others`, by weight."""
    return _weight(_shared_words(words, others)) / _weight(words) if words else 0.0


def _weight(words: Iterable[str]) -> int:
    return sum(
        MAX_WORD_WEIGHT
        if _has_digit(word)
        else MIN_WORD_CHARS
        if _UNSPACED.fullmatch(word)
        else min(len(word) + 1 - MIN_WORD_CHARS, MAX_WORD_WEIGHT)
        for word in words
    )


def _shared_words(words: set[str], others: set[str]) -> set[str]:
    """Return the words that occur in `others`, in any form."""
    stems: dict[str, list[str]] = {}
    for other in others:
        stems.setdefault(other[:MIN_STEM_CHARS], []).append(other)
    return {
        word
        for word in words
        if any(_is_same_word(word, other) for other in stems.get(word[:MIN_STEM_CHARS], ()))
    }


def _is_same_word(one: str, other: str) -> bool:
    """Return True if two words are the same or two forms of one word."""
    if one == other or _has_digit(one + other):
        return one == other
    short, long = sorted((one, other), key=len)
    same = next((n for n, c in enumerate(short) if c != long[n]), len(short))
    return same >= MIN_STEM_CHARS and (same == len(short) or same >= MIN_STEM_SHARE * len(long))


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))
