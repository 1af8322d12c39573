"""The ledger: facts from the log, entry by entry, without a model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.model.scripted import Step
from ctxagent.agent.record.entries import (
    Assistant,
    Mask,
    Note,
    Pin,
    Session,
    ToolResult,
    Unpin,
    User,
)
from ctxagent.agent.record.ledger import CommandFact, FileFact, Ledger

from .support.conversation import Conversation


class Script:
    """A ledger fed by hand; `ref` is the seq of the newest entry."""

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
        """A call and its result; the ref of the result."""
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


def test_a_plain_rm_deletes_what_is_known() -> None:
    script = Script()
    script.change("/p/old/a.py", created=True)
    script.change("/p/old.py")
    script.call("Read", {"path": "/p/old/b c.py"})
    ref = script.run("git rm -r old")
    script.run("rm -f 'never seen.py'")
    files = script.ledger.files
    assert files["old/a.py"] == FileFact("old/a.py", "deleted", 2, 1, "Bash", ref, 2)
    assert files["old/b c.py"].action == "deleted"
    assert files["old.py"].action == "modified"
    assert len(files) == 3
    assert script.ledger.read == {}

    script.change("/p/old/b c.py", "Write", created=True)
    assert script.ledger.files["old/b c.py"].action == "created"


@pytest.mark.parametrize(
    "command", ["rm a.py && make", "git rm --cached a.py", "echo rm a.py", "rm 'a.py", "rm $X a.py"]
)
def test_a_command_that_may_not_delete_deletes_nothing(command: str) -> None:
    script = Script()
    script.change("/p/a.py")
    script.run(command)
    assert script.ledger.files["a.py"].action == "modified"


def test_an_rm_that_failed_deletes_nothing() -> None:
    script = Script()
    script.change("/p/a.py")
    script.run("rm a.py", 1, "rm: cannot remove 'a.py': Permission denied")
    assert script.ledger.files["a.py"].action == "modified"


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
            "KeyError: 'x'",
            "1 failed in 0.1s",
        ),
    )
    assert script.ledger.unresolved() == [fact, CommandFact("make lint", 2, other, ("no rule",))]

    second = script.run("pytest -q", 1, "E  ValueError")
    assert [f.ref for f in script.ledger.unresolved()] == [other, second]
    script.run("pytest -q", 0, "3 passed")
    assert [f.ref for f in script.ledger.unresolved()] == [other]
    assert [(f.command, f.exit_code) for f in script.ledger.commands] == [
        ("pytest -q", 1),
        ("make lint", 2),
        ("pytest -q", 1),
        ("pytest -q", 0),
    ]


def test_error_lines_are_the_last_five_and_bounded() -> None:
    script = Script()
    script.run("make", 1, "\n".join(f"error {n} {'x' * 400}" for n in range(9)))
    (fact,) = script.ledger.unresolved()
    assert [line[:7] for line in fact.errors] == [f"error {n}" for n in range(4, 9)]
    assert {len(line) for line in fact.errors} == {300}


def test_error_lines_of_an_offloaded_result_are_those_of_its_preview() -> None:
    script = Script()
    text = "**File:** /s/offloaded/error.md\n> ok\n> […]\n> FATAL: disk full\n\n*Full content*"
    ref = script.run("make", 1, text, offloaded="offloaded/error.md")
    assert script.ledger.unresolved()[0].errors == ("FATAL: disk full",)
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
    assert list(script.ledger.words) == [(words, "Mend it."), (words + 2, "See:\n[image]")]
    assert list(script.ledger.todos) == [{"content": "Find", "status": "completed"}]
    assert list(script.ledger.denials) == ["not authorised: Bash git push"]


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


def test_what_compaction_does_changes_no_fact() -> None:
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
def test_a_garbled_log_is_no_obstacle(details: Any) -> None:
    script = Script()
    for tool in ("Write", "Read", "Bash", "Todo", "Unknown"):
        script.call(tool, details)
    assert all(fact.added == 0 for fact in script.ledger.files.values())


def test_an_answered_call_is_forgotten() -> None:
    """What a call costs in memory is given back, however long the session is."""
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
        Step(tools=[("Bash", {"command": "rm old.txt"})]),
        Step(tools=[("Bash", {"command": "seq 1000; echo 'error: no luck'; exit 3"})]),
        Step(text="Done."),
    ]
    talk = Conversation(project, steps, policy=replace(DEFAULT, demote_above=200))
    talk.say("Make a greeting.")
    ledger = Ledger()
    for entry in talk.entries():
        ledger.add(entry)
    assert {f.path: (f.action, f.added, f.removed) for f in ledger.files.values()} == {
        "new.txt": ("created", 2, 0),
        "old.txt": ("deleted", 0, 0),
    }
    assert dict(ledger.read) == {}
    (failed,) = ledger.unresolved()
    assert (failed.exit_code, failed.errors) == (3, ("error: no luck",))
    assert [words for _, words in ledger.words] == ["Make a greeting."]
    assert list(ledger.offloaded.values()) == [failed.ref]
