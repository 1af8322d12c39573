"""Read: pages, long lines, encodings, images, and refused files."""

import asyncio
import base64
import io
import os
import random
import socket
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import PIL.Image
import pytest

from ctxagent.agent.errors import ToolError
from ctxagent.tools.base import Context, Output
from ctxagent.tools.file_access import MAX_FILE_BYTES
from ctxagent.tools.read import MAX_PAGE_CHARS, ReadParams, ReadTool


def read(folder: Path, path: str, context: Context | None = None, **params: int) -> Output:
    context = context or Context(cwd=folder)
    return asyncio.run(ReadTool().run(ReadParams(path=path, **params), context))


def refusal(folder: Path, path: str, **params: int) -> str:
    with pytest.raises(ToolError) as caught:
        read(folder, path, **params)
    return str(caught.value)


def test_lines_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ttwo\n\nlast without end")
    output = read(tmp_path, "a.txt")
    assert output.text == "1\tone\n2\t\ttwo\n3\t\n4\tlast without end"
    assert output.details["lines"] == [1, 4]
    assert output.details["total"] == 4


def test_a_page_says_where_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 3001)))
    first = read(tmp_path, "a.txt").text.splitlines()
    assert first[-2:] == ["2000\t2000", "[lines 1-2,000 of 3,000; go on with offset=2001]"]
    rest = read(tmp_path, "a.txt", offset=2001).text.splitlines()
    assert rest[0] == "2001\t2001"
    assert rest[-1] == "3000\t3000"
    one = read(tmp_path, "a.txt", offset=7, limit=1).text
    assert one == "7\t7\n[line 7 of 3,000; go on with offset=8]"


def test_offset_zero_is_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    assert read(tmp_path, "a.txt", offset=0).text == "1\tone\n2\ttwo"


def test_the_answer_is_bounded_and_ends_at_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{n:<999}\n" for n in range(1, 501)))
    text = read(tmp_path, "a.txt").text
    *lines, footer = text.split("\n")
    assert MAX_PAGE_CHARS - 1_500 < len(text) < MAX_PAGE_CHARS + 200
    assert all(len(line.split("\t")[1]) == 999 for line in lines)
    assert footer == f"[lines 1-{len(lines)} of 500; go on with offset={len(lines) + 1}]"
    following = read(tmp_path, "a.txt", offset=len(lines) + 1, limit=1).text
    assert following.startswith(f"{len(lines) + 1}\t{len(lines) + 1} ")


