"""Background jobs and the Job tool."""

import asyncio
import os
import resource
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.errors import ToolError
from ctxagent.tools.base import Context, Output
from ctxagent.tools.job import (
    REPORT_PART_BYTES,
    BackgroundJob,
    JobParams,
    JobTool,
    end_all,
    start_job,
)
from ctxagent.tools.system.descriptors import MAX_SOFT_LIMIT, RESERVED_DESCRIPTORS, raise_limit

from ..support.command import gone

ENV = {"PATH": os.environ["PATH"]}


def play(path: Path, scene: Callable[[Context], Awaitable[None]], **fields: Any) -> None:
    """Run a scene with a session in `path`. No job outlives it."""

    async def whole() -> None:
        given = {"cwd": path, "session_dir": path / "session", "env": ENV, **fields}
        context = Context(**given)
        try:
            async with asyncio.timeout(200):
                await scene(context)
        finally:
            await end_all(context.jobs)

    asyncio.run(whole())


async def ask(context: Context, action: str, id: str | None = None, **params: Any) -> Output:
    return await JobTool().run(
        JobParams.model_validate({"action": action, "id": id, **params}), context
    )


async def written(job: BackgroundJob, text: str) -> None:
    while text not in job.spool.path.read_text(errors="replace"):  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def open_files() -> list[Path]:
    return sorted(Path("/proc/self/fd").iterdir())


def test_read_gives_what_is_new(tmp_path: Path) -> None:
    async def scene(context: Context) -> None:
        os.mkfifo(tmp_path / "go")
        job = await start_job("echo one; read x < go; echo two; exit 3", context)
        await written(job, "one\n")
        running = f"job-1: running, pid {job.process.pid}]"
        assert (await ask(context, "read", "job-1")).text == f"one\n[{running}"
        assert (await ask(context, "read", "job-1")).text == f"[no new output; {running}"
        (tmp_path / "go").write_text("\n")
        output = await ask(context, "wait", "job-1")
        assert output.text == "two\n[job-1: exit 3]"
        assert output.details["exit_code"] == 3
        assert (await ask(context, "read", "job-1")).text == "[no new output; job-1: exit 3]"
        assert job.spool.path.read_text() == "one\ntwo\n"

    play(tmp_path, scene)


@pytest.mark.slow
def test_wait_gives_up_after_its_timeout(tmp_path: Path) -> None:
    async def scene(context: Context) -> None:
        await start_job("sleep 1000", context)
        output = await ask(context, "wait", timeout=1)
        assert output.text.startswith("[no new output; job-1: running")
        assert output.details["running"] is True

    play(tmp_path, scene)


def test_end_kills_the_tree(tmp_path: Path) -> None:
    async def scene(context: Context) -> None:
        job = await start_job("(setsid sh -c 'echo $$; exec sleep 1000' &); sleep 1000", context)
        await written(job, "\n")
        pid = int(job.spool.path.read_text())
        output = await ask(context, "end", "job-1")
        assert output.details["interrupted"] is True
        assert output.text == f"{pid}\n[job-1: killed by SIGTERM]"
        assert gone(pid)
        assert (await ask(context, "end")).text == "[no new output; job-1: killed by SIGTERM]"

    play(tmp_path, scene)


def test_end_all_ends_what_runs(tmp_path: Path) -> None:
    async def scene(context: Context) -> None:
        jobs = [await start_job(c, context) for c in ("true", "sleep 1000", "sleep 1001")]
        await jobs[0].process.finished()
        await end_all(context.jobs)
        assert [job.status for job in jobs] == ["exit 0", *["killed by SIGTERM"] * 2]
        assert gone(*(job.process.pid for job in jobs))

    play(tmp_path, scene)


def test_list(tmp_path: Path) -> None:
    async def scene(context: Context) -> None:
        assert (await ask(context, "list")).text == "[no background jobs; Bash starts them]"
        first = await start_job("exit 2", context)
        await first.process.finished()
        await start_job("sleep 1000\nsecond line", context)
        output = await ask(context, "list")
        one, two = output.text.split("\n")
        assert one == "job-1: exit 2; started 0 s ago; exit 2"
        assert two.startswith("job-2: running, pid ")
        assert two.endswith("; sleep 1000")
        assert [job["job"] for job in output.details["jobs"]] == ["job-1", "job-2"]

    play(tmp_path, scene)


