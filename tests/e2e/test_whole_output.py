"""The whole output of a command is kept, and the memory of the real command stays bounded."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.session.archive import find_partial

from ..support.command import COMMAND, PATIENCE, Place, comes

MB = 1_000_000
LINE = "line {:09} of the output\n"
SIZE = len(LINE.format(0))
COUNT = 30 * MB // SIZE  # 30 MB
PRINT = f"seq -f 'line %09.0f of the output' 0 {COUNT - 1}"
MAX_RSS_KIB = 150 << 10  # with 100 MB as with 30: see benchmarks/whole_output.py


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def script(place: Place, *tools: tuple[str, dict[str, Any]]) -> list[str]:
    """The options of a run in which the model makes these calls, one in each reply."""
    steps = [{"text": "", "tools": [{"name": name, "input": given}]} for name, given in tools]
    path = place.root / "steps.json"
    path.write_text(json.dumps({"steps": [*steps, {"text": "Done."}]}))
    return ["-p", "go", "--model", f"scripted:{path}", "--permission-mode", "bypass"]


# A process counts the memory of the one that forked it as its own, so a small one is between.
MEASURING = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def measured(place: Place, *arguments: str) -> int:
    """Run the command and return its peak memory in KiB, or that of its largest child."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", MEASURING, COMMAND, *arguments], cwd=place.project,
        env=place.environ(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    code, peak = map(int, done.stdout.split())
    assert code == 0, done.stderr
    return peak


def results(place: Place) -> list[dict[str, Any]]:
    return [entry for entry in place.entries() if entry["kind"] == "tool_result"]


@pytest.mark.full
@pytest.mark.slow
def test_every_line_of_a_long_output_is_found_again_and_memory_is_bounded(place: Place) -> None:
    peaks = [measured(place, *script(place, ("Bash", {"command": PRINT})))]
    (log,) = place.logs()
    (result,) = results(place)
    (file,) = (log.parent / "offloaded").iterdir()
    assert result["offloaded"] == f"offloaded/{file.name}"
    assert f"of {COUNT:,} lines, {COUNT * SIZE:,} characters" in result["content"]
    assert "printed_bytes" not in result["details"]
    with file.open() as lines:
        assert all(line.rstrip("\n") == LINE.format(n).rstrip() for n, line in enumerate(lines))
    assert file.stat().st_size == COUNT * SIZE - 1
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)

    wanted = (3, COUNT // 2, COUNT - 1)
    recalls = [("Recall", {"query": f"{n:09}"}) for n in wanted]
    recalls += [("Recall", {"ref": f"#{result['seq']}", "offset": n * SIZE}) for n in wanted]
    peaks.append(measured(place, *script(place, *recalls), "--continue"))
    for recalled, n in zip(results(place)[1:], wanted * 2, strict=True):
        assert LINE.format(n) in recalled["content"] + "\n"
    session = log.parent.name
    for more in (
        ("sessions", "search", f"{wanted[1]:09}"),
        ("sessions", "export", session, "--format", "md"),
        ("sessions", "export", session, "--format", "html"),
        ("sessions", "export", session, "--format", "json"),
        ("doctor", session),
    ):
        peaks.append(measured(place, *more))
    assert max(peaks) < MAX_RSS_KIB
    assert (log.parent / "conversation.md").stat().st_size < MB


def test_cut_output_shows_both_sizes_everywhere(place: Place) -> None:
    options = script(place, ("Bash", {"command": "seq 1 500000; exit 3"}))
    limit = ("-c", "tools.max_output_bytes=1000000", "--output-format", "stream-json")
    done = place.run(*options, *limit)
    printed = sum(len(str(n)) + 1 for n in range(1, 500_001))
    sizes = f"{printed:,} bytes, 1,000,000 of them are kept: tools.max_output_bytes is 1,000,000"
    (result,) = results(place)
    details = {"printed_bytes": printed, "kept_bytes": 1_000_000, "truncated": printed - 1_000_000}
    assert details.items() <= result["details"].items()
    assert f"**Kept in Part:** it printed {sizes}" in result["content"]
    text = (place.logs()[0].parent / result["offloaded"]).read_text()
    assert f"the command printed {sizes}]\n" in text
    assert text.startswith("1\n2\n")
    assert text.endswith("\n500000\n[exit 3]")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (finished,) = [event for event in events if event["type"] == "tool_finished"]
    assert details.items() <= finished["details"].items()
    assert any(sizes in e["text"] for e in events if e["type"] == "notice")
    assert sizes in done.stderr


def test_a_short_output_leaves_no_file(place: Place) -> None:
    place.run(*script(place, ("Bash", {"command": "seq 1 1000"})))
    (result,) = results(place)
    assert "offloaded" not in result or result["offloaded"] is None
    assert not (place.logs()[0].parent / "offloaded").exists()


def test_an_output_that_may_stay_in_the_context_leaves_no_file(place: Place) -> None:
    options = script(place, ("Bash", {"command": "seq 1 30000"}))
    place.run(*options, "-c", "move.above=off")
    (result,) = results(place)
    assert result["content"].endswith("\n30000")
    assert list((place.logs()[0].parent / "offloaded").iterdir()) == []


def test_a_command_that_becomes_a_job_takes_its_file_along(place: Place) -> None:
    command = "seq 1 500000; (sleep 1; echo late) &"
    options = script(
        place, ("Bash", {"command": command}), ("Job", {"action": "wait", "timeout": 60})
    )
    place.run(*options, "-c", "sandbox.mode=off")
    (log,) = place.logs()
    first, second = results(place)
    assert second["content"].startswith("late\n[job-1: exit 0]")
    lines = (log.parent / "jobs" / "job-1.log").read_text().splitlines()
    assert lines == [*map(str, range(1, 500_001)), "late"]
    assert "jobs/job-1.log]" in (log.parent / first["offloaded"]).read_text()
    assert not list((log.parent / "offloaded").glob("*.partial.md"))


def test_partial_output_of_a_killed_agent_is_named_and_readable(place: Place) -> None:
    options = script(place, ("Bash", {"command": "seq 1 50000; sleep 1000"}))
    process = place.start(*options, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with process:
        assert comes(lambda: bool(place.logs()))
        folder = place.logs()[0].parent
        assert comes(
            lambda: any(
                file.read_bytes().endswith(b"\n50000\n")
                for file in (folder / "offloaded").glob("*.partial.md")
            )
        )
        process.send_signal(signal.SIGKILL)
    call = next(
        block["id"]
        for entry in place.entries()
        if entry["kind"] == "assistant"
        for block in entry["content"]
        if block["type"] == "tool_use"
    )
    partial = find_partial(folder, call)
    assert partial is not None
    done = place.run(
        *script(place, ("Recall", {"ref": f"offloaded/{partial.name}", "limit": 99})), "--continue"
    )
    assert str(partial) in done.stderr
    told = [e["content"] for e in place.entries() if e["kind"] == "user"]
    assert any(str(partial) in str(content) for content in told)
    assert str(results(place)[-1]["content"]).startswith("1\n2\n3\n")
