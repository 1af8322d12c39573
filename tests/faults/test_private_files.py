"""Whatever the program writes outside of the project is open to its owner alone, from the start and
whatever the umask says."""

import ast
import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxagent.agent.config.load import load_settings
from ctxagent.agent.permissions.rule_set import RuleFiles
from ctxagent.agent.permissions.rules import parse_rule
from ctxagent.agent.session.listing import Catalogue
from ctxagent.tools.system.files import copy_tree_private

from ..support.command import COMMAND, PATIENCE, Place
from ..support.terminal.screen import Terminal

ROOT = Path(__file__).parents[2]
OPEN = ("/bin/sh", "-c", 'umask 0; exec "$0" "$@"', COMMAND)  # the most careless of people

# What makes a file as the umask says: all of it is the project's own.
OF_THE_PROJECT = {
    "agent/cli/demo.py",
    "addons/proxy/service.py:install",  # folders of the user's services
    "agent/extensions/memory.py:_locked",  # a folder that the project shares
    "agent/worktree/repository_restore.py:_make_folder",  # in the project's own .git
    "tools/system/files.py:replacing",  # private unless it is told a mode or keeps one
    "tools/system/files.py:edit_file",
    "tools/system/safe_open.py:_made",  # folders for what edit_file puts in place
    "tools/system/files.py:_write_over",  # opens what is there
}
PRIVATE_BEFORE = {"agent/ui/input/editor.py"}  # made private in the line before


def wide(*folders: Path) -> list[str]:
    """What others than the owner may do anything with, of all that is in the folders; what commands
    have made in caches and temporary files of their own, nobody else comes to."""
    return [
        f"{stat.filemode(path.lstat().st_mode)} {path}"
        for folder in folders
        for path in [folder, *folder.rglob("*")]
        if not path.is_symlink() and stat.S_IMODE(path.lstat().st_mode) & 0o077
        if not any(above.name in ("caches", "temporary") for above in path.parents)
    ]


def steps(root: Path, *each: dict[str, object]) -> str:
    path = root / "steps.json"
    path.write_text(json.dumps({"steps": each}))
    return f"scripted:{path}"


def test_a_day_of_work_leaves_nothing_that_others_can_read(tmp_path: Path) -> None:
    place = Place(tmp_path)
    temporary, home = tmp_path / "tmp", tmp_path / "home"
    temporary.mkdir(mode=0o700)
    home.chmod(0o700)
    (place.project / ".agentrc").write_text('[permissions]\nallow = ["Bash(ls)"]\n')
    calls = [
        {"name": "Bash", "input": {"command": "seq 6000"}},
        {"name": "Bash", "input": {"command": "echo a job", "run_in_background": True}},
        {"name": "Write", "input": {"path": "new.txt", "content": "new\n"}},
        {"name": "Bash", "input": {"command": "echo more >> new.txt"}},
        {"name": "Task", "input": {"description": "look", "prompt": "Look.", "type": "general"}},
    ]
    inside = [{"name": "Bash", "input": {"command": "seq 5000; touch inside"}}]
    # long thoughts, so that a summary pays wherever this folder lies
    thoughts = " ".join(f"First look at part {number}." for number in range(600))
    first = {"text": thoughts, "tools": calls}
    model = steps(tmp_path, first, {"tools": inside}, {"text": "Looked."}, {"text": "All is done."})
    secret = "a-token-of-the-person-42"
    env = place.environ({"TMPDIR": str(temporary), "DEPLOY_TOKEN": secret})
    options = ("--model", model, "--permission-mode", "bypass", "-c", "move.above=500")
    options += ("-c", "compact.summarizer=mechanical")
    os.mkfifo(place.project / "gate")
    gate = os.open(place.project / "gate", os.O_RDWR)
    options += ("-c", "hooks.session_end=cat > ended; read line < gate")
    terminal = Terminal(*OPEN[1:], *options, cwd=place.project, env=env, command=OPEN[0])
    terminal.see("❯")
    for words, seen in (
        (f"go {secret}", "All is done."),
        ("!seq 4000", "4000"),
        ("# keep it", "pinned"),
        ("/checkpoint now", "heckpoint"),
        ("/compact", "asks first"),
        ("/export told.md", "written to"),
        ("/fork", "goes on"),
    ):
        terminal.type(words)
        terminal.see(words)
        terminal.press("enter")
        terminal.see(lambda text, s=seen, w=words: s in text.rpartition(w)[2])  # type: ignore[misc]
    terminal.see("the hooks of session_end")  # of the one that was left
    os.write(gate, b"\n")
    terminal.see(lambda text: "the hooks of" not in text)
    terminal.press("ctrl-d")  # nothing was said in the copy, so it has no end either
    assert terminal.leave() == 0
    os.close(gate)
    assert json.loads((place.project / "ended").read_text())["status"] == "ok"
    model = steps(tmp_path, {"text": "On."})
    for arguments in (
        ("-p", "on", "--continue", "--fork", "--model", model),
        ("config", "--trust"),
        ("sessions", "search", "done"),
        ("sessions", "list"),
    ):
        done = _umask_0(place, *arguments, env=env)
        assert done == 0, arguments
    found = {path.name for path in place.state.rglob("*")}
    for name in (
        "log.jsonl", "lock", "offloaded", "jobs", "checkpoints", "agents", "summary.md",
        "conversation.md", "history", "worktree.git", "worktree.index", "index.db",
        "trusted.json", "config", "exclude",
    ):  # fmt: skip
        assert name in found, name
    assert any(len(name) == 38 for name in found), "no object of git"
    assert wide(place.state, temporary, home, place.project / "told.md") == []
    for path in [*place.state.rglob("*"), place.project / "told.md"]:
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path
    # What is the project's is as the person's umask has it.
    assert stat.S_IMODE((place.project / "new.txt").stat().st_mode) == 0o666


