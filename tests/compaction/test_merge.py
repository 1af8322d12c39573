"""The summary document: rendered and parsed without loss, merged, corrected from the ledger, and
shortened to fit.
"""

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ctxagent.agent.compaction.document import (
    FileRow,
    ReadRow,
    SummaryDocument,
    SummaryFact,
    UserRule,
    missing_titles,
    parse,
    render,
)
from ctxagent.agent.compaction.summary.merge import (
    document_from_ledger,
    merge,
    with_ledger_facts,
    with_statuses,
)
from ctxagent.agent.compaction.summary.shorten import shortened_to
from ctxagent.agent.context.tokens import estimate
from ctxagent.agent.session.entries import Assistant, End, Entry, Note, Session, ToolResult, User
from ctxagent.agent.session.ledger import Ledger

# Text, and text that looks like the document's own markup.
SHARDS = [
    "# ", "## Next Steps", "**Session Intent**", "**Done:**", "Phase: x", "- ", "1. ", "| a | b |",
    "| --- |", "\\|", "\\", "|", "`", "``", "None.", "n/a", "unchanged", "\n", "\n\n", "  ", "\t",
    "```", "~~~", "```py\n", "\n```\n", "---", "<summary>", "</summary>", "I will go on.",
    "\r\n", " — ", " - ", ": ", "&#35;", "&", ";", "#", "*", "_", "a.py", "\x0b", "\u2028", "é",
    "\n===\n", "\n  ## ", "<h2>x</h2>", "__x__", "<message #2, open>\n", "</message>\n",
]  # fmt: skip
TEXT = st.one_of(st.text(), st.lists(st.sampled_from(SHARDS)).map("".join))
ITEM = TEXT.filter(bool)
ITEMS = st.lists(ITEM, max_size=4).map(tuple)
FACTS = st.lists(
    st.one_of(
        st.builds(SummaryFact, ITEM, st.integers(1, 99)),
        st.builds(SummaryFact, ITEM, st.just(0), st.integers(0, 3)),
    ).filter(lambda fact: not fact.is_recorded),
    max_size=4,
).map(tuple)
ACTION = st.sampled_from(["created", "modified", "deleted"])
DOCUMENTS = st.builds(
    SummaryDocument,
    intent=TEXT,
    rules=st.lists(st.builds(UserRule, st.integers(1, 99), TEXT), max_size=3).map(tuple),
    modified=st.lists(st.builds(FileRow, TEXT, ACTION, TEXT), max_size=3).map(tuple),
    read=st.lists(st.builds(ReadRow, TEXT, TEXT), max_size=3).map(tuple),
    decisions=ITEMS,
    phase=TEXT,
    done=ITEMS,
    in_progress=ITEMS,
    blocked=ITEMS,
    facts=FACTS,
    errors=ITEMS,
    next_steps=ITEMS,
    recovery=ITEMS,
    other=st.lists(st.builds(SummaryFact, ITEM), max_size=3).map(tuple),
)
FULL = SummaryDocument(
    intent="Add a password reset.\n\nKeep the API as it is.",
    rules=(UserRule(2, "Never commit to main."), UserRule(4, "")),
    modified=(
        FileRow("src/auth.py", "created", "login, register; returns str | None"),
        FileRow("my docs/a|b.md", "deleted"),
    ),
    read=(ReadRow("src/schema.prisma", "the data model"), ReadRow("README.md")),
    decisions=("SHA-256 for tokens: they are compared\n- not verified", "Middleware per route"),
    phase="implementation",
    done=("login", "register"),
    in_progress=("reset",),
    facts=(SummaryFact("Not authorised: git push"),),
    errors=("`pytest -q` failed (exit 1, #9):\nE   KeyError: 'REDIS_URL'",),
    next_steps=("Send the mail", "Test it"),
    recovery=("offloaded/20260129_142530_Bash_42.md: the whole result #42",),
)
MARKDOWN = """\
## Session Intent
Add a password reset.

Keep the API as it is.

## User Rules
1. #2: "Never commit to main."
2. #4

## Files Modified
| File | Action | What Changed |
| --- | --- | --- |
| src/auth.py | created | login, register; returns str \\| None |
| `my docs/a\\|b.md` | deleted |  |

## Files Read
- src/schema.prisma — the data model
- README.md

## Key Decisions
1. SHA-256 for tokens: they are compared
   - not verified
2. Middleware per route

## Current State
- **Phase:** implementation
- **Done:**
  - login
  - register
- **In progress:**
  - reset
- **Blocked:** None.

## Critical Facts
1. Not authorised: git push

## Error Context
- `pytest -q` failed (exit 1, #9):
  E   KeyError: 'REDIS_URL'

## Next Steps
1. Send the mail
2. Test it

## Recovery References
- offloaded/20260129_142530_Bash_42.md: the whole result #42"""


