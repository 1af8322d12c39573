"""The ledger: facts computed from the log, entry by entry, without a model."""

import itertools
import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import (
    DROP,
    Assistant,
    Mask,
    Note,
    Pin,
    Revert,
    Session,
    Summary,
    ToolResult,
    Unpin,
    User,
)
from ctxagent.agent.session.ledger import CommandFact, FileFact, Ledger

from ..support.sessions.conversation import Conversation


class Script:
    """A ledger filled manually; `ref` is the seq of the newest entry."""

    def __init__(self, cwd: str = "/p") -> None:
        self.ledger = Ledger()
        self.ref = 0
        self.add(Session, id="s", cwd=cwd, version="1", model="m")

    def add(self, kind: Any, **fields: Any) -> int:
        self.ref += 1
        self.ledger.add(kind(seq=self.ref, **fields))
        return self.ref

    def call(
        self, tool: str, details: Any, text: str = "", *, error: bool = False, **fields: Any
    ) -> int:
        """Add a call and its result, and return the result's ref."""
        id = f"call-{self.ref}"
        block = {"type": "tool_use", "id": id, "name": tool, "input": {}}
        self.add(Assistant, content=[block], usage={}, stop_reason="tool_use", model="m")
        return self.add(
            ToolResult, tool_use_id=id, content=text, is_error=error, details=details, **fields
        )

    def change(self, path: str, tool: str = "Edit", **details: Any) -> int:
        return self.call(
            tool, {"path": path, "created": False, "added": 2, "removed": 1, **details}
        )

    def run(self, command: str, exit_code: int | None = 0, text: str = "", **fields: Any) -> int:
        details = {"command": command, "exit_code": exit_code}
        return self.call("Bash", details, text, error=exit_code not in (0, None), **fields)


def test_changes_of_a_file_add_up() -> None:
    script = Script()
    script.change("/p/src/a.py", "Write", created=True, added=10, removed=0)
    ref = script.change("/p/src/a.py", added=3, removed=4)
    script.change("/p/b.py")
    assert dict(script.ledger.files) == {
        "src/a.py": FileFact("src/a.py", "created", 13, 4, "Edit", ref, 2),
        "b.py": FileFact("b.py", "modified", 2, 1, "Edit", ref + 2, 1),
    }


def test_failed_and_denied_changes_change_nothing() -> None:
    script = Script()
    script.call("Edit", {"path": "/p/a.py"}, "old_string does not occur", error=True)
    script.call("Write", {"denied": True}, "Not allowed", error=True)
    assert script.ledger.files == {}


def test_paths_outside_of_the_directory_stay_whole() -> None:
    script = Script("/p/one")
    script.change("/p/one/../two/a.py")
    script.change("/p/one-more/b.py")
    script.change("/p/one/./c.py")
    assert list(script.ledger.files) == ["/p/two/a.py", "/p/one-more/b.py", "c.py"]


def test_a_session_that_moves_on_shows_paths_from_its_new_place() -> None:
    script = Script("/p")
    script.change("/p/src/a.py")
    script.add(Session, id="s", cwd="/p/src", version="1", model="m")
    script.change("/p/src/a.py")
    assert [(f.path, f.times) for f in script.ledger.files.values()] == [("a.py", 2)]


def test_files_read_are_those_never_changed() -> None:
    script = Script()
    script.call("Read", {"path": "/p/a.py"})
    script.call("Read", {"path": "/p/b.py"})
    again = script.call("Read", {"path": "/p/a.py"})
    script.change("/p/b.py")
    script.call("Read", {"path": "/p/b.py"})
    script.call("Read", {"path": "/p/missing.py"}, "does not exist", error=True)
    assert dict(script.ledger.read) == {"a.py": again}


def test_the_newest_reading_stands_last() -> None:
    script = Script()
    for name in ("a.py", "b.py", "a.py"):
        script.call("Read", {"path": f"/p/{name}"})
    assert list(script.ledger.read) == ["b.py", "a.py"]


