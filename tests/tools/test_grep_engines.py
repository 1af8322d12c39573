"""Both engines of Grep answer alike, whatever the tree, its ignore files and the filters."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.errors import ToolError
from ctxagent.tools.base import Context
from ctxagent.tools.grep import Engine, GrepParams, GrepTool

DIRECTORIES = ["src", "node_modules", "build", ".hidden", "x y", "[id]", "lib"]
FILES = ["a", "foo.py", "bar.ts", "Makefile", "README.md", "a.min.js", ".env", "ünï"]
RULES = ["build/", "*.py", "!foo.py", "/a", "node_modules", "**/lib", "lib/**", "src/*.ts"]
RULES += [
    "!src/bar.ts",
    "# c",
    "",
    "*.min.js",
    "x y/",
    "[a-b]",
    "lib/*",
    "!lib/a",
    "*",
    "!*/",
    "/*",
]
RULES += ["/src/**/a", "**", "!.hidden", ".hidden/", "?", "!/src"]
TEXTS = [
    b"hello\n",
    b"Hello\nfoo bar\nhello",
    b"\r\nhello\r\n",
    b"\0hello\n",
    b"",
    b"hello\n\n\nhello\n",
]
TEXTS += [
    "\ufeffhello\n".encode(),
    "caf\xe9 hello".encode("latin-1"),
    "w\xf6rld\u2028foo\n".encode(),
]
GLOBS = [
    "*.py",
    "!*.py",
    "src/**",
    "**/*.ts",
    "*.{py,ts}",
    "lib/",
    "a",
    "!node_modules",
    "**/a",
    "*",
]
GLOBS += [
    "x y/*",
    "\\[id\\]",
    "\\[id\\]/*",
    "?",
    "src/*",
    "!src/",
    "{src,lib}/*",
    "**",
    "**/*",
    "a:b",
]
PATTERNS = ["hello", "^hello$", "^$", "[a-z]+o", "w.rld", "(?i)HELLO", "\\w+", "o\\s"]
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}

paths = st.tuples(st.lists(st.sampled_from(DIRECTORIES), max_size=3), st.sampled_from(FILES))
rules = st.lists(st.sampled_from(RULES), min_size=1, max_size=4).map(
    lambda r: "\n".join(r).encode()
)
trees = st.tuples(
    st.lists(st.tuples(paths, st.sampled_from(TEXTS)), min_size=1, max_size=12),
    st.dictionaries(
        st.lists(st.sampled_from(DIRECTORIES), max_size=2).map("/".join), rules, max_size=3
    ),
)
searches = st.fixed_dictionaries(
    {
        "pattern": st.sampled_from(PATTERNS),
        "output_mode": st.sampled_from(["files", "content", "count"]),
        "path": st.sampled_from([".", *DIRECTORIES]),
    },
    optional={
        "glob": st.sampled_from(GLOBS),
        "type": st.sampled_from(["py", "ts", "make", "md"]),
        "context": st.just(1),
        "ignore_case": st.just(True),
    },
)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("rg"), reason="ripgrep is not installed")
@settings(max_examples=25, deadline=None)
@given(
    tree=trees, tracked=st.none() | st.booleans(), asked=st.lists(searches, min_size=3, max_size=3)
)
def test_both_engines_answer_alike(
    tree: tuple[list[Any], dict[str, bytes]], tracked: bool | None, asked: list[dict[str, Any]]
) -> None:
    """`tracked` tells whether git has the files, those it ignores too; None is a folder without
    git."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for (directories, name), text in tree[0]:
            write(root.joinpath(*directories, name), text)
        for directory, text in tree[1].items():
            write(root / directory / ".gitignore", text)
        if tracked is not None:
            git(root, "init", "-q")
        if tracked:
            git(root, "add", "--force", ".")
        for params in asked:
            assert answer(root, "ripgrep", params) == answer(root, "python", params)


def write(path: Path, text: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=root, env=ENVIRONMENT, check=True)


def answer(root: Path, engine: Engine, params: dict[str, Any]) -> str:
    context = Context(cwd=root, env=ENVIRONMENT)
    try:
        return asyncio.run(GrepTool(engine).run(GrepParams(**params), context)).text
    except ToolError as error:
        return str(error)
