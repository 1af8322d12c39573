"""Probes: chosen from recorded facts, and searched in a summary."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxagent.agent.compaction.document import (
    FileRow,
    ReadRow,
    SummaryDocument,
    SummaryFact,
    UserRule,
    render,
)
from ctxagent.agent.compaction.verify import (
    Probe,
    choose_probes,
)
from ctxagent.agent.compaction.verify.probes import MAX_FACT_CHARS, ProbeKind, is_answered
from ctxagent.agent.session.entries import Note, Pin
from ctxagent.agent.session.ledger import Ledger

from ..support.sessions.history import History

CAP = 1_600


class Session(History):
    """A log with shorthands for entries that are probed."""

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
    """A session with every kind of fact."""
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


def test_fixed_failures_are_not_probed() -> None:
    session = full()
    session.run("pytest -q tests/test_auth.py", 1, "E   ValueError: no token")
    assert "ValueError: no token" in session.facts("errors")
    session.run("cd / && pytest -q tests/test_auth.py && pytest -q", 0, "5 passed in 0.1s")
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


def test_pinned_items_are_not_probed() -> None:
    session = full()
    session.add(Pin, text="mind: do not touch the migrations!", ref=None)
    assert session.facts("rules", PREVIOUS) == []


def test_a_decision_that_the_model_dropped_is_not_probed() -> None:
    session = full()
    previous = SummaryDocument(decisions=("Use requests", "Use pages of 50 rows"))
    assert session.facts("decisions", previous) == ["Use pages of 50 rows", "Use requests"]
    dropped = SummaryDocument(decisions=("Use requests",))
    asked = choose_probes(session.view().items, session.ledger(), previous, CAP, written=dropped)
    assert [p.fact for p in asked if p.section == "decisions"] == ["Use requests"]


def test_denied_calls_are_probed() -> None:
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
    assert fact in session.ledger().typed_messages[0][1]


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
    assert is_answered(probe(text), render(SummaryDocument(facts=(SummaryFact(text),))))


@pytest.mark.slow
@example("  /a")
@given(st.from_regex(r"[a-z|`\\# ]{1,6}/[\w.é -]{0,6}[a-z]", fullmatch=True))
def test_a_listed_path_is_found_however_it_is_escaped(path: str) -> None:
    asked = probe(path, "artifact")
    assert is_answered(asked, render(SummaryDocument(modified=(FileRow(path, "created"),))))
    assert is_answered(asked, render(SummaryDocument(read=(ReadRow(path),))))