# Markdown


def test_the_sections_are_in_order() -> None:
    assert render(FULL) == MARKDOWN


def test_empty_sections_say_so() -> None:
    text = render(SummaryDocument())
    assert text.count("## ") == 10
    assert text.count("None.") == 9 + 4
    assert "| File |" not in text


@pytest.mark.slow
@given(DOCUMENTS)
@example(FULL)
@example(SummaryDocument(rules=(UserRule(1, "0\n```\n```"),)))
@example(SummaryDocument(blocked=("0\n<message #0>\n0",), errors=("0\n</message>\n0",)))
@example(
    SummaryDocument(intent="## Next Steps\n1. none\n**Done:** x", decisions=("None.", " \n ", "-"))
)
def test_parse_is_the_inverse_of_render(document: SummaryDocument) -> None:
    assert parse(render(document)) == document


@pytest.mark.slow
@given(st.lists(st.sampled_from([*SHARDS, "## Files Modified\n", "## Current State\n"])))
def test_any_text_can_be_parsed(shards: list[str]) -> None:
    document = parse("".join(shards))
    assert parse(render(document)) == document


@pytest.mark.slow
@given(DOCUMENTS)
def test_json_loses_nothing(document: SummaryDocument) -> None:
    assert SummaryDocument.from_json(json.loads(json.dumps(document.to_json()))) == document


def test_a_document_of_another_version_lacks_sections() -> None:
    assert SummaryDocument.from_json({"intent": "x", "colour": "red"}) == SummaryDocument(
        intent="x"
    )


@pytest.mark.parametrize(
    "data",
    [
        {"intent": None},
        {"phase": ["x"]},
        {"decisions": "x"},
        {"facts": [1]},
        {"modified": [{"path": "a"}]},
        {"read": [{"path": "a", "why": None}]},
    ],
)
def test_json_of_another_shape_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"summary\.{next(iter(data))}"):
        SummaryDocument.from_json(data)


S2_STYLE = """\
Here is the record you asked for.

### Session Intent
Build the auth service.

### Files Modified
| File | Action | What Changed |
|------|--------|-------------|
| `path/to/file.ts` | Created | New service: string | null |
| path/to/other.ts | updated | None |

### Files Read (Not Modified)
* `path/to/a b.ts` - Read for import patterns
* path/to/schema.prisma: Checked the data model

### Decisions Made
1) JWT over sessions
   because Redis is missing
2) Middleware per route

### Error Context (if any)
- Redis failed: no REDIS_URL

### Current State
- 3/5 endpoints implemented
- No blockers

### Next Steps
1. Implement the reset"""


def test_a_model_may_write_s2s_template() -> None:
    assert parse(S2_STYLE) == SummaryDocument(
        intent="Build the auth service.",
        modified=(
            FileRow("path/to/file.ts", "created", "New service: string | null"),
            FileRow("path/to/other.ts", "modified", ""),
        ),
        read=(
            ReadRow("path/to/a b.ts", "Read for import patterns"),
            ReadRow("path/to/schema.prisma", "Checked the data model"),
        ),
        decisions=("JWT over sessions\nbecause Redis is missing", "Middleware per route"),
        in_progress=("3/5 endpoints implemented",),
        errors=("Redis failed: no REDIS_URL",),
        next_steps=("Implement the reset",),
    )


def test_a_model_may_write_s0s_format() -> None:
    text = """\
## Session Summary
**Session ID:** 7
### Session Intent
Report on the market
### Artifacts Created
| Artifact | Path | Status |
|----------|------|--------|
| Report | out/report.md | Partial |
### Current Progress
- **Phase:** Writing
- **Completed:** The research
- **Remaining:**
  - The conclusion
  - The tables
### Critical Facts
- Budget: 10,000
"""
    assert parse(text) == SummaryDocument(
        intent="Report on the market",
        modified=(FileRow("out/report.md", "created", "Report | Partial"),),
        phase="Writing",
        done=("The research",),
        in_progress=("The conclusion", "The tables"),
        facts=(SummaryFact("Budget: 10,000"),),
    )


