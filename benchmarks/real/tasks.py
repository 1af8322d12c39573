"""Let a small real model do twenty small tasks, with presets and alone.

Each run is a session of its own, in a new project. `alone` is the baseline: the model with
two tools (Bash, Write), a prompt of one line and nothing else of this program.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from chat import ask
from results import Clock, Results, Row, interval

from ctxagent.tests.real.model import QWEN, served
from ctxagent.tests.support.command import Place

WINDOW = 16_384
MAX_TOKENS, MAX_CALLS = 250, 8
RUN_S = 300.0  # bound of one run
VARIANTS = ("small", "default", "alone")
FILES = {
    "calc.py": "def add(a, b):\n    return a - b\n\n\nprint(add(50, 8))\n",
    "version.txt": "3.7.1\n",
    "notes.md": "# Notes\n\nPENDING: write the tests\n",
    "old.txt": "content\n",
    "junk.tmp": "x\n",
    "log.txt": "started\n",
    "config.json": '{"host": "localhost", "port": 8080, "debug": true}\n',
    "src/names.py": 'def greet(name):\n    return "Hello, " + name\n',
    "src/main.py": 'from names import greet\n\nprint(greet("Ann"))\n',
    "src/shapes.py": (
        "class Circle:\n    def area(self, radius):\n        return 3.14 * radius * radius\n\n\n"
        "class Square:\n    def area(self, side):\n        return side * side\n"
    ),
    "test_calc.py": (
        "def test_add():\n    assert 1 + 1 == 2\n\n\ndef test_ends():\n"
        '    assert "abc".endswith("c")\n'
    ),
    "data/sales.csv": "month,units\njan,12\nfeb,30\nmar,7\n",
    "data/people.csv": "name,age\nAnn,31\nBob,45\n",
}


@dataclass(frozen=True)
class End:
    """What a run left: the project and the answer."""

    project: Path
    answer: str

    def read(self, name: str) -> str:
        file = self.project / name
        return file.read_text("utf-8", "replace") if file.is_file() else ""

    def has(self, name: str) -> bool:
        return (self.project / name).exists()

    def prints(self, *command: str) -> str:
        """Return what a Python program of the project prints."""
        ran = subprocess.run(
            [sys.executable, *command], cwd=self.project, capture_output=True, text=True, timeout=20
        )
        return ran.stdout.strip()


@dataclass(frozen=True)
class Task:
    kind: str
    words: str
    is_solved: Callable[[End], bool]


def _says(*words: str) -> Callable[[End], bool]:
    return lambda end: all(word.lower() in end.answer.lower() for word in words)


TASKS = {
    "fix": Task(
        "one file",
        "The function add in calc.py subtracts. Change it so that it adds.",
        lambda end: end.prints("calc.py") == "58",
    ),
    "write": Task(
        "one file",
        "Create a file hello.txt with the text: hello",
        lambda end: end.read("hello.txt").strip() == "hello",
    ),
    "append": Task(
        "one file",
        "Add the line done at the end of the file log.txt.",
        lambda end: end.read("log.txt").splitlines() == ["started", "done"],
    ),
    "setting": Task(
        "one file",
        "Change the port in config.json to 9000.",
        lambda end: (
            _json(end.read("config.json")) == {**_json(FILES["config.json"]), "port": 9000}
        ),
    ),
    "function": Task(
        "one file",
        "Add a function double(n) to calc.py that returns 2 * n.",
        lambda end: (
            end.prints("-c", "import calc; print(calc.double(21))") == "42\n42"
        ),
    ),
    "script": Task(
        "one file",
        "Write a program squares.py that prints the squares of 1, 2 and 3, each on its own line.",
        lambda end: end.prints("squares.py").split() == ["1", "4", "9"],
    ),
    "replace": Task(
        "one file",
        "In notes.md, replace the word PENDING by DONE.",
        lambda end: end.read("notes.md") == "# Notes\n\nDONE: write the tests\n",
    ),
    "rename": Task(
        "several files",
        "Rename the file old.txt to new.txt.",
        lambda end: end.read("new.txt") == "content\n" and not end.has("old.txt"),
    ),
    "delete": Task(
        "several files", "Delete the file junk.tmp.", lambda end: not end.has("junk.tmp")
    ),
    "copy": Task(
        "several files",
        "Copy version.txt to the new folder release.",
        lambda end: end.read("release/version.txt") == "3.7.1\n" and end.has("version.txt"),
    ),
    "symbol": Task(
        "several files",
        "Rename the function greet in src/names.py to welcome, also where src/main.py uses it.",
        lambda end: (
            end.prints("src/main.py") == "Hello, Ann"
            and "greet" not in end.read("src/names.py") + end.read("src/main.py")
        ),
    ),
    "test": Task(
        "several files",
        "Write a file test_names.py that tests that greet('Bob') of src/names.py is 'Hello, Bob'.",
        lambda end: all(word in end.read("test_names.py") for word in ("Hello, Bob", "greet")),
    ),
    "total": Task(
        "several files",
        "Add up the units in data/sales.csv and write only the sum into the file total.txt.",
        lambda end: end.read("total.txt").strip() == "49",
    ),
    "list": Task(
        "find and answer",
        "List the files in the directory data.",
        _says("sales.csv", "people.csv"),
    ),
    "read": Task("find and answer", "What is the content of the file version.txt?", _says("3.7.1")),
    "name": Task("find and answer", "Which function is defined in src/names.py?", _says("greet")),
    "run": Task(
        "find and answer", "Run the command: python3 calc.py and say what it prints.", _says("42")
    ),
    "grep": Task("find and answer", "Which file contains the word PENDING?", _says("notes.md")),
    "class": Task(
        "find and answer",
        "Which file defines the class Square?",
        _says("shapes.py"),
    ),
    "age": Task("find and answer", "How old is Bob? It is in a file in data.", _says("45")),
}  # fmt: skip


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def reset(project: Path) -> None:
    """Replace the project by a new one."""
    shutil.rmtree(project)
    for name, text in FILES.items():
        file = project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)


def play(place: Place, url: str, variant: str, task: Task) -> Row:
    """Run one task; return the figures and how it ended."""
    reset(place.project)
    began = time.monotonic()
    run = (
        _alone(place.project, url, task.words)
        if variant == "alone"
        else _with(place, url, variant, task.words)
    )
    seconds = time.monotonic() - began
    try:
        solved = task.is_solved(End(place.project, run["answer"]))
    except (OSError, subprocess.TimeoutExpired):
        solved = False
    return {**run, "seconds": round(seconds, 1), "solved": solved}


def _with(place: Place, url: str, preset: str, words: str) -> Row:
    known = set(place.logs())
    arguments = [
        "--model", f"llamacpp/{QWEN.name}", "--preset", preset,
        "--context-window", str(WINDOW), "--max-tokens", str(MAX_TOKENS),
        "--max-turns", str(MAX_CALLS), "--permission-mode", "bypass",
        "-p", words, "--output-format", "json",
    ]  # fmt: skip
    env = place.environ({"LLAMACPP_BASE_URL": f"{url}/v1"})
    pipe = subprocess.PIPE
    with place.start(*arguments, env=env, stdout=pipe, stderr=pipe) as process:
        try:
            out, err = process.communicate(timeout=RUN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            out = '{"status": "time"}'
    said = _json(out)
    entries = [
        json.loads(line)
        for log in place.logs()
        if log not in known
        for line in log.read_text("utf-8").splitlines()
    ]
    replies = [entry for entry in entries if entry["kind"] == "assistant"]
    blocks = [block for entry in replies for block in entry["content"]]
    usage = [entry["usage"] for entry in replies]
    message = str((said.get("error") or {}).get("message", "" if said else err))
    return {
        "answer": str(said.get("result") or ""),
        "status": f"{said.get('status', 'no output')}: {message[-200:]}",
        "calls": [[b["name"], b["input"]] for b in blocks if b["type"] == "tool_use"],
        "replies": len(replies),
        "prefilled": sum(each["input"] for each in usage),
        "written": sum(each["output"] for each in usage),
    }


ALONE = "You are a coding agent in the user's project directory. Use the tools to do the task."
_TEXT = {"type": "string"}


def _tool(name: str, description: str, *fields: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": dict.fromkeys(fields, _TEXT),
        "required": list(fields),
    }
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


ALONE_TOOLS = (
    _tool("Bash", "Run a command in the project directory.", "command"),
    _tool("Write", "Write a file.", "path", "content"),
)


def _alone(project: Path, url: str, words: str) -> Row:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": ALONE}, {"role": "user", "content": words}
    ]  # fmt: skip
    row: Row = {
        "answer": "", "status": "limit", "calls": [], "replies": 0, "prefilled": 0, "written": 0
    }  # fmt: skip
    for _ in range(MAX_CALLS):
        try:
            reply = ask(url, messages, tools=ALONE_TOOLS, max_tokens=MAX_TOKENS)
        except HTTPError as error:
            row["status"] = f"error: HTTP {error.code}"
            break
        row["replies"] += 1
        row["prefilled"] += reply.prefilled
        row["written"] += reply.written
        messages.append(reply.message())
        if not reply.calls:
            row["answer"], row["status"] = reply.text, "ok"
            break
        for call in reply.calls:
            name, given = call["function"]["name"], _json(call["function"]["arguments"])
            row["calls"].append([name, given])
            result = _result(project, name, given)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return row


def _result(project: Path, name: str, given: Mapping[str, Any]) -> str:
    """Run a call of the baseline."""
    try:
        if name == "Write":
            file = project / str(given["path"])
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(str(given["content"]))
            return "written"
        command = ["bash", "-c", str(given["command"])]
        ran = subprocess.run(
            command, cwd=project, capture_output=True, text=True, timeout=60,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (KeyError, OSError, subprocess.TimeoutExpired) as error:
        return f"error: {error!r}"
    return (ran.stdout + ran.stderr)[:4_000] or f"(no output, exit code {ran.returncode})"


def failure(row: Row) -> str:
    """Return why a run did not solve its task, or ""."""
    if row["solved"]:
        return ""
    status = row["status"]
    if not status.startswith("ok"):
        return str(status.partition(":")[0])
    if not row["calls"]:
        return "no call"
    return "wrong"


def measure(
    results: Results, clock: Clock, variants: Sequence[str], seeds: int, threads: int
) -> None:
    """Run what is not in the results yet: all variants of a task side by side, seed by seed."""
    with tempfile.TemporaryDirectory(prefix="ctxagent-real-") as folder:
        place = Place(Path(folder))
        for seed in range(1, seeds + 1):
            missing = [
                (variant, name)
                for name in TASKS
                for variant in variants
                if not results.has(variant=variant, task=name, seed=seed)
            ]
            if not missing or not clock.has_time():
                continue
            with served(QWEN, WINDOW, threads, seed) as url:
                # The server keeps the beginnings of several prompts, so variants can alternate.
                for variant, name in missing:
                    if not clock.has_time():
                        break
                    row = play(place, url, variant, TASKS[name])
                    row = {"variant": variant, "task": name, "seed": seed, **row}
                    results.add(row)
                    outcome = "solved" if row["solved"] else failure(row)
                    print(
                        f"{variant} {name} {seed}: {outcome}, {row['seconds']:.0f} s",
                        file=sys.stderr, flush=True,
                    )  # fmt: skip


def report(results: Results, variants: Sequence[str]) -> Iterator[Row]:
    """Yield a row of figures for each variant."""
    for variant in variants:
        rows = results.select(variant=variant)
        if not rows:
            continue
        solved = sum(row["solved"] for row in rows)
        low, high = interval(solved, len(rows))
        kinds = {
            kind: [row["solved"] for row in rows if TASKS[row["task"]].kind == kind]
            for kind in dict.fromkeys(task.kind for task in TASKS.values())
        }
        failures = Counter(map(failure, rows))
        del failures[""]
        yield {
            "variant": variant,
            "runs": len(rows),
            "solved of 20": 20 * solved / len(rows),
            "95 %": f"{20 * low:.1f}–{20 * high:.1f}",
            **{kind: f"{sum(done)}/{len(done)}" for kind, done in kinds.items()},
            "calls": sum(len(row["calls"]) for row in rows) / len(rows),
            "prefilled": sum(row["prefilled"] for row in rows) / len(rows),
            "written": sum(row["written"] for row in rows) / len(rows),
            "seconds": sum(row["seconds"] for row in rows) / len(rows),
            "failures": ", ".join(f"{kind} {n}" for kind, n in failures.most_common()),
        }
