"""What arrives in pieces: a reply from a server, the output of a command. Wherever the bytes are
cut the outcome is the same, whatever they are it is one, and hostile ones cost no more than others.
"""

import asyncio
import json
import re
import time
import unicodedata
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.compaction import document
from ctxagent.agent.compaction import words as words
from ctxagent.agent.compaction.drift import detector
from ctxagent.agent.compaction.verify import exam
from ctxagent.agent.context.request import build_request
from ctxagent.agent.models.messages.body import body
from ctxagent.agent.models.messages.draft import ReplyDraft
from ctxagent.agent.models.transport import parse_events
from ctxagent.agent.ui.render.markdown_stream import Blocks
from ctxagent.tools.system import unicode
from ctxagent.tools.system.capture import Capture, clean, excerpt

from ..support.sessions.history import MODEL, History

fuzz = settings(max_examples=100, derandomize=True, deadline=None)

CUTS = st.lists(st.integers(1, 90), min_size=1, max_size=12)


def cut(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """The bytes in pieces of these sizes, over and over."""
    pieces, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        pieces.append(data[at : at + size])
        at, turn = at + size, turn + 1
    return pieces


# A streamed reply

WORDS = st.text(max_size=6) | st.sampled_from(
    [
        "\ud83d",
        "\udc80",
        "\0",
        "\u202e",
        "e\u0301",
        "👩‍👩‍👧",
        "\r\n",
        "\n\n",
        "data: {}\n\n",
        "\u2028",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
BLOCKS = st.one_of(
    st.tuples(st.just("text"), st.lists(WORDS, min_size=1, max_size=4)),
    st.tuples(st.just("thinking"), st.lists(WORDS, max_size=3)),
    st.tuples(st.just("tool_use"), st.dictionaries(WORDS, JSON, max_size=3)),
)


def start(index: int, block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, name: str, piece: str) -> dict[str, Any]:
    piece_of = {"type": kind, name: piece}
    return {"type": "content_block_delta", "index": index, "delta": piece_of}


def told(index: int, kind: str, said: Any) -> list[dict[str, Any]]:
    """The events of one block."""
    if kind == "tool_use":
        call = {"type": kind, "id": f"c{index}", "name": "Bash", "input": {}}
        raw = json.dumps(said)
        pieces = [raw[: len(raw) // 2], raw[len(raw) // 2 :]]
        events = [start(index, call)]
        events += [delta(index, "input_json_delta", "partial_json", piece) for piece in pieces]
    else:
        events = [start(index, {"type": kind, kind: ""})]
        events += [delta(index, f"{kind}_delta", kind, piece) for piece in said]
        if kind == "thinking":
            events.append(delta(index, "signature_delta", "signature", "sig"))
    return [*events, {"type": "content_block_stop", "index": index}]


def as_bytes(blocks: Sequence[tuple[str, Any]], ascii: bool, end: str) -> bytes:
    """A stream as servers send it; what UTF-8 cannot hold stands escaped in it."""
    usage = {"input_tokens": 3, "output_tokens": 1}
    begun = {"id": "m", "model": MODEL, "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for index, (kind, said) in enumerate(blocks):
        events += told(index, kind, said)
    events.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})
    events.append({"type": "message_stop"})
    lines = []
    for event in events:
        text = json.dumps(event, ensure_ascii=ascii)
        if re.search(r"[\ud800-\udfff]", text):
            text = json.dumps(event)
        lines += [f"event: {event['type']}", f"data: {text}", ""]
    return "".join(line + end for line in lines).encode()


def gathered(chunks: Sequence[bytes]) -> tuple[str, list[str], ReplyDraft]:
    """What went wrong, what was seen on the way, and what was gathered."""

    async def arriving() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def gather() -> tuple[str, list[str], ReplyDraft]:
        draft, seen = ReplyDraft(MODEL), list[str]()
        try:
            async for event in parse_events(arriving()):
                seen += [repr(one) for one in draft.take(event)]
        except ValueError as error:
            return str(error), seen, draft
        return "", seen, draft

    return asyncio.run(gather())


@fuzz
@given(st.lists(BLOCKS, max_size=4), st.booleans(), st.sampled_from(["\n", "\r\n"]), CUTS)
def test_a_reply_is_the_same_wherever_its_bytes_are_cut(
    blocks: list[tuple[str, Any]], ascii: bool, end: str, sizes: list[int]
) -> None:
    data = as_bytes(blocks, ascii, end)
    wrong, seen, draft = gathered(cut(data, sizes))
    assert not wrong
    assert draft.complete
    reply = draft.reply()
    assert (wrong, seen, reply) == (*gathered([data])[:2], gathered([data])[2].reply())
    for (kind, said), block in zip(blocks, reply.content, strict=True):
        assert block["type"] == kind
        assert block["input" if kind == "tool_use" else kind] == (
            said if kind == "tool_use" else "".join(said)
        )
    assert not reply.broken


@fuzz
@given(st.lists(BLOCKS, min_size=1, max_size=3), CUTS, st.data())
def test_whatever_happened_to_the_bytes_the_outcome_is_one_and_can_be_sent_on(
    blocks: list[tuple[str, Any]], sizes: list[int], data: st.DataObject
) -> None:
    """An error that is told, or a reply; and what came of it goes back in the next request."""
    stream = bytearray(as_bytes(blocks, data.draw(st.booleans()), "\n"))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(stream)))
        gone = data.draw(st.sampled_from([0, 1, 1, 7, 60]))
        stream[at : at + gone] = data.draw(
            st.sampled_from(
                [b"", b"\xff", b"\n\n", b"null", b"-1", b"1e999", b'"', b"{", b"\\ud800"]
            )
        )
    outcomes = []
    for chunks in ([bytes(stream)], cut(bytes(stream), sizes)):
        wrong, seen, draft = gathered(chunks)
        reply = draft.reply()
        outcomes.append(re.sub(r"call_[0-9a-f]{16}", "call", f"{wrong} {seen} {reply}"))
        history = History()
        history.say("Go.")
        history.reply(*reply.content)
        body(build_request(history.view(), model=MODEL, max_tokens=100))
        history.say("And on.")
        history.request()
    assert outcomes[0] == outcomes[1]


# The output of a command

OUTPUT = st.lists(
    st.sampled_from(
        ["a", "bc", " ", "\n", "\r", "\r\n", "\b", "\0", "\x1b", "\x1b[2K", "\x1b[31m", "\x1b[1G",
         "\x1b]0;t\x07", "\x1bPq", "\x1b\\", "\x9b1m", "é", "語", "😀", "e\u0301", "\x85", "\x7f"]
    ).map(str.encode)
    | st.sampled_from([b"\xff", b"\xc3", b"\xf0\x9f", b"\x80"]),
    max_size=40,
).map(b"".join)  # fmt: skip


@fuzz
@given(OUTPUT, CUTS, st.sampled_from([4, 9, 1_000]))
def test_output_is_the_same_however_it_arrives(data: bytes, sizes: list[int], kept: int) -> None:
    async def heard(chunks: Sequence[bytes]) -> tuple[str, int]:
        capture = Capture(kept=kept)
        for chunk in chunks:
            capture.feed(chunk)
        capture.close()
        return capture.output.text("look there"), capture.output.dropped

    text, dropped = asyncio.run(heard(cut(data, sizes)))
    assert (text, dropped) == asyncio.run(heard([data]))
    whole = clean(data.decode(errors="replace")).encode()
    assert dropped == max(0, len(whole) - 2 * kept)
    assert dropped or text == whole.decode()
    assert not [c for c in text if unicodedata.category(c) == "Cc" and c not in "\n\t"]
    text.encode()


@fuzz
@given(OUTPUT.map(lambda data: data.decode(errors="replace")))
def test_what_is_clean_stays_as_it_is(text: str) -> None:
    once = clean(text)
    assert clean(once) == once
    assert unicode.clean(once) == once.replace("\t", "    ")


@fuzz
@given(st.text(max_size=30), st.integers(0, 130))
def test_no_character_is_split_where_output_was_left_out(text: str, at: int) -> None:
    data = "".join(text.split()).encode(errors="ignore")
    shown = excerpt(data[:at], data[at:], 1, "x")
    assert "\ufffd" in text or "\ufffd" not in shown


# What a hostile text costs: with work that grows with the square, these would take hours.

LONG = 400_000


def _fed(text: str) -> None:
    cutter = Blocks()
    for begin in range(0, len(text), 4_000):
        cutter.feed(text[begin : begin + 4_000])
    cutter.finish()


@pytest.mark.parametrize("work", [clean, unicode.reveal_invisible, unicode.clean])
@pytest.mark.parametrize("unit", ["\x1b[", "\x1bP", "\x1b]0;", "a\b", "a\r", "\x1b[K\r", "\0 "])
def test_output_of_escapes_alone(work: Callable[[str], str], unit: str) -> None:
    assert len(work(unit * (LONG // len(unit)))) <= 6 * LONG


@pytest.mark.parametrize("unit", ["!", " ", "`", "*", "|-", "- ", "&#", "\n  "])
@pytest.mark.parametrize("begins", ["# a", "**a", "## Files Read\n", "## Session Intent\nx\n| a"])
def test_a_summary_of_marks_alone(begins: str, unit: str) -> None:
    text = begins + unit * (LONG // 4) + "z"
    document.missing_titles(text)
    document.parse(text)


@pytest.mark.parametrize("unit", ["a", "_", "-", "a.", "a/", " ", "\t"])
def test_words_without_an_end(unit: str) -> None:
    """In processor time of this thread; from each letter again, each of these took seconds."""
    text = unit * (LONG // 10)
    begun = time.thread_time()
    for _ in range(3):
        words.paths_in(text)
        words.only_asks(text)
        words.terms(f"{text}z")
        detector.named_paths(f"Don't change {text}z")
        exam._read(f"1: a{text}z", 1)
        _fed(f"| a | b |\n|-{text}z\n")
    assert time.thread_time() - begun < 3


@pytest.mark.parametrize("unit", ["`", "*", "[", "\n> ", "\n- ", "<", "$", "|", "\n|a|"])
def test_an_answer_of_marks_alone(unit: str) -> None:
    _fed(unit * (LONG // 4 // len(unit)))
