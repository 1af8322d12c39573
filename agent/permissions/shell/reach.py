"""What a shell command visibly needs that a sandbox does not give: the network, other rights, files
elsewhere, files that something runs later.

This is about asking before instead of failing inside: what a command does without showing it, the
sandbox itself prevents.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from ...lazy import regex
from ..paths import expand_glob, is_within, path_forms
from .command_table import first_operand
from .git import is_leading_cd
from .parser import Script, SimpleCommand, Word
from .read_only import path_arguments
from .wrappers import name_set

if TYPE_CHECKING:
    from ....tools.base import Confinement

NETWORK = "the network"

_Use = Literal["read", "write", "remove"]  # of a path
FILE_WRITING_COMMANDS = name_set(
    "cp mv rm rmdir mkdir touch tee truncate ln install dd sed chmod chown shred unlink patch"
)
_REMOVERS = name_set("rm rmdir mv")
_COPIERS = name_set("cp ln install")  # which only write to where their last operand is

_NETWORK_COMMANDS = name_set(
    "curl wget ssh scp sftp ftp telnet nc ncat netcat socat mosh rclone aria2c ping dig nslookup "
    "whois gh glab hub aws gcloud az kubectl helm heroku flyctl vercel netlify wrangler brew apt "
    "apt-get dnf yum zypper pacman apk snap flatpak rustup"
)
_NETWORK_SUBCOMMANDS = {
    "git": "push fetch pull clone ls-remote submodule send-email",
    "npm": "install i ci add update upgrade outdated publish audit view search login create init",
    "pnpm": "install i add update up outdated publish audit dlx create fetch",
    "yarn": "install add upgrade up outdated publish audit dlx create",
    "bun": "install i add update x create publish",
    "pip": "install download index wheel search",
    "uv": "sync add lock pip tool python publish",
    "poetry": "install add update lock publish",
    "pdm": "install add update lock sync publish",
    "pipenv": "install update lock sync",
    "conda": "install create update search",
    "cargo": "install fetch update add search publish login",
    "go": "get install",
    "gem": "install update push search",
    "bundle": "install update",
    "composer": "install update require",
    "dotnet": "restore publish",
    "terraform": "init apply plan destroy",
}
_NETWORK_ALONE = name_set("yarn")  # without a subcommand it installs
_OTHER_RIGHTS = name_set("sudo doas su pkexec runuser")
_SERVICES = name_set(
    "docker podman nerdctl systemctl service launchctl crontab at loginctl machinectl"
)
_PYTHON = regex(r"python[\d.]*")
_PIP = regex(r"pip[\d.]*")
# The system's own folders, which are read by everything that runs.
_SYSTEM_FOLDERS = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/etc", "/dev", "/proc", "/sys",
    "/nix", "/snap", "/run/current-system",
)  # fmt: skip


def need_beyond_sandbox(
    script: Script,
    bases: Sequence[str],
    sandbox: "Confinement",
    protected: Callable[[str], str],
) -> str:
    """Return what a command visibly needs beyond the sandbox, in words for a person; "" if nothing.

    `bases` are the folders that its paths may be relative to, the project's the first. `protected`
    tells what makes a path in the project a protected one, "" if nothing.
    """
    for part in script.parts:
        need = _service(part)
        if need and not (sandbox.by_name and need.startswith(NETWORK)):
            return need
    for path, use in _uses(script, bases):
        if use == "remove" and path == os.path.realpath(bases[0]):
            return "the project's own folder, which it removes or moves"
        if use != "read" and (name := protected(path)):
            return f"a protected file: {name}"
        kept_out = not sandbox.can_write(path) or (use == "read" and not sandbox.can_read(path))
        if kept_out and (use != "read" or _is_kept_elsewhere(path)):
            return f"a path outside of the project: {path}"
    return ""


def paths_read(script: Script, bases: Sequence[str]) -> list[str]:
    """Return the absolute paths that a command visibly reads, as far as something is there and is
    not the system's own, with links followed."""
    found = (path for path, use in _uses(script, bases) if use == "read")
    return [path for path in dict.fromkeys(found) if _is_kept_elsewhere(path)]


