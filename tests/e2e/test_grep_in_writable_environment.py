"""Grep in a project that contains the environment of the program. Commands can write to the
ripgrep there, so the agent searches with the copy that it made at its start.
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
from ..support.machine import NO_PROGRAMS_IN_MEMORY, Kind, every_sandbox, under
from ..support.ripgreps import PROGRAM
from ..support.server.loopback import Say, Server

Call = tuple[str, dict[str, Any]]
SEARCHES: Sequence[Call] = (
    ("Grep", {"pattern": r"\bneedle\b", "output_mode": "content", "context": 1}),
    ("Grep", {"pattern": "(?<=a )needle", "output_mode": "count"}),
    ("Grep", {"pattern": "NEEDLE", "ignore_case": True, "type": "py"}),
    ("Grep", {"pattern": "needle", "glob": "!src"}),
    ("Grep", {"pattern": r"one\nneedle", "multiline": True, "output_mode": "content"}),
    ("Grep", {"pattern": "nothing"}),
    ("Grep", {"pattern": "needle", "path": "src/a.py"}),
)


# Replaces ripgrep, by a file of its own and in place, and shows the new file.
REPLACE = (
    "printf '#!/bin/sh\\necho ran > {mark}\\n' > own && chmod 755 own && {put} && cat .venv/bin/rg"
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A project with some files, and with an environment in it."""
    place = Place(tmp_path)
    files: dict[str, bytes] = {
        ".gitignore": b".venv/\n*.log\n",
        "src/a.py": b"one\nneedle\nno needles\n",
        "src/b.txt": "a needle, é\n".encode(),
        "src/old.txt": "a needle, café\n".encode("latin-1"),
        ".hidden/c.txt": b"needle\n",
        "d.log": b"needle\n",
    }
    for name, content in files.items():
        (place.project / name).parent.mkdir(exist_ok=True)
        (place.project / name).write_bytes(content)
    home = place.project / ".venv"
    venv.create(home, symlinks=True, with_pip=False)
    shutil.copy(PROGRAM, home / "bin/rg")
    packages = next((home / "lib").glob("python*/site-packages"))
    own = f"import site; site.addsitedir({get_path('purelib')!r})\n"
    (packages / "dependencies.pth").write_text(own)
    return place


def own_python(place: Place) -> str:
    return f"{place.project}/.venv/bin/python"


def run(place: Place, calls: Sequence[Call], command: Sequence[str]) -> list[Any]:
    """Run a session that makes the calls, one after the other. Return the results for the model."""
    script = place.root / "script.json"
    steps = [{"tools": [{"name": name, "input": given}]} for name, given in calls]
    script.write_text(json.dumps({"steps": [*steps, {"text": "done"}]}))
    shutil.rmtree(place.state, ignore_errors=True)
    options = ("--permission-mode", "bypass", "--model", f"scripted:{script}")
    done = place.run("-p", "look", *options, command=command)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    return [each["content"] for each in place.entries() if each["kind"] == "tool_result"]


@every_sandbox
@pytest.mark.slow
def test_the_results_are_the_same(place: Place, kind: Kind) -> None:
    found = run(place, SEARCHES, under(kind, own_python(place)))
    assert found == run(place, SEARCHES, under(kind))
    assert "src/a.py:2:needle" in json.dumps(found)


@every_sandbox
@pytest.mark.slow
@pytest.mark.parametrize(
    ("put", "without"),
    [("mv -f own .venv/bin/rg", ""), ("cat own > .venv/bin/rg", NO_PROGRAMS_IN_MEMORY)],
)
def test_a_command_that_replaces_ripgrep_changes_no_search(
    place: Place, kind: Kind, put: str, without: str
) -> None:
    mark = place.root / "mark"
    replace = REPLACE.format(mark=mark, put=put)
    changed, *found = run(
        place, [("Bash", {"command": replace}), *SEARCHES], under(kind, own_python(place), without)
    )
    assert f"echo ran > {mark}" in str(changed)
    assert (place.project / ".venv/bin/rg").read_text().startswith("#!/bin/sh")
    assert "src/a.py:2:needle" in json.dumps(found)
    assert not mark.exists()
    copies = [path.name.partition("-")[0] for path in place.state.glob("programs/*")]
    assert copies == (["rg"] if without else [])


@pytest.mark.slow
def test_the_doctor_names_the_copy(place: Place) -> None:
    rg = f"{place.project}/.venv/bin/rg"
    said = place.run("doctor", command=under("none", own_python(place))).stdout
    why = "because commands may write there"
    assert f"search: ripgrep: a copy in memory of {rg}, {why}\n" in said
    said = place.run("doctor", command=under("none", own_python(place), NO_PROGRAMS_IN_MEMORY))
    assert f"search: ripgrep: a copy in {place.state}/programs/rg-" in said.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "ripgrep is not installed"),
        ("#!/bin/sh\n", "{project}/.venv/bin/rg cannot be copied: it is a script"),
    ],
)
def test_without_ripgrep_there_is_no_grep(place: Place, content: str | None, why: str) -> None:
    rg = place.project / ".venv/bin/rg"
    rg.unlink()
    if content is not None:
        rg.write_text(content)
        rg.chmod(0o755)
    command = under("none", own_python(place))
    with Server([Say("done")]) as server:
        env = {**place.server(server.url), "PATH": "/nonexistent"}
        done = place.run("-p", "look", env=env, command=command)
    said = f"the tool Grep is off: {why.format(project=place.project)}. Install ripgrep"
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert said in done.stderr
    names = [tool["name"] for tool in server.requests[0]["tools"]]
    assert "Glob" in names
    assert "Grep" not in names
    assert f"search: {said}" in place.run("doctor", env=env, command=command).stdout


@pytest.mark.slow
def test_many_files_in_other_encodings_need_few_descriptors(place: Place) -> None:
    for number in range(150):
        (place.project / f"src/{number:03}.txt").write_bytes("a café\n".encode("latin-1"))
    call = ("Grep", {"pattern": "café", "output_mode": "count"})
    limited = ["bash", "-c", 'ulimit -n 120; exec "$@"', "-", *under("none", own_python(place))]
    (found,) = run(place, [call], limited)
    assert "[matches: 151, files: 151]" in found


@pytest.mark.slow
def test_the_standard_streams_may_be_closed(place: Place) -> None:
    script = place.root / "script.json"
    call = {"name": "Grep", "input": {"pattern": "needle|café", "output_mode": "count"}}
    script.write_text(json.dumps({"steps": [{"tools": [call]}, {"text": "done"}]}))
    closed = ["bash", "-c", 'exec "$@" <&- >&- 2>&-', "-", *under("none", own_python(place))]
    place.run("-p", "look", "--model", f"scripted:{script}", command=closed)
    (found,) = (each["content"] for each in place.entries() if each["kind"] == "tool_result")
    assert "[matches: 5, files: 4]" in found
