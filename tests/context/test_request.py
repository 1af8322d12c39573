"""Requests are always valid and stable. Whatever entries a log lost, duplicated or damaged, the API
must accept the request. Without an edit of history, requests only grow at their end.
"""

import base64
import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.context.request import (
    EMPTY_RESULT,
    GO_ON_PROMPT,
    LOST_BEGINNING,
    LOST_SEARCH,
    PAUSED_STOP_REASON,
    UNKNOWN_OUTCOME,
    Request,
    begins_with,
    build_messages,
    build_request,
    with_question,
)
from ctxagent.agent.context.view import View, fold
from ctxagent.agent.models.messages.body import LATE_TOOLS_BETAS, betas, body
from ctxagent.agent.session.entries import (
    LOADED_TOOLS,
    Assistant,
    Entry,
    Mask,
    Note,
    Session,
    Summary,
    ToolResult,
    User,
    decode,
    encode,
)

from ..support.server.loopback import check_bound, flat, sign
from ..support.server.validator import validate

MODEL, OTHER = "claude-sonnet-5-5", "claude-opus-5-5"
TOOLS = [{"name": "Bash", "description": "Runs.", "input_schema": {"type": "object"}}]
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 8).decode()
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
PDF = base64.b64encode(b"%PDF-1.7").decode()
DOCUMENT = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
}
Line = dict[str, Any]


def request(entries: list[Entry], model: str = MODEL, **options: Any) -> dict[str, Any]:
    """Return the request body for a log, checked against the API's rules."""
    view = fold(entries)
    paused = bool(view.items) and view.items[-1].stop_reason == PAUSED_STOP_REASON
    built = build_request(view, model=model, max_tokens=1000, **options)
    sent = body(built)
    validate(sent, allow_paused=paused)
    validate(body(with_question(built, "What was it?")))
    return sent


# Any list of entries. What decodes is an entry, so whole lines are garbled, not values.

texts = st.sampled_from(["", " \n", "go", "Gr\u00fc\u00dfe", "\ud800", "a\udc00b"])
ids = st.sampled_from(["a", "b", "c", "d e", "", "\ud800", "x" * 130])
seqs = st.integers(1, 12)
junk = st.sampled_from([None, True, 0, -1, "", "x", [], [3], [{}], {}, {"type": "text"}, 1.5])
shallow = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": texts}),
    st.just(IMAGE),
    st.just(DOCUMENT),
)
results = st.fixed_dictionaries(
    {
        "type": st.just("tool_result"),
        "tool_use_id": ids,
        "content": st.one_of(texts, st.lists(shallow, max_size=2)),
    }
)
PAGE = {"type": "web_search_result", "url": "u", "title": "T", "encrypted_content": "e"}
CITATION = {
    "type": "web_search_result_location",
    "url": "u",
    "title": "T",
    "encrypted_index": "i",
    "cited_text": "t",
}
search_ids = st.sampled_from(["srvtoolu_a", "srvtoolu_b", "a", "\ud800"])
searches = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("server_tool_use"),
            "id": search_ids,
            "name": st.sampled_from(["web_search", "web_search", "web_fetch"]),
            "input": st.dictionaries(texts, texts, max_size=1),
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("web_search_tool_result"),
            "tool_use_id": search_ids,
            "content": st.sampled_from(
                [
                    [PAGE],
                    [],
                    [{**PAGE, "url": 3}],
                    {"type": "web_search_tool_result_error", "error_code": "unavailable"},
                ]
            ),
        }
    ),
    st.just({"type": "text", "text": "so", "citations": [CITATION]}),
)
spoken = st.one_of(
    searches,
    st.fixed_dictionaries({"type": st.just("text"), "text": texts}),
    st.fixed_dictionaries(
        {"type": st.just("thinking"), "thinking": texts, "signature": st.just("s")}
    ),
    st.just({"type": "redacted_thinking", "data": "d"}),
    st.fixed_dictionaries(
        {
            "type": st.just("tool_use"),
            "id": ids,
            "name": st.sampled_from(["Bash", "no such", ""]),
            "input": st.dictionaries(texts, texts, max_size=2),
        },
        optional={"signature": texts},
    ),
)


