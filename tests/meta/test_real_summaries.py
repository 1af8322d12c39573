"""The measurement of summaries by a real model runs with a scripted one, and grades right."""

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from ..support.command import Place

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "real"))

import summaries
from relay import relayed
from results import Results

from ctxagent.agent.compaction.summary.request import summary_question
from ctxagent.agent.context.window import Window

ANSWER = """\
## Session Intent
Bring the shop to decimal amounts.

## Key Decisions
1. `shop/cart/amounts.py` has the amounts, not src/none.py.

## Current State
Phase: 40 passed, 98765 failed

## Next Steps
1. None.
"""


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("1. Edit ./src/a.py and b.toml.", {("path", "./src/a.py"), ("path", "b.toml")}),
        ("- Port 8080, v 2.5, 7 files", {("number", "8080"), ("number", "2.5")}),
        ("call parse_all, TextOf and readLine", {
            ("identifier", "parse_all"), ("identifier", "textof"), ("identifier", "readline")
        }),
        ('#12 "It is  Red now"', {("quotation", "it is red now"), ("ref", "12")}),
        ("`src/a.py` and `make all`", {("path", "src/a.py"), ("quotation", "make all")}),
        ("A plain sentence.", set()),
    ],
)  # fmt: skip
def test_the_facts_of_a_summary(text: str, facts: set[tuple[str, str]]) -> None:
    assert summaries.facts_in(text) == facts


@pytest.mark.parametrize(
    ("kind", "text", "is_invented"),
    [
        ("path", "src/a.py", False),
        ("path", "src/a.p", True),
        ("number", "80", True),
        ("number", "8080", False),
        ("quotation", "port … is open", False),
        ("quotation", "is open … closed", True),
        ("ref", "3", False),
        ("ref", "8080", True),
    ],
)
def test_an_invented_fact(kind: str, text: str, is_invented: bool) -> None:
    source = "In /p/src/a.py the Port 8080\nis  open."
    assert bool(summaries.invented([(kind, text)], source, [3])) == is_invented


def test_all_texts_of_a_session_are_its_source() -> None:
    entries = [{"content": [{"input": {"a": ["one", 2]}}]}, {"kind": "user", "content": "three"}]
    assert set(summaries.source_of(entries).split()) == {"one", "2", "user", "three"}


def test_the_schema_has_the_sections_of_the_question() -> None:
    question = summary_question(Window(0, summaries.WINDOW))
    earlier = {"role": "user", "content": "## Not a section\n"}
    body = {"messages": [earlier, {**earlier, "content": f"## Mine\n\n{question}"}]}
    asked = summaries.with_schema(body)
    assert asked["messages"][0] == earlier
    assert asked["messages"][1]["content"].startswith(body["messages"][1]["content"])
    schema = asked["response_format"]["json_schema"]["schema"]
    assert {"Session Intent", "Current State", "Next Steps"} <= set(schema["properties"])
    assert "Mine" not in schema["properties"]
    assert summaries.with_schema({"messages": [earlier]}) == {"messages": [earlier]}


class _Model(BaseHTTPRequestHandler):
    """Answers each request with the summary."""

    bodies: list[dict[str, Any]]

    def do_POST(self) -> None:
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        choice = {"index": 0, "delta": {"content": ANSWER}, "finish_reason": "stop"}
        timings = {"prompt_n": 5_000, "cache_n": 300, "predicted_n": 60, "prompt_ms": 1_000.0}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in ({"choices": [choice]}, {"choices": [], "timings": timings}):
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def model() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve the scripted model; yield its address and the bodies it gets."""
    handler = type("Model", (_Model,), {"bodies": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", handler.bodies
        server.shutdown()


@pytest.mark.slow
def test_a_session_is_summarised_with_each_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: tuple[str, list[dict[str, Any]]]
) -> None:
    monkeypatch.setattr("results.INSTALLED", tmp_path / "real")
    results = Results("summaries", "test")
    recordings = list(summaries.sessions(None))
    assert len(recordings) == summaries.SESSIONS
    url, bodies = model
    with relayed(url) as relay:
        for row in summaries.measure_session(Place(tmp_path), relay, recordings[0]):
            results.add(row)
    text, schema = bodies
    assert text["messages"][:-1] == schema["messages"][:-1]  # the server has them in its cache
    assert text["tools"] == schema["tools"]
    assert "response_format" in schema
    for row in results.rows:
        assert (row["problem"], row["outcome"]) == ("", "model")
        assert row["invented"] == row["invented after"]
        assert sorted(text for _, text in row["invented"]) == ["98765", "src/none.py"]
    shown = list(summaries.report(results))
    assert [row["request"] for row in shown] == ["text", "schema"]
    assert shown[0]["usable at once"] == "1/1"
    assert (shown[0]["read"], shown[0]["from cache"], shown[0]["written"]) == (5_000, 300, 60)
    assert shown[0]["lost after repair"].startswith("0/")
    assert Results("summaries", "test").rows == results.rows  # a stopped run goes on with them


def test_an_unusable_answer_is_named() -> None:
    assert summaries.problem_of(ANSWER, "stop") == ""
    assert summaries.problem_of(ANSWER, "length") == "it was cut off at its limit"
    assert summaries.problem_of("## Session Intent\nx", "stop").startswith("it lacks Key")
    left = summaries.Compacted(1, "ctxagent: no", [])
    assert summaries.grade([], left, "", "stop")["outcome"] == "ctxagent: no"
