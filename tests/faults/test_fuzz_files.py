"""Read, Write and Edit over files of any bytes, by any way to them: what is answered can be sent,
what was not edited stays as it was, byte for byte, and what is refused leaves nothing changed."""

import asyncio
import json
import os
import re
import stat
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ctxagent.agent.errors import ToolError
from ctxagent.tools.base import Context, Output
from ctxagent.tools.edit import EditParams, EditTool
from ctxagent.tools.read import ReadParams, ReadTool
from ctxagent.tools.write import WriteParams, WriteTool

fuzz = settings(max_examples=100, derandomize=True, deadline=None)

BOMS = [b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0"]
PIECES = st.one_of(
    st.sampled_from(
        [b"a", b"word ", b"\n", b"\r\n", b"\r", b"\n\n", b"\t", b"\0", b"\0" * 40, b"\x1b[2J",
         b"\x0c", b"\xff", b"\x80\x93", b"\xe9", "é".encode(), "語".encode(), "😀".encode(),
         "e\u0301".encode(),
         "\u202e".encode(), "\u2028".encode(), b"\xed\xa0\x80", "é\n".encode("utf-16-le"), *BOMS,
         b"\x89PNG\r\n\x1a\n", b"GIF89a", b"%PDF-1", b"x" * 3_000, b"OLD"]
    ),
    st.binary(max_size=8),
    st.text(max_size=8).map(lambda text: text.encode("utf-8", "surrogatepass")),
)  # fmt: skip
DATA = st.lists(PIECES, max_size=14).map(b"".join)


def sendable(output: Output) -> None:
    """What the model gets and the log keeps has a form in JSON and UTF-8."""
    output.text.encode()
    json.dumps([output.details, output.blocks], allow_nan=False).encode()


@pytest.mark.full
@fuzz
@given(DATA, st.integers(0, 4), st.integers(1, 3), st.booleans())
@example(b"\xef\xbb\xbf", 1, 1, False)
@example(b"\xff\xfe\0\0", 1, 1, False)
@example(b"\r", 1, 1, False)
@example(b"", 2, 1, True)
def test_any_file_is_read_or_refused(data: bytes, offset: int, limit: int, sparse: bool) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "f")
        path.write_bytes(data)
        if sparse:
            os.truncate(path, len(data) + 20_000_000)
        context = Context(cwd=Path(folder))
        try:
            output = asyncio.run(
                ReadTool().run(ReadParams(path="f", offset=offset, limit=limit), context)
            )
        except ToolError as error:
            str(error).encode()
        else:
            sendable(output)
            shown = re.findall(r"^(\d+)\t", output.text, re.MULTILINE)
            first = max(offset, 1)
            if "lines" in output.details:
                last = output.details["lines"][1]
                assert shown[: last - first + 1] == [str(n) for n in range(first, last + 1)]
                assert last - first < limit
        assert path.stat().st_size == len(data) + 20_000_000 * sparse


@fuzz
@given(
    DATA,
    DATA,
    st.sampled_from(["new", "", "é", "one\ntwo", "OLD OLD", "\ud800", "a\0b", "語\r\n"]),
    st.sampled_from([0o600, 0o644, 0o755, 0o640, 0o444]),
    st.integers(0, 2),
)
def test_an_edit_changes_its_match_and_nothing_else(
    before: bytes, after: bytes, new: str, mode: int, links: int
) -> None:
    """Known by the bytes alone: those before and after the match are there again."""
    data = before + b"OLD" + after
    with TemporaryDirectory() as folder:
        path, named = Path(folder, "real"), Path(folder, "real")
        path.write_bytes(data)
        path.chmod(mode)
        for number in range(links):
            link = Path(folder, f"link{number}")
            link.symlink_to(named.name)
            named = link
        context = Context(cwd=Path(folder))
        params = EditParams(path=named.name, old_string="OLD", new_string=new)
        try:
            output = asyncio.run(EditTool().run(params, context))
        except ToolError as error:
            str(error).encode()
            assert path.read_bytes() == data
        else:
            sendable(output)
            written = path.read_bytes()
            assert written.startswith(before)
            assert written.endswith(after)
            assert len(written) >= len(before) + len(after)
            middle = written[len(before) : len(written) - len(after)]
            encoding = output.details["encoding"]
            if encoding in ("utf-8", "latin-1", "cp1252"):
                text = middle.decode(encoding)
                assert text.replace("\r\n", "\n") == new.replace("\r\n", "\n")
        assert stat.S_IMODE(path.stat().st_mode) == mode
        assert path.is_file()
        assert not path.is_symlink()
        assert named.is_symlink() == bool(links)
        assert len(list(Path(folder).iterdir())) == 1 + links


@fuzz
@given(
    st.lists(
        st.text(max_size=6)
        | st.sampled_from(["\r\n", "\r", "\ufeff", "\0", "\ud800", "\u202e", "é"])
    ).map("".join),
    st.none() | DATA,
)
def test_what_is_written_is_what_was_given(text: str, old: bytes | None) -> None:
    """A new file is the text in UTF-8; one that was there keeps its form, and says the same."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "f")
        context = Context(cwd=Path(folder))
        try:
            if old is not None:
                path.write_bytes(old)
                asyncio.run(ReadTool().run(ReadParams(path="f"), context))
            output = asyncio.run(WriteTool().run(WriteParams(path="f", content=text), context))
        except ToolError as error:
            str(error).encode()
            assert (path.read_bytes() if path.exists() else None) == old
            return
        sendable(output)
        written = path.read_bytes()
        if old is None:
            assert written == text.encode()
        elif output.details["encoding"] == "utf-8":
            said = written.decode(errors="surrogateescape")
            assert _plain(said) == _plain(text)
        assert list(Path(folder).iterdir()) == [path]


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").removeprefix("\ufeff").replace("\r\n", "\n")