def test_a_model_may_write_bold_titles_and_lists_of_files() -> None:
    text = """\
**Session Intent:** Mend the parser
**Files Modified**
- `a/b.py` — created: the parser
- `c.py`: Added a test
- d.py (deleted)
**Current State**
Phase: testing
- Done: the parser
- Blocked: none
### Approach
**Key Decisions**
### On parsing
- One pass

A paragraph.
**Next Steps:** Run it"""
    assert parse(text) == SummaryDocument(
        intent="Mend the parser",
        modified=(
            FileRow("a/b.py", "created", "the parser"),
            FileRow("c.py", "modified", "Added a test"),
            FileRow("d.py", "deleted", ""),
        ),
        phase="testing",
        done=("the parser",),
        next_steps=("Run it",),
        other=(SummaryFact("On parsing\n- One pass\n\nA paragraph."),),
    )


ANSWER = """\
## Session Intent
Mend the parser.

## Key Decisions
1. Use tabs, because the file has them.

## Current State
Phase: testing
- Done: the lexer

## Critical Facts
- port 8080
```python
# Errors

- not a bullet
## Next Steps
```
- key = "v"

## Error Context
- TypeError: x

## Next Steps
1. Run the tests
2. Mend the lexer
"""


@pytest.mark.parametrize(
    "text",
    [
        ANSWER,
        f"```markdown\n{ANSWER}```\n",
        f"Here is the record:\n\n```\n{ANSWER}```\n\nLet me know if I should go on.",
        f"```markdown\n{ANSWER}",
        f"~~~~\n{ANSWER}~~~~\nBye.",
        f"{ANSWER}```\n",
        f"<summary>\n{ANSWER}</summary>",
        f"Sure.\n<summary>{ANSWER}</summary>\n\nI will go on now.",
        f"<summary>\n```markdown\n{ANSWER}```\n</summary>",
        f"<analysis>\n## Session Intent\na draft\n</analysis>\n\n<summary>\n{ANSWER}</summary>\n",
        f"{ANSWER}</summary>",
        f"<record>\n{ANSWER}",
        ANSWER.replace("\n\n## ", "\n\n---\n\n## "),
        f"{ANSWER}\nI will now go on with the task.",
        f"{ANSWER}\n---\n\nShall I go on?",
    ],
    ids=itertools.count(),
)
def test_wrapping_is_not_part_of_the_document(text: str) -> None:
    document = parse(text)
    assert missing_titles(text) == []
    assert document == SummaryDocument(
        intent="Mend the parser.",
        decisions=("Use tabs, because the file has them.",),
        phase="testing",
        done=("the lexer",),
        facts=(SummaryFact("port 8080"), SummaryFact('key = "v"')),
        errors=("TypeError: x",),
        next_steps=("Run the tests", "Mend the lexer"),
        other=(SummaryFact("```python\n# Errors\n\n- not a bullet\n## Next Steps\n```"),),
    )
    assert parse(render(document)) == document


def test_a_model_may_write_other_titles() -> None:
    text = "## 1. Primary Request and Intent:\nMend it.\n"
    text += "## Decisions\n- none\n## Current Work\nPhase: tests\n## Optional Next Step\n- Run it"
    assert missing_titles(text) == []
    document = parse(text)
    assert (document.intent, document.phase, document.next_steps) == (
        "Mend it.",
        "tests",
        ("Run it",),
    )


def test_tags_and_fences_that_a_document_speaks_of_stay() -> None:
    text = "## Session Intent\nWrap it in <summary>.\n\n## Critical Facts\n- </summary>\n- ```\n"
    document = parse(text)
    assert document.intent == "Wrap it in <summary>."
    assert document.facts == (SummaryFact("</summary>"), SummaryFact("```"))
    prose = "## Session Intent\nWrap.\n\n## Next Steps\n\nI will run the tests."
    assert parse(prose).next_steps == ("I will run the tests.",)


def test_text_that_begins_like_a_label_is_not_a_label() -> None:
    text = "## Current State\n**Done:**\n- Completed the migration\n- Blocked users are listed"
    assert parse(text).done == ("Completed the migration", "Blocked users are listed")


