"""Truncation: only content that is on disk leaves the context, with real Write and Edit calls."""

import asyncio
import hashlib
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.compaction.layers.truncate import (
    MAX_FILE_BYTES,
    file_sha256,
    plan,
    plan_replaced,
)
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.context.items import shown_blocks
from ctxagent.agent.errors import ToolError
from ctxagent.tools.base import Context, Tool
from ctxagent.tools.edit import EditTool
from ctxagent.tools.read import ReadTool
from ctxagent.tools.write import WriteTool

from ..support.sessions.history import History, called, words

TOOLS: dict[str, Tool[Any]] = {"Read": ReadTool(), "Write": WriteTool(), "Edit": EditTool()}
ALL = replace(DEFAULT, clear_keep=0)
PERSISTED = replace(ALL, truncate="persisted")


class Project:
    """A folder that real tools change, and the log of their calls."""

    def __init__(self, folder: Path) -> None:
        self.context = Context(cwd=folder)
        self.history = History()
        self.history.say("go")

    def write(self, path: str, content: str) -> int:
        """The seq of the call, as for `edit`."""
        return self._run("Write", {"path": path, "content": content})

    def edit(self, path: str, old: str, new: str, **more: Any) -> int:
        return self._run("Edit", {"path": path, "old_string": old, "new_string": new, **more})

    def read(self, path: str) -> int:
        return self._run("Read", {"path": path})

    def _run(self, name: str, given: dict[str, Any]) -> int:
        tool = TOOLS[name]
        try:
            output = asyncio.run(tool.run(tool.Params.model_validate(given), self.context))
        except ToolError as error:
            return self.history.call(name, given, str(error), is_error=True) - 1
        return self.history.call(name, given, output.text, details=output.details) - 1

    def due(self, policy: Any = ALL) -> list[int]:
        return [target["seq"] for target in plan(self.history.view(), policy, file_sha256)]

    def shortened(self) -> list[dict[str, Any]]:
        """The inputs as they would be in the context."""
        return [target["input"] for target in plan(self.history.view(), ALL, file_sha256)]


def lines(count: int, word: str = "word") -> str:
    return f"a {word} in a line of seven\n" * count


# What is due


def test_a_large_write_whose_content_is_on_disk(tmp_path: Path) -> None:
    project = Project(tmp_path)
    seq = project.write("report.md", lines(500))
    note = (
        "[4,000 tokens compacted · wrote 500 lines to report.md · content persisted to disk · "
        f"Read it there, or see #{seq}]"
    )
    assert plan(project.history.view(), ALL, file_sha256) == [
        {
            "seq": seq,
            "tool_use_id": "c2",
            "input": {"path": "report.md", "content": note},
        }
    ]


