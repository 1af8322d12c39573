"""The benchmark of reading makes clear questions, grades answers, and plays recordings for its
contexts. No model is asked."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.recordings.recording import (
    RecordedCall,
    RecordedMessage,
    RecordedReply,
    Recording,
)

from ..support.sessions.reading_day import reading_day

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "real"))

asking, chat, contexts, cutting, reading, results = (
    importlib.import_module(name)
    for name in ("asking", "chat", "contexts", "cutting", "reading", "results")
)
TASK = RecordedMessage("Move the port of the server into the file of settings, please.")


def recording(*steps: RecordedMessage | RecordedReply) -> Recording:
    return Recording("made here", "none", (TASK, *steps))


def replied(number: int, name: str, given: dict[str, Any], text: str) -> RecordedReply:
    failed = "exit code 3" in text
    return RecordedReply("I go on.", (RecordedCall(f"c{number}", name, given, text, failed),))


def ran(number: int, command: str, text: str) -> RecordedReply:
    return replied(number, "Bash", {"command": command}, text)


def asked(*steps: RecordedMessage | RecordedReply, kind: str) -> dict[str, tuple[str, ...]]:
    found = asking.questions(recording(*steps), limit=99)
    return {question.text: question.answers for question in found if question.kind == kind}


def test_the_files_that_were_changed_in_their_order() -> None:
    edits = [
        replied(n, "Edit", {"file_path": f"/p/{name}", "old_string": "a", "new_string": "b"}, "ok")
        for n, name in enumerate(("one.py", "two.py", "one.py"))
    ]
    found = asked(*edits, kind="file")
    assert found["Which file was changed last?"] == ("/p/one.py",)
    assert found["Which file was changed first?"] == ("/p/one.py",)
    assert found["Which file was the next one to be changed after `/p/two.py`?"] == ("/p/one.py",)
    assert not [text for text in found if "after `/p/one.py`" in text], "it was changed twice"


def test_paths_that_end_alike_are_not_asked_for() -> None:
    edits = [
        replied(n, "Write", {"file_path": f"/{folder}/main.py", "content": "x"}, "ok")
        for n, folder in enumerate("ab")
    ]
    assert asked(*edits, kind="file") == {}


def test_the_error_of_the_newest_failed_command_and_of_each() -> None:
    found = asked(
        ran(1, "make all", "cc main.c\nmain.c:4: error: no semicolon\nexit code 3"),
        ran(2, "make test", "ran 3\nAssertionError: 7 is not 9\nexit code 3"),
        kind="error",
    )
    newest = "What is the error line of the newest command that failed?"
    assert found[newest] == ("AssertionError: 7 is not 9",)
    assert found["The command `make all` failed. What is the error line of its output?"] == (
        "main.c:4: error: no semicolon",
    )
    assert found["Which command was the first that failed?"] == ("make all",)


def test_exit_codes_that_cannot_be_guessed() -> None:
    found = asked(ran(1, "make a", "exit code 3"), ran(2, "make b", "fine"), kind="exit code")
    assert found == {"With which exit code did the command `make a` end?": ("3",)}


def test_values_that_are_there_once() -> None:
    text = "host: example\nport = 48231\nname: first\nname: second\nfast: true\n"
    found = asked(replied(1, "Read", {"file_path": "/p/a.yaml"}, text), kind="value")
    assert found == {
        "What is the value of `host` in the file `/p/a.yaml`?": ("example",),
        "What is the value of `port` in the file `/p/a.yaml`?": ("48231",),
    }


def test_a_call_that_was_made_twice_is_not_asked_about() -> None:
    twice = [ran(n, "cat a.yaml", f"port = 4823{n}\nlast line") for n in (1, 2)]
    assert asked(*twice, kind="value") == {}


def test_the_todo_list_at_the_end() -> None:
    lists = [
        [("write it", "in_progress"), ("test it", "pending"), ("ship it", "pending")],
        [("write it", "completed"), ("test it", "in_progress"), ("ship it", "pending")],
    ]
    steps = [
        replied(n, "Todo", {"todos": [{"content": c, "status": s} for c, s in rows]}, "kept")
        for n, rows in enumerate(lists)
    ]
    found = asked(*steps, kind="todo")
    assert found["Which item of the todo list is in progress?"] == ("test it",)
    assert found["What is the last item of the todo list?"] == ("ship it",)


def test_a_sentence_with_a_blank_and_the_kind_of_a_decision() -> None:
    said = "I looked around. We use `sqlite3` instead of a file, because it is safe. Next."
    found = asked(RecordedReply(said), kind="decision")
    (text,) = found
    assert "`____` instead of a file" in text
    assert found[text] == ("sqlite3",)


def test_no_question_names_its_answer() -> None:
    for question in asking.questions(reading_day(3), limit=99):
        assert not question.is_right(question.text)


@pytest.mark.parametrize(
    ("answer", "reply", "is_right"),
    [
        ("48231", "The port is `48231`.", True),
        ("48231", "148231", False),
        ("8", "18", False),
        ("src/app/main.py", "main.py", True),
        ("src/app/main.py", "./app/main.py", True),
        ("src/app/main.py", "/home/ann/src/app/main.py", True),
        ("src/app/main.py", "src/lib/main.py", False),
        ("src/app/main.py", "domain.py", False),
        ("AssertionError: 7 is not 9", '"AssertionError: 7  is not 9"', True),
        ("AssertionError: 7 is not 9", "assertionerror: 7 is", True),
        ("AssertionError: 7 is not 9", "AssertionError", False),
        ("pytest -q tests/test_a.py", "pytest", False),
        ("Bring marble over to the new", "bring marble over to the new store", True),
        ("sqlite3", "", False),
        ("sqlite3", "I do not know.", False),
    ],
)
def test_grading(answer: str, reply: str, is_right: bool) -> None:
    question = asking.Question("q", "value", "old", "What?", (answer,))
    assert question.is_right(reply) is is_right


def test_the_questions_of_a_session_are_balanced() -> None:
    found = asking.questions(reading_day(1))
    assert len(found) == asking.MAX_QUESTIONS
    assert len({question.kind for question in found}) >= 10
    assert {question.age for question in found} == set(asking.AGES)
    assert len({question.id for question in found}) == len(found)
    assert found == asking.questions(reading_day(1))


def test_a_cut_fits_and_ends_with_a_reply() -> None:
    long = reading_day(0, parts=24)
    found = list(cutting.cuts(long))
    assert len(found) > 1
    for cut in found:
        assert sum(map(cutting.size, cut.steps)) <= cutting.MAX_TOKENS
        assert cut.steps[0] == long.steps[0]
        assert isinstance(cut.steps[-1], RecordedReply)


def test_a_long_text_loses_its_middle_in_every_context() -> None:
    text = "\n".join(f"line {n} of the output" for n in range(1_000))
    steps = [ran(n, f"make {n}", text if n == 1 else "done") for n in range(1, 30)]
    (cut, *_) = cutting.cuts(recording(*steps))
    (result,) = [call.text for call in cut.steps[1].calls]
    assert len(result) < cutting.MAX_TEXT_CHARS + 10
    assert result.startswith("line 0 of")
    assert result.endswith("line 999 of the output")


@pytest.mark.slow
def test_the_contexts_and_recall(tmp_path: Path) -> None:
    (session,) = reading.sessions([reading_day(0)], tmp_path)
    made = session.contexts
    assert tuple(made) == reading.NAMES
    whole = made["whole"]
    assert not whole.acts
    assert len(session.asked) == len(asking.answerable(session.asked, whole.texts))
    assert len({str(context.tools) for context in made.values()}) == 1
    for name in ("default", "lean", "v5"):
        assert 0.3 < made[name].tokens / whole.tokens < 0.85
        assert "summary" not in made[name].acts
    assert made["summary"].tokens < made["default"].tokens
    lost = [q for q in session.asked if not asking.answerable([q], made["lean"].texts)]
    assert lost
    for question in lost:
        (call,) = [
            call["id"]
            for message in whole.messages
            for call in message.get("tool_calls", ())
            if question.answers[0] in str(whole.messages[whole.messages.index(message) + 1])
        ][:1]
        (stub,) = [
            message["content"]
            for message in made["lean"].messages
            if message.get("tool_call_id") == call
        ]
        ref = stub.rpartition("#")[2].rstrip("]").split("\n")[0].rstrip("]")
        assert made["lean"].recall({"ref": ref}).startswith(whole_text(whole, call)[:200])


def whole_text(context: Any, call: str) -> str:
    (text,) = [m["content"] for m in context.messages if m.get("tool_call_id") == call]
    return str(text)


@pytest.mark.slow
def test_recall_answers_are_short_and_errors_are_texts(tmp_path: Path) -> None:
    (session,) = reading.sessions([reading_day(2)], tmp_path)
    context = session.contexts["summary"]
    found = context.recall({"query": "AssertionError rows", "ref": ""})
    assert "rows" in found
    assert len(found) <= contexts.MAX_RECALLED_CHARS + 100
    assert context.recall({"ref": "99999"}).startswith("error:")
    assert context.recall({"path": "x"}).startswith("error:")


def test_a_question_goes_through_recall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = {
        "id": "x", "type": "function",
        "function": {"name": "Recall", "arguments": '{"ref": "7"}'},
    }  # fmt: skip
    said = [
        chat.Answer("", (call,), 900, 0, 20, 9.0, "tool_calls"),
        chat.Answer("48231", (), 90, 900, 5, 1.0, "stop"),
    ]
    sent: list[list[Any]] = []

    def ask(url: str, messages: list[Any], **more: Any) -> Any:
        sent.append([*messages])
        return said[len(sent) - 1]

    monkeypatch.setattr(reading, "ask", ask)
    monkeypatch.setattr(contexts.Context, "recall", lambda self, given: f"text of {given['ref']}")
    context = contexts.Context(
        "lean", ({"role": "system", "content": "s"},), (), 9, 9, "", tmp_path
    )
    question = asking.Question("value-1", "value", "old", "Which port?", ("48231",))
    row = reading.answer("http://none", context, question)
    assert row["right"]
    assert row["recalled"] == [["Recall", {"ref": "7"}]]
    assert (row["prompt"], row["prefilled"], row["seconds"]) == (900, 990, 10.0)
    assert sent[1][-1] == {"role": "tool", "tool_call_id": "x", "content": "text of 7"}


def test_the_report_compares_the_same_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "INSTALLED", tmp_path)
    kept = results.Results("reading", "here")
    rights = {"nothing": "0001", "whole": "1101", "default": "1011", "lean": "1001"}
    for context, each in rights.items():
        for number, right in enumerate(each):
            kept.add(
                {"session": "s", "context": context, "question": f"q{number}", "kind": "value",
                 "age": "old", "right": right == "1", "recalled": [], "prompt": 9, "prefilled": 9,
                 "written": 1, "seconds": 1.0, "acts": "", "size": 9}
            )  # fmt: skip
    tables = reading.report(kept)
    by_name = {row["context"]: row for row in tables["by context"]}
    assert by_name["whole"]["questions"] == 3, "what was guessed is left out"
    row = by_name["default"]
    assert (row["right"], row["only whole right"], row["only this right"]) == ("67 %", 1, 1)
    assert by_name["lean"]["only whole right"] == 1
    assert tables["by age of the fact"][2]["default"] == "2/3"
    assert tables["answered without a context"][0]["right"] == 1
    assert reading._p(0, 5) == pytest.approx(2 / 32)