def row(path: str, action: str, added: int = 0, removed: int = 0, **more: Any) -> dict[str, Any]:
    """A change in the form of a result's details."""
    return {"path": path, "action": action, "added": added, "removed": removed, **more}


def test_what_a_command_changed_counts_whether_or_not_it_failed() -> None:
    script = Script()
    script.change("/p/a.py")
    script.call("Read", {"path": "/p/b.py"})
    rows = [row("/p/a.py", "modified", 3, 2), row("/p/b.py", "deleted", 0, 9)]
    details = {"command": "make", "exit_code": 2, "changes": [*rows, row("/tmp/x", "created")]}
    ref = script.call("Bash", details, "error", error=True)
    assert dict(script.ledger.files) == {
        "a.py": FileFact("a.py", "modified", 5, 3, "Bash", ref, 2),
        "b.py": FileFact("b.py", "deleted", 0, 9, "Bash", ref, 1),
        "/tmp/x": FileFact("/tmp/x", "created", 0, 0, "Bash", ref, 1),
    }
    assert script.ledger.read == {}


@pytest.mark.parametrize(
    ("actions", "action"),
    [
        ("created", "created"),
        ("created modified", "created"),
        ("created deleted", "deleted"),
        ("created deleted created", "created"),
        ("created deleted created modified", "created"),
        ("created deleted modified", "created"),
        ("modified", "modified"),
        ("modified created", "modified"),
        ("modified deleted", "deleted"),
        ("modified deleted created", "modified"),
        ("modified deleted created deleted", "deleted"),
        ("deleted", "deleted"),
        ("deleted created", "modified"),
        ("deleted modified", "modified"),
        ("deleted created created", "modified"),
    ],
)
@pytest.mark.parametrize("tool", ["Bash", "Edit"])
def test_what_a_file_is_over_a_session(actions: str, action: str, tool: str) -> None:
    script = Script()
    for each in actions.split():
        if tool == "Edit" and each != "deleted":
            script.change("/p/a.py", created=each == "created", added=1, removed=0)
        else:
            script.call("Bash", {"changes": [row("/p/a.py", each, 1)]})
    (fact,) = script.ledger.files.values()
    count = len(actions.split())
    assert (fact.action, fact.added, fact.times) == (action, count, count)


def test_what_is_known_of_contents() -> None:
    script = Script()
    script.call("Read", {"path": "/p/a", "seen": {"path": "/p/a", "sha256": "1"}})
    script.call("Edit", {"path": "/p/b", "seen": {"path": "/p/b", "sha256": "2"}})
    script.call("Read", {"path": "/p/c", "seen": {"path": "/p/c", "sha256": "3"}})
    changes = [row("/p/b", "modified", blob="4"), row("/p/c", "deleted"), row("/p/d", "created")]
    script.call("Bash", {"changes": changes})
    script.call("Edit", {"path": "/p/e", "seen": {"path": "/p/e"}}, error=True)
    assert script.ledger.contents == {"/p/a": "sha256:1", "/p/b": "blob:4", "/p/c": ""}


def test_the_head_is_where_the_last_command_left_it() -> None:
    script = Script()
    assert script.ledger.head == ""
    script.call("Bash", {"head": "main 1a2b3c4"})
    script.call("Bash", {"command": "ls", "exit_code": 0})
    assert script.ledger.head == "main 1a2b3c4"


OUTPUT = """\
============ FAILURES ============
Traceback (most recent call last):
  File "a.py", line 3, in <module>
KeyError: 'x'
some text in between

1 failed in 0.1s"""