@st.composite
def garbled(draw: st.DrawFn, blocks: st.SearchStrategy[Line]) -> Line:
    """Draw a block, sometimes with a wrong or missing field, also in nested values."""
    block = deepcopy(draw(blocks))
    if draw(st.integers(0, 3)) == 0:
        target = block
        if isinstance(block.get("source"), dict) and draw(st.booleans()):
            target = block["source"]
        name = draw(st.sampled_from(sorted(target)))
        if draw(st.booleans()):
            del target[name]
        else:
            target[name] = draw(junk)
    return block


def kind(name: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Line]:
    return st.fixed_dictionaries({"kind": st.just(name), "seq": seqs, **fields})


compactions = st.fixed_dictionaries(
    {"type": st.just("compaction"), "content": texts, "signature": texts}
)
targets = st.fixed_dictionaries(
    {"seq": seqs, "tool_use_id": ids | search_ids},
    optional={"stub": texts, "input": st.dictionaries(texts, texts, max_size=1)},
)
lines = st.one_of(
    kind(
        "session",
        id=st.just("s"),
        cwd=st.just("/"),
        version=st.just("1"),
        model=st.just(MODEL),
        system=st.none() | texts,
        tools=st.none() | st.just(TOOLS),
    ),
    kind("user", content=st.one_of(texts, st.lists(garbled(shallow | results), max_size=3))),
    kind(
        "assistant",
        content=st.lists(garbled(spoken), max_size=4),
        usage=st.fixed_dictionaries({"input": st.integers(0, 99)}),
        stop_reason=st.sampled_from([None, "tool_use", PAUSED_STOP_REASON, "refusal"]),
        model=st.just(MODEL),
        purpose=st.sampled_from(["turn", "turn", "summary"]),
    ),
    kind(
        "tool_result",
        tool_use_id=ids,
        content=st.one_of(texts, st.lists(garbled(shallow), max_size=2)),
        is_error=st.booleans(),
    ),
    kind(
        "mask",
        layer=st.just("microcompact"),
        targets=st.lists(garbled(targets) | junk, max_size=2),
        tokens_before=st.just(0),
        tokens_after=st.just(0),
        trigger=st.just(""),
    ),
    kind(
        "summary",
        document=st.just({}),
        text=texts,
        covers=st.just([1, 2]),
        keep_from=seqs,
        keep=st.lists(seqs | junk, max_size=2),
        block=st.none() | garbled(compactions) | junk,
        keeps_thinking=st.booleans(),
    ),
    kind("revert", target=seqs),
    kind("hologram", shape=st.just("cube")),
)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.lists(lines, max_size=12), st.none() | seqs)
def test_any_log_gives_a_request_the_api_accepts(garbage: list[Line], settled: int | None) -> None:
    request(decoded(garbage), stable_before=settled)


def decoded(garbage: list[Line]) -> list[Entry]:
    entries = []
    for line in garbage:
        try:
            entries.append(decode(line))
        except ValueError:
            continue
    return entries


# Honest logs: what the agent itself writes, interruptions included.

blank = st.just({"type": "text", "text": " "})
thought = st.just({"type": "thinking", "thinking": "Hm.", "signature": "sig"})
words = st.just({"type": "text", "text": "Yes.", "citations": None})
replies = st.tuples(st.lists(st.one_of(thought, words, blank), max_size=3), st.integers(0, 3))


