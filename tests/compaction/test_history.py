"""The acts of compaction and their results, computed from entries."""

from dataclasses import replace
from typing import Any

import pytest

from ctxagent.agent.compaction.history import (
    Rate,
    acts,
    describe,
    intent_preserved,
    last_acts,
    marks,
    savings,
    session_metrics,
    total_metrics,
    user_wrote_since,
    why_not_in_context,
)
from ctxagent.agent.compaction.layers import move
from ctxagent.agent.compaction.layers.layer import WITH_SUMMARY
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.session.entries import (
    Assistant,
    Checkpoint,
    End,
    Entry,
    Mask,
    Note,
    Revert,
    Summary,
    ToolResult,
    User,
)

AT = "2026-11-21T10:20:30.456Z"


def mask(seq: int, layer: str, before: int, after: int) -> Mask:
    return Mask(
        seq=seq, at=AT, layer=layer, targets=[{}], tokens_before=before, tokens_after=after,
        trigger="level",
    )  # fmt: skip


def summary(seq: int, intent: str = "fix it", **fields: Any) -> Summary:
    given = {
        "document": {"intent": intent}, "text": "…", "covers": [2, 9], "keep_from": 10,
        "tokens_before": 150_000, "tokens_after": 30_000, "trigger": "manual",
        "files": ["conversation.md"], **fields,
    }  # fmt: skip
    return Summary(seq=seq, at=AT, **given)


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
    done = acts(LOG)
    assert [(a.seq, a.layer, a.tier, a.undone) for a in done] == [
        (2, "demote", "TIER_1", False),
        (4, "microcompact", "TIER_1", False),
        (5, "truncate", "TIER_2", False),
        (6, "summary", "TIER_3", True),
        (8, "microcompact", "TIER_1", False),
        (9, "summary", "TIER_3", False),
    ]
    assert [a.saved for a in done] == [18_500, 30_000, 5_000, 120_000, 1_000, 120_000]


def test_an_act_as_json_has_the_fields_of_its_source() -> None:
    assert acts(LOG)[3].to_json() == {
        "ref": 6,
        "timestamp": AT,
        "event_type": "TIER_3",
        "layer": "summary",
        "trigger": "manual",
        "tokens_before": 150_000,
        "tokens_after": 30_000,
        "tokens_saved": 120_000,
        "files_created": ["conversation.md"],
        "intent_preserved": "YES",
        "taken_back": True,
    }


def test_a_revert_that_was_reverted_undoes_nothing() -> None:
    done = acts([summary(6), Revert(seq=7, target=6), Revert(seq=8, target=7)])
    assert [act.undone for act in done] == [False]


def test_savings_leave_out_what_was_undone() -> None:
    assert savings(acts(LOG)) == [
        ("demote", 1, 18_500),
        ("microcompact", 2, 31_000),
        ("truncate", 1, 5_000),
        ("summary", 1, 120_000),
    ]


def test_the_files_of_results_that_were_moved_together() -> None:
    plan = move.plan("word " * 20_000, path="/s/offloaded/x_Bash_3.md", policy=DEFAULT)
    assert plan is not None
    moved = replace(
        mask(4, "demote", 9, 1), targets=[{"stub": plan.reference}, {"stub": "cleared"}, {}]
    )
    assert acts([moved])[0].files == ("offloaded/x_Bash_3.md",)
    assert acts([replace(moved, layer="microcompact")])[0].files == ()


def drift(seq: int) -> Note:
    return Note(
        seq=seq, topic="drift", text="asks what the task is", data={"severity": "HIGH"}
    )  # fmt: skip


def end(seq: int) -> End:
    return End(seq=seq, status="ok")


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ([], "YES"),
        ([drift(7)], "VERIFICATION_NEEDED"),
        ([end(7), end(8), drift(9)], "VERIFICATION_NEEDED"),
        ([end(7), end(8), end(9), drift(10)], "YES"),  # no longer watched
        ([Note(seq=7, topic="warning", text="drift")], "YES"),
    ],
)
def test_drift_within_three_turns_speaks_against_a_summary(after: list[Entry], said: str) -> None:
    done = acts([drift(4), mask(5, "truncate", 9, 8), summary(6), *after])
    assert [intent_preserved(act) for act in done] == ["YES", said]


