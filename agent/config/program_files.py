"""The files of a project that a command line runs: the files that it names, modules and build files
that its interpreter or build tool loads by a name, and what these files run or import in turn.

The search reads text and runs nothing. It may find too much, e.g. a data file among the arguments.
"""

import os
import shlex
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from glob import glob
from itertools import pairwise
from pathlib import Path

from ...tools.system.programs import within
from ..lazy import regex
from .program_text import (
    assignments,
    ending_of,
    imported,
    interpreters,
    is_argument_file,
    is_code,
    is_option_file,
    is_settings_of,
    plain,
    quoted_texts,
    quoted_words,
    reached_rules,
    segments,
    without_unknown,
    words_of_code,
)
from .trust import read_untrusted

MAX_PROGRAM_FILES = 200  # of one command line
MAX_READ_BYTES = 300_000  # larger files are not searched for further files

_MAKES = ("make", "gmake", "MAKE")
# Files that a build tool reads without being told, by the name of the tool.
BUILD_FILES: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(_MAKES, ("GNUmakefile", "makefile", "Makefile")),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    **dict.fromkeys(("inv", "invoke"), ("tasks.py",)),
    **dict.fromkeys(("poe", "hatch", "pdm"), ("pyproject.toml",)),
    **dict.fromkeys(("rake", "bundle"), ("Rakefile", "Gemfile")),
    **dict.fromkeys(("gradle", "gradlew"), ("build.gradle", "settings.gradle")),
    **dict.fromkeys(("mvn", "mvnw"), ("pom.xml",)),
    "sbt": ("build.sbt",),
    "cmake": ("CMakeLists.txt",),
    "ninja": ("build.ninja",),
    "bazel": ("BUILD", "MODULE", "WORKSPACE"),
    "cargo": ("build.rs",),
    "tox": ("tox.ini",),
    "nox": ("noxfile.py",),
    "pre-commit": (".pre-commit-config.yaml",),
    **dict.fromkeys(
        ("npm", "pnpm", "yarn", "bun", "deno"),
        ("package.json", "deno.json", ".npmrc", ".yarnrc.yml", ".pnpmfile.cjs"),
    ),
}
_SCRIPT_ENDINGS = ("", ".js", ".cjs", ".mjs", ".ts", ".mts", ".tsx", ".jsx", ".json")
_JAVASCRIPT_ENDINGS = tuple(filter(None, _SCRIPT_ENDINGS))
_SHELL_ENDINGS = (".sh", ".bash", ".zsh", ".ksh", ".mk", ".fish")
_INDEX_FILES = ("index.js", "index.cjs", "index.mjs", "index.ts", "package.json")
_PACKAGE_FOLDERS = ("/node_modules/", "/site-packages/", "/dist-packages/")
_RUNNERS_OF_BINS = frozenset(("npx", "bunx"))
_PACKAGE_RUNNERS = frozenset(("npm", "pnpm", "yarn", "bun", *_RUNNERS_OF_BINS))
_VERBS = frozenset(("run", "exec", "dlx"))  # of such programs, before the name of a program
_MODULE_ENDINGS = (".py", ".pyc", ".so", ".pyd")
# Words of the shell before a program.
_PREFIXES = frozenset((
    "exec", "command", "time", "if", "then", "else", "elif", "do", "while", "until", "!",
))  # fmt: skip
# Programs that run files among their arguments.
_STARTERS = frozenset((
    "env", "sudo", "nice", "nohup", "timeout", "xargs", "eval", "source", ".", "sh", "bash", "dash",
    "zsh", "ksh", "fish", "node", "nodejs", "bun", "deno", "tsx", "ts-node", "ruby", "perl", "php",
    "lua", "Rscript", "java", "go", "uv", "uvx", "poetry", "pipx", *_PACKAGE_RUNNERS, *BUILD_FILES,
))  # fmt: skip
_JAVASCRIPT = frozenset(("node", "nodejs", "bun", "deno", "tsx", "ts-node"))
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh"))
_SITE_MODULES = ("sitecustomize", "usercustomize")  # Python imports them by itself
_MAX_WORDS = 500  # of one command that are searched for programs
_MAX_BASES = 40  # folders from which the words of one text may start

