"""A text that is read in pieces."""

from pathlib import Path

import pytest

from ctxagent.tools.system import kept_text
from ctxagent.tools.system.kept_text import KeptText

TEXT = "aé漢🙂\ud800\n" * 50


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64])
def test_a_file_is_the_same_text_in_pieces_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(kept_text, "PIECE_BYTES", size)
    path = tmp_path / "text"
    path.write_bytes(TEXT.encode("utf-8", "surrogatepass"))
    kept = KeptText(open_file=lambda: path.open("rb"))
    assert kept.whole() == TEXT
    for offset, limit in ((0, 3), (7, 11), (290, 100), (400, 5)):
        assert kept.part(offset, limit) == (TEXT[offset : offset + limit], len(TEXT))
        assert KeptText(TEXT).part(offset, limit) == kept.part(offset, limit)
    assert kept.is_longer_than(len(TEXT) - 1)
    assert not kept.is_longer_than(len(TEXT))
    path.unlink()
    assert kept.whole() == ""


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"a\xffb\xc3")
    assert KeptText(open_file=lambda: (tmp_path / "text").open("rb")).whole() == "a\ufffdb\ufffd"
