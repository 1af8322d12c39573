"""What people read about compaction, made from entries alone."""

import io
import json
from datetime import UTC, datetime

import pytest

from ctxagent.agent.compaction.engine import Preview
from ctxagent.agent.context.window import Window
from ctxagent.agent.events import Compacted
from ctxagent.agent.record.entries import Entry, Mask, Revert, Summary, ToolResult, User
from ctxagent.agent.ui import report
from ctxagent.agent.ui.headless import Format, Headless

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


def test_the_acts_of_a_log() -> None:
    acts = report.acts(LOG)
    assert [(a.seq, a.layer, a.tier, a.undone) for a in acts] == [
        (2, "demote", "TIER_1", False),
        (4, "microcompact", "TIER_1", False),
        (5, "truncate", "TIER_2", False),
        (6, "summary", "TIER_3", True),
        (8, "microcompact", "TIER_1", False),
        (9, "summary", "TIER_3", False),
    ]
    assert [a.saved for a in acts] == [18_500, 30_000, 5_000, 120_000, 1_000, 120_000]


def test_a_revert_that_was_reverted_undoes_nothing() -> None:
    acts = report.acts([summary(6), Revert(seq=7, target=6), Revert(seq=8, target=7)])
    assert [act.undone for act in acts] == [False]


def test_savings_leave_out_what_was_taken_back() -> None:
    assert report.savings(report.acts(LOG)) == [
        ("demote", 1, 18_500),
        ("microcompact", 2, 31_000),
        ("truncate", 1, 5_000),
        ("summary", 1, 120_000),
    ]


def test_the_status_report_has_the_form_of_its_source() -> None:
    counts = {"demoted": 1, "microcompacted": 7, "truncated": 3, "summaries": 2}
    text = report.status(Window(160_000, 200_000), report.acts(LOG), counts, NOW)
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
    assert lines[lines.index("### Recommendation") + 1].startswith("Apply Tier 3 summarisation")
    table = lines[lines.index("### Compression History") + 1 :]
    assert table[0] == "| Time | Type | Tokens Saved |"
    assert table[2] == "| 2026-11-21 10:20:30 UTC | TIER_1 | 18,500 |"
    assert table[5] == "| 2026-11-21 10:20:30 UTC | TIER_3 (taken back) | 120,000 |"


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
    counts = dict.fromkeys(("demoted", "microcompacted", "truncated", "summaries"), 0)
    text = report.status(Window(tokens, 100), [], counts, NOW)
    assert f"### Recommendation\n{advice}" in text
    assert text.endswith("| – | none yet | 0 |")


def test_the_event_log_has_the_fields_of_its_source() -> None:
    first, *_, undone, _, last = report.events(report.acts(LOG)).split("\n\n")
    assert first.split("\n") == [
        "## Compression Event Log · #2",
        "**Timestamp:** 2026-11-21 10:20:30 UTC",
        "**Event Type:** TIER_1",
        "**Trigger:** demote: oversize result",
        "**Tokens Before:** 18,501",
        "**Tokens After:** 1",
        "**Tokens Saved:** 18,500",
        "**Files Created:** offloaded/x_Bash_2.md",
        "**Intent Preserved:** YES",
    ]
    assert "summary: manual, taken back later" in undone
    assert "**Files Created:** conversation.md" in last
    assert last.endswith("VERIFICATION_NEEDED")
    assert report.events([]) == "nothing has been compacted in this session"


def test_how_an_act_is_named() -> None:
    assert report.describe(summary(6)) == "summary of #2 to #9 (manual)"
    assert report.describe(mask(4, "microcompact", 2, 1)) == "microcompact of 1 (level)"


@pytest.mark.parametrize("format", ["text", "stream-json"])
def test_headless_tells_compactions(format: Format) -> None:
    event = Compacted("truncate", "level", 9_000, 8_000, 0.1, 0.0, 3, "3 inputs truncated")
    out, err = io.StringIO(), io.StringIO()
    Headless(format, out, err, verbose=True).emit(event)
    assert err.getvalue() == f"{report.receipt(event)}\n"
    if format == "stream-json":
        told = json.loads(out.getvalue())
        assert (told["type"], told["layer"], told["tokens_after"]) == (
            "compacted",
            "truncate",
            8_000,
        )
    else:
        assert out.getvalue() == ""


def test_whether_a_turn_followed() -> None:
    said = [User(seq=8, content="and now?"), User(seq=9, content="cut off", source="notice")]
    assert report.later_turn(said, 7)
    assert not report.later_turn(said, 8)


PLAN = Preview(
    kept=[(10, "user: now the tests", 40)],
    masked=[(4, "user: result of Read", 30)],
    dropped=[(n, f"entry {n}", 100 * n) for n in range(1, 4)],
    tokens_before=150_000,
    tokens_after_estimate=31_000,
    call_tokens=150_100,
    call_cost_usd=0.3125,
)


def test_the_preview_names_everything_with_its_size() -> None:
    lines = report.preview(PLAN).split("\n")
    assert lines[0] == (
        "150,000 → about 31,000 tokens · 1 kept, 1 masked, 3 summarised · "
        "a call of 150,100 tokens, about $0.3125"
    )
    assert "kept as they are: 1 · 40 tokens" in lines
    assert "dropped, the summary stands for them: 3 · 600 tokens" in lines
    assert lines[-3:] == [
        "  #1           100  entry 1",
        "  #2           200  entry 2",
        "  #3           300  entry 3",
    ]


def test_a_long_preview_shows_the_largest() -> None:
    lines = report.preview(PLAN, limit=1).split("\n")
    assert lines[-2:] == ["  #3           300  entry 3", "  … and 2 smaller ones"]


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
        ("microcompact", 0.0, "microcompact (manual): 150,000 → 30,000 tokens · #2 to #9"),
    ],
)
def test_receipts(layer: str, cost: float | None, said: str) -> None:
    event = Compacted(layer, "manual", 150_000, 30_000, 12.43, cost, 8, "#2 to #9")  # type: ignore[arg-type]
    assert report.receipt(event) == said
