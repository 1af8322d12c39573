"""Glob: files found, their order, and the message if there are none."""

import asyncio
import os
from pathlib import Path

import pytest

from ctxagent.agent.errors import ToolError
from ctxagent.tools.base import Context, Output
from ctxagent.tools.glob import GlobParams, GlobTool


def write(root: Path, *names: str) -> None:
    """Create files, each a minute newer than the one before."""
    for n, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
        os.utime(root / name, (1_700_000_000 + 60 * n,) * 2)


def glob(root: Path, pattern: str, path: str = ".") -> Output:
    params = GlobParams(pattern=pattern, path=path)
    return asyncio.run(GlobTool().run(params, Context(cwd=root)))


def test_the_newest_come_first(tmp_path: Path) -> None:
    write(tmp_path, "src/new/b.py", "c.txt", "a.py", ".hidden/z.py")
    out = glob(tmp_path, "*.py")
    assert out.text.splitlines() == [".hidden/z.py", "a.py", "src/new/b.py"]
    assert out.details == {"files": 3, "truncated": False}


def test_a_slash_anchors_the_pattern_at_the_path(tmp_path: Path) -> None:
    write(tmp_path, "src/a.py", "lib/src/b.py", "lib/src/deep/c.py")
    assert glob(tmp_path, "src/*.py").text == "src/a.py"
    assert glob(tmp_path, "src/*.py", "lib").text == "lib/src/b.py"
    assert glob(tmp_path, "**/deep/*").text == "lib/src/deep/c.py"


@pytest.mark.parametrize(
    ("pattern", "path"),
    [("{root}/lib/*.py", "."), ("../lib/*.py", "src"), ("{root}/lib/b.py", "src")],
)
def test_a_pattern_may_lead_out_of_the_path(tmp_path: Path, pattern: str, path: str) -> None:
    write(tmp_path, "src/a.py", "lib/b.py", "lib/deep/c.py")
    params = GlobParams(pattern=pattern.format(root=tmp_path), path=path)
    out = asyncio.run(GlobTool().run(params, Context(cwd=tmp_path)))
    assert [(tmp_path / line).resolve() for line in out.text.splitlines()] == [
        tmp_path / "lib/b.py"
    ]


def test_permission_rules_see_the_directory_that_is_searched() -> None:
    def subject(pattern: str, path: str) -> str:
        return GlobTool().subject(GlobParams(pattern=pattern, path=path))

    assert subject("*.py", "src") == "src"
    assert subject("/etc/ssh/*", "src") == "/etc/ssh"
    assert subject("/etc/passwd", ".") == "/etc"
    assert subject("/*", ".") == "/"
    assert subject("~/.ssh/id*", ".") == "~/.ssh"
    assert subject("../../other/*.py", "src") == "src/../../other"
    assert GlobTool().effect == "read"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("app/[id]/*.tsx", ["app/[id]/page.tsx"]),
        ("**/[id]/**", ["app/[id]/page.tsx"]),
        ("app/[...slug]/p[a-m]ge.tsx", ["app/[...slug]/page.tsx"]),
        ("app/[[lang]]/*", ["app/[[lang]]/page.tsx"]),
        ("app/\\[id\\]/*", ["app/[id]/page.tsx"]),
        ("app/[i]/*.tsx", ["app/i/page.tsx"]),
        ("**/{{name}}/*.{ts,tsx}", ["app/{{name}}/page.tsx"]),
        ("app/[id/*.tsx", ["app/[id/page.tsx"]),
    ],
)
def test_a_folder_with_brackets_wins_over_a_set(
    tmp_path: Path, pattern: str, found: list[str]
) -> None:
    names = ("[id]", "i", "[...slug]", "[[lang]]", "[id", "s", "{{name}}")
    write(tmp_path, *(f"app/{name}/page.tsx" for name in names))
    assert glob(tmp_path, pattern).text.splitlines() == found


def test_a_long_answer_is_cut_and_says_so(tmp_path: Path) -> None:
    write(tmp_path, *(f"f{n:03}.txt" for n in range(230)))
    out = glob(tmp_path, "*.txt")
    lines = out.text.splitlines()
    assert lines[0] == "f229.txt"
    assert lines[199:] == [
        "f030.txt",
        "[30 more, all older; narrow the pattern or the path to see them]",
    ]
    assert out.details == {"files": 230, "truncated": True}


def test_nothing_found_says_what_was_left_out(tmp_path: Path) -> None:
    write(tmp_path, "build/x.o", "src/a.py", ".gitignore")
    (tmp_path / ".gitignore").write_text("build/\n")
    out = glob(tmp_path, "*.o")
    assert out.text == (
        "No files match *.o in the project directory. Ignored, so not looked at: build/. "
        "Give one as path to search it."
    )
    assert not out.is_error
    assert glob(tmp_path, "*.o", "build").text == "build/x.o"


def test_a_directory_is_recognised(tmp_path: Path) -> None:
    write(tmp_path, "src/a.py")
    assert "It is a directory: src/** matches the files in it." in glob(tmp_path, "src").text


def test_what_cannot_be_searched_says_why(tmp_path: Path) -> None:
    write(tmp_path, "source/a.py")
    with pytest.raises(ToolError, match=r"sourc does not exist.*source"):
        glob(tmp_path, "*", "sourc")
    with pytest.raises(ToolError, match="is a file"):
        glob(tmp_path, "*", "source/a.py")
    with pytest.raises(ToolError, match="never closed"):
        glob(tmp_path, "*.{py")


def test_files_that_are_gone_or_links_do_no_harm(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    (tmp_path / "dangling.py").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to(".")
    assert sorted(glob(tmp_path, "*.py").text.splitlines()) == ["a.py", "dangling.py"]


def test_a_list_takes_a_small_part_of_a_small_window(tmp_path: Path) -> None:
    for number in range(150):
        (tmp_path / "src").mkdir(exist_ok=True)
        (tmp_path / f"src/module_{number}.py").touch()
    context = Context(cwd=tmp_path, window_tokens=lambda: 16_384)
    output = asyncio.run(GlobTool().run(GlobParams(pattern="*.py"), context))
    *paths, note = output.text.split("\n")
    assert len(paths) >= 10
    assert len(output.text) < 0.03 * 3 * 16_384
    assert note == (
        f"[{150 - len(paths)} more, all older; narrow the pattern or the path to see them: most of "
        "150 are in src/ (150)]"
    )
    assert output.details == {"files": 150, "truncated": True}
    context.window_tokens = lambda: 200_000
    assert asyncio.run(GlobTool().run(GlobParams(pattern="*.py"), context)).text.count("\n") == 149
