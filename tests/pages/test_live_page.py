"""The page of a session's context, as the command serves it: access control, undo, and layout in a
real browser.
"""

import json
import signal
import socket
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import PIPE
from urllib.parse import urlsplit

import pytest

from ctxagent.agent.loop.resume import resume_session
from ctxagent.agent.session.log import read_log

from ..e2e.test_context_edits import edit, items, next_messages, place, ref
from ..support.command import PATIENCE, Place
from ..support.terminal.browser import Browser, needs_browser

__all__ = ["place"]  # the fixture


@contextmanager
def served(place: Place, *arguments: str) -> Iterator[str]:
    """Serve the page of the context, and interrupt the command in the end."""
    words = ("context", "--serve", *arguments)
    shown = place.start(*words, stdout=PIPE, stderr=PIPE, start_new_session=True)
    assert shown.stdout is not None
    try:
        yield shown.stdout.readline().strip()
    finally:
        shown.send_signal(signal.SIGINT)
        _, said = shown.communicate(timeout=PATIENCE)
        assert (shown.returncode, "Traceback" in said) == (0, False), said


def hang_up(url: str) -> None:
    """Ask for the page, and reset the connection before the answer."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port)) as asking:
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        asking.sendall(f"GET {parts.path} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())


def answer(url: str, seq: float | None = None, **headers: str) -> tuple[int, str]:
    """Return the status and the text of an answer; with `seq`, of the undo of that edit."""
    body = None if seq is None else json.dumps({"seq": seq}).encode()
    request = urllib.request.Request(url, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_page_shows_the_context_and_undoes_edits(place: Place) -> None:
    whole, big = next_messages(place), ref(place, "result", "big.txt")
    edit(place, "drop", big)
    (log,) = place.logs()
    (mask,) = (e.seq for e in read_log(log).entries if e.kind == "mask")
    with served(place, log.parent.name) as url:
        status, text = answer(url)
        assert status == 200
        assert all(f"<td>#{item['ref']}</td>" in text for item in items(place))
        assert "by the user" in text
        assert f'data-seq="{mask}"' in text
        assert "for 4 calls; 1 edit left out" in text
        before = log.read_bytes()
        for _ in range(5):
            hang_up(url)
        assert answer(url[:-2] + "/")[0] == 404
        assert answer(url, Host="evil.example")[0] == 403
        assert answer(url, mask)[0] == 403
        assert answer(url[:-2] + "/", mask, **{"X-Ctxagent": "undo"})[0] == 404
        assert answer(url, float("inf"), **{"X-Ctxagent": "undo"})[0] == 400
        assert log.read_bytes() == before
        assert answer(url, mask, **{"X-Ctxagent": "undo"}) == (200, "{}")
        assert next_messages(place) == whole
        assert "undone</em>" in answer(url)[1]
        status, text = answer(url, mask, **{"X-Ctxagent": "undo"})
        message = "there is no compaction to undo. /context shows what was cleared."
        assert (status, json.loads(text)) == (409, {"error": {"message": message}})


def test_the_page_undoes_nothing_in_a_session_that_is_open(place: Place) -> None:
    edit(place, "drop", ref(place, "result", "big.txt"))
    (log,) = place.logs()
    (mask,) = (e.seq for e in read_log(log).entries if e.kind == "mask")
    opened, _, _ = resume_session(log)
    with served(place) as url, closing(opened):
        assert "open in another process" in answer(url)[1]
        before = log.read_bytes()
        status, text = answer(url, mask, **{"X-Ctxagent": "undo"})
        assert (status, "/uncompact" in text) == (409, True)
        assert log.read_bytes() == before


@needs_browser
@pytest.mark.slow
def test_it_fits_the_screen_and_undoes_in_place(place: Place, tmp_path: Path) -> None:
    edit(place, "drop", ref(place, "result", "big.txt"))
    with served(place) as url, Browser(tmp_path / "browser") as browser:
        for width in (360, 1600):
            for dark in (False, True):
                view = browser.open(url, width=width, height=900, dark=dark)
                assert view.evaluate("document.documentElement.scrollWidth <= innerWidth")
                paper = view.evaluate("getComputedStyle(document.body).backgroundColor")
                assert paper == ("rgb(22, 24, 27)" if dark else "rgb(253, 253, 252)")
                assert view.troubles == []
        undone = """new Promise((done) => { document.querySelector('.undo').click();
            const look = () => { const now = document.querySelector('.undone');
            now ? done(now.textContent) : setTimeout(look, 50); }; look(); })"""
        assert "undone" in str(view.evaluate(undone))
        assert {urlsplit(each).netloc for each in view.requests} == {urlsplit(url).netloc}
