"""Evidence of a project about its encodings: settings of editors and git, and other files."""

import asyncio
from pathlib import Path

import pytest

from ctxagent.tools.base import Context
from ctxagent.tools.project_encodings import ProjectEncodings
from ctxagent.tools.write import WriteParams, WriteTool

from .test_encodings import FRENCH, RUSSIAN, edit, read


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        (".editorconfig", "root = true\n[*.{h,c}]\ncharset = windows-1251\n"),
        (".gitattributes", "*.h text\n*.c text working-tree-encoding=cp1251\n"),
    ],
)
def test_the_project_states_an_encoding(tmp_path: Path, name: str, rules: str) -> None:
    (tmp_path / name).write_text(rules)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.c").write_bytes("# Да\n".encode("cp1251"))
    edit(tmp_path, "Да", "Ещё", "src/a.c")
    assert (tmp_path / "src/a.c").read_bytes() == "# Ещё\n".encode("cp1251")
    asyncio.run(WriteTool().run(WriteParams(path="n.c", content="нет"), Context(cwd=tmp_path)))
    assert (tmp_path / "n.c").read_bytes() == "нет".encode("cp1251")


def test_files_of_the_same_kind_decide(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_bytes("# Да\n".encode("cp1251"))
    assert "unknown" in read(tmp_path)
    (tmp_path / "b.c").write_bytes(RUSSIAN.encode("cp1251"))
    edit(tmp_path, "Да", "Ещё")
    assert (tmp_path / "a.c").read_bytes() == "# Ещё\n".encode("cp1251")


def test_a_certain_file_differs_from_those_beside_it(tmp_path: Path) -> None:
    for name, text, encoding in (("ru.c", RUSSIAN, "cp1251"), ("fr.c", FRENCH, "latin-1")):
        (tmp_path / name).write_bytes(text.encode(encoding))
    assert "été" in read(tmp_path, "fr.c")
    assert "сумму" in read(tmp_path, "ru.c")


def test_utf8_and_a_mark_win_over_what_the_project_states(tmp_path: Path) -> None:
    (tmp_path / ".editorconfig").write_text("[*]\ncharset = latin1\n")
    (tmp_path / "a.c").write_text(FRENCH, "utf-8")
    (tmp_path / "b.c").write_text(FRENCH, "utf-16")
    assert "été" in read(tmp_path)
    assert "été" in read(tmp_path, "b.c")


def test_the_nearest_rule_counts(tmp_path: Path) -> None:
    (tmp_path / "below/deep").mkdir(parents=True)
    (tmp_path / ".editorconfig").write_text(
        "root=true\n[*]\ncharset=latin1\n[x.*]\ncharset=koi8-r\n"
    )
    (tmp_path / "below/.editorconfig").write_text(
        "[deep/*.c]\nCharset = UTF-8-BOM\n[*.h]\ncharset=no\n"
    )
    stated = ProjectEncodings().stated
    assert stated(tmp_path / "a.c") == "latin-1"
    assert stated(tmp_path / "below/x.c") == "koi8-r"
    assert stated(tmp_path / "below/deep/a.c") == "utf-8-bom"
    assert stated(tmp_path / "below/a.h") == "latin-1"  # no known encoding is no rule
    (tmp_path / "below/.editorconfig").write_text("root = true\n")
    assert ProjectEncodings().stated(tmp_path / "below/a.c") == ""
