"""Forty images and five megabytes of pages in a small window: nothing is refused, there are few
summaries, and each text can be read by its ref, to the byte.
"""

import http.server
import io
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

from ctxagent.agent.compaction.summary.request import is_summary_question

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server
from .test_mcp import SUMMARY

IMAGES, PAGES = 40, 25
PART = 30_000  # characters that Recall gives at once
WINDOW = 60_000
OPTIONS = ("--context-window", str(WINDOW), "--allow", "WebFetch(127.0.0.1)")
SIZES = [(200, 150), (2_400, 60), (80, 160), (300, 300)]


def image(number: int) -> bytes:
    """Return an image of noise, different from all others. Some are larger than the API accepts."""
    made = io.BytesIO()
    picture = PIL.Image.effect_noise(SIZES[number % len(SIZES)], 20 + number)
    picture.save(made, "JPEG" if number % 2 else "PNG")
    return made.getvalue()


def page(number: int) -> str:
    """A page of more than 200,000 characters."""
    line = "Clause {0}.{1}: the walrus of house {0} has tusks of {2} mm and eats {1} herrings."
    return "\n".join(line.format(number, n, number * n) for n in range(2_700))


@contextmanager
def site() -> Iterator[str]:
    """A site with the pages, at the address that is given."""

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = page(int(self.path.strip("/"))).encode()
            self.send_response(200)
            self.send_header("content-type", "text/plain; charset=utf-8")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Looker:
    """Make the calls, then answer. Answer any request for a summary."""

    def __init__(self, calls: list[list[tuple[str, dict[str, Any]]]]) -> None:
        self.summaries, self.calls = 0, calls

    def __call__(self, body: Body) -> Say:
        if is_summary_question(str(body["messages"][-1]["content"][-1].get("text", ""))):
            self.summaries += 1
            return Say(SUMMARY)
        if not self.calls:
            return Say("I have seen all.", thinking="Enough.")
        return Say(tools=self.calls.pop(0), thinking="More.")


def recalled(place: Place, calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the results of Recall for these inputs in a later run, by the input as JSON."""
    script = Looker([[("Recall", call) for call in calls[n : n + 10]]
                     for n in range(0, len(calls), 10)])  # fmt: skip
    with Server(script, bound=True, strict=True) as server:
        done = place.run("-p", "Look back", "--continue", env=place.server(server.url))
        assert done.returncode == 0, done.stderr
    assert server.rejected == []
    asked, found = dict[str, str](), dict[str, Any]()
    for entry in place.entries():
        for block in entry["content"] if entry["kind"] == "assistant" else ():
            if block["type"] == "tool_use" and block["name"] == "Recall":
                asked[block["id"]] = json.dumps(block["input"])
        if entry["kind"] == "tool_result" and entry["tool_use_id"] in asked:
            found[asked[entry["tool_use_id"]]] = entry["content"]
    return {json.dumps(call): found[json.dumps(call)] for call in calls}


@pytest.mark.full
def test_forty_images_and_five_megabytes_of_pages(tmp_path: Path) -> None:
    place = Place(tmp_path)
    originals = [image(number) for number in range(IMAGES)]
    for number, data in enumerate(originals):
        (place.project / f"{number}.img").write_bytes(data)
    with site() as url:
        looks = [[("Read", {"path": f"{n}.img"})] for n in range(IMAGES)]
        for n in range(PAGES):
            looks[n].append(("WebFetch", {"url": f"{url}/{n}"}))
        script = Looker(looks)
        with Server(script, bound=True, strict=True, window=WINDOW) as server:
            done = place.run("-p", "Look at all", *OPTIONS, env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "I have seen all."
    assert server.rejected == []
    assert script.summaries <= 4
    results = [e for e in place.entries() if e["kind"] == "tool_result"]
    assert len(results) == IMAGES + PAGES
    folder = place.logs()[0].parent
    pictures = [e for e in results if "image" in e["details"]]
    kept = {(folder / e["details"]["image"]["path"]).read_bytes() for e in pictures}
    assert kept == set(originals), "the originals, to the byte"
    pages = [e for e in results if "image" not in e["details"]]
    wholes = [(folder / e["offloaded"]).read_text() for e in pages]
    assert sum(map(len, wholes)) > 5_000_000
    assert all(page(n) in wholes[n] for n in range(PAGES))
    shown = recalled(place, [{"ref": entry["seq"]} for entry in pictures])
    for entry, content in zip(pictures, shown.values(), strict=True):
        assert content[1] == entry["content"][1], "the image as it was first sent"
    asked = [
        {"ref": entry["seq"], "offset": offset}
        for entry, whole in zip(pages, wholes, strict=True)
        for offset in range(0, len(whole), PART)
    ]
    parts = recalled(place, asked)
    read = dict.fromkeys((entry["seq"] for entry in pages), "")
    for call in asked:
        more = re.sub(r"\n\[[\d,]+ of [^\]]+\]$", "", parts[json.dumps(call)])
        read[call["ref"]] += more
    assert [*read.values()] == wholes