@pytest.mark.parametrize("document", [{}, {"intent": " \n"}, [], {"decisions": ["no intent"]}])
def test_a_summary_without_an_intent_needs_to_be_verified(document: Any) -> None:
    assert intent_preserved(acts([summary(6, document=document)])[0]) == "VERIFICATION_NEEDED"


def test_the_marks_of_a_log() -> None:
    found = marks(
        [
            Checkpoint(seq=1, number=1, path="checkpoints/1.json", trigger="85 %"),
            Checkpoint(seq=2, number=2, path="", trigger="turn"),  # of the files alone
            drift(3),
            Note(seq=4, topic="phase", text="review"),
            Note(seq=5, topic="permission", text="not authorised: Bash rm"),
            Revert(seq=6, target=9, reason="taken back by the user"),
        ]
    )
    assert [(m.seq, m.kind, m.text) for m in found] == [
        (1, "checkpoint", "checkpoint 1 (85 %)"),
        (3, "drift", "HIGH: asks what the task is"),
        (4, "phase", "review"),
        (6, "revert", "#9: taken back by the user"),
    ]
    assert found[0].to_json()["event_type"] == "CHECKPOINT"
    assert found[0].files == ("checkpoints/1.json",)


def test_how_an_act_is_named() -> None:
    assert describe(summary(6)) == "summary of #2 to #9 (manual)"
    older = summary(6, covers=[59, 55])  # the first was an earlier summary
    assert describe(older) == "summary of all up to #55 (manual)"
    assert describe(mask(4, "microcompact", 2, 1)) == "1 old result cleared (level)"


def test_user_wrote_since() -> None:
    said = [User(seq=8, content="and now?"), User(seq=9, content="cut off", source="notice")]
    assert user_wrote_since(said, 7)
    assert not user_wrote_since(said, 8)


def call(purpose: str, cost: float | None) -> Assistant:
    return Assistant(
        content=[], usage={}, stop_reason="end_turn", model="m", purpose=purpose, cost_usd=cost
    )


PROBES = {
    "gate": "HOOK-CTX-004",
    "tally": {
        "recall": {"asked": 10, "before": 4, "after": 9},
        "artifact": {"asked": 5, "before": 5, "after": 5},
    },
    "sections": {"critical": 3, "kept": 3},
    "recovery": {"asked": 4, "ok": 3},
}


def test_the_metrics_of_a_session() -> None:
    log = [
        mask(4, "truncate", 60_000, 55_000),
        summary(6, probes=PROBES),
        summary(7, probes={"gate": "HOOK-CTX-004"}, tokens_after=75_000),  # of an older version
        summary(8, probes={"tally": {"recall": {"asked": 2, "before": 2, "after": 2}}}),
        Revert(seq=9, target=8),
        call("turn", 1.0),
        call("summary", 0.25),
        call("verify", 0.5),
    ]
    found = session_metrics(log)
    assert found.halved == Rate(3, 2, 2)
    assert dict(found.probes) == {"recall": Rate(12, 6, 11), "artifact": Rate(5, 5, 5)}
    assert dict(found.probes)["recall"].met is False
    assert dict(found.probes)["artifact"].met is True
    assert found.sections == Rate(3, 3, 3)
    assert (found.recovery, found.recovery.met) == (Rate(4, 3, 3), False)
    assert found.saved == (("truncate", 1, 5_000), ("summary", 2, 195_000))
    assert found.cost_usd == 0.75


def test_unmeasured_metrics_are_neither_met_nor_missed() -> None:
    found = session_metrics([summary(6)])
    assert (found.sections.met, found.recovery.met, found.probes) == (None, None, ())
    assert session_metrics([]).halved.met is None


def test_a_price_that_is_not_known_leaves_the_sum_unknown() -> None:
    known, unknown = (
        session_metrics([call("summary", 0.5)]),
        session_metrics([call("summary", None)]),
    )
    assert (known.cost_usd, unknown.cost_usd) == (0.5, None)
    assert total_metrics([known, unknown]).cost_usd is None
    assert total_metrics([known, known]).cost_usd == 1.0


