"""Legacy encodings as Grep decodes them for ripgrep: in parts, in several runs, in time."""

import asyncio
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from ctxagent.tools.base import Context
from ctxagent.tools.grep import GrepParams, GrepTool
from ctxagent.tools.search import decoded_files

CHINESE = "// 这个函数返回两个数的和\nint sum;\n// 如果失败则返回错误\n"
FRENCH = "// Cette fonction a été créée pour célébrer\nint sum;\n// où ça, déjà vu à Orléans\n"


def grep(root: Path, pattern: str) -> str:
    params = GrepParams(pattern=pattern, output_mode="content")
    return asyncio.run(GrepTool().run(params, Context(cwd=root))).text


@pytest.mark.slow
@pytest.mark.parametrize(("files", "size"), [(3, 1 << 20), (100, 40)])
def test_grep_in_several_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, size: int
) -> None:
    """The number and the size of the texts that one run of ripgrep gets are limited."""
    monkeypatch.setattr(decoded_files, "MAX_OPEN_FILES", files)
    monkeypatch.setattr(decoded_files, "MAX_OPEN_BYTES", size)
    expected = list[str]()
    for folder in ("a", "a-b", "b"):
        for number in range(5):
            encoding = "utf-8" if number == 2 else "latin-1"
            path = tmp_path / folder / f"{number}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"first\ncafé {number}\n", encoding)
            expected.append(f"{folder}/{number}.txt:2:café {number}")
    assert grep(tmp_path, "café").splitlines() == expected


def test_grep_in_a_file_of_many_parts(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("a" + CHINESE * 2_000, "gbk")
    assert grep(tmp_path, "失败").splitlines()[-1].startswith("[lines 1 to 250")
    assert grep(tmp_path, "不返回|\N{REPLACEMENT CHARACTER}").startswith("No matches")


def test_grep_tells_which_files_it_did_not_decode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.c").write_text(FRENCH, "latin-1")
    (tmp_path / "b.c").write_text(FRENCH, "utf-8")
    monkeypatch.setattr(decoded_files, "time", SimpleNamespace(monotonic=lambda: math.inf))
    first, *notes = grep(tmp_path, "Orléans").splitlines()
    assert first.startswith("b.c:3:")
    assert len(notes) == 1
    assert notes[0].startswith("[too many files are not UTF-8: some were searched as UTF-8; ")
