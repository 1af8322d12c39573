"""Reports on compaction, made from log entries only."""

import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from ctxagent.agent.compaction.history import Mark, acts, marks, session_metrics, total_metrics
from ctxagent.agent.compaction.layers import known
from ctxagent.agent.compaction.layers.layer import Layer
from ctxagent.agent.context.window import Window
from ctxagent.agent.events import Compacted
from ctxagent.agent.session.entries import (
    Assistant,
    Checkpoint,
    Entry,
    Mask,
    Note,
    Revert,
    Session,
    Summary,
    ToolResult,
    User,
)
from ctxagent.agent.session.totals import Totals
from ctxagent.agent.ui import compaction_report
from ctxagent.agent.ui.headless import Headless, OutputFormat

AT = "2026-11-21T10:20:30.456Z"
NOW = datetime(2026, 11, 21, 11, 0, 0, tzinfo=UTC)


def mask(seq: int, layer: str, before: int, after: int) -> Mask:
    return Mask(
        seq=seq, at=AT, layer=layer, targets=[{}], tokens_before=before, tokens_after=after,
        trigger="level",
    )  # fmt: skip


def summary(seq: int, intent: str = "fix it") -> Summary:
    return Summary(
        seq=seq, at=AT, document={"intent": intent}, text="…", covers=[2, 9], keep_from=10,
        tokens_before=150_000, tokens_after=30_000, trigger="manual", files=["conversation.md"],
    )  # fmt: skip


LOG: list[Entry] = [
    User(seq=1, at=AT, content="go"),
    ToolResult(
        seq=2, at=AT, tool_use_id="a", content="short", offloaded="offloaded/x_Bash_2.md",
        details={"tokens_saved": 18_500},
    ),
    ToolResult(seq=3, at=AT, tool_use_id="b", content="small"),
    mask(4, "microcompact", 90_000, 60_000),
    mask(5, "truncate", 60_000, 55_000),
    summary(6),
    Revert(seq=7, at=AT, target=6),
    mask(8, "microcompact", 80_000, 79_000),
    summary(9, intent=" "),
]  # fmt: skip


def test_the_status_report_has_the_form_of_its_source() -> None:
    counts = {"demoted": 1, "microcompacted": 7, "truncated": 3, "outlined": 4, "summaries": 2}
    others = [
        Mark(10, AT, "phase", "research"),
        Mark(11, AT, "checkpoint", "checkpoint 1 (75 %)", ("checkpoints/1.json",)),
        Mark(12, AT, "phase", "planning"),
    ]
    text = compaction_report.status(Window(160_000, 200_000), acts(LOG), others, counts, NOW)
    lines = text.split("\n")
    assert lines[:4] == [
        "## Context Status Report",
        "**Timestamp:** 2026-11-21 11:00:00 UTC",
        "**Estimated Usage:** 80% (160,000 of 200,000 tokens)",
        "**Level:** RED",
    ]
    assert "- **Tool results offloaded:** 1 (18,500 tokens saved)" in lines
    assert "- **Tool inputs truncated:** 3 (5,000 tokens saved)" in lines
    assert any(line.startswith("- **Summarisations performed:** 2") for line in lines)
    assert "- **Tool calls outlined:** 4 (0 tokens saved)" in lines
    assert lines[11:13] == ["- **Checkpoints:** 1", "- **Phase:** planning"]
    assert lines[lines.index("### Recommendation") + 1].startswith("Apply Tier 3 summarisation")
    table = lines[lines.index("### Compression History") + 1 :]
    assert table[0] == "| Time | Type | Tokens Saved |"
    assert table[2] == "| 2026-11-21 10:20:30 UTC | TIER_1 | 18,500 |"
    assert table[5] == "| 2026-11-21 10:20:30 UTC | TIER_3 (undone) | 120,000 |"


def test_a_layer_of_an_extension_has_rows_with_its_own_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Brief(Layer):
        name = "brief-report"
        done = ("made brief", "made brief")

    log: list[Entry] = [mask(4, Brief.name, 9_000, 4_000), mask(5, "not-loaded", 800, 700)]
    totals = Totals()
    for entry in log:
        totals.add(entry)
    counts = totals.all.compaction
    monkeypatch.setattr(known, "_known", {**known._known})
    known.add_layer(Brief)
    text = compaction_report.status(Window(160_000, 200_000), acts(log), [], counts, NOW)
    assert "- **made brief:** 1 (5,000 tokens saved)" in text
    assert "**Trigger:** brief-report: " in compaction_report.event_log(acts(log))
    rows = compaction_report.metrics(session_metrics(log)).split("\n")
    assert "| saved: made brief | 5,000 tokens, 1 time | – | – |" in rows
    assert "| saved: cleared by not-loaded | 100 tokens, 1 time | – | – |" in rows


