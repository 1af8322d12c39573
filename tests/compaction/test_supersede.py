"""Entries of an earlier summary that a model marks as no longer true."""

import pytest

from ctxagent.agent.compaction.document import SummaryDocument, SummaryFact, UserRule
from ctxagent.agent.compaction.summary.writer import (
    Superseded,
    superseded_entries,
    without_superseded,
)
from ctxagent.agent.session.user_messages import LoggedMessage

OLD = SummaryDocument(
    decisions=("Use SQLite for the cache", "Keep the old format of logs for now"),
    facts=(
        SummaryFact("The port is 8080"),
        SummaryFact("The build runs on Python 3.11 alone"),
        SummaryFact("Use tabs in Makefiles"),
    ),
    blocked=("The key for the server is missing",),
    rules=(UserRule(3, "Never touch migrations."), UserRule(5, "Use tabs in Makefiles.")),
)
MESSAGES = [
    LoggedMessage(3, "Never touch migrations."), LoggedMessage(5, "Use tabs in Makefiles."),
    LoggedMessage(9, "Fine. You may change migrations from now on. Go on."),
    LoggedMessage(11, "Forget the tabs, please.", is_attached=True),
]  # fmt: skip


def claims(*lines: str) -> list[Superseded]:
    return list(superseded_entries(lines, OLD, MESSAGES, lambda message: message.text))


@pytest.mark.parametrize(
    ("line", "section", "text"),
    [
        ('Decision 1: "Use SQLite for the cache" is replaced', "decisions", OLD.decisions[0]),
        ('- key decision: "the old format"', "decisions", OLD.decisions[1]),
        ('Critical fact #1: "port is 8080"', "facts", OLD.facts[0].text),
        ('constraint: "Python 3.11"', "facts", OLD.facts[1].text),
        ('Blocker: "key for the server"', "blocked", OLD.blocked[0]),
        ("Decision 2: the old format of logs goes", "decisions", OLD.decisions[1]),
        ("Fact 1: the port is 9090 now", "facts", OLD.facts[0].text),
        ('Fact: "Use SQLite"', "decisions", OLD.decisions[0]),
        ('fact 3: "Use tabs in Makefiles"', "facts", OLD.facts[2].text),
        ('**Decision** “SQLite for the cache”: gone', "decisions", OLD.decisions[0]),
        ("blocked 1: key for the server came", "blocked", OLD.blocked[0]),
    ],
)  # fmt: skip
def test_the_entry_that_a_claim_means(line: str, section: str, text: str) -> None:
    (found,) = claims(line)
    assert (found.section, found.text, found.why, found.ref) == (section, text, line, 0)


@pytest.mark.parametrize(
    "line",
    ["", "It is all over", 'Decision: "Use Postgres"', "Decision 1: all of it",
    "Decision 9: Use SQLite for the cache", "Fact 0: The port is 8080",
     'Decision: "Use"', "Fact: The port is 8080", "Decision 2: the old",
     'Note: "Use SQLite for the cache"', "Rule 1: Never touch migrations"],
)  # fmt: skip
def test_a_claim_that_quotes_nothing_takes_nothing_out(line: str) -> None:
    assert claims(line) == []


def test_a_rule_is_lifted_only_by_later_words_of_the_user() -> None:
    (found,) = claims('Rule #3: "Never touch migrations": "You may change migrations from now on"')
    assert found == Superseded(
        "rules",
        "Never touch migrations.",
        "the user (#9): You may change migrations from now on.",
        3,
    )
    for line in (
        'Rule #3: "Never touch migrations"',
        'Rule: "Never touch migrations": "never touch migrations"',
        'Rule #5: "Use tabs in Makefiles": "Forget the tabs"',
        'Rule #3: "Never touch migrations": "so says nobody at all"',
    ):  # fmt: skip
        assert claims(line) == []


def test_kind_and_ref_choose_among_several_entries() -> None:
    line = '"Use tabs in Makefiles": "You may change migrations from now on"'
    assert [each.section for each in claims(f"Rule: {line}")] == ["rules"]
    assert [each.section for each in claims(f"Fact: {line}")] == ["facts"]
    twice = SummaryDocument(
        facts=(SummaryFact("The port is 8080 here"), SummaryFact("The port is 8080 there"))
    )
    found = [
        list(superseded_entries([f'Fact{n}: "port is 8080"'], twice, [], str))
        for n in ("", " 2", " #1")
    ]
    assert [[each.text for each in each_claim] for each_claim in found] == [
        [], ["The port is 8080 there"], [],
    ]  # fmt: skip


def test_all_claims_are_taken_out() -> None:
    found = claims(
        'Decision: "Use SQLite"', 'Fact: "port is 8080"', 'Block: "key for the server"',
        'Rule: "Never touch migrations": "You may change migrations"',
    )  # fmt: skip
    left = without_superseded(OLD, found)
    assert left.decisions == OLD.decisions[1:]
    assert left.facts == OLD.facts[1:]
    assert left.blocked == ()
    assert left.rules == OLD.rules[1:]
    assert without_superseded(OLD, []) == OLD
    assert found[0].to_json() == {
        "section": "decisions",
        "text": OLD.decisions[0],
        "why": 'Decision: "Use SQLite"',
        "ref": 0,
    }
