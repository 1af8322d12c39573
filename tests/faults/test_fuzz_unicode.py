"""Any text, through everything: words, arguments, names of files, results, answers. It is recorded
as it was, goes to the model in a request that is accepted, is found again, summarised and exported,
and acts on no terminal."""

import json
import re
import unicodedata
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from ctxagent.agent.compaction.document import parse, render
from ctxagent.agent.compaction.summary.merge import document_from_ledger
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.pages.export import EXPORT_FORMATS, export
from ctxagent.agent.session.entries import Assistant, ToolResult, User
from ctxagent.agent.session.ledger import Ledger
from ctxagent.agent.session.log import read_log
from ctxagent.agent.session.search.index import SearchIndex
from ctxagent.agent.session.search.recall import search_sessions, text_of_ref
from ctxagent.agent.session.totals import Totals
from ctxagent.agent.ui.render.render import render_text
from ctxagent.agent.ui.stream_input import event_json
from ctxagent.tools.system.unicode import clean

from ..support.limits import printed
from ..support.sessions.conversation import Conversation

ODD = [
    "\ud83d", "a\udc80b", "\0", "\x1b[2J\x1b]0;t\x07", "\x9b31m", "\u202erl\u202c", "e\u0301" * 9,
    "\u05e9\u05dc\u05d5\u05dd", "\U0001f469\u200d\U0001f469\u200d\U0001f467 x", "字" * 30, "\ufeff",
    "\U0001f1e9\U0001f1ea", "\u2028", "a\rb", "\t\v\f", "\x7f\x85", "\ufffe", "# h\n- a\n|b|",
    "</script><b onclick=x>", "`]](javascript:x)", "[link](\x1b)", "\U000e0041", "\ufffc", "{}",
    "\n", "\u200b\u200d", "\u0915\u094d\u0937\u093f", "Z\u0363\u0368" * 9, "~", "*", "'\"\\",
    "a" * 300, "\u3000wide ",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(ODD) | st.text(max_size=5), min_size=1, max_size=3).map("".join)


def steps(said: str, name: str, inner: str) -> list[Step]:
    """One turn in which the texts stand wherever a text can."""
    path = f"n-{re.sub('[/~]|[.][.]', '_', name)}"
    todo = {"content": said or "x", "status": "in_progress"}
    return [
        Step(
            text=said,
            tools=[
                ("Write", {"path": path, "content": inner}),
                ("Read", {"path": path}),
                ("Edit", {"path": path, "old_string": inner, "new_string": said}),
                ("Glob", {"pattern": f"*{path}*"}),
                ("Grep", {"pattern": re.escape(inner), "path": path}),
                ("Todo", {"items": [todo]}),
                ("Recall", {"query": said}),
                ("Recall", {"ref": name}),
                (name, {inner: said}),
            ],
        ),
        Step(text=f"Done. {inner}\n\n{said}"),
    ]


@pytest.mark.full
@settings(max_examples=35, derandomize=True, deadline=None)
@given(TEXTS, TEXTS, TEXTS)
@example("\ud83d", "\udc80", "\ud800")
@example("\0", "\0", "\0")
@example("ok", "plain", "two words")
def test_any_text_through_a_whole_turn(said: str, name: str, inner: str) -> None:
    with TemporaryDirectory() as folder:
        project = Path(folder, "project")
        project.mkdir()
        talk = Conversation(project, steps(said, name, inner))
        finished = talk.say(f"go: {inner}{said}")
        assert finished.status == "ok", finished.error
        _check_record(talk, said, name, inner)
        _check_what_is_found(talk, said)
        _check_exports(talk.agent.log.path)
        _check_what_is_shown(talk)
        assert not {p.name for p in Path(folder).iterdir()} - {"project", "project-state"}


def _check_record(talk: Conversation, said: str, name: str, inner: str) -> None:
    reading = read_log(talk.agent.log.path)
    assert not reading.warnings
    assert talk.of(User)[0].content == f"go: {inner}{said}"
    replies = talk.of(Assistant)
    calls = [block for block in replies[0].content if block["type"] == "tool_use"]
    assert calls[0]["input"]["content"] == inner
    assert calls[-1]["input"] == {inner: said}
    results = talk.of(ToolResult)
    assert len(results) == len(calls)
    for entry in results:
        assert isinstance(entry.content, str)
    written = list(talk.cwd.iterdir())
    assert len(written) == (not results[0].is_error)


def _check_what_is_found(talk: Conversation, said: str) -> None:
    log = talk.agent.log.path
    state = log.parent.parent.parent
    for query in (said, f'"{said}', f"#{said}"):
        SearchIndex(state).search(query, patience=None)
        for scope in ("session", "project", said):
            json.dumps(
                search_sessions(state, log.parent.name, query, scope, patience=None).searched
            )
    first = talk.of(ToolResult)[0]
    recalled = text_of_ref(state, log.parent.name, first.seq)
    assert recalled is not None
    assert recalled.whole() == first.content
    text_of_ref(state, log.parent.name, said)
    ledger, totals = Ledger(), Totals()
    for entry in talk.entries():
        ledger.add(entry)
        totals.add(entry)
    json.dumps(ledger.to_json())
    document = document_from_ledger(ledger, None)
    assert parse(render(document)) == document


def _check_exports(log: Path) -> None:
    for format in EXPORT_FORMATS:
        text = export(log, format)
        text.encode()
        if format == "json":
            assert [entry["seq"] for entry in json.loads(text)] == [
                entry.seq for entry in read_log(log).entries
            ]
        elif format == "html":
            assert "</script><b" not in text
            assert not set(re.findall(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", text))


def _check_what_is_shown(talk: Conversation) -> None:
    for event in talk.events:
        told = json.dumps(event_json(event), default=str)
        told.encode("ascii")
        assert json.loads(told)["type"]
    for width, depth in ((20, "plain"), (80, "color")):
        text = render_text(printed(talk.events), width=width, depth=depth)  # type: ignore[arg-type]
        text.encode()
        bare = re.sub(r"\x1b\[[0-9;]*m|\x1b\]8;[^\x1b\x07]*\x1b\\", "", text)
        acting = {c for c in bare if unicodedata.category(c) in ("Cc", "Cs") and c != "\n"}
        assert not acting
        assert not re.search(r"[\u202a-\u202e\u2066-\u2069]", bare)
        wide = {line.strip() for line in bare.split("\n") if cell_len(line) > width}
        said = clean("\n".join(_answers(talk)))
        assert all(line in said for line in wide), "only code stays whole, so that it can be copied"


def _answers(talk: Conversation) -> list[str]:
    blocks = (block for entry in talk.of(Assistant) for block in entry.content)
    return [block["text"] for block in blocks if block["type"] == "text"]
