"""The rules of ignore files: which of them decides, also compared with ripgrep."""

import asyncio
import subprocess
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from ctxagent.tools.system.ignore_rules import (
    IGNORE_FILES,
    NOT_GIT,
    read_ignore_file,
    rules_above,
)
from ctxagent.tools.system.project_files import _walked, in_order

from ..support.ripgreps import PROGRAM

TREES = 60
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


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def ignored(root: Path, *paths: str, home: str = "/nonexistent") -> list[str]:
    """Return the paths that the rules in and above a folder ignore. Folders end in `/`."""
    rules, _ = rules_above(str(root), {"HOME": home})
    names = {path.name for path in root.iterdir()}
    rules = rules.below("", names, lambda name: read_ignore_file(str(root / name)))
    return [path for path in paths if rules.ignores(path.rstrip("/"), path.endswith("/"))]


@pytest.mark.parametrize(
    ("rule", "matching", "other"),
    [
        ("name", ["name", "a/name", "name/"], ["names", "name.py"]),
        ("dir/", ["dir/", "a/dir/"], ["dir"]),
        ("/top", ["top"], ["a/top"]),
        ("a/b", ["a/b"], ["x/a/b", "a/b/c"]),
        ("**/deep", ["deep", "a/deep"], ["deeper"]),
        ("*.py", ["a.py", "x/.py"], ["a.pyc", "py"]),
        ("*.min.js", ["a.min.js"], ["a.js", "min.js"]),
        ("src/**", ["src/a", "src/a/b"], ["src/", "a/src/a"]),
        ("*.{ts,tsx}", ["a.ts", "b.tsx"], ["a.js"]),
        ("[ab].c", ["a.c", "x/b.c"], ["c.c"]),
        (r"\!a", ["!a"], ["a"]),
        (r"\#a", ["#a"], ["a"]),
        ("a b  ", ["a b"], ["a b  "]),
        ("# a", [], ["# a", "a"]),
    ],
)
def test_rules(tmp_path: Path, rule: str, matching: list[str], other: list[str]) -> None:
    write(tmp_path, **{".gitignore": f"{rule}\n"})
    assert ignored(tmp_path, *matching, *other) == matching


@pytest.mark.parametrize("bad", ["[", "{a", "a}", "a\\", "/", "!", ""])
def test_a_bad_line_does_not_disable_the_others(tmp_path: Path, bad: str) -> None:
    write(tmp_path, **{".gitignore": f"{bad}\n*.log\n"})
    assert ignored(tmp_path, "a.log", "a.txt") == ["a.log"]


def test_the_last_matching_rule_of_a_file_decides(tmp_path: Path) -> None:
    write(tmp_path, **{".gitignore": "*.log\n!keep.log\nkeep.log/\n"})
    assert ignored(tmp_path, "a.log", "keep.log", "keep.log/") == ["a.log", "keep.log/"]


def test_kinds_of_files_override_each_other_in_order(tmp_path: Path) -> None:
    root = tmp_path / "project"
    kinds = [*IGNORE_FILES]
    write(root, **{name: f"{place}\n" for place, name in enumerate(kinds)})
    assert ignored(root, *map(str, range(4))) == ["0", "1", "2", "3"]
    for stronger, name in zip(kinds[1:], kinds, strict=False):
        write(root, **{stronger: "x\n", name: "!x\n"})
        assert ignored(root, "x") == []
    # Among folders, the kind counts more than the depth.
    write(tmp_path, **{".ignore": "y\n"})
    write(root, **{".gitignore": "!y\n", ".ignore": "", ".rgignore": ""})
    assert ignored(root, "y") == ["y"]


def test_a_deeper_file_overrides_one_of_its_kind_above(tmp_path: Path) -> None:
    write(tmp_path, **{".gitignore": "*.log\nproject/a\n", "project/.gitignore": "!keep.log\n"})
    assert ignored(tmp_path / "project", "a", "b/a", "a.log", "keep.log") == ["a", "a.log"]


@pytest.mark.parametrize("rule", ["out/", "/out", "out/deep", "*"])
def test_an_ignored_folder_has_no_rules_from_above(tmp_path: Path, rule: str) -> None:
    write(tmp_path, **{".gitignore": f"{rule}\n*.log\n", "out/deep/.gitignore": "*.tmp\n"})
    root = tmp_path / "out/deep"
    assert rules_above(str(root), {})[1]
    assert ignored(root, "a.log", "a.tmp") == ["a.tmp"]
    assert not rules_above(str(tmp_path), {})[1]


def test_only_the_named_files_are_read(tmp_path: Path) -> None:
    write(tmp_path, **{".gitignore": "a\n", ".ignore": "b\n", "c/d": ""})
    rules, _ = rules_above(str(tmp_path / "c"), {}, NOT_GIT)
    assert [name for name in "ab" if rules.ignores(name, False)] == ["b"]
    rules, _ = rules_above(str(tmp_path), {}, NOT_GIT)
    assert not rules


@pytest.mark.parametrize(
    "files",
    [
        {".config/git/ignore": "own\n"},
        {".gitconfig": '[core]\n\texcludesFile = "~/rules"\n', "rules": "own\n"},
        {".config/git/config": "[core]\nexcludesfile=~/rules\n", "rules": "own\n"},
    ],
)
def test_the_users_own_rules_are_the_weakest(tmp_path: Path, files: dict[str, str]) -> None:
    root, home = tmp_path / "project", tmp_path / "home"
    root.mkdir()
    write(home, **files)
    assert ignored(root, "own", "other", home=str(home)) == ["own"]
    write(root, **{".gitignore": "!own\n"})
    assert ignored(root, "own", home=str(home)) == []


def test_what_is_no_file_of_text_has_no_rules(tmp_path: Path) -> None:
    (tmp_path / ".ignore").mkdir()
    (tmp_path / ".gitignore").write_bytes(b"\xef\xbb\xbffirst\r\n\xff\nlast\n")
    assert ignored(tmp_path, "first", "last") == ["first"]


def make_tree(root: Path, random: Random) -> None:
    """Create files, and ignore files in and above the root."""
    for _ in range(random.randint(6, 20)):
        path = root / random.choice([*FOLDERS, "", ""]) / random.choice(FILES)
        with suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    for _ in range(random.randint(1, 5)):
        path = root / random.choice([*FOLDERS, "", "", ".."]) / random.choice(IGNORE_FILES)
        with suppress(FileExistsError, NotADirectoryError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{rule}\n" for rule in random.choices(RULES, k=3)))


@pytest.mark.slow
def test_a_walk_lists_what_ripgrep_searches(tmp_path: Path) -> None:
    """In generated trees, also with the user's own rules."""
    random, home = Random(1), tmp_path / "home"
    (home / ".config/git").mkdir(parents=True)
    env = {"HOME": str(home)}
    options = ("--files", "--hidden", "--no-require-git", "--no-ignore-messages", "--glob=!.git")
    some = 0
    for number in range(TREES):
        root = tmp_path / f"{number}/project"
        make_tree(root, random)
        own = random.choice(RULES) if number % 3 == 0 else ""
        (home / ".config/git/ignore").write_text(f"{own}\n")
        if rules_above(str(root), env)[1]:
            continue
        done = subprocess.run([PROGRAM, *options], cwd=root, env=env, capture_output=True)
        expected = in_order(done.stdout.decode().splitlines())
        listing = asyncio.run(_walked(root, 1_000, env))
        assert in_order(listing.paths) == expected, root
        some += bool(expected and listing.ignored)
    assert some > TREES // 3
