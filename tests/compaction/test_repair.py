"""Facts that a summary misses are added, and counted."""

from collections.abc import Mapping

import pytest

from ctxagent.agent.compaction.document import (
    FileRow,
    ReadRow,
    SummaryDocument,
    SummaryFact,
    parse,
    render,
)
from ctxagent.agent.compaction.summary.merge import merge, with_ledger_facts
from ctxagent.agent.compaction.summary.open_failures import with_open_failures
from ctxagent.agent.compaction.summary.shorten import shortened_to
from ctxagent.agent.compaction.verify import ProbeTally, add_missed_facts, tally_probes
from ctxagent.agent.compaction.verify.probes import ProbeKind, is_answered
from ctxagent.agent.context.tokens import estimate

from .test_probes import CAP, Session, full, probe

USELESS = "Some work was done in this project. It will go on."


def rate(answered: Mapping[ProbeKind, int], tally: ProbeTally) -> float:
    """Return the share of answered probes."""
    return sum(answered.values()) / sum(tally.asked.values())


def useless(
    session: Session, previous: SummaryDocument | None = None, cap: int = CAP
) -> SummaryDocument:
    new = parse(USELESS)
    document = merge(previous, new) if previous else new
    document = shortened_to(with_ledger_facts(document, session.ledger()), cap)
    return with_open_failures(document, session.ledger(), cap)


def test_a_useless_summary_gets_every_fact() -> None:
    session = full()
    asked = session.asked()
    before = useless(session)
    after = add_missed_facts(before, asked, CAP)
    counted = tally_probes(asked, render(before), render(after))
    assert rate(counted.before, counted) < 0.7
    assert rate(counted.after, counted) == 1.0
    assert "KeyError: 'REDIS_URL'" in after.errors[0]
    assert after.intent == "Add a password reset to the service."
    assert estimate(render(after)) <= CAP


def test_facts_stand_once_and_survive_a_round_trip() -> None:
    session = full()
    asked = session.asked()
    after = add_missed_facts(useless(session), asked, CAP)
    assert add_missed_facts(after, asked, CAP) == after
    assert parse(render(after)) == after
    assert len(after.next_steps) == len(set(after.next_steps)) == 1


def test_a_summary_with_all_facts_is_not_changed() -> None:
    document = SummaryDocument(facts=(SummaryFact("the port is 8080"),))
    assert add_missed_facts(document, [probe("8080")], CAP) is document


def test_a_resolved_error_goes_from_the_summary() -> None:
    session = full()
    first = add_missed_facts(useless(session), session.asked(), CAP)
    session.run("pytest -q", 0, "5 passed")
    assert first.errors
    assert useless(session, first).errors == ()


def test_existing_items_stay_while_there_is_room() -> None:
    document = SummaryDocument(
        intent="Reset.",
        read=(ReadRow("a.md", "#3"),),
        decisions=("Use X (#4)",),
        done=("planned",),
        facts=(SummaryFact("a fact of the model's"),),
    )
    after = add_missed_facts(document, [probe("8080")], CAP)
    assert after.facts == (SummaryFact("a fact of the model's"), SummaryFact("8080"))
    assert (after.read, after.done) == (document.read, document.done)


def crowded(cap: int) -> SummaryDocument:
    """A document of about `cap` tokens."""
    document = SummaryDocument(
        intent="Reset the password.",
        modified=(FileRow("src/auth.py", "created", "the login"),),
        read=tuple(ReadRow(f"src/read_{n}.py", f"#{n}") for n in range(10)),
        decisions=tuple(f"The model decided on point {n}, for a good reason" for n in range(10)),
        done=tuple(f"a step that was finished, number {n}" for n in range(10)),
        facts=(SummaryFact("a fact that is not asked for"),),
        errors=("an error that the model tells",),
        next_steps=("go on",),
    )
    return shortened_to(document, cap)


