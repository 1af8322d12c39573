"""Grep: what it finds, how it shows it, and how it ends."""

import asyncio
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.errors import ToolError
from ctxagent.tools.base import Context, Output
from ctxagent.tools.grep import GrepParams, GrepTool
from ctxagent.tools.search.ripgrep import Ripgrep

from ..support.command import comes


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write(
        tmp_path,
        {
            "src/main.py": "import os\n\ndef total(x):\n    return x\n\nprint(total(1))\n",
            "src/util.ts": "export const total = 1\n",
            "src/deep/more.py": "TOTAL = 3\n",
            "README.md": "The total of it.\n",
            ".hidden/notes.txt": "a total secret\n",
        },
    )
    return tmp_path


def write(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        (root / name).write_bytes(data)


def grep(root: Path, pattern: str, **params: Any) -> Output:
    return asyncio.run(GrepTool().run(GrepParams(pattern=pattern, **params), Context(cwd=root)))


def lines(root: Path, pattern: str, **params: Any) -> list[str]:
    return grep(root, pattern, output_mode="content", **params).text.splitlines()


def files(root: Path, pattern: str, **params: Any) -> list[str]:
    out = grep(root, pattern, **params)
    return out.text.splitlines() if out.details["files"] else []


def test_files_come_sorted_by_path_with_hidden_ones(project: Path) -> None:
    out = grep(project, "total")
    assert out.text.splitlines() == [
        ".hidden/notes.txt",
        "README.md",
        "src/main.py",
        "src/util.ts",
    ]
    assert out.details == {"matches": None, "files": 4, "truncated": False}


def test_a_directory_sorts_by_its_name_among_files(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "x\n", "a/b.txt": "x\n", "a-b.txt": "x\n"})
    assert files(tmp_path, "x") == ["a/b.txt", "a-b.txt", "a.txt"]


def test_content_gives_path_line_and_text(project: Path) -> None:
    out = grep(project, r"total\(", output_mode="content", path="src")
    assert out.text == "src/main.py:3:def total(x):\nsrc/main.py:6:print(total(1))"
    assert out.details == {"matches": 2, "files": 1, "truncated": False}


@pytest.mark.slow
def test_context_is_marked_and_gaps_are_shown(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "1\n2\nhit\n4\n5\n6\n7\nhit\nhit\n", "b.txt": "hit\n"})
    expected = ["a.txt-2-2", "a.txt:3:hit", "a.txt-4-4", "--", "a.txt-7-7", "a.txt:8:hit"]
    expected += ["a.txt:9:hit", "--", "b.txt:1:hit"]
    assert lines(tmp_path, "hit", context=1) == expected
    assert lines(tmp_path, "hit", glob="a.txt", before=1)[0] == "a.txt-2-2"
    assert lines(tmp_path, "^2", after=2) == ["a.txt:2:2", "a.txt-3-hit", "a.txt-4-4"]


@pytest.mark.slow
def test_context_in_a_large_file(tmp_path: Path) -> None:
    filler = "filler line of a log file\n" * 100_000
    write(tmp_path, {"big.log": filler + "needle\n" + filler + "needle\n"})
    found = lines(tmp_path, "needle", context=1)
    numbers = [int(n) for n in re.findall(r"^big\.log.(\d+)", "\n".join(found), re.MULTILINE)]
    assert numbers == [100_000, 100_001, 100_002, 200_001, 200_002]
    assert lines(tmp_path, "need[^x]e") == [
        "big.log:100001:needle",
        "big.log:200002:needle",
    ]