def test_missing_names_the_required_sections() -> None:
    assert missing_titles(MARKDOWN) == []
    assert missing_titles(S2_STYLE) == []
    assert missing_titles("## Session Intent\nx\n## Next Steps\n") == [
        "Key Decisions",
        "Current State",
        "Next Steps",
    ]
    assert missing_titles(render(SummaryDocument())) == ["Session Intent"]
    assert len(missing_titles("I can't do that.")) == 4


# Merging


@pytest.mark.parametrize("words", ["", " ", "unchanged", "Unchanged.", "**Same as before**"])
def test_the_intent_stays_when_the_scope_does(words: str) -> None:
    assert (
        merge(SummaryDocument(intent="Mend it"), SummaryDocument(intent=words)).intent == "Mend it"
    )


def test_the_intent_changes_with_the_scope() -> None:
    assert (
        merge(SummaryDocument(intent="Mend it"), SummaryDocument(intent="Port it")).intent
        == "Port it"
    )


def test_files_are_appended_or_updated() -> None:
    old = SummaryDocument(
        modified=(FileRow("a.py", "created", "the parser"), FileRow("b.py", "modified", "types")),
        read=(ReadRow("c.py", "the caller"), ReadRow("d.py", "style"), ReadRow("e.py")),
    )
    new = SummaryDocument(
        modified=(
            FileRow("a.py", "modified", "a fix"),
            FileRow("c.py", "modified", "the call"),
            FileRow("b.py", "deleted", ""),
        ),
        read=(ReadRow("d.py"), ReadRow("f.py", "new"), ReadRow("e.py", "the end")),
    )
    merged = merge(old, new)
    assert merged.modified == (
        FileRow("a.py", "created", "the parser; a fix"),
        FileRow("b.py", "deleted", "types"),
        FileRow("c.py", "modified", "the call"),
    )
    assert merged.read == (
        ReadRow("d.py", "style"),
        ReadRow("f.py", "new"),
        ReadRow("e.py", "the end"),
    )


def test_what_changed_in_a_file_stays_short_over_many_merges() -> None:
    document = SummaryDocument()
    for n in range(30):
        document = merge(
            document, SummaryDocument(modified=(FileRow("a.py", "modified", f"fix {n}"),))
        )
    assert document.modified[0].change == "fix 0; fix 27; fix 28; fix 29"


def test_decisions_are_appended_once() -> None:
    merged = merge(
        SummaryDocument(decisions=("JWT.", "SQLite")), SummaryDocument(decisions=("jwt", "Pages"))
    )
    assert merged.decisions == ("JWT.", "SQLite", "Pages")


def test_facts_and_references_are_appended_once() -> None:
    old = SummaryDocument(facts=(SummaryFact("never push"),), recovery=("a.md",))
    merged = merge(
        old,
        SummaryDocument(
            facts=(SummaryFact("Never  push"), SummaryFact("no network")), recovery=("a.md", "b.md")
        ),
    )
    assert merged.facts == (SummaryFact("Never  push"), SummaryFact("no network"))
    assert merged.recovery == ("a.md", "b.md")


def test_state_and_next_steps_are_replaced() -> None:
    old = SummaryDocument(phase="a", in_progress=("y",), next_steps=("n",))
    new = SummaryDocument(phase="b", done=("y",), next_steps=("m", "Y."))
    assert merge(old, new) == replace(new, next_steps=("m",))


def test_what_was_done_and_what_blocks_outlive_ten_merges() -> None:
    document = SummaryDocument()
    for n in range(1, 11):
        new = SummaryDocument(
            done=(f"part {n} is finished",),
            blocked=("part 3 waits for the credentials that Anna sends",) if n == 3 else (),
        )
        document = merge(document, new)
    assert document.done == tuple(f"part {n} is finished" for n in range(1, 11))
    assert document.blocked == ("part 3 waits for the credentials that Anna sends",)
    same = SummaryDocument(blocked=("Part 3 waits for the credentials that Anna sends.", "no disk"))
    assert merge(document, same).blocked == (*document.blocked, "no disk")
    ended = SummaryDocument(done=document.blocked)
    assert merge(document, ended).blocked == ()