def test_an_entry_is_told_in_words() -> None:
    data = {"answer": "no", "rule": "Bash", "reason": "", "asked": True, "files": ["a", "b"]}
    note = Note(seq=5, topic="permission", text="not authorised: Bash rm", data=data)
    assert compaction_report.entry_line(note) == (
        "topic permission, text not authorised: Bash rm, data answer no, rule Bash, asked yes, "
        "files a, b"
    )
    mask = replace(next(e for e in LOG if isinstance(e, Mask)), trigger="HOOK-CTX-003: 85%")
    assert "(85%)" in compaction_report.entry_line(mask)


@pytest.mark.parametrize(
    ("tokens", "advice"),
    [
        (10, "Continue normally"),
        (30, "Monitor, prepare compression"),
        (60, "Apply Tier 1 & 2"),
        (80, "Apply Tier 3 summarisation"),
        (90, "Checkpoint + fresh session"),
    ],
)
def test_each_level_has_its_advice(tokens: int, advice: str) -> None:
    counts = dict.fromkeys(("demoted", "microcompacted", "truncated", "outlined", "summaries"), 0)
    text = compaction_report.status(Window(tokens, 100), [], [], counts, NOW)
    assert f"### Recommendation\n{advice}" in text
    assert text.endswith("| – | none yet | 0 |")
    assert "**Phase:**" not in text


def test_the_event_log_has_the_fields_of_its_source() -> None:
    first, *_, undone, _, last = compaction_report.event_log(acts(LOG), levels=True).split("\n\n")
    assert first.split("\n") == [
        "## Compression Event Log · #2",
        "**Timestamp:** 2026-11-21 10:20:30 UTC",
        "**Event Type:** TIER_1",
        "**Trigger:** move: oversize result",
        "**Tokens Before:** 18,501",
        "**Tokens After:** 1",
        "**Tokens Saved:** 18,500",
        "**Files Created:** offloaded/x_Bash_2.md",
        "**Intent Preserved:** YES",
    ]
    assert "summary: manual, undone later" in undone
    assert "**Files Created:** conversation.md" in last
    assert last.endswith("VERIFICATION_NEEDED")
    assert compaction_report.event_log([]) == "nothing has been compacted in this session"


def test_what_else_happened_stands_among_the_acts() -> None:
    log: list[Entry] = [
        mask(4, "truncate", 9, 8),
        Checkpoint(seq=5, at=AT, number=2, path="checkpoints/2.json", trigger="level"),
        summary(6),
        Note(seq=7, at=AT, topic="drift", text="asks what the task is"),
        Revert(seq=8, at=AT, target=6),
        Note(seq=9, at=AT, topic="phase", text=""),
    ]
    parts = compaction_report.event_log(acts(log), marks(log)).split("\n\n")
    assert [part.split("\n")[0] for part in parts] == [
        "## Compression Event Log · #4",
        "Checkpoint · #5 · 2026-11-21 10:20:30 UTC: checkpoint 2 (level)",
        "## Compression Event Log · #6",
        "Drift · #7 · 2026-11-21 10:20:30 UTC: asks what the task is",
        "Undone · #8 · 2026-11-21 10:20:30 UTC: #6",
        "Phase · #9 · 2026-11-21 10:20:30 UTC: none",
    ]
    assert parts[1].endswith("**Files Created:** checkpoints/2.json")
    newest = compaction_report.event_log(acts(log), marks(log), limit=1)
    assert newest.startswith("## Compression Event Log · #6")
    assert "Phase · #9" in newest