def test_count_counts_lines_and_sums_up(project: Path) -> None:
    out = grep(project, "total", output_mode="count", glob="*.{py,ts}")
    assert out.text == "src/main.py:2\nsrc/util.ts:1\n[matches: 3, files: 2]"
    assert out.details["matches"] == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"glob": "*.py"}, ["src/deep/more.py", "src/main.py"]),
        ({"glob": "src/*.py"}, ["src/main.py"]),
        ({"glob": "*.py", "path": "src/deep"}, ["src/deep/more.py"]),
        ({"glob": "deep/*", "path": "src"}, ["src/deep/more.py"]),
        ({"glob": "src/**.py"}, ["src/deep/more.py", "src/main.py"]),
        ({"glob": "{src/**,lib/**}"}, ["src/deep/more.py", "src/main.py", "src/util.ts"]),
        ({"glob": "src/"}, ["src/deep/more.py", "src/main.py", "src/util.ts"]),
        ({"glob": "!src"}, [".hidden/notes.txt", "README.md"]),
        ({"glob": "!*.{py,md}"}, [".hidden/notes.txt", "src/util.ts"]),
        ({"type": "py"}, ["src/deep/more.py", "src/main.py"]),
        ({"type": "txt"}, [".hidden/notes.txt"]),
        ({"type": "py", "glob": "ma*"}, ["src/main.py"]),
        ({"type": "py", "glob": "src/**"}, ["src/deep/more.py", "src/main.py"]),
        ({"type": "py", "glob": "!src/deep"}, ["src/main.py"]),
        ({"glob": "{src/deep,lib}/*.py"}, ["src/deep/more.py"]),
        ({"path": "src/main.py", "glob": "*.ts"}, ["src/main.py"]),
    ],
)
def test_globs_and_types_narrow(
    project: Path, filters: dict[str, str], expected: list[str]
) -> None:
    assert files(project, "total", ignore_case=True, **filters) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("app/[id]/*.tsx", ["app/[id]/page.tsx"]),
        ("**/[[lang]]/**", ["app/[[lang]]/page.tsx"]),
        ("app/[i]/*", ["app/i/page.tsx"]),
        ("app/{{name}}/*", ["app/{{name}}/page.tsx"]),
        ("!app/[id]/**", ["app/[[lang]]/page.tsx", "app/i/page.tsx", "app/{{name}}/page.tsx"]),
        ("!app/[id]", ["app/[[lang]]/page.tsx", "app/i/page.tsx", "app/{{name}}/page.tsx"]),
    ],
)
def test_a_folder_with_brackets_wins_over_a_set(
    tmp_path: Path, glob: str, found: list[str]
) -> None:
    names = ("[id]", "i", "[[lang]]", "{{name}}")
    write(tmp_path, {f"app/{name}/page.tsx": "needle\n" for name in names})
    assert files(tmp_path, "needle", glob=glob) == found


def test_case_literal_and_leading_dash(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "Über a.b(c) [x]{y} --flag #&~ $^|\\\nuber a+b\n"})
    assert files(tmp_path, "über") == []
    assert files(tmp_path, "über", ignore_case=True) == ["a.txt"]
    assert files(tmp_path, "a.b(c) [x]{y} --flag #&~ $^|\\", literal=True) == ["a.txt"]
    assert lines(tmp_path, "a+b", literal=True) == ["a.txt:2:uber a+b"]
    assert files(tmp_path, "--flag") == ["a.txt"]


@pytest.mark.slow
def test_lines_are_searched_one_by_one(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "one\r\n\r\ntwo\nthree"})
    assert lines(tmp_path, r"one$") == ["a.txt:1:one"]
    assert files(tmp_path, r"one\s+two") == []
    assert files(tmp_path, "two[^x]three") == []
    assert lines(tmp_path, r"^t") == ["a.txt:3:two", "a.txt:4:three"]
    with pytest.raises(ToolError, match="multiline=true"):
        grep(tmp_path, r"two\nthree")
    assert files(tmp_path, r"two\\nthree") == []  # a backslash and an n


@pytest.mark.slow
def test_multiline_spans_lines(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "x\nbegin {\n  body\n}\ny\nbegin {\n}\n"})
    found = lines(tmp_path, r"begin \{.*?body", multiline=True, after=1)
    assert found == ["a.txt:2:begin {", "a.txt:3:  body", "a.txt-4-}"]
    counted = grep(tmp_path, r"begin \{\n.*?\}", multiline=True, output_mode="count")
    assert counted.details["matches"] == 2
    letters = grep(tmp_path, "[ybg]", multiline=True, output_mode="count")
    assert letters.details["matches"] == 7  # matches; without multiline it would be lines
    assert files(tmp_path, "}\ny", multiline=True, literal=True) == ["a.txt"]


def test_look_around_works(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "foobar\nfoobaz\n"})
    params = GrepParams(pattern=r"foo(?!bar)(?<=o)b", output_mode="content")
    out = asyncio.run(GrepTool().run(params, Context(cwd=tmp_path)))
    assert out.text == "a.txt:2:foobaz"


