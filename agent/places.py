"""Where a path leads, told before anything is opened: the forms that rules look at."""

import os
import re
from collections.abc import Iterable

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


def within(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def protected(path: str, roots: Iterable[str], meant: str = "") -> str:
    """The name in a path of what runs by itself later, below the root it is in; "" for none. The
    names in `meant`, a rule, are not looked for."""
    root = next((root for root in roots if within(path, (root,))), "")
    named = meant.casefold().split("/")
    parts = path[len(root) :].casefold().split("/")
    return next((part for part in parts if part in PROTECTED and part not in named), "")
