"""The language server for each file suffix, its command and its root folder."""

import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from ...api.base import dataclass
from ...api.programs import program

# Folders below the root with programs installed by the project.
_OWN_FOLDERS = (".venv/bin", "venv/bin", "node_modules/.bin")


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A kind of language server: its file suffixes, commands and settings."""

    languages: Mapping[str, str]  # the protocol's name of the language, by suffix
    commands: tuple[tuple[str, ...], ...]  # the first installed one is used
    markers: tuple[str, ...] = ()  # files that mark a root folder
    env: Mapping[str, str] = field(default_factory=dict)  # in addition to the session's environment
    options: Any = None  # initializationOptions of the protocol
    settings: Any = None  # answer to workspace/configuration
    start_s: float = 0.0  # start timeout, if longer than START_TIMEOUT_S

    @property
    def name(self) -> str:
        """The name of the preferred program, for messages."""
        return Path(self.commands[0][0]).name


_JAVASCRIPT = {
    ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".jsx": "javascriptreact",
    ".ts": "typescript", ".mts": "typescript", ".cts": "typescript", ".tsx": "typescriptreact",
}  # fmt: skip
_C = {
    ".c": "c", ".h": "c", ".cc": "cpp", ".cpp": "cpp", ".cxx": "cpp", ".hh": "cpp", ".hpp": "cpp",
}  # fmt: skip
KINDS = (
    ServerKind(
        {".py": "python", ".pyi": "python"},
        (("pyright-langserver", "--stdio"), ("basedpyright-langserver", "--stdio")),
        ("pyrightconfig.json", "pyproject.toml", "setup.py", "setup.cfg"),
    ),
    ServerKind(
        _JAVASCRIPT,
        (("typescript-language-server", "--stdio"),),
        ("tsconfig.json", "jsconfig.json", "package.json"),
    ),
    ServerKind({".go": "go"}, (("gopls",),), ("go.work", "go.mod")),
    ServerKind({".rs": "rust"}, (("rust-analyzer",),), ("Cargo.toml",)),
    ServerKind(_C, (("clangd",),), ("compile_commands.json", "compile_flags.txt", ".clangd")),
)


def own_kinds(settings: Iterable[str]) -> Iterator[ServerKind]:
    """Yield the servers from the user's settings, each given as "SUFFIX …: COMMAND"."""
    for each in settings:
        suffixes, _, command = each.partition(":")
        try:
            words = tuple(shlex.split(command))
        except ValueError:  # an open quote
            words = tuple(command.split())
        languages = {suffix: suffix.removeprefix(".") for suffix in suffixes.split()}
        yield ServerKind(languages, (words,))


def project_top(cwd: Path) -> Path:
    """Return the top folder of the repository that contains `cwd`, or `cwd` outside of a
    repository.
    """
    return next((each for each in (cwd, *cwd.parents) if (each / ".git").exists()), cwd)


def root_of(kind: ServerKind, path: Path, top: Path) -> Path:
    """Return the nearest folder above a file that contains a marker file, at most `top`."""
    for folder in path.parents:
        if folder == top or any((folder / marker).exists() for marker in kind.markers):
            return folder
    return top


def installed(kind: ServerKind, root: Path, path: str, *, confined: bool) -> Sequence[str] | None:
    """Return the command of a server with the path of its program, None if it is not installed. A
    program in a folder that the agent's commands can change is used only if the server is
    `confined`.
    """
    folders = ":".join([*(str(root / each) for each in _OWN_FOLDERS), path])
    for name, *arguments in kind.commands:
        folder, _, plain = name.rpartition("/")
        found = shutil.which(name, path=folders) if confined else program(plain, folder or path)
        if found:
            return [found, *arguments]
    return None