def test_the_metrics_of_several_sessions_are_summed() -> None:
    one = session_metrics([mask(4, "truncate", 60, 55), summary(6, probes=PROBES)])
    other = session_metrics([mask(4, "microcompact", 50, 40), mask(5, "truncate", 9, 8)])
    both = total_metrics([one, other, one])
    assert both.sessions == 3
    assert dict(both.probes)["recall"] == Rate(20, 8, 18)
    assert both.recovery == Rate(8, 6, 6)
    assert both.saved == (("microcompact", 1, 10), ("truncate", 3, 11), ("summary", 2, 240_000))
    assert both.to_json()["below_half"] == {"asked": 2, "before": 2, "after": 2, "met": True}
    assert total_metrics([]).to_json()["sessions"] == 0


@pytest.mark.parametrize(
    "probes",
    [
        [],
        {"tally": [], "sections": 3, "recovery": None},
        {"tally": {"recall": "all"}, "sections": {"critical": "x", "kept": True}},
    ],
)
def test_garbled_checks_count_for_nothing(probes: Any) -> None:
    found = session_metrics([summary(6, probes=probes)])
    assert sum(rate.asked for _, rate in found.probes) == 0
    assert found.sections == found.recovery == Rate()


@pytest.mark.parametrize(
    ("log", "last"),
    [
        ([], []),
        ([Revert(seq=5, target=4)], []),
        ([mask(5, "truncate", 60, 50)], [4, 5]),
        ([replace(mask(5, "truncate", 60, 50), trigger="HOOK-CTX-002: level")], [4, 5]),
        ([replace(mask(5, "truncate", 60, 50), trigger="nothing else fits")], [5]),
        ([End(seq=5, status="ok"), mask(6, "truncate", 60, 50)], [6]),
        ([mask(6, "truncate", 60, 50)], [6]),  # what stood between is not known
        ([mask(5, "truncate", 60, 50), Revert(seq=6, target=5)], [4]),
        ([mask(5, "truncate", 60, 50), summary(6)], [6]),
        ([mask(5, "truncate", 60, 50), summary(6), Revert(seq=7, target=6)], [4, 5]),
    ],
)
def test_the_masks_of_one_pass_are_the_last_acts_together(
    log: list[Entry], last: list[int]
) -> None:
    """One pass over results and inputs is undone as one act, as the user saw it."""
    begun = [User(seq=3, at=AT, content="go"), mask(4, "microcompact", 90, 60)] if log else []
    assert [act.seq for act in last_acts([*begun, *log])] == last


def test_masks_are_undone_with_their_summary() -> None:
    said = [User(seq=6, at=AT, content="rules", source="environment")]
    behind = replace(mask(7, "microcompact", 50, 40), trigger=WITH_SUMMARY)
    log: list[Entry] = [mask(4, "microcompact", 90, 60), summary(5), *said, behind]
    assert [act.seq for act in last_acts(log)] == [5, 7]
    later = mask(8, "microcompact", 40, 30)
    assert [act.seq for act in last_acts([*log, later])] == [8]
    undone = [Revert(seq=8, target=7), Revert(seq=9, target=5)]
    assert [act.seq for act in last_acts([*log, *undone])] == [4]


def test_why_an_entry_is_not_in_the_context() -> None:
    target = {"seq": 3, "tool_use_id": "a", "stub": "x", "need_chance": 0.013, "read_for": 1204}
    cleared = replace(mask(5, "microcompact", 90, 60), targets=[target], trigger="it pays")
    result = ToolResult(seq=3, at=AT, tool_use_id="a", content="out")
    moved = replace(result, offloaded="offloaded/a")
    log: list[Entry] = [User(seq=2, at=AT, content="go"), result]
    assert why_not_in_context(log, 3) == ""
    assert (
        why_not_in_context([log[0], moved], 3)
        == "moved to a file when it was recorded: offloaded/a"
    )
    told = why_not_in_context([*log, cleared], 3)
    assert told.startswith("#5: 1 old result cleared (it pays). Keeping it after it became due")
    assert "1,204 input tokens" in told
    assert "the chance that it is needed again was 1.3%" in told
    assert why_not_in_context([*log, cleared], 2) == ""
    assert why_not_in_context([*log, cleared, Revert(seq=6, target=5)], 3) == ""
    stands = replace(summary(7), covers=[2, 4], trigger="HOOK-CTX-003: 94% of the window")
    assert why_not_in_context([*log, stands], 2) == "replaced by the summary #7 (94% of the window)"
    assert why_not_in_context([*log, mask(5, "truncate", 9, 8), stands], 9) == ""
