"""Play small tasks with a small real model, and check how the program behaves.

    python -m ctxagent.tests.real.run [--sessions FOLDER]

`make real` installs the model and its server into `.real`. The model (SmolLM2, 135M) solves next to
nothing, so success does not count. Every run must end by itself, leave a session that
`ctxagent doctor` finds sound, and say what to do where it fails.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from ctxagent.agent.session.store import locate_log

from ..support.command import Place, comes
from .model import SMOLLM2, free_port, served
from .recorded import beginning, make_session, recordings

WINDOW = 8_192  # of the model
RUN_S = 400.0  # bound of one run; on idle cores the slowest takes a quarter
MAX_REPEATS = 6  # identical calls with identical results in a row, before the turn ends
MAX_SUMMARY_CALLS = 2  # of the model, for one compaction
RECORDED_TOKENS = 1_800  # of a recorded session, before its summary
MIN_STEPS = 6  # of it, messages and replies
SESSIONS = 5
BY_MODEL = 2  # of their summaries; the others are made as the preset says
TASKS = {
    "list": "List the files in this directory.",
    "read": "What is the content of the file version.txt?",
    "name": "Which function is defined in calc.py?",
    "fix": "The function add in calc.py subtracts. Change it so that it adds.",
    "write": "Create a file hello.txt with the text: hello",
    "run": "Run the command: python3 calc.py and say what it prints.",
    "grep": "Which file contains the word TODO?",
    "rename": "Rename the file old.txt to new.txt.",
    "delete": "Delete the file junk.tmp.",
    "append": "Add the line done at the end of the file log.txt.",
}
FILES = {
    "calc.py": "def add(a, b):\n    return a - b\n\n\nprint(add(50, 8))\n",
    "version.txt": "3.7.1\n",
    "notes.md": "# Notes\n\nTODO: write the tests\n",
    "old.txt": "content\n",
    "junk.tmp": "x\n",
    "log.txt": "started\n",
}
# The model's ID by wire protocol, the variable with the address, and what the address ends in.
PROTOCOLS = {
    "messages": ("smollm2", "ANTHROPIC_BASE_URL", ""),
    "chat": ("llamacpp/smollm2", "LLAMACPP_BASE_URL", "/v1"),
}
Json = dict[str, Any]


@dataclass
class Run:
    """What one run came to."""

    name: str
    code: int | None = None  # the exit code; None if it had to be ended
    seconds: float = 0.0
    status: str = ""
    output: str = ""
    entries: list[Json] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def count(self, kind: str, **fields: str) -> int:
        return sum(
            entry["kind"] == kind and all(entry.get(k) == v for k, v in fields.items())
            for entry in self.entries
        )

    @property
    def repeats(self) -> int:
        """The longest run of identical calls with identical results, within a turn."""
        calls, pairs = dict[str, str](), list[tuple[str, str]]()
        for entry in self.entries:
            if entry["kind"] == "assistant":
                blocks = [b for b in entry["content"] if b["type"] == "tool_use"]
                calls |= {b["id"]: json.dumps([b["name"], b["input"]]) for b in blocks}
            elif entry["kind"] == "user" and entry["source"] == "person":
                pairs.append(("", str(entry["seq"])))
            elif entry["kind"] == "tool_result" and not entry.get("details", {}).get("denied"):
                call = calls.get(entry["tool_use_id"], "")
                pairs.append((call, json.dumps(entry["content"])))
        return max((len(list(same)) for _, same in groupby(pairs)), default=0)


@dataclass
class Desk:
    """The command at work with the served model, in a home and a project of its own."""

    place: Place
    flags: Sequence[str]
    server: Mapping[str, str]  # the variable with its address
    runs: list[Run] = field(default_factory=list)

    def reset(self) -> None:
        """Replace the project by a new one."""
        shutil.rmtree(self.place.project)
        self.place.project.mkdir()
        for name, text in FILES.items():
            (self.place.project / name).write_text(text)
        subprocess.run(["git", "init", "-q"], cwd=self.place.project, check=True)

    def run(self, name: str, *arguments: str, codes: Sequence[int] = (0, 1, 4, 5)) -> Run:
        """Run the command with a bound, and check what it leaves."""
        run, began, known = Run(name), time.monotonic(), set(self.place.logs())
        with self.start(*arguments) as process:
            try:
                out, err = process.communicate(timeout=RUN_S)
                run.code = process.returncode
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                run.wrong.append(f"did not end in {RUN_S:.0f} s")
        run.seconds, run.output = time.monotonic() - began, out + err
        if run.code is not None and run.code not in codes:
            run.wrong.append(f"exit code {run.code}: {err.strip()[-200:]}")
        if "Traceback" in err:
            run.wrong.append(f"a traceback: {err.strip()[-300:]}")
        run.status = _status(out) or (err.strip().rpartition("\n")[2][:200] if run.code else "")
        self.check(run, [log for log in self.place.logs() if log not in known])
        self.runs.append(run)
        print(f"{run.name}: {run.seconds:.0f} s", file=sys.stderr, flush=True)
        return run

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        env = self.place.environ({"ANTHROPIC_API_KEY": "none", **self.server})
        pipe = subprocess.PIPE
        return self.place.start(*self.flags, *arguments, env=env, stdout=pipe, stderr=pipe)

    def check(self, run: Run, logs: Sequence[Path]) -> None:
        """Check the sessions that a run began or went on with."""
        for log in logs:
            run.entries += _entries(log)
            for inner in log.parent.glob("agents/*/log.jsonl"):
                run.entries += _entries(inner)
            checked = self.place.run("doctor", locate_log(log)[1])
            if checked.returncode:
                run.wrong.append(f"doctor: {checked.stdout.strip()[-300:]}")
        if run.repeats > MAX_REPEATS:
            run.wrong.append(f"{run.repeats} identical calls in a row")
        run.wrong += _summary_faults(run.entries)


def _summary_faults(entries: Sequence[Json]) -> Iterator[str]:
    """Yield what is wrong with the compactions among these entries."""
    asked = 0
    for entry in entries:
        if entry["kind"] == "assistant" and entry.get("purpose") == "summary":
            asked += 1
            if asked > MAX_SUMMARY_CALLS:
                yield f"{asked} calls of the model for a summary"
        elif entry["kind"] == "summary":
            asked = 0
            missed = _probes(entry, "asked") - _probes(entry, "after")
            if missed:
                yield f"the summary misses {missed} probed facts"


def _probes(entry: Json, column: str) -> int:
    return sum(row[column] for row in entry["probes"].get("tally", {}).values())


def _entries(log: Path) -> list[Json]:
    return [json.loads(line) for line in log.read_text("utf-8").splitlines()]


def _status(out: str) -> str:
    try:
        said = json.loads(out)
    except ValueError:
        return ""
    error = (said.get("error") or {}).get("message", "")
    return f"{said['status']} {error}".strip()


def play_tasks(desk: Desk) -> None:
    """Ten tiny tasks, each a session of its own."""
    for name, task in TASKS.items():
        desk.reset()
        desk.run(f"task {name}", "-p", task, "--output-format", "json")


def play_schema(desk: Desk) -> None:
    desk.reset()
    schema = {"type": "object", "properties": {"version": {"type": "string"}}}
    file = desk.place.root / "schema.json"
    file.write_text(json.dumps({**schema, "required": ["version"]}))
    desk.run("--json-schema", "-p", TASKS["read"], "--json-schema", str(file))


def play_subagent(desk: Desk) -> None:
    desk.reset()
    words = "Have a subagent find the file that contains the word TODO."
    run = desk.run("subagent", "-p", words, "--output-format", "json")
    if not run.count("agent"):
        run.status += ", no subagent was started"


def play_kill(desk: Desk) -> None:
    """Kill a run after its first result, and go on with it."""
    desk.reset()
    known = set(desk.place.logs())
    with desk.start("-p", TASKS["fix"]) as process:

        def has_result() -> bool:
            logs = [log for log in desk.place.logs() if log not in known]
            return process.poll() is not None or any(
                '"tool_result"' in log.read_text() for log in logs
            )

        comes(has_result, RUN_S)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    (log,) = [log for log in desk.place.logs() if log not in known]
    run = desk.run("kill, resume", "--resume", log.parent.name, "-p", "Go on.")
    desk.check(run, [log])


def play_errors(desk: Desk) -> None:
    """Settings that cannot work: the error names the one to change."""
    desk.reset()
    cases = {
        "no server": ("base_url", f"model.base_url=http://127.0.0.1:{free_port()}"),
        "tiny window": ("context_window", "model.context_window=1500"),
    }
    for name, (named, setting) in cases.items():
        run = desk.run(name, "-c", setting, "-c", "model.overload_wait=0", "-p", "Say hello.")
        if named not in run.output.replace("-", "_").lower():
            run.wrong.append(f"{named} is not named: {run.output.strip()[-300:]}")


def play_summaries(desk: Desk, folder: Path | None) -> None:
    """Compact five sessions: the beginnings of recorded ones, or the newest that were played.

    The model is asked for the first summaries, also where the preset has the ledger write them. A
    session that a summary would not make smaller is passed over.
    """
    desk.reset()
    made = 0
    for number, log in enumerate(_sessions(desk, folder), 1):
        asked = ("-c", "compact.summarizer=model") if made < BY_MODEL else ()
        run = desk.run(
            f"summary {number}", *asked, "compact", log.parent.name, "--apply",
            "--instructions", "Be brief.",
        )  # fmt: skip
        purposes = ("summary", "verify")  # of calls that are not those of the recording
        run.entries = [
            entry
            for entry in _entries(log)
            if entry["kind"] == "summary" or entry.get("purpose") in purposes
        ]
        run.wrong += _summary_faults(run.entries)
        for entry in run.entries:
            if entry["kind"] == "summary":
                made += 1
                wanted, before, after = (_probes(entry, c) for c in ("asked", "before", "after"))
                run.status = f"{before} of {wanted} probes answered, {after} after repair"
        if made == SESSIONS:
            return


def _sessions(desk: Desk, folder: Path | None) -> Iterator[Path]:
    """Yield the logs of sessions to compact."""
    if folder is None:
        logs = [log for log in desk.place.logs() if log.read_text().count('"tool_result"') > 2]
        yield from reversed(logs)
        return
    for recording in recordings(folder):
        begun = beginning(recording, RECORDED_TOKENS)
        if len(begun.steps) > MIN_STEPS:
            yield make_session(desk.place, begun)


def table(runs: Sequence[Run], seconds: float) -> Iterator[str]:
    """Yield the report, a line for each run, and the totals."""
    yield _line(None)
    yield from map(_line, runs)
    wrong = sum(bool(run.wrong) for run in runs)
    yield f"\n{len(runs)} runs, {wrong} with faults, {seconds:.0f} s"


def _line(run: Run | None) -> str:
    if run is None:
        return (
            f"{'run':<16} {'exit':>4} {'s':>4} {'replies':>7} {'calls':>5} {'repeats':>7}  outcome"
        )
    code = "none" if run.code is None else run.code
    replies, calls = run.count("assistant"), run.count("tool_result")
    outcome = "; ".join([run.status, *(f"WRONG: {each}" for each in run.wrong)]).strip("; ")
    return (
        f"{run.name:<16} {code:>4} {run.seconds:>4.0f} {replies:>7} {calls:>5} {run.repeats:>7}  "
        f"{' '.join(outcome.split())}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="real", description="Play tasks with a real small model.")
    parser.add_argument("--sessions", type=Path, help="a folder with recorded sessions (*.gz)")
    parser.add_argument("--threads", type=int, default=2, help="of the server")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="chat")
    given, began = parser.parse_args(), time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="ctxagent-real-") as folder,
        served(SMOLLM2, WINDOW, given.threads) as url,
    ):
        model, variable, end = PROTOCOLS[given.protocol]
        flags = [
            "--model", model, "--preset", given.preset, "--max-tokens", "160", "--max-turns", "6",
            "--permission-mode", "sandboxed", "-c", "permissions.sandboxed=allow",
        ]  # fmt: skip
        desk = Desk(Place(Path(folder)), flags, {variable: f"{url}{end}"})
        play_tasks(desk)
        play_schema(desk)
        play_subagent(desk)
        play_kill(desk)
        play_summaries(desk, given.sessions)
        play_errors(desk)
    print("\n".join(table(desk.runs, time.monotonic() - began)))
    return int(any(run.wrong for run in desk.runs))


if __name__ == "__main__":
    sys.exit(main())
