"""Commands that are handed the names of files by another command: `find … | xargs wc -l`, `wc -l
$(git ls-files)`.

Such a command is as harmless as with those names written out, if the names are those of files in
the project, and if none of them is taken for something else: an option, several names, or, by a
link, a file elsewhere. The first is told by what lists them, the second by a look at the project.
"""

import os
import re
from collections import deque
from collections.abc import Sequence

from .parser import Script, SimpleCommand
from .read_only import is_read_only

MAX_NAMES = 50_000  # files looked at

_ODD_NAME = re.compile(r"^[-~]|[\s'\"\\]|[^\x20-\x7e\u00a1-\U0010ffff]")
_FILTERS = frozenset(("grep", "egrep", "fgrep", "sort", "uniq", "head", "tail", "rg"))
_WITHOUT_PATTERN = ("sort", "uniq", "head", "tail")
_FILTER_OPTION = re.compile(r"-[viEFwxhucrnd\d]+|-n|\d+|--(?:invert-match|ignore-case|unique)")
_LISTS: dict[str, re.Pattern[str]] = {
    "ls-files": re.compile(r"(?!--(?:format|debug|stage|abbrev|eol)|-[stvf]).*", re.DOTALL),
    "diff": re.compile(r"(?!--(?:relative|format)).*", re.DOTALL),
}


def lists_project_files(parts: Sequence[SimpleCommand]) -> bool:
    """Tell whether commands, one feeding the next, print nothing but the names of files in the
    folders that they are given. What they look at is judged elsewhere."""
    return bool(parts) and _lists_files(parts[0]) and all(map(_only_leaves_out, parts[1:]))


def _lists_files(part: SimpleCommand) -> bool:
    if not is_read_only(part):
        return False
    words = [word.text for word in part.words[1:]]
    if part.name == "find":
        return not any(word.startswith(("-printf", "-ls", "-L", "-follow", "-H")) for word in words)
    if part.name == "git":
        allowed = _LISTS.get(words[0]) if words else None
        if words[:1] == ["diff"] and "--name-only" not in words:
            return False
        return allowed is not None and all(map(allowed.fullmatch, words[1:]))
    listing = {"-l", "--files", "--files-with-matches"} & set(words)
    others = [word for word in words if word.startswith("-") and word not in listing]
    if part.name == "rg":
        return bool(listing) and not any(re.match(r"-[^-]*[rLo]|--[rfo]", word) for word in others)
    if part.name == "grep":
        known = r"-[rilnEFw]+|--(?:include|exclude|exclude-dir)=.*"
        lists = bool(listing) or any(re.match(r"-\w*l", word) for word in others)
        return lists and all(re.fullmatch(known, word, re.DOTALL) for word in others)
    return False


def _only_leaves_out(part: SimpleCommand) -> bool:
    """Tell whether a command prints some of the lines that it is fed, and nothing else."""
    if part.name not in _FILTERS or not is_read_only(part):
        return False
    words = [word.text for word in part.words[1:]]
    options = [word for word in words if word.startswith("-")]
    operands = [word for word in words if not word.startswith("-") and not word.isdecimal()]
    if not all(_FILTER_OPTION.fullmatch(option) for option in options):
        return False
    counts = part.name != "uniq" and any(re.match(r"-\w*c", each) for each in options)
    return len(operands) == (part.name not in _WITHOUT_PATTERN) and not counts


def feeding_parts(part: SimpleCommand, script: Script) -> list[SimpleCommand] | None:
    """Return the commands whose output xargs is fed; None if that may be anything else."""
    place = next((n for n, each in enumerate(script.parts) if each is part), 0)
    before = list(script.parts[:place])
    if before and before[0].name == "cd":
        del before[0]
    return None if script.reads or script.fed else before


def is_plain_name(path: str) -> bool:
    """Tell whether a path can be taken for nothing but one name."""
    return not any(map(_ODD_NAME.search, path.split("/")))


def has_plain_names(folder: str) -> bool:
    """Tell whether no file below a folder has a name that could be taken for more than one name or
    for an option, and no link leads out of it. Returns False where there are too many to look at.
    """
    root, seen, folders = os.path.realpath(folder), 0, deque([folder])
    while folders:
        try:
            entries = list(os.scandir(folders.popleft()))
        except OSError:
            return False
        seen += len(entries)
        if seen > MAX_NAMES:
            return False
        for entry in entries:
            if entry.name == ".git":
                continue
            if _ODD_NAME.search(entry.name):
                return False
            if entry.is_symlink():
                target = os.path.realpath(entry.path)
                if target != root and not target.startswith(f"{root}/"):
                    return False
            elif entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
    return True
