"""Test extreme sizes: each case runs real tools in its own process, forked from a process that has
everything imported, so that only its own memory is measured.

    measured(["output of lines=100"])  # of that many MB; a dict of figures by case
    python -m ctxagent.tests.support.limits "calls of a session=1000" ...
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ctxagent.addons.doctor.session import check_session, repair
from ctxagent.agent.compaction.summary.request import QUESTION_START
from ctxagent.agent.context import tokens
from ctxagent.agent.context.request import Request
from ctxagent.agent.context.view import View
from ctxagent.agent.events import Accepted, CallStarted, Delta, Event, TextDelta, UserSaid
from ctxagent.agent.features.instructions import first_entries
from ctxagent.agent.models.base import Reply, abilities_of
from ctxagent.agent.models.catalog import Limits
from ctxagent.agent.models.gaps import ServerGaps
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.session.entries import Mask, Pin, Summary, ToolResult, Usage
from ctxagent.agent.session.log import Log
from ctxagent.agent.ui.input.pasted import PastedTexts
from ctxagent.agent.ui.render import render
from ctxagent.agent.ui.render.render import render_text
from ctxagent.agent.ui.repl.input_queue import InputQueue
from ctxagent.agent.ui.transcript import Transcript
from ctxagent.tools.base import Context, Output, Tool
from ctxagent.tools.bash import BashTool
from ctxagent.tools.edit import EditTool
from ctxagent.tools.glob import GlobTool
from ctxagent.tools.grep import GrepTool
from ctxagent.tools.read import ReadTool
from ctxagent.tools.system.capture import OutputFile

from .instruction_files import instruction_files
from .sessions.conversation import Conversation

MB = 1 << 20
RECORD = """## Session Intent
Read them all.
## Current State
Phase: reading
- Done: the first ones
## Next Steps
1. Read the next one.
"""
Figures = dict[str, Any]
Case = Callable[[Path, int], Figures]
CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    def keep(function: Case) -> Case:
        CASES[name] = function
        return function

    return keep


def measured(wanted: Sequence[str]) -> dict[str, Figures]:
    """Run cases, each given as `name=size`, one after the other; return their figures by case."""
    command = [sys.executable, "-m", "ctxagent.tests.support.limits", *wanted]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    rows = {}
    for line in done.stdout.splitlines():
        row = json.loads(line)
        rows[row.pop("case")] = row
    if done.returncode:
        raise AssertionError(done.stderr)
    return rows


def run_tool(tool: Tool[Any], folder: Path, **given: Any) -> Output:
    context = Context(cwd=folder, env={"PATH": "/usr/bin:/bin"})
    return asyncio.run(tool.run(tool.Params.model_validate(given), context))


# Sessions


def answer(request: Request) -> str:
    """Return a summary if the request asks for one, else a short reply."""
    asked = request.messages[-1]["content"][-1].get("text", "")
    return RECORD if QUESTION_START in str(asked) else "Well."


class Reader:
    """Model that requests Read `calls` times, one call per message, and keeps no request. It
    records the memory of its process (MB) and the time at each tenth of the calls.
    """

    id = "scripted"
    abilities = abilities_of(id)

    def __init__(self, calls: int, window: int) -> None:
        self.calls, self.window, self.done, self.peak = calls, window, 0, 0
        self.gaps = ServerGaps(None, "", self.id, {})
        self.marks: list[tuple[float, float]] = []

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        size = tokens.estimate_content([b for m in request.messages for b in m["content"]])
        size += tokens.estimate_content([*request.system, *request.tools])
        self.peak = max(self.peak, size)
        usage = Usage(input=size, output=30)
        yield Accepted(usage.to_json())
        if (said := answer(request)) == RECORD:
            yield Reply([{"type": "text", "text": said}], "end_turn", usage, "scripted")
            return
        if self.done % max(1, self.calls // 10) == 0:
            self.marks.append((memory()["VmRSS"], time.process_time()))
        if self.done == self.calls:
            yield Reply([{"type": "text", "text": "done"}], "end_turn", usage, "scripted")
            return
        self.done += 1
        call = {"type": "tool_use", "id": f"c{self.done}", "name": "Read",
                "input": {"path": f"f{self.done % 50}.txt"}}  # fmt: skip
        yield Reply([call], "tool_use", usage, "scripted")

    def assumed_limits(self) -> Limits:
        return Limits(self.window, 4_000, "setting")

    async def limits(self) -> Limits:
        return self.assumed_limits()

    async def close(self) -> None:
        pass


@case("calls of a session")
def session(folder: Path, size: int) -> Figures:
    """Make `size` calls in one turn, with a window that fills up every dozen calls."""
    for n in range(50):
        (folder / f"f{n}.txt").write_text(f"{n}: the quick brown fox\n" * 400)
    model = Reader(size, 16_000)
    talk = Conversation(folder, model=model, tools=[ReadTool()])
    counts = {"events": 0}
    talk.agent.emit = lambda event: counts.update(events=counts["events"] + 1)
    finished = talk.say("read them all")
    assert finished.text == "done", finished
    path = talk.agent.log.path
    answered = len(talk.of(ToolResult))
    (half, half_at), (end, end_at) = model.marks[len(model.marks) // 2], model.marks[-1]
    first_half = half_at - model.marks[0][1]
    return {
        "answered": answered,
        "summaries": len(talk.of(Summary)),
        "masks": len(talk.of(Mask)),
        "peak_tokens": model.peak,
        "second_half_mb": end - half,
        "slowdown": (end_at - half_at) / first_half,
        "log_mb": path.stat().st_size / MB,
    }


@case("calls in one message")
def calls(folder: Path, size: int) -> Figures:
    """Make `size` calls in one reply, all of tools that may run in parallel."""
    (folder / "a.txt").write_text("needle\n")
    kinds: list[tuple[str, dict[str, str]]] = [
        ("Grep", {"pattern": "needle"}),
        ("Glob", {"pattern": "*.txt"}),
        ("Read", {"path": "a.txt"}),
    ]
    blocks = [
        {"type": "tool_use", "id": f"c{n}", "name": kinds[n % 3][0], "input": kinds[n % 3][1]}
        for n in range(size)
    ]  # fmt: skip
    talk = Conversation(folder, tools=[ReadTool(), GlobTool(), GrepTool()])
    most = 0

    async def run() -> None:
        nonlocal most
        done = asyncio.create_task(talk.agent.runner.run(blocks, {}, cut=False))
        while not done.done():
            most = max(most, sum(1 for _ in os.scandir("/proc/self/fd")))
            await asyncio.sleep(0)

    asyncio.run(run())
    results = talk.of(ToolResult)
    return {
        "answered": len({r.tool_use_id for r in results}),
        "failed": sum(r.is_error for r in results),
        "descriptors": most,
    }


@case("pins")
def pins(folder: Path, size: int) -> Figures:
    """Add `size` short pins, more than the limit for pins, and compact."""
    talk = Conversation(folder, lambda request: Step(text=answer(request)))
    for n in range(4):
        talk.say(f"hello {n} " + "and more " * 9_000)
    for n in range(size):
        talk.agent.record(Pin(text=f"pin {n}: keep that"))

    def work() -> Figures:
        asyncio.run(talk.agent.engine.compact())
        finished = talk.say("go on")
        return {"status": finished.status, "tokens": talk.agent.model.current_window().tokens}

    return timed(work)


@case("MB of an argument")
def argument(folder: Path, size: int) -> Figures:
    """Write a file with a call whose argument is one line of `size` MB."""
    step = Step(tools=[("Write", {"path": "big.txt", "content": "x" * (size * MB)})])

    def steps(request: Request) -> Step:
        return Step(text=answer(request)) if (folder / "big.txt").exists() else step

    talk = Conversation(folder, steps)

    def work() -> Figures:
        finished = talk.say("write it")
        shown = sum(
            len(render_text(printed([each]), width=100, depth="color")) for each in talk.events
        )
        return {
            "status": finished.status,
            "tokens": talk.agent.model.current_window().tokens,
            "shown_kb": shown / 1024,
            "written_mb": (folder / "big.txt").stat().st_size / MB,
        }

    return timed(work)


# What is shown


@case("MB of a streamed line")
def streamed(folder: Path, size: int) -> Figures:
    """Show a reply in one line, painted as often as at 200 pieces per second."""
    piece = "a few words and no end of line, " * 64

    def work() -> Figures:
        out: list[Any] = []
        transcript = Transcript(out.append)
        live = 0
        for event in (UserSaid("go"), CallStarted(1, 1)):
            transcript.show(event)
        for n in range(size * MB // len(piece)):
            transcript.show(TextDelta(piece))
            if n % 10 == 0:
                live = max(live, len(render_text(transcript.live(), width=100, depth="color")))
        return {"live_kb": live / 1024}

    return timed(work)


@case("MB pasted")
def pasted(folder: Path, size: int) -> Figures:
    """Paste one line of `size` MB into the input and send it unchanged."""
    text = "pasted " * (size * MB // 7)

    def work() -> Figures:
        kept = PastedTexts()
        mark = kept.paste(text)
        return {"mark": mark, "whole": kept.unfold(f"see {mark}!") == f"see {text}!",
                "again": kept.fold(text) == mark}  # fmt: skip

    return timed(work)


@case("words that wait")
def waiting(folder: Path, size: int) -> Figures:
    """Queue `size` user messages during a turn, with a paint after each."""

    async def run() -> Figures:
        queue, most = InputQueue(), 0
        for n in range(size):
            queue.add(f"and then number {n}")
            if n % 100 == 0 or n < 100:
                shown = render.queue([(words.text, "after turn") for words in queue])
                most = max(most, render_text(shown, width=100, depth="color").count("\n"))
        served = [await queue.next() for _ in range(size)]
        return {"lines": most, "in_order": served == [f"and then number {n}" for n in range(size)]}

    return timed(lambda: asyncio.run(run()))


def printed(events: Sequence[Event]) -> list[Any]:
    """Return what the transcript prints for events."""
    out: list[Any] = []
    transcript = Transcript(out.append)
    for event in events:
        transcript.show(event)
    return [*out, *transcript.live()]


# Output of commands


def output(folder: Path, command: str) -> Figures:
    shown = {"chars": 0}

    def tell(text: str) -> None:
        shown["chars"] += len(text)

    context = Context(
        cwd=folder,
        env={"PATH": "/usr/bin:/bin"},
        progress=tell,
        open_file=lambda: OutputFile(folder / "output"),
    )
    done = asyncio.run(BashTool().run(BashTool.Params(command=command), context))
    notice = next((line for line in done.text.split("\n") if "left out" in line), "")
    return {
        "kept_mb": len(done.text) / MB,
        "notice": notice[:200],
        "file_mb": (folder / "output").stat().st_size / MB if done.filed else 0,
        "cut": done.details["truncated"],
        "shown_mb": shown["chars"] / MB,
    }


@case("output of lines")
def lines(folder: Path, size: int) -> Figures:
    return output(folder, f"yes 'a line of output' | head -c {size * MB}")


@case("output in one line")
def one_line(folder: Path, size: int) -> Figures:
    return output(folder, f"head -c {size * MB} /dev/zero | tr '\\0' x")


@case("output redrawn")
def redrawn(folder: Path, size: int) -> Figures:
    return output(folder, f"yes '10 %' | tr '\\n' '\\r' | head -c {size * MB}")


@case("output of escapes")
def escapes(folder: Path, size: int) -> Figures:
    return output(folder, f"yes \"$(printf '\\033[31;')\" | tr -d '\\n' | head -c {size * MB}")


# Trees of files


def tree(folder: Path, size: int, wide: int) -> None:
    """Create `size` files, `wide` per folder."""
    for n in range(0, size, wide):
        inner = folder / f"d{n // wide // 50}" / f"e{n // wide}"
        inner.mkdir(parents=True)
        for m in range(n, min(size, n + wide)):
            descriptor = os.open(f"{inner}/f{m}.py", os.O_CREAT | os.O_WRONLY, 0o600)
            os.write(descriptor, b"needle\n" if m % 100 == 0 else b"hay\n")
            os.close(descriptor)


def told(output: Output) -> Figures:
    return {"lines": output.text.count("\n") + 1, "kb": len(output.text) / 1024,
            "notice": output.text.rsplit("\n", 1)[-1][:200]}  # fmt: skip


@case("files for Glob")
def glob(folder: Path, size: int) -> Figures:
    tree(folder, size, 50)
    return timed(lambda: told(run_tool(GlobTool(), folder, pattern="**/*.py")))


@case("files for Glob in a work tree")
def glob_git(folder: Path, size: int) -> Figures:
    tree(folder, size, 50)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return timed(lambda: told(run_tool(GlobTool(), folder, pattern="**/*.py")))


@case("files in one folder for Glob")
def one_folder(folder: Path, size: int) -> Figures:
    tree(folder, size, size)
    return timed(lambda: told(run_tool(GlobTool(), folder, pattern="*.py")))


@case("files for Grep")
def grep(folder: Path, size: int) -> Figures:
    tree(folder, size, 50)
    return timed(lambda: told(run_tool(GrepTool(), folder, pattern="needle|hay")))


@case("folders within folders")
def deep(folder: Path, size: int) -> Figures:
    """Search a chain of `size` folders, each with a link to its parent, and a file at its end."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(size):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.symlink("..", "up", dir_fd=inner)
        os.close(here)
        here = inner
    descriptor = os.open("end.py", os.O_CREAT | os.O_WRONLY, dir_fd=here)
    os.write(descriptor, b"needle\n")
    os.close(descriptor)
    os.close(here)

    def look() -> Figures:
        found = [
            run_tool(GlobTool(), folder, pattern="*.py"),
            run_tool(GrepTool(), folder, pattern="needle"),
        ]
        return {"said": [output.text[-150:] for output in found]}

    figures = timed(look)
    subprocess.run(["rm", "-rf", folder / "d"], check=True)
    return figures