@pytest.mark.slow
@pytest.mark.parametrize("inside_git", [True, False])
def test_ignored_files_are_left_out_and_named(tmp_path: Path, inside_git: bool) -> None:
    if inside_git:
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    write(
        tmp_path,
        {
            ".gitignore": "build/\n*.log\n",
            "src/.ignore": "skip.txt\n",
            "src/skip.txt": "needle\n",
            "src/keep.txt": "hay\n",
            "build/out.txt": "needle\n",
            "app.log": "needle\n",
            ".git/info/needle": "needle\n",
        },
    )
    out = grep(tmp_path, "needle")
    assert out.text.startswith("No matches for 'needle' in the project directory. Ignored")
    assert "app.log, build/" in out.text
    assert not out.is_error
    assert files(tmp_path, "needle", path="build") == ["build/out.txt"]
    assert files(tmp_path, "needle", path="app.log") == ["app.log"]
    for glob in ("*.log", "build/**", "*", "**", "**/*"):  # narrows, and brings nothing back
        assert files(tmp_path, "needle", glob=glob) == []


def test_rules_above_the_searched_directory_count(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "*.min.js\n", "web/a.js": "x\n", "web/a.min.js": "x\n"})
    assert files(tmp_path, "x", path="web") == ["web/a.js"]


@pytest.mark.slow
def test_pages_follow_each_other(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "".join(f"hit {n}\n" for n in range(10))})
    first = grep(tmp_path, "hit", output_mode="content", limit=4)
    assert first.text.splitlines()[3:] == [
        "a.txt:4:hit 3",
        "[lines 1 to 4; there are more: go on with offset=4, "
        "or narrow the search with path, glob or type]",
    ]
    assert first.details["truncated"] is True
    last = grep(tmp_path, "hit", output_mode="content", limit=4, offset=8)
    assert last.text == "a.txt:9:hit 8\na.txt:10:hit 9"
    assert last.details["truncated"] is False
    beyond = grep(tmp_path, "hit", output_mode="content", offset=50)
    assert beyond.text == "[nothing from offset=50 on: there are 10]"


@pytest.mark.slow
def test_an_answer_is_bounded_and_goes_on(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "".join(f"{n:05} {'x' * 400}\n" for n in range(1000))})
    numbers: list[int] = []
    offset = 0
    while len(numbers) < 1000:
        found = grep(tmp_path, "x", output_mode="content", limit=9999, offset=offset)
        assert len(found.text) < 31_000
        numbers += [int(n) for n in re.findall(r"a\.txt:\d+:(\d+)", found.text)]
        offset = len(numbers)
    assert numbers == list(range(1000))


def test_a_long_line_is_shown_around_its_match(tmp_path: Path) -> None:
    write(tmp_path, {"a.js": "é" * 90_000 + "needle" + "y" * 90_000 + "\nshort needle\n"})
    out = grep(tmp_path, "needle", output_mode="content")
    long, short, note = out.text.splitlines()
    assert long.startswith("a.js:1:…é")
    assert "éneedley" in long
    assert long.endswith("y… [500 of 180,006 characters]")
    assert len(long) < 600
    assert short == "a.js:2:short needle"
    assert "long lines are cut" in note


@pytest.mark.slow
def test_encodings(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "bom.txt": b"\xef\xbb\xbfneedle bom\n",
            "latin.txt": "caf\xe9 needle\n".encode("latin-1"),
            "no-mark.txt": "needle in halves\n".encode("utf-16-be"),
            "wide.txt": "needle wide\n".encode("utf-16"),
        },
    )
    assert lines(tmp_path, "needle") == [
        "bom.txt:1:needle bom",
        "latin.txt:1:café needle",
        "no-mark.txt:1:needle in halves",
        "wide.txt:1:needle wide",
    ]
    assert files(tmp_path, "^needle") == ["bom.txt", "no-mark.txt", "wide.txt"]
    assert lines(tmp_path, "é") == ["latin.txt:1:café needle"]
    assert grep(tmp_path, "é", output_mode="count").text.startswith("latin.txt:1\n")
    assert lines(tmp_path, "f. n", path="latin.txt") == ["latin.txt:1:café needle"]


def test_binary_files_are_skipped_or_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, {"a.bin": b"\x7fELF\0needle\n", "b.txt": "needle\n"})
    assert files(tmp_path, "needle") == ["b.txt"]
    with pytest.raises(ToolError, match=r"a\.bin is binary.*strings"):
        grep(tmp_path, "needle", path="a.bin")


@pytest.mark.slow
def test_only_regular_files_are_opened_and_no_link_is_followed(tmp_path: Path) -> None:
    write(tmp_path, {"src/a.txt": "needle\n"})
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link.txt").symlink_to("src/a.txt")
    (tmp_path / "src/loop").symlink_to("..")
    assert files(tmp_path, "needle") == ["src/a.txt"]
    assert files(tmp_path, "needle", path="link.txt") == ["link.txt"]
    with pytest.raises(ToolError, match="FIFO"):
        grep(tmp_path, "needle", path="pipe")


