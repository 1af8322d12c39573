"""The files of a project that a command line runs: the files that it names, modules and build files
that its interpreter or build tool loads by a name, and what these files run or import in turn.

The search reads text and runs nothing. It may find too much, e.g. a data file among the arguments.
"""

import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

from ...tools.system.programs import within
from ..lazy import regex
from .trust import read_untrusted

MAX_PROGRAM_FILES = 200  # of one command line
MAX_READ_BYTES = 1_000_000  # larger files are not searched for further files

# Files that a build tool reads without being told, by the name of the tool.
BUILD_FILES: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("make", "gmake"), ("GNUmakefile", "makefile", "Makefile")),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "rake": ("Rakefile",),
    "gradle": ("build.gradle", "build.gradle.kts", "settings.gradle"),
    "mvn": ("pom.xml",),
    "cargo": ("build.rs",),
    "tox": ("tox.ini",),
    "nox": ("noxfile.py",),
    "pre-commit": (".pre-commit-config.yaml",),
    **dict.fromkeys(("npm", "npx", "pnpm", "yarn", "bun", "deno"), ("package.json", "deno.json")),
}
_SCRIPT_ENDINGS = ("", ".js", ".cjs", ".mjs", ".ts", ".mts", ".tsx", ".jsx", ".json")
_JAVASCRIPT_ENDINGS = tuple(filter(None, _SCRIPT_ENDINGS))
_CODE_ENDINGS = (
    ".py", ".pyw", ".sh", ".bash", ".zsh", ".fish", ".js", ".cjs", ".mjs", ".jsx", ".ts", ".cts",
    ".mts", ".tsx", ".rb", ".pl", ".php", ".lua", ".jl", ".go", ".rs", ".java", ".kts", ".groovy",
    ".gradle", ".mk", ".cmake", ".toml", ".ini", ".cfg", ".yaml", ".yml",
)  # fmt: skip
_INDEX_FILES = ("index.js", "index.cjs", "index.mjs", "index.ts", "package.json")
# Words of the shell before a program.
_PREFIXES = frozenset((
    "exec", "command", "time", "if", "then", "else", "elif", "do", "while", "until", "!",
))  # fmt: skip
# Programs that run files among their arguments.
_STARTERS = frozenset((
    "env", "sudo", "nice", "nohup", "timeout", "xargs", "eval", "source", ".", "sh", "bash", "dash",
    "zsh", "ksh", "fish", "node", "nodejs", "bun", "deno", "tsx", "ts-node", "ruby", "perl", "php",
    "lua", "Rscript", "java", "go", "uv", "uvx", "poetry", "pipx", "npx", *BUILD_FILES,
))  # fmt: skip
_JAVASCRIPT = frozenset(("node", "nodejs", "bun", "deno", "tsx", "ts-node"))
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh"))

_QUOTED_WORD = regex(r"""["']([^"'\s]*)["']""")
_BLANK = regex(r"\s")
_QUOTED = regex(r"""["']([^"'\n]*[ \t][^"'\n]*)["']""")
_ASSIGNMENT = regex(r"\w+=")
_IGNORED = regex(r"^[ \t]*#.*$|(?:\d|&)?>[>|&]?\s*[^\s;&|()<>]+", re.M)  # comments, output
_SEGMENTS = regex(r"[;&|()`\n{}]+")
_PARTS = regex(r"[=:]")
_WORD = regex(r"[^\s'\"`;|&()<>,]+")
_VARIABLE = regex(r"\$(?:\{(\w+)\}|(\w+))")
_OWN_FOLDER = regex(r"\$\(dirname [^)]*\)|\$\{(?:BASH_SOURCE\[0\]|0)%/\*\}|\$\(cd [^)]*\)")
_PYTHON = regex(r"(?:python|pypy)[\d.]*t?")
_IMPORT = regex(r"^[ \t]*import[ \t]+([\w.]+(?:[ \t]+as[ \t]+\w+)?(?:[ \t]*,[ \t]*[\w. ]+)*)", re.M)
_FROM = regex(r"^[ \t]*from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;]+)", re.M)
_REQUIRE = regex(r"(?:\brequire\s*\(|\bfrom\b|\bimport\b\s*\(?)\s*['\"](\.[^'\"\n]*)['\"]")
_INCLUDE = regex(r"^-?s?include[ \t]+(.+)$", re.M)
_RECIPE = regex(r"^[ \t]+[@+-]*(.+)$", re.M)
_SHEBANG = regex(r"#![^\n]*?([\w.+-]+)[ \t]*(?:\n|$)")
_JSON_TEXT = regex(r'"((?:[^"\\\n]|\\.)+)"')