def test_the_metrics_name_their_targets() -> None:
    checks = {
        "tally": {"recall": {"asked": 30, "before": 12, "after": 29}},
        "sections": {"critical": 2, "kept": 2},
    }
    log = [replace(summary(6), probes=checks), replace(summary(9), tokens_after=75_000)]
    lines = compaction_report.metrics(
        session_metrics([mask(4, "truncate", 9_000, 4_000), *log])
    ).split("\n")
    assert lines[0] == "## Compression Metrics · 1 session"
    assert lines[3:] == [
        "| #6: size after | 30,000 of 150,000 (20%) tokens | < 50 % of before | met |",
        "| #9: size after | 75,000 of 150,000 (50%) tokens | < 50 % of before | not met |",
        "| probes: recall | 12 before, 29 of 30 (97%) after | 100 % | not met |",
        "| critical sections preserved | 2 of 2 (100%) | 100 % | met |",
        "| recovery success | none checked | 100 % | – |",
        "| saved: truncated | 5,000 tokens, 1 time | – | – |",
        "| saved: summary | 195,000 tokens, 2 times | – | – |",
        "| spent on summaries | $0.0000 | – | – |",
    ]
    several = compaction_report.metrics(
        total_metrics([session_metrics(log), session_metrics([])])
    ).split("\n")
    assert several[0] == "## Compression Metrics · 2 sessions"
    assert several[3] == (
        "| summaries: size after | 1 of 2 (50%) below | < 50 % of before | not met |"
    )
    assert compaction_report.metrics(session_metrics([])).split("\n")[3] == (
        "| summaries | none | < 50 % of before | – |"
    )


WORDS = [(2, "Fix the login.\nMind the tests."), (7, " "), (8, "Use sha256."), (12, "go  on")]


def test_the_intent_before_any_summary_is_the_first_words() -> None:
    assert compaction_report.intent(None, WORDS).split("\n") == [
        "### Session Intent · from your first message, #2",
        "Fix the login.",
        "Mind the tests.",
        "",
        "Your messages since:",
        "- #8: Use sha256.",
        "- #12: go on",
    ]
    assert (
        compaction_report.intent(None, [(2, " ")])
        == "you have not sent a message in this session yet"
    )
    blank = replace(summary(9, intent=" "), document={"intent": " "})
    assert compaction_report.intent(blank, WORDS) == compaction_report.intent(None, WORDS)


def test_the_intent_of_a_summary_and_the_words_it_does_not_cover() -> None:
    stands = replace(summary(11, intent="Fix it all."), keep_from=12, keep=[8])
    assert compaction_report.intent(stands, WORDS).split("\n") == [
        "### Session Intent · from the summary #11",
        "Fix it all.",
        "",
        "Your messages since:",
        "- #8: Use sha256.",
        "- #12: go on",
    ]
    assert compaction_report.intent(replace(stands, keep_from=13, keep=[]), WORDS).endswith(
        "Fix it all."
    )


def test_the_intent_is_bounded() -> None:
    words = [(1, "long " * 1_000), *((n, "word " * 1_000) for n in range(2, 202))]
    text = compaction_report.intent(None, words)
    assert len(text) < 2_000 + 10 * 350
    assert "… 190 older messages" in text
    assert "- #201: word" in text


@pytest.mark.parametrize("format", ["text", "stream-json"])
def test_headless_tells_compactions(format: OutputFormat) -> None:
    event = Compacted("truncate", "level", 9_000, 8_000, 0.1, 0.0, 3, "3 old inputs truncated")
    out, err = io.StringIO(), io.StringIO()
    Headless(format, out, err, verbose=True).emit(event)
    assert err.getvalue() == f"{compaction_report.receipt(event)}\n"
    if format == "stream-json":
        told = json.loads(out.getvalue())
        assert (told["type"], told["layer"], told["tokens_after"]) == (
            "compacted",
            "truncate",
            8_000,
        )
    else:
        assert out.getvalue() == ""


def call(seq: int, read: int, written: int, *, fresh: int = 0, minute: int = 0) -> Assistant:
    usage = {"input": fresh, "cache_read": read, "cache_creation": written, "output": 9}
    return Assistant(
        seq=seq, at=f"2026-11-21T10:{minute:02}:00.000Z", content=[], usage=usage,
        stop_reason="end_turn", model="m",
    )  # fmt: skip


def opened(seq: int, **changed: Any) -> Session:
    return Session(seq=seq, id="s", cwd="/p", version="1", **{"model": "m", **changed})


def masked(seq: int, target: int, layer: str = "microcompact") -> Mask:
    return Mask(
        seq=seq, layer=layer, targets=[{"seq": target}], tokens_before=9, tokens_after=1,
        trigger="it pays",
    )  # fmt: skip


FIRST = [opened(1, system="Be good.", tools=[]), User(seq=2, content="go"), call(4, 0, 9_000)]
DROPPED = "the server had dropped it from its cache"
CHANGED = "the system prompt, tools or model changed"


