"""What only `conversation.md` has: found by the headings, whatever the texts contain."""

from pathlib import Path

import pytest

from ctxagent.agent.session.conversation import (
    CopiedText,
    CopyDifference,
    compare,
    conversation_texts,
)
from ctxagent.agent.session.entries import Entry, ToolResult, User

FAKE = "as it was:\n\n## User · #900\n\nno message\n\n## Bash · #4\n\n{}\n"
SAID: list[Entry] = [
    User(seq=1, content="go"),
    ToolResult(seq=2, tool_use_id="a", content=FAKE),
    User(seq=4, content=[{"type": "image"}, {"type": "text", "text": "look"}]),
    ToolResult(seq=5, tool_use_id="b", content="fine"),
    User(seq=7, content="und weiter?", source="notice"),
]


def compared(tmp_path: Path, there: list[Entry], *, file: list[Entry] = SAID) -> CopyDifference:
    path = tmp_path / "conversation.md"
    path.write_bytes(b"".join(text for _, text in conversation_texts(file)))
    return compare(path, conversation_texts(there))


def test_a_copy_of_the_log_has_nothing_else(tmp_path: Path) -> None:
    assert compared(tmp_path, SAID) == CopyDifference()
    assert compared(tmp_path, SAID, file=[*SAID, *SAID]) == CopyDifference()
    assert compared(tmp_path, SAID, file=[]) == CopyDifference()


@pytest.mark.parametrize("lost", range(len(SAID)))
def test_the_lost_text_is_found(tmp_path: Path, lost: int) -> None:
    found = compared(tmp_path, [*SAID[:lost], *SAID[lost + 1 :]])
    assert SAID[lost].seq in found.lost
    assert found.has_foreign_text
    assert found.in_order
    assert found.lost <= {SAID[lost].seq, 4}  # a heading inside of a lost text may fit too


def test_sections_name_speaker_and_text(tmp_path: Path) -> None:
    found = compared(tmp_path, [])
    assert found.sections[-2:] == [
        CopiedText(5, "Result", "fine"),
        CopiedText(7, "Notice", "und weiter?"),
    ]
    assert found.sections[0] == CopiedText(1, "User", "go")
    assert 900 not in found.lost


def test_another_text_of_the_same_entry_is_foreign_but_not_lost(tmp_path: Path) -> None:
    found = compared(tmp_path, [User(seq=1, content="stay"), *SAID[1:]])
    assert (found.has_foreign_text, found.lost) == (True, set())
    assert found.sections == [CopiedText(1, "User", "go")]


def test_another_order_is_noticed(tmp_path: Path) -> None:
    found = compared(tmp_path, SAID[::-1])
    assert (found.in_order, found.lost, found.has_foreign_text) == (False, set(), False)
