"""A recording converted to a session log: the model can continue it over every protocol, and the
session knows the recorded calls as if they had been made here.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from ctxagent.addons.replay.formats import FORMATS, load_recording
from ctxagent.addons.replay.session_log import RECORDING_TOPIC, EntryStorage, write_session_log
from ctxagent.agent.compaction.policy import policy_of
from ctxagent.agent.config.settings import Settings
from ctxagent.agent.context.request import build_request
from ctxagent.agent.context.view import View, start_folding
from ctxagent.agent.loop.resume import SessionState, resume_session
from ctxagent.agent.session.entries import Note, Revert, Session, Summary
from ctxagent.agent.session.log import LOG_NAME, Entries, without_redaction
from ctxagent.agent.session.store import find_text

from ..support.server.validator import validate
from ..support.sessions.recorded import (
    CODE,
    FAILED,
    MORE,
    SUMMARY,
    TASK,
    claude_call,
    claude_line,
    claude_result,
    codex_call,
    codex_item,
    codex_line,
    codex_words,
    lines,
    pi_line,
    pi_reply,
)
from ..support.sessions.stories import STORY

Open = Callable[[bytes], tuple[Path, SessionState]]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """Return a function that converts a file with these bytes to a log and opens it."""

    def opened(data: bytes) -> tuple[Path, SessionState]:
        (tmp_path / "recording").write_bytes(data)
        log = tmp_path / "project" / "sessions" / "id" / LOG_NAME
        terms = EntryStorage(log.parent, 200_000, policy_of(Settings()))
        recording = load_recording(tmp_path / "recording")
        opening = Session(id="id", cwd="/here", version="1", model="")
        write_session_log(recording, log, opening, terms, without_redaction)
        session = resume_session(log)
        session.log.close()
        return log, session.state

    return opened


def sent(view: View) -> str:
    """Return the messages of the next request, which the API accepts."""
    request = build_request(view, model="claude-sonnet-5-5", max_tokens=1_000, stable_before=None)
    body = {"model": request.model, "max_tokens": 1_000, "messages": request.messages}
    validate(body)
    return str(request.messages)


@pytest.mark.parametrize("format", FORMATS)
def test_a_session_of_every_agent_can_be_continued(format: str, opened: Open) -> None:
    log, state = opened(STORY[format]())
    text = sent(state.view)
    assert MORE in text
    assert "Done." in text
    assert "recorded by another agent" in text
    assert list(state.ledger.read) == ["a.py"]
    assert [fact.command for fact in state.ledger.commands] == ["pytest", "make"]
    texts = [find_text(log, entry.seq) for entry in Entries(log)]
    recalled = "\n".join(text.whole() for text in texts if text is not None)
    assert TASK in recalled
    assert CODE in recalled
    assert FAILED in recalled
    assert {TASK, MORE} <= {words for _, words in state.ledger.typed_messages}
    (note,) = (e for e in Entries(log) if isinstance(e, Note) and e.topic == RECORDING_TOPIC)
    assert note.data["format"] == format


def test_the_context_begins_with_the_summary_of_the_recorded_agent(opened: Open) -> None:
    """The log has everything before the summary, and a revert brings it back."""
    log, state = opened(STORY["claude-code"]())
    text = sent(state.view)
    assert SUMMARY in text
    assert TASK not in text
    assert FAILED not in text
    (summary,) = (entry for entry in Entries(log) if isinstance(entry, Summary))
    assert summary.tokens_before > summary.tokens_after > 0
    back = [*Entries(log), Revert(seq=1_000, target=summary.seq)]
    assert TASK in sent(start_folding(back).view)


def test_messages_kept_by_a_recorded_compaction_stay(opened: Open) -> None:
    """Codex keeps the user's messages; pi keeps the newest entries and names the first one."""
    call, output = codex_call(1, "c1", "shell", {"command": "make"}), "built"
    _, state = opened(
        lines(
            [
                codex_words(0, "user", TASK),
                call,
                codex_item(2, "function_call_output", call_id="c1", output=output),
                codex_line(4, "compacted", message=SUMMARY, replacement_history=[]),
                codex_words(5, "user", MORE),
            ]
        )
    )
    text = sent(state.view)
    assert SUMMARY in text
    assert TASK in text
    assert output not in text


def test_pi_keeps_its_newest_entries(opened: Open) -> None:
    def named(id: str, row: dict[str, object]) -> dict[str, object]:
        return {**row, "id": id}

    def said(after: float, text: str) -> dict[str, object]:
        return pi_line(after, role="user", content=text)

    _, state = opened(
        lines(
            [
                named("1", said(0, TASK)),
                named("2", pi_reply(1, 1, 1)),
                named("3", pi_reply(2, 1, 1, {"type": "text", "text": "Old."})),
                named("4", said(3, "Kept.")),
                named("5", pi_reply(4, 1, 1)),
                named("6", pi_reply(5, 1, 1, {"type": "text", "text": "Kept too."})),
                {"type": "compaction", "id": "7", "summary": SUMMARY, "firstKeptEntryId": "4"},
                named("8", said(7, MORE)),
            ]
        )
    )
    text = sent(state.view)
    assert SUMMARY in text
    assert "Kept." in text
    assert "Kept too." in text
    assert TASK not in text
    assert "Old." not in text


def test_calls_of_unknown_tools_are_kept(opened: Open) -> None:
    """Invalid names and IDs are replaced with valid ones, a call without a result gets one, and
    thinking signed for another prompt is dropped.
    """
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "of another prefix"}
    odd = claude_call("call:1/é", "mcp.server/find it!", {"query": "x"})
    _, state = opened(
        lines(
            [
                claude_line("assistant", 0, [thought], id="m0"),
                claude_line("user", 1, TASK),
                claude_line("assistant", 2, [thought, odd, claude_call("c2", "x" * 200, {})]),
                claude_line("user", 3, [claude_result("call:1/é", "")]),
            ]
        )
    )
    assert "signature" not in sent(state.view)


def test_a_long_result_goes_to_a_file(opened: Open) -> None:
    long = "\n".join(f"line {n} of many" for n in range(40_000))
    log, state = opened(
        lines(
            [
                claude_line("user", 1, TASK),
                claude_line("assistant", 2, [claude_call("c1", "Bash", {"command": "cat all"})]),
                claude_line("user", 3, [claude_result("c1", long)]),
            ]
        )
    )
    assert len(sent(state.view)) < 20_000
    (name,) = state.ledger.offloaded
    assert (log.parent / name).read_text() == long


def test_words_of_the_recording_agent_are_not_the_users(opened: Open) -> None:
    _, state = opened(
        lines(
            [
                claude_line("user", 0, "Caveat: not yours.", isMeta=True),
                claude_line("user", 1, TASK, cwd="/elsewhere"),
                claude_line("assistant", 2, [{"type": "text", "text": "Done."}]),
            ]
        )
    )
    assert [words for _, words in state.ledger.typed_messages] == [TASK]
    assert state.began == "/elsewhere"
    assert "Caveat" in sent(state.view)
