"""The page of a running fleet: access control, and its layout and updates in a real browser."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ctxagent.addons.fleet.live import ASKING, OutageNote, RunNotes
from ctxagent.addons.fleet.live_page import FleetPage
from ctxagent.agent.errors import UsageError

from ..support.running_fleet import HOSTILE, RESULT, RunningFleet, calling
from ..support.terminal.browser import Browser, needs_browser


@contextmanager
def served(fleet: RunningFleet) -> Iterator[FleetPage]:
    page = FleetPage(fleet.live(), "tasks.jsonl")
    thread = threading.Thread(target=page.serve)
    thread.start()
    try:
        yield page
    finally:
        page.stop()
        thread.join()


def ask(page: FleetPage, method: str, path: str, **headers: str) -> tuple[int, str, str]:
    """Return the status, the ETag and the body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", page.port)
    connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    answer = connection.getresponse()
    found = answer.status, answer.getheader("etag", ""), answer.read().decode()
    connection.close()
    return found


def test_only_the_secret_address_gives_the_page(tmp_path: Path) -> None:
    fleet = RunningFleet(tmp_path)
    fleet.say(calling(f"echo {HOSTILE}"))
    with served(fleet) as page:
        path = urlsplit(page.url).path
        status, tag, text = ask(page, "GET", path)
        assert status == 200
        assert "<script>document" not in text
        assert "1 of 10 tasks" in text
        assert ask(page, "HEAD", path, if_none_match=tag) == (304, tag, "")
        fleet.say(RESULT)
        assert ask(page, "HEAD", path, if_none_match=tag)[0] == 200
        assert ask(page, "GET", "/")[0] == 404
        assert ask(page, "GET", path[:-2] + "/")[0] == 404
        assert ask(page, "GET", path, host="evil.example") == (403, "", "")
        assert ask(page, "POST", path)[0] == 501
        with pytest.raises(UsageError, match=f"port {page.port}"):
            FleetPage(fleet.live(), "x", page.port)


@needs_browser
@pytest.mark.slow
def test_it_fits_the_screen_and_follows(tmp_path: Path) -> None:
    fleet = RunningFleet(tmp_path)
    fleet.say(calling(f"echo {HOSTILE}"))
    outage = OutageNote("server", HOSTILE, fleet.now - 90, fleet.now + 9)
    RunNotes(fleet.now - 60, 0.0, 0, (outage,)).write(fleet.folder)
    with served(fleet) as page, Browser(tmp_path / "browser") as browser:
        for width in (360, 1600):
            for dark in (False, True):
                view = browser.open(page.url, width=width, height=900, dark=dark)
                assert view.evaluate("document.documentElement.scrollWidth <= innerWidth")
                paper = view.evaluate("getComputedStyle(document.body).backgroundColor")
                assert paper == ("rgb(22, 24, 27)" if dark else "rgb(253, 253, 252)")
                told = view.evaluate("document.getElementById('outages').textContent")
                assert "the server does not answer" in told
                assert view.troubles == []
        fleet.say(RESULT)
        follow = """new Promise((done) => { const look = () => {
            const now = document.querySelector('.now').textContent;
            now.startsWith('Bash') ? setTimeout(look, 50) : done(now); }; look(); })"""
        assert view.evaluate(follow) == ASKING
        assert {urlsplit(url).netloc for url in view.requests} == {f"127.0.0.1:{page.port}"}
