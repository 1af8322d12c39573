"""Who forks: a process that has threads must not, as its child can wait for ever for a lock that
another thread held at that moment. The tests' processes have threads, of xdist and of servers.

To do work in another process, start a fresh interpreter by `subprocess`, or use
`tests/support/other_user.py`. In a terminal, start programs by `tests/support/starter.py`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = {
    "addons/replay/parallel.py": "the workers of a replay, only where the process has one thread",
    "tests/support/limits.py": "a script with one thread, whose cases begin with the same memory",
    "tests/support/mutants/worker.py": "its process has one thread, and forks for each mutant",
    "tests/support/other_user.py": "its process has one thread, and forks for each piece of work",
    "tests/support/starter.py": "its process has one thread, and forks for each start",
}
# By module. `PyOS_BeforeFork` is called around a fork by a system call.
FORKING = {
    "os": {"fork", "forkpty"},
    "pty": {"fork", "spawn"},
    "pexpect": {"spawn", "run"},
    "PtyProcess": {"spawn"},
    "multiprocessing": {"Manager", "Pool", "Process"},
    "pythonapi": {"PyOS_BeforeFork"},
    "python": {"PyOS_BeforeFork"},
    "futures": {"ProcessPoolExecutor"},
    "concurrent.futures": {"ProcessPoolExecutor"},
}
START_METHODS = {"get_context", "set_start_method"}


def last_name(node: ast.AST) -> str:
    """Return the last name of `a.b.c` or `c`, "" for other expressions."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def forks(tree: ast.AST) -> Iterator[int]:
    """Yield the line of everything that can fork and go on in Python."""
    bases = {id(base) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
             for base in node.bases}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = FORKING.get(node.module or "", set())
            if any(alias.name in names for alias in node.names):
                yield node.lineno
        elif isinstance(node, ast.Attribute) and id(node) not in bases:
            if node.attr in FORKING.get(last_name(node.value), ()):
                yield node.lineno
        elif isinstance(node, ast.Call):
            if any(each.arg == "preexec_fn" for each in node.keywords):
                yield node.lineno
            if last_name(node.func) in START_METHODS:
                method = node.args[0] if node.args else None
                if not isinstance(method, ast.Constant) or method.value in (None, "fork"):
                    yield node.lineno


@pytest.mark.full
@pytest.mark.slow
def test_only_processes_with_one_thread_fork() -> None:
    paths = [
        path
        for room in ("agent", "tools", "addons", "tests")
        for path in (ROOT / room).rglob("*.py")
    ]
    found = {}
    for path in paths:
        if lines := list(forks(ast.parse(path.read_text()))):
            found[str(path.relative_to(ROOT))] = lines
    assert {name: lines for name, lines in found.items() if name not in ALLOWED} == {}
    assert set(ALLOWED) - set(found) == set(), "allowed, and does not fork any more"


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("import os\nif not os.fork(): pass", 1),
        ("from os import fork, getpid", 1),
        ("import pty\npty.fork(); pty.openpty()", 1),
        ("subprocess.run(command, preexec_fn=limit)", 1),
        ("multiprocessing.get_context('fork'); get_context()", 2),
        ("get_context('spawn')", 0),
        ("from multiprocessing import Pool", 1),
        ("import pexpect\npexpect.spawn('zsh')", 1),
        ("import pexpect\nclass Child(pexpect.spawn): ...", 0),
        ("'os.fork()'  # os.fork()", 0),
        ("place.run('sessions', 'fork')", 0),
    ],
)
def test_forks_are_found(code: str, count: int) -> None:
    assert len(list(forks(ast.parse(code)))) == count
