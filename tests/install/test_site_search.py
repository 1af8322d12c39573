"""The search of the guide: the terminal and the site find the same, by one index."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from ctxagent.agent.cli.guide_index import GuideSection, build_index, sections_of, stem
from ctxagent.tests.install.site_pages import DOCS, site_index
from ctxagent.tests.support.command import Place

from ..support.machine import program, skip_without
from ..support.terminal.browser import Browser, needs_browser

QUESTIONS = Path(__file__).parents[1] / "support" / "guide_questions.txt"
MIN_ANSWERED = 55  # of 60
WORKER = """
const answers = [], {docs, index, questions} = JSON.parse(require("fs").readFileSync(0, "utf8"))
let listen
globalThis.addEventListener = (name, given) => { listen = given }
globalThis.postMessage = message => { answers.push(message) }
require(process.argv[1])
listen({data: {type: 0, data: {docs, config: {index}}}})
for (const data of questions) listen({data: {type: 2, data}})
console.log(JSON.stringify(answers.slice(1).map(answer => answer.data.items.map(each => each[0]))))
"""

# Types each question into the search box; returns the address of the section of each result.
ASK = """(async questions => {
  const box = document.querySelector(".md-search__input"), found = []
  const list = document.querySelector(".md-search-result__list")
  document.querySelector("#__search").checked = true
  box.focus()
  for (const question of questions) {
    list.replaceChildren()
    box.value = question
    for (const kind of ["input", "keyup"]) box.dispatchEvent(new Event(kind, {bubbles: true}))
    while (!list.children.length) await new Promise(next => setTimeout(next, 20))
    found.push([...list.children].map(each => [...each.querySelectorAll("a")].at(-1).href))
  }
  return found
})"""


def questions() -> list[tuple[str, set[str]]]:
    """Return each question with the sections that answer it."""
    lines = [line for line in QUESTIONS.read_text().splitlines() if not line.startswith("#")]
    rows = [line.split(" | ") for line in lines]
    return [(question, set(places.split(", "))) for question, places in rows]


@pytest.fixture(scope="module")
def sections() -> list[GuideSection]:
    pages = sorted((DOCS / "guide").glob("*.md"))
    return [each for page in pages for each in sections_of(page.stem, page.read_text("utf-8"))]


def place_of(address: str) -> str:
    """Return the section of the guide at an address of the site."""
    page, _, anchor = address.partition("#")
    name = page.partition("?")[0].partition("/guide/")[2].removesuffix(".html")
    return f"{name}#{anchor}" if anchor else name


def unanswered(found: Sequence[Sequence[str]]) -> list[str]:
    """Return the questions without an answer among the first three results."""
    asked = zip(questions(), found, strict=True)
    return [question for (question, wanted), places in asked if not wanted & set(places[:3])]


def test_the_questions_name_sections_that_exist(sections: list[GuideSection]) -> None:
    assert len(questions()) == 60
    places = {each.place for each in sections}
    assert [q for q, wanted in questions() if not wanted <= places] == []


def test_the_terminal_answers_the_questions(sections: list[GuideSection]) -> None:
    index = build_index(sections)
    found = [[sections[n].place for n in index.rank(question)] for question, _ in questions()]
    missing = unanswered(found)
    assert len(missing) <= 60 - MIN_ANSWERED, missing


def test_the_site_answers_the_questions(sections: list[GuideSection]) -> None:
    skip_without("node")
    docs = [
        {"location": f"guide/{page}.html{mark}{anchor}", "title": each.title, "text": each.text}
        for each in sections
        for page, mark, anchor in [each.place.partition("#")]
    ]
    asked, index = [question for question, _ in questions()], site_index(docs)
    given = {"docs": docs, "index": index.to_json(), "questions": [*asked, "preset"]}
    said = subprocess.run(
        [program("node") or "", "-e", WORKER, "--", str(DOCS / "search.js")],
        input=json.dumps(given), check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    *found, last = json.loads(said)
    places = [
        [each["location"].removeprefix("guide/").replace(".html", "") for each in row]
        for row in found
    ]
    missing = unanswered(places)
    assert len(missing) <= 60 - MIN_ANSWERED, missing
    ranked = [[sections[n].place for n in index.rank(question)][:10] for question in asked]
    assert [row[:10] for row in places] == ranked
    assert "<mark data-md-highlight>preset" in json.dumps(last).lower()


@pytest.mark.full
@pytest.mark.timeout(1_800)
@needs_browser
def test_the_search_box_of_the_site_answers_the_questions(tmp_path: Path) -> None:
    site, root = tmp_path / "site", DOCS.parent
    build = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(site),
    ]
    subprocess.run(
        build, cwd=root, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )  # fmt: skip
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=site)
    )
    Thread(target=server.serve_forever, daemon=True).start()
    address, asked = f"http://127.0.0.1:{server.server_port}/", [each for each, _ in questions()]
    try:
        with Browser(tmp_path / "browser") as browser:
            view = browser.open(f"{address}index.html", width=1_600, height=900)
            found = [
                each
                for start in range(0, len(asked), 10)
                for each in view.evaluate(f"{ASK}({json.dumps(asked[start : start + 10])})")
            ]
    finally:
        server.shutdown()
        server.server_close()
    missing = unanswered([[place_of(each) for each in row] for row in found])
    assert len(missing) <= 60 - MIN_ANSWERED, missing


@pytest.mark.parametrize(
    "forms",
    ["preset presets", "token tokens", "compact compacts compaction compacting compacted",
     "cache caches cached caching", "summarize summarizes summarized summarizing",
     "process processes", "delete deletes deleted deleting deletion", "macos macos"],
)  # fmt: skip
def test_forms_of_a_word_are_one(forms: str) -> None:
    assert len({stem(word) for word in forms.split()}) == 1


def test_the_command_answers_a_question(tmp_path: Path) -> None:
    place = Place(tmp_path)
    done = place.run("guide", "how", "do", "I", "undo", "a", "compaction")
    assert done.returncode == 0
    first, *_ = done.stdout.splitlines()
    assert first == "Summaries and recovery: Undo a compaction"
    assert "ctxagent guide recovery" in done.stdout
    assert place.run("guide", "how do I undo a compaction").stdout == done.stdout
    done = place.run("guide", "aardvark", "xylophone")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no section of the guide has these words" in done.stderr
