"""Many screenshots, and one that the server cannot read: the session continues by itself."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.summary.request import is_summary_question

from ..support.command import Place
from ..support.server.loopback import Body, Fail, Say, Server, Step
from ..support.server.wires import Wire, over_each_wire


def png(width: int, height: int) -> bytes:
    """Return a black image with one bit per pixel."""

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


def order(place: Place) -> list[int]:
    """The numbers of the images in the order in which they were read."""
    entries = place.entries()
    calls = [
        block["id"] for entry in entries if entry["kind"] == "assistant"
        for block in entry["content"] if block["type"] == "tool_use"
    ]  # fmt: skip
    read = [entry["tool_use_id"] for entry in entries if entry["kind"] == "tool_result"]
    return [calls.index(id) for id in read]


class Unreadable:
    """Read 22 images, then two. The server cannot read the last of the 22."""

    def __init__(self) -> None:
        self.refused = -1
        self.steps = [shots(*range(22)), None, Say("Seen."), shots(22, 23), Say("Seen too.")]

    def __call__(self, body: Body) -> Step:
        step = self.steps.pop(0)
        if step is not None:
            return step
        self.refused = shown(body)[-1]
        place = f"messages.2.content.{self.refused}.image.source.base64.data"
        return Fail(400, f"{place}: Could not process image")


@pytest.mark.full
def test_images_are_bounded_and_a_refused_one_goes(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for number in range(24):
        (place.project / f"shot{number}.png").write_bytes(png(2_880, 180))
    script = Unreadable()
    with Server(script) as server:
        for words in (["-p", "look at all"], ["--continue", "-p", "and at the last"]):
            done = place.run(*words, env=place.server(server.url))
            assert done.returncode == 0, done.stderr
    assert server.rejected == []  # more than 20 of this size in one request would be
    bounded, mended, resumed, later = server.requests[1:]
    read, refused = order(place), script.refused  # side by side, so that some end before others
    assert shown(bounded) == sorted(read[2:22])
    assert "at most 20 images" in results(bounded)[read[0]]
    assert shown(mended) == shown(resumed) == sorted(n for n in read[2:22] if n != refused)
    stub = results(mended)[refused]
    assert stub.startswith(f'[Read "shot{refused}.png" \u00b7 image left out: the server refused')
    assert "\u00b7 #" in stub
    newest = [n for n in read if n != refused][-10:]
    assert shown(later) == sorted(newest)  # half of the room, so that not each one edits


class Sightless:
    """A model that accepts no images, on a server that refuses them with this message."""

    def __init__(self, status: int, words: str) -> None:
        self.refusal, self.refused = Fail(status, words), 0
        self.queue: list[Say] = []

    def __call__(self, body: Body) -> Step:
        if body["model"] == SIGHTLESS and '"image"' in json.dumps(body["messages"]):
            self.refused += 1
            return self.refusal
        if is_summary_question(str(body["messages"][-1]["content"][-1].get("text", ""))):
            return Say("## Goal\n- Look\n")
        return self.queue.pop(0) if self.queue else Say("Done.")


SIGHTLESS, SEEING = ("claude-haiku-4-5", "claude-sonnet-5")


@pytest.mark.variants
@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "m is not a multimodal model"),
        (404, "No endpoints found that support image input"),
        (500, "this model is missing data required for image input"),
        (500, "image input is not supported - hint: you may need to provide the mmproj"),
        (400, "Model does not support images. Please use a model that does."),
        (422, "unknown variant `image`, expected `text`"),
    ],
)
def test_a_model_that_takes_no_images(tmp_path: Path, status: int, words: str) -> None:
    """One request is refused, and none after it. Another model gets the images by ref."""
    place = Place(tmp_path)
    for number in range(2):
        (place.project / f"shot{number}.png").write_bytes(png(40, 30 + number))
    script = Sightless(status, words)
    with Server(script, bound=True, strict=True, window=200_000) as server:
        env = place.server(server.url)
        script.queue = [shots(0)]
        done = place.run("-p", "look at @shot1.png", "--model", SIGHTLESS, env=env)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count(f"{SIGHTLESS} accepts no images") == 1
        script.queue = [shots(1), shots(0)]
        done = place.run("-p", "and @shot0.png", "--continue", "--model", SIGHTLESS, env=env)
        assert done.returncode == 0, done.stderr
        assert script.refused == 1
        assert "takes no images" in str(server.requests[-1]["messages"])
        refs = [e["seq"] for e in place.entries() if "image" in (e.get("details") or {})]
        script.queue = [Say(tools=[("Recall", {"ref": ref}) for ref in refs])]
        done = place.run("-p", "now?", "--continue", "--model", SEEING, env=env)
        assert done.returncode == 0, done.stderr
    sent = json.dumps(server.requests[-1]["messages"])
    assert (len(refs), sent.count('"image"')) == (5, 5)
    assert server.rejected == []


@pytest.mark.variants
@over_each_wire
def test_images_by_the_setting(tmp_path: Path, wire: Wire) -> None:
    place = Place(tmp_path)
    (place.project / "shot0.png").write_bytes(png(40, 30))
    with wire([shots(0), Say("Done.")]) as server:
        env = place.environ(server.variables)
        done = place.run("-p", "look at @shot0.png", "-c", "model.images=off", env=env)
        assert done.returncode == 0, done.stderr
    assert '"image"' not in json.dumps([body["messages"] for body in server.requests])
    refusal = Fail(400, "m is not a multimodal model")
    with wire([shots(0), refusal, Say("Done.")]) as server:
        env = place.environ(server.variables)
        done = place.run("-p", "look", "-c", "model.images=on", env=env)
        assert (done.returncode, len(server.requests)) == (0, 3), "asked again without that image"