@st.composite
def honest(draw: st.DrawFn) -> tuple[list[Entry], list[int]]:
    """Draw a log, and the indices at which requests were made."""
    log: list[Entry] = [
        Session(id="s", cwd="/", version="1", model=MODEL, system="Be good.", tools=TOOLS)
    ]
    calls: list[int] = []
    for _ in range(draw(st.integers(1, 4))):
        log += [User(content="Go.")] * draw(st.integers(1, 2))
        waiting = ""  # a search that the server goes on with
        for _ in range(draw(st.integers(1, 4))):
            calls.append(len(log))
            blocks, count = draw(replies)
            if waiting:
                blocks = [_found(waiting), *blocks]
            if draw(st.booleans()):
                blocks = [*blocks, *_searched(f"srvtoolu_{len(log)}"), *draw(replies)[0]]
            uses = [_use(draw(st.sampled_from(["x", f"c{len(log)}_{n}"]))) for n in range(count)]
            stop = (
                "tool_use"
                if uses
                else draw(st.sampled_from(["end_turn", PAUSED_STOP_REASON, "refusal"]))
            )
            goes_on = draw(st.booleans()) and (bool(uses) or stop == PAUSED_STOP_REASON)
            waiting = f"srvtoolu_w{len(log)}" if goes_on else ""
            if waiting:
                blocks = [*blocks, _search(waiting)]
            log.append(_said([*blocks, *uses], stop))
            log += [Note(topic="phase", text="on")] * draw(st.integers(0, 1))
            answered = draw(st.permutations(uses))
            interrupted = bool(uses) and draw(st.integers(0, 4)) == 0
            log += [_done(use["id"]) for use in answered[interrupted:]]
            if interrupted or (not uses and stop != PAUSED_STOP_REASON):
                break
    return [replace(entry, seq=n) for n, entry in enumerate(log, 1)], calls