# Lines and files


@case("MB of one line")
def long_line(folder: Path, size: int) -> Figures:
    path = folder / "long.txt"
    path.write_text("x" * (size * MB // 2) + "needle" + "y" * (size * MB // 2) + "\n")

    def work() -> Figures:
        read = run_tool(ReadTool(), folder, path="long.txt")
        grep = run_tool(GrepTool(), folder, pattern="needle", output_mode="content")
        edit = run_tool(
            EditTool(), folder, path="long.txt", old_string="needle", new_string="thread"
        )
        bash = run_tool(BashTool(), folder, command="cat long.txt")
        texts = {"read": read, "grep": grep, "edit": edit, "bash": bash}
        return {f"{name}_kb": len(output.text) / 1024 for name, output in texts.items()} | {
            "diff_kb": len(edit.details["diff"]) / 1024,
        }

    return timed(work)


@case("MB of instructions")
def instructions(folder: Path, size: int) -> Figures:
    (folder / "AGENTS.md").write_text("Be good to everybody.\n" * (size * MB // 22))
    files = partial(instruction_files, folder, folder, folder)
    entries = timed(lambda: {"entries": first_entries(files(), View(), (), 10**9)})
    words = [entry.content for entry in entries["entries"]]
    notice = words[0].splitlines()[-1]
    return {**entries, "entries": len(words), "kb": len(words[0]) / 1024, "notice": notice}


@case("MB of a log with a line torn in the middle")
def repaired(folder: Path, size: int) -> Figures:
    """Let Doctor check a damaged log, repair it, and check it again."""
    folder.chmod(0o700)
    log = Log(folder / "s" / "log.jsonl")
    log.append(ToolResult(tool_use_id="c", content="x"))
    for n in range(size * 50):
        log.append(ToolResult(tool_use_id=f"c{n}", content=f"{n} " * 3_500))
    log.close()
    with log.path.open("r+b") as file:
        file.seek(size * MB // 2)
        file.write(b"\0" * 100)

    def work() -> Figures:
        broken = not all(f.ok for f in check_session(log.path))
        done = repair(log.path)
        return {"broken": broken, "done": done[0][:80],
                "whole": all(f.ok for f in check_session(log.path))}  # fmt: skip

    return timed(work)


# Measuring


def timed(work: Callable[[], Figures]) -> Figures:
    """Return the figures of `work` with its seconds and additional memory."""
    reset()
    before, started, busy = memory()["VmRSS"], time.perf_counter(), time.process_time()
    figures = work()
    seconds, cpu = time.perf_counter() - started, time.process_time() - busy
    return {"seconds": seconds, "cpu": cpu, "mb": memory()["VmHWM"] - before, **figures}


def memory() -> dict[str, float]:
    """Return the current and the peak memory of this process, in MB."""
    rows = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {row[0][:-1]: int(row[1]) / 1024 for row in rows if row[0] in ("VmRSS:", "VmHWM:")}


def reset() -> None:
    """Reset the peak memory of this process."""
    Path("/proc/self/clear_refs").write_text("5")


def main() -> None:
    """Run each case in a fork of this process, so that all start with the same memory."""
    for wanted in sys.argv[1:]:
        name, _, size = wanted.rpartition("=")
        sys.stdout.flush()
        child = os.fork()
        if not child:
            os._exit(run_case(name, int(size)))
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{name} failed")


def run_case(name: str, size: int) -> int:
    """Run one case in a temporary folder and print its figures; return the exit code."""
    with tempfile.TemporaryDirectory() as root:
        project = Path(root, "project")
        project.mkdir()
        try:
            figures = timed(lambda: CASES[name](project, size))
        except Exception:
            traceback.print_exc()
            return 1
    print(json.dumps({"case": name, "size": size, **figures}), flush=True)
    return 0


if __name__ == "__main__":
    main()
