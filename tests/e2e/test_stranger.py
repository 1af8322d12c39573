"""A package of a stranger: a front end, a layer and a recording format from the api alone."""

import ast
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from ..support import stranger
from ..support.command import AS_MODULE, PATIENCE, PIPE, Place
from .test_compact import KEEP_LITTLE, RECORD
from .test_extensions import EXAMPLES

FILES = Path(stranger.__file__).parent
MAX_FRONT_END_LINES = 100
POINTS = """[ctxagent.commands]
rpc = stranger.rpc:command
say = say:command

[ctxagent.extensions]
stale = stranger.stale:StaleFeature
diary = stranger.diary:DiaryFeature
"""
WRITE = {"tools": [{"name": "Bash", "input": {"command": "printf hi > new.txt"}}]}
WAIT = {"tools": [{"name": "Bash", "input": {"command": "sleep 300"}}]}


class Installed(Place):
    """A place in whose Python environment the package of the stranger is installed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        packages = self.root / "packages"
        shutil.copytree(FILES, packages / "stranger")
        (packages / "say.py").write_text(EXAMPLES["say.py"])
        about = packages / "stranger-1.0.dist-info"
        about.mkdir()
        (about / "entry_points.txt").write_text(POINTS)

    def environ(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return super().environ({"PYTHONPATH": str(self.root / "packages"), **(more or {})})

    def script(self, *steps: Mapping[str, Any]) -> tuple[str, str]:
        """Return the options of a model that replies with these steps."""
        path = self.root / "script.json"
        path.write_text(json.dumps({"steps": steps, "summary": {"text": RECORD}}))
        return "--model", f"scripted:{path}"


@pytest.fixture
def place(tmp_path: Path) -> Installed:
    return Installed(tmp_path)


class Client:
    """A program that uses the front end. It allows each call that needs permission."""

    def __init__(self, process: "Popen[Any]") -> None:
        self._process, self._calls = process, 0
        self.asked: list[str] = []  # titles of calls
        self.seen: Counter[str] = Counter()  # types of events
        self.answers: dict[int, dict[str, Any]] = {}
        self.interrupts = ""  # the session to interrupt when a tool has started

    def call(self, method: str, **params: Any) -> Any:
        """Return the result of a method, or the message of its error."""
        number = self.start(method, **params)
        self.read_until(lambda: number in self.answers)
        answer = self.answers[number]
        return answer["result"] if "result" in answer else answer["error"]["message"]

    def start(self, method: str, **params: Any) -> int:
        self._calls += 1
        self._write(id=self._calls, method=method, params=params)
        return self._calls

    def read_until(self, is_enough: Callable[[], bool]) -> None:
        assert self._process.stdout is not None
        while not is_enough():
            self._take(json.loads(self._process.stdout.readline()))

    def _take(self, message: dict[str, Any]) -> None:
        kind, params = message.get("method"), message.get("params", {})
        if kind is None:
            self.answers[message["id"]] = message
        elif kind == "ask":
            self.asked.append(params["title"])
            self._write(id=message["id"], result={"allow": True})
        else:
            self.seen[params["type"]] += 1
            if params["type"] == "tool_started" and self.interrupts:
                self.start("interrupt", session=self.interrupts)
                self.interrupts = ""

    def _write(self, **message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()


@contextmanager
def front_end(place: Installed, *options: str) -> Iterator[Client]:
    with place.start(
        *options, "rpc", command=AS_MODULE, env=place.environ(), stdin=PIPE, stdout=PIPE
    ) as process:
        try:
            yield Client(process)
            process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0


def run(place: Installed, *arguments: str, text: str | None = None) -> str:
    """Return the output of a command that ends well."""
    with place.start(
        *arguments, command=AS_MODULE, env=place.environ(), stdin=PIPE, stdout=PIPE, stderr=PIPE
    ) as process:
        out, err = process.communicate(text, timeout=PATIENCE)
    assert process.returncode == 0, err
    return str(out)


def imported(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "" if not node.level else f"its own {node.module}"


def test_it_imports_the_api_alone() -> None:
    allowed = {*sys.stdlib_module_names, "click"}
    files = sorted(FILES.glob("*.py"))
    assert [path.stem for path in files] == ["__init__", "diary", "rpc", "stale"]
    for path in files:
        for module in imported(path):
            is_api = module.startswith("ctxagent.api.")
            assert is_api or module.partition(".")[0] in allowed, f"{path.name}: {module}"
    assert len((FILES / "rpc.py").read_text().splitlines()) <= MAX_FRONT_END_LINES


@pytest.mark.slow
def test_the_front_end(place: Installed) -> None:
    written = " ".join(f"Line {number} is written." for number in range(1_000))
    model = place.script(WRITE, {"text": written}, {"text": "Well."}, WAIT)
    with front_end(place, *model, *KEEP_LITTLE) as client:
        session = client.call("open", folder=str(place.project))
        first = client.call("send", session=session, text="write a file")
        assert (first["status"], first["result"]) == ("ok", written)
        assert client.asked == ["printf hi > new.txt"]
        assert (place.project / "new.txt").read_text() == "hi"
        assert client.call("send", session=session, text="well?")["result"] == "Well."
        compacted = client.call("compact", session=session, words="mind the file")
        assert "compacted: " in compacted["result"], compacted["error"]
        assert client.seen["compacted"] == 1
        client.interrupts = session
        assert client.call("send", session=session, text="wait")["status"] == "interrupted"
        assert client.call("interrupt", session=session) is False
        assert client.call("close", session=session) is None
        assert "no open session" in client.call("send", session=session, text="more")
        assert client.call("open", folder=str(place.project), resume=session) == session
        assert client.call("send", session=session, text="again")["status"] == "ok"
    assert client.seen["session_opened"] == 2
    kinds = Counter(entry["kind"] for entry in place.entries())
    assert kinds["summary"] == 1


@pytest.mark.slow
def test_the_end_of_the_input_ends_the_sessions(place: Installed) -> None:
    with front_end(place, *place.script(WAIT)) as client:
        client.call("open", folder=str(place.root))
        session = client.call("open", folder=str(place.project))
        client.start("send", session=session, text="wait")
        client.read_until(lambda: client.seen["tool_started"] > 0)
    ends = [entry["status"] for entry in place.entries() if entry["kind"] == "end"]
    assert ends == ["interrupted"]


@pytest.mark.slow
def test_the_layer_acts_when_it_pays(place: Installed) -> None:
    commands = [f"seq {1_000 * number} {1_000 * number + 700}" for number in range(20)]
    steps = [{"tools": [{"name": "Bash", "input": {"command": each}}]} for each in commands]
    model = place.script(*steps, {"text": "Counted."})
    allowed = ("--context-window", "100000", "--allow", "Bash(seq:*)")
    assert run(place, *model, *allowed, "-p", "count") == "Counted.\n"
    masks = [entry for entry in place.entries() if entry["kind"] == "mask"]
    cleared = [each for each in masks if each["layer"] == "stale"]
    assert {each["trigger"] for each in cleared} == {"it pays"}
    stubs = [target["stub"] for mask in cleared for target in mask["targets"]]
    assert all(stub.startswith("[stale; Recall #") for stub in stubs)
    replaced = [one["tool_use_id"] for mask in masks for one in mask["targets"] if "stub" in one]
    assert len(replaced) == len({*replaced})  # no other layer replaces the same result


@pytest.mark.slow
def test_the_recording_format(place: Installed) -> None:
    looks = {"id": "1", "tool": "Bash", "input": {"command": "ls"}, "output": "a.txt"}
    rows = [
        {"diary": "start", "cwd": str(place.project)},
        {"diary": "user", "text": "What is here?"},
        {"diary": "agent", "text": "I look.", "model": "m", "calls": [looks]},
        {"diary": "agent", "text": "A file."},
    ]
    recording = place.project / "diary.jsonl"
    recording.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    report = json.loads(run(place, "replay", "--json", str(recording)))
    assert "diary" in json.dumps(report)
    model = place.script({"text": "Going on."})
    assert run(place, *model, "--from-recording", str(recording), "-p", "go on") == "Going on.\n"
    results = [entry for entry in place.entries() if entry["kind"] == "tool_result"]
    assert [each["content"] for each in results] == ["a.txt"]


@pytest.mark.slow
def test_the_front_end_in_the_guide(place: Installed) -> None:
    out = run(place, *place.script(WRITE, {"text": "Done."}), "say", "write a file", text="y\n")
    assert out == "Bash printf hi > new.txt? [y/N]: Done."
    assert (place.project / "new.txt").read_text() == "hi"
