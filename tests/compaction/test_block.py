"""A summary written by the API: its cut, and the text next to it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from ctxagent.agent.compaction.document import FileRow, ReadRow, SummaryDocument, SummaryFact
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.compaction.summary.block import (
    BlockSummary,
    BlockSupplement,
    block_request,
    block_supplement,
    rebuild_block_request,
)
from ctxagent.agent.compaction.summary.request import Cut, find_cut
from ctxagent.agent.context.window import Window
from ctxagent.agent.session.ledger import Ledger
from ctxagent.agent.session.user_messages import LoggedMessage

from ..support.sessions.history import History, words

WINDOW = Window(20_000, 100_000)
FEW = replace(DEFAULT, keep_messages=1, keep_tokens=0)
WRITTEN = SummaryDocument(
    intent="Build it", decisions=("Use SQLite",), facts=(SummaryFact("The port is 8080"),),
    phase="tests", read=(ReadRow("a.py"),),
)  # fmt: skip


def worked() -> History:
    history = History()
    for number in range(4):
        history.say(f"Task {number}")
        history.call("Bash", {"command": "make"}, words(100))
        history.reply({"type": "text", "text": "Done."})
    return history


def cut(history: History) -> Cut:
    found = find_cut(history.view(), FEW, WINDOW)
    assert found is not None
    return found


def asked(history: History, window: Window = WINDOW, instructions: str = "Summarise.") -> Any:
    return block_request(history.view(), cut(history), window, instructions, model="m", effort=None)


def test_a_block_stands_for_all_before_a_reply() -> None:
    history = worked()
    request, found = asked(history)
    items = history.view().items
    assert items[len(found.evicted)].role == "assistant"
    assert (found.keep, found.keep_from) == ((), items[len(found.evicted)].seq)
    assert found.tokens == history.view().scaled(sum(item.size for item in found.evicted))
    assert request.compaction == "Summarise."
    assert request.origin["keep_from"] == found.keep_from
    assert request.max_tokens == 10_000
    again = rebuild_block_request(history.view(), found.keep_from)
    assert again.messages == request.messages


def test_where_a_block_is_not_possible() -> None:
    history = worked()
    assert asked(history, Window(99_000, 100_000)) is None
    assert asked(history, instructions="x" * 1_000_000) is None
    history.say("One more")
    assert asked(history) is None  # no reply is behind the cut


def beside(document: SummaryDocument, **fields: Any) -> str:
    given: dict[str, Any] = {
        "written": WRITTEN, "resolved": (), "messages": "", "waiting": (),
        "folder": Path("/s/id"), "pins": {},
    }  # fmt: skip
    return BlockSupplement(**{**given, **fields}).render(document, saved=1_234)


def test_facts_in_the_block_are_left_out() -> None:
    document = replace(
        WRITTEN, intent="Build it\nand ship it", decisions=("Use SQLite", "Keep tabs"),
        facts=(SummaryFact("The port is 8080"),), read=(ReadRow("a.py"), ReadRow("b.py")),
        modified=(FileRow("c.py", "created"),), recovery=("offloaded/x",),
    )  # fmt: skip
    text = beside(document)
    assert text.startswith("[Conversation compressed]\nThe first message of this conversation")
    assert "**Context Saved:** 1,234 tokens" in text
    assert (
        "What this program recorded beside that summary:\n\n## Session Intent\nand ship it" in text
    )
    assert "Keep tabs" in text
    assert "b.py" in text
    assert "c.py" in text
    assert "- offloaded/x" in text
    for said in ("Use SQLite", "8080", "Phase", "a.py"):
        assert said not in text.partition("beside that summary:")[2].replace("/s/id", "")
    assert "**Phase:** done" in beside(replace(WRITTEN, phase="done"))


def test_messages_errors_and_pins_follow_the_block() -> None:
    text = beside(
        WRITTEN, resolved=("make failed",), messages="## Messages\n…", pins={4: "the port"},
        waiting=(LoggedMessage(7, "And this?"), LoggedMessage(9, "Or that?")),
    )  # fmt: skip
    parts = [
        "Errors that the summary names and that are solved:\n- make failed", "## Messages\n…",
        "The user waits for an answer to #7:\n\nAnd this?",
        "The user waits for an answer to #9:\n\nOr that?",
        "## Pinned",
    ]  # fmt: skip
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "are solved" not in beside(WRITTEN)
    assert "waits for an answer" not in beside(WRITTEN)


def test_unanswered_messages_are_whole_and_others_have_their_section(tmp_path: Path) -> None:
    history = worked()
    question = history.say("And this?")
    history.call("Bash", {"command": "make"}, "x")
    ledger = Ledger()
    for entry in history.entries:
        ledger.add(entry)
    _, found = asked(history)
    summary = BlockSummary({"type": "compaction", "content": "x"}, found, 0)
    text = block_supplement(summary, WRITTEN, (), history.view(), WINDOW, tmp_path, ledger)
    gone = question in [item.seq for item in found.evicted]
    assert [message.ref for message in text.waiting] == ([question] if gone else [])
    assert "Task 0" in text.messages
    assert "And this?" not in text.messages
