"""The user's rules: the model names and lifts them, in any language; code checks quotations."""

from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxagent.agent.compaction.document import SummaryDocument, SummaryFact, UserRule, parse
from ctxagent.agent.compaction.summary.user_messages import (
    merged_rules,
    quoted_rules,
    quoted_sentence,
    rules_within,
)
from ctxagent.agent.compaction.summary.writer import (
    Superseded,
    superseded_entries,
    without_superseded,
)
from ctxagent.agent.session.user_messages import LoggedMessage

TEXT_OF = attrgetter("text")
CHANGES = (  # a rule, and what the user says later
    ("Never commit without asking me.", "You don't need to ask me before commits any more."),
    ("Always target Python 3.11.", "Always target Python 3.12."),
    ("Keep functions under 40 lines.", "Keep functions under 60 lines."),
    ("Ne modifie jamais legacy/.", "Tu peux modifier legacy/ maintenant."),
    ("Nie ruszaj legacy/.", "Możesz już ruszać legacy/."),
    ("不要修改 legacy 目录。", "现在可以修改 legacy 目录了。"),
    ("لا تلمس المجلد legacy.", "يمكنك الآن تعديل المجلد legacy."),
)
PAIRS = (  # two rules about two places
    ("Do not add dependencies to server/setup.py.", "Do not add dependencies to client/setup.py."),
    ("Never push to origin/main.", "Never push to origin/dev."),
    ("Lösche niemals Dateien in src/.", "Lösche niemals Dateien in docs/."),
)


def said(*texts: str) -> list[LoggedMessage]:
    return [LoggedMessage(2 * n, text) for n, text in enumerate(texts, 1)]


def checked(named: list[UserRule], messages: list[LoggedMessage]) -> tuple[UserRule, ...]:
    return quoted_rules(named, messages, TEXT_OF)


@pytest.mark.parametrize(
    ("text", "quoted", "whole"),
    [
        ("Port it. Never touch vendor/. Go.", "never touch  vendor/.", "Never touch vendor/."),
        ("Do not touch\nit there.", "not touch it there", "Do not touch\nit there."),
        ("Do not push. Fine.", "push", "Do not push."),
        ("不要修改 area1。然后继续。", "不要修改 area1", "不要修改 area1。"),
        ("See a.py. Ask me first.", "Ask you first", ""),
        ("a b c", "a b", ""),  # too short to tell anything
    ],
)  # fmt: skip
def test_a_quotation_gives_the_whole_sentence(text: str, quoted: str, whole: str) -> None:
    assert quoted_sentence(text, quoted) == whole


@given(st.text(), st.text())
def test_a_quotation_is_a_part_of_the_text(text: str, quoted: str) -> None:
    assert quoted_sentence(text, quoted) in text


def test_a_rule_counts_if_the_user_wrote_it_and_gets_the_ref_of_its_message() -> None:
    messages = said("Ask me before you run a migration.", "Go on.", "Go on.")
    named = [
        UserRule(0, "ask me before you run a migration"),
        UserRule(6, "Ask me before you run a migration."),
        UserRule(2, "Never say never."),
        UserRule(2, ""),
        UserRule(0, "Go on."),
        UserRule(4, "Go on."),
    ]
    rule = UserRule(2, "Ask me before you run a migration.")
    assert checked(named, messages) == (rule, rule, UserRule(6, "Go on."), UserRule(4, "Go on."))


@pytest.mark.parametrize("pair", PAIRS)
def test_a_second_rule_never_deletes_the_first(pair: tuple[str, str]) -> None:
    messages = said(*pair)
    first = checked([UserRule(0, pair[0])], messages)
    second = checked([UserRule(0, pair[1])], messages)
    assert [rule.text for rule in merged_rules(first, second)] == list(pair)


@pytest.mark.parametrize("change", CHANGES)
def test_the_model_lifts_a_rule_with_later_words_of_the_user(change: tuple[str, str]) -> None:
    rule, lift = change
    messages = said("Do it.", rule, lift)
    old = SummaryDocument(rules=(UserRule(2, "Do it."), UserRule(4, rule)))
    (gone,) = superseded_entries(
        [f'Rule 2 "{rule}": the user said "{lift}"'], old, messages, TEXT_OF
    )
    assert gone == Superseded("rules", rule, f"the user (#6): {lift}", 4)
    assert without_superseded(old, [gone]).rules == old.rules[:1]
    # By its words alone, under another name of its kind.
    assert [
        *superseded_entries([f'Fact 9 "{rule}": the user said "{lift}"'], old, messages, TEXT_OF)
    ] == [gone]