def test_an_unknown_job_is_answered_with_those_there_are(tmp_path: Path) -> None:
    async def scene(context: Context) -> None:
        with pytest.raises(ToolError, match=r"no job job-1\. No job was started"):
            await ask(context, "read", "job-1")
        await start_job("sleep 1000", context)
        with pytest.raises(ToolError, match=r"no job job-7\. There are:\njob-1: running"):
            await ask(context, "end", "job-7")
        assert "job-1: running" in (await ask(context, "read")).text  # the only one
        await start_job("sleep 1001", context)
        with pytest.raises(ToolError, match=r"Say which job by id\. There are:\njob-1.*\njob-2"):
            await ask(context, "read")

    play(tmp_path, scene)


def test_much_output_is_given_in_part_and_its_file_named(tmp_path: Path) -> None:
    async def scene(context: Context) -> None:
        job = await start_job("seq 1 100000", context)
        output = await ask(context, "wait")
        lines = output.text.split("\n")
        assert (lines[0], lines[-2], lines[-1]) == ("1", "100000", "[job-1: exit 0]")
        left_out = job.spool.path.stat().st_size - 2 * REPORT_PART_BYTES
        assert f"[{left_out:,} bytes left out here; all of it is in {job.spool.path}]" in lines
        assert (await ask(context, "read")).text == "[no new output; job-1: exit 0]"

    play(tmp_path, scene)


def test_an_incomplete_character_is_read_when_complete(tmp_path: Path) -> None:
    async def scene(context: Context) -> None:
        os.mkfifo(tmp_path / "go")
        job = await start_job(r"printf 'a\303'; read x < go; printf '\251b'", context)
        await written(job, "a\ufffd")
        assert (await ask(context, "read")).text.startswith("a\n[job-1: running")
        (tmp_path / "go").write_text("\n")
        assert (await ask(context, "wait")).text == "éb\n[job-1: exit 0]"

    play(tmp_path, scene)


def test_output_is_for_its_owner_and_never_overwritten(tmp_path: Path) -> None:
    async def scene(context: Context) -> None:
        job = await start_job("echo again", context)
        await job.process.finished()
        assert job.id == "job-2"
        assert job.spool.path.stat().st_mode & 0o777 == 0o600
        assert (folder / "job-1.log").read_text() == "of an earlier run"

    folder = tmp_path / "session" / "jobs"
    folder.mkdir(parents=True)
    (folder / "job-1.log").write_text("of an earlier run")
    play(tmp_path, scene)


def test_without_a_session_output_goes_to_a_temporary_folder(tmp_path: Path) -> None:
    async def scene(context: Context) -> None:
        jobs = [await start_job(f"echo {n}", context) for n in (1, 2)]
        for job in jobs:
            await job.process.finished()
            assert job.spool.path.read_text() == f"{job.id[-1]}\n"
            job.spool.path.unlink()
            job.spool.path.parent.rmdir()

    play(tmp_path, scene, session_dir=None)


def test_a_job_that_cannot_start_leaves_nothing(tmp_path: Path) -> None:
    async def scene(context: Context) -> None:
        before = open_files()
        with pytest.raises(ToolError, match="does not exist"):
            await start_job("true", context)
        assert open_files() == before
        assert context.jobs == {}
        assert list((tmp_path / "session" / "jobs").iterdir()) == []

    play(tmp_path, scene, cwd=tmp_path / "gone")


def test_no_file_for_the_output_is_an_error_that_says_so(tmp_path: Path) -> None:
    async def scene(context: Context) -> None:
        with pytest.raises(ToolError, match="No file for the job's output"):
            await start_job("true", context)

    (tmp_path / "session").write_text("a file where the folder should be")
    play(tmp_path, scene)


def test_titles() -> None:
    assert JobTool().title(JobParams(action="end", id="job-2")) == "end job-2"
    assert JobTool().title(JobParams(action="list")) == "list"


def test_a_job_starts_only_while_the_agent_can_open_files_for_itself(tmp_path: Path) -> None:
    async def scene(context: Context) -> None:
        job = await start_job("sleep 1000", context)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = len(open_files())
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + RESERVED_DESCRIPTORS, limits[1]))
        try:
            with pytest.raises(ToolError, match="1 jobs run, and no files can be opened"):
                await start_job("true", context)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert list(context.jobs) == [job.id]

    play(tmp_path, scene)


def test_the_limit_of_open_files_is_raised_as_far_as_the_system_allows() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
        raise_limit()
        now = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert now[0] == MAX_SOFT_LIMIT or now[0] == limits[1] < MAX_SOFT_LIMIT
        assert now[1] == limits[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= limits[0]  # never less
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
