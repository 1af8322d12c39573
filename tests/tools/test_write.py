"""Write: new files, files that were read, and everything that leaves a file unchanged."""

import asyncio
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ctxagent.agent.errors import ToolError
from ctxagent.tools import file_access
from ctxagent.tools.base import Context, Interrupted, Output
from ctxagent.tools.file_access import MAX_FILE_BYTES
from ctxagent.tools.read import ReadParams, ReadTool
from ctxagent.tools.text import MAX_DIFF_CHARS, MAX_DIFF_LINES
from ctxagent.tools.write import WriteParams, WriteTool

PATIENCE = 30  # seconds for what takes a moment


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(cwd=tmp_path)


def write(context: Context, path: str, content: str) -> Output:
    return asyncio.run(WriteTool().run(WriteParams(path=path, content=content), context))


def read(context: Context, path: str) -> Output:
    return asyncio.run(ReadTool().run(ReadParams(path=path), context))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refusal(context: Context, path: str, content: str = "new\n") -> str:
    with pytest.raises(ToolError) as caught:
        write(context, path, content)
    return str(caught.value)


def preview(context: Context, path: str, content: str) -> dict[str, str]:
    return asyncio.run(WriteTool().preview(WriteParams(path=path, content=content), context))


def test_a_new_file_and_its_folders(context: Context, tmp_path: Path) -> None:
    output = write(context, "a/b/c.txt", "one\ntwo\n")
    assert (tmp_path / "a/b/c.txt").read_bytes() == b"one\ntwo\n"
    assert output.text == "Created a/b/c.txt: 2 lines."
    details = output.details
    assert details["path"] == str(tmp_path / "a/b/c.txt")
    assert (details["created"], details["added"], details["removed"]) == (True, 2, 0)
    assert details["diff"] == "--- /dev/null\n+++ b/a/b/c.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n"
    assert context.seen.digests == {details["seen"]["path"]: details["seen"]["sha256"]}


def test_a_new_file_has_the_usual_mode(context: Context, tmp_path: Path) -> None:
    write(context, "new", "x")
    (tmp_path / "made by hand").touch()
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "made by hand").stat().st_mode


def test_an_empty_file(context: Context, tmp_path: Path) -> None:
    output = write(context, "empty", "")
    assert (tmp_path / "empty").read_bytes() == b""
    assert output.text == "Created empty: 0 lines."
    assert output.details["diff"] == ""


