"""`ctxagent replay` in a terminal and in a script: which sessions it accepts, what it prints and
leaves out, and how it ends.
"""

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ctxagent.agent.cli.main import main
from ctxagent.agent.cli.progress import duration_text
from ctxagent.agent.compaction.policy import policy_of
from ctxagent.agent.config.load import load_settings
from ctxagent.agent.config.trust import trust
from ctxagent.agent.permissions.rules import parse_rule

from ..support.command import PATIENCE, Place, comes, gone
from ..support.sessions.history import words
from ..support.sessions.recorded import claude_call, claude_line, claude_result, lines
from ..support.sessions.stories import STORY
from ..support.terminal.screen import Terminal

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "extensions.md"
MODEL = ("--model", "claude-sonnet-5")
SMALL = ("--context-window", "24000")
SECRET = "the-project-nobody-knows"


def working(calls: int, size: int, what: str = "part", again: int = 0) -> bytes:
    """Return a session of Claude Code that runs this many commands with different outputs, and then
    some of them again.
    """
    rows = [claude_line("user", 0, f"Make every {what} of {SECRET}.")]
    for at, n in enumerate([*range(1, calls + 1), *range(1, again + 1)], 1):
        call = claude_call(f"c{at}", "Bash", {"command": f"make {SECRET}/{what}-{n}"})
        text = f"{what} {n}\n{words(size)}"
        rows += [
            claude_line("assistant", at, [call], id=f"m{at}", stop_reason="tool_use"),
            claude_line("user", at + 0.5, [claude_result(f"c{at}", text)]),
        ]
    return lines(rows)


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = tmp_path / f"{SECRET}.jsonl"
    path.write_bytes(working(14, 1_500))
    return path


def run(folder: Path, *arguments: object, charset: str = "utf-8", **env: str) -> Result:
    """Run the command in this process, in a project below `folder`."""
    place = Place(folder / "place")
    runner = CliRunner(charset=charset, env={"TERM": "xterm", **place.environ(), **env})
    given = ("--cwd", place.project, "replay", *arguments)
    return runner.invoke(main, [str(argument) for argument in given])


def told(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert isinstance(document, dict)
    return document


def calls_told(table: str) -> list[str]:
    """Return the model calls in the only table, for each setting."""
    (row,) = re.findall(r"^ *Calls of the model(.*)$", table, re.MULTILINE)
    return row.split()


def test_without_files_the_newest_sessions_of_other_agents_are_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "place/home/.claude/projects/-somewhere-else"
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"s{number}.jsonl").write_bytes(working(14, 1_500, what=f"part{number}"))
    monkeypatch.setattr("ctxagent.addons.replay.command.PLAY_LIMIT_S", float("inf"))
    result = run(tmp_path)
    assert result.exit_code == 0, result.output
    assert re.match(r"Your last 3 sessions: \$\d+\.\d\d\. With ctxagent \$\d+\.", result.stdout)
    assert "neither is a bill" in result.stdout
    assert len(told(run(tmp_path, "--json"))["recordings"]) == 3
    monkeypatch.setattr("ctxagent.addons.replay.command.PLAY_LIMIT_S", 0)
    result = run(tmp_path)
    assert re.match(r"Your last session: \$", result.stdout)
    assert "2 more not played in 0 s" in result.stdout


# What is played


LAYER = next(iter(re.findall(r"```python\n(# listings\.py\n.*?)```", GUIDE.read_text(), re.DOTALL)))


def extension(folder: Path, text: str = LAYER) -> None:
    """Save an extension of the user."""
    path = folder / "place" / "home" / ".config" / "ctxagent" / "extensions"
    path.mkdir(parents=True)
    (path / "listings.py").write_text(text)


@pytest.fixture
def long_session(tmp_path: Path) -> Path:
    """A session in which old results cost more to keep than to replace."""
    path = tmp_path / "long.jsonl"
    path.write_bytes(working(80, 1_500))
    return path


def layers(run: dict[str, Any]) -> set[str]:
    return {act["layer"] for act in run["acts"]}


