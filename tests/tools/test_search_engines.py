"""The search in Python finds what ripgrep finds: generated patterns, in generated trees of files
with ignore files of every kind.
"""

import asyncio
import codecs
import os
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import chdir, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ctxagent.tools.search import engine as engine_module
from ctxagent.tools.search.engine import search_files
from ctxagent.tools.search.request import GrepHit, Refused, Search
from ctxagent.tools.text import CHUNK_BYTES

from ..support.search_engines import engine_named, output_of

TREES = 20
SEARCHES_PER_TREE = 10

FOLDERS = ("src", "build", ".hidden", "node_modules", "x y", "[id]", "lib", "src/deep", "lib/a")
FILES = (
    "a", "foo.py", "bar.ts", "Makefile", "README.md", "a.min.js", ".env", "ünï.txt", "b.log",
    "a-b.c", "test.PY", "x.test.tsx", ".gitignore.txt", "{a}.c",
)  # fmt: skip
RULES = (
    "build/", "*.py", "!foo.py", "/a", "node_modules", "**/lib", "lib/**", "src/*.ts", "*.log",
    "!src/bar.ts", "# comment", "", "*.min.js", "x y/", "[a-b]", "lib/*", "!lib/a", "!*/", "/*",
    "/src/**/a", ".hidden/", "?", "!/src", "a*", "*.{ts,tsx}", "\\!a", "  ", "foo.py  ", "deep",
    "src/deep/", "/src/deep/foo.py", "!deep/", "*.[jt]s", "**/deep/**", "[", "{a", "a\\", "*.md/",
    "**/*.log", "!.env", "/[id]/", "\\[id\\]", "ünï*", "*.test.*", "!a.min.js", "README.*",
)  # fmt: skip
IGNORE_FILES = (".gitignore", ".gitignore", ".ignore", ".rgignore", ".git/info/exclude")
WORDS = (
    "hello", "Hello", "foo", "bar", "x", "end", "_a1", "42", "été", "日本", "ΣΑΣ", "K", "e\u0301",
    " ", "  ", "\t", ".", ",", "(", ")", "{", "}", "[", "]", '"', "=", "/", "-", "#", "$", "\\",
)  # fmt: skip
GLOBS = (
    "*.py", "!*.py", "src/**", "**/*.ts", "*.{py,ts}", "lib/**", "a", "!node_modules", "**/a", "*",
    "x y/*", "\\[id\\]/*", "?", "src/*", "!src/**", "{src,lib}/*", "**", "*.[jt]s", "!/src", "a:b",
)  # fmt: skip
TYPES = ("py", "ts", "make", "md", "markdown", "c", "js", "readme", "txt", "log")
ATOMS = (
    "hello", "foo", "o", "x", "end", "été", "日", "σ", "k", "_", "4", " ", ".", r"\d", r"\w", r"\s",
    r"\W", r"\S", r"\t", r"\.", r"\(", r"\{", "[a-z]", "[^a-z]", "[^\\W_]", r"[\w.-]", "[é-ÿ]",
    "[[:alpha:]]", "[[:^punct:]]", "[a-z&&[^aeiou]]", r"[\p{L}--[a-f]]", r"\p{Lu}", r"\p{Han}",
    r"\pN", r"\x6f", r"\x{e9}", r"\u00e9", "]", "}", "(?i)hello", "(?i:FOO)", "(?s).",
)  # fmt: skip
PLACES = ("^", "$", r"\b", r"\B", r"\<", r"\>", r"\b{start}", r"\b{end}")
ONLY_PCRE = (
    "foo(?!bar)", "(?=.*o)", r"(?<l>l)\k<l>", r"(?>hel+)o", r"\h", "{}", r"\Qa.b\E", "x*+",
    r"(?<n>o)\k<n>", r"\N", "(?#nothing)", "foo{",
)  # fmt: skip
# In a search across lines, ripgrep starts again after each match, and sees nothing before it.
LOOKS_BACK = (r"\A", r"\z")
LOOKS_BACK_IN_PCRE = (r"(?<=h)e", r"(?<!\w)foo", r"(?<=a|el)l", r"(?<![a-z])\S")
REPEATS = ("*", "+", "?", "*?", "+?", "{2}", "{1,2}", "{2,}")
REFUSED = ("(", "*a", "a{2,1}", "[z-a]", "[a", r"\p{Nothing}", "(?P<1>a)", "a)", r"(a)(?=b)\2")


ENCODINGS = (
    *["utf-8"] * 12,
    "utf-8-sig",
    "utf-16",
    "utf-16-be",
    "latin-1",
    "cp932",
    "binary",
)


def text_of(random: Random, encodings: Sequence[str]) -> bytes:
    """Return the content of a file, in some encoding, with some kind of line end."""
    end = random.choice(["\n", "\n", "\n", "\r\n"])
    words = random.choice([WORDS, [word for word in WORDS if word.isascii()]])
    lines = ["".join(random.choices(words, k=random.randint(0, 6))) for _ in range(12)]
    lines = lines[: random.randint(0, 12)]
    text = end.join(lines) + random.choice([end, ""])
    encoding = random.choice(encodings)
    if encoding == "binary":
        return text.encode() + b"\0" + text.encode()
    if encoding == "late":  # behind the part that tells that a file is binary
        return text.encode() + b"hello\n" * 12_000 + b"\0\nfoo\n"
    return text.encode(encoding, "replace")


def make_home(home: Path, random: Random) -> None:
    """Create the user's own ignore rules, in a file of one of the possible places."""
    rule = f"{random.choice(RULES)}\n"
    (home / ".config/git").mkdir(parents=True)
    if random.random() < 0.5:
        (home / ".config/git/ignore").write_text(rule)
    if random.random() < 0.3:
        (home / ".gitconfig").write_text('[core]\n\texcludesFile = "~/own-rules"\n')
        (home / "own-rules").write_text(rule)


