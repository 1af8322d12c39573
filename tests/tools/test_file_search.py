"""How files are read: pieces, binary files, encodings, context at the edges of pieces. Both engines
find the same.
"""

import io
import os
import subprocess
from pathlib import Path

import pytest

from ctxagent.tools.search.engine import _hit
from ctxagent.tools.search.python.expression import Expression
from ctxagent.tools.search.python.file_search import PIECE_BYTES, FileSearch, LineSearch
from ctxagent.tools.search.request import GrepHit, Mode, Search

from ..support.search_engines import engine_named

LINE = b"needle %05d\n"  # 13 bytes
LINES = b"".join(LINE % number for number in range(20_000))


def hits(path: Path, pattern: str, mode: Mode = "content", *, named: bool = False,
         multiline: bool = False, before: int = 0, after: int = 0) -> list[GrepHit]:  # fmt: skip
    """Return what the search in Python finds in a file, which ripgrep must find, too."""
    search = Search(
        root=path.parent, inside=path.parent, pattern=pattern, mode=mode, multiline=multiline,
        only=path.name if named else None, before=before, after=after,
    )  # fmt: skip
    command = engine_named("ripgrep").command(search).argv
    done = subprocess.run(command, cwd=path.parent, capture_output=True)
    out = io.BytesIO()
    expression = Expression(pattern, by_line=not multiline, ignore_case=False, table="")
    lines = LineSearch(expression)
    files = FileSearch(
        lines, out, mode=mode, counts_matches=multiline, before=before, after=after
    )  # fmt: skip
    descriptor = os.open(path, os.O_RDONLY)
    try:
        files.search(path.name.encode(), descriptor, is_named=named)
    finally:
        os.close(descriptor)
    found = hits_of(out.getvalue(), mode)
    assert [key(hit) for hit in found] == [key(hit) for hit in hits_of(done.stdout, mode)]
    return found


def hits_of(output: bytes, mode: Mode) -> list[GrepHit]:
    records = output.split(b"\0" if mode == "files" else b"\n")[:-1]
    return [hit for record in records if (hit := _hit(record, mode))]


def key(hit: GrepHit) -> tuple[object, ...]:
    """Leave out the column, which ripgrep does not know of each match."""
    return hit.path, hit.number, hit.text, hit.start is None


def made(folder: Path, data: bytes) -> Path:
    path = folder / "f"
    path.write_bytes(data)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("place", [5, 60_000, 65_535, 65_536, 70_000, 140_000, 259_999])
def test_a_nul_ends_the_search(tmp_path: Path, place: int) -> None:
    path = made(tmp_path, LINES[:place] + b"\0" + LINES[place + 1 :])
    shown = hits(path, "needle")
    pieces = place // PIECE_BYTES  # whole pieces before the NUL, which end at a line end
    assert abs(len(shown) - pieces * PIECE_BYTES // 13) <= pieces
    assert bool(hits(path, "needle", "files")) == bool(shown)
    assert hits(path, "needle", "count") == []
    assert hits(path, "(?!x)needle") == shown
    across = hits(path, r"needle \d+\n", multiline=True)
    assert bool(across) == (place >= PIECE_BYTES)


@pytest.mark.slow
@pytest.mark.parametrize("place", [70_000, 140_004])
def test_a_named_file_is_searched_to_the_line_with_the_nul(tmp_path: Path, place: int) -> None:
    path = made(tmp_path, LINES[:place] + b"\0" + LINES[place + 1 :])
    assert len(hits(path, "needle", named=True)) == place // 13
    assert len(hits(path, "needle 00001", named=True)) == 1
    assert hits(path, "needle", "count", named=True) == [GrepHit("f", 20_000)]


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(0, 0), (1, 0), (0, 2), (3, 3)])
def test_context_goes_over_the_edge_of_a_piece(tmp_path: Path, before: int, after: int) -> None:
    path = made(tmp_path, LINES)
    number = PIECE_BYTES // 13  # of the first line that is not whole in the first piece
    for near in range(number - 3, number + 4):
        found = hits(path, f"needle {near:05}", before=before, after=after)
        assert len(found) == 1 + before + after


@pytest.mark.slow
def test_lines_longer_than_a_piece(tmp_path: Path) -> None:
    long = b"x" * 300_000
    path = made(
        tmp_path, b"needle\n" + long + b"needle" + long + b"\nneedle\n" + long + b"\xe9needle"
    )
    found = hits(path, "needle")
    assert [(hit.number, hit.start, len(hit.text)) for hit in found] == [
        (1, 0, 6), (2, 300_000, 600_006), (3, 0, 6), (4, 300_001, 300_007),
    ]  # fmt: skip
    assert hits(path, "^needle$", "count") == [GrepHit("f", 2)]
    assert hits(path, r"\Aneedle", before=1, after=1)[0] == GrepHit("f", 1, "needle", 0)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-16-le"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    text = "n\u00e9edle one\r\n\r\nno\nn\u00e9edle \U0001f600"
    mark = {"utf-16-be": b"\xfe\xff", "utf-16-le": b"\xff\xfe"}.get(encoding, b"")
    path = made(tmp_path, mark + text.encode(encoding))
    assert hits(path, "^n.edle") == [
        GrepHit("f", 1, "n\u00e9edle one", 0), GrepHit("f", 4, "n\u00e9edle \U0001f600", 0),
    ]  # fmt: skip
    assert hits(path, "^$", "count") == [GrepHit("f", 1)]
    assert hits(path, r"one\r\n\r\nno", multiline=True)[0].start == 7


@pytest.mark.parametrize(
    ("data", "pattern", "count"),
    [
        (b"", "x*", 0),
        (b"\n", "x*", 1),
        (b"\n\n", "^", 2),
        (b"a\n\nb", "$", 3),
        (b"a\rb\r\n", "^b", 1),
        (b"a\rb\r\n", r"a$", 1),
        (b"a\xffb\n", "a.b", 0),
        (b"a\xffb\n", "b", 1),
        (b"\xef\xbb\xbf", "", 0),
        (b"\xef\xbb\xbfa", "^a", 1),
        (b"a\r\r\n", "a$", 1),
        (b"\r\n\r\n", "^$", 2),
    ],
)
def test_lines(tmp_path: Path, data: bytes, pattern: str, count: int) -> None:
    path = made(tmp_path, data)
    assert hits(path, pattern, "count") == ([GrepHit("f", count)] if count else [])
    assert len(hits(path, pattern)) == count


@pytest.mark.slow
def test_matches_across_lines(tmp_path: Path) -> None:
    path = made(tmp_path, b"one {\n  two\n}\nthree\none {\n}\none {} one {\n}\nlast")
    for pattern in (
        r"one \{.*?\}",
        r"\{\n",
        r"\n",
        r"^\}$",
        "two|three",
        r"[^}]*",
        r"last\z",
        "(?!x)o",
    ):
        for mode in ("content", "files", "count"):
            assert hits(path, pattern, mode, multiline=True, before=1)  # type: ignore[arg-type]
    assert hits(path, r"one \{.*?\}", "count", multiline=True) == [GrepHit("f", 4)]
    assert len(hits(path, r"one \{.*?\}", multiline=True)) == 7