def test_a_long_line_is_shown_around_its_middle(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("short\n<" + "x" * 4_999_998 + ">\nshort\n")
    lines = read(tmp_path, "a.js").text.split("\n")
    assert lines[0] == "1\tshort"
    assert lines[1].startswith("2\t<xxx")
    assert lines[1].endswith("xxx>")
    assert "[line 2 has 5,000,000 characters; Grep -o or Bash" in lines[1]
    assert len(lines[1]) < 2_200
    assert lines[2] == "3\tshort"


def test_a_line_at_the_limit_is_whole(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 2_000 + "\n" + "y" * 2_001 + "\n")
    lines = read(tmp_path, "a.txt").text.split("\n")
    assert lines[0] == "1\t" + "x" * 2_000
    assert "2,001 characters" in lines[1]


def test_empty_and_blank_files(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "blank").write_text("\n")
    context = Context(cwd=tmp_path)
    assert read(tmp_path, "empty", context).text == "[empty file]"
    assert tmp_path / "empty" in context.seen
    assert read(tmp_path, "blank").text == "1\t"


@pytest.mark.parametrize("content", ["a\nb\nc\n", "a\nb\nc"])
def test_past_the_end(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.txt").write_text(content)
    assert read(tmp_path, "a.txt", offset=3).text == "3\tc"
    message = refusal(tmp_path, "a.txt", offset=4)
    assert "a.txt has 3 lines; offset=4 is past its end" in message


@pytest.mark.slow
def test_a_file_too_large_to_hold_is_read_as_a_stream(tmp_path: Path) -> None:
    line = "é" * 511 + "\n"  # 1,023 bytes: characters lie across the edges of chunks
    count = MAX_FILE_BYTES // 1023 + 10
    (tmp_path / "big").write_bytes(line.encode() * count)
    context = Context(cwd=tmp_path)
    output = read(tmp_path, "big", context, offset=count - 1)
    assert output.text == f"{count - 1}\t{line}{count}\t{line}".rstrip("\n")
    footer = read(tmp_path, "big", context, limit=2).text.split("\n")[-1]
    assert footer == "[lines 1-2 of a file too large to count; go on with offset=3]"
    assert f"has {count:,} lines" in refusal(tmp_path, "big", offset=count + 1)
    assert context.seen.digests == {}


@pytest.mark.slow
def test_a_huge_line_is_not_held(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.write(b"start " + b"x" * 70_000)
        file.truncate(3 * MAX_FILE_BYTES)
    text = read(tmp_path, "sparse").text
    assert text.startswith("1\tstart xxx")
    assert f"{3 * MAX_FILE_BYTES:,} characters" in text


def test_a_cancelled_call_does_not_read_on(tmp_path: Path) -> None:
    """The file would take hours. `asyncio.run` waits for the thread, so the test ends or hangs."""
    with (tmp_path / "endless").open("wb") as file:
        file.write(b"x\n" * 100_000)
        file.truncate(1 << 40)

    async def cancel() -> None:
        params = ReadParams(path="endless", offset=200_000)
        call = asyncio.create_task(ReadTool().run(params, Context(cwd=tmp_path)))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancel())


def test_what_was_read_is_noted(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"one\r\ntwo\r\n")
    context = Context(cwd=tmp_path)
    output = read(tmp_path, "a.txt", context, limit=1)
    assert output.details["seen"]["path"] == str(file)
    assert context.seen.digests == {str(file): output.details["seen"]["sha256"]}
    assert not context.seen.changed(file, b"one\r\ntwo\r\n")
    assert context.seen.changed(file, b"one\ntwo\n")


def test_a_link_and_its_target_are_one_file(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("x\n")
    (tmp_path / "link.txt").symlink_to("real.txt")
    context = Context(cwd=tmp_path)
    read(tmp_path, "link.txt", context)
    assert tmp_path / "real.txt" in context.seen


TEXT = "Grüße aus Köln\nzweite Zeile\n"


@pytest.mark.parametrize(
    ("data", "encoding", "said"),
    [
        (TEXT.encode(), "utf-8", False),
        (b"\xef\xbb\xbf" + TEXT.encode(), "utf-8", False),
        (TEXT.encode("utf-16"), "utf-16-le", True),
        (b"\xfe\xff" + TEXT.encode("utf-16-be"), "utf-16-be", True),
        (TEXT.encode("utf-16-le"), "utf-16-le", True),
        (TEXT.encode("utf-16-be"), "utf-16-be", True),
        (TEXT.encode("utf-32"), "utf-32-le", True),
        (TEXT.encode("latin-1"), "latin-1", True),
        (TEXT.replace("aus", "–").encode("cp1252"), "cp1252", True),
    ],
)
def test_encodings(tmp_path: Path, data: bytes, encoding: str, said: bool) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    output = read(tmp_path, "a.txt")
    lines = output.text.split("\n")
    assert lines[0].replace("–", "aus") == "1\tGrüße aus Köln"
    assert lines[1] == "2\tzweite Zeile"
    assert output.details["encoding"] == encoding
    assert lines[2:] == ([f"[the file's encoding is {encoding}; Edit and Write keep it]"] * said)


def test_utf8_with_some_invalid_bytes_stays_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes("Größe: überall\n".encode() + b"bad \xff byte\n")
    text = read(tmp_path, "a.log").text
    assert "1\tGröße: überall\n2\tbad \ufffd byte\n" in text
    assert "not valid UTF-8" in text
    text.encode()


def test_crlf_is_not_shown_and_other_separators_end_no_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("one\r\ntwo\x0cstill two\u2028still\r\n".encode())
    assert read(tmp_path, "a.txt").text == "1\tone\n2\ttwo\x0cstill two\u2028still"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x7fELF\x02\x01\x01" + bytes(50), "ELF"),
        (b"PK\x03\x04" + bytes(50), "zip"),
        (b"\x1f\x8b\x08" + bytes(50), "gzip"),
        (b"SQLite format 3\0" + bytes(50), "SQLite"),
        (b"text with a \0 in it, and some more words", "data"),
        (bytes(range(1, 256)) * 3, "data"),
        (b"\xff\xfe" + b"a\0\x01", "data"),
    ],
)
def test_binary_is_refused_with_kind_and_size(tmp_path: Path, data: bytes, kind: str) -> None:
    (tmp_path / "a.bin").write_bytes(data)
    message = refusal(tmp_path, "a.bin")
    assert kind in message
    assert f"{len(data):,} bytes" in message
    assert "Bash" in message


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    server = socket.socket(socket.AF_UNIX)
    server.bind(os.path.relpath(tmp_path / "sock"))
    assert "fifo is a FIFO" in refusal(tmp_path, "fifo")
    assert "sock is a socket" in refusal(tmp_path, "sock")
    assert "/dev/zero is a character device" in refusal(tmp_path, "/dev/zero")
    assert "is a directory" in refusal(tmp_path, ".")
    assert "Glob" in refusal(tmp_path, ".")
    server.close()


def test_a_missing_file_names_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "Parser.py").touch()
    (tmp_path / "src" / "unrelated").touch()
    message = refusal(tmp_path, "src/parsr.py")
    assert "src/parsr.py does not exist. Near in name: Parser.py." in message
    assert "Near in name: src." in refusal(tmp_path, "sr/parser.py")
    assert "unrelated" not in message


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "~no-such-user-here/x"])
def test_impossible_paths(tmp_path: Path, path: str) -> None:
    assert "cannot be a path" in refusal(tmp_path, path)


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert refusal(tmp_path, "a").startswith("Could not read a: ")


