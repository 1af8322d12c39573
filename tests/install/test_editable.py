"""The editable install, as `make` makes it: type checkers find the package."""

import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

import pytest

from ..support.command import PATIENCE

PROGRAM = """from ctxagent import Agent

reveal_type(Agent(".").run("Do it."))
"""


@pytest.mark.full
@pytest.mark.slow
def test_mypy_finds_the_package(tmp_path: Path) -> None:
    names = {path.name for path in files("ctxagent") or ()}
    if not any(name.startswith("__editable__") for name in names):
        pytest.skip("the package is not installed as an editable one")
    assert "ctxagent.pth" in names
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout
    assert 'Revealed type is "ctxagent.agent.library.agent.AgentRun"' in done.stdout
