"""Count the approval questions that commands of recorded sessions raise, by permission mode.

    .venv/bin/python benchmarks/questions.py [FILE or FOLDER...] [--size full|quick|tiny]

Each FILE is a session that `ctxagent replay` reads; by default, example commands are judged. The
first 131 distinct Bash commands are judged one by one with the real rules, as if their files
existed: the recorded project becomes an empty project, and paths that commands name in other homes
become folders. Nothing runs, so hidden needs of a command, which the sandbox would prevent, are not
counted.
"""

import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import measure

from ctxagent.addons.replay.formats import load_recording
from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.recordings.recording import RecordedReply, Recording
from ctxagent.agent.recordings.tool_names import translate
from ctxagent.tools.bash import BashParams, BashTool

COMMANDS = 131
MODES = ("ask", "accept-edits", "sandboxed")
OWN = ("pytest -q", "git status", "npm install", "python3 -c 'print(1)'", "git push", "make test")
SIZES: dict[str, dict[str, Any]] = {"full": {}, "quick": {}, "tiny": {}}
_HOME = re.compile(r"/(?:home|Users|root)/[\w./@+-]+")


class OpenSandbox:
    """Fake sandbox with the paths of a real one: the project and the real folder for temporary
    files.
    """

    unasked_absent = absent = ""
    required = by_name = False

    def __init__(self, project: Path) -> None:
        self._project = os.path.realpath(project)

    def can_write(self, path: str) -> bool:
        elsewhere = self._project.rpartition("/project")[0]
        within = path == self._project or path.startswith(f"{self._project}/")
        return within or (path.startswith("/tmp/") and not path.startswith(elsewhere))

    def can_read(self, path: str) -> bool:
        return True

    def moved(self, path: str) -> str:
        return path


def commands(recording: Recording) -> Iterator[str]:
    """Yield the commands of a recording, with `PROJECT` in place of its project's path."""
    calls = [c for s in recording.steps if isinstance(s, RecordedReply) for c in s.calls]
    translated = [translate(call) for call in calls]
    named = [match for each in translated for match in _HOME.findall(str(each.input))]
    above = Counter("/".join(path.split("/")[:n]) for path in named for n in range(4, 7))
    root = max(above, key=lambda path: above[path] * (path.count("/") - 1), default="")
    for each in translated:
        if each.name == "Bash" and (command := str(each.input.get("command", "")).strip()):
            yield command.replace(root, "PROJECT") if root else command


def asked(command: str, mode: Any, folder: Path) -> bool:
    project = folder / "project"
    for path in _HOME.findall(command):
        (folder / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    text = _HOME.sub(lambda path: f"{folder}{path[0]}", command).replace("PROJECT", str(project))
    approval = Approval(mode=mode, cwd=project)
    approval.sandbox = OpenSandbox(project)  # type: ignore[assignment]
    approval.kernel_confines_read_only = lambda: True
    return approval.judge(BashTool(), BashParams(command=text)).action == "ask"


def main(files: Sequence[str] = ()) -> Iterator[measure.Table]:
    found = list(OWN)
    if files:
        folders = ((sorted(p.glob("*.gz")) if p.is_dir() else [p]) for p in map(Path, files))
        read = (commands(load_recording(file)) for folder in folders for file in folder)
        found = list(dict.fromkeys(command for each in read for command in each))
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(os.path.realpath(name))
        (folder / "project" / ".git").mkdir(parents=True)
        for mode in MODES:
            raised = [c for c in found[:COMMANDS] if asked(c, mode, folder)]
            rows[mode] = {"commands": len(found[:COMMANDS]), "questions": len(raised)}
            if os.environ.get("SHOW") == mode:
                print(*raised, sep="\n----\n")
    yield measure.Table("questions by mode", rows)


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES, "files"))
