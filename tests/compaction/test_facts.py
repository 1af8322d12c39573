"""Sources, age and contradictions of facts."""

import pytest

from ctxagent.agent.compaction.document import SummaryDocument, SummaryFact, UserRule
from ctxagent.agent.compaction.summary.facts import (
    MAX_NOTE_AGE,
    Source,
    aged,
    merged_facts,
    sourced_facts,
)

ENTRIES = {
    2: "Never touch vendor/. Use JWT.",
    12: "listening on port 8080",
    14: "vendor/ has 3 files",
}


def find(ref: int, quoted: str) -> Source | None:
    for seq in (ref, *sorted(ENTRIES, reverse=True)):
        if quoted in ENTRIES.get(seq, ""):
            return Source(seq, ENTRIES[seq], is_user=seq == 2)
    return None


def sourced(*texts: str, previous: SummaryDocument | None = None) -> tuple[SummaryFact, ...]:
    previous = previous or SummaryDocument()
    rules = [UserRule(2, "Never touch vendor/.")]
    return sourced_facts(map(SummaryFact, texts), previous, rules, find)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ('The port is 8080. — #12 "listening on port 8080"', SummaryFact("The port is 8080.", 12)),
        ('The port is 8080 (#12: “port 8080”).', SummaryFact("The port is 8080", 12)),
        ('The port is 8080 — "port 8080"', SummaryFact("The port is 8080", 12)),
        ('The port is 8080 — #99 "port 8080"', SummaryFact("The port is 8080", 12)),
        ('Der Port ist 8080 — #12 `port 8080`', SummaryFact("Der Port ist 8080", 12)),
        ('The port is 9999. — #12 "listening on port 8080"', SummaryFact("The port is 9999.")),
        ('Redis is fast. — #12 "listening on port 8080"', SummaryFact("Redis is fast.")),
        ('The port is 9999. — #12 "port 9999"', SummaryFact("The port is 9999.")),
        ("The port is 9999. [#12]", SummaryFact("The port is 9999. [#12]")),
        ("The port is 8080.", SummaryFact("The port is 8080.")),
        ('The user allows JWT. — #2 "Use JWT"',
         SummaryFact('The user: "Never touch vendor/. Use JWT."', 2)),
        ('It has 3 files in vendor/. — #14 "vendor/ has 3 files"',
         SummaryFact("It has 3 files in vendor/.", 14)),
    ],
)  # fmt: skip
def test_a_fact_has_the_source_that_is_found_for_it(text: str, fact: SummaryFact) -> None:
    assert sourced(text) == (fact,)


def test_permissions_are_no_facts() -> None:
    assert sourced("The user allowed vendor/ to be changed.") == ()
    assert sourced("Permission mode: bypass", "Not authorised: Bash ls") == ()


def test_a_fact_stated_again_keeps_its_source() -> None:
    previous = SummaryDocument(facts=(SummaryFact("The port is 8080.", 12),))
    assert sourced("the port is 8080", previous=previous) == (SummaryFact("the port is 8080", 12),)


def test_an_invented_value_gives_way_to_one_with_a_source() -> None:
    true, invented = SummaryFact("The port is 8080.", 12), SummaryFact("The port is 9999.")
    assert merged_facts([true], [invented]) == (true,)
    assert merged_facts([invented], [true]) == (true,)
    assert merged_facts([invented], [SummaryFact("The port is 8080.")]) == (
        SummaryFact("The port is 8080."),
    )


def test_facts_that_do_not_contradict_stay() -> None:
    for old, new in (
        (
            SummaryFact("The port is 8080", 12),
            SummaryFact("The port is 9090", 40),
        ),  # the refs tell the order
        (SummaryFact("shard 1 has 30 rows"), SummaryFact("shard 2 has 40 rows")),
        (SummaryFact("The port is 8080"), SummaryFact("The timeout is 30")),
    ):
        assert merged_facts([old], [new]) == (old, new)
    both = (SummaryFact("step 1 is done"), SummaryFact("step 2 is done"))
    assert merged_facts([], both) == both


def test_notes_age_and_facts_with_a_source_do_not() -> None:
    kept = (SummaryFact("The port is 8080.", 12), SummaryFact("Not authorised: Bash ls"))
    document = SummaryDocument(
        facts=(*kept, SummaryFact("It rains.")), other=(SummaryFact("Notes\nx"),)
    )
    for age in range(1, MAX_NOTE_AGE + 1):
        document = aged(document)
        assert document.facts == (*kept, SummaryFact("It rains.", age=age))
        assert document.other == (SummaryFact("Notes\nx", age=age),)
    assert merged_facts(document.facts, [SummaryFact("it rains")])[-1] == SummaryFact("it rains")
    document = aged(document)
    assert (document.facts, document.other) == (kept, ())