def make_tree(root: Path, random: Random, encodings: Sequence[str]) -> None:
    """Create files, links and ignore files below a folder, and ignore files above it."""
    root.mkdir(parents=True)
    if random.random() < 0.5:
        subprocess.run(["git", "init", "-q", str(root)], check=True)
    for _ in range(random.randint(4, 14)):
        folder = root / random.choice([*FOLDERS, "", "", f"src/{random.choice(FOLDERS)}"])
        path = folder / random.choice(FILES)
        with suppress(FileExistsError, NotADirectoryError):  # a file in place of a folder
            folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_bytes(text_of(random, encodings))
    for _ in range(random.randint(0, 4)):
        folder = root / random.choice([*FOLDERS, "", "", "..", "../.."])
        path = folder / random.choice(IGNORE_FILES)
        with suppress(FileExistsError, NotADirectoryError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{rule}\n" for rule in random.choices(RULES, k=3)))
    (root / "link").symlink_to(random.choice(["src", "..", "a", "nowhere"]))
    os.mkfifo(root / "pipe")


def pattern_of(random: Random, places: Sequence[str], only_pcre: Sequence[str]) -> str:
    """Return a pattern that is valid in most cases."""
    if random.random() < 0.05:
        return random.choice(REFUSED)

    def part(depth: int) -> str:
        chance = random.random()
        if chance < 0.12:
            return random.choice(places)
        if chance < 0.22:
            return random.choice(only_pcre)
        if chance < 0.34 and depth:
            kind = random.choice(["(", "(?:", "(?:", "(?P<name>"])
            inner = "|".join(sequence(depth - 1) for _ in range(random.randint(1, 2)))
            return f"{kind}{inner})"
        repeat = random.choice(REPEATS) if random.random() < 0.2 else ""
        return random.choice(ATOMS) + repeat

    def sequence(depth: int) -> str:
        return "".join(part(depth) for _ in range(random.choice([1, 1, 2, 3])))

    return sequence(1)


def is_text(path: Path) -> bool:
    """Return True for a file that Grep searches if path names it."""
    if not path.is_file() or path.is_symlink():
        return False
    start = path.read_bytes()[:CHUNK_BYTES]
    return b"\0" not in start or start.startswith(codecs.BOM_UTF16)


def search_of(root: Path, random: Random, env: dict[str, str], *, with_context: bool) -> Search:
    inside = root / random.choice(["", "", "", "src", ".hidden", "build", "lib"])
    folder = inside if inside.is_dir() else root
    files = sorted(path.name for path in folder.iterdir() if is_text(path))
    multiline = random.random() < 0.2
    mode = random.choice(["files", "content", "content", "count"])
    filters = random.choice(["", "", "glob", "type"])
    return Search(
        root=folder,
        inside=folder,
        pattern=(
            pattern_of(random, PLACES, ONLY_PCRE)
            if multiline
            else pattern_of(random, PLACES + LOOKS_BACK, ONLY_PCRE + LOOKS_BACK_IN_PCRE)
        ),
        mode="content" if multiline and mode == "count" else mode,  # type: ignore[arg-type]
        only=random.choice(files) if files and random.random() < 0.1 else None,
        glob=random.choice(GLOBS) if filters == "glob" else None,
        type=random.choice(TYPES) if filters == "type" else None,
        ignore_case=random.random() < 0.2,
        multiline=multiline,
        before=random.choice([0, 0, 1]) if with_context else 0,
        after=random.choice([0, 0, 2]) if with_context else 0,
        env=env,
    )


def found_by(engine: str, search: Search) -> list[GrepHit] | str:
    hits: list[GrepHit] = []

    def take(hit: GrepHit) -> bool:
        hits.append(hit)
        return True

    try:
        asyncio.run(search_files(engine_named(engine), search, take))
    except Refused:
        return "refused"
    return hits


def found_by_python(search: Search, monkeypatch: pytest.MonkeyPatch) -> list[GrepHit] | str:
    """Search in this process, which is quicker. Other tests search as the agent does."""

    async def pieces(run: Any, separator: bytes) -> AsyncGenerator[bytes, None]:
        code, out = output_of(run._command(run._search))
        if code:
            raise Refused
        for each in out.split(separator)[:-1]:
            yield each

    with monkeypatch.context() as patch, chdir(search.root):
        patch.setattr(os, "environ", search.env)
        patch.setattr(engine_module._Run, "pieces", pieces)
        return found_by("Python", search)


def without_columns(hits: list[GrepHit] | str) -> object:
    """Leave out where a match begins in its line. Only the cut of a long line depends on it, and
    ripgrep looks for it in another text than for the line.
    """
    if isinstance(hits, str):
        return hits
    return [(hit.path, hit.number, hit.text, hit.start is None) for hit in hits]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(TREES))
def test_both_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = Random(seed)
    root, env = tmp_path / "above/project", {"PATH": os.defpath, "HOME": str(tmp_path / "home")}
    make_home(tmp_path / "home", random)
    # Where ripgrep stops in a large binary file depends on the lines of context that it keeps.
    with_context = seed % 2 == 0
    make_tree(root, random, ENCODINGS if with_context else (*ENCODINGS, "late"))
    found = set[str]()
    for _ in range(SEARCHES_PER_TREE):
        search = search_of(root, random, env, with_context=with_context)
        expected = without_columns(found_by("ripgrep", search))
        assert without_columns(found_by_python(search, monkeypatch)) == expected, search
        found.add("nothing" if not expected else "hits" if expected != "refused" else "refused")
    assert "hits" in found
