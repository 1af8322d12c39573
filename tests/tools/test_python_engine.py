"""The process of the search in Python runs no code that a command could have written, and starts
quickly.
"""

import asyncio
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

from ctxagent.tools.base import Context
from ctxagent.tools.grep import GrepParams, GrepTool
from ctxagent.tools.search import python_engine as module
from ctxagent.tools.search.python_engine import PythonEngine
from ctxagent.tools.search.request import Search

# They need several milliseconds, in a search of about thirty.
SLOW = {"ast", "asyncio", "dataclasses", "inspect", "json", "pathlib", "subprocess", "typing"}


def modules_of_a_search(folder: Path, pattern: str) -> dict[str, str]:
    """Return the modules that a process has imported when it has searched, with their files."""
    engine = PythonEngine()
    search = Search(root=folder, pattern=pattern, mode="files")
    command = engine.command(search)
    *options, start = command.argv
    shown = "print({n: getattr(m, '__file__', '') for n, m in sys.modules.items()})"
    code = f"import atexit\natexit.register(lambda: {shown})\n{start}"
    done = subprocess.run([*options, code], input=command.given, cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = eval(done.stdout.rpartition(b"\0")[2])
    return found


@pytest.mark.slow
def test_all_modules_come_from_the_standard_library_or_from_memory(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("needle é\u0301\n")
    found = modules_of_a_search(tmp_path, r"(?<!x)\bneedle \p{L}|(?i)é")
    library = os.path.realpath(sysconfig.get_path("stdlib"))
    own = {name for name in found if name.startswith("ctxagent.")}
    assert {name.partition(".")[2] for name in own} == {*module._MODULES}
    others = {file for name, file in found.items() if file and name not in own}
    assert [file for file in others if not os.path.realpath(file).startswith(library)] == []
    assert [file for file in others if "site-packages" in file] == []
    assert [found[name] for name in own if found[name]] == []
    assert {*found} & SLOW == set()


@pytest.mark.slow
def test_modules_in_the_project_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("json.py", "re.py", "sitecustomize.py", "codecs.py", "ctxagent/__init__.py")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('raise SystemExit("hostile")\n')
    monkeypatch.setattr("ctxagent.tools.grep.search_engine", lambda path: PythonEngine())
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "PYTHONSTARTUP": "re.py"}
    params = GrepParams(pattern="SystemExit", output_mode="count")
    out = asyncio.run(GrepTool().run(params, Context(cwd=tmp_path, env=env)))
    assert out.details["files"] == len(names)


def test_the_interpreter_is_the_one_below_the_environment() -> None:
    engine = PythonEngine()
    assert engine.program == os.path.realpath(engine.program)
    assert engine.command(Search(root=Path(), pattern="x", mode="files")).argv[1:3] == ["-I", "-S"]
    done = subprocess.run(
        [engine.program, "-I", "-S", "-c", "import sys; print(sys.prefix == sys.base_prefix)"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "True\n"


def test_a_change_of_the_files_after_the_start_has_no_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def opened(*_: object) -> bytes:
        raise AssertionError("read again")

    module._compiled.cache_clear()
    monkeypatch.setattr(Path, "read_bytes", opened)
    assert [name.partition(".")[2] for name, _ in module._compiled()] == [*module._MODULES]