def test_a_failure_is_open_until_the_same_command_passes() -> None:
    script = Script()
    first = script.run("pytest -q", 1, OUTPUT)
    other = script.run("make lint", 2, "no rule")
    fact = CommandFact(
        "pytest -q",
        1,
        first,
        (
            "============ FAILURES ============",
            "Traceback (most recent call last):",
            '  File "a.py", line 3, in <module>',
            "KeyError: 'x'",
            "some text in between",
            "1 failed in 0.1s",
        ),
    )
    assert script.ledger.unresolved() == [fact, CommandFact("make lint", 2, other, ("no rule",))]

    second = script.run("pytest -q", 1, "E  ValueError")
    assert [f.ref for f in script.ledger.unresolved()] == [other, second]
    third = script.run("pytest -q", 0, "3 passed")
    assert [f.ref for f in script.ledger.unresolved()] == [other]
    assert [(f.ref, by) for f, by in script.ledger.resolved] == [(second, third)]
    assert [(f.command, f.exit_code) for f in script.ledger.commands] == [
        ("pytest -q", 1),
        ("make lint", 2),
        ("pytest -q", 1),
        ("pytest -q", 0),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("echo " + "go " * 17_000, ""),
        ("pytest " + "a." * 20_000, ""),
        ("pytest " + "'$x\"" * 2_000, ""),
        *(("pytest | tail", "\n".join([line * (590 // len(line))] * 2_000)) for line in (
            "a::", "FAILED ", "no errors ", "= ", "1 passed, ", "OK (",
        )),
        ("pytest | tail", "a:: 1 failed" * 300_000),
        ("pytest | tail", "\n" * 1_000_000),
    ],
    ids=itertools.count(),
)  # fmt: skip
@pytest.mark.parametrize("code", [0, 1])
def test_any_output_is_read_quickly(command: str, output: str, code: int) -> None:
    script = Script()
    script.run(command, 1, "error: first")
    started = time.process_time()
    script.run(command, code, output)
    assert time.process_time() - started < 10  # about 0.5 at most


def test_what_is_only_shown_is_no_failure() -> None:
    script = Script()
    for command in (
        "cat old.log",
        "cat old.log | tail -3",
        "grep -rn boom . | tail",
        "git diff | cat",
    ):
        script.run(command, 0, "FAILED t/a.py::test_x - boom")
    assert open_commands(script) == []


def summary(script: Script, **document: Any) -> int:
    return script.add(Summary, document=document, text="", covers=[1, 1], keep_from=2)


def test_decisions_and_constraints_are_those_that_stand() -> None:
    script = Script()
    first = summary(script, decisions=["Use SQLite", "No ORM"], facts=["Python 3.11"])
    note = script.add(Note, topic="decision", text="Keep the API")
    denied = script.add(Note, topic="permission", text="not authorised: Bash git push")
    pin = script.add(Pin, text="never touch prod")
    second = summary(script, decisions=["Use SQLite", "Cache it"], facts=["Python 3.12"])
    others = [(denied, "not authorised: Bash git push"), (pin, "never touch prod")]
    whole = [(first, "Use SQLite"), (first, "No ORM"), (note, "Keep the API"), (second, "Cache it")]
    assert script.ledger.decisions == whole
    assert script.ledger.constraints == [(second, "Python 3.12"), *others]
    revert = script.add(Revert, target=second)
    assert script.ledger.decisions == whole[:3]
    assert script.ledger.constraints == [(first, "Python 3.11"), *others]
    script.add(Revert, target=revert)
    assert script.ledger.decisions == whole
    script.add(Revert, target=first)
    assert script.ledger.decisions == [(note, "Keep the API"), (second, "Use SQLite"), whole[3]]


@pytest.mark.parametrize("document", [None, [], {"decisions": "x"}, {"decisions": [1], "facts": 3}])
def test_a_garbled_summary_decides_nothing(document: Any) -> None:
    script = Script()
    script.add(Summary, document=document, text="", covers=[1, 1], keep_from=2)
    assert script.ledger.decisions == []
    assert script.ledger.constraints == []


def test_to_json_is_plain_json() -> None:
    script = Script()
    script.change("/p/a.py")
    script.call("Read", {"path": "/p/b.py"})
    script.run("pytest", 1, "FAILED t/a.py::test_x - boom")
    script.run("pytest", 0, "3 passed")
    script.add(User, content="Mend it.")
    script.add(Note, topic="decision", text="Keep the API")
    script.call("Todo", {"todos": [{"content": "Find", "status": "pending"}]})
    script.add(Pin, text="never touch prod")
    data = script.ledger.to_json()
    assert json.loads(json.dumps(data)) == data
    assert data["files"][0]["path"] == "a.py"
    assert data["resolved"] == [{"ref": 7, "by": 9}]
    assert data["decisions"] == [{"ref": 11, "text": "Keep the API"}]
    assert data["commands"][0]["errors"] == ["FAILED t/a.py::test_x - boom"]


def steps_of(work: Callable[[], object]) -> int:
    """Return the number of interpreter operations that a piece of work takes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.slow
def test_one_more_entry_costs_the_same_however_long_the_log_is() -> None:
    """Counted in operations and allocated memory, which a copy would need."""
    costs = {}
    script = Script()
    kinds = {
        "edit": lambda n: script.change(f"/p/{n}.py"),
        "run": lambda n: script.call(
            "Bash",
            {"command": f"./run {n}", "exit_code": 1, "changes": [row(f"/p/x{n}", "created")]},
            f"FAILED t/a{n}.py::test_x - boom", error=True,
        ),
        "test": lambda n: script.run(f"pytest t/b{n}.py", 1, f"FAILED t/b{n}.py::test_x - boom"),
        "pass": lambda n: script.run("pytest", 0, "1 passed"),
        "read": lambda n: script.call("Read", {"path": f"/p/r{n}.py"}),
        "say": lambda n: script.add(User, content=f"do {n}"),
        "note": lambda n: script.add(Note, topic="decision", text=f"decided {n}"),
        "deny": lambda n: script.add(Note, topic="permission", text=f"not authorised: {n}"),
        "revert": lambda n: script.add(Revert, target=n),
    }  # fmt: skip
    for until in (10, 60_000):
        while script.ref < until:
            for kind in kinds.values():
                kind(script.ref + 100_000)
        for name, kind in kinds.items():
            steps = min(steps_of(partial(kind, 900_000 + until + n)) for n in range(3))
            memory = []
            for n in range(3):
                tracemalloc.start()
                kind(990_000 + until + n)
                memory.append(tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
            costs[name, until] = (steps, min(memory))
    for name in kinds:
        (few, little), (many, much) = costs[name, 10], costs[name, 60_000]
        assert many < few * 1.2 + 100, name
        assert much < little + 20_000, name


def test_error_lines_are_the_last_ones_and_bounded() -> None:
    script = Script()
    script.run("make", 1, "\n".join(f"error {n} {'x' * 400}" for n in range(9)))
    (fact,) = script.ledger.unresolved()
    assert [line[:7] for line in fact.errors] == [f"error {n}" for n in range(3, 9)]
    assert {len(line) for line in fact.errors} == {300}


def test_error_lines_of_an_offloaded_result_are_those_of_its_preview() -> None:
    script = Script()
    text = "**File:** /s/offloaded/error.md\n> ok\n> […]\n> FATAL: disk full\n\n*Full content*"
    ref = script.run("make", 1, text, offloaded="offloaded/error.md")
    assert script.ledger.unresolved()[0].errors == ("ok", "FATAL: disk full")
    assert dict(script.ledger.offloaded) == {"offloaded/error.md": ref}


def test_a_denied_command_did_not_run() -> None:
    script = Script()
    script.call("Bash", {"denied": True}, "Not allowed", error=True)
    assert list(script.ledger.commands) == []
    assert script.ledger.unresolved() == []


def test_a_background_command_has_no_exit_code() -> None:
    script = Script()
    script.run("make serve", 1, "error: port in use")
    ref = script.run("make serve", None)
    assert script.ledger.commands[-1] == CommandFact("make serve", None, ref)


def test_words_todos_and_denials() -> None:
    script = Script()
    words = script.add(User, content="Mend it.")
    script.add(User, content="date: today", source="environment")
    script.add(User, content=[{"type": "text", "text": "See:"}, {"type": "image", "source": {}}])
    script.call("Todo", {"todos": [{"content": "Find", "status": "pending"}]})
    script.call("Todo", {"todos": [{"content": "Find", "status": "completed"}]})
    script.call("Todo", {}, "two are in progress", error=True)
    for _ in range(2):
        script.add(Note, topic="permission", text="not authorised: Bash git push")
    script.add(Note, topic="warning", text="something else")
    assert list(script.ledger.typed_messages) == [(words, "Mend it."), (words + 2, "See:\n[image]")]
    assert list(script.ledger.todos) == [{"content": "Find", "status": "completed"}]
    assert list(script.ledger.denials) == ["not authorised: Bash git push"]


def test_a_denial_stands_with_the_persons_reason_and_with_no_other() -> None:
    script = Script()
    push, write = "not authorised: Bash git push", "not authorised: Write a.txt"
    no = {"answer": "no", "reason": "push to the\nmirror instead"}
    script.add(Note, topic="permission", text=push, data={"answer": "no", "reason": ""})
    script.add(Note, topic="permission", text=push, data=no)
    script.add(Note, topic="permission", text=push, data={"answer": "no", "reason": ""})
    script.add(Note, topic="permission", text=write, data={"answer": "", "reason": "plan mode"})
    assert list(script.ledger.denials) == [push, write]
    said = f"{push} · the user said: push to the mirror instead"
    assert [text for _, text in script.ledger.constraints] == [said, write]


def test_calls_of_a_summary_and_results_without_a_call_are_no_facts() -> None:
    script = Script()
    block = {"type": "tool_use", "id": "x", "name": "Edit", "input": {}}
    script.add(Assistant, content=[block], usage={}, stop_reason=None, model="m", purpose="summary")
    for id in ("x", "y"):
        script.add(ToolResult, tool_use_id=id, content="", details={"path": "/p/a.py"})
    assert script.ledger.files == {}


def test_pins_stand_until_they_are_taken_out() -> None:
    script = Script()
    script.add(Pin, ref=42, text="the schema")
    words = script.add(Pin, text="ask before a migration")
    assert script.ledger.pins == {42: "the schema", words: "ask before a migration"}
    script.add(Pin, ref=42, text="the newer schema")
    script.add(Unpin, ref=99)
    assert script.ledger.pins == {42: "the newer schema", words: "ask before a migration"}
    script.add(Unpin, ref=42)
    assert script.ledger.pins == {words: "ask before a migration"}


@pytest.mark.parametrize("ref", [[], "42", {"seq": 1}])
def test_a_garbled_pin_counts_under_its_own_ref(ref: Any) -> None:
    script = Script()
    own = script.add(Pin, ref=ref, text="the schema")
    script.add(Unpin, ref=ref)
    assert script.ledger.pins == {own: "the schema"}


def test_compaction_changes_no_fact() -> None:
    script = Script()
    ref = script.change("/p/a.py")
    before = dict(script.ledger.files)
    target = {"seq": ref, "tool_use_id": "call-1", "stub": "[…]"}
    script.add(
        Mask, layer="microcompact", targets=[target], tokens_before=9, tokens_after=1, trigger="t"
    )
    assert dict(script.ledger.files) == before


@pytest.mark.parametrize(
    "details",
    [None, [], {"path": 3}, {"path": "/p/a.py", "added": "many"}, {"command": None}, {"todos": 1}],
)
def test_a_garbled_log_is_read(details: Any) -> None:
    script = Script()
    for tool in ("Write", "Read", "Bash", "Todo", "Unknown"):
        script.call(tool, details)
    assert all(fact.added == 0 for fact in script.ledger.files.values())


def test_an_answered_call_is_forgotten() -> None:
    """Its memory is freed, however long the session is."""
    script = Script()
    for _ in range(100):
        script.call("Grep", {"files": 1})
    assert script.ledger._calls == {}


def test_a_real_conversation_gives_real_facts(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "old.txt").write_text("one\n")
    steps = [
        Step(tools=[("Read", {"path": "old.txt"})]),
        Step(tools=[("Write", {"path": "new.txt", "content": "a\nb\n"})]),
        Step(tools=[("Bash", {"command": "seq 1000; echo 'error: no luck'; exit 3"})]),
        Step(text="Done."),
    ]
    talk = Conversation(project, steps, policy=replace(DEFAULT, move_above=200, preview_chars=200))
    talk.say("Make a greeting.")
    ledger = Ledger()
    for entry in talk.entries():
        ledger.add(entry)
    assert {f.path: (f.action, f.added, f.removed) for f in ledger.files.values()} == {
        "new.txt": ("created", 2, 0),
    }
    assert list(ledger.read) == ["old.txt"]
    (failed,) = ledger.unresolved()
    assert failed.exit_code == 3
    assert failed.errors == ("996", "997", "998", "999", "1000", "error: no luck")
    assert [words for _, words in ledger.typed_messages] == ["Make a greeting."]
    assert list(ledger.offloaded.values()) == [failed.ref]


def test_a_command_that_the_person_interrupted_is_no_open_error() -> None:
    script = Script()
    details = {"command": "sleep 9", "exit_code": -15, "interrupted": True}
    script.call("Bash", details, "[interrupted by the user]", error=True)
    assert script.ledger.unresolved() == []
    assert [fact.command for fact in script.ledger.commands] == ["sleep 9"]


def open_commands(script: Script) -> list[str]:
    return [fact.command for fact in script.ledger.unresolved()]


def job(script: Script, text: str, *, code: int | None = None, **details: Any) -> int:
    """The Job tool's details for job-1."""
    told = {"job": "job-1", "command": "make", "exit_code": code, "running": code is None}
    return script.call("Job", {**told, **details}, text)


def start_job(script: Script, command: str) -> int:
    details = {"command": command, "exit_code": None, "job": "job-1", "running": True}
    return script.call("Bash", details, "[job-1 started]")


CUT_SHORT: dict[str, Any] = {"exit_code": -15, "interrupted": True}


def test_a_failure_stays_open_while_the_outcome_of_another_run_is_not_known() -> None:
    script = Script()
    script.run("make", 2, "error: no rule")
    script.call("Bash", {"command": "make", **CUT_SHORT}, "[interrupted by the user]", error=True)
    assert open_commands(script) == ["make"]
    start_job(script, "make")
    assert open_commands(script) == ["make"]
    job(script, "compiling")
    assert open_commands(script) == ["make"]
    end = job(script, "[job-1: exit 0]", code=0)
    assert open_commands(script) == []
    assert [by for _, by in script.ledger.resolved] == [end]
    job(script, "[job-1: exit 2]", code=2)
    assert open_commands(script) == []  # its end was told before


@pytest.mark.parametrize("running", [True, False])  # while its output is read, or not any more
def test_a_job_that_ended_as_soon_as_it_began_counts_once_it_is_read(running: bool) -> None:
    script = Script()
    script.run("make", 2, "Error: first")
    started = {"command": "make", "exit_code": 2, "job": "job-1", "running": running}
    script.call("Bash", started, "[job-1 started]")
    assert [fact.errors for fact in script.ledger.unresolved()] == [("Error: first",)]
    job(script, "Error: second", code=2)
    assert [fact.errors for fact in script.ledger.unresolved()] == [("Error: second",)]


def test_what_a_job_said_and_how_it_ended_counts() -> None:
    script = Script()
    start_job(script, "pytest")
    job(script, "FAILED t/a.py::test_x - boom")
    listed = {"job": "job-1", "exit_code": 1, "running": False}
    script.call("Job", {"jobs": [listed]}, "job-1: exit 1")
    script.call("Job", {"jobs": [listed, 3]}, "job-1: exit 1")
    assert [(f.exit_code, f.errors) for f in script.ledger.unresolved()] == [
        (1, ("FAILED t/a.py::test_x - boom",))
    ]
    ref = job(script, "1 failed in 0.1s", code=1)
    (fact,) = script.ledger.unresolved()
    assert (fact.ref, fact.errors) == (ref, ("FAILED t/a.py::test_x - boom", "1 failed in 0.1s"))


@pytest.mark.parametrize(
    "details", [{"interrupted": True, "code": 1}, {"code": -15}, {"code": 143}]
)
def test_a_job_that_was_ended_says_nothing_of_its_command(details: dict[str, Any]) -> None:
    script = Script()
    start_job(script, "make")
    job(script, "[job-1: killed]", **details)
    assert open_commands(script) == []


def test_a_job_that_began_before_a_failure_does_not_resolve_it() -> None:
    script = Script()
    start_job(script, "pytest")
    script.run("pytest", 1, "FAILED t/a.py::test_x - boom")
    job(script, "3 passed", code=0)
    assert open_commands(script) == ["pytest"]


def test_a_job_failure_reported_after_a_newer_pass_is_resolved() -> None:
    script = Script()
    script.run("pytest", 1, "FAILED t/a.py::test_x - boom")
    start_job(script, "pytest")
    passing = script.run("pytest", 0, "3 passed")
    late = job(script, "FAILED t/a.py::test_x - boom\n1 failed in 9s", code=1)
    assert open_commands(script) == []
    assert [(fact.ref, by) for fact, by in script.ledger.resolved][-1] == (late, passing)
    start_job(script, "pytest")
    job(script, "FAILED t/a.py::test_x - boom\n1 failed in 9s", code=1)
    assert open_commands(script) == ["pytest"]


def test_a_job_failure_reported_after_a_newer_failure_does_not_replace_it() -> None:
    script = Script()
    start_job(script, "make")
    newer = script.run("make", 2, "expected 4 but got 3")
    late = job(script, "expected 9 but got 3", code=2)
    assert [fact.ref for fact in script.ledger.unresolved()] == [newer]
    assert [fact.ref for fact in script.ledger.past_failures()] == [late]
    script.run("make", 0, "")
    assert open_commands(script) == []


def test_a_job_that_is_reported_twice_counts_with_its_whole_output() -> None:
    script = Script()
    start_job(script, "make")
    details = {"job": "job-1", "exit_code": 2}
    script.add(User, content="It ended.", source="notice", details=details)
    ref = job(script, "expected 4 but got 3", code=2)
    assert [(f.ref, f.errors) for f in script.ledger.unresolved()] == [
        (ref, ("expected 4 but got 3",))
    ]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("grep -rn foo src", 1), ("cd src && grep -q foo a.py", 1), ("test -f a.cfg", 1),
        ("[ -e a ] || which b", 1), ("git diff --quiet -- a", 1), ("git -C sub grep foo", 1),
        ("make 2>&1 | grep -i warning", 1), ("pytest; grep -c foo log", 1), ("! command -v a", 1),
        ('test -z "$(git status)"', 1), ("ls nowhere", 2), ("cat nowhere 2>&1 | head", 1),
    ],
)  # fmt: skip
def test_a_question_that_is_answered_no_is_no_failure(command: str, code: int) -> None:
    script = Script()
    script.run(command, code, "")
    assert open_commands(script) == []


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("grep -rn foo nowhere", 2), ("pytest && grep -q foo log", 1), ("git push", 1),
        ("set -o pipefail; make | grep error", 1), ("grep foo a; make", 1), ("echo 'a", 2),
        ('for f in a b; do grep "$(cat $f)" c; false; done', 1), ("cd nowhere", 1),
    ],
)  # fmt: skip
def test_real_failures_are_not_negative_answers(command: str, code: int) -> None:
    script = Script()
    script.run(command, code, "")
    assert open_commands(script) == [command]


