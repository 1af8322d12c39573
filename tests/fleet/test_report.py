"""The page of a fleet: its content, and its layout and behaviour in a real browser."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxagent.addons.fleet.ledger import AttemptOutcome, FleetFolder, FleetLedger
from ctxagent.addons.fleet.manifest import Manifest
from ctxagent.addons.fleet.report import Collection
from ctxagent.addons.fleet.summary import FleetSummary

from ..support.terminal.browser import Browser, needs_browser

HOSTILE = "<script>document.title='x'</script>" + "a" * 200
SHOWN = "[...document.querySelectorAll('tbody tr:not(.away)')].length"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    manifest = tmp_path / "tasks.jsonl"
    lines = [
        {"id": f"task-{'x' * 40 if n == 3 else n}", "prompt": "p", "dir": "r"} for n in range(9)
    ]
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ledger = FleetLedger(FleetFolder.of(manifest))
    tasks = Manifest(manifest)
    for n, line in enumerate(list(tasks.lines.values())[:7]):
        ledger.begin(line.id, line.digest, "s", 1)
        kind, why = [("", ""), ("denied", HOSTILE)][n % 3 == 1]
        outcome = AttemptOutcome(
            0.25, 12, 30, 9_000_000, 800_000, exit_code=0, kind=kind, message=why, seconds=412.5
        )
        ledger.end(line.id, "s", 1, outcome)
        kept = ledger.folder.task(line.id, "s")
        log = ledger.folder.state / "projects" / str(n) / "sessions" / "s" / "log.jsonl"
        for folder in (kept.path, log.parent):
            folder.mkdir(parents=True)
        kept.patch.write_text("+a\n")
    ledger.close()
    summary = FleetSummary.of(tasks, ledger.records, ledger.folder, is_running=False)
    collection = Collection(ledger.folder, tmp_path / "out", lambda log: "<!doctype html>")
    collection.begin("tasks.jsonl", summary)
    assert "9 tasks: 5 done" in (tmp_path / "out" / "index.html").read_text()
    rows = [collection.add(task) for task in summary.tasks]
    collection.finish("tasks.jsonl", summary, rows)
    return tmp_path / "out" / "index.html"


def test_it_shows_the_sums_and_escapes_tasks(page: Path) -> None:
    text = page.read_text()
    for told in ("9 tasks: 5 done, 2 failed, 2 waiting", "$1.7500", "5,600,000 tokens",
                 "<b>2</b> denied", 'href="task-1/patch.diff"'):  # fmt: skip
        assert told in text, told
    assert "<script>document" not in text
    assert (page.parent / "task-1" / "patch.diff").read_text() == "+a\n"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser") / "b") as browser:
        yield browser


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_the_screen_and_filters(
    page: Path, browser: Browser, width: int, dark: bool
) -> None:
    view = browser.open(page, width=width, height=900, dark=dark)
    assert view.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert view.evaluate("document.title").startswith("tasks.jsonl · 9 tasks")
    assert view.evaluate(SHOWN) == 9
    view.evaluate("document.querySelector('.chip[value=failed]').click()")
    assert view.evaluate(SHOWN) == 7
    fill = "words.value = 'TASK-2 done'; words.dispatchEvent(new Event('input'))"
    view.evaluate(f"(() => {{ const words = document.getElementById('words'); {fill} }})()")
    assert view.evaluate(SHOWN) == 1
    assert view.evaluate("document.getElementById('shown').textContent") == "1 of 9"
    paper = "getComputedStyle(document.body).backgroundColor"
    assert view.evaluate(paper) == ("rgb(22, 24, 27)" if dark else "rgb(253, 253, 252)")
    assert view.troubles == []
    assert len(view.requests) == 1, "nothing else is loaded"
