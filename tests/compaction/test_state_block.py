"""The state block: what it lists, where it stands, and when it changes."""

from typing import Any

from ctxagent.agent.compaction.document import SummaryDocument
from ctxagent.agent.compaction.layers import outline
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.compaction.state_block import (
    BLOCK_SHARE,
    HEADER,
    MIN_BLOCK_TOKENS,
    state_block,
)
from ctxagent.agent.context.items import shown_blocks
from ctxagent.agent.context.tokens import estimate
from ctxagent.agent.context.view import View
from ctxagent.agent.session.entries import End, Mask, Revert, Session, Summary, decode, encode
from ctxagent.agent.session.ledger import Ledger

from ..support.sessions.history import History, words


def ledger(history: History) -> Ledger:
    found = Ledger()
    for entry in history.entries:
        found.add(entry)
    return found


def lines(history: History, window: int = 200_000) -> list[str]:
    header, *rest = state_block(ledger(history), window).split("\n")
    assert header == HEADER
    return rest


def changed(history: History, path: str, *, created: bool = False) -> int:
    details = {"path": path, "created": created}
    return history.call("Edit", {"path": path}, "ok", details=details)


def ran(history: History, command: str, code: int, said: str, **more: Any) -> int:
    details = {"command": command, "exit_code": code, **more}
    return history.call("Bash", {"command": command}, said, is_error=code != 0, details=details)


def test_it_lists_what_the_log_knows() -> None:
    history = History()
    history.say("go")
    changed(history, "/a.py", created=True)
    changed(history, "/my file.py")
    rows = [{"path": "/old.py", "action": "deleted"}]
    ran(history, "rm old.py", 0, "", changes=rows, head="main 1a2b3c4")
    history.call("Read", {"path": "/b.py"}, "x", details={"path": "/b.py"})
    ref = ran(history, "sh check.sh", 1, "合計が一致しません\n[exit 1]")
    ran(history, "make", 2, "no")
    ran(history, "make", 0, "yes")
    todos = [{"content": "Repair it", "status": "in_progress"}]
    history.call("Todo", {"todos": todos}, "ok", details={"todos": todos})
    job = {"command": "make serve", "job": "job-1", "running": True}
    history.call("Bash", {"command": "make serve"}, "", details=job)
    assert lines(history) == [
        "Files created: a.py",
        "Files modified: my file.py",
        "Files deleted: old.py",
        f"Still failing: `sh check.sh` failed (exit 1, #{ref}):",
        "  | 合計が一致しません",
        "Todo list: (in_progress) Repair it",
        "Running: job-1, `make serve`",
        "Last commit: main 1a2b3c4",
        "Files read: b.py",
    ]
    history.add(Session, id="s", cwd="/", version="1", model="m")
    assert not any("make serve" in line for line in lines(history)), "jobs end with the process"


def test_next_steps_of_a_summary_that_are_answered_since_are_named() -> None:
    history = History()
    history.say("Rename src to lib.")
    steps = ("Rename src to lib", "Repair the totals.")
    fields = {"text": "", "covers": (2, 2), "keep_from": 3, "tokens_before": 0, "tokens_after": 0}
    document = SummaryDocument(next_steps=steps).to_json()
    history.add(Summary, document=document, trigger="test", **fields)
    summary = history.entries[-1]
    assert isinstance(summary, Summary)
    assert state_block(ledger(history), 200_000, summary) == ""
    history.add(End, status="ok")
    told = state_block(ledger(history), 200_000, summary)
    assert told == f"{HEADER}\nAnswered since the summary: Rename src to lib"


def test_without_facts_there_is_no_block() -> None:
    assert state_block(Ledger(), 200_000) == ""


def test_only_files_that_did_not_change_are_counted_by_folder() -> None:
    history = History()
    history.say("go")
    for n in range(300):
        path = f"/src/part{n % 3}/file{n}.py"
        history.call("Read", {"path": path}, "x", details={"path": path})
    for n in range(40):
        changed(history, f"/lib/changed{n}.py")
    block = state_block(ledger(history), 40_000)
    assert all(f"lib/changed{n}.py" in block for n in range(40))
    read = block.rpartition("Files read: ")[2]
    assert "in src/part0/" in read
    assert read.endswith("src/part2/file299.py")
    assert estimate(block) <= 2 * MIN_BLOCK_TOKENS == BLOCK_SHARE * 40_000
    counted = [int(part.split()[0]) for part in read.split("; ") if " in " in part]
    assert sum(counted) + sum(" in " not in part for part in read.split("; ")) == 300


def outlined(history: History, count: int) -> None:
    """Make calls, outline them, and record a block with the outline."""
    for _ in range(count):
        ran(history, f"seq {len(history.entries)} {words(30)}", 0, words(20))
    for _ in range(outline.MIN_AGE):
        history.reply({"type": "text", "text": "Next."})
        history.say("go on")
    view, known = history.view(), outline.FinishedCache()
    due = outline.plan(view, DEFAULT, [], known)
    targets = outline.targets(view, due, known)
    state = f"{HEADER}\nas of #{len(history.entries)}"
    history.add(
        Mask, layer="outline", targets=targets, tokens_before=0, tokens_after=0, trigger="test",
        state=state,
    )  # fmt: skip


def blocks(view: View) -> list[str]:
    return [item.state for item in view.items if item.state]


def test_one_block_stands_behind_the_newest_outline() -> None:
    history = History()
    history.say("go")
    outlined(history, 8)
    (first,) = blocks(history.view())
    shown = [shown_blocks(item) for item in history.view().items]
    outlined(history, 8)
    view = history.view()
    (second,) = blocks(view)
    assert second != first
    place = view.position(view.state_seq() or 0)
    assert place is not None
    assert all(item.outline is None for item in view.items[place + 1 :])
    assert str(history.request()).count(HEADER) == 1
    history.add(Revert, target=len(history.entries), reason="test")
    assert blocks(history.view()) == [first]
    assert [shown_blocks(item) for item in history.view().items][: len(shown)] == shown


def test_a_block_survives_the_log_and_an_old_log_has_none() -> None:
    history = History()
    history.say("go")
    outlined(history, 8)
    mask = history.entries[-1]
    line = encode(mask)
    assert decode(line) == mask
    del line["state"]
    old = decode(line)
    assert isinstance(old, Mask)
    assert old.state == ""


def test_a_summary_replaces_the_block() -> None:
    history = History()
    history.say("go")
    outlined(history, 8)
    kept = history.view().state_seq()
    assert kept is not None
    history.add(
        Summary, document={}, text="[Conversation compressed]", covers=[1, 2], keep_from=3,
        replaces_earlier=True,
    )  # fmt: skip
    view = history.view()
    assert view.position(kept) is not None
    assert blocks(view) == []