def png(width: int, height: int) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    pixels = zlib.compress(b"\0" * (height * (width + 1)))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    ends = chunk(b"IHDR", header), chunk(b"IDAT", pixels), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(ends)


def pictured(format: str) -> bytes:
    """Return a small photograph in a format."""
    data = io.BytesIO()
    PIL.Image.effect_noise((48, 32), 90).convert("RGB").save(data, format)
    return data.getvalue()


@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF", "WEBP"])
def test_images_become_image_blocks(tmp_path: Path, format: str) -> None:
    data = pictured(format)
    (tmp_path / "picture").write_bytes(data)
    output = read(tmp_path, "picture")
    assert output.text == f"[picture: {format}, 48 x 32 pixels, {len(data):,} bytes]"
    assert output.blocks is not None
    source = output.blocks[1]["source"]
    assert (source["type"], source["media_type"]) == ("base64", f"image/{format.lower()}")
    assert base64.b64decode(source["data"]) == output.original == data


@pytest.mark.parametrize("format", ["BMP", "TIFF", "ICO", "AVIF"])
def test_what_the_api_does_not_take_is_converted(tmp_path: Path, format: str) -> None:
    data = pictured(format)
    (tmp_path / "picture").write_bytes(data)
    output = read(tmp_path, "picture")
    line, image = shown(output)
    assert line.startswith(f"[picture: {format}, ")
    assert (image.format, output.original) == ("PNG", data)


def test_a_photograph_is_rotated_by_its_exif_data(tmp_path: Path) -> None:
    turned = PIL.Image.new("RGB", (40, 20)), PIL.Image.Exif()
    turned[1][0x0112] = 6  # to be turned by 90 degrees
    turned[0].save(tmp_path / "photo.jpg", exif=turned[1])
    _, image = shown(read(tmp_path, "photo.jpg"))
    assert (image.width, image.height) == (20, 40)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF", "WEBP"])