def test_no_entry_is_dropped_because_of_a_later_one() -> None:
    old = SummaryDocument(
        decisions=("Chose requests over urllib because it is short", "Use SQLite for storage"),
        facts=(
            SummaryFact("The suite has 210 tests.", 5),
            SummaryFact("Rows 1 to 3 are headers"),
            SummaryFact("Use port 1 or 2"),
        ),
    )
    new = SummaryDocument(
        decisions=("Switched from requests to httpx", "Use files for tests instead of SQLite"),
        facts=(SummaryFact("The suite has 214 tests.", 9), SummaryFact("Rows 1 to 4 are bold")),
    )
    merged = merge(old, new)
    assert merged.decisions == (*old.decisions, *new.decisions)
    assert merged.facts == (*old.facts, *new.facts)


def test_an_entry_about_a_deleted_file_says_so() -> None:
    rows = [{"path": "/p/src/old.py", "action": "deleted", "added": 0, "removed": 9}]
    known = ledger(("Bash", {"command": "rm src/old.py", "exit_code": 0, "changes": rows}, ""))
    facts = ("The parser is in src/old.py", "src/old.py was renamed", "src/new.py is new")
    noted = with_ledger_facts(SummaryDocument(facts=tuple(map(SummaryFact, facts))), known)
    note = " [src/old.py: deleted since]"
    assert [fact.text for fact in noted.facts] == [facts[0] + note, facts[1] + note, facts[2]]
    assert with_ledger_facts(noted, known).facts == noted.facts
    assert with_ledger_facts(noted, ledger()).facts == tuple(map(SummaryFact, facts))


def test_errors_are_appended_and_resolved_ones_go() -> None:
    old = SummaryDocument(errors=("KeyError: 'REDIS_URL' in conftest", "disk full", "`make` fails"))
    new = SummaryDocument(errors=("timeout", "**Resolved:** keyerror: 'REDIS_URL'", "Resolved:"))
    assert merge(old, new).errors == ("disk full", "`make` fails", "timeout")
    new = replace(new, errors=(*new.errors, "Resolved: Disk full."))
    assert merge(old, new).errors == ("`make` fails", "timeout")


def test_a_word_resolves_only_an_error_of_that_word() -> None:
    old = SummaryDocument(errors=("error in a.py", "error"))
    assert merge(old, SummaryDocument(errors=("Resolved: Error",))).errors == ("error in a.py",)


# The ledger's facts


def ledger(*results: tuple[str, dict[str, Any], str], more: tuple[Entry, ...] = ()) -> Ledger:
    """A ledger of results as (tool, details, text), from #11 on in steps of 2, then `more`. A
    result with an exit code other than 0 is an error; a result that says "offloaded" is offloaded.
    """
    made = Ledger()
    made.add(Session(seq=1, id="s", cwd="/p", version="1", model="m"))
    for seq, (tool, details, text) in enumerate(results, 5):
        call = {"type": "tool_use", "id": f"c{seq}", "name": tool, "input": {}}
        made.add(Assistant(seq=2 * seq, content=[call], usage={}, stop_reason=None, model="m"))
        made.add(
            ToolResult(
                seq=2 * seq + 1,
                tool_use_id=f"c{seq}",
                content=text,
                is_error=details.get("exit_code", 0) != 0,
                details=details,
                offloaded=details.get("offloaded"),
            )
        )
    for entry in more:
        made.add(entry)
    return made


def changed(path: str, **details: Any) -> dict[str, Any]:
    return {"path": path, "created": False, "added": 12, "removed": 3, **details}


def ran(command: str, exit_code: int) -> dict[str, Any]:
    return {"command": command, "exit_code": exit_code}


def test_files_and_references_come_from_the_ledger() -> None:
    facts = ledger(
        ("Edit", changed("/p/a.py"), ""),
        ("Write", changed("/p/b.py", created=True, removed=0), ""),
        ("Read", {"path": "/p/c.py"}, ""),
        ("Read", {"path": "/etc/hosts"}, ""),
        ("Grep", {"offloaded": "offloaded/x_Grep_19.md"}, "…"),
    )
    told = SummaryDocument(
        intent="x",
        modified=(FileRow("/p/a.py", "created", "the parser"), FileRow("dream.py", "created", "")),
        read=(ReadRow("./c.py", "the caller"), ReadRow("dream.md")),
        recovery=("offloaded/dream.md",),
    )
    assert with_ledger_facts(told, facts) == SummaryDocument(
        intent="x",
        modified=(
            FileRow("a.py", "modified", "the parser"),
            FileRow("b.py", "created", "+12 −0 lines (Write, #13)"),
        ),
        read=(ReadRow("c.py", "the caller"), ReadRow("/etc/hosts", "#17")),
        recovery=("offloaded/x_Grep_19.md: the whole result #19",),
    )