@pytest.mark.parametrize(
    "claim",
    [
        'Rule 1 "Never touch vendor/": it no longer matters',
        'Rule 1 "Never touch vendor/": the user said "You may touch all of it."',  # nobody said it
        'Rule 1 "Never touch vendor/": the user said "Look at vendor/ first."',  # before the rule
        'Rule 1 "Never touch vendor/": the user said "Never touch vendor/."',  # the rule itself
        'Rule 1 "Something else entirely": the user said "Vendor/ is fine now."',
        'Rule 2 "No such rule here": the user said "Vendor/ is fine now."',
        'Rule 1: the user said "Vendor/ is fine now."',
        'Rule 1 "Never touch vendor/": that part is finished.',
    ],
)
def test_a_claim_that_quotes_no_later_message_lifts_nothing(claim: str) -> None:
    messages = said(
        "Look at vendor/ first.",
        "Never touch vendor/.",
        "Vendor/ is fine now.",
        "As I said: never touch vendor/.",
    )
    old = SummaryDocument(rules=(UserRule(4, "Never touch vendor/."),))
    assert [*superseded_entries([claim], old, messages, TEXT_OF)] == []


@pytest.mark.parametrize(
    ("claim", "gone"),
    [
        ('Rule 1 "Do not add dependencies to client/setup.py.": "Client may have some."', "client"),
        ('Rule #4 "Do not add dependencies": "Client may have some."', "client"),
        ('Rule (#2) "Do not add dependencies to …": "Client may have some."', "server"),
        ('Rule 1 "Do not add dependencies": "Client may have some."', ""),  # which one?
        ('Rule 1 "Do not add dependencies to client/setup.py.": it is finished.', ""),
        ('Rule 2 and Rule 1 "…client/setup.py." "Do not add dependencies to server/setup.py."', ""),
    ],
)
def test_a_rule_is_known_by_its_words_and_its_ref(claim: str, gone: str) -> None:
    """The number does not count: the text that the model saw may have left rules out."""
    messages = said(*PAIRS[0], "Client may have some.")
    old = SummaryDocument(rules=(UserRule(2, PAIRS[0][0]), UserRule(4, PAIRS[0][1])))
    assert [gone in each.text for each in superseded_entries([claim], old, messages, TEXT_OF)] == [
        True
    ] * bool(gone)


@pytest.mark.parametrize(
    "line",
    [
        '#2: "{}"', "#2: '{}'", '"{}" (#2)', '**#2**: "{}"', '[#2] "{}"', '#2 — "{}"', "#2: {}",
        '#2: "{}" (still holds)', '#2: "{}" — user', 'message #2: "{}"', '#2: *"{}"*', "“{}”, #2",
        "#2: `{}`", "- {}",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("Never run `make deploy`.", "Never run make deploy."),
        ("Don't use eval.", "Don’t use eval."),
        ("用中文", "用中文"),
    ],
)
def test_a_rule_counts_in_whatever_form_its_line_is(line: str, text: str, quoted: str) -> None:
    document = parse(f"## User Rules\n{line.format(quoted)}")
    assert checked([*document.rules], said(text)) == (UserRule(2, text),)


def test_a_rule_is_lifted_by_words_of_a_message_that_went_to_a_file() -> None:
    long = LoggedMessage(4, "## Offloaded Content Reference", is_in_file=True)
    old = SummaryDocument(rules=(UserRule(2, "Never touch vendor/."),))
    claim = 'Rule #2 "Never touch vendor/.": the user said "vendor/ is yours now"'
    messages = [*said("Never touch vendor/."), long]
    whole = {2: "Never touch vendor/.", 4: "A long text. From here on vendor/ is yours now. More."}
    (gone,) = superseded_entries([claim], old, messages, lambda message: whole[message.ref])
    assert gone.why == "the user (#4): From here on vendor/ is yours now."
    assert [*superseded_entries([claim], old, messages, TEXT_OF)] == []


def test_other_entries_go_by_number_and_words() -> None:
    old = SummaryDocument(
        decisions=("Use SQLite for storage", "端口是 8080，不变"),
        facts=(SummaryFact("The port is 8080."),),
        blocked=("waits for Anna",),
    )
    claims = [
        'Decision 2 "端口是 8080": 现在是 9090',
        'Fact 1 "the port is 8080": it is 9090 now',
        'Blocker 1 "waits for Anna": she answered',
        'Fact 2 "no such fact": gone',
        "Everything else holds.",
    ]
    gone = [*superseded_entries(claims, old, [], TEXT_OF)]
    assert [(each.section, each.text) for each in gone] == [
        ("decisions", old.decisions[1]), ("facts", old.facts[0].text), ("blocked", old.blocked[0]),
    ]  # fmt: skip
    assert without_superseded(old, gone) == SummaryDocument(decisions=old.decisions[:1])


def test_rules_keep_their_texts_while_there_is_room_then_their_refs() -> None:
    rules = tuple(UserRule(n, f"Rule number {n} is to be observed.") for n in range(1, 40))
    assert rules_within(rules, 10_000) == rules
    some = rules_within(rules, 100)
    assert [rule.ref for rule in some] == [rule.ref for rule in rules]
    assert some[-1] == rules[-1]
    assert some[0] == UserRule(1, "")
    assert rules_within(some, 100) == some


def test_an_older_version_wrote_rules_among_the_facts() -> None:
    facts = ["The person ruled (#12): Never push.", "The port is 8080"]
    document = SummaryDocument.from_json({"facts": facts})
    assert document.rules == (UserRule(12, "Never push."),)
    assert document.facts == (SummaryFact("The port is 8080"),)
