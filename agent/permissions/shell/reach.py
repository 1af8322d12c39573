"""The reach of a shell command: its programs, its files, and its needs beyond a sandbox.

The needs are the network, other privileges, files outside the project, and protected files. Visible
needs allow asking before the command fails in the sandbox. The sandbox itself prevents everything
that a command does without showing it.

A name such as `ls` is trusted only if the shell finds the program in a place that only the user can
write to. Otherwise a project could bring its own `ls` in a folder that comes first on the PATH. The
search follows bash (bash(1), "COMMAND EXECUTION").

Match a command's words against a deny or ask rule.

The options of the rule match in any order: `rm -rf` also matches `rm -r -f x`, `rm x -fr` and `rm
--recursive --force x`.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from ....tools.system.programs import is_writable_by_commands, links_of, within
from ...lazy import dataclass, regex
from ..paths import expand_glob, is_within, path_forms
from .command_table import first_operand
from .git import is_leading_cd
from .parser import Script, SimpleCommand, Word
from .read_only import path_arguments
from .wrappers import name_set

if TYPE_CHECKING:
    from ....tools.system.confinement import Confinement

RuleMatch = Literal["yes", "maybe", "no"]  # maybe: known only when the command runs

# Long options that have the same short letter in all programs.
_OPTION_LETTERS = {"--recursive": "r", "--force": "f"}
_OPTION_BUNDLE = regex(r"-[A-Za-z]{1,8}")


def has_options(words: Sequence[str]) -> bool:
    return any(re.match(r"--?\w", word) for word in words)


def match_in_any_order(wanted: Sequence[str], words: Sequence[Word]) -> RuleMatch:
    """Return "yes" if a command starts with the wanted plain words and has the wanted options
    anywhere.
    """
    end = next((at for at, word in enumerate(words) if word.text == "--"), len(words))
    options = [word.text for word in words[:end] if word.text.startswith("-") and word.fixed]
    plain = [w for at, w in enumerate(words) if at > end or not w.text.startswith("-")]
    names = [word for word in wanted if not word.startswith("-")]
    for name, word in zip(names, plain, strict=False):
        if word.fixed and not word.glob and word.text != name:
            return "no"
    vague = any(not word.fixed or word.glob for word in words)
    wanted_options = [word for word in wanted if word.startswith("-")]
    if len(plain) < len(names) or not _has_options(wanted_options, options):
        return "maybe" if vague else "no"
    named = plain[: len(names)]
    return "yes" if all(word.fixed and not word.glob for word in named) else "maybe"


def _has_options(wanted: Sequence[str], options: Sequence[str]) -> bool:
    """Return True if the options include all wanted options in any spelling."""
    bundles = (option[1:] for option in options if _OPTION_BUNDLE.fullmatch(option))
    letters = {_same_letter(letter) for bundle in bundles for letter in bundle}
    for long, letter in _OPTION_LETTERS.items():
        if any(_abbreviates(option, long) for option in options):
            letters.add(letter)
    return all(_has_option(each, options, letters) for each in wanted)


def _has_option(wanted: str, options: Sequence[str], letters: set[str]) -> bool:
    if wanted.startswith("--"):
        spelled_out = any(_abbreviates(option, wanted) for option in options)
        return spelled_out or _OPTION_LETTERS.get(wanted) in letters
    if wanted in options:
        return True
    return bool(_OPTION_BUNDLE.fullmatch(wanted)) and set(map(_same_letter, wanted[1:])) <= letters


def _same_letter(letter: str) -> str:
    return "r" if letter == "R" else letter


def _abbreviates(word: str, option: str) -> bool:
    """Return True if a word is a long option, shortened or with a value: `--forc`, `--force=x`."""
    name, _, value = word.partition("=")
    wanted, _, fixed = option.partition("=")
    return len(name) > 2 and wanted.startswith(name) and name[:2] == "--" and fixed in ("", value)


# Bash builtins, which need no PATH search.
_BUILTINS = name_set(
    ". : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare "
    "dirs disown echo enable eval exec exit export false fc fg getopts hash help history jobs kill "
    "let local logout mapfile popd printf pushd pwd read readarray readonly return set shift shopt "
    "source suspend test times trap true type typeset ulimit umask unalias unset wait"
)

_TEMPORARY = ("/tmp", "/var/tmp")


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs on a PATH, for commands that start in a project. Programs in the session's
    `folders` and in temporary folders are not trusted.
    """

    path: str
    folders: Iterable[str]

    def all_known(self, script: Script, bases: Sequence[str]) -> bool:
        """Return True if each command of a script runs the program that its name suggests."""
        return all(self.is_known(part, script, bases) for part in script.parts)

    def is_known(self, part: SimpleCommand, script: Script, bases: Sequence[str]) -> bool:
        """Return True if a command is a bash builtin, a trusted program (see `find`), or not found
        at all. `bases` are the folders that the command may start from.
        """
        return part.name in _BUILTINS or self.find(part, script, bases) is not None

    def find(self, part: SimpleCommand, script: Script, bases: Sequence[str]) -> str | None:
        """Return the first program on the PATH for a command; "" if there is none. Return None if
        that is not certain: the program, its folder or a link target may be written by the project
        or by a command.
        """
        name = part.name
        if not part.words[0].fixed or part.words[0].glob or "\0" in name:
            return None
        if "/" in name:
            return name if name.startswith("/") and self._is_out_of_reach(name) else None
        for folder in self.path.split(":"):
            file = f"{folder}/{name}"
            if not folder.startswith("/"):
                if script.folder_changes or _is_in(bases, folder, name):
                    return None
            elif os.access(file, os.X_OK) and not os.path.isdir(file):  # noqa: PTH112
                return file if self._is_out_of_reach(file) else None
        safe = all(f.startswith("/") and self._is_out_of_reach(f) for f in self.path.split(":"))
        return "" if safe else None

    def folder_of(self, path: str, bases: Sequence[str]) -> str:
        """Return the PATH entry whose folder directly contains an absolute path, links resolved or
        not; "" for none.
        """
        parent = os.path.dirname(path)  # noqa: PTH120
        for folder, place in self._folders(bases):
            if parent in (place, folder):
                return folder or "."
        return ""

    def _folders(self, bases: Sequence[str]) -> Iterator[tuple[str, str]]:
        for folder in self.path.split(":"):
            for base in bases if not folder.startswith("/") else bases[:1]:
                yield folder, os.path.realpath(os.path.join(base, folder))  # noqa: PTH118

    def _is_out_of_reach(self, file: str) -> bool:
        named = (os.path.normpath(each) for each in links_of(file))
        real = os.path.realpath(file)
        untrusted = (*self.folders, *_TEMPORARY)
        return not any(is_writable_by_commands(p) or within(p, untrusted) for p in (*named, real))