def test_line_counts_are_replaced_by_newer_counts_and_by_descriptions() -> None:
    first = with_ledger_facts(SummaryDocument(), ledger(("Edit", changed("/p/a.py"), "")))
    twice = ledger(("Edit", changed("/p/a.py"), ""), ("Edit", changed("/p/a.py"), ""))
    assert with_ledger_facts(first, twice).modified[0].change == "+24 −6 lines (Edit, #13)"
    told = merge(first, SummaryDocument(modified=(FileRow("a.py", "modified", "a fix"),)))
    assert with_ledger_facts(told, twice).modified[0].change == "a fix"


def test_a_failure_the_ledger_told_goes_once_the_command_passes() -> None:
    failed = ("Bash", ran("make", 2), "cc: error: x.c")
    summary = document_from_ledger(ledger(failed), None)
    assert summary.errors == ("`make` failed (exit 2, #11):\ncc: error: x.c",)
    told = merge(summary, SummaryDocument(errors=("seen once: a race",)))
    passed = ledger(failed, ("Bash", ran("make", 0), ""))
    assert with_ledger_facts(told, passed).errors == ("seen once: a race",)


def test_a_step_that_repeats_an_answered_message_is_removed() -> None:
    ended = (said(20, "Delete old/ and the tests."), End(seq=21, status="ok"))
    known = ledger(more=(*ended, said(22, "Rename src to lib."), said(23, "Go on")))
    steps = (
        "#20: delete old/ and the tests. (open)",
        "Rename src to lib",
        "Go on",
        "Delete the cache",
    )
    left = with_ledger_facts(SummaryDocument(next_steps=steps), known).next_steps
    assert left == steps[1:]
    again = ledger(more=(*ended, said(22, "Delete old/ and the tests.")))
    assert with_ledger_facts(SummaryDocument(next_steps=steps), again).next_steps == steps


def test_many_offloaded_files_are_not_all_listed() -> None:
    rows = [("Bash", {"offloaded": f"offloaded/{n}.md"}, "") for n in range(50)]
    recovery = with_ledger_facts(SummaryDocument(), ledger(*rows)).recovery
    assert recovery[:2] == (
        "30 older files in offloaded/",
        "offloaded/30.md: the whole result #71",
    )
    assert len(recovery) == 21


def said(seq: int, text: str) -> User:
    return User(seq=seq, content=text)


def test_a_mechanical_summary_needs_no_model() -> None:
    todos = [
        {"content": "Find it", "status": "completed"},
        {"content": "Mend it", "status": "in_progress"},
        {"content": "Test it", "status": "pending"},
    ]
    facts = ledger(
        ("Todo", {"todos": todos}, ""),
        ("Edit", changed("/p/a.py"), ""),
        ("Bash", ran("pytest -q", 1), "F\nE   KeyError: 'x'\n1 failed"),
        more=(
            said(20, "The tests fail."),
            Note(seq=21, topic="permission", text="not authorised: Bash git push"),
            said(22, "Leave the API alone."),
        ),
    )
    assert document_from_ledger(facts, None) == SummaryDocument(
        intent="The tests fail.",
        modified=(FileRow("a.py", "modified", "+12 −3 lines (Edit, #13)"),),
        phase="the last command was `pytest -q` (exit 1, #15)",
        done=("Find it",),
        in_progress=("Mend it",),
        facts=(SummaryFact("Not authorised: Bash git push"),),
        errors=("`pytest -q` failed (exit 1, #15):\nF\nE   KeyError: 'x'\n1 failed",),
        next_steps=("Mend it", "Test it"),
    )


def test_a_mechanical_summary_says_why_a_call_was_not_authorised() -> None:
    no = {"answer": "no", "reason": "push to the mirror instead"}
    note = Note(seq=21, topic="permission", text="not authorised: Bash git push", data=no)
    document = document_from_ledger(ledger(more=(said(20, "Push it."), note)), None)
    why = "the user said: push to the mirror instead"
    assert document.facts == (SummaryFact(f"Not authorised: Bash git push · {why}"),)


