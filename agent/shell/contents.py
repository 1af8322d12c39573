"""Which of git's looking commands show what is in files that it keeps: a file may be kept from
being read and be in a commit. Known are the files that the index has; one that only old commits
have is not."""

import os
import re
from collections.abc import Callable, Sequence

from .repository import top, tracked
from .syntax import Part, Word
from .wrappers import names

# Without options these show names and messages, or nothing of files.
_BRIEF = names("log reflog whatchanged diff-tree diff-index diff-files")
_PATCHES = names("diff stash")
_ALWAYS = names("show blame grep cat-file range-diff")
_SUMMARY = re.compile(
    r"-s|--(?:stat|shortstat|numstat|dirstat|summary|name-only|name-status|raw|no-patch|quiet)"
    r"(?:=.*)?"
)
_PLAIN = re.compile(
    r"-\d+|-n\d*|-[iEFPrzRbwMC]|-[SG].*|--(?:oneline|graph|all|decorate|no-decorate|format|pretty"
    r"|date|since|until|after|before|author|committer|grep|max-count|skip|abbrev|abbrev-commit"
    r"|reverse|follow|merges|no-merges|first-parent|topo-order|date-order|branches|tags|remotes"
    r"|no-color|color|no-renames|find-renames|diff-filter|cached|staged|merge-base|no-pager"
    r"|exit-code|no-ext-diff|no-textconv|show-signature)(?:=.*)?|--|-P"
)
_WIDER = re.compile(r"--(?:fu|fo|stdi).*")  # what is shown is not bound to the paths
_LOOSE = re.compile(r"[0-9a-f]{4,64}|.*\{.*|:/.*", re.IGNORECASE | re.DOTALL)  # a file's, perhaps
_KEPT_AT = re.compile(r"(?::[0-3]:|[^:]*:)(.+)", re.DOTALL)  # REV:path
_SPECIAL = re.compile(r"[*?\[\\]|^:")  # of git's own patterns, in quotes too


def may_show(part: Part, base: str, kept: Callable[[str], bool]) -> bool:
    """Whether a command of git that only looks may show, from the folder `base`, what is in a file
    for whose path `kept` is true."""
    if not _shows([word.text for word in part.words[1:]]):
        return False
    files, bounds = tracked(base), _bounds(part, base)
    if files is None:
        return True
    within = tuple(f"{path}/" for path in bounds)
    return any(
        (not bounds or path in bounds or path.startswith(within)) and kept(path) for path in files
    )


def in_commits(part: Part, base: str) -> list[str]:
    """The paths, from the folder `base`, of what a command of git names in commits (`REV:path`)."""
    if part.name != "git":
        return []
    found = (_KEPT_AT.fullmatch(word.text) for word in part.words[1:])
    return [_at(match[1], base) for match in found if match]


def _at(path: str, base: str) -> str:
    """Where a path in a commit is: it counts from the top unless it says otherwise."""
    start = base if re.match(r"\.\.?(?:/|$)", path) else top(base)
    return os.path.normpath(os.path.join(start, path))  # noqa: PTH118


def _shows(words: Sequence[str]) -> bool:
    command = _command(words)
    options = [word for word in words if word.startswith("-")]
    if command == "status":
        return any(re.fullmatch(r"-\w*v.*|--v.*", word) for word in options)
    if command == "cat-file":
        return not any(word in ("-t", "-s", "-e") for word in options)
    if command not in _BRIEF | _PATCHES:
        return command in _ALWAYS
    plain = all(_SUMMARY.fullmatch(word) or _PLAIN.fullmatch(word) for word in options)
    listed = list(words[:2]) == ["stash", "list"]
    brief = command in _BRIEF or listed or any(map(_SUMMARY.fullmatch, options))
    return not (plain and brief)


def _command(words: Sequence[str]) -> str:
    return next((word for word in words if not word.startswith("-")), "")


def _bounds(part: Part, base: str) -> set[str]:
    """The paths that a command is bound to; none when it may show any."""
    words = part.words[1:]
    texts = [word.text for word in words]
    command = _command(texts)
    end = texts.index("--") if "--" in texts else len(texts)
    named = [word for word in words[:end] if not word.text.startswith("-")][1:]
    if any(_LOOSE.fullmatch(word.text) for word in named):
        return set()
    if command in ("show", "cat-file") and end == len(texts):
        found = [(w, _KEPT_AT.fullmatch(w.text)) for w in named if w.text != "blob"]
        chosen = [Word(match[1] if match else "", w.fixed, w.glob) for w, match in found]
        bounds = [_at(word.text, base) for word in chosen]
    elif command == "cat-file" or any(
        ":" in w.text or _WIDER.fullmatch(w.text) for w in words[:end]
    ):
        return set()
    else:
        there = [w for w in named if os.path.lexists(os.path.join(base, w.text))]  # noqa: PTH118
        chosen = list(words[end + 1 :]) if end < len(texts) else there
        bounds = [os.path.normpath(os.path.join(base, word.text)) for word in chosen]  # noqa: PTH118
    if not all(word.text and word.fixed and not _SPECIAL.search(word.text) for word in chosen):
        return set()
    return set(bounds)
