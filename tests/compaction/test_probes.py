"""Probes: taken from the evidence alone, looked up in a summary, and what it misses put back."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxagent.agent.compaction.document import FileRow, ReadRow, SummaryDocument, parse, render
from ctxagent.agent.compaction.language.evidence import MAX_FACT_CHARS, names, sentences
from ctxagent.agent.compaction.summary.merge import merge, with_ledger_facts
from ctxagent.agent.compaction.summary.shorten import shortened_to
from ctxagent.agent.compaction.verify import (
    Probe,
    ProbeTally,
    add_missed_facts,
    choose_probes,
    tally_probes,
)
from ctxagent.agent.compaction.verify.probes import ProbeKind, is_answered
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
    for probe in session.asked():
        by_section.setdefault(probe.section, []).append((probe.kind, probe.fact))
    assert by_section == {
        "modified": [("artifact", "src/auth.py"), ("artifact", "tests/test_auth.py")],
        "intent": [("recall", "Add a password reset to the service.")],
        "errors": [("recall", "KeyError: 'REDIS_URL'"), ("recall", "exit 1")],
        "facts": [
            ("decision", "Do not touch the migrations."),
            ("decision", "Use SHA-256, never bcrypt, for the tokens."),
            ("recall", "http://mail.example:2525/send"),
            ("recall", "30 seconds"),
        ],
        "in_progress": [("continuation", "Write the mail")],
        "next_steps": [
            ("continuation", "Limit the rate"),
            ("continuation", "Next, I mock the mailer in the tests."),
        ],
        "decisions": [
            ("decision", "We decided to keep the session store, because Redis is not there.")
        ],
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


def test_only_the_newest_failures_are_asked_for() -> None:
    session = Session()
    for n in range(6):
        session.run(f"tool{n} go", 3, f"fatal: it broke at {n}")
    assert session.facts("errors")[0] == "fatal: it broke at 5"
    assert "fatal: it broke at 2" not in session.facts("errors")


def test_what_is_pinned_stays_anyway() -> None:
    session = full()
    session.add(Pin, text="mind: do not touch the migrations!", ref=None)
    assert "Do not touch the migrations." not in session.facts("facts")
    assert "Use SHA-256, never bcrypt, for the tokens." in session.facts("facts")


def test_a_plan_is_asked_for_until_the_work_goes_on() -> None:
    session = full()
    assert "Next, I mock the mailer in the tests." in session.facts("next_steps")
    session.edit("tests/mailer.py")
    assert session.facts("next_steps") == ["Limit the rate"]


def test_what_a_later_decision_or_value_replaces_is_not_asked_for() -> None:
    session = Session()
    session.say("The port is 8080, as always. Go on.")
    session.think("We decided to use requests for the client.")
    session.say("The port is 9090, as always. Go on.")
    session.think("We decided to use httpx instead of requests.")
    previous = SummaryDocument(decisions=("Use requests", "Use pages of 50 rows"))
    assert session.facts("decisions", previous) == [
        "Use pages of 50 rows",
        "We decided to use httpx instead of requests.",
    ]
    assert "8080" not in session.facts("facts")
    dropped = SummaryDocument(decisions=("We decided to use httpx instead of requests",))
    asked = choose_probes(session.view().items, session.ledger(), previous, CAP, written=dropped)
    assert "Use pages of 50 rows" not in [probe.fact for probe in asked]


def test_a_name_in_a_rule_that_was_lifted_does_not_bring_the_rule_back() -> None:
    session = Session()
    session.say("Begin with the models.")
    session.say("Never touch vendor/lib.")
    session.think("I leave it.")
    session.say("You may change vendor/lib again.")
    session.think("Good.")
    assert not any("Never touch" in probe.entry for probe in session.asked())


def test_what_was_not_authorised_is_asked_for() -> None:
    session = Session()
    session.add(Note, topic="permission", text="not authorised: Bash git push", data={})
    (probe,) = session.asked()
    assert (probe.fact, probe.entry) == ("Bash git push", "Not authorised: Bash git push")
    said = {"answer": "no", "reason": "push to the mirror"}
    session.add(Note, topic="permission", text="not authorised: Bash git push", data=said)
    (probe,) = session.asked()
    assert probe.fact == "Bash git push"
    assert probe.entry == f"Not authorised: {probe.fact} · the person said: push to the mirror"


def test_words_of_spans_before_count_and_words_that_stay_do_not() -> None:
    session = full()
    session.think("Fine.")
    late = session.say("From now on never use mocks. Ask for https://two.example first.")
    items = session.view().items
    evicted = [item for item in items if item.seq > 8 and item.seq != late]
    facts = [p.fact for p in choose_probes(evicted, session.ledger(), None, CAP)]
    assert "Do not touch the migrations." in facts
    assert "From now on never use mocks." not in facts
    assert "30 seconds" not in facts  # a name: asked for when its words go


def test_the_newest_words_are_asked_for_if_they_go() -> None:
    session = full()
    session.say("And now the documentation, please.")
    assert "And now the documentation, please." in session.facts("facts")
    assert "And now the documentation, please." not in session.facts("next_steps")  # answered
    session.think("Done.")
    session.say("Thank you, and the changelog too.")
    assert "And now the documentation, please." not in session.facts("facts")


def test_what_the_summary_before_decided_must_survive() -> None:
    previous = SummaryDocument(
        decisions=("The person said: Only JSON.", "Chose uv over pip: it is faster (#12)"),
        next_steps=("Write the lexer",),
    )
    session = Session()
    session.say("Go on with it then.")
    assert session.facts("decisions", previous) == ["Chose uv over pip: it is faster", "Only JSON."]
    assert "Write the lexer" not in session.facts("next_steps", previous)  # it may be done


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


@pytest.mark.slow
def test_a_session_full_of_facts_makes_a_bounded_number_of_probes() -> None:
    session = Session()
    for n in range(200):
        session.say(f"Never call api_{n}_old. Always keep http://host{n}.example and {n}00 rows.")
        session.think(f"We decided to use tool_{n} instead of other_{n}. Next, I will write {n}.")
        session.look(f"src/f{n}.py")
        session.run(f"check{n} it", 2, f"Error: bad value {n}")
    asked = session.asked(cap=8_000)
    assert 20 <= len(asked) <= 45
    assert asked == session.asked(cap=8_000)
    assert sum(estimate(p.entry) for p in session.asked(cap=1_600)) < 1_600


def test_a_fact_is_short_and_verbatim() -> None:
    clause = "never write to the production database in any of the scripts"
    text = f"{'If you look at it from afar, ' * 12}{clause}, and that is final."
    session = Session()
    session.say(text)
    (fact,) = [p.fact for p in session.asked() if p.kind == "decision"]
    assert clause in fact
    assert fact in text
    assert len(fact) <= MAX_FACT_CHARS


def test_what_is_pasted_says_nothing() -> None:
    session = Session()
    session.say(
        "Why is this slow?\n```\nnever = must('do not read this') # always\n```\n"
        "<reminder>You must never say this.</reminder>\n> do not quote this either\n"
    )
    assert [p.fact for p in session.asked()] == ["Why is this slow?"]


@pytest.mark.slow
def test_endless_lines_are_read_at_their_ends() -> None:
    session = Session()
    session.say("a/" * 500_000 + "`" * 10_000)
    session.say("x. " * 400_000 + "Never do that again. " + "1." * 100_000)
    session.think("because " * 300_000)
    session.run("cd " * 100_000, 2, "E" * 1_000_000)
    asked = session.asked(cap=8_000)
    assert all(len(p.fact) <= MAX_FACT_CHARS for p in asked)
    assert sum(len(s) for s in sentences("Word by word. " * 100_000)) < 20_000


def test_names_are_exact() -> None:
    told = dict(names("Set `max_retries` to 5 in src/net/http.py, colour #8abeb7, for PostgreSQL."))
    assert {"max_retries", "src/net/http.py", "#8abeb7", "PostgreSQL"} <= told.keys()
    assert all(name in words for name, words in told.items())


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
    return shortened_to(with_ledger_facts(document, session.ledger()), cap)


def test_a_useless_summary_gets_every_fact() -> None:
    session = full()
    asked = session.asked()
    before = useless(session)
    after = add_missed_facts(before, asked, CAP)
    counted = tally_probes(asked, render(before), render(after))
    assert rate(counted.before, counted) < 0.5
    assert rate(counted.after, counted) == 1.0
    assert after.errors == ("`pytest -q` failed (exit 1, #11):\nKeyError: 'REDIS_URL'",)
    assert "The person ruled (#2): Do not touch the migrations." in after.facts
    assert after.intent == "Add a password reset to the service."
    assert estimate(render(after)) <= CAP


def test_facts_stand_once_and_survive_a_round_trip() -> None:
    session = full()
    asked = session.asked()
    after = add_missed_facts(useless(session), asked, CAP)
    assert add_missed_facts(after, asked, CAP) == after
    assert parse(render(after)) == after
    assert len(after.facts) == len(set(after.facts)) == 3


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
        facts=("The person (#1): an old quote, not asked for any more",),
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


def test_more_goes_for_constraints_and_open_errors_than_for_names() -> None:
    document = crowded(8_000)
    bare = add_missed_facts(document, [probe("x" * 9, "recall")], estimate(render(document)))
    no_trifles = SummaryDocument(
        intent=bare.intent, modified=bare.modified, decisions=bare.decisions,
        errors=bare.errors, next_steps=bare.next_steps,
    )  # fmt: skip
    cap = estimate(render(no_trifles))
    name = probe("a name that nobody will miss", "recall")
    constraint = probe("never write to the archive", "decision")
    failure = probe("KeyError: 'REDIS_URL'", "recall", "errors")
    after = add_missed_facts(no_trifles, [name, constraint, failure], cap)
    assert is_answered(constraint, render(after))
    assert is_answered(failure, render(after))
    assert not is_answered(name, render(after))
    assert estimate(render(after)) <= cap
    assert after.decisions
    assert after.decisions == no_trifles.decisions[-len(after.decisions) :]
    assert add_missed_facts(no_trifles, [name], cap) is no_trifles


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
        document = add_missed_facts(before, asked, CAP)
        assert estimate(render(document)) <= CAP
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
    assert "The person ruled (#2): Do not touch the migrations." in document.facts


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