def _use(id: str) -> Line:
    return {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": "ls"}}


def _search(id: str) -> Line:
    return {"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "q"}}


def _found(id: str) -> Line:
    return {"type": "web_search_tool_result", "tool_use_id": id, "content": [{**PAGE, "url": id}]}


def _searched(id: str) -> list[Line]:
    """Return a search, its result, and a text that cites it."""
    cited = {"type": "text", "text": "So.", "citations": [{**CITATION, "url": id}]}
    return [_search(id), _found(id), cited]


def _asked(messages: list[Any]) -> set[str]:
    """Return the IDs of the searches in messages."""
    blocks = (block for message in messages for block in message["content"])
    return {block["id"] for block in blocks if block["type"] == "server_tool_use"}


def _said(content: list[Line], stop_reason: str = "end_turn") -> Assistant:
    return Assistant(
        content=content, usage={"input": 9, "output": 9}, stop_reason=stop_reason, model=MODEL
    )


def _done(id: str, content: Any = "out") -> ToolResult:
    return ToolResult(tool_use_id=id, content=content)


def _plain(sent: dict[str, Any]) -> list[Any]:
    """Return messages without cache marks."""
    return [
        {
            **message,
            "content": [
                {k: v for k, v in block.items() if k != "cache_control"}
                for block in message["content"]
            ],
        }
        for message in sent["messages"]
    ]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(honest())
def test_a_request_begins_with_the_one_before(case: tuple[list[Entry], list[int]]) -> None:
    log, calls = case
    before: list[Any] = []
    for end in calls:
        sent = _plain(request(log[:end]))
        lost = _asked(before) - _asked(sent)
        assert all(id.startswith("srvtoolu_w") for id in lost), "only one that nobody went on with"
        if before and not lost:
            *settled, last = before
            assert sent[: len(settled)] == settled
            after = sent[len(settled)]
            assert after["role"] == last["role"]
            assert after["content"][: len(last["content"])] == last["content"]
        before = sent


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(honest(), st.data())
def test_thinking_stays_bound_to_everything_before_it(
    case: tuple[list[Entry], list[int]], data: st.DataObject
) -> None:
    """Models and tool lists change too, sometimes while a reply is written."""
    honest_log, calls = case
    log: list[Entry] = []
    model = MODEL
    for place, entry in enumerate(honest_log):
        entry = replace(entry, thinking="bound") if isinstance(entry, Session) else entry
        if place in calls:
            last = log[-1]
            paused = isinstance(last, Assistant) and last.stop_reason == PAUSED_STOP_REASON
            if not paused and data.draw(st.integers(0, 3)) == 0:
                log.append(_mask(data.draw(st.integers(1, max(1, place)))))
            if data.draw(st.integers(0, 2)) == 0:
                log.append(change := replace(data.draw(changes), seq=place))
                model = change.model
            sent = request(log, model)
            check_bound(sent)
            assert isinstance(entry, Assistant)
            content = _signed(entry.content, sent)
            entry = replace(entry, content=content, request={"upto": place})
            if data.draw(st.integers(0, 5)) == 0:
                log.append(change := replace(data.draw(changes), seq=place + 1))
                model = change.model
        log.append(entry)
    check_bound(request(log, model))


changes = st.builds(
    Session, id=st.just("s"), cwd=st.just("/"), version=st.just("1"), thinking=st.just("bound"),
    model=st.sampled_from([MODEL, OTHER]), tools=st.sampled_from([None, TOOLS, []]),
)  # fmt: skip


def _signed(content: list[Line], sent: dict[str, Any]) -> list[Line]:
    """Sign the thinking of a reply over its request, as newer models do."""
    out: list[Line] = []
    for block in content:
        if block["type"] == "thinking":
            said = [{k: v for k, v in b.items() if k != "citations" or v} for b in out]
            before = [*flat(sent), *(("assistant", b) for b in said)]
            block = {**block, "signature": sign(before, block["thinking"], sent["model"])}
        out.append(block)
    return out


def _mask(seq: int) -> Mask:
    ids = ("x", f"c{seq}_0", f"srvtoolu_{seq}")
    targets = [{"seq": seq, "tool_use_id": id, "stub": "[gone]"} for id in ids]
    return Mask(layer="microcompact", targets=targets, tokens_before=2, tokens_after=1, trigger="")


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(honest(), st.data())
def test_requests_from_damaged_logs_are_accepted(
    case: tuple[list[Entry], list[int]], data: st.DataObject
) -> None:
    log, _ = case
    order = data.draw(st.permutations(range(len(log))) | st.just(range(len(log))))
    kept = data.draw(st.lists(st.sampled_from(list(order)), max_size=2 * len(log)))
    request([log[place] for place in kept])
    request(log[: data.draw(st.integers(0, len(log)))])


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(honest())
def test_a_log_read_back_gives_the_same_bytes(case: tuple[list[Entry], list[int]]) -> None:
    log, _ = case
    live = View()
    for entry in log:
        live.add(entry)
    read = [decode(json.loads(json.dumps(encode(entry)))) for entry in log]
    assert json.dumps(build_messages(live.items)) == json.dumps(build_messages(fold(read).items))


# Single cases, each a trap of its own.


def content(*entries: Entry) -> list[list[Line]]:
    """Return the blocks of each message for entries numbered from 1."""
    numbered = [replace(entry, seq=n) for n, entry in enumerate(entries, 1)]
    return [message["content"] for message in _plain(request(numbered))]


def test_tools_that_an_older_log_loaded_late_are_sent_as_they_were() -> None:
    """New logs have no such entries. A mask of one stands for a refusal by the server."""
    tool = {"name": "mcp__a__b", "description": "Runs.", "input_schema": {"type": "object"}}
    block = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool}}
    log: list[Entry] = [
        Session(id="s", cwd="/", version="1", model=MODEL, system="Be good.", tools=TOOLS),
        User(seq=2, content="go"),
        replace(_said([_use("a")], "tool_use"), seq=3),
        replace(_done("a"), seq=4),
        User(seq=5, content=[block], source=LOADED_TOOLS),
    ]
    called = [
        replace(_said([{**_use("b"), "name": "mcp__a__b"}]), seq=6),
        replace(_done("b"), seq=7),
    ]
    built = build_request(fold(log), model=MODEL, max_tokens=1000)
    assert betas(built, body(built)) == [*LATE_TOOLS_BETAS]
    for entries, roles in ((log, "uaus"), ([*log, *called], "uausau")):
        messages = _plain(request(entries))
        assert "".join(message["role"][0] for message in messages) == roles
        assert messages[3]["content"] == [block]
    stub = {"seq": 5, "tool_use_id": LOADED_TOOLS, "stub": "[found before]"}
    refused = Mask(
        seq=6, layer="late tools", targets=[stub], tokens_before=2, tokens_after=2, trigger=""
    )
    sent = _plain(request([*log, refused]))
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert sent[2]["content"][1:] == [{"type": "text", "text": "[found before]"}]
    told = {"type": "text", "text": "Tools:"}
    alone = build_messages(fold([User(seq=1, content=[block, told])]).items)
    assert [message["content"] for message in alone] == [[told], [block]]
    alone = build_messages(fold([User(seq=1, content=[block])]).items)
    assert alone[0] == {"role": "user", "content": [{"type": "text", "text": LOST_BEGINNING}]}