def shows_repository(script: Script, cwd: str) -> bool:
    """Return True if a question about a command shows that it writes the repository: it runs git,
    or names what it writes there."""
    runs = any(part.name.rpartition("/")[2] == "git" for part in script.parts)
    return runs or any(".git" in path.split("/") for path in paths_written(script, cwd))


def paths_written(script: Script, cwd: str) -> frozenset[str]:
    """Return the absolute paths that a command visibly writes, removes or moves, with links
    followed. Where the folder is not certain that its words are relative to, there are none."""
    base = cwd
    if script.moves:
        first = script.moves[0]
        if len(script.moves) > 1 or not is_leading_cd(first, script) or len(first.words) != 2:
            return frozenset()
        found = list(_paths(first.words[1], [cwd]))
        if len(found) != 1:
            return frozenset()
        base = found[0]
    return frozenset(path for path, use in _uses(script, [base]) if use != "read")


def _uses(script: Script, bases: Sequence[str]) -> Iterator[tuple[str, _Use]]:
    """Yield the absolute paths that a command visibly uses, with what it does there."""
    places: list[tuple[Word, _Use]] = [(word, "write") for word in script.writes]
    places += [(word, "read") for word in script.reads]
    places += [place for part in script.parts for place in _places(part)]
    yield from ((path, use) for word, use in places for path in _paths(word, bases))


def _service(part: SimpleCommand) -> str:
    """Return the service that a command needs: the network, or what runs next to the sandbox."""
    words = [word.text for word in part.words]
    name = words[0].rpartition("/")[2]
    if _PYTHON.fullmatch(name) and words[1:3] == ["-m", "pip"]:
        name, words = "pip", words[2:]
    name = "pip" if _PIP.fullmatch(name) else name
    if name in _OTHER_RIGHTS:
        return f"the rights of another user: `{name}`"
    if name in _SERVICES:
        return f"a service of the system: `{name}`"
    start = first_operand([name, *words[1:]])
    subcommand = words[start] if start < len(words) else ""
    if subcommand in _NETWORK_SUBCOMMANDS.get(name, "").split():
        return f"{NETWORK}: `{name} {subcommand}`"
    remote = name == "rsync" and any(re.match(r"[\w.@-]+:", word) for word in words[1:])
    if name in _NETWORK_COMMANDS or remote or (name in _NETWORK_ALONE and len(words) == 1):
        return f"{NETWORK}: `{name}`"
    return ""


def _places(part: SimpleCommand) -> Iterator[tuple[Word, _Use]]:
    """Yield the words of a command that may be paths, and what it does there."""
    name = part.name.rpartition("/")[2]
    words = list(path_arguments(part))
    writes = name in FILE_WRITING_COMMANDS
    if name == "sed":
        writes = any(re.match(r"-[nErsuz]*i|--in-place", word.text) for word in part.words[1:])
    elif name == "dd":
        words = [word for word in part.words[1:] if word.text.startswith("of=")]
        words = [Word(word.text[3:], word.fixed, word.glob) for word in words]
    use: _Use = "remove" if name in _REMOVERS else "write" if writes else "read"
    for place, word in enumerate(words, 1):
        yield word, "read" if name in _COPIERS and place < len(words) else use


def _paths(word: Word, bases: Sequence[str]) -> Iterator[str]:
    """Yield the absolute paths that a word means, with links followed."""
    if not word.fixed or not word.text:
        return
    for base in bases:
        for text in [word.text, *((expand_glob(word.text, base) or []) if word.glob else [])]:
            yield from path_forms(text, base)[-1:]


def _is_kept_elsewhere(path: str) -> bool:
    """Return True if something is there, and not the system's own."""
    return os.path.lexists(path) and path != "/" and not is_within(path, _SYSTEM_FOLDERS)
