"""`ctxagent log` in a terminal and in a script."""

import json
from pathlib import Path

import pytest

from ctxagent.agent.session.entries import Checkpoint, Note
from ctxagent.agent.session.log import Log

from ..support.command import Place
from ..support.server.loopback import Say, Server

SMALL = ("-c", "compact.keep_tokens=0", "-c", "compact.keep_messages=1",
         "-c", "move.above=2_000", "-c", "move.reads_above=2_000",
         "-c", "compact.summarizer=mechanical")  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A project with a session that was compacted, and an older one that was not."""
    place = Place(tmp_path_factory.mktemp("log"))
    (place.project / "big.txt").write_text(("word " * 20 + "\n") * 200)
    steps = [Say("Hello."), Say(tools=[("Read", {"path": "big.txt"})]), Say("Words."),
             Say("About 3,000." * 100), Say("Yes.")]  # fmt: skip
    with Server(steps) as server:
        env = place.server(server.url)
        for arguments in (
            ["-p", "hello"],
            [*SMALL, "-p", "what is in big.txt?"],
            ["--continue", *SMALL, "-p", "how many?"],
            ["--continue", *SMALL, "-p", "sure?"],
        ):
            done = place.run(*arguments, env=env)
            assert done.returncode == 0, done.stderr
    done = place.run(*SMALL, "compact", "--apply")
    assert done.returncode == 0, done.stderr
    log = Log.open(newest(place))
    trigger = "HOOK-CTX-005: 87% of the window"
    log.append(Checkpoint(number=1, path="checkpoints/1.json", trigger=trigger))
    log.append(Note(topic="drift", text="asks what the task is"))
    log.close()
    return place


def newest(place: Place) -> Path:
    return max(place.logs(), key=lambda log: log.stat().st_mtime_ns)


def oldest(place: Place) -> Path:
    return min(place.logs(), key=lambda log: log.stat().st_mtime_ns)


def said(place: Place, *arguments: str) -> str:
    done = place.run("log", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_log_of_the_newest_session(place: Place) -> None:
    before = {log: log.read_bytes() for log in place.logs()}
    moved, summary, checkpoint, drift = said(place).rstrip("\n").split("\n\n")
    assert "**Event Type:** moved to files" in moved
    assert "**Trigger:** move: oversize result" in moved
    assert "**Files Created:** offloaded/" in moved
    assert moved.endswith("**Intent Preserved:** yes")
    assert "**Event Type:** summary" in summary
    assert "**Trigger:** summary: manual" in summary
    assert summary.endswith("**Intent Preserved:** not certain: check it")  # drift followed
    assert "checkpoint 1 (87% of the window)" in checkpoint
    assert drift.endswith("asks what the task is")
    assert {log: log.read_bytes() for log in place.logs()} == before


@pytest.mark.parametrize("options", [("log", "--levels"), ("--preset", "ledger", "log")])
def test_names_of_the_protocol_on_request_and_with_its_presets(
    place: Place, options: tuple[str, ...]
) -> None:
    done = place.run(*options)
    moved, summary, checkpoint, _ = done.stdout.rstrip("\n").split("\n\n")
    assert "**Event Type:** TIER_1" in moved
    assert "**Trigger:** move: HOOK-CTX-001: oversize result" in moved
    assert moved.endswith("**Intent Preserved:** YES")
    assert "**Event Type:** TIER_3" in summary
    assert summary.endswith("**Intent Preserved:** VERIFICATION_NEEDED")
    assert "checkpoint 1 (HOOK-CTX-005: 87% of the window)" in checkpoint


def test_entries_do_not_name_gates(place: Place) -> None:
    assert "trigger 87% of the window" in said(place, "--entries")
    assert "HOOK" not in said(place, "--entries")


def test_json_has_one_object_per_act(place: Place) -> None:
    rows = [json.loads(line) for line in said(place, "--json").splitlines()]
    assert [row["event_type"] for row in rows] == ["TIER_1", "TIER_3", "CHECKPOINT", "DRIFT"]
    moved, summary, *_ = rows
    assert moved["tokens_saved"] == moved["tokens_before"] - moved["tokens_after"] > 0
    assert summary["intent_preserved"] == "VERIFICATION_NEEDED"
    assert [row["ref"] for row in rows] == sorted(row["ref"] for row in rows)


def test_every_entry_in_a_line(place: Place) -> None:
    log = newest(place)
    lines, count = said(place, "--entries").splitlines(), len(log.read_text().splitlines())
    assert len(lines) == count
    assert lines[1].split()[0] == "#2"
    assert lines[1].endswith("user  what is in big.txt?")
    objects = said(place, "--entries", "--json").splitlines()
    assert [json.loads(line) for line in objects] == [
        json.loads(line) for line in log.read_text().splitlines()
    ]


def test_the_metrics_of_one_session_and_of_all(place: Place) -> None:
    text = said(place, "--stats")
    assert text.startswith("## Compression Metrics · 1 session\n")
    assert "| < 50 % of before |" in text
    assert "| saved: moved to files |" in text
    one = json.loads(said(place, "--stats", "--json"))
    assert (one["sessions"], len(one["summaries"])) == (1, 1)
    assert one["cost_usd"] == 0.0  # made from the records alone
    every = json.loads(said(place, "--stats", "--project", "--json"))
    assert every["sessions"] == 2
    assert every["saved"] == one["saved"]


def test_a_session_by_the_beginning_of_its_id(place: Place) -> None:
    name = oldest(place).parent.name
    assert said(place, name[:-2]) == "nothing has been compacted in this session\n"
    assert said(place, name, "--json") == ""


def test_invalid_log_line_is_reported_and_the_rest_is_read(place: Place) -> None:
    folder = oldest(place).parent.parent / "20000101-000000-abcdef"
    folder.mkdir()
    lines = newest(place).read_bytes().split(b"\n")
    (folder / "log.jsonl").write_bytes(b"\n".join([lines[0], b"{not json", *lines[1:]]))
    done = place.run("log", folder.name, "--json")
    assert done.returncode == 0
    assert "log.jsonl:2: skipped" in done.stderr
    assert len(done.stdout.splitlines()) == 4
    (folder / "log.jsonl").unlink()


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["nosuch"], 2, "no session 'nosuch'"),
        (["--entries", "--stats"], 2, "exclude each other"),
        (["--project"], 2, "--stats"),
        (["--stats", "--project", "x"], 2, "does not take a session"),
    ],
)
def test_log_command_errors(place: Place, arguments: list[str], code: int, told: str) -> None:
    done = place.run("log", *arguments)
    assert done.returncode == code
    assert told in done.stderr
    assert done.stdout == ""


def test_a_project_without_sessions(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert place.run("log").returncode == 2
    done = place.run("log", "--stats", "--project")
    assert done.returncode == 0, done.stderr
    assert "0 sessions" in done.stdout