def test_a_mechanical_summary_builds_on_the_one_before() -> None:
    previous = SummaryDocument(
        intent="Port it", decisions=("No C",), phase="old", next_steps=("old",)
    )
    facts = ledger(more=(said(2, "Hello"), said(4, "Now the docs.")))
    summary = document_from_ledger(facts, previous)
    assert summary.intent == "Port it"
    assert summary.decisions == ("No C",)
    assert summary.phase == ""
    assert summary.next_steps == ("Go on with: Now the docs.",)
    assert document_from_ledger(facts, summary) == summary
    facts.add(End(seq=5, status="ok"))
    assert document_from_ledger(facts, previous).next_steps == ()  # it was answered


def test_a_mechanical_summary_of_nothing_is_empty() -> None:
    assert document_from_ledger(Ledger(), None) == SummaryDocument()


def test_the_persons_first_words_are_bounded() -> None:
    intent = document_from_ledger(ledger(more=(said(2, "word " * 5_000),)), None).intent
    assert intent.startswith("word word")
    assert intent.endswith(" word …")
    assert len(intent) <= 2_002


# Fitting


def many(stem: str, count: int) -> tuple[str, ...]:
    return tuple(f"{stem} number {n}" for n in range(count))


def large(**sections: Any) -> SummaryDocument:
    body = {
        "intent": "Mend the parser",
        "modified": tuple(FileRow(f"src/m{n}.py", "modified", "types") for n in range(5)),
        "read": tuple(ReadRow(f"src/r{n}.py", "looked at") for n in range(50)),
        "decisions": many("decision", 50),
        "done": many("step", 50),
        "facts": tuple(map(SummaryFact, many("fact", 5))),
        "errors": ("Resolved: a", *many("error", 50)),
        "next_steps": many("next", 3),
        "recovery": many("offloaded", 20),
    }
    return SummaryDocument(**{**body, **sections})


def size(document: SummaryDocument) -> int:
    return estimate(render(document))


def test_what_fits_is_left_alone() -> None:
    document = large()
    assert shortened_to(document, size(document)) is document


