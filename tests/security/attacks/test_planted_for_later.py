"""Files that a command creates for other programs to run later are found when it ends, reported to
the user and the model, and set aside.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.events import Notice
from ctxagent.agent.models.scripted import Step
from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.security import planted
from ctxagent.agent.security.planted import PlantedWatch
from ctxagent.agent.session.entries import ToolResult

from ...permissions.test_approval import judge
from ...support.command import Place
from ...support.machine import needs_bwrap
from ...support.server.loopback import Say, Server
from ...support.sessions.conversation import Conversation
from ..test_sandbox import SECRET, Field, git, place  # noqa: F401

# An inner repository, which the next `git status` reads.
GITLINK = """mkdir lib && cd lib && git init -q && git commit -q --allow-empty -m one &&
git config core.fsmonitor 'touch {mark}; false' && cd .. && git add lib 2>/dev/null; echo done"""


def of_a_person(cwd: Path) -> None:
    """Run `git status` as a user would, without protection from planted files."""
    env = {"PATH": os.environ["PATH"], "HOME": str(cwd)}
    subprocess.run(["git", "status"], cwd=cwd, env=env, capture_output=True, check=False)


def talk_in(place: Field, *calls: dict[str, Any], mode: Any = "bypass") -> Conversation:  # noqa: F811
    steps = [Step(tools=[("Bash" if "command" in c else "Job", c)]) for c in calls]
    talk = Conversation(place.cwd, [*steps, Step(text="done")], mode=mode)
    sandbox = place.context().sandbox
    talk.agent.context = replace(talk.agent.context, env=place.environ, sandbox=sandbox)
    talk.agent.approval.sandbox = sandbox
    assert talk.say("go").status == "ok", talk.events[-3:]
    return talk


def told(talk: Conversation) -> str:
    return "\n".join(e.text for e in talk.events if isinstance(e, Notice))


@needs_bwrap
def test_a_repository_that_the_next_status_looks_into(place: Field) -> None:  # noqa: F811
    mark = place.root / "mark"
    command = GITLINK.format(mark=mark)
    talk = talk_in(place, {"command": command})
    (result,) = talk.of(ToolResult)
    assert "what other programs run by themselves: lib/.git; the user is told" in result.content
    assert "created or changed lib/.git" in told(talk)
    assert "/set-aside" in told(talk)
    assert not mark.exists()
    watch = talk.agent.runner.planted
    assert watch
    (renamed,) = watch.set_aside(watch.planted_paths)
    of_a_person(place.cwd)
    assert not mark.exists()
    Path(renamed).rename(place.cwd / "lib/.git")  # the control: so it works
    env = {"PATH": os.environ["PATH"], "HOME": str(place.cwd)}
    subprocess.run(["git", "add", "lib"], cwd=place.cwd, env=env, check=True)
    of_a_person(place.cwd)
    assert mark.exists()


@needs_bwrap
def test_files_planted_by_unasked_commands_are_set_aside(place: Field) -> None:  # noqa: F811
    mark = place.root / "mark"
    hidden = f"python3 -c \"import subprocess; subprocess.run(['sh', '-c', '''{GITLINK}'''])\""
    command = hidden.format(mark=mark).replace("'touch", '\\"touch').replace("false'", 'false\\"')
    talk = talk_in(place, {"command": command}, mode="sandboxed")
    (result,) = talk.of(ToolResult)
    assert "set aside as lib/.git.set-aside-" in result.content, result.content
    assert "nobody was asked" not in result.content
    assert "lib/.git.set-aside-" in told(talk)
    of_a_person(place.cwd)
    assert not mark.exists()
    assert not (place.cwd / "lib/.git").exists()


@needs_bwrap
def test_existing_files_are_read_only_for_unasked_commands(place: Field) -> None:  # noqa: F811
    """Anywhere below the project. A link among these files opens no hidden path."""
    for name in ("a/b/.vscode/tasks.json", "a/.envrc"):
        (place.cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (place.cwd / name).write_text("mine\n")
    git(place.cwd / "a", "init", "-q")
    (place.cwd / ".husky").symlink_to(place.root / "home/.ssh")
    writes = "import sys; [open(p, 'a').write('x') for p in sys.argv[1].split()]"
    calls = [
        {"command": f'f=a/; python3 -c "{writes}" "{name}"'}
        for name in ("a/b/.vscode/tasks.json", "a/.envrc", "a/.git/config")
    ]
    secret = {"command": "f=x; python3 -c \"print(open('.husky/id').read())\" $f"}
    results = talk_in(place, *calls, secret, mode="sandboxed").of(ToolResult)
    for result in results[:3]:
        assert "Read-only file system" in result.content
    assert SECRET not in results[3].content
    assert (place.root / "home/.ssh/id").read_text().strip() == SECRET  # the control


@needs_bwrap
def test_files_planted_by_a_job_are_found(place: Field) -> None:  # noqa: F811
    plant = "mkdir -p deep/er; echo x > deep/er/.envrc"
    talk = talk_in(
        place, {"command": plant, "run_in_background": True}, {"action": "wait", "id": "job-1"}
    )
    assert "deep/er/.envrc" in told(talk)
    results = talk.of(ToolResult)
    assert any("deep/er/.envrc; the user is told" in str(r.content) for r in results)


def folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def rewritten(path: Path, text: str) -> None:
    """Change a file and restore its times."""
    found = path.stat()
    path.write_text(text)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def new_repository(path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(path)], check=True)


PLANTS: dict[str, tuple[Callable[[Path], object], str | None]] = {
    "a repository": (lambda p: new_repository(p / "x/y"), "x/y/.git"),
    "one in a package": (lambda p: new_repository(p / "node_modules/y"), "node_modules/y/.git"),
    "a bare one": (
        lambda p: subprocess.run(["git", "init", "-q", "--bare", str(p / "b")], check=True), "b",
    ),
    "a file that names one": (lambda p: (p / "src/.git").write_text("gitdir: ../x\n"), "src/.git"),
    "a link to one": (lambda p: (p / "src/.git").symlink_to("../data"), "src/.git"),
    "a monitor in one that is there": (
        lambda p: rewritten(p / "inner/.git/config", "[core]\n\tfsmonitor = x\n"),
        "inner/.git/config",
    ),
    "a hook in one that is there": (
        lambda p: shutil.copy("/bin/true", p / "inner/.git/hooks/pre-commit"),
        "inner/.git/hooks/pre-commit",
    ),
    "a hook where the configuration says": (
        lambda p: (p / "own/pre-commit").write_text("x"), "own/pre-commit",
    ),
    "a submodule's repository": (
        lambda p: shutil.copytree(p / "inner/.git", p / ".git/modules/new"),
        ".git/modules/new/config, .git/modules/new/hooks",
    ),
    "in the folder that a file names": (
        lambda p: rewritten(p / "data/config", "[core]\n\tfsmonitor = x\n"), "data/config",
    ),
    "a task of an editor": (lambda p: (p / ".vscode/new.json").write_text("x"), ".vscode/new.json"),
    "an editor's folder": (lambda p: folder(p / "src/.IDEA"), "src/.IDEA"),
    "a hook of husky": (lambda p: folder(p / ".husky/_"), None),
    "direnv": (lambda p: (p / "src/.envrc").write_text("x"), "src/.envrc"),
    "servers of another agent": (lambda p: (p / ".mcp.json").write_text("{}"), ".mcp.json"),
    "a folder that is renamed": (lambda p: (p / "kept").rename(p / "moved"), "moved/.claude"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTS)
def test_each_thing_that_is_planted(tmp_path: Path, name: str) -> None:
    """The next scan finds it, even with restored times, and finds nothing else."""
    new_repository(tmp_path)
    for each in ("inner", "linked"):
        new_repository(tmp_path / each)
    (tmp_path / "linked/.git").rename(tmp_path / "data")
    (tmp_path / "linked/.git").write_text("gitdir: ../data\n")
    git(tmp_path, "config", "core.hooksPath", "own")
    for each in ("own", "src", ".vscode", ".husky", "kept/.claude", "node_modules/x"):
        folder(tmp_path / each)
    (tmp_path / ".vscode/tasks.json").write_text("{}")
    watch = PlantedWatch(tmp_path)
    watch.begin({}, unasked=False)
    (tmp_path / "src/new.py").write_text("x")
    folder(tmp_path / "node_modules/x/.vscode")
    (tmp_path / ".vscode/tasks.json").write_text("{}")  # the same once more
    assert watch.end() is None
    watch.begin({}, unasked=False)
    plant, expected = PLANTS[name]
    plant(tmp_path)
    found = watch.end()
    assert (found.paths if found else None) == expected
    if expected:
        paths = [f"{tmp_path}/{each}" for each in expected.split(", ")]
        assert watch.planted_paths == paths
        for path, renamed in zip(paths, watch.set_aside(paths), strict=True):
            assert renamed.startswith(f"{path}.set-aside-")
            assert not os.path.lexists(path)
        assert watch.planted_paths == []


def test_files_the_user_creates_between_commands_are_not_planted(tmp_path: Path) -> None:
    watch = PlantedWatch(tmp_path)
    watch.begin({}, unasked=True)
    assert watch.end() is None
    new_repository(tmp_path / "mine")
    watch.begin({}, unasked=True)
    assert watch.end() is None
    assert (tmp_path / "mine/.git").is_dir()


def test_a_scan_costs_one_stat_per_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many folders, only changed ones are read again."""
    for number in range(300):
        (folder(tmp_path / f"a{number % 20}/b{number}") / "file.py").write_text("x")
    read: list[str] = []
    scandir = os.scandir

    def counted(path: str) -> Any:
        read.append(str(path))
        return scandir(path)

    monkeypatch.setattr(planted, "_CLOCK_TICK_NS", 0)
    monkeypatch.setattr(planted.os, "scandir", counted)
    watch = PlantedWatch(tmp_path)
    watch.begin({}, unasked=False)
    assert len(read) == 321
    read.clear()
    (tmp_path / "a1/b1/.envrc").write_text("x")
    found = watch.end()
    assert found
    assert found.paths == "a1/b1/.envrc"
    assert read == [f"{tmp_path}/a1/b1"]