def test_an_empty_log_gives_a_request() -> None:
    assert content() == [[{"type": "text", "text": GO_ON_PROMPT}]]


def test_results_stand_in_the_order_of_their_calls_before_everything_else() -> None:
    sent = content(
        User(content="Go."), _said([_use("a"), _use("b")]), User(content="Wait."),
        _done("b", "second"), _done("a", "first"),
    )  # fmt: skip
    assert [block.get("content", block.get("text")) for block in sent[2]] == [
        "first",
        "second",
        "Wait.",
    ]


def test_a_call_without_a_result_is_answered() -> None:
    sent = content(User(content="Go."), _said([_use("a")]), User(content="What now?"))
    assert sent[2][0]["content"] == UNKNOWN_OUTCOME
    assert sent[2][0]["is_error"] is True
    assert sent[2][1]["text"] == "What now?"


def test_a_second_result_and_one_without_a_call_are_left_out() -> None:
    sent = content(
        User(content="Go."), _said([_use("a")]), _done("a", "one"), _done("a", "two"), _done("z")
    )
    assert [block["content"] for block in sent[2]] == ["one"]


def test_ids_that_come_again_are_made_unique_with_their_results() -> None:
    sent = content(
        User(content="Go."), _said([_use("a"), _use("a")]), _done("a", "one"), _done("a", "two"),
        _said([_use("a")]), _done("a", "three"),
    )  # fmt: skip
    uses = [block["id"] for blocks in (sent[1], sent[3]) for block in blocks]
    answers = [(b["tool_use_id"], b["content"]) for blocks in (sent[2], sent[4]) for b in blocks]
    assert len(set(uses)) == 3
    assert answers == list(zip(uses, ["one", "two", "three"], strict=True))


def test_a_log_that_begins_with_a_reply_is_given_an_opening() -> None:
    assert content(_said([{"type": "text", "text": "Hello."}]))[0][0]["text"] == LOST_BEGINNING


def test_an_empty_result_says_so() -> None:
    sent = content(
        User(content="Go."), _said([_use("a"), _use("b")]), _done("a", ""), _done("b", [])
    )
    assert [block["content"] for block in sent[2]] == [EMPTY_RESULT, EMPTY_RESULT]


@pytest.mark.parametrize(
    ("kind", "media", "data"),
    [
        ("image", "image/png", b"\x89PNG\r\n\x1a\n"),
        ("image", "image/jpeg", b"\xff\xd8\xff\xe0"),
        ("image", "image/gif", b"GIF89a"),
        ("image", "image/webp", b"RIFF\0\0\0\0WEBP"),
        ("document", "application/pdf", b"%PDF-1.7"),
    ],
)
def test_media_are_sent_if_their_first_bytes_match_their_type(
    kind: str, media: str, data: bytes
) -> None:
    text = base64.b64encode(data + b"\0" * 20).decode()
    source = {"type": "base64", "media_type": media, "data": text}
    block = {"type": kind, "source": source, "title": "not sent"}
    other = {"type": kind, "source": {**source, "data": base64.b64encode(b"x" * 20).decode()}}
    view = fold([User(seq=1, content=[block, other])])
    assert build_messages(view.items)[0]["content"] == [{"type": kind, "source": source}]


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64", "media_type": "image/bmp", "data": PNG},
        {"type": "base64", "media_type": "image/png", "data": ""},
        {"type": "base64", "media_type": "image/png", "data": "x"},
        {"type": "url", "url": "http://127.0.0.1/"},
        {},
    ],
)
def test_a_picture_the_api_would_refuse_is_left_out(source: Line) -> None:
    picture = {"type": "image", "source": source}
    words = {"type": "text", "text": "See:"}
    assert content(User(content=[words, picture, IMAGE])) == [[words, IMAGE]]