def program_files(
    command: str | Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    roots: Sequence[str],
    except_in: Sequence[str] = (),
) -> list[str]:
    """Return the absolute paths of the existing files in `roots` that a command line runs in the
    folder `cwd`, without files in `except_in`. A command is a shell text or a list of words. All
    folders have links resolved.
    """
    search = _Search(cwd, env, roots, except_in)
    if not isinstance(command, str):
        search.add_words(command, [cwd])
    for text in [command] if isinstance(command, str) else filter(_BLANK.search, command):
        search.add_shell_text(text, [cwd])
    return search.run()


class _Search:
    """One search. `_waiting` has the found files whose text is not searched yet, each with the
    folders from which Python imports in it start.
    """

    def __init__(
        self, cwd: str, env: Mapping[str, str], roots: Sequence[str], except_in: Sequence[str]
    ) -> None:
        self._cwd, self._env, self._roots, self._except_in = cwd, env, roots, except_in
        self._found: dict[str, None] = {}
        self._listed = set[str]()  # folders in which shadows were searched
        self._waiting = deque[tuple[str, Sequence[str]]]()
        places = (os.path.join(cwd, each) for each in env.get("PATH", "").split(":") if each)  # noqa: PTH118
        self._path = [place for place in dict.fromkeys(places) if self._is_inside(place)]

    def run(self) -> list[str]:
        """Search the text of the found files. Return all found files."""
        while self._waiting and len(self._found) <= MAX_PROGRAM_FILES:
            path, imports = self._waiting.popleft()
            with suppress(OSError):
                text = read_untrusted(Path(path), MAX_READ_BYTES).decode("utf-8", "replace")
                self._search_text(path, text, imports)
        return [*self._found]

    def add_shell_text(self, text: str, bases: Sequence[str]) -> None:
        """Add the files that a shell text runs."""
        text = _IGNORED.sub(" ", _VARIABLE.sub(partial(_value, self._env), text))
        text = _QUOTED_WORD.sub(lambda found: found[1], text)
        bases = self._with_folders(_WORD.findall(text), bases)
        for segment in _SEGMENTS.split(text):
            words = _WORD.findall(segment)
            while words and (_ASSIGNMENT.match(words[0]) or words[0] in _PREFIXES):
                del words[0]
            self.add_words(words, bases)
        for found in _QUOTED.finditer(text):  # names with blanks
            self._add_named(found[1], bases, _is_code)

    def add_words(self, words: Sequence[str], bases: Sequence[str]) -> None:
        """Add the files that the words of a command name, relative to each of the folders: its
        program, values of options, the script of an interpreter, and other arguments if they are
        code.
        """
        bases = self._with_folders(words, bases)
        needs_script, before = False, ""
        for word in words:
            for part in _PARTS.split(word)[1:]:  # of --option=FILE
                self._add_named(part, bases, _is_option_file)
            if word.startswith("-"):
                needs_script = needs_script and word not in ("-m", "-c", "-e")
            elif not before:
                self._add_program(word, bases)
            elif needs_script:
                self._add_named(word, bases)
                self._add_from_path(word)
                needs_script = not _names_file(word, bases)
            else:
                follows_option = before.startswith("-")
                self._add_named(word, bases, _is_option_file if follows_option else _is_code)
            needs_script, before = needs_script or _runs_arguments(word), word
        self._add_by_program(words, bases)

    def _add_program(self, word: str, bases: Sequence[str]) -> None:
        if "/" in word:
            self._add_named(word, bases)
        else:
            self._add_from_path(word)

    def _add_named(
        self, word: str, bases: Sequence[str], only: Callable[[str], bool] = bool
    ) -> None:
        """Add the files that a word names and that satisfy a condition."""
        for place in filter(only, self._places(word, bases)):
            self._add(place)

    def _add_from_path(self, word: str) -> None:
        """Add the programs that a word starts from folders of the PATH."""
        for folder in self._path if "/" not in word else ():
            self._add(f"{folder}/{word}")

    def _add_by_program(self, words: Sequence[str], bases: Sequence[str]) -> None:
        """Add the modules and build files that programs among the words load by a name."""
        for at, word in enumerate(words):
            name, rest = os.path.basename(word), words[at + 1 :]  # noqa: PTH119
            for file in BUILD_FILES.get(name, ()):
                for folder in self._upwards(bases):
                    self._add(f"{folder}/{file}")
            if name in ("npm", "npx", "pnpm", "yarn", "bun"):
                for folder in self._upwards(bases):
                    for each in rest:
                        self._add(f"{folder}/node_modules/.bin/{each}")
            if _PYTHON.fullmatch(name):
                self._add_python_modules(rest, bases)
            elif name in _JAVASCRIPT:
                for each in rest:
                    for place in self._places(each, bases):
                        self._add_script(place)

    def _add_python_modules(self, words: Sequence[str], bases: Sequence[str]) -> None:
        folders = [*bases, *filter(None, self._env.get("PYTHONPATH", "").split(":"))]
        for option, following in pairwise([*words, ""]):
            if option == "-m" or (option[:2] == "-m" and len(option) > 2):
                self._add_module(option[2:] or following, folders, folders)
                for folder in bases:
                    self._add_shadows(folder)

    def _places(self, word: str, bases: Sequence[str]) -> Iterator[str]:
        """Yield the paths in the roots that a word may name."""
        if word and "\0" not in word:
            for base in bases:
                place = os.path.normpath(os.path.join(base, os.path.expanduser(word)))  # noqa: PTH111, PTH118
                if self._is_inside(place):
                    yield place

    def _with_folders(self, words: Iterable[str], bases: Sequence[str]) -> list[str]:
        """Return the folders with those that the words name: a command may change to them."""
        named = [place for word in words for place in self._places(word, bases)]
        return [*dict.fromkeys((*bases, *filter(os.path.isdir, named)))]

    def _upwards(self, bases: Sequence[str]) -> Iterator[str]:
        """Yield the folders and the folders above them that are in the roots."""
        for folder in bases:
            while self._is_inside(folder) and folder != "/":
                yield folder
                folder = os.path.dirname(folder)  # noqa: PTH120

    def _is_inside(self, path: str) -> bool:
        real = os.path.realpath(path)
        inside = within(path, self._roots) or within(real, self._roots)
        return inside and not within(real, self._except_in)

    def _add(self, path: str, imports: Sequence[str] = ()) -> bool:
        """Add a file if it exists and is in the roots. Return True if it does."""
        if path in self._found:
            return True
        if not os.path.isfile(path) or not self._is_inside(path):  # noqa: PTH113
            return False
        self._found[path] = None
        if os.path.islink(path):  # noqa: PTH114
            self._add(os.path.realpath(path))
        self._waiting.append((path, imports or [os.path.dirname(path)]))  # noqa: PTH120
        return True

    def _add_script(self, path: str) -> None:
        """Add the file that a JavaScript runtime loads by a path without its ending."""
        for ending in _SCRIPT_ENDINGS:
            if self._add(path + ending):
                return
        for name in _INDEX_FILES:
            self._add(f"{path}/{name}")

    def _add_module(self, name: str, folders: Iterable[str], imports: Sequence[str]) -> None:
        """Add the files of a Python module and of the packages that contain it."""
        parts = [*filter(None, name.split("."))]
        for folder in folders:
            stem = folder
            for part in parts:
                stem = f"{stem}/{part}"
                self._add(f"{stem}.py", imports)
                self._add(f"{stem}/__init__.py", imports)
            self._add(f"{stem}/__main__.py", imports)

    def _add_shadows(self, folder: str) -> None:
        """Add files that Python would load instead of modules of its standard library."""
        if folder in self._listed:
            return
        self._listed.add(folder)
        with suppress(OSError):
            for name in os.listdir(folder):  # noqa: PTH208
                if name.partition(".")[0] in sys.stdlib_module_names:
                    self._add_module(name.partition(".")[0], [folder], [folder])

    def _search_text(self, path: str, text: str, imports: Sequence[str]) -> None:
        """Add the files that a found file runs or loads."""
        folder, name = os.path.split(path)
        bases = [self._cwd, folder]
        found = _SHEBANG.match(text)
        interpreter = found[1] if found else ""
        if name.endswith(".py") or _PYTHON.fullmatch(interpreter):
            self._search_python(folder, text, imports)
        elif name.endswith(_JAVASCRIPT_ENDINGS) and name != "package.json":
            for found in _REQUIRE.finditer(text):
                self._add_script(os.path.normpath(f"{folder}/{found[1]}"))
        elif name.endswith((".sh", ".bash", ".zsh", ".ksh")) or interpreter in _SHELLS:
            self.add_shell_text(_OWN_FOLDER.sub(lambda _: folder, text), bases)
        elif name.lower().endswith(("makefile", ".mk", "justfile")):
            for found in _INCLUDE.finditer(text):
                for word in found[1].split():
                    self._add_named(word, bases)
            lines = "\n".join(found[1] for found in _RECIPE.finditer(text))
            self.add_shell_text(lines, bases)
        elif name == "package.json":
            lines = "\n".join(found[1] for found in _JSON_TEXT.finditer(text))
            self.add_shell_text(lines, bases)

    def _search_python(self, folder: str, text: str, imports: Sequence[str]) -> None:
        for found in _IMPORT.finditer(text):
            for name in found[1].split(","):
                self._add_module(name.split()[0], imports, imports)
        for found in _FROM.finditer(text):
            dots = len(found[1]) - len(found[1].lstrip("."))
            start = os.path.normpath("/".join([folder, *[".."] * (dots - 1)]))
            folders: Sequence[str] = [start] if dots else imports
            module = found[1][dots:]
            names = re.findall(r"\w+", found[2]) if module or dots else []
            if module:
                self._add_module(module, folders, imports)
            for name in names:
                self._add_module(f"{module}.{name}".lstrip("."), folders, imports)
        for place in imports:
            self._add_shadows(place)


def _value(env: Mapping[str, str], found: re.Match[str]) -> str:
    return env.get(found[1] or found[2]) or found[0]


def _names_file(word: str, bases: Sequence[str]) -> bool:
    return any(os.path.isfile(os.path.join(base, word)) for base in bases)  # noqa: PTH113, PTH118


def _is_code(path: str) -> bool:
    """Return True if a file can be run, or is code or a configuration by its name."""
    return path.endswith(_CODE_ENDINGS) or os.access(path, os.X_OK)


def _is_option_file(path: str) -> bool:
    """Return True if a file may be code or a configuration that an option names."""
    return _is_code(path) or path.endswith(".json") or path.rpartition("/")[2][:1] == "."


def _runs_arguments(word: str) -> bool:
    name = word.rpartition("/")[2]
    return name in _STARTERS or bool(_PYTHON.fullmatch(name))