@pytest.mark.parametrize(
    ("again", "output"),
    [
        ("cd /p && npm run build", ""), ("npm run build > log", ""),
        ("npm run build 2>&1 | tail -20", "done"), ("npm ci && npm run build", ""),
        ("npm run build; ls dist", "Found 0 errors"),
    ],
)  # fmt: skip
def test_the_same_work_in_other_words_resolves_a_failure(again: str, output: str) -> None:
    script = Script()
    script.run("npm run build", 2, "error TS2304: x")
    script.run(again, 0, output)
    assert open_commands(script) == []


@pytest.mark.parametrize(
    ("again", "output"),
    [
        ("npm run build 2>&1 | tail -20", "some text"), ("npm run build | tail", "npm ERR!\nbye"),
        ("npm run build | grep -c x", "0 ok"), ("npm run build > log; true", "ok"),
        ("npm run lint", ""), ("cd sub && npm run build", ""), ("CI=1 npm run build", ""),
        ("(npm run build)", ""),
    ],
)  # fmt: skip
def test_in_doubt_a_failure_stays_open(again: str, output: str) -> None:
    script = Script()
    script.run("npm run build", 2, "error TS2304: x")
    script.run(again, 0, output)
    assert open_commands(script) == ["npm run build"]


def test_an_error_in_the_last_line_behind_a_filter_is_an_open_failure() -> None:
    script = Script()
    lines = "FAILED t/a.py::test_x - boom\n1 failed in 1s"
    ref = script.run("pytest -q 2>&1 | tail -3", 0, lines)
    assert [(f.ref, f.errors[0]) for f in script.ledger.unresolved()] == [
        (ref, "FAILED t/a.py::test_x - boom")
    ]
    script.run("make check | tee log | tail -1", 0, "make: *** [check-web] Error 1")
    assert len(open_commands(script)) == 2
    again = script.run("pytest -q | tail -1", 0, "1 failed in 2s")
    assert [f.ref for f in script.ledger.unresolved()] == [again - 2, again]
    script.run("pytest -q", 0, "")
    script.run("make check | tail -1", 0, "12 checks done, 0 errors")
    assert open_commands(script) == []


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("pytest | tail -3", "1 failed before\n3 passed"), ("pytest | tail -3", "no errors"),
        ("pytest | tail -3", ""), ("pytest | tail -3; ls", "1 failed"), ("pytest", "1 failed"),
        ("pytest | grep -c x", "1 failed"), ("pytest > log | tail", "1 failed"),
        ("set -o pipefail; pytest | tail", "1 failed"), ("pytest; echo x | tail", "1 failed"),
    ],
)  # fmt: skip
def test_only_the_last_line_behind_a_filter_tells_of_a_failure(command: str, output: str) -> None:
    script = Script()
    script.run(command, 0, output)
    assert open_commands(script) == []


