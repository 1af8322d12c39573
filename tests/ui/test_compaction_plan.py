"""The plan of the next compaction: texts and figures."""

from dataclasses import replace

from ctxagent.agent.compaction.summary.preview import SummaryPreview
from ctxagent.agent.ui import compaction_report

PLAN = SummaryPreview(
    kept=[(10, "user: now the tests", 40)],
    masked=[(4, "user: result of Read", 30)],
    dropped=[(n, f"entry {n}", 100 * n) for n in range(1, 4)],
    fixed=9_000,
    tokens_before=150_000,
    tokens_after_estimate=31_000,
    call_tokens=150_100,
    call_cost_usd=0.3125,
)


def test_the_preview_names_everything_with_its_size() -> None:
    assert compaction_report.summary_line(PLAN) == (
        "150,000 → about 31,000 tokens · 1 kept, 1 cleared, 3 summarised · "
        "a call of 150,100 tokens, about $0.3125"
    )
    lines = compaction_report.item_lines(PLAN)
    assert "the system prompt and the tools stay: 9,000 tokens" in lines
    assert "kept as they are: 1 · 40 tokens" in lines
    assert "replaced by the summary: 3 · 600 tokens" in lines
    assert lines[-3:] == [
        "  #1           100  entry 1",
        "  #2           200  entry 2",
        "  #3           300  entry 3",
    ]


def test_a_context_that_would_grow_says_how_much_more() -> None:
    grown = replace(PLAN, tokens_before=2_812, tokens_after_estimate=3_354)
    assert compaction_report._saving(grown) == "2,812 → about 3,354 tokens (19% more)"
    assert compaction_report._saving(PLAN) == "150,000 → about 31,000 tokens (79% less)"


def test_a_long_preview_shows_the_largest() -> None:
    lines = compaction_report.item_lines(PLAN, limit=1)
    assert lines[-2:] == ["  #3           300  entry 3", "  … and 2 smaller ones"]