def test_minor_items_are_removed_first_and_no_more_than_needed() -> None:
    document = crowded(8_000)
    cap = estimate(render(document)) + 5
    asked = [probe("a point that must be known, number one", "recall", "facts")]
    after = add_missed_facts(document, asked, cap)
    assert is_answered(asked[0], render(after))
    assert estimate(render(after)) <= cap
    assert 0 < len(after.read) < len(document.read)
    assert after.read == document.read[-len(after.read) :]
    assert after.done == document.done
    assert after.decisions == document.decisions


def test_no_decision_fact_or_error_goes_for_another_fact() -> None:
    document = crowded(8_000)
    constraint = probe("never write to the archive " * 30, "decision")
    after = add_missed_facts(document, [constraint], estimate(render(document)) - 40)
    assert after.decisions == document.decisions
    assert after.facts[:1] == document.facts
    assert after.errors == document.errors


def test_items_that_answer_a_probe_are_not_removed() -> None:
    document = crowded(8_000)
    read = probe("src/read_0.py", "artifact", "read")
    step = probe("a step that was finished, number 0", "continuation", "done")
    new = probe("a fact " * 40, "decision")
    cap = estimate(render(document))
    after = add_missed_facts(document, [read, step, new], cap)
    assert ReadRow("src/read_0.py", "#0") in after.read
    assert step.fact in after.done
    assert is_answered(new, render(after))
    assert len(after.read) < len(document.read)


def test_a_summary_that_is_over_its_cap_is_left_as_it_is() -> None:
    document = SummaryDocument(modified=tuple(FileRow(f"src/{n}.py", "created") for n in range(50)))
    assert add_missed_facts(document, [probe("never push", "decision")], 200) is document


def test_a_changed_file_that_is_missing_gets_a_row() -> None:
    session = Session()
    session.edit("a.py", created=True)
    (asked,) = session.asked()
    assert add_missed_facts(SummaryDocument(), [asked], CAP).modified == (
        FileRow("a.py", "created"),
    )


@pytest.mark.slow
def test_facts_survive_summary_after_summary() -> None:
    session = full()
    document: SummaryDocument | None = None
    rates = []
    for turn in range(6):
        asked = session.asked(document)
        before = useless(session, document)
        document = add_missed_facts(before, asked, 2 * CAP)  # the errors have room of their own
        assert estimate(render(document)) <= 2 * CAP
        counted = tally_probes(asked, render(before), render(document))
        rates.append(rate(counted.after, counted))
        for n in range(6):
            session.edit(f"src/part_{turn}/module_{n}.py")
            session.think(f"We chose plan {turn}.{n} instead of the other, because it is shorter.")
            session.run(f"build{turn}{n} all", 2, f"fatal: cannot link part {turn}.{n}")
        session.say(f"Fine. Never use the name part_{turn}_old, and ask on port {turn}4{turn}3.")
    assert document is not None
    assert min(rates) >= 0.95
    paths = {row.path for row in document.modified}
    assert {"src/auth.py", "tests/test_auth.py", "src/part_0/module_0.py"} <= paths


def test_a_tally_counts_by_kind() -> None:
    asked = [probe("8080"), probe("9090"), probe("a.py", "artifact")]
    counted = tally_probes(asked, "a.py", "a.py on 8080")
    assert counted.line() == "1 missing fact added back, 1 fact still missing"
    assert rate(counted.before, counted) == pytest.approx(1 / 3)
    assert rate(counted.after, counted) == pytest.approx(2 / 3)
    data = counted.to_json()
    assert data == {
        "recall": {"asked": 2, "before": 0, "after": 1},
        "artifact": {"asked": 1, "before": 1, "after": 1},
    }
    assert ProbeTally.from_json(data) == counted


def test_nothing_asked_is_nothing_missed() -> None:
    counted = tally_probes([], "", "")
    assert counted.asked == counted.after == {}
    assert tally_probes([], "", "").line() == ""
