"""The status page: its content, escaping of session texts, and its behaviour in a browser while
sessions run.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from ctxagent.addons.proxy.page import MAX_LISTED, cost_sentence, page, page_headers
from ctxagent.addons.proxy.status import ProxyNote, ProxyStatus, StatusReader
from ctxagent.agent.session.store import Project

from ..export.test_export import Page
from ..replay.test_report import OUTSIDE, PHONE, TOUCHING, WALL
from ..support.command import Place, comes
from ..support.sessions.proxied import Proxied
from ..support.terminal.browser import Browser, View, needs_browser, pixels

OLD, NEW = "20260101-080000-00000a", "20260101-090000-00000b"
HOSTILE = "<script>document.title='x'</script><img src=x onerror=alert(1)>&amp;\x1b[31m"


def long_session(id: str, words: str = "Fix the tests") -> Proxied:
    """A session with edits of every kind, one of them undone, and a note."""
    made = Proxied(id).words(words).reply(written=20_000)
    for number in range(30):
        made.reply(read=20_000 + 5_000 * number, written=5_000)
    made.result("[moved]", saved=30_000).reply(read=170_000, written=900, saved=30_000)
    made.mask(200_000, 50_000).revert(made.last).mask(200_000, 50_000)
    made.reply(written=50_000, saved=150_000).summary(170_000, 30_000)
    made.note("left alone: messages.3: the server refused it")
    return made.reply(read=9_000, written=20_000, saved=170_000)


def written(tmp_path: Path, *sessions: Proxied) -> ProxyStatus:
    project = Project(tmp_path / "state", tmp_path)
    return StatusReader().status([made.write(project) for made in sessions])


# What it says


def test_it_has_curve_bill_edits_and_notes_of_each_session(tmp_path: Path) -> None:
    status = written(tmp_path, long_session(OLD), Proxied(NEW).words("new"))
    shown = Page(page(status, [ProxyNote("2026-01-01T08:00:00Z", "it failed")], "/home/p"))
    assert len(shown.ids) == len({*shown.ids})
    total = cost_sentence(status.with_dollars, status.without_dollars)
    assert shown.texts["sums"].split() == [
        *f"ctxagent proxy 2 sessions: {total}".split(),
        "/home/p",
    ]
    assert "it failed" in shown.texts["faults"]
    new, old = shown.texts[f"s-{NEW}"], shown.texts[f"s-{OLD}"]
    assert "No reply yet" in new
    assert "left alone: messages.3" in old
    assert "29.0k now, 171k at most" in old
    assert "199k now, 201k at most" in old
    assert [given["data-label"] for given in shown.of("line") if "d" in given] == ["0", "1"]
    edits = shown.texts[f"e-{OLD}"]
    assert "4 edits" in edits
    for words in ("result moved to a file", "3 old results cleared", "summary of #1 to #2"):
        assert words in edits
    assert "before call 33" in edits
    assert edits.count("undone") == 1
    undone = [given["data-seq"] for given in shown.of("undo")]
    session = status.sessions[1]
    able = [edit.seq for edit in session.edits if edit.can_undo and not edit.is_undone]
    assert undone == [str(seq) for seq in reversed(able)]
    assert len(able) == 2


def test_of_very_many_edits_the_newest_are_listed(tmp_path: Path) -> None:
    made = Proxied(OLD).words("go").reply(written=9_000)
    for _ in range(MAX_LISTED + 7):
        made.mask(9_000, 8_000)
    shown = Page(page(written(tmp_path, made), [], "/p"))
    assert len(shown.of("undo")) == MAX_LISTED
    assert "7 older edits are in the log" in shown.texts[f"s-{OLD}"]
    assert shown.of("undo")[0]["data-seq"] == str(made.last)


def test_without_a_session_it_says_how_to_begin(tmp_path: Path) -> None:
    assert "No sessions yet" in Page(page(ProxyStatus(()), [], "/p")).texts["sums"]


@pytest.mark.parametrize(
    ("spent", "unedited", "told"),
    [
        (1.0, 2.0, "$1.00 instead of $2.00: 50% saved."),
        (2.0, 1.0, "$2.00 instead of $1.00: 100% more."),
        (1.0, 1.0, "$1.00 instead of $1.00: the same."),
        (0.0, 0.0, "$0.00 instead of $0.00: the same."),
        (None, 1.0, "The price of the model is not known."),
    ],
)
def test_a_bill_is_one_sentence(spent: float | None, unedited: float | None, told: str) -> None:
    assert cost_sentence(spent, unedited) == told


def test_texts_of_a_session_are_escaped(tmp_path: Path) -> None:
    made = long_session(OLD, HOSTILE).note(HOSTILE).mask(9, 8, trigger=HOSTILE)
    made.client["agent"] = "<b>\"'&/1.0"
    text = page(written(tmp_path, made), [ProxyNote(HOSTILE, HOSTILE)], HOSTILE)
    shown = Page(text)
    kinds = [kind for kind, _ in shown.elements]
    assert kinds.count("script") == 1
    assert "img" not in kinds
    assert not [name for _, given in shown.elements for name in given if name.startswith("on")]
    assert "<script>document.title" in shown.texts[f"s-{OLD}"]
    assert "\x1b" not in text


def test_it_loads_nothing_and_its_policy_says_so(tmp_path: Path) -> None:
    text = page(written(tmp_path, long_session(OLD)), [], "/p")
    shown = Page(text)
    policy = page_headers()["content-security-policy"]
    told = [given["content"] for _, given in shown.elements if "http-equiv" in given]
    assert policy == f"{told[0]}; frame-ancestors 'none'"
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?://", text)
    assert not [given for _, given in shown.elements if "src" in given or "style" in given]


# In a browser


@dataclass
class Running:
    """A running proxy with a project in which a test creates sessions."""

    place: Place
    process: "Popen[Any]"
    url: str
    project: Project

    def write(self, *sessions: Proxied) -> None:
        for made in sessions:
            made.write(self.project)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    place = Place(tmp_path / "place")
    nowhere = "messages=http://127.0.0.1:9"
    process = place.start("proxy", "--port", "0", "--upstream", nowhere, stdout=PIPE)
    with process:
        try:
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found
            yield Running(place, process, found[0], Project(place.state, place.project))
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser") / "it") as it:
        yield it


def opened(
    browser: Browser, running: Running, size: tuple[int, int] = PHONE, *, dark: bool = False
) -> View:
    view = browser.open(running.url, width=size[0], height=size[1], dark=dark)
    assert shows(view, "state.value === 'live'")
    return view


def shows(view: View, expression: str) -> bool:
    """Return True if the page reaches a state. Make the page poll at once."""
    return comes(
        lambda: bool(
            view.evaluate(f"dispatchEvent(new Event('visibilitychange')), Boolean({expression})")
        )
    )


def sound(view: View, running: Running) -> None:
    """Check that the page contacted only the proxy and caused no errors."""
    assert view.troubles == []
    assert {url.startswith(running.url) for url in view.requests} == {True}


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("size", [PHONE, WALL], ids=["phone", "wall"])
def test_the_page_fits_screens_and_eyes(
    browser: Browser, running: Running, size: tuple[int, int]
) -> None:
    running.write(long_session(OLD, "word " * 40), long_session(NEW, "x" * 300))
    brightness = []
    for dark in (False, True):
        view = opened(browser, running, size, dark=dark)
        assert view.evaluate(OUTSIDE) == []
        assert view.evaluate(TOUCHING) == []
        assert view.evaluate("document.querySelectorAll('.plane path').length") == 4
        seen = pixels(view.shoot(0.25))
        assert len({*seen}) > 40  # not blank
        brightness.append(sum(map(sum, seen)) / len(seen) / 3)
        sound(view, running)
    assert brightness[0] > 200
    assert brightness[1] < 70


@pytest.mark.slow
@needs_browser
def test_texts_of_a_session_run_no_scripts(browser: Browser, running: Running) -> None:
    running.write(long_session(OLD, HOSTILE).note(HOSTILE))
    view = opened(browser, running)
    running.write(long_session(NEW, HOSTILE))
    assert shows(view, f"document.getElementById('s-{NEW}')")
    assert view.evaluate("document.scripts.length + document.images.length") == 1
    assert view.evaluate("document.title").startswith("ctxagent proxy")
    title = view.evaluate(f"document.querySelector('#s-{NEW} h2').textContent")
    assert title.startswith("<script>document.title=")
    assert view.evaluate(OUTSIDE) == []
    sound(view, running)


@pytest.mark.slow
@needs_browser
def test_it_follows_and_keeps_the_place(browser: Browser, running: Running) -> None:
    """The scroll position and open sections stay, even if sessions above grow."""
    old, new = long_session(OLD), long_session(NEW)
    running.write(old, new)
    view = opened(browser, running)
    details = f"document.getElementById('e-{OLD}')"
    view.evaluate(f"{details}.open = true, {details}.scrollIntoView()")
    view.evaluate(f"{details}.querySelector('button').focus({{ preventScroll: true }})")
    top = view.evaluate(f"{details}.getBoundingClientRect().top")
    scrolled = view.evaluate("scrollY")
    for number in range(3):
        new.note(f"note {number}: " + "words " * 30)
    old.reply(read=29_000, written=100, saved=170_000)
    running.write(old, new)
    third = Proxied("20260101-100000-00000c").words("newer").reply(written=5)
    running.write(third)
    assert shows(view, f"document.getElementById('s-{third.id}')")
    assert view.evaluate(f"{details}.open")
    assert abs(view.evaluate(f"{details}.getBoundingClientRect().top") - top) < 1
    assert view.evaluate("scrollY") > scrolled + 200
    assert view.evaluate("document.activeElement.className") == "undo"
    order = "[...document.querySelectorAll('main > section')].map((each) => each.id)"
    assert view.evaluate(order) == ["sums", f"s-{third.id}", f"s-{NEW}", f"s-{OLD}"]
    third.path(running.project).unlink()
    assert shows(view, f"!document.getElementById('s-{third.id}')")
    sound(view, running)


@pytest.mark.slow
@needs_browser
def test_it_looks_by_itself_but_not_while_it_is_hidden(browser: Browser, running: Running) -> None:
    running.write(long_session(OLD))
    view = opened(browser, running)
    view.evaluate("""
      globalThis.begun = [];
      globalThis.ended = [];
      const [begin, end] = [setTimeout, clearTimeout];
      globalThis.setTimeout = (...given) => (begun.push(begin(...given)), begun.at(-1));
      globalThis.clearTimeout = (timer) => (ended.push(timer), end(timer));
    """)
    running.write(long_session(NEW))
    found = f"document.getElementById('s-{NEW}')"
    assert comes(lambda: bool(view.evaluate(f"Boolean({found})")))  # without any trigger
    assert comes(lambda: bool(view.evaluate("begun.length > 0")))
    view.evaluate("""
      Object.defineProperty(document, "hidden", { get: () => true });
      dispatchEvent(new Event("visibilitychange"));
    """)
    assert comes(lambda: bool(view.evaluate("ended.includes(begun.at(-1))")))


@pytest.mark.slow
@needs_browser
def test_a_button_takes_an_edit_back(browser: Browser, running: Running) -> None:
    made = long_session(OLD)
    running.write(made)
    view = opened(browser, running, WALL)
    view.evaluate(f"document.getElementById('e-{OLD}').open = true")
    buttons = "document.querySelectorAll('.undo')"
    assert view.evaluate(f"{buttons}.length") == 2
    seq = int(view.evaluate(f"{buttons}[1].dataset.seq"))
    view.evaluate(f"{buttons}[1].click()")
    assert shows(view, f"{buttons}.length === 1")
    assert view.evaluate(f"document.querySelectorAll('#e-{OLD} .undone').length") == 2
    assert view.evaluate(f"document.getElementById('e-{OLD}').open")
    last = running.place.entries()[-1]
    assert (last["kind"], last["target"]) == ("revert", seq)
    sound(view, running)


@pytest.mark.slow
@needs_browser
def test_it_says_when_the_proxy_has_gone(browser: Browser, running: Running) -> None:
    running.write(long_session(OLD))
    view = opened(browser, running)
    running.process.terminate()
    running.process.wait()
    assert shows(view, "state.value === 'the proxy does not answer'")
    assert view.evaluate("document.querySelectorAll('main > section').length") == 2
