"""Probes: taken from the evidence alone, looked up in a summary, and what it misses put back."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxagent.agent.compaction.document import (
    FileRow,
    ReadRow,
    SummaryDocument,
    UserRule,
    parse,
    render,
)
from ctxagent.agent.compaction.summary.merge import merge, with_ledger_facts
from ctxagent.agent.compaction.summary.open_failures import with_open_failures
from ctxagent.agent.compaction.summary.shorten import shortened_to
from ctxagent.agent.compaction.verify import (
    Probe,
    ProbeTally,
    add_missed_facts,
    choose_probes,
    tally_probes,
)
from ctxagent.agent.compaction.verify.probes import MAX_FACT_CHARS, ProbeKind, is_answered
from ctxagent.agent.context.tokens import estimate
from ctxagent.agent.session.entries import Note, Pin
from ctxagent.agent.session.ledger import Ledger

from ..support.sessions.history import History

CAP = 1_600
USELESS = "Some work was done in this project. It will go on."


def rate(answered: Mapping[ProbeKind, int], tally: ProbeTally) -> float:
    """Return the share of the probes that was answered."""
    return sum(answered.values()) / sum(tally.asked.values())


class Session(History):
    """A log with shorthands for what leaves evidence."""

    def think(self, text: str) -> int:
        return self.reply({"type": "text", "text": text})

    def edit(self, path: str, **details: Any) -> int:
        given = {"path": f"/{path}"}
        return self.call("Edit", given, "ok", details={**given, "added": 1, **details})

    def look(self, path: str) -> int:
        return self.call("Read", {"path": f"/{path}"}, "x", details={"path": f"/{path}"})

    def run(self, command: str, code: int, output: str = "") -> int:
        details = {"command": command, "exit_code": code}
        return self.call("Bash", details, output, is_error=code != 0, details=details)

    def todo(self, **statuses: str) -> int:
        todos = [{"content": text.replace("_", " "), "status": s} for text, s in statuses.items()]
        return self.call("Todo", {}, "ok", details={"todos": todos})

    def ledger(self) -> Ledger:
        ledger = Ledger()
        for entry in self.entries:
            ledger.add(entry)
        return ledger

    def asked(self, previous: SummaryDocument | None = None, cap: int = CAP) -> list[Probe]:
        return choose_probes(self.view().items, self.ledger(), previous, cap)

    def facts(self, section: str, previous: SummaryDocument | None = None) -> list[str]:
        return [probe.fact for probe in self.asked(previous) if probe.section == section]


PREVIOUS = SummaryDocument(
    rules=(UserRule(2, "Do not touch the migrations."),),
    decisions=("Keep the session store, because Redis is not there",),
)


def full() -> Session:
    """A session with something of everything."""
    session = Session()
    session.say(
        "Add a password reset to the service.\n"
        "- Do not touch the migrations. Use SHA-256, never bcrypt, for the tokens.\n"
        "- The mail goes out through http://mail.example:2525/send within 30 seconds.\n"
    )
    session.think("We decided to keep the session store, because Redis is not there.")
    session.look("src/schema.prisma")
    session.edit("src/auth.py", created=True)
    session.edit("tests/test_auth.py")
    session.run("pytest -q", 1, "E       KeyError: 'REDIS_URL'\n1 failed, 4 passed")
    session.todo(Write_the_mail="in_progress", Limit_the_rate="pending", Plan_it="completed")
    session.think("Next, I mock the mailer in the tests.")
    return session


# What is asked


def test_every_kind_of_evidence_is_asked_for() -> None:
    session = full()
    by_section: dict[str, list[tuple[ProbeKind, str]]] = {}
    for probe in session.asked(PREVIOUS):
        by_section.setdefault(probe.section, []).append((probe.kind, probe.fact))
    assert by_section == {
        "modified": [("artifact", "src/auth.py"), ("artifact", "tests/test_auth.py")],
        "intent": [("recall", "Add a password reset to the service.")],
        "errors": [("recall", "KeyError: 'REDIS_URL'"), ("recall", "exit 1")],
        "rules": [("decision", "Do not touch the migrations.")],
        "in_progress": [("continuation", "Write the mail")],
        "next_steps": [("continuation", "Limit the rate")],
        "decisions": [("decision", "Keep the session store, because Redis is not there")],
        "read": [("artifact", "src/schema.prisma")],
    }


def test_changed_files_come_first_and_an_entry_holds_its_fact() -> None:
    asked = full().asked()
    assert [p.section for p in asked[:3]] == ["modified", "modified", "intent"]
    for probe in asked:
        assert probe.kind == "artifact" or probe.fact.removeprefix("exit ") in probe.entry
        assert probe.fact not in probe.question
    assert [p.entry for p in asked if p.section == "modified"] == ["created", "modified"]


def test_evidence_stands_behind_stubs_too() -> None:
    session = full()
    before = session.asked()
    last = next(r for r in session.view().results() if r.call.name == "Bash")
    session.mask("microcompact", [{"seq": last.item.seq, "tool_use_id": last.call.id, "stub": "-"}])
    assert session.asked() == before


def test_what_was_made_good_is_not_asked_for() -> None:
    session = full()
    session.run("pytest -q tests/test_auth.py", 1, "E   ValueError: no token")
    assert "ValueError: no token" in session.facts("errors")
    session.run("cd / && pytest", 0, "5 passed in 0.1s")
    session.todo(Write_the_mail="completed", Limit_the_rate="completed")
    assert session.facts("errors") == []
    assert session.facts("in_progress") == []
    assert "Limit the rate" not in session.facts("next_steps")


def test_a_search_without_a_match_is_no_error() -> None:
    session = Session()
    session.run("grep -rn TODO src", 1)
    assert session.facts("errors") == []
    session.run("make", 2)
    assert session.facts("errors") == ["exit 2"]


def test_every_open_failure_is_asked_for() -> None:
    session = Session()
    for n in range(60):
        session.run(f"tool{n} go", 3, f"fatal: it broke at {n}")
    facts = session.facts("errors")
    assert {f"fatal: it broke at {n}" for n in range(60)} <= set(facts)
    assert facts[0] == "fatal: it broke at 59"


def test_what_is_pinned_stays_anyway() -> None:
    session = full()
    session.add(Pin, text="mind: do not touch the migrations!", ref=None)
    assert session.facts("rules", PREVIOUS) == []


def test_a_decision_that_the_model_took_out_is_not_asked_for() -> None:
    session = full()
    previous = SummaryDocument(decisions=("Use requests", "Use pages of 50 rows"))
    assert session.facts("decisions", previous) == ["Use pages of 50 rows", "Use requests"]
    dropped = SummaryDocument(decisions=("Use requests",))
    asked = choose_probes(session.view().items, session.ledger(), previous, CAP, written=dropped)
    assert [p.fact for p in asked if p.section == "decisions"] == ["Use requests"]


def test_what_was_not_authorised_is_asked_for() -> None:
    session = Session()
    session.add(Note, topic="permission", text="not authorised: Bash git push", data={})
    (probe,) = session.asked()
    assert (probe.fact, probe.entry) == ("Bash git push", "Not authorised: Bash git push")
    said = {"answer": "no", "reason": "push to the mirror"}
    session.add(Note, topic="permission", text="not authorised: Bash git push", data=said)
    (probe,) = session.asked()
    assert probe.fact == "Bash git push"
    assert probe.entry == f"Not authorised: {probe.fact} · the user said: push to the mirror"


def test_files_of_the_whole_session_are_asked_for_beside_other_facts() -> None:
    session = full()
    session.edit("src/module_0.py")
    others = [probe for probe in session.asked(cap=600) if probe.section != "modified"]
    for n in range(1, 60):
        session.edit(f"src/module_{n}.py")
    for cap in (600, 1_600, 8_000):
        asked = session.asked(cap=cap)
        assert sum(p.section == "modified" for p in asked) == 62
        assert [p for p in asked if p.section != "modified"][: len(others)] == others


def test_a_fact_is_one_short_line_of_the_text() -> None:
    session = Session()
    session.say("\n  Mend the parser. " + "It reads words. " * 50 + "\nThen the lexer.")
    (fact,) = session.facts("intent")
    assert len(fact) <= MAX_FACT_CHARS
    assert fact in session.ledger().words[0][1]


# Whether it is answered


def probe(fact: str, kind: ProbeKind = "recall", section: str = "facts") -> Probe:
    return Probe(kind, "?", fact, section, None, fact)


@pytest.mark.parametrize(
    ("path", "text", "there"),
    [
        ("src/a.py", "changed src/a.py.", True),
        ("src/a.py", "see `src/a.py`:12", True),
        ("src/a.py", "(./src/a.py)", True),
        ("src/a.py", "src/a.pyc", False),
        ("src/a.py", "lib/src/a.py", False),
        ("src/a.py", "../src/a.py", False),
        ("src/a.py", "src/a.py/b", False),
        ("src/a.py", "src/a.py.orig", False),
        ("src/a.py", "my-src/a.py", False),
        ("src/a.py", "SRC/A.PY", False),
        ("src/a.py", "src/b.pyc, src/a.pyc and src/a.py", True),
        ("docs/a.md", "| `my docs/a.md` | created |  |", False),
        ("my docs/a.md", "| `my docs/a.md` | created |  |", True),
        ("a|b.md", "| `a\\|b.md` | created |  |", True),
        ("a.py", "", False),
        ("src/[id]/page.tsx", "| `src/[id]/page.tsx` | created |  |", True),
        ("src/[id]/page.tsx", "in src/[id]/page.tsx, twice", True),
        ("src/[id]/page.tsx", "| `lib/src/[id]/page.tsx` | created |  |", False),
        ("src/a.py", "| src/ | modified | 7 files modified |", False),
        ("src", "| src/ | modified | 7 files modified |", False),
    ],
)
def test_a_path_is_looked_up_whole(path: str, text: str, there: bool) -> None:
    assert is_answered(probe(path, "artifact"), text) is there


@pytest.mark.parametrize(
    ("fact", "text", "there"),
    [
        ("Never log keys.", "- the person: never  log\n  `keys`", True),
        ("Never log keys", "never log keyses", False),
        ("8080", "port 8080", True),
        ("8080", "port 18080", False),
        ("30", "30.5", False),
        ("1.2", "v1.2.3", False),
        ("maxRetries", "maxretries", False),
        ("exit 2", "it exited with code 2", True),
        ("exit 2", "exit 21", False),
        ("say “no”", 'Say "no"', True),
        ("# hash", "&#35; hash", True),
        ("...", "...", False),
    ],
)
def test_a_fact_is_looked_up_verbatim(fact: str, text: str, there: bool) -> None:
    assert is_answered(probe(fact), text) is there


WORDS = st.text(min_size=1).filter(lambda text: bool(text.strip(" \t\r\n.,;:*`")))


@pytest.mark.slow
@given(WORDS.filter(lambda text: bool(text.translate(str.maketrans("", "", "*`.,;: ")).strip())))
def test_what_a_summary_says_is_found_however_it_is_escaped(text: str) -> None:
    assert is_answered(probe(text), render(SummaryDocument(facts=(text,))))


@pytest.mark.slow
@example("  /a")
@given(st.from_regex(r"[a-z|`\\# ]{1,6}/[\w.é -]{0,6}[a-z]", fullmatch=True))
def test_a_listed_path_is_found_however_it_is_escaped(path: str) -> None:
    asked = probe(path, "artifact")
    assert is_answered(asked, render(SummaryDocument(modified=(FileRow(path, "created"),))))
    assert is_answered(asked, render(SummaryDocument(read=(ReadRow(path),))))


# What is added


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


def test_a_summary_that_says_it_all_is_left_alone() -> None:
    document = SummaryDocument(facts=("the port is 8080",))
    assert add_missed_facts(document, [probe("8080")], CAP) is document


def test_a_resolved_error_goes_from_the_summary() -> None:
    session = full()
    first = add_missed_facts(useless(session), session.asked(), CAP)
    session.run("pytest -q", 0, "5 passed")
    assert first.errors
    assert useless(session, first).errors == ()


def test_what_stands_stays_while_there_is_room() -> None:
    document = SummaryDocument(
        intent="Reset.",
        read=(ReadRow("a.md", "#3"),),
        decisions=("Use X (#4)",),
        done=("planned",),
        facts=("a fact of the model's",),
    )
    after = add_missed_facts(document, [probe("8080")], CAP)
    assert after.facts == ("a fact of the model's", "8080")
    assert (after.read, after.done) == (document.read, document.done)


def crowded(cap: int) -> SummaryDocument:
    """A document of about `cap` tokens."""
    document = SummaryDocument(
        intent="Reset the password.",
        modified=(FileRow("src/auth.py", "created", "the login"),),
        read=tuple(ReadRow(f"src/read_{n}.py", f"#{n}") for n in range(10)),
        decisions=tuple(f"The model decided on point {n}, for a good reason" for n in range(10)),
        done=tuple(f"a step that was finished, number {n}" for n in range(10)),
        facts=("a fact that is not asked for",),
        errors=("an error that the model tells",),
        next_steps=("go on",),
    )
    return shortened_to(document, cap)


def test_trifles_go_before_any_fact_and_no_more_than_needed() -> None:
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


def test_what_answers_a_probe_is_not_what_goes() -> None:
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


# The count


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
