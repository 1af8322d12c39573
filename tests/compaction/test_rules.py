"""The person's rules: found in their words, lifted by them alone, whole in every summary."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.compaction.document import SummaryDocument
from ctxagent.agent.compaction.language.rules import PersonRule, rules_in, standing_rules
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.compaction.summary.rulings import (
    Rulings,
    rule_line,
    rules_in_document,
    without_rules,
)
from ctxagent.agent.compaction.summary.supersede import (
    Superseded,
    claimed,
    superseded_of,
    without_superseded,
)
from ctxagent.agent.models.scripted import Step

from ..support.sessions.conversation import Conversation

RULES = (
    "Never push to the main branch of this repository.",
    "You must not touch anything below vendor/.",
    "Always run the linter before you say that you are done.",
    "Do not call the production API at api.example.com, customers would see it at once.",
    "Keep the version in setup.cfg at 4.2.",
    "Hands off the billing module.",
    "No new dependencies please.",
    "docs/ is off limits.",
    "Niemals auf main pushen, und vendor/ nicht anfassen.",
    "Fass vendor/ nicht an.",
    "No toques la carpeta vendor y nunca uses print.",
    "Ne touche pas au dossier vendor.",
    "Non modificare mai la cartella vendor.",
    "Não mexa na pasta vendor.",
    "Не трогай папку vendor.",
    "请不要修改 vendor 目录。",
    "vendor フォルダを変更しないでください。",
    "vendor 폴더를 수정하지 마세요.",
)
PLAIN = (
    "Fix the bug in parser.py please.",
    "Show me the vendor folder.",
    "Das funktioniert nicht.",
    "No funciona el test.",
    "程序不能运行。",
    "Is it never called?",
    "You may edit vendor/ now.",
)


@pytest.mark.parametrize("text", RULES)
def test_a_rule_is_a_whole_sentence_in_any_common_language(text: str) -> None:
    assert rules_in(f"{text}\nAnd now the parser.") == (text,)


@pytest.mark.parametrize("text", PLAIN)
def test_other_words_rule_nothing(text: str) -> None:
    assert rules_in(text) == ()


@pytest.mark.parametrize(
    ("rule", "later", "stands"),
    [
        ("Never push to the main branch.", "You may push to main now.", False),
        ("Never push to the main branch.", "You may push to the docs branch now.", True),
        ("Never push to the main branch.", "You can push now.", True),
        ("Do not push.", "You can push now.", False),
        ("You must not touch anything below vendor/.", "You may edit vendor/ now.", False),
        ("You must not touch anything below vendor/.", "You can see vendor/ there.", True),
        ("You must not touch anything below vendor/.", "You may not edit vendor/.", True),
        ("You must not touch vendor/.", "If the tests pass, you may edit vendor/.", True),
        ("Hands off vendor/.", "Forget the rule about vendor/.", False),
        ("Hands off vendor/.", "The rule about vendor/ no longer holds.", False),
        ("Hands off vendor/.", "Ignore vendor/.", True),
        ("You must keep Python 3.8 support.", "You no longer need to keep Python 3.8.", False),
        ("Never delete the tests.", "You may edit the tests.", True),
        ("Keep the version in setup.cfg at 4.2.", "Keep the version in setup.cfg at 4.3.", False),
        ("Always write the commit messages in German.",
         "From now on write the commit messages in English.", False),
        ("Do not commit until I say so.", "Ok, commit it now.", False),
        ("Do not commit until I say so.", "Now fix the tests.", True),
        ("Finger weg von vendor/.", "Du darfst vendor/ jetzt ändern.", False),
        ("请不要修改 vendor 目录。", "现在可以修改 vendor 目录了。", False),
    ],
)  # fmt: skip
def test_only_plain_words_of_the_person_lift_a_rule(rule: str, later: str, stands: bool) -> None:
    standing = [r.text for r in standing_rules([(1, rule), (2, later)])]
    assert (rule in standing) == stands


def test_a_rule_that_is_said_again_stands_again() -> None:
    words = [(1, "Hands off vendor/."), (2, "You may edit vendor/ now."), (3, "Hands off vendor/.")]
    assert standing_rules(words[:2]) == []
    assert standing_rules(words) == [PersonRule(3, "Hands off vendor/.")]
    assert standing_rules(words, lifted=[PersonRule(3, "Hands off vendor/.")]) == []


def test_a_rule_that_a_model_names_is_the_persons_sentence() -> None:
    words = [(2, "Vendored code is sacred. Go on."), (4, "Never push to main.")]
    document = SummaryDocument(
        facts=("Rule: vendored code is sacred", "Rule: push to main", "Rule: use tabs")
    )
    rules = [PersonRule(2, "Vendored code is sacred."), PersonRule(4, "Never push to main.")]
    assert list(rules_in_document(document, words)) == rules
    assert without_rules(document, rules).facts == ("Rule: use tabs",)
    negated = SummaryDocument(facts=("Always push to main", "the port is 8080"))
    assert without_rules(negated, rules).facts == ("the port is 8080",)


def test_rules_without_room_are_kept_by_reference() -> None:
    rules = [PersonRule(n, f"Never touch part_{n} of the archive.") for n in range(1, 6)]
    older, *kept = Rulings(rules).within(40)
    assert kept == [rule_line(rule) for rule in rules[-len(kept) :]]
    assert older == "Older rules of the person, which stand too: Recall " + " ".join(
        f"#{rule.ref}" for rule in rules[: -len(kept)]
    )


OLD = SummaryDocument(
    decisions=("Use requests", "Use pages of 50 rows"),
    facts=(rule_line(PersonRule(2, "Never touch vendor/.")), "the port is 8080", "the host is h1"),
    blocked=("part 3 waits for Anna",),
)
WORDS = [(2, "Never touch vendor/."), (5, "Show me vendor/."), (9, "Vendor/ is fine to edit now.")]


@pytest.mark.parametrize(
    ("claim", "gone"),
    [
        ('Fact 2 "the port is 8080": 9090 now', ("facts", "the port is 8080")),
        ('Fact 7 "the port is 8080": misnumbered', ("facts", "the port is 8080")),
        ("Fact 3: it is 9090 now", None),
        ('Fact 3 "the port is 8080": the words count', ("facts", "the port is 8080")),
        ('Decision 2 "Use pages of 50 rows": streams now', ("decisions", "Use pages of 50 rows")),
        ('Blocker 1 "part 3 waits for Anna": she sent it', ("blocked", "part 3 waits for Anna")),
        ('Fact 1 "Never touch vendor/": not needed', None),
        ('Fact 1 "Never touch vendor/": the person said "Show me vendor/."', None),
        ('Fact 1 "Never touch vendor/": the person said "You may touch all."', None),
        ('Rule 1 "Never touch vendor/": the person said "Vendor/ is fine to edit now"',
         ("rules", "Never touch vendor/.")),
        ("All of it holds.", None),
    ],
)  # fmt: skip
def test_a_claim_counts_as_far_as_it_can_be_believed(
    claim: str, gone: tuple[str, str] | None
) -> None:
    found = list(claimed([claim], OLD, WORDS))
    assert [(each.section, each.text) for each in found] == ([gone] if gone else [])
    left = without_superseded(OLD, found)
    before, after = (len(d.facts + d.decisions + d.blocked) for d in (OLD, left))
    assert before - after == len(found)
    assert superseded_of([each.to_json() for each in found]) == found


def test_what_was_superseded_is_read_as_far_as_it_can_be() -> None:
    rows = [{"section": "facts", "text": "a"}, {"section": "x", "text": "b"}, 3, {"text": "c"}]
    assert superseded_of(rows) == [Superseded("facts", "a", "")]


@pytest.mark.slow
@pytest.mark.parametrize("window", [16_000, 32_000])
def test_every_rule_stands_whole_in_every_summary(tmp_path: Path, window: int) -> None:
    project = tmp_path / "project"
    project.mkdir()
    rules = list(RULES[:8]) + [
        f"Never change the public function export_{n}, because the customers of partner {n} call it"
        f" from scripts that nobody here can see or mend." for n in range(12)
    ]  # fmt: skip
    summaries = 0

    def answer(request: object) -> Step:
        nonlocal summaries
        text = str(request.messages[-1]["content"][-1].get("text", ""))  # type: ignore[attr-defined]
        if "about to be compressed" not in text:
            return Step(text="It is done as was said. " + "talk " * 300)
        summaries += 1
        facts = "\n".join(f"- module_{summaries}_{n} returns {n}00 for {n}" for n in range(8))
        return Step(
            text="## Session Intent\nBuild it\n## Key Decisions\n1. None.\n## Current State\n"
            f"Phase: {summaries}\n## Critical Facts\n{facts}\n## Next Steps\n1. Go on.\n"
        )

    policy = replace(DEFAULT, keep_tokens=300, keep_messages=2, mode="remind", demote_above=None)
    talk = Conversation(project, answer, policy=policy, window=window)
    talk.say("Build the importer.\n" + "\n".join(rules))
    talk.say("The sacred part is the lexer of Ada.")
    for turn in range(4):
        for n in range(3):
            talk.say(f"Look at table {turn}.{n} now.")
        summary = asyncio.run(talk.agent.engine.compact())
        assert [rule for rule in rules if rule not in summary.text] == []
        assert "What else the person said, in full: Recall #" in summary.text
