"""Which language server is for which file, and where it runs."""

import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from ....tools.system.programs import program
from ...lazy import dataclass

# Below the root: programs that the project has installed for itself.
_OWN_FOLDERS = (".venv/bin", "venv/bin", "node_modules/.bin")


@dataclass(frozen=True, slots=True)
class ServerKind:
    """The language servers for files of some suffixes."""

    languages: Mapping[str, str]  # the protocol's name of the language, by suffix
    commands: tuple[tuple[str, ...], ...]  # the first that is installed counts
    markers: tuple[str, ...] = ()  # files that a root folder has
    env: Mapping[str, str] = field(default_factory=dict)  # besides that of the session
    options: Any = None  # that it is started with
    settings: Any = None  # what it gets when it asks for settings
    start_s: float = 0.0  # that it may take to start, if that is longer than usual

    @property
    def name(self) -> str:
        """The usual program, for people."""
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
    """Yield the servers that the user has set, each as "SUFFIX …: COMMAND"."""
    for each in settings:
        suffixes, _, command = each.partition(":")
        try:
            words = tuple(shlex.split(command))
        except ValueError:  # an open quote
            words = tuple(command.split())
        languages = {suffix: suffix.removeprefix(".") for suffix in suffixes.split()}
        yield ServerKind(languages, (words,))


def project_top(cwd: Path) -> Path:
    """Return the top folder of the repository that a folder is in, or the folder itself."""
    return next((each for each in (cwd, *cwd.parents) if (each / ".git").exists()), cwd)


def root_of(kind: ServerKind, path: Path, top: Path) -> Path:
    """Return the nearest folder above a file that has a marker of the server's, at most `top`."""
    for folder in path.parents:
        if folder == top or any((folder / marker).exists() for marker in kind.markers):
            return folder
    return top


def installed(kind: ServerKind, root: Path, path: str, *, confined: bool) -> Sequence[str] | None:
    """Return the command of a server with the place of its program, None if there is none. A
    program from a folder that commands can change is used only if it is `confined`."""
    folders = ":".join([*(str(root / each) for each in _OWN_FOLDERS), path])
    for name, *arguments in kind.commands:
        folder, _, plain = name.rpartition("/")
        found = shutil.which(name, path=folders) if confined else program(plain, folder or path)
        if found:
            return [found, *arguments]
    return None
