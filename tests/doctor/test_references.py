"""References of a log's entries, and missing entries and files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from ctxagent.addons.doctor.repair import LOST_KEY
from ctxagent.addons.doctor.session import MAX_NAMED, References
from ctxagent.addons.doctor.setup import Finding
from ctxagent.agent.compaction.recovery import failure_note
from ctxagent.agent.session.entries import (
    Assistant,
    Checkpoint,
    Entry,
    Mask,
    Note,
    Pin,
    Revert,
    SubagentRun,
    Summary,
    ToolResult,
    Unknown,
    Unpin,
    User,
)


def gathered(*entries: Entry) -> References:
    """The references of entries that are numbered from 1."""
    found = References()
    for seq, entry in enumerate(entries, 1):
        found.add(replace(entry, seq=seq))
    return found


def findings(folder: Path, *entries: Entry) -> dict[str, Finding]:
    rows = gathered(*entries).findings(folder)
    assert len({row.what for row in rows}) == len(rows)
    return {row.what: row for row in rows}


def call(*ids: str, purpose: str = "turn") -> Assistant:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": "x"}]
    blocks += [{"type": "tool_use", "id": id, "name": "Bash", "input": {}} for id in ids]
    return Assistant(content=blocks, usage={}, stop_reason=None, model="m", purpose=purpose)


def result(id: str, offloaded: str | None = None) -> ToolResult:
    return ToolResult(tool_use_id=id, content="x", offloaded=offloaded)


def summary(keep_from: int, covers: tuple[int, int] = (1, 1), *keep: int) -> Summary:
    return Summary(document={}, text="", covers=[*covers], keep_from=keep_from, keep=[*keep])


def mask(*seqs: Any) -> Mask:
    targets = [{"seq": seq} for seq in seqs]
    return Mask(layer="", targets=targets, tokens_before=0, tokens_after=0, trigger="")


def test_an_empty_log_has_nothing_missing(tmp_path: Path) -> None:
    assert gathered().findings(tmp_path) == [
        Finding("entries", "none"),
        Finding("calls without a result", "none"),
    ]


def test_entries_are_counted_by_kind(tmp_path: Path) -> None:
    rows = findings(tmp_path, User(content=""), call(), User(content=""), Unknown(name="new" * 20))
    assert rows["entries"].found == "2 user, 1 assistant, 1 unknown"
    assert rows["unknown kinds"] == Finding("unknown kinds", f"1 {('new' * 20)[:40]}")


def test_calls_and_results_find_each_other(tmp_path: Path) -> None:
    rows = findings(
        tmp_path, call("a", "b" * 60), result("a"), result("c"), result("a"), call("d", purpose="x")
    )
    assert rows["calls without a result"].found == (
        f"#1 Bash ({'b' * 40}); the model is told that the outcome is unknown"
    )
    assert rows["results without a call"].found == "#3, #4; not sent"
    assert all(row.ok for row in rows.values())


def test_many_of_one_kind_are_named_up_to_a_bound(tmp_path: Path) -> None:
    rows = findings(tmp_path, *(result("x") for _ in range(MAX_NAMED + 2)))
    assert rows["results without a call"].found == "#1, #2, #3, #4, #5 and 2 more; not sent"


def test_names_of_entries_that_are_not_there() -> None:
    found = gathered(
        User(content=""),
        mask(1, 30, 20, "x"),
        summary(1, (1, 40)),
        summary(1, (1, 1), 50),
        Revert(target=60),
        Pin(ref=70),
        Pin(text="own words"),
        Unpin(ref=80),
        mask(1),
    )
    assert found.dangling() == [
        "mask #2 refers to #20",
        "summary #3 refers to #40",
        "summary #4 refers to #50",
        "revert #5 refers to #60",
        "pin #6 refers to #70",
        "unpin #8 refers to #80",
    ]


def test_numbers_that_a_repair_has_lost_are_no_missing_entries(tmp_path: Path) -> None:
    lost = Note(topic="warning", text="", data={LOST_KEY: [2, 5]})
    found = gathered(User(content=""), lost)
    for seq, target in ((6, 1), (7, 2), (8, 5), (9, 10)):
        found.add(replace(Revert(target=target), seq=seq))
    assert found.dangling() == ["revert #9 refers to #10"]
    (row,) = [row for row in found.findings(tmp_path) if "missing entries" in row.what]
    assert row == Finding("references to missing entries", "revert #9 refers to #10; ignored")


def test_a_summary_that_keeps_nothing_of_the_end_is_broken(tmp_path: Path) -> None:
    rows = findings(tmp_path, User(content=""), summary(9), summary(3))
    assert rows["summary"] == Finding(
        "summary", "#2 keeps only entries from #9 on, after itself", False
    )
    undone = gathered(User(content=""), summary(9), Revert(target=2))
    assert undone.impossible_summaries() == []
    again = gathered(User(content=""), summary(9), Revert(target=2), Revert(target=3))
    assert [each.seq for each in again.impossible_summaries()] == [2]


def test_a_recovery_that_failed_is_to_be_reviewed(tmp_path: Path) -> None:
    rows = findings(tmp_path, failure_note("nothing left"), Note(topic="x", text="other"))
    assert rows["failed recoveries, to be reviewed"].found == "#1 nothing left"


def test_files_that_are_gone_are_named(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    (tmp_path / "empty").touch()
    entries = [
        call("a", "b", "c"),
        result("a", "there"),
        result("b", "empty"),
        User(content="", offloaded="gone\0"),
        Checkpoint(number=1, path="there"),
        Checkpoint(number=2, path="gone"),
        Checkpoint(number=3, path=""),
        SubagentRun(id="x", type="t", prompt="", log="gone"),
        SubagentRun(id="x", type="t", prompt="", log="there", status="done"),
    ]
    rows = findings(tmp_path, *entries)
    assert rows["results in files"] == Finding(
        "results in files",
        "missing or empty: #3 empty, #4 gone\0; only the beginning and the end of these texts are "
        "left",
        False,
    )
    assert rows["checkpoints"] == Finding(
        "checkpoints",
        "no file for 2: you cannot rewind to it, but the log has its messages",
    )
    assert rows["subagents"] == Finding("subagents", "1 there")
    found = gathered(*entries)
    assert found.missing_texts(tmp_path) == {3: "empty", 4: "gone\0"}
    lost = findings(tmp_path, SubagentRun(id="x", type="t", prompt="", log="gone"))["subagents"]
    assert lost.found.startswith("no log of x: the answer is in this log")
    assert lost.ok
