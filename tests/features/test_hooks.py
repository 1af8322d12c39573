"""Hooks: their input, their answers, and that no process outlives its run."""

import asyncio
import json
import os
import secrets
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.features.hooks import run_hooks

from ..support.command import comes, gone, running
from ..support.starts import start_gate

ENV = {"PATH": os.environ["PATH"]}
BEFORE = {"event": "before_compact", "trigger": "auto", "tokens": 186_400, "covers": [3, 412]}
AFTER = {**BEFORE, "event": "after_compact"}


def run(
    cwd: Path, *commands: str, event: dict[str, Any] = BEFORE, seconds: float = 100
) -> tuple[str | None, list[str]]:
    """Return the reason of a veto, and the warnings."""
    warnings: list[str] = []
    reason = asyncio.run(
        run_hooks(
            commands,
            event,
            cwd=cwd,
            env=ENV,
            starts=start_gate(cwd),
            warn=warnings.append,
            seconds=seconds,
        )
    )
    return reason, warnings


def test_without_commands_nothing_happens(tmp_path: Path) -> None:
    assert run(tmp_path) == (None, [])


def test_each_gets_the_event_on_stdin_in_the_working_directory_in_order(tmp_path: Path) -> None:
    assert run(tmp_path, "cat >> a", "cat >> a; echo end >> a", "read -r one && echo $one > b") == (
        None,
        [],
    )
    first, second, end = (tmp_path / "a").read_text().splitlines()
    assert json.loads(first) == json.loads(second) == BEFORE
    assert end == "end"
    assert json.loads((tmp_path / "b").read_text()) == BEFORE


@pytest.mark.slow
def test_an_event_that_nobody_reads_or_larger_than_a_pipe_does_no_harm(tmp_path: Path) -> None:
    event = {**BEFORE, "covers": list(range(100_000))}
    assert run(tmp_path, "true", "exec <&-; true", "wc -c > size", event=event) == (None, [])
    assert int((tmp_path / "size").read_text()) == len(json.dumps(event)) + 1


def test_text_that_is_no_unicode_reaches_the_command(tmp_path: Path) -> None:
    assert run(tmp_path, "cat > a", event={**BEFORE, "trigger": "\ud800\n"}) == (None, [])
    assert json.loads((tmp_path / "a").read_text())["trigger"] == "\ud800\n"


def test_exit_code_2_before_an_event_vetoes_it_with_a_reason(tmp_path: Path) -> None:
    veto = "echo 'not now:'; echo 'tests are running' >&2; exit 2"
    assert run(tmp_path, "exit 1", veto, "touch late") == (
        "not now:\ntests are running",
        ["hook `exit 1` failed (exit 1): no output"],
    )
    assert not (tmp_path / "late").exists()


def test_a_veto_without_words_names_the_hook(tmp_path: Path) -> None:
    assert run(tmp_path, "exit 2") == ("hook `exit 2` vetoed it and gave no reason", [])


def test_after_an_event_exit_code_2_is_a_failure_like_others(tmp_path: Path) -> None:
    reason, warnings = run(tmp_path, "echo no; exit 2", "touch late", event=AFTER)
    assert (reason, warnings) == (None, ["hook `echo no; exit 2` failed (exit 2): no"])
    assert (tmp_path / "late").exists()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("no-such-program", "failed (exit 127): "),
        ("kill -9 $$", "failed (killed by SIGKILL): no output"),
        ("echo " + "x" * 100 + "; exit 3", "x…` failed (exit 3): xxx"),
        ("a\0b", "did not start: "),
    ],
)
def test_other_failures_are_warnings_and_stop_nothing(
    tmp_path: Path, command: str, told: str
) -> None:
    reason, (warning,) = run(tmp_path, command, "touch late")
    assert reason is None
    assert told in warning
    assert (tmp_path / "late").exists()


def test_a_veto_reason_is_limited_to_the_first_lines(tmp_path: Path) -> None:
    reason, _ = run(tmp_path, "seq 1000000; exit 2")
    assert reason == "1\n2\n3\n4\n5"
    reason, _ = run(tmp_path, "head -c 1000000 /dev/zero | tr '\\0' x; exit 2")
    assert reason == "x" * 4_096


@pytest.mark.slow
def test_a_hook_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    mark = f"1.{secrets.randbelow(10**9)}"
    reason, (warning,) = run(tmp_path, f"trap '' TERM; while :; do sleep {mark}; done", seconds=0.5)
    assert reason is None
    assert warning.endswith("it took longer than 0.5 s")
    assert comes(lambda: not running(mark))


def test_leftover_processes_of_a_hook_are_killed_without_delay(tmp_path: Path) -> None:
    assert run(tmp_path, "sleep 300 & echo $! > a; setsid sleep 300 & echo $! > b") == (None, [])
    assert gone(*(int((tmp_path / name).read_text()) for name in "ab"))


def test_cancelled_it_leaves_nothing_running(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ready")

    async def cancel() -> int:
        commands = ["echo $$ > ready; sleep 300", "touch late"]
        hooks = asyncio.create_task(
            run_hooks(
                commands,
                BEFORE,
                cwd=tmp_path,
                env=ENV,
                starts=start_gate(tmp_path),
                warn=pytest.fail,
            )
        )
        pid = int(await asyncio.to_thread((tmp_path / "ready").read_text))
        hooks.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hooks
        return pid

    pid = asyncio.run(cancel())
    assert gone(pid)
    assert not (tmp_path / "late").exists()
