"""`ctxagent compact` in a terminal and in a script."""

from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.context.view import fold
from ctxagent.agent.session.entries import Assistant, Mask, Revert, Session, ToolResult, User
from ctxagent.agent.session.log import Log, read_log
from ctxagent.agent.session.store import Project

from ..support.command import Place
from ..support.server.loopback import Fail, Say, Server
from ..support.server.wires import Wire, over_each_wire

KEEP_LITTLE = ("-c", "compact.keep_tokens=0", "-c", "compact.keep_messages=1")
RECORD = (
    "## Session Intent\nKnow big.txt.\n\n## Key Decisions\n1. Estimate.\n\n"
    "## Current State\nPhase: reading\n\n## Next Steps\n1. Wait.\n"
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A project with a session of two turns."""
    place = Place(tmp_path)
    (place.project / "big.txt").write_text("word " * 3_000)
    steps = [Say(tools=[("Read", {"path": "big.txt"})]), Say("Words. " * 200), Say("About 3,000.")]
    with Server(steps) as server:
        env = place.server(server.url)
        for arguments in (["-p", "what is in big.txt?"], ["--continue", "-p", "how many?"]):
            done = place.run(*arguments, env=env)
            assert done.returncode == 0, done.stderr
    return place


def kinds(place: Place) -> list[str]:
    return [entry["kind"] for entry in place.entries()]


def test_a_dry_run_needs_no_key_and_writes_nothing(place: Place) -> None:
    before = place.logs()[0].read_bytes()
    done = place.run(*KEEP_LITTLE, "compact", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "replaced by the summary" in done.stdout
    assert "about $" in done.stdout
    assert place.logs()[0].read_bytes() == before


@pytest.mark.variants
@over_each_wire
def test_apply_and_undo(place: Place, wire: Wire) -> None:
    (log,) = place.logs()
    name = log.parent.name
    with wire([Say(RECORD), Say("Going on."), Say("Going on.")]) as server:
        env = place.environ(server.variables)
        done = place.run(
            *KEEP_LITTLE, "compact", name, "--apply", "--instructions", "mind the number", env=env
        )
        assert done.returncode == 0, done.stderr
        assert "context compacted (manual): " in done.stdout
        assert f"ctxagent compact {name} --undo" in done.stdout
        assert "mind the number" in str(server.requests[0]["messages"])
        assert "summary" in kinds(place)
        undone = place.run("compact", "--undo")
        assert undone.returncode == 0, undone.stderr
        assert f"ctxagent --resume {name}" in undone.stdout
        assert kinds(place)[-1] == "revert"
        place.run("--continue", "-p", "go on", env=env)
    assert "word word" in str(server.requests[-1]["messages"])
    assert server.rejected == []


def test_undo_after_later_turns_is_a_copy(place: Place) -> None:
    (log,) = place.logs()
    with Server([Say(RECORD), Say("Going on.")]) as server:
        env = place.server(server.url)
        place.run(*KEEP_LITTLE, "compact", "--apply", env=env)
        place.run("--continue", "-p", "something later", env=env)
    before = log.read_bytes()
    done = place.run("compact", log.parent.name, "--undo")
    assert done.returncode == 0, done.stderr
    (copy,) = {path.parent.name for path in place.logs()} - {log.parent.name}
    assert f"ctxagent --resume {copy}" in done.stdout
    assert "copy" in done.stdout
    assert log.read_bytes() == before
    assert "something later" not in (log.parent.parent / copy / "log.jsonl").read_text()


def test_without_a_model(place: Place) -> None:
    mechanical = ("-c", "compact.summarizer=mechanical")
    done = place.run(*KEEP_LITTLE, *mechanical, "compact", "--apply")
    assert done.returncode == 0, done.stderr
    (summary,) = [entry for entry in place.entries() if entry["kind"] == "summary"]
    assert "what is in big.txt?" in summary["document"]["intent"]


def test_a_key_is_needed_to_summarise(place: Place) -> None:
    done = place.run(*KEEP_LITTLE, "compact", "--apply")
    assert done.returncode == 5
    assert "ANTHROPIC_API_KEY" in done.stderr
    assert "summary" not in kinds(place)


def test_a_refused_summary_is_made_from_the_ledger(place: Place) -> None:
    with Server([Fail(400, "no")]) as server:
        done = place.run(*KEEP_LITTLE, "compact", "--apply", env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    assert "warning: " in done.stderr
    assert "summary built from the log" in done.stdout


def test_open_errors_stay_in_summaries(tmp_path: Path) -> None:
    """A failure stays in summaries after runs that do not show whether it is fixed. It leaves when
    the model says that it is resolved, in any form of the answer, and returns when it occurs again.
    """
    place = Place(tmp_path)
    redis = ("Bash", {"command": "seq 4000; echo 'Error: REDIS_URL is not set'; exit 3"})
    build = {"command": "echo 'error: no rule for x'; exit 2"}
    steps = [
        Say(tools=[redis, ("Bash", build), ("Bash", {"command": "grep foo /dev/null"})]),
        Say(tools=[("Bash", {**build, "run_in_background": True})]),
        Say(tools=[("Job", {"action": "wait"})]),
        Say("It fails."),
    ]
    resolved = (
        "## Error Context\n- Resolved: Error: REDIS_URL is not set, as tokens need no store\n\n"
    )
    answer = RECORD.replace("## Next", f"{resolved}## Next")

    def summarised() -> dict[str, Any]:
        done = place.run(*KEEP_LITTLE, "compact", "--apply", env=env)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return [entry for entry in place.entries() if entry["kind"] == "summary"][-1]

    with Server([*steps, Say(f"<summary>\n```markdown\n{answer}```\n</summary>")]) as server:
        env = place.server(server.url)
        assert place.run("--permission-mode", "bypass", "-p", "build it", env=env).returncode == 0
        first = summarised()
        asked = str(server.requests[-1]["messages"][-1])
    assert "Counted as still failing" in asked
    assert "grep foo" not in asked.partition("Counted as still failing")[2]
    assert "summary>" not in first["text"]
    assert "```" not in first["text"]
    earlier, error = first["document"]["errors"]
    assert earlier.startswith("Failed earlier: `seq 4000")
    assert "no rule for x" in error
    (row,) = first["resolved"]
    assert (row["by"], "tokens need no store" in row["why"], len(row["refs"])) == ("model", True, 1)

    with Server([Say(tools=[redis]), Say("Again."), Say(answer)]) as server:
        env = place.server(server.url)
        assert (
            place.run("--permission-mode", "bypass", "--continue", "-p", "go", env=env).returncode
            == 0
        )
        second = summarised()
    assert second["resolved"] == []  # the same words do not speak of the later failure
    assert [line in str(second["document"]["errors"]) for line in ("no rule", "REDIS_URL")] == [
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ([], 2, "--dry-run"),
        (["--dry-run", "--instructions", "x"], 2, "--apply"),
        (["--undo"], 1, "no compaction"),
        (["--dry-run", "--apply"], 2, "--dry-run and --apply are 2 different actions"),
        (["--undo", "--apply"], 2, "--undo and --apply are 2 different actions"),
        (["--undo", "--dry-run", "--apply"], 2, "--undo, --dry-run and --apply are 3"),
        (["nosuch", "--dry-run"], 2, "no session 'nosuch'"),
    ],
)
def test_impossible_compactions_are_errors(
    place: Place, arguments: list[str], code: int, told: str
) -> None:
    before = place.logs()[0].read_bytes()
    done = place.run("compact", *arguments)
    assert done.returncode == code
    assert told in done.stderr
    assert done.stdout == ""
    assert place.logs()[0].read_bytes() == before


def test_undo_restores_everything_that_one_pass_cleared(tmp_path: Path) -> None:
    place = Place(tmp_path)
    folder = Project(place.state, place.project).folder / "sessions" / "20260101-000000-abcd"
    log = Log(folder / "log.jsonl")
    log.append(Session(id=folder.name, cwd=str(place.project), version="0", model="claude-opus-4"))
    log.append(User(content="go"))
    uses = [
        {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "seq 9"}},
        {"type": "tool_use", "id": "b", "name": "Write", "input": {"path": "f", "content": "long"}},
    ]
    log.append(Assistant(content=uses, usage={}, stop_reason="tool_use", model="m"))
    for use in ("a", "b"):
        log.append(ToolResult(tool_use_id=use, content="it is done"))
    sizes = {"tokens_before": 90, "tokens_after": 80}
    stub: dict[str, Any] = {"seq": 4, "tool_use_id": "a", "stub": "[cleared]"}
    short: dict[str, Any] = {"seq": 3, "tool_use_id": "b", "input": {"path": "f"}}
    log.append(Mask(layer="microcompact", targets=[stub], trigger="it pays", **sizes))
    log.append(Mask(layer="truncate", targets=[short], trigger="HOOK-CTX-002: it pays", **sizes))
    text = [{"type": "text", "text": "Done."}]
    log.append(Assistant(content=text, usage={}, stop_reason="end_turn", model="m"))
    log.append(User(content="and later"))
    log.close()
    done = place.run("compact", "--undo")
    assert done.returncode == 0, done.stderr
    assert "undone: 1 old result cleared (it pays) and 1 old input truncated (" in done.stdout
    assert "a copy" in done.stdout
    (copy,) = set(place.logs()) - {log.path}
    entries = read_log(copy).entries
    assert {e.target for e in entries if isinstance(e, Revert)} == {6, 7}
    assert "and later" not in copy.read_text()
    view = fold(entries)
    assert not any(item.stubs for item in view.items)
    assert view.calls["b"].input == uses[1]["input"]


def record(
    *, rules: str = "None.", facts: str = "", state: str = "", gone: str = "None.", steps: str = ""
) -> Say:
    """Return a summary reply with these sections."""
    return Say(
        f"## Session Intent\nMend it.\n\n## User Rules\n{rules}\n\n## Key Decisions\nNone.\n\n"
        f"## Current State\nPhase: work\n{state}\n\n## Critical Facts\n{facts}\n\n"
        f"## No Longer True\n{gone}\n\n## Next Steps\n1. {steps}\n"
    )


@pytest.mark.variants
@over_each_wire
def test_model_names_and_lifts_rules_and_messages_stay(tmp_path: Path, wire: Wire) -> None:
    place = Place(tmp_path)
    rules = ("Hands off vendor/.", "Niemals auf main pushen.", "Ask me before a migration.")
    said = "Mend the parser. " + " ".join(rules)
    records = [
        record(
            rules='- "hands off vendor/"\n- "Niemals auf main pushen"\n- "Never delete a file."',
            facts="- the port is 8080\n- the host is h1",
            state="- Done: the lexer\n- Blocked: the key that Anna sends",
            steps="Write the parser",
        ),
        record(
            rules='- #2: "Ask me before a migration."',
            facts="- the suite has 12 tests",
            state="- Done: the parser",
            gone=(
                '- Fact 1 "the port is 8080": it is 9090 now\n'
                '- Rule 1 "Hands off vendor": the user said "You may edit vendor/ now"\n'
                '- Rule 2 "Niemals auf main pushen": it is late'
            ),
            steps="Write the tests",
        ),
        record(
            facts="- the suite has 14 tests",
            gone='- Blocker 1 "the key that Anna sends": she sent it',
            steps="Rest",
        ),
    ]
    later = ("Go on with it.", "You may edit vendor/ now.", "And the rest.")
    answers = [Say("Done. " + "word " * 900)]
    for made in records:
        answers += [Say("Done. " + "word " * 900), made]
    answers.append(Say("All done."))
    with wire(answers) as server:
        env = place.environ(server.variables)
        assert place.run("-p", said, env=env).returncode == 0
        for words in later:
            for run in (["--continue", "-p", words], [*KEEP_LITTLE, "compact", "--apply"]):
                done = place.run(*run, env=env)
                assert done.returncode == 0, done.stderr
        assert place.run("--continue", "-p", "What is left?", env=env).returncode == 0
        sent = str(server.requests[-1]["messages"])
    assert server.rejected == []
    first, second, third = (e["document"] for e in place.entries() if e["kind"] == "summary")
    assert [rule["text"] for rule in first["rules"]] == list(rules[:2])  # the third is nobody's
    assert [rule["text"] for rule in second["rules"]] == list(rules[1:])
    superseded = [e["superseded"] for e in place.entries() if e.get("superseded")]
    assert [each["text"] for each in superseded[0]] == ["the port is 8080", "Hands off vendor/."]
    for words in (said, *later):
        assert sent.count(words) == 1, words
    assert third["rules"] == second["rules"]
    # A note with another value replaces the one before.
    assert [fact["text"] for fact in second["facts"]] == [
        "the host is h1",
        "the suite has 12 tests",
    ]
    assert [fact["text"] for fact in third["facts"]] == ["the host is h1", "the suite has 14 tests"]
    assert [(fact["ref"], fact["age"]) for fact in third["facts"]] == [(0, 2), (0, 0)]
    assert third["done"] == ["the lexer", "the parser"]
    assert second["blocked"] == ["the key that Anna sends"]
    assert third["blocked"] == []
    assert third["next_steps"] == ["Rest"]
    assert "Write the" not in str(third)
