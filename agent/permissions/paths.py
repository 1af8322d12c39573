"""The forms of a path that rules look at, and the files that a shell pattern may stand for."""

import glob
import os
import pwd
import re
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from ..lazy import regex

MAX_GLOB_MATCHES = 1000
_MAX_WILD_COMPONENTS = 2
_BRACKETS = regex(r"(?P<plain>\[(?:\w+|\d-\d)\])|(?P<other>\[[!^]?\]?[^\]/]*\])|\[", re.ASCII)

_ODD_NAME = regex(r"^[-~]|[\s'\"\\]|[^\x20-\x7e\u00a1-\U0010ffff]")

# Files and folders of these names have an effect when something else runs. They are compared
# without case, since some file systems ignore it.
PROTECTED_NAMES = frozenset((
    ".git", ".ctxagent", ".agentrc", ".ssh", ".envrc", ".gitconfig", ".gitmodules", ".bashrc",
    ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc",
    ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".inputrc", ".husky", ".githooks", ".vscode",
    ".idea", ".zed", ".devcontainer", ".claude", ".mcp.json", ".cursor", ".codex", ".gemini",
))  # fmt: skip
# A process's own current folder and root: a command's are not ours.
_OWN_PROC_LINK = regex(r"/proc/(?:self|thread-self)(?:/task/[^/]+)?/(cwd|root)(?=/|$)")


def path_forms(text: str, base: str) -> list[str]:
    """Return the path as written and, when links lead elsewhere, the path that they lead to.
    Returns [] when no such path can exist."""
    try:
        path = os.path.join(base, os.path.expanduser(text))  # noqa: PTH111, PTH118
        while own := _OWN_PROC_LINK.match(os.path.normpath(path)):
            rest = os.path.normpath(path)[own.end() :]
            path = (base if own[1] == "cwd" else "") + rest or "/"
        return list(dict.fromkeys((os.path.normpath(path), os.path.realpath(path))))
    except (ValueError, OSError):
        return []


def all_path_forms(places: Iterable[Path]) -> list[str]:
    """Return each path as it is named, and with links followed."""
    return [form for place in places for form in (str(place), os.path.realpath(place))]


def is_within(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def is_in_project(text: str, bases: Iterable[str], project: Iterable[str]) -> bool:
    """Return True if a path in a command, as it is written, lies in the project, and not in what
    belongs to git."""
    forms = [form for base in bases for form in path_forms(text, base)]
    return bool(forms) and all(
        is_within(form, project) and ".git" not in form.casefold().split("/") for form in forms
    )


def protected_name(
    path: str, roots: Iterable[str], rule_path: str = "", own: Iterable[str] = ()
) -> str:
    """Return the name in a path of something that runs by itself later, "" if it has none. Names
    above the root that the path is in do not count, nor do those in the path pattern `rule_path`.
    `own` are the agent's own folders and files."""
    root = next((root for root in roots if is_within(path, (root,))), "")
    named, folded = rule_path.casefold().split("/"), path.casefold()
    for place in own:
        name = place.rpartition("/")[2].casefold()
        if is_within(folded, (place.casefold(),)) and name not in named:
            return place
    for home in home_folders():
        # The person's programs read and run what lies here, unless it is the project.
        if is_within(folded, (home.casefold(),)) and is_within(home, (root,)):
            first = folded[len(home.casefold()) :].lstrip("/").partition("/")[0]
            if (first.startswith(".") or first == "bin") and first not in named:
                return first
    parts = path[len(root) :].casefold().split("/")
    return next((part for part in parts if part in PROTECTED_NAMES and part not in named), "")


def home_folders() -> list[str]:
    """Return the user's home folders, as named and with links followed."""
    homes = [os.path.expanduser("~")]  # noqa: PTH111
    with suppress(KeyError):
        homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    found = dict.fromkeys(all_path_forms(Path(home) for home in homes))
    return [home for home in found if home.startswith("/") and home != "/"]


def is_plain_name(path: str) -> bool:
    """Return True if a path can be taken for nothing but one name."""
    return not any(map(_ODD_NAME.search, path.split("/")))


def expand_glob(pattern: str, base: str) -> list[str] | None:
    """Return the paths that the unquoted `pattern` finds from the folder `base`, relative ones as
    the shell gives them. Returns None when they are too many to look at, when one may be taken for
    an option, or when the shell may read the pattern otherwise."""
    wild = re.findall(r"[*?\[][^/]*(?:/|$)", pattern)
    if len(wild) > _MAX_WILD_COMPONENTS or re.search(r"\[[:.=]", pattern):
        return None
    try:
        widened = _BRACKETS.sub(_widen_bracket, os.path.expanduser(pattern))  # noqa: PTH111
        found = list(islice(glob.iglob(widened, root_dir=base), MAX_GLOB_MATCHES + 1))  # noqa: PTH207
    except ValueError:  # no path is called so
        return None
    too_many = len(found) > MAX_GLOB_MATCHES
    return None if too_many or any(path.startswith("-") for path in found) else found


def _widen_bracket(bracket: re.Match[str]) -> str:
    """Return `?` for a bracket whose meaning depends on the shell and its language."""
    return bracket["plain"] or ("?" if bracket["other"] else "[[]")