def test_too_many_folders_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that files beyond the limit are not missed silently."""
    monkeypatch.setattr(planted, "MAX_FOLDERS", 20)
    watch = PlantedWatch(tmp_path)
    watch.begin({}, unasked=False)
    assert watch.end() is None
    for number in range(30):
        folder(tmp_path / f"a{number}")
    watch.begin({}, unasked=False)
    found = watch.end()
    assert found
    assert "the project has more" in found.notice
    assert found.note == ""
    folder(tmp_path / ".vscode")
    found = watch.end()
    assert found
    assert found.paths == ".vscode"  # the outermost are still scanned
    for number in range(3):
        folder(tmp_path / f"b{number}")
        watch.begin({}, unasked=False)
        found = watch.end()
        assert found is None


def test_edits_of_such_files_are_asked_about(tmp_path: Path) -> None:
    approval = Approval(cwd=tmp_path, mode="accept-edits")
    names = (".vscode/tasks.json", "x/.husky/pre-commit", ".claude/settings.json", ".mcp.json",
             "a/.envrc", "sub/.git", ".git/modules/x/config", ".idea/workspace.xml")  # fmt: skip
    for name in names:
        assert judge(approval, "Write", name).action == "ask", name
    assert judge(approval, "Write", "src/app.py").action == "allow"  # the control


def test_the_command_itself_tells(tmp_path: Path) -> None:
    """The real command in a headless run, with and without a sandbox: on stderr and in the log."""
    place = Place(tmp_path)  # noqa: F811
    call = ("Bash", {"command": "mkdir sub; echo 'gitdir: ../x' > sub/.git"})
    with Server([Say(tools=[call]), Say("Done.")]) as server:
        env = place.server(server.url)
        done = place.run("-p", "go", "--permission-mode", "bypass", env=env)
    assert "a command created or changed sub/.git" in done.stderr, done.stderr
    results = [e for e in place.entries() if e["kind"] == "tool_result"]
    assert "sub/.git; the user is told" in str(results[0]["content"])


def test_what_is_planted_in_an_added_directory_is_found(tmp_path: Path) -> None:
    project, library = folder(tmp_path / "project"), folder(tmp_path / "library")
    added: list[str] = []
    watch = PlantedWatch(project, added)
    added.append(str(library))
    watch.begin({}, unasked=True)
    folder(library / ".vscode")
    found = watch.end()
    assert found
    assert found.paths == f"{library}/.vscode"
    assert not (library / ".vscode").exists()  # set aside, since nobody was asked