def test_a_mask_leaves_out_the_thinking_after_it() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    target = {"seq": 3, "tool_use_id": "a", "stub": "[gone]"}
    sent = content(
        User(content="Go."), _said([thinking, _use("a")]), _done("a", "long"),
        _said([thinking, _use("b")]), _done("b"),
        Mask(layer="microcompact", targets=[target], tokens_before=2, tokens_after=1, trigger=""),
    )  # fmt: skip
    assert sent[1][0] == thinking
    assert sent[2][0]["content"] == "[gone]"
    assert [block["type"] for block in sent[3]] == ["tool_use"]


def test_a_summary_that_cuts_a_pair_leaves_no_half_of_it() -> None:
    sent = content(
        User(content="Go."), _said([_use("a")]), _done("a"), User(content="More."),
        Summary(document={}, text="[Conversation compressed]", covers=[1, 2], keep_from=3),
    )  # fmt: skip
    assert [block["text"] for block in sent[0]] == ["[Conversation compressed]", "More."]


def test_a_pause_lets_the_reply_stand_last() -> None:
    sent = content(User(content="Go."), _said([{"type": "text", "text": "Hold on"}], "pause_turn"))
    assert sent[-1][0]["text"] == "Hold on"


@pytest.mark.parametrize(
    ("settled", "place"),
    [(3, 0), (4, 1), (5, 2), (6, 3), (7, 4), (8, 5), (10, 7), (99, None)],
    ids=lambda value: str(value),
)
def test_the_breakpoints_are_at_stable_places(settled: int, place: int | None) -> None:
    """For a reply the breakpoint is at its question. For a result it is at the call, because other
    results may follow the call.
    """
    log: list[Entry] = [
        Session(id="s", cwd="/", version="1", model=MODEL, system="Be good.", tools=TOOLS),
        User(content="Go."),
    ]
    for n in range(4):
        log += [_said([_use(f"c{n}")]), _done(f"c{n}")]
    numbered = [replace(entry, seq=n) for n, entry in enumerate(log, 1)]
    sent = request(numbered, stable_before=settled)
    marked = [
        place
        for place, message in enumerate(sent["messages"])
        if any("cache_control" in block for block in message["content"])
    ]
    assert "cache_control" in sent["system"][0]
    assert marked == sorted({6, 8} | ({place} if place is not None else set()))


def test_results_of_one_message_settle_with_its_calls() -> None:
    log: list[Entry] = [
        User(content="Go."), _said([_use("a"), _use("b")]), _done("a"), _done("b"),
        User(content="?"),
    ]  # fmt: skip
    numbered = [replace(entry, seq=n) for n, entry in enumerate(log, 1)]
    for settled in (3, 4, 5):
        marked = request(numbered, stable_before=settled)["messages"][1]["content"]
        assert "cache_control" in marked[-1]


def test_the_breakpoint_is_before_its_item_after_a_summary() -> None:
    """The summary's seq is larger than those of the items after it."""
    log: list[Entry] = [User(content="Go.")]
    for n in range(4):
        log += [_said([_use(f"c{n}")]), _done(f"c{n}")]
    log.append(
        Summary(document={}, text="So far.", covers=[1, 3], keep_from=4, replaces_earlier=True)
    )
    log += [User(content="Go on."), _said([_use("c9")]), _done("c9")]
    numbered = [replace(entry, seq=n) for n, entry in enumerate(log, 1)]
    messages = request(numbered, stable_before=7)["messages"]
    marked = [n for n, m in enumerate(messages) if "cache_control" in json.dumps(m)]
    assert messages[3]["content"][0]["id"] == "c2"
    assert marked == [3, len(messages) - 3, len(messages) - 1]