def _umask_0(place: Place, *arguments: str, env: dict[str, str]) -> int:
    done = subprocess.run(
        [*OPEN, *arguments], cwd=place.project, env=env, capture_output=True,
        stdin=subprocess.DEVNULL, timeout=PATIENCE,
    )  # fmt: skip
    return done.returncode


@pytest.fixture
def careless() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_rules_that_are_kept_are_the_persons_own(tmp_path: Path, careless: None) -> None:
    environ = {"HOME": str(tmp_path / "home")}
    project = tmp_path / "work"
    project.mkdir()
    loaded = load_settings(project, environ=environ, check_rule=parse_rule)
    RuleFiles(loaded, cwd=project, environ=environ).add("Bash(ls)", "user")
    assert (tmp_path / "home/.config/ctxagent/agentrc").is_file()
    assert wide(tmp_path / "home") == []


def test_a_list_of_sessions_is_private(tmp_path: Path, careless: None) -> None:
    (tmp_path / "sessions").mkdir(mode=0o700)
    (tmp_path / "sessions/s").mkdir(mode=0o700)
    tmp_path.chmod(0o700)
    catalogue = Catalogue(tmp_path)
    catalogue.put("s", (1, 2, "title", "words", 3, "main", "/work"))
    catalogue.save()
    assert (tmp_path / "sessions.json").is_file()
    assert wide(tmp_path) == []


def test_a_copy_is_private_whatever_the_original_is(tmp_path: Path, careless: None) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c").write_bytes(b"\0c")
    copy_tree_private(tmp_path / "a", tmp_path / "new/a")
    assert (tmp_path / "new/a/b/c").read_bytes() == b"\0c"
    assert wide(tmp_path / "new") == []


@pytest.mark.full
def test_nothing_is_made_wide_and_narrowed_later() -> None:
    """No call in the source makes a file or a folder whose mode the umask decides."""
    found = [
        f"{name}:{node.lineno}: {_called(node)}"
        for top in ("agent", "tools", "api", "addons")
        for path in sorted((ROOT / top).rglob("*.py"))
        if (name := str(path.relative_to(ROOT))) not in OF_THE_PROJECT | PRIVATE_BEFORE
        for node in _judged(ast.parse(path.read_text()), name)
        if isinstance(node, ast.Call) and _is_wide(node)
    ]
    assert found == []


def _judged(node: ast.AST, name: str) -> Iterator[ast.AST]:
    """Yield all of a module but the functions that `OF_THE_PROJECT` names."""
    if isinstance(node, ast.FunctionDef) and f"{name}:{node.name}" in OF_THE_PROJECT:
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _judged(child, name)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_wide(node: ast.Call) -> bool:
    given = {keyword.arg for keyword in node.keywords}
    name = _called(node)
    if name in ("write_text", "write_bytes", "copyfile", "copytree", "copy2", "makedirs"):
        return True
    if name == "mkdir":  # parents get the mode that the umask leaves them
        return "mode" not in given or "parents" in given
    if name == "open" and "opener" not in given and not _of_os(node):
        modes = [a.value for a in node.args[:2] if isinstance(a, ast.Constant)]
        return any(isinstance(mode, str) and set(mode) & set("wxa+") and len(mode) < 4
                   for mode in modes)  # fmt: skip
    if name == "open" and _of_os(node):
        flags = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
        modes = [a.value for a in node.args[2:] if isinstance(a, ast.Constant)]
        return "O_CREAT" in flags and modes != [0o600]
    return name == "touch" and isinstance(node.func, ast.Attribute) and _is_path(node, given)


def _of_os(node: ast.Call) -> bool:
    func = node.func
    return isinstance(func, ast.Attribute) and getattr(func.value, "id", "") == "os"


def _is_path(node: ast.Call, given: set[str | None]) -> bool:
    """Whether this is `touch` of a path; screens have one too, on an attribute of `self`."""
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    screen = getattr(owner, "attr", getattr(owner, "id", "")) in ("_screen", "screen", "self")
    return not screen and "mode" not in given
