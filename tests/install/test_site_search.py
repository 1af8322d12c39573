"""The search of the guide: the terminal and the site find the same, by one index."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ctxagent.agent.cli.guide_index import GuideSection, build_index, sections_of, stem
from ctxagent.tests.install.site_pages import DOCS, site_index
from ctxagent.tests.support.command import Place

from ..support.machine import program, skip_without

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


def questions() -> list[tuple[str, set[str]]]:
    """Return each question with the sections that answer it."""
    lines = [line for line in QUESTIONS.read_text().splitlines() if not line.startswith("#")]
    rows = [line.split(" | ") for line in lines]
    return [(question, set(places.split(", "))) for question, places in rows]


@pytest.fixture(scope="module")
def sections() -> list[GuideSection]:
    pages = sorted((DOCS / "guide").glob("*.md"))
    return [each for page in pages for each in sections_of(page.stem, page.read_text("utf-8"))]


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
