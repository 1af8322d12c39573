"""A log is compared with its copies before it is opened for writing."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.errors import LogDamaged
from ctxagent.agent.session.checkpoints import Checkpoints
from ctxagent.agent.session.conversation import write_conversation
from ctxagent.agent.session.copies import LogScan, check_copies, newest_checkpoint
from ctxagent.agent.session.entries import Entry, User

from .test_checkpoints import FACTS

SAID: list[Entry] = [User(seq=seq, content=f"message {seq}") for seq in range(1, 12)]
SCAN = LogScan(entries=11, highest=11, conversation_bytes=0)


class Unread:
    """Entries that must not be read."""

    def __iter__(self) -> Iterator[Entry]:
        raise AssertionError("the log was read")

    __reversed__ = __iter__


def scan_of(folder: Path) -> LogScan:
    return replace_scan(conversation_bytes=(folder / "conversation.md").stat().st_size)


def replace_scan(**changes: int | bool) -> LogScan:
    return SCAN._replace(**changes)  # type: ignore[arg-type]


def test_without_copies_nothing_is_read(tmp_path: Path) -> None:
    assert check_copies(tmp_path / "log.jsonl", Unread(), SCAN) is None


def test_a_file_that_lacks_the_newest_text(tmp_path: Path) -> None:
    write_conversation(tmp_path, SAID)
    scan = scan_of(tmp_path)
    write_conversation(tmp_path, SAID[:-1])
    missing = check_copies(tmp_path / "log.jsonl", SAID, scan)
    assert missing is not None
    assert [b"message 11" in text for text in missing] == [True]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_the_lost_entries_are_named(tmp_path: Path, count: int) -> None:
    write_conversation(tmp_path, SAID)
    size = scan_of(tmp_path).conversation_bytes
    scan = replace_scan(entries=count, highest=count, conversation_bytes=size * count // 11)
    first = ", ".join(f"#{seq}" for seq in range(count + 1, count + 6))
    with pytest.raises(LogDamaged, match=f"it lacks {first} and {6 - count} more, which"):
        check_copies(tmp_path / "log.jsonl", SAID[:count], scan, is_torn=True)


@pytest.mark.parametrize("is_torn", [True, False])
def test_only_the_entry_of_a_torn_line_may_be_lost(tmp_path: Path, is_torn: bool) -> None:
    write_conversation(tmp_path, SAID)
    size = scan_of(tmp_path).conversation_bytes - 30
    scan = LogScan(entries=10, highest=10, conversation_bytes=size, cached_entries=11)
    if is_torn:
        assert check_copies(tmp_path / "log.jsonl", SAID[:-1], scan, is_torn=True) is None
    else:
        with pytest.raises(LogDamaged, match=r"it has 10 entries, and its cache 11; .*#11"):
            check_copies(tmp_path / "log.jsonl", SAID[:-1], scan)


def test_the_newest_checkpoint(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) is None
    checkpoints = Checkpoints(tmp_path, None)
    for seq in (9, 12):
        checkpoints.add(checkpoints.take(FACTS, "manual", seq))
    found = newest_checkpoint(tmp_path)
    assert found == (tmp_path / "checkpoints" / "2.json", 12)
    with pytest.raises(LogDamaged, match=r"it ends at #11, and .*2\.json was made at #12"):
        check_copies(tmp_path / "log.jsonl", SAID, SCAN)
    assert check_copies(tmp_path / "log.jsonl", SAID, replace_scan(highest=12)) is None


def test_entries_in_another_order(tmp_path: Path) -> None:
    write_conversation(tmp_path, SAID)
    scan = scan_of(tmp_path)._replace(in_order=False)
    swapped = [*SAID[5:], *SAID[:5]]
    with pytest.raises(LogDamaged, match="in another order than in"):
        check_copies(tmp_path / "log.jsonl", swapped, scan)
    write_conversation(tmp_path, swapped)  # a second writer: both files have this order
    assert check_copies(tmp_path / "log.jsonl", swapped, scan) is None


def test_a_replaced_entry_is_not_a_lost_one(tmp_path: Path) -> None:
    """Another version may write the same entry differently."""
    write_conversation(tmp_path, [replace(SAID[0], content="longer than " * 9), *SAID[1:]])
    assert check_copies(tmp_path / "log.jsonl", SAID, replace_scan(conversation_bytes=300)) is None
