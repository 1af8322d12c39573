"""The Bash tool, on real shells."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ctxagent.agent.errors import ToolError
from ctxagent.tools.base import Context, Interrupted, Output
from ctxagent.tools.bash import BashParams, BashTool
from ctxagent.tools.job import JobParams, JobTool, end_all, tail_of
from ctxagent.tools.system.programs import program

from ..support.command import alive, gone

ENV = {"PATH": os.environ["PATH"]}


def context_in(path: Path, **fields: Any) -> Context:
    return Context(path, session_dir=path / ".session", **{"env": ENV, **fields})


def bash(path: Path, command: str, **params: Any) -> Output:
    async def scene() -> Output:
        context = context_in(path)
        try:
            return await BashTool().run(BashParams(command=command, **params), context)
        finally:
            await end_all(context.jobs)

    return asyncio.run(scene())


ENDINGS = {
    "output": ("echo hi", "hi", 0),
    "both streams in order": ("echo 1; echo 2 >&2; echo 3", "1\n2\n3", 0),
    "exit code": ("echo no; exit 3", "no\n[exit 3]", 3),
    "nothing": ("true", "[no output; exit 0]", 0),
    "blank": ("echo; echo ' '", "[no output; exit 0]", 0),
    "nothing but an exit code": ("false", "[exit 1]", 1),
    "a signal": ("kill -KILL $$", "[killed by SIGKILL]", -9),
    "a signal below the shell": ("(exit 143)", "[exit 143 (128 + SIGTERM)]", 143),
    "colours": (r"printf '\033[31mred\033[0m\n'", "red", 0),
    "progress": (r"printf '1%%\r2%%\r3%%\n'", "3%", 0),
    "not UTF-8": (r"printf 'a\377b'", "a\ufffdb", 0),
    "indented first line": (r"printf '\n  a\n\n'", "  a", 0),
    "a dash in front": ("-c; echo $?", "/bin/bash: line 1: -c: command not found\n127", 0),
    "stdin is empty": ("cat; read x; echo $?", "1", 0),
    "no terminal": ("tty; test -t 1; echo $?", "not a tty\n1", 0),
    "many lines": ("echo a &&\necho b", "a\nb", 0),
}


@pytest.mark.parametrize(("command", "text", "code"), ENDINGS.values(), ids=ENDINGS.keys())
def test_what_the_model_reads(command: str, text: str, code: int, tmp_path: Path) -> None:
    output = bash(tmp_path, command)
    assert output.text.replace(program("bash", ENV["PATH"]), "/bin/bash") == text
    assert output.is_error == (code != 0)
    assert output.details["exit_code"] == code
    assert output.details["command"] == command
    assert output.details["timed_out"] is False
    assert output.details["truncated"] == 0
    assert output.details["seconds"] >= 0


def test_each_call_is_a_new_shell_in_the_project(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    assert bash(tmp_path, "cd below; pwd -P").text == str(tmp_path.resolve() / "below")
    assert bash(tmp_path, "pwd -P").text == str(tmp_path.resolve())


def test_the_environment_is_what_was_handed_over(tmp_path: Path) -> None:
    async def scene() -> Output:
        context = context_in(tmp_path, env={**ENV, "GREETING": "hi"})
        return await BashTool().run(BashParams(command='echo "$GREETING ${HOME-none}"'), context)

    assert asyncio.run(scene()).text == "hi none"


def test_sh_where_there_is_no_bash(tmp_path: Path) -> None:
    async def scene() -> Output:
        context = context_in(tmp_path, env={"PATH": str(tmp_path)})
        return await BashTool().run(BashParams(command='echo "$0"'), context)

    assert asyncio.run(scene()).text == "/bin/sh"


@pytest.mark.slow
def test_a_timeout_kills_the_tree_and_keeps_the_output(tmp_path: Path) -> None:
    command = "(setsid sh -c 'echo $$; exec sleep 1000' &); sleep 1000"
    for seconds in (1, 5, 25):  # on a busy machine the first may pass before any output
        output = bash(tmp_path, command, timeout=seconds)
        pid, _, note = output.text.partition("\n")
        if pid.isdecimal():
            break
    assert gone(int(pid))
    assert note == (
        f"[timed out after {seconds} s; the process tree was killed. "
        "Give a longer timeout (up to 600) or run_in_background]"
    )
    assert output.is_error
    assert output.details["timed_out"] is True


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_an_interruption_keeps_the_output_and_leaves_no_child(times: int, tmp_path: Path) -> None:
    async def scene() -> Output:
        shown = asyncio.Event()
        context = context_in(tmp_path, progress=lambda text: shown.set())
        command = (
            "(setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' &); sleep 1000"
        )
        call = asyncio.create_task(BashTool().run(BashParams(command=command), context))
        await asyncio.wait_for(shown.wait(), 100)
        for _ in range(times):
            call.cancel()
            await asyncio.sleep(0)
        with pytest.raises(Interrupted) as caught:
            await call
        return caught.value.output

    output = asyncio.run(scene())
    pid, _, note = output.text.partition("\n")
    assert note == "[interrupted by the user]"
    assert output.details["interrupted"] is True
    assert gone(int(pid))
    assert output.is_error


@pytest.mark.slow
def test_processes_with_open_output_become_a_job(tmp_path: Path) -> None:
    async def scene() -> tuple[Output, Output]:
        os.mkfifo(tmp_path / "go")
        context = context_in(tmp_path)
        command = "(read x < go; echo later) & echo now; exit 4"
        output = await BashTool().run(BashParams(command=command), context)
        (tmp_path / "go").write_text("\n")
        later = await JobTool().run(JobParams(action="wait", timeout=100), context)
        return output, later

    output, later = asyncio.run(scene())
    now, code, note = output.text.split("\n")
    assert (now, code) == ("now", "[exit 4]")
    assert note.startswith("[job-1: running, pid ")
    assert note.endswith("(its shell has ended: exit 4); the Job tool reads or ends it]")
    assert output.details["job"] == "job-1"
    assert later.text == "later\n[job-1: exit 4]"


@pytest.mark.slow
def test_a_new_job_has_shown_its_earlier_output(tmp_path: Path) -> None:
    async def scene() -> list[str]:
        shown: list[str] = []
        context = context_in(tmp_path, progress=shown.append)
        await BashTool().run(BashParams(command=r"printf '1%%\r2%%'; sleep 1000 &"), context)
        await end_all(context.jobs)
        return shown

    assert asyncio.run(scene()) == ["2%"]


async def under_way(context: Context, command: str) -> asyncio.Task[Output]:
    """A command that has printed something and keeps running."""
    shown = asyncio.Event()
    context.progress = lambda text: shown.set()
    running = asyncio.create_task(BashTool().run(BashParams(command=command), context))
    await shown.wait()
    return running


@pytest.mark.slow
def test_the_person_sends_a_command_to_the_background(tmp_path: Path) -> None:
    async def scene() -> tuple[Output, Output]:
        os.mkfifo(tmp_path / "go")
        context = context_in(tmp_path)
        command = "echo now; read x < go; echo later; exit 4"
        running = await under_way(context, command)
        (send,) = context.foreground
        send()
        output = await running
        assert context.foreground == set()
        job = context.jobs["job-1"]
        assert tail_of(job.spool.path, 5) == ["now"]
        assert job.process.running
        (tmp_path / "go").write_text("\n")
        later = await JobTool().run(JobParams(action="wait", timeout=100), context)
        assert tail_of(job.spool.path, 5) == ["now", "later"]
        return output, later

    output, later = asyncio.run(scene())
    said, _, note = output.text.partition("\n")
    assert said == "now"
    assert note.startswith("[after 0 s the user sent it to the background, where it has no timeout")
    assert "; job-1: running, pid " in note
    assert "above is its output so far, all of it goes to" in note
    assert note.endswith("The Job tool reads it, waits for it and ends it]")
    assert not output.is_error
    assert (output.details["job"], output.details["backgrounded"]) == ("job-1", True)
    assert output.details["exit_code"] is None
    assert later.text == "later\n[job-1: exit 4]"


@pytest.mark.slow
def test_a_command_that_cannot_go_to_the_background_goes_on(tmp_path: Path) -> None:
    async def scene() -> Output:
        os.mkfifo(tmp_path / "go")
        context = context_in(tmp_path)
        (tmp_path / ".session").write_text("a file where the folder should be")
        running = await under_way(context, "echo now; read x < go; echo later")
        (send,) = context.foreground
        with pytest.raises(ToolError, match="No file for the job's output"):
            send()
        (tmp_path / "go").write_text("\n")
        return await running

    assert asyncio.run(scene()).text == "now\nlater"


@pytest.mark.slow
def test_a_command_that_cannot_become_a_job_is_ended(tmp_path: Path) -> None:
    (tmp_path / ".session").write_text("a file where the folder should be")
    with pytest.raises(ToolError, match="No file for the job's output"):
        bash(tmp_path, "sleep 1000 & echo $! > pid")
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_process_detached_on_purpose_is_left_alone(tmp_path: Path) -> None:
    output = bash(tmp_path, "sleep 1000 >/dev/null 2>&1 & echo $!")
    pid = int(output.text)
    assert alive(pid)
    os.kill(pid, 9)


@pytest.mark.slow
def test_a_flood_is_kept_at_both_ends_and_the_rest_is_named(tmp_path: Path) -> None:
    output = bash(tmp_path, "seq 1 1000000; exit 1")
    lines = output.text.split("\n")
    assert (lines[0], lines[-3], lines[-1]) == ("1", "1000000", "[exit 1]")
    (note,) = [line for line in lines if "left out" in line]
    size = sum(len(str(n)) + 1 for n in range(1, 1_000_001))
    assert output.details["truncated"] == size - 1_048_576
    assert (output.details["printed_bytes"], output.details["kept_bytes"]) == (size, 1_048_576)
    assert note == (
        f"[{size - 1_048_576:,} bytes left out here; "
        "to see all of it, redirect the output to a file and Grep or Read that]"
    )
    assert lines[-2] == (
        f"[It printed {size:,} bytes, 1,048,576 of them are kept: this session is not recorded]"
    )


def test_people_see_cleaned_output(tmp_path: Path) -> None:
    async def scene() -> list[str]:
        shown: list[str] = []
        context = context_in(tmp_path, progress=shown.append)
        await BashTool().run(BashParams(command=r"printf '\033[31ma\033[0m\nb'"), context)
        return shown

    assert "".join(asyncio.run(scene())) == "a\nb"


def test_a_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(ToolError, match=f"does not exist any more: {gone}"):
        bash(gone, "true")


@pytest.mark.parametrize(
    ("command", "reason"),
    [("a\0b", "NUL"), (":" * 200_000, "write it to a file")],
)
def test_commands_no_shell_can_take(command: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=reason):
        bash(tmp_path, command)


def test_background_returns_at_once(tmp_path: Path) -> None:
    output = bash(tmp_path, "echo hi; sleep 1000", run_in_background=True)
    path = tmp_path / ".session/jobs/job-1.log"
    assert output.text.startswith("[job-1 started, pid ")
    assert str(path) in output.text
    assert output.details["path"] == str(path)
    assert not output.is_error
    assert gone(output.details["pid"])  # ended with all jobs


@pytest.mark.parametrize("bad", [{"timeout": 0}, {"timeout": 601}, {"command": ""}, {"cmd": "x"}])
def test_bad_parameters(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        BashParams(**{"command": "true", **bad})


def test_subjects_and_titles() -> None:
    params = BashParams(command="make \\\n  test", description="Run the tests")
    assert BashTool().subject(params) == "make \\\n  test"
    assert BashTool().title(params) == "make \\ …"
    assert BashTool().title(BashParams(command=" ls \n")) == "ls"
    assert BashTool().schema()["input_schema"]["required"] == ["command"]