def test_small_inputs_stay(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("a.md", words(200))
    assert project.due() == []
    over = project.write("a.md", words(201))
    assert project.due() == [over]


def test_the_beginning_of_another_tools_input_stays(tmp_path: Path) -> None:
    project = Project(tmp_path)
    bash = project.history.call("Bash", {"command": "x = 1\n" * 200}, "ok") - 1
    given = {"tool": "mcp__a__b", "arguments": {"sql": words(300), "rows": [words(90), 5]}}
    mcp = project.history.call("Mcp", given, "No.", is_error=True) - 1
    plan_ = project.history.call("Plan", {"plan": words(900)}, "ok") - 1
    assert project.due() == [bash, mcp], f"what was agreed to in #{plan_} stays"
    assert project.due(PERSISTED) == []
    first, second = project.shortened()
    head = ("x = 1\n" * 14)[:79]
    assert first == {"command": f"{head}… [800 tokens compacted · full text: #{bash}]"}
    assert second["tool"] == "mcp__a__b"
    sql, rows = second["arguments"].values()
    assert sql.startswith("word word")
    assert sql.endswith(f"[390 tokens compacted · full text: #{mcp}]")
    assert (rows[0].endswith("… [compacted]"), rows[1]) == (True, 5)


def test_the_newest_of_other_tools_stay(tmp_path: Path) -> None:
    project = Project(tmp_path)
    seqs = [project.history.call("Bash", {"command": words(300)}, "ok") - 1 for _ in range(5)]
    project.write("a.md", lines(60))
    assert project.due(DEFAULT) == seqs[:2]


def test_the_newest_three_calls_stay(tmp_path: Path) -> None:
    project = Project(tmp_path)
    seqs = [project.write(f"{n}.md", lines(60)) for n in range(4)]
    assert project.due(DEFAULT) == seqs[:1]
    project.edit("0.md", "no such text", "x")
    assert project.due(DEFAULT) == seqs[:2], "a failed call is a call"


def test_a_call_that_failed_keeps_its_input(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "a.md").write_text("never seen")
    project.write("a.md", lines(60))
    assert (tmp_path / "a.md").read_text() == "never seen"
    assert project.due() == []


def test_a_call_that_failed_keeps_its_input_whatever_it_left(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "a.md").write_text(lines(60))
    seen = project.context.seen.note(tmp_path / "a.md", lines(60).encode())
    given = {"path": "a.md", "content": lines(60)}
    project.history.call("Write", given, "No.", is_error=True, details={"seen": seen})
    assert project.due() == []


def test_a_call_without_a_result_keeps_its_input(tmp_path: Path) -> None:
    project = Project(tmp_path)
    given = {"path": "a.md", "content": lines(60)}
    project.history.reply(called("c", "Write", given))
    project.history.say("Stop.")
    assert project.due() == []


def test_a_file_that_others_changed_keeps_its_input(tmp_path: Path) -> None:
    project = Project(tmp_path)
    first, second = project.write("a.md", lines(60)), project.write("b.md", lines(60))
    (tmp_path / "a.md").write_text("other")
    assert project.due(PERSISTED) == [second]
    project.read("a.md")
    assert project.due(PERSISTED) == [second], "what others wrote is known, but is not ours"
    (tmp_path / "b.md").unlink()
    assert project.due(PERSISTED) == []
    (tmp_path / "a.md").write_text(lines(60))
    assert project.due(PERSISTED) == [first]


def test_an_input_that_differs_from_the_disk_names_that(tmp_path: Path) -> None:
    project = Project(tmp_path)
    seq = project.write("a.md", lines(60))
    (tmp_path / "a.md").write_text("other")
    assert project.shortened() == [
        {
            "path": "a.md",
            "content": "[480 tokens compacted · wrote 60 lines to a.md · the file differs now · "
            f"full text: #{seq}]",
        }
    ]


def test_what_a_later_call_of_ours_replaced_is_history(tmp_path: Path) -> None:
    project = Project(tmp_path)
    first = project.write("a.md", lines(60))
    second = project.edit("./a.md", "word", "term", replace_all=True)
    third = project.edit("a.md", lines(60, "term"), lines(30))
    assert project.due() == [first, third], "the second is small"
    assert second not in project.due()
    note, _ = (given.get("content") or given.get("new_string") for given in project.shortened())
    assert note is not None
    assert "content persisted to disk, changed since · " in note
    (tmp_path / "a.md").write_text("other")
    assert project.due(PERSISTED) == []


def test_a_change_by_others_between_two_edits_of_the_session(tmp_path: Path) -> None:
    """The file is as the session's last call left it, so its content is known again."""
    project = Project(tmp_path)
    first = project.write("a.md", lines(60))
    (tmp_path / "a.md").write_text("other\n")
    project.read("a.md")
    second = project.edit("a.md", "other", lines(60))
    assert project.due() == [first, second]


def test_an_older_content_brought_back_by_others(tmp_path: Path) -> None:
    project = Project(tmp_path)
    first = project.write("a.md", lines(60))
    project.write("a.md", lines(70))
    (tmp_path / "a.md").write_text(lines(60))
    assert project.due(PERSISTED) == [first]


def test_oldest_first_then_largest(tmp_path: Path) -> None:
    project = Project(tmp_path)
    oldest = project.write("a.md", lines(60))
    uses, results = [], []
    for n, size in enumerate((50, 90, 70)):
        given = {"path": f"{n}.md", "content": lines(size)}
        output = asyncio.run(TOOLS["Write"].run(WriteTool.Params(**given), project.context))
        uses.append(called(f"p{n}", "Write", given))
        results.append((f"p{n}", output))
    project.history.reply(*uses)
    for id, output in results:
        project.history.answer(id, output.text, details=output.details)
    targets = plan(project.history.view(), ALL, file_sha256)
    assert targets[0]["seq"] == oldest
    assert [target["tool_use_id"] for target in targets[1:]] == ["p1", "p2", "p0"]


def test_the_disk_is_asked_once_for_each_file_that_could_be_due(tmp_path: Path) -> None:
    project = Project(tmp_path)
    for n in range(3):
        project.write("a.md", lines(60 + n))
    project.write("small.md", "x")
    asked: list[str] = []

    def record(path: str) -> str | None:
        asked.append(path)
        return file_sha256(path)

    targets = plan(project.history.view(), ALL, record)
    assert asked == [str(tmp_path / "a.md")]
    project.history.mask("truncate", targets)
    assert plan(project.history.view(), ALL, record) == []
    assert len(asked) == 1


# What stands in place of an input


def test_an_edit_keeps_its_keys(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("a.md", lines(40))
    seq = project.edit("a.md", lines(40), lines(1), replace_all=True)
    assert project.shortened()[-1] == {
        "path": "a.md",
        "old_string": (
            "[320 tokens compacted · replaced 40 lines by 1 line in a.md · content persisted to "
            f"disk · Read it there, or see #{seq}]"
        ),
        "new_string": lines(1),
        "replace_all": True,
    }


def test_one_note_stands_for_both_strings_of_an_edit(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("a.md", lines(40))
    project.edit("a.md", lines(40), lines(50))
    given = project.shortened()[-1]
    assert given["old_string"].startswith("[720 tokens compacted · replaced 40 lines by 50 lines")
    assert given["new_string"] == "[compacted]"


def test_a_last_line_without_an_end_counts(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("a.md", lines(60) + "end")
    assert "wrote 61 lines to a.md" in project.shortened()[0]["content"]


# The file on disk


def test_the_digest_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\xff\r\n")
    assert file_sha256(str(path)) == hashlib.sha256(b"\xff\r\n").hexdigest()
    os.truncate(path, MAX_FILE_BYTES)
    assert file_sha256(str(path)) is not None
    os.truncate(path, MAX_FILE_BYTES + 1)
    assert file_sha256(str(path)) is None


def test_no_digest_without_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert file_sha256(str(tmp_path / "fifo")) is None
    assert file_sha256(str(tmp_path)) is None
    assert file_sha256(str(tmp_path / "missing")) is None
    assert file_sha256("a\0b") is None


# For any honest session

thought = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
paths = st.sampled_from(["a.md", "b.md"])
texts = st.sampled_from(["x", lines(40), lines(50), lines(60)])
steps = st.one_of(
    st.tuples(st.just("write"), paths, texts),
    st.tuples(st.just("edit"), paths, texts),
    st.tuples(st.just("other"), paths, texts),
    st.tuples(st.just("say"), paths, texts),
)


def play(project: Project, step: tuple[str, str, str]) -> None:
    what, path, text = step
    file = project.context.cwd / path
    if what == "write":
        project.write(path, text)
    elif what == "edit":
        project.edit(path, file.read_text() if file.exists() else "x", text)
    elif what == "other":
        file.write_text(f"{text}by others\n")
    else:
        project.history.reply(thought, {"type": "text", "text": "Done."})
        project.history.say("Go on.")


def structure(history: History) -> list[Any]:
    """All blocks except thinking, with only the keys of each call's input."""
    blocks = [block for item in history.view().items for block in shown_blocks(item)]
    return [
        {**block, "input": (block["input"]["path"], sorted(block["input"]))}
        if block["type"] == "tool_use"
        else block
        for block in blocks
        if block["type"] != "thinking"
    ]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(steps, min_size=1, max_size=9), st.sampled_from([DEFAULT, ALL]))
def test_truncating_before_every_call(session: list[tuple[str, str, str]], policy: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder).resolve())
        history = project.history
        for step in session:
            play(project, step)
            before, shape = history.view(), structure(history)
            targets = plan(before, policy, file_sha256)
            assert targets == plan(history.view(), policy, file_sha256)
            if not targets:
                continue
            history.mask("truncate", targets)
            after = history.view()
            assert plan(after, policy, file_sha256) == []
            assert structure(history) == shape
            assert after.size < before.size
            history.request()


def test_the_digest_of_a_file_follows_its_content(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    for content in (b"one", b"two"):
        path.write_bytes(content)
        for _ in range(2):  # the second time it is known
            assert file_sha256(str(path)) == hashlib.sha256(content).hexdigest()
    assert file_sha256(str(tmp_path)) is None


# Only the text that an edit replaced


def test_the_replaced_text_of_old_edits(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("a.txt", lines(30) + lines(20, "note"))
    first = project.edit("a.txt", lines(20, "note"), "the end\n")
    project.edit("a.txt", "the end", "the last")  # too short to be worth a note
    failed = project.edit("a.txt", lines(9, "lost"), "found")
    newest = project.edit("a.txt", lines(30), "begin\n")
    view = project.history.view()
    one_kept = replace(ALL, clear_keep=1)
    (target,) = plan_replaced(view, one_kept)
    note = f"[20 lines, 160 tokens compacted · full text: #{first}]"
    assert target["seq"] == first
    assert target["input"] == {"path": "a.txt", "old_string": note, "new_string": "the end\n"}
    assert [each["seq"] for each in plan_replaced(view, ALL)] == [first, newest]
    assert failed not in {first, newest}
    assert plan_replaced(view, replace(ALL, clear_keep=9)) == []


def test_the_rest_of_an_input_follows_later(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("a.txt", "the end\n")
    seq = project.edit("a.txt", "the end\n", lines(40))
    project.edit("a.txt", lines(40), lines(90, "note"))
    history = project.history
    history.mask("truncate", plan_replaced(history.view(), ALL))
    assert plan_replaced(history.view(), ALL) == []
    targets = plan(history.view(), ALL, file_sha256)
    assert [target["seq"] for target in targets] == [seq, seq + 2]
    history.mask("truncate", targets)
    assert plan(history.view(), ALL, file_sha256) == plan_replaced(history.view(), ALL) == []
    shown = [block for item in history.view().items for block in shown_blocks(item)]
    assert lines(1) not in str([block.get("input") for block in shown])