def test_a_later_summary_replaces_the_earlier_one() -> None:
    """In older logs without this field, the earlier summary stays in its place."""
    later = Summary(document={}, text="Later.", covers=[2, 2], keep_from=3, replaces_earlier=True)
    log: list[Entry] = [
        User(content="One."), User(content="Two."), User(content="Three."),
        Summary(document={}, text="Earlier.", covers=[1, 1], keep_from=2), later,
    ]  # fmt: skip
    texts = [block["text"] for block in content(*log)[0]]
    assert texts == ["Later.", "Three."]
    old = [block["text"] for block in content(*log[:-1], replace(later, replaces_earlier=False))[0]]
    assert old == ["Later.", "Earlier.", "Three."]


def nested(levels: int, inner: Any, wrap: Any) -> Any:
    for _ in range(levels):
        inner = wrap(inner)
    return inner


def test_too_deeply_nested_values_are_left_out() -> None:
    deep = nested(800, {}, lambda value: {"a": [value]})
    call = {"type": "tool_use", "id": "a", "name": "Bash", "input": deep}
    usage = {"input": 1, "output": 1}
    result = nested(
        800,
        {"type": "text", "text": "in"},
        lambda block: {"type": "tool_result", "tool_use_id": "a", "content": [block]},
    )
    sent = request(
        [
            User(seq=1, content="go"),
            Assistant(seq=2, content=[call], usage=usage, stop_reason="tool_use", model=MODEL),
            User(seq=3, content=[result]),
        ]
    )
    assert sent["messages"][1]["content"][0]["input"] == {}


def test_begins_with() -> None:
    said: list[Entry] = [
        User(seq=1, content="go"),
        Assistant(
            seq=2, content=[{"type": "text", "text": "Yes."}], usage={}, stop_reason="end_turn",
            model=MODEL,
        ),
        User(seq=3, content="and?"),
    ]  # fmt: skip

    def built(*entries: Entry) -> Request:
        return build_request(fold(entries), model=MODEL, max_tokens=1000)

    first, second = built(*said[:1]), built(*said)
    assert begins_with(second, first)
    assert begins_with(built(*said[:2]), first), "whatever comes behind the reply"
    assert begins_with(first, first)
    assert not begins_with(first, second)
    assert not begins_with(built(User(seq=1, content="went"), *said[1:]), first)
    assert not begins_with(replace(second, tools=TOOLS), first)
    assert not begins_with(replace(second, system=[{"type": "text", "text": "Else."}]), first)


def test_a_signed_call_keeps_its_signature_and_the_messages_api_gets_none() -> None:
    signed = {**_use("a"), "signature": "s1", "index": 3}
    log = [User(content="go"), _said([signed, _use("b")], "tool_use"), _done("a"), _done("b")]
    view = fold([replace(entry, seq=n) for n, entry in enumerate(log, 1)])
    built = build_request(view, model=MODEL, max_tokens=1000)
    assert built.messages[1]["content"] == [{**_use("a"), "signature": "s1"}, _use("b")]
    assert body(built)["messages"][1]["content"] == [_use("a"), _use("b")]


def test_a_request_leaves_the_rest_to_the_model_unless_told_otherwise() -> None:
    built = build_request(fold([User(seq=1, content="go")]), model=MODEL, max_tokens=1000)
    assert (built.thinking, built.effort, built.same_failures) == (True, None, None)
    assert (built.system, built.has_thinking(), built.call_ids()) == ([], False, frozenset())
    assert Request(MODEL, [], [], built.messages, 1000).call_ids() == frozenset()
    assert _plain(body(built)) == build_messages(fold([User(seq=1, content="go")]).items)