def _is_in(bases: Sequence[str], folder: str, name: str) -> bool:
    """Return True if a file with this name exists in a folder relative to one of the bases."""
    return any(os.path.lexists(os.path.join(base, folder, name)) for base in bases)  # noqa: PTH118


NETWORK = "the network"

_Use = Literal["read", "write", "remove"]  # of a path
FILE_WRITING_COMMANDS = name_set(
    "cp mv rm rmdir mkdir touch tee truncate ln install dd sed chmod chown shred unlink patch"
)
_REMOVERS = name_set("rm rmdir mv")
_COPIERS = name_set("cp ln install")  # they write only to their last operand

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
_NETWORK_ALONE = name_set("yarn")  # installs without a subcommand
_OTHER_RIGHTS = name_set("sudo doas su pkexec runuser")
_SERVICES = name_set(
    "docker podman nerdctl systemctl service launchctl crontab at loginctl machinectl"
)
_PYTHON = regex(r"python[\d.]*")
_PIP = regex(r"pip[\d.]*")
# The system's own folders, which every program reads.
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
    """Describe for the user the first visible need of a command beyond the sandbox; "" if there is
    none.

    `bases` are the folders that its paths may be relative to, the project's first. `protected`
    returns the protected name in a path of the project, "" if there is none.
    """
    for part in script.parts:
        need = _service(part)
        if need and not (sandbox.by_name and need.startswith(NETWORK)):
            return need
    for path, use in _uses(script, bases):
        if use == "remove" and path == os.path.realpath(bases[0]):
            return "removing or moving the project's folder"
        if use != "read" and (name := protected(path)):
            return f"a protected file: {name}"
        kept_out = not sandbox.can_write(path) or (use == "read" and not sandbox.can_read(path))
        if kept_out and (use != "read" or _exists_outside_system(path)):
            return f"a path outside of the project: {path}"
    return ""


def paths_read(script: Script, bases: Sequence[str]) -> list[str]:
    """Return the absolute paths that a command visibly reads, links resolved. Missing files and
    system files are left out.
    """
    found = (path for path, use in _uses(script, bases) if use == "read")
    return [path for path in dict.fromkeys(found) if _exists_outside_system(path)]


def may_write_repository(script: Script, cwd: str) -> bool:
    """Return True if the command visibly writes to the repository: it runs git or names a path in
    `.git`.
    """
    runs = any(part.name.rpartition("/")[2] == "git" for part in script.parts)
    return runs or any(".git" in path.split("/") for path in paths_written(script, cwd))


def paths_written(script: Script, cwd: str) -> frozenset[str]:
    """Return the absolute paths that a command visibly writes, removes or moves, links resolved.
    Return an empty set if the folder of its relative paths is not certain.
    """
    base = cwd
    if script.folder_changes:
        first = script.folder_changes[0]
        if (
            len(script.folder_changes) > 1
            or not is_leading_cd(first, script)
            or len(first.words) != 2
        ):
            return frozenset()
        found = list(_paths(first.words[1], [cwd]))
        if len(found) != 1:
            return frozenset()
        base = found[0]
    return frozenset(path for path, use in _uses(script, [base]) if use != "read")


def _uses(script: Script, bases: Sequence[str]) -> Iterator[tuple[str, _Use]]:
    """Yield the absolute paths that a command visibly uses, with the kind of use."""
    places: list[tuple[Word, _Use]] = [(word, "write") for word in script.writes]
    places += [(word, "read") for word in script.reads]
    places += [place for part in script.parts for place in _places(part)]
    yield from ((path, use) for word, use in places for path in _paths(word, bases))


def _service(part: SimpleCommand) -> str:
    """Describe the service that a command needs: the network, another user's rights or a system
    service.
    """
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


def is_publishing(part: SimpleCommand) -> bool:
    """Return True if a command publishes a package."""
    name, *words = [word.text for word in part.words]
    start = first_operand([name, *words])
    listed = _NETWORK_SUBCOMMANDS.get(name.rpartition("/")[2], "").split()
    return "publish" in listed and [name, *words][start : start + 1] == ["publish"]


def _places(part: SimpleCommand) -> Iterator[tuple[Word, _Use]]:
    """Yield the words of a command that may be paths, with the kind of use."""
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
    """Yield the absolute paths that a word can mean, links resolved."""
    if not word.fixed or not word.text:
        return
    for base in bases:
        for text in [word.text, *((expand_glob(word.text, base) or []) if word.glob else [])]:
            yield from path_forms(text, base)[-1:]


def _exists_outside_system(path: str) -> bool:
    """Return True if a path exists and is not in the system's own folders."""
    return os.path.lexists(path) and path != "/" and not is_within(path, _SYSTEM_FOLDERS)