def test_a_layer_of_an_extension_is_replayed(tmp_path: Path, long_session: Path) -> None:
    own = told(run(tmp_path, long_session, *MODEL, "--preset", "default", "--json"))
    extension(tmp_path)
    out = tmp_path / "report.html"
    both = told(
        run(tmp_path, long_session, *MODEL, "--preset", "default", "--json", "--report", out)
    )
    assert both["totals"][0] == own["totals"][0], "the baseline has no layers"
    (before,), (after,) = ([r["runs"][1] for r in each["recordings"]] for each in (own, both))
    assert layers(before) == {"microcompact", "outline"}
    # What is needed less often is worth more. Outlines then save nothing.
    assert layers(after) == {"listings"}
    assert both["totals"][1]["dollars"] < own["totals"][1]["dollars"]
    assert "dropped" in out.read_text()
    assert '<g id="m-listings">' in out.read_text()


def test_a_layer_that_is_needed_more_often_loses(tmp_path: Path, long_session: Path) -> None:
    extension(tmp_path, LAYER.replace("0.001", "0.9"))
    document = told(run(tmp_path, long_session, *MODEL, "--preset", "default", "--json"))
    assert layers(document["recordings"][0]["runs"][1]) == {"microcompact", "outline"}


def test_a_layer_that_fails_ends_the_replay(tmp_path: Path, long_session: Path) -> None:
    extension(tmp_path, LAYER.replace("return 0.001", "raise ValueError('broken')"))
    failed = run(tmp_path, long_session, *MODEL, "--preset", "default")
    assert failed.exit_code == 1
    assert "the layer listings failed: ValueError: broken (listings.py, line " in failed.stderr


def test_a_table_without_a_progress_line(tmp_path: Path, session: Path) -> None:
    result = run(tmp_path, session, *MODEL, *SMALL, "--preset", "v5", "--preset", "default",
                 "--preset", "v5")  # fmt: skip
    assert result.exit_code == 0
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    head = next(line for line in lines if line.strip().startswith("summaries only"))
    assert head.split() == ["summaries", "only", "v5", "default"]
    assert sum(line.strip().startswith("Cost in dollars") for line in lines) == 1
    assert max(map(len, lines)) <= 80


def test_all_formats_at_once_and_gzip(tmp_path: Path) -> None:
    """One file is not a session, one is given twice, and two have the same name."""
    for format, story in STORY.items():
        (tmp_path / f"{format}.json").write_bytes(story())
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "same.jsonl.gz").write_bytes(gzip.compress(working(2, 9, place)))
    (tmp_path / "none.md").write_text("# Notes\n")
    (tmp_path / "again.jsonl").symlink_to("pi.json")
    files = [p for p in sorted(tmp_path.rglob("*")) if p.is_file() and p.suffix]
    assert len(files) == len(STORY) + 4
    document = told(run(tmp_path, *files, *MODEL, "--json"))
    names = [recording["name"] for recording in document["recordings"]]
    assert sorted(r["format"] for r in document["recordings"]) == sorted(
        [*STORY, *["claude-code"] * 2]
    )
    assert {"a/same.jsonl.gz", "b/same.jsonl.gz"} < set(names)
    assert len(set(names)) == len(names)
    assert set(document["skipped"]) == {str(tmp_path / "none.md"), str(tmp_path / "pi.json")}
    assert "not a recorded session" in document["skipped"][str(tmp_path / "none.md")]
    assert document["skipped"][str(tmp_path / "pi.json")].endswith(
        f"has the same session as {tmp_path / 'again.jsonl'}"
    )


def test_skipped_lines_are_reported(tmp_path: Path, session: Path) -> None:
    (tmp_path / "none.md").write_text("# Notes\n")
    result = run(tmp_path, session, tmp_path / "none.md", *MODEL)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"skipped: {tmp_path}/none.md is not a recorded session")
    assert result.stderr.count("\n") == 1


