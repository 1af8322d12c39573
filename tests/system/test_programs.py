"""The agent never starts a program that a command could have created."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ctxagent.agent.features.environment import environment_text
from ctxagent.agent.security.sandbox_paths import project_folders, writable_folders
from ctxagent.agent.worktree import WorkTree
from ctxagent.agent.worktree.git import safe_git_environment
from ctxagent.tools.base import Context
from ctxagent.tools.bash import BashParams, BashTool
from ctxagent.tools.grep import GrepParams, GrepTool
from ctxagent.tools.search import installed
from ctxagent.tools.system.child import child
from ctxagent.tools.system.program_copy import ProgramCopy
from ctxagent.tools.system.programs import describe_program, distrust, own_environment, program
from ctxagent.tools.system.project_files import list_files

from ..support.command import Place
from ..support.ripgreps import PROGRAM

PROGRAMS = ("git", "rg", "bash", "sh")


def plant(folder: Path, mark: Path) -> str:
    """Programs named like the agent's, which leave a mark, in a folder for the PATH."""
    folder.mkdir(parents=True)
    for name in PROGRAMS:
        real = shutil.which(name) or "/bin/false"
        (folder / name).write_text(f'#!/bin/sh\necho "$0" >> {mark}\nexec {real} "$@"\n')
        (folder / name).chmod(0o755)
    return str(folder)


def project(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "a.txt").write_text("needle\n")
    subprocess.run(["git", "init", "-q", folder], check=True)
    return folder


@pytest.mark.slow
def test_none_comes_from_where_commands_write(tmp_path: Path) -> None:
    mark, cwd = tmp_path / "mark", project(tmp_path / "project")
    planted = plant(tmp_path / "written" / "bin", mark)
    (tmp_path / "link").symlink_to(planted)
    (tmp_path / "links").mkdir()
    for name in PROGRAMS:
        (tmp_path / "links" / name).symlink_to(tmp_path / "written" / "bin" / name)
    path = ":".join((planted, f"{tmp_path}/link", f"{tmp_path}/links", os.environ["PATH"]))
    env = {"PATH": path, "HOME": str(tmp_path)}
    assert program("git", path) == f"{planted}/git"
    asyncio.run(list_files(cwd, env=env))
    assert mark.read_text()  # it would be run, if this folder were not told of:
    mark.unlink()
    distrust([str(tmp_path / "written")])

    async def path_of_a_child() -> str:
        script = "import os; print(os.environ['PATH'])"
        async with child([sys.executable, "-c", script], cwd=cwd, env=env) as started:
            said = await started.out.read()
            await started.end()
        return said.decode()

    assert asyncio.run(list_files(cwd, env=env)).paths == ["a.txt"]
    found = GrepTool().run(GrepParams(pattern="needle"), Context(cwd, env=env))
    assert "a.txt" in asyncio.run(found).text
    assert "Changed files" in environment_text(cwd, env)
    assert WorkTree(cwd, store=tmp_path / "s", index=tmp_path / "i", env=env).snapshot("one").tree
    assert planted not in safe_git_environment(cwd, env)["PATH"]
    assert planted not in asyncio.run(path_of_a_child())
    context = Context(cwd, session_dir=tmp_path / "session", env=env)
    assert asyncio.run(BashTool().run(BashParams(command="echo $0"), context)).text != planted
    assert not mark.exists()


def test_one_that_is_found_nowhere_else_is_absent(tmp_path: Path) -> None:
    planted = plant(tmp_path / "bin", tmp_path / "mark")
    distrust([planted])
    for path in (planted, f"{tmp_path}/project/../bin", "", ".", "bin"):
        assert program("git", path) == ""
    assert describe_program("git", planted) == (
        f"{planted}/git is not used: commands may write there"
    )
    assert own_environment({"PATH": planted})["PATH"] == os.defpath


def test_the_doctor_says_which_program_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ctxagent.addons.doctor import setup

    planted = plant(tmp_path / "scripts", tmp_path / "mark")
    monkeypatch.setattr("sysconfig.get_path", lambda name: planted)
    assert setup._search("/nonexistent").found == f"ripgrep: {planted}/rg"
    monkeypatch.setattr("sysconfig.get_path", lambda name: "/nonexistent")
    assert setup._search(planted).found == f"ripgrep: {planted}/rg"
    distrust([planted])
    found = setup._search(planted)
    assert found.note
    assert found.found == (
        f"the tool Grep is off: {planted}/rg is not used: commands may write there. "
        "Install ripgrep from your system's packages"
    )
    assert "off: ripgrep is not installed. " in setup._search("/nonexistent").found


