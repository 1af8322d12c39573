"""Many screenshots, and one that the server cannot read: the session goes on by itself."""

import struct
import zlib
from pathlib import Path
from typing import Any

from ..support.command import Place
from ..support.server.loopback import Body, Fail, Say, Server

UNREADABLE = Fail(400, "messages.2.content.5.image.source.base64.data: Could not process image")


def png(width: int, height: int) -> bytes:
    """A black image of one bit a pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes((width // 8 + 1) * height))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


def shots(*numbers: int) -> Say:
    return Say(tools=[("Read", {"path": f"shot{number}.png"}) for number in numbers])


def results(body: Body) -> list[Any]:
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


def shown(body: Body) -> list[int]:
    """The numbers of the images in a request."""
    return [n for n, content in enumerate(results(body)) if isinstance(content, list)]


def test_images_are_bounded_and_a_refused_one_goes(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for number in range(24):
        (place.project / f"shot{number}.png").write_bytes(png(2_880, 1_800))
    steps = [shots(*range(22)), UNREADABLE, Say("Seen."), shots(22, 23), Say("Seen too.")]
    with Server(steps) as server:
        for words in (["-p", "look at all"], ["--continue", "-p", "and at the last"]):
            done = place.run(*words, env=place.server(server.url))
            assert done.returncode == 0, done.stderr
    assert server.rejected == []  # more than 20 of this size in one request would be
    bounded, mended, resumed, later = server.requests[1:]
    assert shown(bounded) == list(range(2, 22))
    assert "at most 20 images" in results(bounded)[0]
    assert shown(mended) == shown(resumed) == [n for n in range(2, 22) if n != 5]
    assert results(mended)[5].startswith('[Read "shot5.png" · image left out: the server refused')
    assert "· #" in results(mended)[5]
    assert shown(later) == list(range(14, 24))  # half of the room, so that not each one edits
