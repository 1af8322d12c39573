"""Reads the Dockerfile, and says which files of the project its build is given.

What is not understood is an error: a step that nobody looked at would not have been tried.
"""

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

NAME = "Dockerfile"
INSTRUCTION = re.compile(r"([A-Za-z]+)\s+(.+)", re.DOTALL)
VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)\}")


class DockerfileError(Exception):
    """Something in the Dockerfile that is wrong or not understood, with its line."""


@dataclass(frozen=True)
class From:
    """The beginning of a stage."""

    image: str
    name: str


@dataclass(frozen=True)
class Run:
    command: str


@dataclass(frozen=True)
class Copy:
    """Files that are copied: of the project, or of a stage before."""

    sources: tuple[str, ...]
    target: str
    stage: str | None


@dataclass(frozen=True)
class Env:
    values: tuple[tuple[str, str], ...]  # not expanded yet


@dataclass(frozen=True)
class User:
    name: str


@dataclass(frozen=True)
class WorkDir:
    path: str


@dataclass(frozen=True)
class EntryPoint:
    words: tuple[str, ...]


Step = From | Run | Copy | Env | User | WorkDir | EntryPoint


def read_steps(text: str) -> list[Step]:
    """Return the steps of a Dockerfile. Raises DockerfileError for what is not understood."""
    steps: list[Step] = []
    for line, instruction in _instructions(text):
        found = INSTRUCTION.fullmatch(instruction)
        reader = READERS.get(found[1].upper()) if found else None
        if found is None or reader is None:
            raise DockerfileError(f"{NAME}:{line}: not understood: {instruction}")
        try:
            steps.append(reader(found[2]))
        except ValueError as error:
            raise DockerfileError(f"{NAME}:{line}: {error}: {instruction}") from error
    if not steps or not isinstance(steps[0], From):
        raise DockerfileError(f"{NAME}: it does not begin with FROM")
    return steps


def _instructions(text: str) -> Iterator[tuple[int, str]]:
    """Yield each instruction as one line, with the number of its first."""
    first, parts = 0, []
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or not line.strip():
            continue
        first = first if parts else number
        parts.append(line.removesuffix("\\").strip())
        if not line.endswith("\\"):
            yield first, " ".join(parts)
            parts = []
    if parts:
        yield first, " ".join(parts)


def _from(rest: str) -> From:
    words = rest.split()
    if len(words) == 1:
        return From(words[0], "")
    if len(words) == 3 and words[1].upper() == "AS":
        return From(words[0], words[2])
    raise ValueError("neither IMAGE nor IMAGE AS NAME")


def _run(rest: str) -> Run:
    if rest.startswith(("[", "<<", "--")):
        raise ValueError("not one shell command without flags")
    return Run(rest)


def _copy(rest: str) -> Copy:
    words, stage = shlex.split(rest), None
    while words and words[0].startswith("--"):
        flag = words.pop(0)
        if not flag.startswith("--from="):
            raise ValueError(f"the flag {flag} is not understood")
        stage = flag.removeprefix("--from=")
    if len(words) < 2 or re.search(r"[*?\[$]", rest):
        raise ValueError("not names of files and a target")
    return Copy(tuple(words[:-1]), words[-1], stage)


def _env(rest: str) -> Env:
    pairs = [word.partition("=") for word in shlex.split(rest)]
    if not all(middle for _, middle, _ in pairs):
        raise ValueError("not NAME=VALUE")
    return Env(tuple((name, value) for name, _, value in pairs))


def _entry_point(rest: str) -> EntryPoint:
    words = json.loads(rest)
    if not isinstance(words, list):
        raise ValueError("not a list of words")
    return EntryPoint(tuple(words))


READERS = {
    "FROM": _from,
    "RUN": _run,
    "COPY": _copy,
    "ENV": _env,
    "USER": lambda rest: User(rest.strip()),
    "WORKDIR": lambda rest: WorkDir(rest.strip()),
    "ENTRYPOINT": _entry_point,
}


def expand(value: str, environ: Mapping[str, str]) -> str:
    """Return a value with the variables in it replaced."""
    return VARIABLE.sub(lambda found: environ.get(found[1] or found[2], ""), value)


class Context:
    """The files that a build is given: those that `.dockerignore` does not keep back."""

    def __init__(self, root: Path) -> None:
        lines = (root / ".dockerignore").read_text().splitlines()
        patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        self.root = root
        self._rules = [(_pattern(each.lstrip("!")), each.startswith("!")) for each in patterns]
        self._let_in = [each.removeprefix("!") for each in patterns if each.startswith("!")]

    def files(self) -> list[str]:
        """Return the path of each file that is given, relative to the project."""
        return sorted(self._below(""))

    def has(self, path: str) -> bool:
        """Tell whether `.dockerignore` lets a path in: the last line decides that names it."""
        parts = path.split("/")
        names = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        given = True
        for pattern, lets_in in self._rules:
            if any(pattern.fullmatch(name) for name in names):
                given = lets_in
        return given

    def _below(self, folder: str) -> Iterator[str]:
        with os.scandir(self.root / folder) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if not entry.is_dir(follow_symlinks=False):
                    if self.has(path):
                        yield path
                elif self.has(path) or any(name.startswith(f"{path}/") for name in self._let_in):
                    yield from self._below(path)


def _pattern(text: str) -> re.Pattern[str]:
    """Return a line of `.dockerignore` as a pattern for paths from the top of the project."""
    known = {"**/": "(?:.*/)?", "*": "[^/]*"}
    parts = re.split(r"(\*\*/|\*)", text.strip("/"))
    return re.compile("".join(known.get(part, re.escape(part)) for part in parts))