def test_only_a_ripgrep_that_commands_can_change_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only the one that is installed with this program, at most once."""
    folder, copied = tmp_path / "scripts", list[Path]()
    folder.mkdir()
    shutil.copy(PROGRAM, folder)

    def copy(source: Path, _: Path) -> ProgramCopy:
        copied.append(source)
        return ProgramCopy("x")

    monkeypatch.setattr("sysconfig.get_path", lambda name: str(folder))
    monkeypatch.setattr(installed, "copy_program", copy)
    for _ in range(2):
        installed.keep_ripgrep(tmp_path)
    assert copied == []
    found = installed.find_ripgrep(None)
    assert found
    assert found.copy is None
    distrust([str(folder)])
    for _ in range(2):
        installed.keep_ripgrep(tmp_path)
    assert copied == [folder / "rg"]
    found = installed.find_ripgrep(str(folder))
    assert found
    assert found.copy == ProgramCopy("x")
    other = tmp_path / "other"
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(other))
    assert installed.find_ripgrep(str(folder)) is None


def test_what_commands_may_write_to(tmp_path: Path) -> None:
    """Includes folders that do not exist yet. A home or the whole system as the project is only
    partly writable.
    """
    home, cwd = tmp_path / "home", project(tmp_path / "project")
    (home / "work").mkdir(parents=True)
    environ = {"HOME": str(home), "TMPDIR": "/elsewhere"}
    folders = writable_folders(str(cwd), environ, [Path("~/data"), Path("/data")])
    assert {
        "/tmp", "/var/tmp", "/elsewhere", f"{home}/data", "/data", str(cwd), f"{cwd}/.git",
    } <= set(folders)  # fmt: skip
    assert project_folders(str(home), environ) == [f"{home}/work"]
    assert project_folders("/", environ) == []
    assert "/" not in writable_folders("/", environ)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "off"])
def test_what_a_repository_ships_is_not_ours(tmp_path: Path, mode: str) -> None:
    """Also from a folder in it and, in a home, from folders that are created later."""
    mark, top = tmp_path / "mark", project(tmp_path / "repo")
    shipped = plant(top / "bin", mark)
    (top / "deep").mkdir()
    code = (
        "import sys; from pathlib import Path\n"
        "from ctxagent.agent.security.sandbox_paths import distrust_writable_folders\n"
        "from ctxagent.agent.config.settings import SandboxSettings\n"
        "from ctxagent.tools.system.programs import program\n"
        f"environ = {{'HOME': {str(tmp_path / 'home')!r}, 'PATH': {shipped!r}}}\n"
        f"settings, state = SandboxSettings(mode={mode!r}), Path('/nonexistent')\n"
        "distrust_writable_folders(settings, Path(sys.argv[1]), environ, state)\n"
        "print([program('git', folder) for folder in sys.argv[2:]])\n"
    )
    (tmp_path / "home").mkdir()

    def found(cwd: Path, *folders: str) -> str:
        command = [sys.executable, "-c", code, str(cwd), *folders]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert found(tmp_path / "home", shipped) == (f"['{shipped}/git']" if mode == "off" else "['']")
    assert found(top / "deep", shipped) == "['']"
    late = plant(tmp_path / "home" / "made-later" / "bin", mark)
    assert found(tmp_path / "home", late) == "['']"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "off"])
def test_the_real_command(tmp_path: Path, mode: str) -> None:
    """From its first git on."""
    place, mark = Place(tmp_path), tmp_path / "mark"
    project(place.project)
    path = ":".join([plant(place.project / ".venv/bin", mark), os.environ["PATH"]])
    if mode == "auto":
        path = f"{plant(tmp_path / 'tools', mark)}:{path}"
    steps = [
        {"tools": [{"name": "Glob", "input": {"pattern": "*.txt"}},
                   {"name": "Grep", "input": {"pattern": "needle"}}]},
        {"text": "done"},
    ]  # fmt: skip
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"steps": steps}))
    options = ("--model", f"scripted:{script}", "-c", f"sandbox.mode={mode}")
    done = place.run("-p", "look", *options, env=place.environ({"PATH": path}))
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert sum("a.txt" in str(each) for each in place.entries()) >= 2
    assert not mark.exists(), mark.read_text()