@pytest.mark.parametrize("kept", [0.5, 0.95])
def test_a_cut_off_image_is_refused(tmp_path: Path, format: str, kept: float) -> None:
    data = pictured(format)
    (tmp_path / "picture").write_bytes(data[: int(len(data) * kept)])
    assert "cannot be shown" in refusal(tmp_path, "picture")


@pytest.mark.full
@pytest.mark.slow
def test_no_broken_image_reaches_a_request(tmp_path: Path) -> None:
    """Each of 80 images either is shown and can be decoded, or gives an error message."""
    chance = random.Random(1)
    formats = ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "ICO", "AVIF"]
    wholes = [pictured(format) for format in formats]

    def broken(number: int) -> str:
        data = bytearray(wholes[number % len(wholes)])
        for _ in range(chance.randint(1, 12)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.3:
            del data[chance.randrange(len(data)) :]
        (tmp_path / str(number)).write_bytes(data)
        return str(number)

    def tried(name: str) -> bool:
        try:
            blocks = read(tmp_path, name).blocks
        except ToolError:
            return False
        if blocks:
            with PIL.Image.open(io.BytesIO(base64.b64decode(blocks[1]["source"]["data"]))) as image:
                image.load()
        return bool(blocks)

    with ThreadPoolExecutor() as pool:
        were_shown = sum(pool.map(tried, [broken(number) for number in range(80)]))
    assert 0 < were_shown < 80, "some were still whole, and some were not"


def shown(output: Output) -> tuple[str, PIL.Image.Image]:
    """Return the line before an image, and the image that is sent."""
    text, image = output.blocks or ({}, {})
    found = PIL.Image.open(io.BytesIO(base64.b64decode(image["source"]["data"])))
    assert f"image/{(found.format or '').lower()}" == image["source"]["media_type"]
    return text["text"], found


@pytest.mark.slow
def test_images_beyond_the_limits_are_made_smaller(tmp_path: Path) -> None:
    (tmp_path / "wide.png").write_bytes(png(8001, 900))
    (tmp_path / "heavy.png").write_bytes(png(10, 10) + bytes(4_000_000))
    (tmp_path / "edge.png").write_bytes(png(2000, 2))
    line, image = shown(read(tmp_path, "wide.png"))
    assert "8001 x 900 pixels" in line
    assert line.endswith("shown at 2000 x 225]")
    assert (image.width, image.height) == (2000, 225)
    line, image = shown(read(tmp_path, "heavy.png"))
    assert (image.width, image.height) == (10, 10)
    line, image = shown(read(tmp_path, "edge.png"))
    assert "shown at" not in line


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF", "WEBP"])
def test_photographs_of_each_kind_are_made_smaller(tmp_path: Path, format: str) -> None:
    mode = "P" if format == "GIF" else "RGB"
    noise = PIL.Image.effect_noise((2600, 1200), 90).convert(mode)
    noise.save(tmp_path / "photo", format)
    _, image = shown(read(tmp_path, "photo"))
    assert (image.width, image.height) == (2000, 923)


def test_an_image_that_is_made_to_take_all_memory_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "bomb.png").write_bytes(png(8, 8).replace(
        struct.pack(">IIB", 8, 8, 8), struct.pack(">IIB", 60_000, 60_000, 8)
    ))  # fmt: skip
    said = refusal(tmp_path, "bomb.png")
    assert "bomb.png, an image (PNG" in said
    assert "cannot be shown" in said


def test_names_that_look_the_same_are_told_apart(tmp_path: Path) -> None:
    for name in (b"bad\xff", b"bad\xfe"):
        (tmp_path / os.fsdecode(name)).write_text("x")
    with pytest.raises(
        ToolError, match=r"bad\ufffd \(bad\\udcf[ef]\), bad\ufffd \(bad\\udcf[ef]\)"
    ):
        read(tmp_path, "bad\ufffd")
