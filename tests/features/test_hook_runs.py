"""Runs of hooks: commands with their two outputs, and requests over HTTP."""

import asyncio
import os
import secrets
from pathlib import Path

import pytest

from ctxagent.agent.extensions.hook_files import PublishedHook
from ctxagent.agent.features.hook_runs import MAX_OUTPUT_BYTES, AnswerSink, HookOutput, run_hook

from ..support.command import comes, running
from ..support.starts import start_gate

ENV = {"PATH": os.environ["PATH"]}


def ran(cwd: Path, command: str, seconds: float = 100) -> HookOutput:
    hook = PublishedHook("kit", "Stop", command, seconds=seconds)

    async def run() -> HookOutput:
        return await run_hook(
            hook, b'{"a": 1}\n', AnswerSink(), cwd=cwd, env=ENV, starts=start_gate(cwd)
        )

    return asyncio.run(run())


def test_the_outputs_are_apart(tmp_path: Path) -> None:
    assert ran(tmp_path, "cat; echo why >&2; exit 2") == HookOutput(2, '{"a": 1}\n', "why\n")
    assert ran(tmp_path, "echo out; echo err >&2") == HookOutput(0, "out\n", "err\n")
    assert ran(tmp_path, "exec 2>&-; echo out") == HookOutput(0, "out\n", "")


def test_failures_are_reported(tmp_path: Path) -> None:
    assert ran(tmp_path, "echo out; echo err >&2; exit 3").problem == "failed (exit 3): err"
    assert ran(tmp_path, "a\0b").problem.startswith("did not start: ")


@pytest.mark.slow
def test_outputs_are_bounded(tmp_path: Path) -> None:
    found = ran(tmp_path, "seq 1000000; seq 1000000 >&2")
    assert len(found.stdout) == len(found.stderr) == MAX_OUTPUT_BYTES


@pytest.mark.slow
def test_a_command_above_its_timeout_is_killed(tmp_path: Path) -> None:
    mark = f"1.{secrets.randbelow(10**9)}"
    found = ran(tmp_path, f"echo begun >&2; while :; do sleep {mark}; done", seconds=0.5)
    assert found == HookOutput(None, "", "begun\n", "was killed: it took longer than 0.5 s")
    assert comes(lambda: not running(mark))


@pytest.mark.parametrize(
    ("pieces", "goes_on", "text"),
    [
        ((b'{"async": ', b"true}\nlat", b"er\n"), True, "later\n"),
        ((b'{"async": true}',), False, '{"async": true}'),
        ((b'{"async": false}\n',), False, '{"async": false}\n'),
        ((b"words\n", b'{"async": true}\n'), False, 'words\n{"async": true}\n'),
        ((), False, ""),
        ((b"[" * 4_000, b"\n"), False, "[" * 4_000 + "\n"),
        ((b" " * 4_096, b'{"async": true}\n'), False, " " * 4_096 + '{"async": true}\n'),
    ],
)
def test_the_first_line_may_send_a_hook_to_the_background(
    pieces: tuple[bytes, ...], goes_on: bool, text: str
) -> None:
    sink = AnswerSink()
    for piece in pieces:
        sink.feed(piece)
    sink.close()
    assert (sink.goes_to_background.is_set(), sink.text()) == (goes_on, text)


def test_a_first_line_without_end_is_not_kept() -> None:
    sink = AnswerSink()
    for _ in range(64):
        sink.feed(b"x" * 65_536)
    assert len(sink.text()) == MAX_OUTPUT_BYTES
    sink.close()
    assert len(sink.text()) == MAX_OUTPUT_BYTES


def test_an_address_that_is_none(tmp_path: Path) -> None:
    hook = PublishedHook("kit", "Stop", "htp:/x", "http")
    found = asyncio.run(
        run_hook(hook, b"{}", AnswerSink(), cwd=tmp_path, env=ENV, starts=start_gate(tmp_path))
    )
    assert found.problem.startswith("did not answer: ")
