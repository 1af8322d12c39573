"""The report of a replay in a terminal, for programs and on a page in a real browser: its figures
are those of the comparison, and hostile names of recordings have no effect.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.replay.report.json import document
from ctxagent.addons.replay.report.measures import (
    Figures,
    anonymized,
    comparison_table,
    drawbacks_sentence,
    headline,
    stopped_notes,
    total_figures,
)
from ctxagent.addons.replay.report.page import page
from ctxagent.addons.replay.results import Comparison, Pause, ReplayRun, Share, Sums
from ctxagent.agent.pages.charts import area_path, line_path, thinned
from ctxagent.agent.pages.templates import format_dollars, format_percent, format_tokens

from ..export.test_export import Page
from ..support.sessions.outcomes import HOSTILE, LABELS, comparison, run
from ..support.terminal.browser import Browser, View, needs_browser, pixels

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


# Figures


def test_rounding_never_flatters() -> None:
    assert [format_percent(part / 1000) for part in (0, 1, 500, 998, 1000)] == [
        "0%", "<1%", "50%", "99.8%", "100%",
    ]  # fmt: skip
    assert format_percent(99_999 / 100_000) == "99.9%"
    assert format_percent(0.29) == "29%"  # which is a little less in binary
    assert format_percent(None) == "-"


def test_tokens_take_five_characters_at_most() -> None:
    sizes = (0, 999, 1_000, 9_949, 99_949, 99_960, 999_400, 999_600, 14_949_000, 3_000_000_000)
    written = [format_tokens(size) for size in sizes]
    assert written == [
        "0", "999", "1.0k", "9.9k", "99.9k", "100k", "999k", "1.0M", "14.9M", "3.0G",
    ]  # fmt: skip
    assert max(map(len, written)) == 5


def test_pauses_that_outlast_the_cache_have_rows() -> None:
    """Late, in time and late without a summary; without a late pause there are no such rows."""
    whole = run("a", "default", calls=4)
    late, soon = Pause(2, 900.0, True, True, 30_000, 12_000), Pause(3, 20.0, False, False, 1, 1)
    again = Pause(4, 301.0, True, False, 13_000, 13_000)
    shown, hidden = (
        comparison_table(Comparison(("default",), ((replace(whole, pauses=pauses),),)))[1]
        for pauses in ((late, soon, again), (soon,))
    )
    dollars = whole.priced[1].dollars + whole.priced[3].dollars
    rows = {name: value for name, value, *_ in shown}
    assert rows["Pauses that outlast the cache"] == "2 of 3"
    assert rows["Summaries after them"] == "1"
    assert rows["Cost of the calls after them"] == format_dollars(dollars)
    assert len(shown) == len(hidden) + 3
    told = document(Comparison(("default",), ((replace(whole, pauses=(late, soon)),),)))
    usd = round(whole.priced[1].dollars, 6)
    assert told["totals"][0]["pauses"] == {"all": 2, "away": 1, "used": 1, "usd": usd}
    assert told["recordings"][0]["runs"][0]["pauses"][0]["after"] == 12_000


def test_the_sentence_is_about_the_cheapest_setting() -> None:
    compared = comparison(2, 60, ("none", "default", "v5"))
    none, _, v5 = total_figures(compared)
    assert v5.sums.dollars < none.sums.dollars
    ratio = v5.sums.dollars / none.sums.dollars
    assert headline(compared).startswith(f"v5 costs {ratio:.2f} of none over 2 sessions: $")
    assert f"{v5.sums.missed} results needed when gone; 0 results lost." in drawbacks_sentence(
        compared
    )
    saved = none.sums.summaries - v5.sums.summaries
    assert (f"room to save {saved} summar" in drawbacks_sentence(compared)) == (saved > 0)
    assert "Not played to the end: 1 session of none." in drawbacks_sentence(compared)


@pytest.mark.slow
def test_the_sentence_for_one_setting_and_for_no_recording() -> None:
    alone = comparison(1, 10, ("default",))
    assert re.fullmatch(r"default costs \$[\d.]+ over 1 session\.", headline(alone))
    assert "; 0 results needed when gone; 0 results lost." in drawbacks_sentence(alone)
    nothing = Comparison(LABELS, ())
    assert headline(nothing) == "No recording was played."
    assert comparison_table(nothing) == ((), [])
    assert "No recording was played." in page(nothing)
    assert document(nothing)["recordings"] == []


def test_the_sentence_counts_lost_results() -> None:
    compared = comparison(1, 10, ("none", "v5"))
    rows = tuple(tuple(replace(r, recovered=Share(7, 10)) for r in row) for row in compared.runs)
    lossy = replace(compared, runs=rows)
    assert "3 results lost." in drawbacks_sentence(lossy)
    assert ("Recovered exactly", "70%", "70%") in comparison_table(lossy)[1]


def test_there_is_no_ratio_to_a_first_setting_without_cost() -> None:
    compared = comparison(1, 5, ("none", "v5"))
    (none, v5), *_ = compared.runs
    free = tuple(replace(call, dollars=0.0) for call in none.priced)
    compared = Comparison(compared.labels, ((replace(none, priced=free, needs=()), v5),))
    assert [each.ratio for each in total_figures(compared)] == [None, None]
    assert headline(compared) == "none costs $0.00 over 1 session."
    assert comparison_table(compared)
    assert page(compared)


# The table


def test_the_table_has_every_setting_and_the_cost_of_every_recording() -> None:
    compared = comparison(4, 300)
    head, rows = comparison_table(compared)
    totals = total_figures(compared)
    assert head == ("", *(each.label for each in totals))
    told = {name: values for name, *values in rows}
    assert [value.rstrip("!") for value in told["Calls of the model"]] == [
        f"{each.sums.calls:,}" for each in totals
    ]
    assert told["Cost in dollars"] == [f"{each.sums.dollars:,.2f}" for each in totals]
    assert told["Relative cost"] == [f"{each.ratio:.2f}" for each in totals]
    asked, used = (told[f"Needed when gone, {how}"] for how in ("asked again", "used"))
    assert (asked, used) == (
        [f"{each.asked:,}" for each in totals],
        [f"{each.used:,}" for each in totals],
    )
    assert [each.sums.missed for each in totals] == [
        int(a) + int(u) for a, u in zip(asked, used, strict=True)
    ]
    names = [row[0].name.removesuffix(".jsonl") for row in compared.runs]
    assert [name for name in told if name.endswith(": dollars")] == [f"{n}: dollars" for n in names]
    assert stopped_notes(compared)[0].startswith(
        "! codex-02.jsonl, none: stopped after 300 calls: "
    )


def test_one_recording_is_its_own_sum() -> None:
    assert not [row for row in comparison_table(comparison(1, 20))[1] if ": " in row[0]]


def test_recordings_cannot_control_the_terminal() -> None:
    compared = comparison(5, 30, LABELS, hostile=True)
    head, rows = comparison_table(compared)
    cells = [*head, *(cell for row in rows for cell in row), *stopped_notes(compared)]
    assert not [cell for cell in cells if CONTROL.search(cell)]


# For programs


def test_the_document_has_every_figure() -> None:
    compared = comparison(3, 40, hostile=True)
    told = json.loads(json.dumps(document(compared)))
    assert told["v"] == 1
    assert told["labels"] == list(compared.labels)
    assert [each["name"] for each in told["recordings"]] == list(HOSTILE[:3])
    for row, recording in zip(compared.runs, told["recordings"], strict=True):
        for played, each in zip(row, recording["runs"], strict=True):
            _holds(each, played)
    for each in told["totals"]:
        sums = compared.total(each["label"])
        assert each["dollars"] == round(sums.dollars, 6)
        assert each["sent"] == each["read"] + each["written"] + each["plain"] == sums.sent
        assert each["recovered"] == [sums.recovered.part, sums.recovered.whole]


def _holds(told: dict[str, Any], played: ReplayRun) -> None:
    calls, fills = told["calls"], told["fills"]
    assert {len(column) for column in calls.values()} == {len(played.priced)}
    read = zip(calls["read"], calls["written"], calls["plain"], strict=True)
    assert [sum(each) for each in read] == [call.prompt for call in played.priced]
    assert {len(column) for column in fills.values()} == {len(played.fills)}
    assert fills["results"] == [dict(fill.parts)["results"] for fill in played.fills]
    assert [act["layer"] for act in told["acts"]] == [act.layer for act in played.acts]
    assert [need["what"] for need in told["needs"]] == [need.what for need in played.needs]
    assert told["sums"]["missed"] == len(played.needs)


def test_an_anonymized_comparison_has_figures_but_no_texts() -> None:
    compared = comparison(3, 60, hostile=True)
    shown = anonymized(compared)
    assert [shown.total(label) for label in LABELS[:3]] == [
        compared.total(label) for label in LABELS[:3]
    ]
    text = json.dumps(document(shown))
    for name in (HOSTILE[0], HOSTILE[2]):  # the other one stands for the reason of acts, too
        assert json.dumps(name)[1:-1] in json.dumps(document(compared))
        assert json.dumps(name)[1:-1] not in text
    assert "nothing that could leave" not in text
    assert [row[0].name for row in shown.runs] == ["session 1", "session 2", "session 3"]


# The page


def test_lines_keep_their_peaks_when_points_are_left_out() -> None:
    values = [n % 50 for n in range(5_000)]
    values[3_333], values[4_444] = 900, -900
    places = thinned(values, 200)
    assert len(places) <= 200
    assert {0, 3_333, 4_444, 4_999} <= {*places}
    assert thinned([3, 1, 2], 200) == [0, 1, 2]
    assert line_path([(1, 5)]) == "M1 5L1 5"
    assert area_path([(1, 5), (2, 7)]) == "M1 0L1 5L2 7V0Z"


@pytest.mark.slow
def test_the_page_begins_with_what_matters_and_has_everything() -> None:
    compared = comparison(3, 120)
    text = page(compared)
    taken = Page(text)
    assert text.index(headline(compared)) < text.index("<main>")
    assert re.search(r"<h1>v5 costs 0\.\d\d of none over 3 sessions", text)
    sections = [given for name, given in taken.elements if name == "section"]
    assert [given["id"] for given in sections] == ["r1", "r2", "r3"]
    for n, row in enumerate(compared.runs, 1):
        assert row[0].name in taken.texts[f"r{n}"]
    lines = [g for name, g in taken.elements if name == "path" and _has(g, "line")]
    assert len(lines) == 3 * 3 * 2  # recordings, settings; context and cost
    marks = [g["href"] for name, g in taken.elements if name == "use"]
    assert {f"#m-{k}" for k in ("demote", "microcompact", "truncate", "summary", "need")} == {
        *marks
    }
    assert {m[1:] for m in marks if m} <= {*taken.ids}
    assert len({*taken.ids}) == len(taken.ids)
    _, tools = next(each for each in taken.elements if _has(each[1], "tools"))
    assert "hidden" in tools  # without scripts there is nothing to press


def _has(given: dict[str, str | None], kind: str) -> bool:
    return kind in (given.get("class") or "").split()


def test_the_points_of_a_line_are_the_calls() -> None:
    compared = comparison(1, 30, ("v5",))
    text = page(compared)
    drawn = re.findall(r'<path d="M([^"]*)" class="line s0"', text)
    calls = compared.runs[0][0].priced
    assert drawn[0].split("L") == [f"{call.number} {call.prompt}" for call in calls]
    last = drawn[1].split("L")[-1].split()
    assert int(last[1]) == pytest.approx(1e4 * sum(call.dollars for call in calls), abs=1e3)


@pytest.mark.slow
def test_recordings_cannot_inject_into_the_page() -> None:
    taken = Page(page(comparison(5, 60, LABELS, hostile=True)))
    names = [name for name, _ in taken.elements]
    assert names.count("script") == 1
    assert "img" not in names
    assert not [key for _, given in taken.elements for key in given if key.startswith("on")]
    assert "</script><script>alert(1)" in taken.texts["r1"]
    policy = next(g for _, g in taken.elements if g.get("http-equiv"))["content"] or ""
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    addresses = [g.get("href") or g.get("src") or "#" for _, g in taken.elements]
    assert {address[0] for address in addresses} == {"#"}


@pytest.mark.slow
def test_the_page_of_a_long_recording_is_small() -> None:
    assert len(page(comparison(1, 500, LABELS)).encode()) < 200_000  # 15 of them: 3 MB
    assert len(page(comparison(1, 5_000, LABELS[:2])).encode()) < 200_000


def test_odd_runs_have_a_page() -> None:
    bare = replace(run("bare", "none"), priced=(), acts=(), needs=(), fills=())
    single = run("one", "v5", calls=1)
    text = page(Comparison(("none", "v5"), ((bare, single), (bare,), ())))
    assert "No call of the model." in text
    Page(text)


def test_sums_without_recordings_are_shown() -> None:
    empty = Figures("a", Sums(), 0, 0, None)
    assert empty.sums.mean == 0
    assert format_percent(empty.sums.cached) == "-"


# In a browser

PHONE, WALL = (360, 800), (1600, 1000)
WIDTHS = (390, 768, 1440)  # pixels
LONG_LABELS = ("summaries only", "default", "compact.at=0.75,compact.keep_tokens=9000")
OUTSIDE = """(() => {
  for (const each of document.querySelectorAll("details")) each.open = true;
  for (const each of document.querySelectorAll("section")) {
    each.style.contentVisibility = "visible";
  }
  const bad = [];
  for (const each of document.body.querySelectorAll("*")) {
    if (each.closest(".scrolling > *, .symbols")) continue;
    const box = each.getBoundingClientRect();
    if (box.width && (box.right > innerWidth + 0.5 || box.left < -0.5)) bad.push(each.outerHTML);
  }
  if (document.documentElement.scrollWidth > innerWidth) bad.push("scrolls aside");
  return bad.map((each) => each.slice(0, 100));
})()"""
TOUCHING = """(() => {
  const bad = [];
  for (const each of document.querySelectorAll(".whole")) {
    const texts = [...each.querySelectorAll(":scope > text")];
    texts.forEach((one, n) => texts.slice(n + 1).forEach((two) => {
      const [a, b] = [one.getBoundingClientRect(), two.getBoundingClientRect()];
      const across = a.left < b.right && b.left < a.right;
      if (across && a.top < b.bottom - 2 && b.top < a.bottom - 2) bad.push(one.textContent);
    }));
  }
  return bad;
})()"""
# Labels in several lines, tables that hide a column beside empty space or without a word, a first
# column that does not stay, and what is cut off at the edge of a button.
CROWDED = """(async () => {
  for (let n = 0; n < 2; n++) await new Promise(requestAnimationFrame); // sizes are seen by then
  const bad = [];
  for (const each of document.querySelectorAll(".setting")) {
    const text = document.createRange();
    text.selectNodeContents(each.lastChild);
    if (each.textContent.length < 20 && text.getClientRects().length > 1)
      bad.push("broken: " + each.textContent);
  }
  for (const each of document.querySelectorAll(".toggle"))
    if (each.scrollWidth > each.clientWidth + 1) bad.push("clipped: " + each.textContent);
  for (const each of document.querySelectorAll(".scrolling")) {
    if (!each.offsetWidth) continue;
    const goesOn = each.scrollWidth > each.clientWidth;
    if (goesOn && each.offsetWidth < document.querySelector("header").clientWidth)
      bad.push("hidden beside empty space: " + each.ariaLabel);
    if (each.nextElementSibling.checkVisibility() !== goesOn) bad.push("hint: " + each.ariaLabel);
    if (each.closest(".listed")) continue;
    each.scrollLeft = 9999;
    const first = each.querySelector("tbody th").getBoundingClientRect();
    if (first.left > each.getBoundingClientRect().left + 2) bad.push("left: " + each.ariaLabel);
    each.scrollLeft = 0;
  }
  return bad;
})()"""
CROSSED = """(() => {
  const bad = [];
  for (const text of document.querySelectorAll(".whole > text")) {
    const box = text.getBoundingClientRect();
    for (const path of text.closest(".whole").querySelectorAll(".plane path.line")) {
      const onto = path.getScreenCTM();
      for (let n = 0, all = path.getTotalLength(); n <= 2000; n++) {
        const { x, y } = path.getPointAtLength((all * n) / 2000).matrixTransform(onto);
        if (x > box.left && x < box.right && y > box.top && y < box.bottom) {
          bad.push(text.textContent);
          break;
        }
      }
    }
  }
  return bad;
})()"""
COLOURS = """[...document.querySelectorAll(".pair figure .plane path")].slice(0, 3)
  .map((each) => getComputedStyle(each).stroke.match(/\\d+/g).map(Number))"""

FILL = """getComputedStyle(document.querySelector(".areas .results")).fill
  .match(/\\d+/g).map(Number)"""
VALUES = """[...document.querySelectorAll("#r1 figure:first-child .lines b")]
  .map((each) => each.textContent)"""
MIDDLE = """(() => {
  const plane = document.querySelector("#r1 .areas .plane");
  plane.scrollIntoView({ block: "center" });
  const box = plane.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser") / "it") as it:
        yield it


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the page of three recordings under three settings."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(page(comparison(3, 120)))
    return file


def sound(view: View) -> None:
    """Check that the page requested only itself and caused no errors."""
    assert view.troubles == []
    assert len(view.requests) == 1
    assert view.evaluate("performance.getEntriesByType('resource').length") == 0


@pytest.mark.slow
@needs_browser
def test_the_browser_records_requests_and_errors(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "bad.html"
    file.write_text("<img src='http://elsewhere.example/x.png'><script>nothing.here()</script>")
    view = browser.open(file, width=300, height=300)
    assert len(view.requests) == 2
    assert len(view.troubles) == 2


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("size", [PHONE, WALL], ids=["phone", "wall"])
def test_the_page_fits_screens_and_has_contrast(
    browser: Browser, written: Path, size: tuple[int, int]
) -> None:
    brightness = []
    for dark in (False, True):
        view = browser.open(written, width=size[0], height=size[1], dark=dark)
        assert view.evaluate("innerWidth") == size[0]
        seen = pixels(view.shoot(0.25))
        assert len(seen) == size[0] // 4 * (size[1] // 4)
        assert len({*seen}) > 40  # not blank
        brightness.append(sum(map(sum, seen)) / len(seen) / 3)
        assert view.evaluate(OUTSIDE) == []
        assert view.evaluate(TOUCHING) == []
        sound(view)
    assert brightness[0] > 200
    assert brightness[1] < 70


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("labels", [LONG_LABELS[:2], LONG_LABELS, LABELS], ids=["2", "3", "all"])
def test_nothing_is_broken_clipped_or_hidden(
    browser: Browser, tmp_path: Path, labels: tuple[str, ...]
) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(comparison(3, 60, labels)))
    for width in WIDTHS:
        view = browser.open(file, width=width, height=1000)
        assert view.evaluate(OUTSIDE) == []
        assert view.evaluate(CROWDED) == [], width
        assert view.evaluate(CROSSED) == []
        sound(view)
    tables = "[...document.querySelectorAll('.tables .scrolling')]"
    if labels == LONG_LABELS[:2]:  # side by side
        assert view.evaluate(f"new Set({tables}.map((each) => each.offsetTop)).size") == 1


@pytest.mark.slow
@needs_browser
def test_labels_stand_clear_of_lines_above_the_window(browser: Browser, tmp_path: Path) -> None:
    (runs,) = comparison(1, 60, ("none", "v5")).runs
    file = tmp_path / "report.html"
    last = runs[0].priced[-1].prompt
    for window in (last // 2, last, last + last // 50):
        small = tuple(replace(each, window=window) for each in runs)
        file.write_text(page(Comparison(("none", "v5"), (small,))))
        view = browser.open(file, width=768, height=800)
        assert view.evaluate("document.querySelectorAll('.limit').length") == 1
        assert view.evaluate(CROSSED) == []


@pytest.mark.slow
@needs_browser
def test_lines_and_areas_are_drawn_in_their_colours(browser: Browser, written: Path) -> None:
    view = browser.open(written, width=360, height=800, dark=True)
    lines = [tuple(colour) for colour in view.evaluate(COLOURS)]
    seen = pixels(view.shoot(of=".pair figure .plane"))
    assert len({*lines}) == 3
    assert {*lines} <= {*seen}
    filled = view.evaluate(FILL)
    below = pixels(view.shoot(of=".areas .plane"))
    assert below.count(tuple(filled)) > len(below) / 10


@pytest.mark.slow
@needs_browser
def test_hostile_names_are_text(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "hostile.html"
    file.write_text(page(comparison(5, 60, LABELS, hostile=True)))
    view = browser.open(file, width=360, height=800)
    sound(view)
    assert view.evaluate("document.scripts.length + document.images.length") == 1
    assert view.evaluate("document.querySelector('#r1 > h2').textContent") == HOSTILE[0]
    assert view.evaluate(OUTSIDE) == []


@pytest.mark.slow
@needs_browser
def test_settings_recordings_and_values_can_be_chosen(browser: Browser, written: Path) -> None:
    view = browser.open(written, width=1600, height=1000)
    shown = "[...document.querySelectorAll('{}')].filter((e) => e.checkVisibility()).length"
    areas = shown.format("#r1 .areas figure")
    assert view.evaluate(areas) == 3
    view.evaluate("document.querySelector('.toggle').click()")
    assert view.evaluate(areas) == 2
    assert view.evaluate(shown.format(".bars > li")) == 2
    view.evaluate("document.querySelector('.toggle').click()")
    assert view.evaluate(areas) == 3
    view.evaluate("recording.value = 'r2'; recording.dispatchEvent(new Event('change'))")
    assert view.evaluate(shown.format("main > section")) == 1
    view.evaluate("location.hash = '#r3'; dispatchEvent(new Event('hashchange'))")
    assert view.evaluate(shown.format("main > section")) == 3

    resting = view.evaluate(VALUES)
    view.evaluate("document.querySelector('#r1 .plot').focus()")
    view.press("Home")
    view.press("ArrowRight")
    assert view.evaluate("document.querySelector('#r1 .at').value") == "call 2"
    row = comparison(3, 120).runs[0]
    assert view.evaluate(VALUES) == [format_tokens(each.priced[1].prompt) for each in row]
    view.press("Escape")
    assert view.evaluate(VALUES) == resting
    view.point(*view.evaluate(MIDDLE))
    told = view.evaluate("document.querySelector('#r1 .areas .value').textContent")
    assert re.fullmatch(r"[\d.]+k: system [\d.]+k, .*results [\d.]+k", told)
    view.evaluate("theme.click(); theme.click()")
    assert view.evaluate("document.documentElement.dataset.theme") == "dark"
    sound(view)