def test_the_same_tests_in_another_selection_stay_an_open_failure() -> None:
    script = Script()
    script.run("pytest -q test_a.py", 1, "FAILED test_a.py::test_one - assert 1")
    script.run("pytest -q", 0, "2 passed in 0.1s")
    assert open_commands(script) == ["pytest -q test_a.py"]
    script.run("cd . && pytest -q test_a.py", 0, "1 passed in 0.1s")
    assert open_commands(script) == []


def test_a_dropped_message_is_listed_again_after_a_restore_or_an_undo() -> None:
    script = Script()
    ref = script.add(User, content="hello")
    sizes = {"tokens_before": 0, "tokens_after": 0, "trigger": ""}

    def mask(layer: str, **target: Any) -> int:
        return script.add(Mask, layer=layer, targets=[{"seq": ref, **target}], **sizes)

    def listed() -> list[int]:
        return [message.ref for message in script.ledger.messages]

    mask(DROP, text="dropped", at=ref)
    assert listed() == [] == script.ledger.typed_messages
    restored = mask("restore", whole=True)
    assert listed() == [ref]
    script.add(Revert, target=restored, reason="")
    assert listed() == []
    mask("outline", outline="an outline")
    script.add(Revert, target=restored - 1, reason="")
    assert listed() == [ref]