@pytest.mark.parametrize(
    ("between", "minute", "why"),
    [
        ([], 5, DROPPED),
        ([], 6, "more than 5 minutes passed"),
        ([replace(call(5, 9_000, 0, minute=4), purpose="warm")], 8, DROPPED),
        ([replace(call(5, 9_000, 0, minute=4), purpose="warm")], 10, "more than 5 minutes passed"),
        ([masked(5, 3)], 6, "#5 changed what was sent before (1 old result cleared)"),
        ([masked(5, 3), summary(6)], 0, "#6 changed what was sent before (summary: manual)"),
        ([Revert(seq=5, target=3)], 0, "#5 changed what was sent before (#3 undone)"),
        ([masked(6, 5, "demote")], 0, DROPPED),  # of what had not been sent yet
        ([opened(5)], 0, DROPPED),
        ([opened(5, system="Be good.")], 0, DROPPED),
        ([opened(5, system="Be better.")], 6, CHANGED),
        ([opened(5, tools=[{"name": "Bash"}])], 0, CHANGED),
        ([opened(5, model="n")], 0, CHANGED),
    ],
)
def test_why_the_cache_was_missed(between: list[Entry], minute: int, why: str) -> None:
    assert (
        compaction_report.last_cache_miss_reason(
            [*FIRST, *between, call(9, 4_499, 6_000, minute=minute)]
        )
        == why
    )


@pytest.mark.parametrize(
    "later",
    [
        [],
        [call(9, 4_500, 6_000)],  # half of it was there
        [call(9, 0, 1_000)],  # too short to be cached
        [replace(call(9, 0, 9_000), purpose="summary")],
    ],
)
def test_no_miss(later: list[Entry]) -> None:
    assert compaction_report.last_cache_miss_reason([*FIRST, *later]) is None


def test_a_server_without_a_cache_has_no_misses() -> None:
    assert (
        compaction_report.last_cache_miss_reason(
            [call(4, 0, 0, fresh=9_000), call(5, 0, 0, fresh=9_000)]
        )
        is None
    )


def test_the_newest_miss_is_the_one_told() -> None:
    log = [*FIRST, masked(5, 3), call(6, 0, 9_000), call(7, 0, 9_000), call(8, 9_000, 10)]
    assert compaction_report.last_cache_miss_reason(log) == DROPPED
    assert (
        compaction_report.last_cache_miss_reason([replace(entry, at="") for entry in log])
        == DROPPED
    )


@pytest.mark.parametrize(
    ("layer", "cost", "said"),
    [
        (
            "summary",
            0.0123,
            "context compacted (manual): 150,000 → 30,000 tokens · #2 to #9 · $0.0123 · 12.4 s",
        ),
        (
            "summary",
            None,
            "context compacted (manual): 150,000 → 30,000 tokens · #2 to #9 · price not known · "
            "12.4 s",
        ),
        ("microcompact", 0.0, "#2 to #9 (manual): 150,000 → 30,000 tokens"),
    ],
)
def test_receipts(layer: str, cost: float | None, said: str) -> None:
    event = Compacted(layer, "manual", 150_000, 30_000, 12.43, cost, 8, "#2 to #9")  # type: ignore[arg-type]
    assert compaction_report.receipt(event) == said


def test_a_mask_is_described_with_the_texts_in_place_of_others() -> None:
    targets = [
        {"seq": 3, "tool_use_id": "a", "stub": "[cleared: 90 lines.\n/log #3]"},
        {"seq": 4, "tool_use_id": "b", "input": {"path": "x.py", "old_string": "[cut]"}},
        {"seq": 6, "tool_use_id": "c", "reply": 5, "outline": ""},
        {"seq": 7, "tool_use_id": "d", "reply": 5, "outline": "2 calls: ok"},
    ]
    mask = Mask(
        seq=9, layer="microcompact", targets=targets, tokens_before=4_000, tokens_after=900,
        trigger="it pays",
    )  # fmt: skip
    assert compaction_report.mask_text(mask).splitlines() == [
        compaction_report.entry_line(mask),
        "",
        "#3: [cleared: 90 lines.",
        "/log #3]",
        "",
        "#4: path x.py, old string [cut]",
        "",
        "#6: in the outline of the calls around it",
        "",
        "#7: 2 calls: ok",
    ]
