"""Answers to a query: which words count, the order of entries, and the content of an excerpt."""

from pathlib import Path

import pytest

from ctxagent.agent.session.entries import Assistant, Pin, ToolResult, User
from ctxagent.agent.session.log import Log
from ctxagent.agent.session.search import Hit, SearchIndex
from ctxagent.agent.session.search.query import MAX_EXCERPT_CHARS, query_words


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "sessions" / "a" / "log.jsonl")


def found(log: Log, query: str, limit: int = 8) -> list[Hit]:
    index = SearchIndex(log.path.parents[2])
    return index.search(query, session=None, limit=limit, patience=None).hits


def say(log: Log, *texts: str) -> None:
    for text in texts:
        log.append(User(content=text, source="notice"))


def call(log: Log, id: str, *names: str) -> None:
    uses = [
        {"type": "tool_use", "id": f"{id}{n}", "name": name, "input": {}}
        for n, name in enumerate(names)
    ]
    log.append(Assistant(content=uses, usage={}, stop_reason=None, model="m"))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("two words", ["two", "words"]), ('"quoted words"', ["quoted", "words"]),
        ("„so“ ”", ["so"]), ("-- a.b ...", ["a.b"]), ("", []),
        ("x " * 40, ["x"] * 32),
    ],
)  # fmt: skip
def test_the_words_that_are_looked_for(query: str, words: list[str]) -> None:
    assert query_words(query) == words


def test_a_phrase_comes_before_all_words_and_these_before_some(log: Log) -> None:
    say(log, "needle alone", "thread then needle", "a needle thread", "thread alone", "nothing")
    assert [hit.seq for hit in found(log, "needle thread")][:2] == [3, 2]
    assert {hit.seq for hit in found(log, "needle thread")} == {1, 2, 3, 4}
    assert [hit.seq for hit in found(log, "needle thread", limit=2)] == [3, 2]


def test_the_users_words_come_before_others(log: Log) -> None:
    log.append(User(content="the needle"))
    say(log, "the needle", "the needle")
    assert [hit.seq for hit in found(log, "needle")] == [1, 3, 2]


def test_an_unknown_word_matches_as_a_prefix(log: Log) -> None:
    say(log, "the needlework is done", "nothing")
    assert [hit.seq for hit in found(log, "needle")] == [1]
    assert found(log, "thread") == []


def test_what_a_hit_says(log: Log) -> None:
    call(log, "c", "Bash", "Read")
    log.append(ToolResult(tool_use_id="c1", content="a needle", is_error=True))
    log.append(ToolResult(tool_use_id="other", content="the needle"))
    log.append(Pin(text="my needle"))
    hits = {hit.seq: hit for hit in found(log, "needle")}
    assert (hits[2].tool, hits[2].is_error, hits[2].kind) == ("Read", True, "tool_result")
    assert (hits[3].tool, hits[3].is_error) == ("", False)
    assert (hits[4].kind, hits[4].tool, hits[4].session) == ("pin", "", "a")
    assert all(hit.at for hit in hits.values())
    (reply,) = found(log, "Bash")
    assert reply.tool == "Bash, Read"


def test_an_excerpt_has_whole_lines_around_the_words(log: Log) -> None:
    say(log, "before\nthe needle\nafter\n" + "x" * 400)
    (hit,) = found(log, "needle")
    assert (hit.excerpt, hit.offset) == ("before\nthe needle\nafter", 0)


def test_an_excerpt_shows_where_the_words_stand_closest(log: Log) -> None:
    lines = ["needle", *["filler"] * 60, "needle and thread", *["filler"] * 60]
    text = "\n".join(lines)
    say(log, text)
    (hit,) = found(log, "thread needle")
    assert "needle and thread" in hit.excerpt
    assert hit.excerpt == text[hit.offset : hit.offset + len(hit.excerpt)]
    assert len(hit.excerpt) <= MAX_EXCERPT_CHARS


def test_an_excerpt_of_a_long_line_is_cut(log: Log) -> None:
    text = "x " * 400 + "needle" + " y" * 400
    say(log, text)
    (hit,) = found(log, "needle")
    assert len(hit.excerpt) == MAX_EXCERPT_CHARS
    assert hit.excerpt.index("needle") == 50
    assert text[hit.offset :].startswith(hit.excerpt)


def test_a_longer_word_counts_for_more(log: Log) -> None:
    say(log, "it is\n" + "filler\n" * 60 + "implementation\n" + "filler\n" * 60 + "it is it")
    (hit,) = found(log, "it implementation")
    assert "implementation" in hit.excerpt