WRONG = {
    "alone": (("none.md",), "is not a recorded session in a known format", "plain or gzip"),
    "none": ((), "there is no session for", "Name files: ctxagent replay FILE"),
    "id": (("0123",), "there is no session '0123'", "ctxagent sessions list"),
    "missing": (("gone.jsonl",), "cannot be read: No such file", "Give a session file"),
    "nothing left": (("none.md", "gone.jsonl"), "no usable recorded session", "Give files"),
    "model": (("x.jsonl", "--model", "foo-1"), "model foo-1", "models.toml"),
    "window": (("x.jsonl", "--model", "ollama/x"), "the context window of ollama/x",
               "--context-window"),
    "against": (("x.jsonl", "--against", "keep"), "--against 'keep'", "compact.at=0.8"),
    "key": (("x.jsonl", "--against", "compact.att=1"), "compact.att", "compact.at"),
    "value": (("x.jsonl", "--against", "compact.at=-1"), "compact.at", "share of the window"),
    "other": (("x.jsonl", "--against", "model.id=y"), "model.id must be the same in", "--model"),
    "-c": (("x.jsonl", "-c", "compact.at=-1"), "compact.at", "share of the window"),
    "span": (("x.jsonl", "--sweep", "compact.at=0.9..0.8"), "0.9 is not less", "Examples: --sweep"),
    "sweep": (("x.jsonl", "--sweep", "compact.att=0.8..0.9"), "compact.att", "compact.at"),
    "swept": (("x.jsonl", "--sweep", "compact.at=0.8..9"), "compact.at", "share of the window"),
    "twice": (("x.jsonl", *["--sweep", "compact.at=0.8,0.9"] * 2), "a setting twice", "in one"),
    "idle": (("x.jsonl", "--sweep", "move.above=5000,5_000"), "same replay", "config --explain"),
    "both": (("x.jsonl", "--sweep", "compact.at=0.8,0.9", "--preset", "v5"), "--preset", ""),
    "words": (("x.jsonl", "--sweep", "compact.preset=default..lean"), "not a range of numbers",
              "--sweep compact.preset=default,lean"),
    "bound": (("x.jsonl", "--bound", "2"), "--bound needs --sweep", "--sweep KEY=A..B"),
    "report": (("x.jsonl", "--report", "no/x.html"), "there is no directory", "Create it"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_reported_before_the_replay(tmp_path: Path, name: str) -> None:
    """The session cannot be read. That would be reported otherwise."""
    (tmp_path / "none.md").write_text("# Notes\n")
    arguments, error, hint = WRONG[name]
    files = [tmp_path / a if a.endswith((".md", ".jsonl")) else a for a in arguments]
    result = run(tmp_path, *([] if "--model" in arguments else MODEL), *files)
    assert result.exit_code in (1, 2), result.output
    assert result.stdout == ""
    assert "cannot be read" not in result.stderr or name in ("missing", "nothing left")
    assert error in result.stderr
    assert hint in result.stderr


# What it leaves


def test_one_document_and_one_page(tmp_path: Path, session: Path) -> None:
    page = tmp_path / "x.html"
    result = run(tmp_path, session, *MODEL, "--json", "--report", page,
                 "--against", "clear.when=off,move.above=off")  # fmt: skip
    document = told(result)
    assert document["labels"] == [
        "summaries only", "default", "clear.when=off,move.above=off",
    ]  # fmt: skip
    assert result.stderr == f"The report is in {page}\n"
    assert page.read_text().startswith("<!doctype html>")


def test_a_report_that_cannot_be_written_costs_no_figures(tmp_path: Path, session: Path) -> None:
    result = run(tmp_path, session, *MODEL, "--report", "/dev/full")
    assert result.exit_code == 1
    assert calls_told(result.stdout) == ["14", "14"]
    assert "cannot write the report /dev/full: No space left on device" in result.stderr


def test_unnamed_report_has_no_text_of_the_sessions(tmp_path: Path) -> None:
    """In small windows, results are needed when gone and one session cannot continue."""
    full = STORY["codex"]().replace(b"Be exact.", f"{SECRET} {words(20_000)}".encode())
    for name, content in (("one", working(12, 1_500, again=3)), ("two", full)):
        (tmp_path / f"{SECRET}-{name}.jsonl").write_bytes(content)
    (tmp_path / f"{SECRET}.md").write_text("# Notes\n")
    page, files = tmp_path / "x.html", sorted(tmp_path.glob(f"{SECRET}*"))
    options = ("--unnamed", "--report", page, *MODEL, "--context-window", "16000")
    options += ("--preset", "v5", "-c", "move.above=off")
    for more in ((), ("--json",)):
        result = run(tmp_path, *files, *options, *more)
        assert result.exit_code == 0, result.output
        for text in (result.stdout, result.stderr.replace(str(page), ""), page.read_text()):
            for word in (SECRET, str(tmp_path), "make ", ".md", ".jsonl"):
                assert word not in text
        assert result.stderr.startswith("skipped: 1 file; omit --unnamed to see their names")
    runs = [played for recording in told(result)["recordings"] for played in recording["runs"]]
    assert {played["stopped"] for played in runs} == {"", "it could not continue"}
    needs = [need for played in runs for need in played["needs"]]
    assert needs
    assert all(need["what"].startswith("result #") for need in needs)


# The sweep


def test_sweep_prints_settings_that_were_tested(tmp_path: Path, session: Path) -> None:
    from ctxagent.agent.compaction.policy import DEFAULT

    keep = DEFAULT.clear_keep
    spans = ("--sweep", f"clear.keep=1,{keep},{keep + 3}", "--sweep", "compact.at=0.6..0.7")
    options = (session, *MODEL, *SMALL, "--bound", "50", *spans)
    document = told(run(tmp_path, *options, "--json"))
    settings = [row["settings"] for row in document["tried"]]
    assert {"clear.keep": str(keep)} not in settings  # which is as now
    best = document["tried"][document["best"]]
    assert best["dollars"] < document["now"]["dollars"]
    assert best["settings"].get("clear.keep") == "1"
    place = Place(tmp_path / "place")
    (place.project / ".agentrc").write_text(document["agentrc"])
    flags = tuple(f"{key}={value}" for key, value in best["settings"].items())
    loaded = load_settings(place.project, environ=place.environ(), check_rule=parse_rule)
    trust(place.project / ".agentrc", loaded.trust_dir)
    by_file, by_flags = (
        load_settings(cwd, environ=place.environ(), flags=given, check_rule=parse_rule).settings
        for cwd, given in ((place.project, ()), (tmp_path, flags))
    )
    assert policy_of(by_file) == policy_of(by_flags) != DEFAULT
    (place.project / ".agentrc").unlink()
    text = run(tmp_path, *options).stdout
    assert text.count("\n* $") + text.startswith("* $") == 1
    assert "as now" in text
    heading = "For .agentrc, then `ctxagent config --trust`:"
    assert text.endswith(f"{heading}\n\n{document['agentrc']}\n")


def test_a_sweep_with_no_value_within_the_bound_prints_the_lowest_share(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(working(12, 1_500, again=3))
    options = (path, *MODEL, "--context-window", "16000", "-c", "compact.preset=v5")
    options += ("--sweep", "clear.keep=1,2", "--bound", "0")
    result = run(tmp_path, *options)
    assert result.exit_code == 0, result.output
    ending = result.stdout.partition("\nNone of the settings tried over")[2]
    assert "misses at most 0.00% of the results; the lowest share is" in " ".join(ending.split())
    assert ending.endswith("To allow more, raise --bound.\n")
    assert max(map(len, ending.splitlines())) <= 80
    assert told(run(tmp_path, *options, "--json"))["best"] is None


# Our own sessions


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A project with one session of two calls."""
    place = Place(tmp_path_factory.mktemp("own") / "place")
    (place.project / "a.txt").write_text("one\n")
    call = {"name": "Read", "input": {"path": "a.txt"}}
    script = place.root / "steps.json"
    script.write_text(json.dumps({"steps": [{"tools": [call]}, {"text": "Read."}]}))
    done = place.run(
        "-p", "read it", "--model", f"scripted:{script}", "--permission-mode", "bypass"
    )
    assert done.returncode == 0, done.stderr
    return place


def test_sessions_of_this_directory_by_id_and_by_folder(own: Place) -> None:
    (log,) = own.logs()
    id = log.parent.name
    for named in ((), (id,), (log.parent,), (log,), (id, log)):
        result = run(own.root.parent, *named, *MODEL)
        assert result.exit_code == 0, result.output
        assert calls_told(result.stdout) == ["2", "2"]
        played = told(run(own.root.parent, *named, *MODEL, "--json"))["recordings"]
        assert [recording["name"] for recording in played] == [id]
        assert result.stdout.endswith("Our own sessions: 2 of 2 requests rebuilt byte for byte\n")


def test_recall_in_our_own_session_counts_as_needed(tmp_path: Path) -> None:
    """A result counts if it had left the context of the replay, not if it was still there."""
    place = Place(tmp_path / "place")
    allowed = ("--permission-mode", "bypass", "--model", "scripted:steps.json")
    log = {"name": "Bash", "input": {"command": "seq 1500"}}
    more = [
        {"tools": [{"name": "Bash", "input": {"command": f"seq {n}000 {n}900"}}]}
        for n in range(2, 9)
    ]
    again = [{"name": "Recall", "input": {"ref": "#5", "limit": 50}},
             {"name": "Recall", "input": {"query": "1500"}}]  # fmt: skip
    (place.project / "steps.json").write_text(
        json.dumps({"steps": [{"tools": [log]}, *more, {"tools": again}, {"text": "Done."}]})
    )
    done = place.run("-p", "count", *allowed)
    assert done.returncode == 0, done.stderr
    (path,) = place.logs()
    (first, *_) = [e for e in place.entries() if e["kind"] == "tool_result"]
    assert first["seq"] == 5
    totals = told(run(tmp_path, *MODEL, "--preset", "v5", path, "--json"))["totals"]
    assert [each["asked_again"] for each in totals] == [0, 1]  # alone, nothing leaves the context


def test_request_that_differs_from_the_log_is_named(own: Place, tmp_path: Path) -> None:
    (log,) = own.logs()
    folder = shutil.copytree(log.parent, tmp_path / SECRET)
    torn = folder / "log.jsonl"
    torn.write_text(torn.read_text().replace("read it", "read me") + "{torn}\n")
    result = run(tmp_path, folder, *MODEL)
    assert result.exit_code == 0, result.output
    assert "Our own sessions: 0 of 2 requests rebuilt byte for byte\n! " in result.stdout
    assert f"! {torn}: the request for #" in result.stdout
    assert f"note: {torn}" in result.stderr
    requests = told(run(tmp_path, folder, *MODEL, "--json"))["requests"]
    assert (requests["equal"], requests["different"]) == (0, 2)
    assert requests["first"].startswith(f"{torn}: the request")
    assert len(requests["warnings"]) == 1
    hidden = run(tmp_path, folder, *MODEL, "--unnamed")
    assert "! the request for #" in hidden.stdout
    assert SECRET not in hidden.output


# How it ends


def several(folder: Path) -> list[str]:
    """Sessions that take long to replay."""
    paths = [folder / f"{n}.jsonl" for n in range(3)]
    for path in paths:
        path.write_bytes(working(600, 400, path.stem))
    return [str(path) for path in paths]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_it_at_once_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    place, scratch = Place(tmp_path / "place"), tmp_path / "scratch"
    scratch.mkdir()
    process = place.start(
        "replay", *several(tmp_path), *MODEL, env=place.environ({"TMPDIR": str(scratch)}),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert comes(lambda: any(scratch.glob("*/*/session/log.jsonl")), PATIENCE)
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    process.send_signal(number)  # to it alone: those it has begun hear nothing
    out, err = process.communicate()
    assert process.returncode == code
    assert (out, err) == ("", "ctxagent: interrupted\n" if code == 130 else "")
    assert gone(*map(int, listed.split()))
    assert list(scratch.iterdir()) == []


def test_a_closed_output_pipe_ends_the_command_without_a_message(
    tmp_path: Path, session: Path
) -> None:
    place = Place(tmp_path / "place")
    reading, writing = os.pipe()
    os.close(reading)
    done = place.run("replay", str(session), *MODEL, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_progress_line_is_removed_at_the_end(tmp_path: Path, session: Path) -> None:
    place = Place(tmp_path / "place")
    arguments = ("replay", str(session), *MODEL)
    terminal = Terminal(*arguments, cwd=place.project, env=place.environ())
    assert terminal.leave() == 0
    assert f"reading 1 of 1: {session.name}".encode() in terminal.raw
    assert b"replaying 1 of 2" in terminal.raw
    assert "replaying" not in terminal.text()
    assert calls_told(terminal.text()) == ["14", "14"]


def test_an_estimated_time_is_shown_as_text() -> None:
    assert [duration_text(seconds) for seconds in (6.4, 89, 91, 3_600)] == [
        "6 s",
        "89 s",
        "2 min",
        "60 min",
    ]
