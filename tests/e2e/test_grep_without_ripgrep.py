"""Grep in a project that contains the environment of the program: commands can write to its
ripgrep, so the search in Python replaces it.
"""

import json
import shutil
import venv
from collections.abc import Sequence
from pathlib import Path
from sysconfig import get_path
from typing import Any

import pytest

from ..support.command import Place
from ..support.machine import Kind, every_sandbox, under

SEARCHES: Sequence[dict[str, Any]] = (
    {"pattern": r"\bneedle\b", "output_mode": "content", "context": 1},
    {"pattern": "(?<=a )needle", "output_mode": "count"},
    {"pattern": "NEEDLE", "ignore_case": True, "type": "py"},
    {"pattern": "needle", "glob": "!src"},
    {"pattern": r"one\nneedle", "multiline": True, "output_mode": "content"},
    {"pattern": "nothing"},
    {"pattern": "needle", "path": "src/a.py"},
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A project with some files, and with an environment whose ripgrep leaves a mark."""
    place = Place(tmp_path)
    files = {
        ".gitignore": ".venv/\n*.log\n",
        "src/a.py": "one\nneedle\nno needles\n",
        "src/b.txt": "a needle, é\n",
        ".hidden/c.txt": "needle\n",
        "d.log": "needle\n",
    }
    for name, text in files.items():
        (place.project / name).parent.mkdir(exist_ok=True)
        (place.project / name).write_text(text)
    home = place.project / ".venv"
    venv.create(home, symlinks=True, with_pip=False)
    (home / "bin/rg").write_text(f"#!/bin/sh\necho ran > {tmp_path}/mark\nexit 1\n")
    (home / "bin/rg").chmod(0o755)
    packages = next((home / "lib").glob("python*/site-packages"))
    own = f"import site; site.addsitedir({get_path('purelib')!r})\n"
    (packages / "dependencies.pth").write_text(own)
    return place


def results(place: Place, command: Sequence[str]) -> list[Any]:
    """Run a session that makes all the searches. Return the results for the model."""
    script = place.root / "script.json"
    tools = [{"name": "Grep", "input": search} for search in SEARCHES]
    script.write_text(json.dumps({"steps": [{"tools": tools}, {"text": "done"}]}))
    shutil.rmtree(place.state, ignore_errors=True)
    done = place.run("-p", "look", "--model", f"scripted:{script}", command=command)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    found = [each for each in place.entries() if each["kind"] == "tool_result"]
    return [each["content"] for each in sorted(found, key=lambda each: str(each["tool_use_id"]))]


@every_sandbox
@pytest.mark.slow
def test_the_results_are_the_same(place: Place, kind: Kind) -> None:
    folder = place.project / ".venv/bin"
    found = results(place, under(kind, python=f"{folder}/python"))
    assert found == results(place, under(kind))
    assert len(found) == len(SEARCHES)
    assert "src/a.py:2:needle" in json.dumps(found)
    assert not (place.root / "mark").exists()


@pytest.mark.slow
def test_the_doctor_names_the_search_in_python(place: Place) -> None:
    folder = place.project / ".venv/bin"
    said = place.run("doctor", command=under("none", python=f"{folder}/python")).stdout
    assert "search: Python: /" in said
    assert f"{folder}/rg is not used: commands may write there" in said