def test_ids_of_calls_in_the_view_are_taken() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    outline = {"seq": 3, "reply": 2, "tool_use_id": "a", "outline": "Bash: ls"}
    log = [
        User(content="Go."), _said([_use("a")]), _done("a"),
        _said([thought, *_searched("srvtoolu_1"), _use("b")]), _done("b"),
        Mask(layer="outline", targets=[outline], tokens_before=2, tokens_after=1, trigger=""),
    ]  # fmt: skip
    numbered = [replace(entry, seq=n) for n, entry in enumerate(log, 1)]
    before, after = (
        build_request(fold(entries), model=MODEL, max_tokens=1000)
        for entries in (numbered[:-1], numbered)
    )
    assert before.call_ids() == after.call_ids() == {"a", "b", "srvtoolu_1"}
    assert [call.has_thinking() for call in (before, after)] == [True, False]


def test_a_block_of_the_api_is_sent_first_and_otherwise_as_text() -> None:
    def summary(words: str) -> Summary:
        block = {"type": "compaction", "content": words, "signature": "s"}
        return Summary(document={}, text="", covers=[1, 1], keep_from=2, block=block)

    log = [User(content="One."), summary("Earlier."), User(content="Two."), summary("Later.")]
    numbered = [replace(entry, seq=n) for n, entry in enumerate(log, 1)]
    first = {"role": "assistant", "content": [numbered[3].block]}
    sent = _plain(request(numbered))
    assert sent[0] == first
    assert [block["text"] for block in sent[1]["content"]] == ["Earlier.", "Two."]
    asked = _plain(request([*numbered, replace(_said([_use("a")]), seq=5)]))
    assert asked[0] == first
    words = [User(content="One."), User(content=[numbered[3].block])]
    assert [block["text"] for block in content(*words)[0]] == ["One.", "Later."]


def test_a_failed_call_is_sent_as_an_error() -> None:
    failed = replace(_done("a"), is_error=True)
    sent = content(User(content="Go."), _said([_use("a"), _use("b")]), failed, _done("b"))
    assert [block.get("is_error") for block in sent[2]] == [True, None]


def test_words_in_the_same_message_stand_after_a_result() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": "out", "is_error": True}
    words = {"type": "text", "text": "Wait."}
    sent = content(User(content="Go."), _said([_use("a")]), User(content=[result, words]))
    assert sent[2] == [result, words]


def test_a_search_and_its_result_are_sent_unchanged() -> None:
    failed = {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_2",
        "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"},
    }
    blocks = [*_searched("srvtoolu_1"), {**_search("srvtoolu_2"), "caller": {"type": "direct"}}]
    sent = content(User(content="Go."), _said([*blocks, failed]))
    assert sent[1] == [*blocks, failed]


def test_a_search_without_result_waits_for_results_of_calls_alone() -> None:
    """The server continues a search only if nothing but results of calls comes after it."""
    search = _search("srvtoolu_1")
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    reply = [search, thought, _use("a")]
    log = [User(content="Go."), _said(reply, "tool_use"), _done("a")]
    found = _said([_found("srvtoolu_1"), {"type": "text", "text": "So."}])
    numbered = [replace(entry, seq=n) for n, entry in enumerate(log, 1)]
    messages = build_messages(fold(numbered).items)
    assert messages[1]["content"] == reply
    assert content(*log, found)[3] == found.content
    assert content(*log, User(content="Stop."))[1] == [_use("a")]
    paused = [User(content="Go."), _said([search], "pause_turn")]
    assert content(*paused)[1] == [search]
    assert content(*paused, User(content="Stop."))[1] == [{"type": "text", "text": LOST_SEARCH}]


@pytest.mark.parametrize(
    ("recorded", "sent"),
    [("x" * 128, "x" * 128), ("x" * 129, "x" * 120), ("d e", "d_e"), ("", "_")],
)
def test_a_valid_id_is_sent_unchanged(recorded: str, sent: str) -> None:
    calls = content(User(content="Go."), _said([_use(recorded)]), _done(recorded, "one"))
    assert calls[1][0]["id"] == calls[2][0]["tool_use_id"] == sent
    assert calls[2][0]["content"] == "one"
