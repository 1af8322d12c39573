"""Where a path leads, told before anything is opened: the forms that rules look at."""

import os
import pwd
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from .shell.wrappers import names

# What a file of these names does when something else runs; compared without case, since some
# file systems know none.
PROTECTED = names(
    ".git .ctxagent .agentrc .ssh .envrc .gitconfig .gitmodules .bashrc .bash_profile .bash_login "
    ".bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout "
    ".inputrc"
)
# What a process has for its own current folder and root: for a command that is its own, not ours.
_OF_PROCESS = re.compile(r"/proc/(?:self|thread-self)(?:/task/[^/]+)?/(cwd|root)(?=/|$)")


def forms(text: str, base: str) -> list[str]:
    """The path as written and, when links lead elsewhere, as it really is. Empty when no such
    path can exist."""
    try:
        path = os.path.join(base, os.path.expanduser(text))  # noqa: PTH111, PTH118
        while own := _OF_PROCESS.match(os.path.normpath(path)):
            rest = os.path.normpath(path)[own.end() :]
            path = (base if own[1] == "cwd" else "") + rest or "/"
        return list(dict.fromkeys((os.path.normpath(path), os.path.realpath(path))))
    except (ValueError, OSError):
        return []


def all_forms(places: Iterable[Path]) -> list[str]:
    """Places as they are named, and as they really are."""
    return [form for place in places for form in (str(place), os.path.realpath(place))]


def within(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def protected(path: str, roots: Iterable[str], meant: str = "", own: Iterable[str] = ()) -> str:
    """The name in a path of what runs by itself later, below the root it is in; "" for none. `own`
    are the agent's own folders and files. The names in `meant`, a rule, are not looked for."""
    root = next((root for root in roots if within(path, (root,))), "")
    named, folded = meant.casefold().split("/"), path.casefold()
    for place in own:
        if within(folded, (place.casefold(),)) and os.path.basename(place).casefold() not in named:  # noqa: PTH119
            return place
    for home in _homes():
        # What a person's programs read and run, where it is not the project that lies there.
        if within(folded, (home.casefold(),)) and within(home, (root,)):
            first = folded[len(home.casefold()) :].lstrip("/").partition("/")[0]
            if (first.startswith(".") or first == "bin") and first not in named:
                return first
    parts = path[len(root) :].casefold().split("/")
    return next((part for part in parts if part in PROTECTED and part not in named), "")


def _homes() -> list[str]:
    """The homes of the person, by name and as they really are."""
    homes = [os.path.expanduser("~")]  # noqa: PTH111
    with suppress(KeyError):
        homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    found = dict.fromkeys(all_forms(Path(home) for home in homes))
    return [home for home in found if home.startswith("/") and home != "/"]