def test_the_least_critical_goes_first_and_the_oldest_of_it() -> None:
    document = large()
    slightly = shortened_to(document, size(document) - 20)
    dropped = len(document.read) - len(slightly.read)
    assert 0 < dropped < 10
    assert slightly.read == document.read[dropped:]
    assert slightly.done == document.done

    half = shortened_to(document, size(document) // 2)
    assert half.read == ()
    assert half.done == ()
    assert half.errors == document.errors[-len(half.errors) :]
    assert 0 < len(half.errors) < 50
    assert half.decisions == document.decisions

    assert size(document) - 20 - size(slightly) < 20
    assert size(document) // 2 - size(half) < 20


@pytest.mark.parametrize("cap", [300, 400, 600, 1_000, 2_000])
def test_the_intent_the_facts_and_the_changed_paths_stay(cap: int) -> None:
    document = large()
    fitted = shortened_to(document, cap)
    assert size(fitted) <= cap
    assert (fitted.intent, fitted.facts) == (document.intent, document.facts)
    assert [r.path for r in fitted.modified] == [r.path for r in document.modified]
    assert fitted.next_steps == document.next_steps


def test_resolved_errors_go_before_open_ones() -> None:
    errors = (*many("error", 3), "Resolved: the timeout of the third attempt to connect")
    document = SummaryDocument(intent="x", errors=errors)
    assert shortened_to(document, size(document) - 1).errors == errors[:3]


def test_long_texts_are_cut_and_paths_never() -> None:
    path = "src/" + "deeply/" * 40 + "file.py"
    document = SummaryDocument(
        intent="why " * 3_000,
        modified=(FileRow(path, "modified", "what " * 1_000),),
        facts=(SummaryFact("fact " * 1_000),),
        next_steps=("step " * 1_000,),
    )
    fitted = shortened_to(document, 600)
    assert size(fitted) <= 600
    assert fitted.modified[0].path == path
    assert fitted.intent.startswith("why why")
    assert len(fitted.intent) > len(fitted.facts[0].text) > 50
    assert fitted.facts[0].text.endswith("fact …")


LONG = st.builds(lambda text, times: text * times, TEXT, st.sampled_from([1, 1, 1, 30, 400]))
LONGER = st.lists(LONG.filter(bool), max_size=12).map(tuple)


@pytest.mark.full
@pytest.mark.slow
@given(
    st.builds(
        SummaryDocument,
        intent=LONG,
        modified=st.lists(st.builds(FileRow, LONG, ACTION, LONG), max_size=30).map(tuple),
        read=st.lists(st.builds(ReadRow, LONG, TEXT), max_size=20).map(tuple),
        decisions=LONGER,
        phase=LONG,
        done=LONGER,
        in_progress=LONGER,
        blocked=LONGER,
        facts=LONGER.map(lambda texts: tuple(map(SummaryFact, texts))),
        errors=LONGER,
        next_steps=LONGER,
        recovery=LONGER,
    ),
    st.sampled_from([200, 300, 600, 1_600, 8_000]),
)
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
def test_every_document_fits_in_the_end_and_keeps_an_intent(
    document: SummaryDocument, cap: int
) -> None:
    fitted = shortened_to(document, cap)
    assert size(fitted) <= cap
    assert bool(fitted.intent) == bool(document.intent)
    assert parse(render(fitted)) == fitted


def test_the_most_critical_content_goes_last() -> None:
    rules = tuple(f"Not authorised: to touch part_{n} of the archive" for n in range(100))
    rows = tuple(FileRow(f"src/part_{n}/{n}.py", "modified", "types") for n in range(100))
    document = SummaryDocument(
        "Mend it.",
        modified=rows,
        facts=tuple(map(SummaryFact, rules)),
        next_steps=many("next", 40),
        phase="p",
    )
    half = shortened_to(document, 3_000)
    assert half.facts == document.facts
    assert 0 < len(half.modified) < 100
    assert half.modified[-1].path == "src/part_99/99.py" or half.modified[-1].path.endswith("/")
    least = shortened_to(document, 400)
    count, *newest = (fact.text for fact in least.facts)
    assert least.intent == "Mend it."
    assert least.next_steps == document.next_steps[:1]
    assert tuple(newest) == rules[-len(newest) :]
    assert count == f"{100 - len(newest)} older facts: Recall finds them"


def test_counts_of_lines_go_before_decisions() -> None:
    counts = [f"+{n} −1 lines (Edit, #{n})" for n in range(40)]
    counted = tuple(FileRow(f"s/{n}.py", "modified", text) for n, text in enumerate(counts))
    document = large(modified=counted, read=(), done=())
    fitted = shortened_to(document, size(document) - 100)
    assert fitted.decisions == document.decisions
    assert len(fitted.errors) == len(document.errors)
    assert [row.path for row in fitted.modified] == [row.path for row in counted]
    assert fitted.modified[0].change == ""
    assert fitted.modified[-1].change == counted[-1].change


@pytest.mark.slow
def test_twenty_merges_stay_under_the_cap() -> None:
    document = SummaryDocument()
    for n in range(20):
        new = large(
            intent="Mend the parser" if n == 0 else "unchanged",
            decisions=many(f"decision {n}", 50),
            errors=many(f"error {n}", 50),
            facts=(SummaryFact(f"fact {n}", n + 1),),
        )
        document = shortened_to(merge(document, new), 2_000)
        assert size(document) <= 2_000
    assert document.intent == "Mend the parser"
    assert document.facts == tuple(SummaryFact(f"fact {n}", n + 1) for n in range(20))
    assert document.decisions[-1] == "decision 19 number 49"


def test_a_file_has_the_status_that_the_rest_of_the_record_gives_it() -> None:
    paths = ("src/a.py", "b.py", "c.py", "d.py")
    document = SummaryDocument(
        intent="Do it.",
        modified=tuple(FileRow(path, "created", "x | y") for path in paths),
        done=("a.py is written", "b.py and d.py"),
        next_steps=("finish b.py",),
    )
    made = with_statuses(document, {"d.py"})
    assert [row.status for row in made.modified] == [
        "complete", "partial", "", "changed on disk since: read it",
    ]  # fmt: skip
    assert parse(render(made)) == made
    old = made.to_json()
    for row in old["modified"]:
        del row["status"]  # as an older log has it
    assert SummaryDocument.from_json(old) == document