_BLANK = regex(r"\s")
_ASSIGNMENT = regex(r"\w+=")
_PARTS = regex(r"[=:]")
_PYTHON = regex(r"(?:python|pypy)[\d.]*t?")
_MODULE_OPTION = regex(r"-[a-zA-Z]*?m(.*)")
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
    texts = [command] if isinstance(command, str) else [shlex.join(command), *command]
    for text in texts if isinstance(command, str) else filter(_BLANK.search, texts):
        search.add_shell_text(text, [cwd])
        search.add_escaped_names(text)
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
        self._waiting = deque[tuple[str, Sequence[str]]]()
        self._listed: dict[str, Mapping[str, Sequence[str]]] = {}
        self._inside: dict[str, bool] = {}
        self._shadowed = set[str]()  # folders in which shadows were searched
        self._configured = set[tuple[str, str]]()  # programs and folders of searched settings
        self._outputs = set[str]()  # words for files that the commands write themselves
        self._goals = set[str]()  # words that may be targets of a makefile
        self._makefiles: dict[str, str] = {}  # the texts of makefiles
        self._path: dict[str, None] = {}  # folders of programs
        self._imports: dict[str, None] = {}  # folders of Python modules, beside those of a script
        for name in ("PATH", "PYTHONPATH"):
            self._use_variable(name, env.get(name, ""), [cwd])

    def run(self) -> list[str]:
        """Search the text of the found files. Return all found files."""
        while self._waiting and len(self._found) <= MAX_PROGRAM_FILES:
            path, imports = self._waiting.popleft()
            with suppress(OSError):
                text = read_untrusted(Path(path), MAX_READ_BYTES).decode("utf-8", "replace")
                self._search_text(path, text, imports)
        return [*self._found]

    def add_shell_text(self, text: str, bases: Sequence[str], folder: str = "") -> None:
        """Add the files that a shell text or a makefile runs. `folder` has the file of the text."""
        text, outputs = plain(text, self._env, folder)
        self._outputs.update(outputs)
        for name, value in assignments(text):
            self._use_variable(name, value, bases)
        commands = [*segments(text)]
        words = list(dict.fromkeys(word for each in commands for word in each))
        bases = self._with_folders(words, bases)
        for each in commands:
            while each and (_ASSIGNMENT.match(each[0]) or each[0] in _PREFIXES):
                del each[0]
            self.add_words(each, bases)
        for quoted in quoted_texts(text):  # names with blanks
            self._add_named(quoted, bases, is_code)
        if any(map(_is_python, words)):
            self._search_python(text, bases, folder)

    def add_escaped_names(self, text: str) -> None:
        """Add the files that a command names with quoted blanks."""
        with suppress(ValueError):
            for word in filter(_BLANK.search, shlex.split(text)):
                self._add_named(word, [self._cwd], is_code)

    def add_words(self, words: Sequence[str], bases: Sequence[str]) -> None:
        """Add the files that the words of a command name, relative to each of the folders: its
        program, values of options, the script of an interpreter, and other arguments if they are
        code or settings.
        """
        bases = self._with_folders(words, bases)
        starter, needs_script, before = "", False, ""
        for word in words:
            for part in _PARTS.split(word)[1:]:  # of --option=FILE
                self._add_named(part, bases, is_option_file)
            if word.startswith("-"):
                needs_script = needs_script and word not in ("-m", "-c", "-e")
            elif not before:
                self._add_program(word.lstrip("@+"), bases)
            elif needs_script:
                self._add_program(word, bases)
                if _is_python(starter):
                    self._add_folder(word, bases)
                needs_script = not _names_file(word, bases)
            elif word not in self._outputs:
                follows_option = before.startswith("-")
                self._add_named(word, bases, is_option_file if follows_option else is_argument_file)
            if _runs_arguments(word):
                starter, needs_script = word, True
            before = word
        self._add_by_program(words, bases)

    def _use_variable(self, name: str, value: str, bases: Sequence[str]) -> None:
        """Add the files that an assignment of a variable makes programs load."""
        for part in value.split(":"):
            if name not in ("PATH", "PYTHONPATH"):
                self._add_named(part, bases, is_option_file)
                continue
            places = self._path if name == "PATH" else self._imports
            for place in self._places(part, bases):
                places[place] = None
                if name == "PYTHONPATH":
                    self._add_import_folder(place)

    def _add_program(self, word: str, bases: Sequence[str]) -> None:
        """Add the files of a program or a script."""
        self._add_named(word, bases)
        self._add_from_path(word)

    def _add_folder(self, word: str, bases: Sequence[str]) -> None:
        """Add what Python runs in a folder."""
        for place in self._places(word, bases):
            for name in self._named_by(place, "__main__"):
                self._add(f"{place}/{name}")

    def _add_named(
        self, word: str, bases: Sequence[str], only: Callable[[str], bool] = bool
    ) -> None:
        """Add the files that a word names and that satisfy a condition."""
        for place in filter(only, self._places(word, bases)):
            self._add(place)
        if "*" in word and word.endswith(_SHELL_ENDINGS):
            for base in bases:
                for each in glob(word, root_dir=base):  # noqa: PTH207
                    self._add(os.path.normpath(f"{base}/{each}"))

    def _add_from_path(self, word: str) -> None:
        """Add the programs that a word starts from folders of the PATH."""
        for folder in self._path if "/" not in word else ():
            self._add(f"{folder}/{word}")

    def _add_by_program(self, words: Sequence[str], bases: Sequence[str]) -> None:
        """Add the modules, build files and settings that programs among the words load by a
        name.
        """
        words = words[:_MAX_WORDS]
        starts = True  # whether the next word can be a program
        for at, word in enumerate(words):
            name = os.path.basename(word.lstrip("@+"))  # noqa: PTH119
            if name in _PACKAGE_RUNNERS:
                for folder in self._upwards(bases):
                    self._path[f"{folder}/node_modules/.bin"] = None
                for each in words[at + 1 :]:
                    self._add_from_path(each)
            if name in _MAKES:
                self._goals.update(words[at + 1 :])
            if name in BUILD_FILES or name in _PACKAGE_RUNNERS or starts:
                self._add_settings(name, bases)
            if _is_python(word):
                self._add_python_modules(words[at + 1 :], bases)
            elif name in _JAVASCRIPT:
                for each in words[at + 1 :]:
                    for place in self._places(each, bases):
                        self._add_script(place)
            starts = starts and (name in _STARTERS or word[:1] == "-" or name in _VERBS)

    def _add_settings(self, name: str, bases: Sequence[str]) -> None:
        """Add the files that a program reads without being told."""
        files = tuple(BUILD_FILES.get(name, ()))
        more = tuple(f"{file}." for file in files)  # make makes a Makefile from Makefile.sh
        for folder in self._upwards(bases):
            if (name, folder) in self._configured:
                continue
            self._configured.add((name, folder))
            for each in (one for names in self._names(folder).values() for one in names):
                is_build_file = each in files or (more and each.startswith(more))
                if is_build_file or (name not in _STARTERS and is_settings_of(each, name)):
                    self._add(f"{folder}/{each}")
            if name in _RUNNERS_OF_BINS and _has_bin(f"{folder}/package.json"):
                self._add(f"{folder}/package.json")

    def _add_python_modules(self, words: Sequence[str], bases: Sequence[str]) -> None:
        for option, following in pairwise([*words, ""]):
            if found := _MODULE_OPTION.fullmatch(option):
                folders = [*bases, *self._imports]
                self._add_module(found[1] or following, folders, folders)
                for folder in bases:
                    self._add_shadows(folder)

    def _places(self, word: str, bases: Sequence[str]) -> list[str]:
        """Return the paths in the roots that a word may name. A path that begins with an unknown
        variable may start from any of the folders.
        """
        word, known = without_unknown(word), word
        if not word or "\0" in word:
            return []
        word = os.path.expanduser(word)  # noqa: PTH111
        found = [word] if word[:1] == "/" else []
        if word[:1] != "/" or word == known.removeprefix(word) or known[:1] in "/$":
            first = word.lstrip("/").removeprefix("./").partition("/")[0]
            for base in bases:
                if first in ("", ".", "..") or first in self._names(base).get(_stem(first), ()):
                    found.append(os.path.join(base, word.lstrip("/")))  # noqa: PTH118
        return list(filter(self._is_inside, dict.fromkeys(map(os.path.normpath, found))))

    def _names(self, folder: str) -> Mapping[str, Sequence[str]]:
        """Return the names in a folder by their part before the first dot."""
        if folder not in self._listed:
            found = dict[str, list[str]]()
            with suppress(OSError, ValueError):
                for name in os.listdir(folder):  # noqa: PTH208
                    found.setdefault(_stem(name), []).append(name)
            self._listed[folder] = found
        return self._listed[folder]

    def _named_by(self, folder: str, module: str) -> list[str]:
        """Return the names of the files of a Python module in a folder."""
        names = self._names(folder).get(module, ())
        return [name for name in names if name.endswith(_MODULE_ENDINGS)]

    def _with_folders(self, words: Iterable[str], bases: Sequence[str]) -> list[str]:
        """Return the folders with those that the words name: a command may change to them."""
        found, words = [*dict.fromkeys(bases)], [*words]
        for base in found:
            for word in words:
                for place in filter(os.path.isdir, self._places(word, [base])):
                    if place not in found:
                        found.append(place)
            if len(found) > _MAX_BASES:
                break
        return found

    def _upwards(self, bases: Sequence[str]) -> Iterator[str]:
        """Yield the folders and the folders above them that are in the roots."""
        for folder in bases:
            while self._is_inside(folder) and folder != "/":
                yield folder
                folder = os.path.dirname(folder)  # noqa: PTH120

    def _is_inside(self, path: str) -> bool:
        if path not in self._inside:
            real = os.path.realpath(path)
            inside = within(path, self._roots) or within(real, self._roots)
            self._inside[path] = inside and not within(real, self._except_in)
        return self._inside[path]

    def _add(self, path: str, imports: Sequence[str] = ()) -> bool:
        """Add a file if it exists and is in the roots. Return True if it does. Packages that the
        project installed are not searched further.
        """
        if path in self._found:
            return True
        if not os.path.isfile(path) or not self._is_inside(path):  # noqa: PTH113
            return False
        self._found[path] = None
        if os.path.islink(path):  # noqa: PTH114
            self._add(os.path.realpath(path))
        if not any(folder in path for folder in _PACKAGE_FOLDERS):
            self._waiting.append((path, imports or [os.path.dirname(path)]))  # noqa: PTH120
        return True

    def _add_script(self, path: str) -> None:
        """Add the file that a JavaScript runtime loads by a path without its ending, or with that
        of the compiled file.
        """
        stem, ending = os.path.splitext(path)  # noqa: PTH122
        for each in (path, *([stem] if ending in _JAVASCRIPT_ENDINGS else [])):
            for more in _SCRIPT_ENDINGS:
                if self._add(each + more):
                    return
        for name in _INDEX_FILES:
            self._add(f"{path}/{name}")

    def _add_module(self, name: str, folders: Iterable[str], imports: Sequence[str]) -> None:
        """Add the files of a Python module and of the packages that contain it."""
        parts = [*filter(None, name.split("."))]
        for folder in folders:
            stem = folder
            for part in parts:
                if part not in self._names(stem):
                    break
                for each in self._named_by(stem, part):
                    self._add(f"{stem}/{each}", imports)
                stem = f"{stem}/{part}"
                for each in self._named_by(stem, "__init__"):
                    self._add(f"{stem}/{each}", imports)
            for each in self._named_by(stem, "__main__") if parts else ():
                self._add(f"{stem}/{each}", imports)

    def _add_import_folder(self, folder: str) -> None:
        """Add what Python loads by itself from a folder of modules."""
        for name in _SITE_MODULES:
            self._add_module(name, [folder], [folder])
        self._add_shadows(folder)

    def _add_shadows(self, folder: str) -> None:
        """Add files that Python would load instead of modules of its standard library."""
        if folder not in self._shadowed:
            self._shadowed.add(folder)
            for name in self._names(folder).keys() & sys.stdlib_module_names:
                self._add_module(name, [folder], [folder])

    def _search_text(self, path: str, text: str, imports: Sequence[str]) -> None:
        """Add the files that a found file runs or loads."""
        folder, name = os.path.split(path)
        bases = list(dict.fromkeys((self._cwd, folder, *self._upwards([folder]))))
        programs = interpreters(text)
        if name.lower().endswith(("makefile", ".mk")):
            self._search_makefile(path, text)
        elif name.lower().endswith(("justfile", *_SHELL_ENDINGS)) or (
            not _SHELLS.isdisjoint(programs)
        ):
            self.add_shell_text(text, bases, folder)
        elif name.endswith(".json"):
            lines = "\n".join(found[1] for found in _JSON_TEXT.finditer(text))
            self.add_shell_text(lines, bases, folder)
        else:
            self._search_code(folder, text, bases)
            if name.endswith(_JAVASCRIPT_ENDINGS):
                for each in quoted_words(text):
                    if each[:1] == ".":
                        self._add_script(os.path.normpath(f"{folder}/{each}"))
                    for place in self._upwards([folder]) if each[:1] == "#" else ():
                        self._add(f"{place}/package.json")  # it says which file that is
            elif ending := ending_of(name) or _ending_for(name, programs):
                for each in quoted_words(text) if ending != ".py" else ():
                    self._add_named(f"{each}{ending}", bases, is_code)
        if name.endswith(".py") or any(map(_is_python, programs)):
            self._search_python(text, imports, folder)

    def _search_makefile(self, path: str, text: str) -> None:
        """Add the files of the rules that a command reaches, which may be in several makefiles."""
        self._makefiles[path] = text
        size = -1
        while size != len(self._goals):
            size = len(self._goals)
            for each, rules in self._makefiles.items():
                folder = os.path.dirname(each)  # noqa: PTH120
                bases = list(dict.fromkeys((self._cwd, folder, *self._upwards([folder]))))
                self.add_shell_text(reached_rules(rules, self._goals), bases, folder)

    def _search_code(self, folder: str, text: str, bases: Sequence[str]) -> None:
        """Add the files that the words of a program name, and the commands in its texts."""
        words = words_of_code(text)
        bases = self._with_folders(quoted_words(text), bases)
        for word in words:
            self._add_named(word, bases, is_code)
        if "sys.path" in text:
            for place in filter(self._is_inside, bases):
                self._imports[place] = None
                self._add_import_folder(place)
        for each in quoted_texts(text):
            if _runs_arguments(each.strip().partition(" ")[0]):
                self.add_shell_text(each, bases, folder)

    def _search_python(self, text: str, imports: Sequence[str], folder: str) -> None:
        imports = list(dict.fromkeys((*imports, *self._imports)))
        for dots, module, names in imported(text):
            start = os.path.normpath("/".join([folder, *[".."] * (dots - 1)]))
            folders: Sequence[str] = (
                [start] if dots and folder else [*imports, *([folder] * bool(folder))]
            )
            if module:
                self._add_module(module, folders, imports)
            for name in names if module or dots else ():
                self._add_module(f"{module}.{name}".lstrip("."), folders, imports)
        for place in imports:
            self._add_shadows(place)


def _names_file(word: str, bases: Sequence[str]) -> bool:
    return any(os.path.exists(os.path.join(base, word)) for base in bases)  # noqa: PTH110, PTH118


def _stem(name: str) -> str:
    return name.partition(".")[0]


def _is_python(word: str) -> bool:
    name = word.rpartition("/")[2]
    return bool(_PYTHON.fullmatch(name)) or name == "uv"


def _runs_arguments(word: str) -> bool:
    name = word.rpartition("/")[2]
    return name in _STARTERS or bool(_PYTHON.fullmatch(name))


def _ending_for(name: str, programs: Sequence[str]) -> str:
    return ".rb" if "ruby" in programs or name == "Rakefile" else ""


def _has_bin(path: str) -> bool:
    """Return True if a package has programs of its own, which npx prefers."""
    with suppress(OSError):
        return b'"bin"' in read_untrusted(Path(path), MAX_READ_BYTES)
    return False
