"""Programs that a project plants under the names of read-only programs."""

import os
import subprocess
from pathlib import Path

import pytest

from ctxagent.agent.config.settings import PermissionMode
from ctxagent.agent.permissions.approval import Approval
from ctxagent.tools.bash import BashParams, BashTool
from ctxagent.tools.write import WriteParams, WriteTool

from ...support.command import Place
from ...support.server.loopback import Say, Server

# The PATH entry of the program's folder, and the folder in the project.
FOLDERS = {
    ".": "",
    "": "",
    "bin": "bin",
    ".venv/bin": ".venv/bin",
    "PROJECT/.venv/bin": ".venv/bin",
    "PROJECT/node_modules/.bin": "node_modules/.bin",
    "PROJECT/../project/tools": "tools",
    "LINK": "elsewhere",
}
COMMANDS = {
    "ls": "ls -l",
    "rg": "rg -n foo",
    "git": "git status",
    "bash": "bash --version",
    "tar": "tar --help",
    "timeout": "timeout 5 ls",
    "nice": "nice ls",
    "xargs": "git ls-files | xargs wc -l",
    "wc": "git ls-files | xargs wc -l",
    "find": "find . -name '*.py' -exec wc -l {} +",
    "sort": "ls | sort",
    "cat": "for f in a.py; do cat $f; done",
    "grep": "echo $(grep -n foo a.py)",
    "env": "env ls",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.py").write_text("foo\n")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


def plant(project: Path, name: str, folder: str) -> str:
    """Create a program in the project that leaves a mark, and return a PATH that finds it."""
    place = project / FOLDERS[folder]
    place.mkdir(parents=True, exist_ok=True)
    program = place / name
    program.write_text(f"#!/bin/sh\n: > {project}/ran\n")
    program.chmod(0o755)
    if folder == "LINK":
        link = project.parent / "outside"
        link.symlink_to(place)
        folder = str(link)
    return f"{folder.replace('PROJECT', str(project))}:{os.environ['PATH']}"


def judged(project: Path, path: str, command: str, mode: PermissionMode = "ask") -> str:
    params = BashParams.model_validate({"command": command})
    approval = Approval(cwd=project, mode=mode, path=path)
    approval.kernel_confines_read_only = lambda: True
    action = approval.judge(BashTool(), params).action
    # A read-only subagent may do no more.
    assert action == "allow" or approval.read_only_view().judge(BashTool(), params).action == "deny"
    return action


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize(("name", "command"), COMMANDS.items())
def test_it_is_asked_about(project: Path, name: str, command: str, folder: str) -> None:
    path = plant(project, name, folder)
    safe = os.environ["PATH"]
    # Without it on the PATH the command is read-only.
    assert judged(project, safe, command) == "allow"
    assert judged(project, path, command) == "ask"
    assert judged(project, path, command, "accept-edits") == "ask"
    assert judged(project, path, command, "plan") == "deny"
    # Without the check, bash runs it.
    subprocess.run(
        ["bash", "-c", command], cwd=project, env={**os.environ, "PATH": path}, check=False,
        stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip
    assert (project / "ran").exists()


@pytest.mark.parametrize("name", ["./timeout 5 ls", "./nice ls", "bin/find . -exec wc {} +"])
def test_a_name_with_a_folder_is_no_known_program(project: Path, name: str) -> None:
    assert judged(project, os.environ["PATH"], name) == "ask"
    assert judged(project, os.environ["PATH"], name, "plan") == "deny"


def test_later_path_folders_and_folders_without_the_program_are_ignored(project: Path) -> None:
    path = plant(project, "rg", "PROJECT/.venv/bin")
    assert judged(project, path, "ls -l") == "allow"
    first, _, rest = path.partition(":")
    assert judged(project, f"{rest}:{first}", "ls -l") == "allow"


def test_accepted_edits_plant_none(project: Path) -> None:
    """Neither in a PATH folder that does not exist yet, nor in a relative one."""
    path = f"{project}/.venv/bin:tools:{os.environ['PATH']}"
    approval = Approval(cwd=project, mode="accept-edits", path=path)
    for place, action in ((".venv/bin/rg", "ask"), ("tools/x", "ask"), ("src/rg", "allow")):
        params = WriteParams(path=place, content="#!/bin/sh\n")
        verdict = approval.judge(WriteTool(), params)
        assert verdict.action == action, place
    command = BashParams.model_validate({"command": "echo '#!/bin/sh' > .venv/bin/rg"})
    assert approval.judge(BashTool(), command).action == "ask"


@pytest.mark.variants
@pytest.mark.parametrize("mode", ["ask", "bypass"])
def test_by_the_real_command(tmp_path: Path, mode: str) -> None:
    """In a headless run it does not run. In mode bypass it does, which proves that it works."""
    place = Place(tmp_path)
    bin = place.project / ".venv" / "bin"
    bin.mkdir(parents=True)
    (bin / "ls").write_text("#!/bin/sh\n: > ran\n")
    (bin / "ls").chmod(0o755)
    steps = [Say(tools=[("Bash", {"command": "ls"})]), Say("Seen.")]
    with Server(steps) as server:
        env = place.server(server.url)
        env["PATH"] = f"{bin}:{env['PATH']}"
        done = place.run("-p", "look", "--permission-mode", mode, env=env)
    assert (place.project / "ran").exists() == (mode == "bypass"), done.stderr
    assert done.returncode == (0 if mode == "bypass" else 3)