def test_an_unseen_file_is_not_overwritten(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("precious\n")
    assert "Read it first" in refusal(context, "a")
    assert (tmp_path / "a").read_text() == "precious\n"
    read(context, "a")
    output = write(context, "a", "new\n")
    assert output.text == "Wrote a: 1 line (+1 -1)."
    assert output.details["diff"] == "--- a/a\n+++ b/a\n@@ -1,1 +1,1 @@\n-precious\n+new\n"
    assert output.details["created"] is False


def test_the_same_text_again(context: Context) -> None:
    """A small model repeats a call that has succeeded."""
    write(context, "a", "one\n")
    assert write(context, "a", "one\n").text == "a had this text already: 1 line, none changed."


def test_an_unread_empty_file_may_be_overwritten(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    write(context, "a", "new\n")
    assert (tmp_path / "a").read_text() == "new\n"


def test_a_file_that_changed_since_is_not_overwritten(context: Context, tmp_path: Path) -> None:
    write(context, "a", "mine\n")
    write(context, "a", "mine, again\n")
    (tmp_path / "a").write_text("theirs\n")
    assert "a has changed on disk since you saw it. Read it again" in refusal(context, "a")
    assert (tmp_path / "a").read_text() == "theirs\n"
    read(context, "a")
    write(context, "a", "new\n")


def test_a_file_deleted_since_is_made_again(context: Context, tmp_path: Path) -> None:
    write(context, "a", "one\n")
    (tmp_path / "a").unlink()
    assert write(context, "a", "two\n").details["created"] is True


@pytest.mark.parametrize(
    ("before", "content", "after", "said"),
    [
        (b"a\r\nb\r\n", "x\ny\n", b"x\r\ny\r\n", "CRLF"),
        (b"a\r\nb\r\n", "x\r\ny\n", b"x\r\ny\n", "(+2 -2)."),
        (b"a\nb\n", "x\r\ny\r\n", b"x\r\ny\r\n", "(+2 -2)."),
        (b"\xef\xbb\xbfa\n", "x\n", b"\xef\xbb\xbfx\n", "(+1 -1)."),
        (b"\xef\xbb\xbfa\n", "\ufeffx\n", b"\xef\xbb\xbfx\n", "(+1 -1)."),
        ("für\n".encode("latin-1"), "größer\n", "größer\n".encode("latin-1"), "latin-1"),
        ("ä\r\n".encode("utf-16"), "€\n", "€\r\n".encode("utf-16"), "utf-16-le"),
    ],
)
def test_form_is_kept(
    context: Context, tmp_path: Path, before: bytes, content: str, after: bytes, said: str
) -> None:
    (tmp_path / "a").write_bytes(before)
    read(context, "a")
    output = write(context, "a", content)
    assert (tmp_path / "a").read_bytes() == after
    assert said in output.text
    assert not context.seen.changed(tmp_path / "a", after)


def test_a_character_the_encoding_lacks(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("für\n".encode("latin-1"))
    read(context, "a")
    message = refusal(context, "a", "one\ncosts 5 €\n")
    assert "€ (U+20AC, line 2) does not exist in latin-1, the encoding of a" in message
    assert "Write all of it with encoding=utf-8" in message
    assert (tmp_path / "a").read_bytes() == b"f\xfcr\n"


def test_mode_and_links_stay(context: Context, tmp_path: Path) -> None:
    (tmp_path / "real.sh").write_text("old\n")
    (tmp_path / "real.sh").chmod(0o751)
    (tmp_path / "link").symlink_to("real.sh")
    read(context, "link")
    write(context, "link", "new\n")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real.sh").read_text() == "new\n"
    assert stat.S_IMODE((tmp_path / "real.sh").stat().st_mode) == 0o751


def test_all_names_of_a_file_get_the_new_content(context: Context, tmp_path: Path) -> None:
    (tmp_path / "one").write_text("old and long\n")
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    for content in ("new\n", "newer and longer than before\n"):
        read(context, "one")
        write(context, "one", content)
        assert (tmp_path / "two").read_text() == content
    assert (tmp_path / "one").samefile(tmp_path / "two")
    assert names(tmp_path) == ["one", "two"]


@pytest.mark.parametrize("names_of_it", [1, 2])
def test_extended_attributes_stay(context: Context, tmp_path: Path, names_of_it: int) -> None:
    path = tmp_path / "file"
    path.write_text("old\n")
    for number in range(1, names_of_it):
        (tmp_path / f"name{number}").hardlink_to(path)
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        pytest.skip("no extended attributes on this file system")
    read(context, "file")
    write(context, "file", "new\n")
    assert os.getxattr(path, "user.note") == b"kept"


def test_a_dangling_link_gets_its_target(context: Context, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("folder/target")
    write(context, "link", "x\n")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder/target").read_text() == "x\n"


def test_links_in_a_circle_stay(context: Context, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert refusal(context, "a").startswith("Could not read a: ")
    assert (tmp_path / "a").is_symlink()


def test_what_is_no_text_file_is_refused(context: Context, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "program").write_bytes(b"\x7fELF\0\0")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    assert "is a directory" in refusal(context, ".")
    assert "is a FIFO" in refusal(context, "fifo")
    assert "is a character device" in refusal(context, "/dev/null")
    assert "program is binary, not text: ELF" in refusal(context, "program")
    assert f"large has {MAX_FILE_BYTES + 1:,} bytes" in refusal(context, "large")


def test_a_lone_surrogate_is_refused(context: Context, tmp_path: Path) -> None:
    message = refusal(context, "a", "fine\nhalf \ud83d\n")
    assert "content has a lone surrogate, \\ud83d, in line 2" in message
    assert not (tmp_path / "a").exists()


def test_a_file_in_place_of_a_folder(context: Context, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert refusal(context, "file/below").startswith("Could not write file/below: ")
    assert "cannot be a path" in refusal(context, "a\0b")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_files_and_folders(context: Context, tmp_path: Path) -> None:
    write(context, "folder/a", "old\n")
    (tmp_path / "folder/a").chmod(0o444)
    assert "read-only" in refusal(context, "folder/a")
    (tmp_path / "folder").chmod(0o555)
    assert "Could not write folder/b: Permission denied" in refusal(context, "folder/b")
    (tmp_path / "folder").chmod(0o755)
    assert (tmp_path / "folder/a").read_text() == "old\n"
    assert names(tmp_path / "folder") == ["a"]


WRITE_TOO_MUCH = """
import asyncio, resource, signal, sys
from pathlib import Path
from ctxagent.agent.errors import ToolError
from ctxagent.tools.base import Context
from ctxagent.tools.write import WriteTool, WriteParams

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
context = Context(cwd=Path(sys.argv[1]))
context.seen.note(context.cwd / "a", b"old")
try:
    asyncio.run(WriteTool().run(WriteParams(path="a", content="x" * 100_000), context))
except ToolError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_disk_that_takes_no_more_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """A file size limit, which needs a separate process, simulates a full disk."""
    (tmp_path / "a").write_text("old")
    command = [sys.executable, "-B", "-c", WRITE_TOO_MUCH, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Could not write a: File too large. Nothing was changed")
    assert (tmp_path / "a").read_text() == "old"
    assert names(tmp_path) == ["a"]


def test_a_file_with_two_names_gets_its_content_back(tmp_path: Path) -> None:
    """A file size limit simulates a full disk."""
    old, program = (
        "x" * 2_000,
        (
            "import resource, signal, sys\n"
            "from pathlib import Path\n"
            "from ctxagent.tools.system import files\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "files.write_private = lambda path, data: path.touch()\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, 3_000))\n"
            "files.edit_file(Path(sys.argv[1]), b'y' * 5_000)\n"
        ),
    )
    (tmp_path / "one").write_text(old)
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "one")], capture_output=True, text=True
    )
    assert "File too large" in done.stderr
    assert (tmp_path / "one").read_text() == (tmp_path / "two").read_text() == old
    assert names(tmp_path) == ["one", "two"]


def test_no_other_file_is_left_behind(context: Context, tmp_path: Path) -> None:
    write(context, "a", "one\n")
    write(context, "a", "two\n")
    assert names(tmp_path) == ["a"]


def test_a_preview_changes_nothing(context: Context, tmp_path: Path) -> None:
    shown = preview(context, "folder/a", "one\n")
    assert names(tmp_path) == []
    assert shown == {"diff": write(context, "folder/a", "one\n").details["diff"]}
    (tmp_path / "unseen").write_text("x\n")
    for path, content in (("unseen", "y\n"), (".", "y\n"), ("b", "\ud800")):
        with pytest.raises(ToolError):
            preview(context, path, content)
    assert (tmp_path / "unseen").read_text() == "x\n"


@pytest.mark.slow
def test_long_diffs_are_bounded(context: Context, tmp_path: Path) -> None:
    output = write(context, "a", "".join(f"{n}\n" for n in range(5_000)))
    lines = output.details["diff"].splitlines()
    assert len(lines) == MAX_DIFF_LINES + 3
    assert lines[-1] == f"… {5_000 - MAX_DIFF_LINES + 1:,} more lines of diff are not shown"
    assert output.details["added"] == 5_000
    wide = write(context, "b", ("x" * 100_000 + "\n") * 100).details["diff"]
    assert len(wide) < MAX_DIFF_CHARS + 500
    assert "[100,000 characters]" in wide


def test_only_what_differs_is_in_the_diff(context: Context) -> None:
    lines = [f"{n}\n" for n in range(1, 5_001)]
    write(context, "a", "".join(lines))
    lines[9], lines[4_989:4_991] = "ten\n", []
    diff = write(context, "a", "".join(lines)).details["diff"]
    assert diff == (
        "--- a/a\n+++ b/a\n"
        "@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n"
        "@@ -4987,8 +4987,6 @@\n 4987\n 4988\n 4989\n-4990\n-4991\n 4992\n 4993\n 4994\n"
    )


def test_a_missing_last_line_end_shows_in_the_diff(context: Context) -> None:
    write(context, "a", "one\ntwo\n")
    diff = write(context, "a", "one\ntwo").details["diff"]
    assert diff.endswith("\n one\n-two\n+two\n\\ No newline at end of file\n")


def test_a_diff_applies_with_patch(context: Context, tmp_path: Path) -> None:
    before = "".join(f"line {n}\n" for n in range(60))
    after = before.replace("line 7\n", "").replace("line 30", "thirty").replace("line 0\n", "0\n")
    write(context, "a", before)
    diff = write(context, "a", after + "end").details["diff"]
    (tmp_path / "a").write_text(before)
    subprocess.run(["git", "apply", "-"], input=diff.encode(), cwd=tmp_path, check=True)
    assert (tmp_path / "a").read_text() == after + "end"


def test_a_person_is_asked_about_the_whole_change(context: Context) -> None:
    content = "".join(f"line {n}\n" for n in range(2_000)) + "x" * 50_000 + "\n"
    shown = preview(context, "long", content)["diff"]
    assert [line[1:] for line in shown.splitlines()[3:]] == content.splitlines()


def test_an_interrupt_waits_for_the_write(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, edit_file = threading.Event(), threading.Event(), file_access.edit_file

    def slow(path: Path, data: bytes) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)
        edit_file(path, data)

    async def play() -> Interrupted:
        params = WriteParams(path="new", content="one\n")
        writing = asyncio.ensure_future(WriteTool().run(params, context))
        await asyncio.to_thread(begun.wait)
        writing.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(Interrupted) as interrupted:
            await writing
        return interrupted.value

    monkeypatch.setattr(file_access, "edit_file", slow)
    output = asyncio.run(play()).output
    assert (tmp_path / "new").read_text() == "one\n"
    assert output.text.startswith("Created new")
    assert output.details["created"]
