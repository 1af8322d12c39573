"""List the mutants of a module: small changes of meaning, by the operators of mutmut.

Excluded are changes that no test should detect: type annotations and aliases, docstrings,
decorators, bases and options of a class, `TYPE_CHECKING` blocks, `__slots__`, `__all__`, `cast` and
`TypeVar`, raised errors, `help=` and `description=`, and plain strings of three words or more.
`len` and `isinstance` keep their arguments, because calls without them always fail.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_arg_removal, operator_string

UNCHANGED_NAMES = ("__slots__", "__all__")
CALLS_WITHOUT_MUTANTS = ("TypeVar", "NewType", "cast")
CALLS_THAT_KEEP_ARGUMENTS = ("len", "isinstance")
KEYWORDS_FOR_PEOPLE = ("help", "description")
MIN_WORDS_OF_WORDING = 3
TYPE_NAME = re.compile(r"_?[A-Z]\w*[a-z]\w*")
STRING = cst.SimpleString | cst.ConcatenatedString
BLOCK = cst.FunctionDef | cst.ClassDef | cst.If | cst.For | cst.While | cst.With | cst.Try


@dataclass(frozen=True)
class Mutant:
    """A module with one change."""

    path: str
    line: int
    statement: range  # the lines of the statement, or of the head of a block
    in_function: bool  # else the import runs it
    original: str
    source: str


@dataclass(frozen=True)
class Change:
    """A part of a module, and the text that replaces it."""

    place: CodeRange
    text: str
    operator: str
    statement: range
    in_function: bool

    @property
    def line(self) -> int:
        return self.place.start.line


class Changes(cst.CSTVisitor):
    """Visitor that collects the possible changes of a module."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, module: cst.Module) -> None:
        super().__init__()
        self.found: list[Change] = []
        self._module = module
        self._statements: list[cst.CSTNode] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if self._is_excluded(node):
            return False
        if isinstance(node, cst.BaseStatement):
            self._statements.append(node)
        for kind, operator in mutation_operators:
            if isinstance(node, kind) and not keeps(operator, node):
                for new in operator(node):
                    self._add(node, operator.__name__, new)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if self._statements and self._statements[-1] is original_node:
            self._statements.pop()

    def _is_excluded(self, node: cst.CSTNode) -> bool:
        match node:
            case cst.Annotation() | cst.Decorator() | cst.Raise():
                return True
            case cst.Expr(value=value):
                return isinstance(value, STRING)
            case cst.Call(func=cst.Name(value=name)):
                return name in CALLS_WITHOUT_MUTANTS
            case cst.Arg(keyword=keyword):
                of_class = isinstance(self._statements[-1], cst.ClassDef)
                return of_class or (keyword is not None and keyword.value in KEYWORDS_FOR_PEOPLE)
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value):
                is_type = isinstance(value, cst.Subscript | cst.BinaryOperation)
                return name in UNCHANGED_NAMES or (is_type and bool(TYPE_NAME.fullmatch(name)))
            case cst.If(test=cst.Name(value=name)):
                return name == "TYPE_CHECKING"
        return False

    def _add(self, node: cst.CSTNode, operator: str, new: cst.CSTNode) -> None:
        *around, statement = self._statements
        span = self.get_metadata(PositionProvider, statement)
        last = span.end.line
        if isinstance(statement, BLOCK):
            body = self.get_metadata(PositionProvider, statement.body)
            last = max(span.start.line, body.start.line - 1)
        self.found.append(
            Change(
                place=self.get_metadata(PositionProvider, node),
                text=self._module.code_for_node(new),
                operator=operator,
                statement=range(span.start.line, last + 1),
                in_function=any(isinstance(each, cst.FunctionDef) for each in around),
            )
        )


def keeps(operator: object, node: cst.CSTNode) -> bool:
    """Return True if an operator must not change this node."""
    if operator is operator_arg_removal:
        match node:
            case cst.Call(func=cst.Name(value=name)):
                return name in CALLS_THAT_KEEP_ARGUMENTS
    if operator is operator_string and isinstance(node, cst.SimpleString):
        return "r" not in node.prefix and len(node.raw_value.split()) >= MIN_WORDS_OF_WORDING
    return False


def changes_of(source: str) -> list[Change]:
    """Return all changes of a module, sorted by line."""
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    visitor = Changes(wrapper.module)
    wrapper.visit(visitor)
    return sorted(visitor.found, key=attrgetter("line"))


def rank(*parts: object) -> str:
    """Return a position in the random order, determined by `parts`."""
    return sha256(repr(parts).encode()).hexdigest()


def sample(root: Path, paths: list[str], size: int, seed: int) -> list[Mutant]:
    """Return mutants of random lines of modules, at most one per line.

    A line keeps its position in the random order when other lines change.
    """
    lines = []
    sources = {path: (root / path).read_text() for path in paths}
    for path, source in sources.items():
        texts = source.splitlines()
        seen: dict[str, int] = {}
        for line, changes in groupby(changes_of(source), attrgetter("line")):
            text = texts[line - 1].strip()
            seen[text] = seen.get(text, 0) + 1
            lines.append((rank(seed, path, text, seen[text]), path, list(changes)))
    mutants: list[Mutant] = []
    for key, path, changes in sorted(lines, key=lambda each: each[0]):
        if len(mutants) == size:
            break
        mutants += mutant_of_line(path, sources[path], changes, key)
    return mutants


def mutant_of_line(path: str, source: str, changes: list[Change], key: str) -> Iterator[Mutant]:
    """Yield a mutant of a line: choose an operator, then one of its changes.

    Yields nothing if all changes break the syntax.
    """
    order = sorted(changes, key=lambda each: (rank(key, each.operator), rank(key, each.text)))
    for change in order:
        changed = replaced(source, change)
        try:
            ast.parse(changed)
        except SyntaxError:
            continue
        yield Mutant(path, change.line, change.statement, change.in_function, source, changed)
        return


def replaced(source: str, change: Change) -> str:
    """Return a module with this change."""
    lines = source.splitlines(keepends=True)
    start, end = change.place.start, change.place.end
    before = "".join(lines[: start.line - 1]) + lines[start.line - 1][: start.column]
    after = lines[end.line - 1][end.column :] + "".join(lines[end.line :])
    return before + change.text + after