@pytest.mark.slow
def test_what_cannot_be_searched_says_why(project: Path) -> None:
    with pytest.raises(
        ToolError, match=r"does not take this search: .*unclosed group.*literal=true"
    ):
        grep(project, "total(")
    with pytest.raises(ToolError, match=r"does not take .*\. type is the name of a language"):
        grep(project, "x", type="string", literal=True)
    with pytest.raises(ToolError, match=r"src/mian\.py does not exist.*main\.py"):
        grep(project, "x", path="src/mian.py")
    with pytest.raises(ToolError, match=r"the \{ in .* is never closed"):
        grep(project, "x", glob="*.{py")
    with pytest.raises(ToolError, match="is no type"):
        grep(project, "x", type="*.py")
    for bad in ("\0", "\ud800"):
        with pytest.raises(ToolError, match="pattern has a NUL or half a character"):
            grep(project, bad)


def test_nothing_found_names_the_filters(project: Path) -> None:
    out = grep(project, "zebra", path="src", glob="*.py", type="py")
    assert out.text == "No matches for 'zebra' in src (glob *.py, type py)."


def test_a_path_outside_the_project_is_shown_whole(project: Path) -> None:
    assert files(project / "src", "total", path=str(project / "README.md")) == [
        str(project / "README.md")
    ]


def test_a_ripgrep_config_file_is_ignored(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "needle\n", "rc": "--invert-match\n--glob=!*.txt\n"})
    env = {**os.environ, "RIPGREP_CONFIG_PATH": str(tmp_path / "rc")}
    params = GrepParams(pattern="needle")
    out = asyncio.run(GrepTool().run(params, Context(cwd=tmp_path, env=env)))
    assert out.text == "a.txt"


@pytest.fixture
def no_child_left() -> Iterator[None]:
    """Check that there are no new child processes, running or zombie."""
    before = children()
    yield
    assert children() <= before


def children() -> set[str]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_bytes().rpartition(b")")[2].split()[1]) == os.getpid():
                found.add(path.parent.name)
    return found


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project where a search finds `a.txt` and then never ends."""
    write(tmp_path, {"a.txt": "aaa\n"})
    script = tmp_path / "rg"
    script.write_text("#!/bin/sh\nprintf 'a.txt\\0'\nexec sleep 600\n")
    script.chmod(0o755)
    found = Ripgrep(str(script))
    monkeypatch.setattr("ctxagent.tools.grep.find_ripgrep", lambda path: found)
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("no_child_left")
def test_what_was_found_in_time_is_kept(slow: Path) -> None:
    def found_in(seconds: float) -> Output | None:
        run = GrepTool(seconds).run(GrepParams(pattern="a"), Context(cwd=slow))
        with suppress(ToolError):
            return asyncio.run(run)
        return None

    # On a busy machine the first second may pass before the search starts.
    seconds, out = next((n, out) for n in (1, 5, 25) if (out := found_in(n)))
    assert out.text.splitlines()[0] == "a.txt"
    assert f"stopped after {seconds} s" in out.text
    assert out.details["truncated"] is True
    with pytest.raises(ToolError, match=r"in 0 s.*glob or type, or simplify the pattern"):
        asyncio.run(GrepTool(0).run(GrepParams(pattern="a"), Context(cwd=slow)))


@pytest.mark.slow
@pytest.mark.usefixtures("no_child_left")
def test_cancelling_ends_the_child(slow: Path) -> None:
    before = children()

    async def interrupted() -> None:
        run = GrepTool().run(GrepParams(pattern="a"), Context(cwd=slow))
        task = asyncio.create_task(run)
        assert await asyncio.to_thread(comes, lambda: children() - before)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(interrupted())


def test_permission_rules_and_people_see_the_path() -> None:
    tool = GrepTool()
    assert tool.subject(GrepParams(pattern="x", path="src")) == "src"
    assert tool.subject(GrepParams(pattern="x", path="")) == "."
    assert tool.title(GrepParams(pattern="a\nb", path="src")) == '"a\\nb" in src'
    assert tool.effect == "read"


def test_git_is_not_needed(project: Path) -> None:
    write(project, {".gitignore": "*.md\n"})
    nothing = project / "empty"
    nothing.mkdir()
    context = Context(cwd=project, env={"PATH": str(nothing)})
    out = asyncio.run(GrepTool().run(GrepParams(pattern="total", type="md"), context))
    assert "Ignored, so not looked at: README.md." in out.text
