"""A repository whose own files lead out of it: git would show lines of a secret or of another
repository. Read-only git commands need approval there, and the agent's own git does not read it.
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxagent.agent.features.environment import environment_text
from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.worktree import WorkTree
from ctxagent.agent.worktree.git import safe_git_environment
from ctxagent.tools.system.environment import child_environment
from ctxagent.tools.system.git_links import current_branch, first_outside_link, outside_links
from ctxagent.tools.system.project_files import list_files

from ...permissions.test_approval import judge
from ...support.command import Place
from ...support.server.loopback import Say, Server
from ...worktree.test_snapshots import git, repository

SECRET = "hunter2-of-the-owner"
Trick = Callable[[Path, Path, Path], object]


def link(place: str) -> Trick:
    """A link to the secret at a path below `.git`."""

    def make(project: Path, secret: Path, other: Path) -> None:
        path = project / ".git" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(secret)

    return make


def linked_folder(place: str) -> Trick:
    """A link to a part of the other repository at the same path."""

    def make(project: Path, secret: Path, other: Path) -> None:
        path = project / ".git" / place
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.symlink_to(other / ".git" / place)

    return make


def configured(key: str) -> Trick:
    return lambda project, secret, other: git(project, "config", key, str(secret))


def pointing(project: Path, secret: Path, other: Path) -> None:
    shutil.rmtree(project / ".git")
    (project / ".git").write_text(f"gitdir: {other}/.git\n")


def common(project: Path, secret: Path, other: Path) -> None:
    """A work tree that claims to belong to a repository, which does not list it."""
    own = project / "kept" / "worktrees" / "x"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    (own / "commondir").write_text(f"{other}/.git\n")
    (own / "gitdir").write_text(f"{project}/.git\n")
    shutil.rmtree(project / ".git")
    (project / ".git").write_text("gitdir: kept/worktrees/x\n")


def borrowed(project: Path, secret: Path, other: Path) -> None:
    (project / ".git/objects/info/alternates").write_text(f"{other}/.git/objects\n")


def borrowed_twice(project: Path, secret: Path, other: Path) -> None:
    """An object store in the project that borrows from the secret."""
    store = project / "store"
    (store / "info").mkdir(parents=True)
    (store / "info/alternates").symlink_to(secret)
    (project / ".git/objects/info/alternates").write_text(f"{store}\n")


def inside(project: Path, secret: Path, other: Path) -> None:
    """An inner repository, which git enters without being told."""
    repository(project / "inner")
    git(project, "add", "inner")
    link("packed-refs")(project / "inner", secret, other)


# The change to the repository, and the git command that shows the secret.
TRICKS: dict[str, tuple[Trick, str]] = {
    "alternates": (link("objects/info/alternates"), "git log"),
    "packed-refs": (link("packed-refs"), "git log"),
    "shallow": (link("shallow"), "git log"),
    "ignored revisions": (configured("blame.ignoreRevsFile"), "git blame a.txt"),
    "excludes": (configured("core.excludesFile"), f"git check-ignore -v {SECRET}"),
    "excludes of the repository": (link("info/exclude"), f"git check-ignore -v {SECRET}"),
    "a list of work trees": (link("worktrees/x/gitdir"), "git worktree list"),
    "another repository": (pointing, "git log"),
    "another repository in common": (common, "git log"),
    "objects of another": (linked_folder("objects"), "git cat-file --batch-all-objects --batch"),
    "borrowed objects": (borrowed, "git cat-file --batch-all-objects --batch"),
    "borrowed in turn": (borrowed_twice, "git log"),
    "refs of another": (linked_folder("refs"), "git for-each-ref"),
    "index of another": (linked_folder("index"), "git ls-files"),
    "in a repository inside": (inside, "git status"),
}


class Field:
    """A project, a secret and another repository."""

    def __init__(self, root: Path) -> None:
        self.project = repository(root / "project")
        self.secret = root / "secret"
        self.secret.write_text(f"{SECRET}\n")
        self.other = repository(root / "other")
        (self.other / SECRET).write_text(f"{SECRET}\n")
        git(self.other, "add", ".")
        git(self.other, "commit", "-qm", SECRET)
        git(self.other, "branch", SECRET)

    def shown(self, command: str) -> str:
        """The output of an unguarded git."""
        done = subprocess.run(command.split(), cwd=self.project, capture_output=True, check=False)
        return (done.stdout + done.stderr).decode(errors="replace")


@pytest.fixture
def field(tmp_path: Path) -> Field:
    return Field(tmp_path)


@pytest.mark.parametrize("name", TRICKS)
def test_a_repository_that_leads_elsewhere_needs_approval(field: Field, name: str) -> None:
    trick, command = TRICKS[name]
    approval = Approval(cwd=field.project, allow=["Bash(git log:*)"])
    assert judge(approval, "Bash", command).action == "allow"
    assert first_outside_link(field.project) == ""
    trick(field.project, field.secret, field.other)
    assert SECRET in field.shown(command)  # the control: it works
    verdict = judge(approval, "Bash", command)
    assert verdict.action == "ask"
    assert "leads there" in verdict.reason or "makes git run" in verdict.reason
    if "leads there" in verdict.reason:
        assert str(field.secret.parent) in verdict.reason
    denying = Approval(cwd=field.project, deny=[f"Read({field.secret})", f"Read({field.other}/**)"])
    assert judge(denying, "Bash", command).action in ("deny", "ask")


@pytest.mark.parametrize("name", TRICKS)
def test_the_agents_own_git_does_not_read_it(field: Field, name: str, tmp_path: Path) -> None:
    """No line of it appears in the model's first context, file lists, snapshots or `/diff`."""
    trick, _ = TRICKS[name]
    env = child_environment({"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    assert "Newest commits" in environment_text(field.project, env)  # the control
    assert "a.txt" in asyncio.run(list_files(field.project, env=env)).paths
    trick(field.project, field.secret, field.other)
    said = [environment_text(field.project, env), current_branch(field.project)]
    said += asyncio.run(list_files(field.project, env=env)).paths
    tree = WorkTree(field.project, store=tmp_path / "store", index=tmp_path / "index", env=env)
    before = tree.observe()
    (field.project / "a.txt").write_text("changed\n")
    after = tree.observe()
    assert [Path(c.path).name for c in tree.changes(before, after)] == ["a.txt"]
    said += [tree.limits, after.head, before.head]
    try:
        safe_git_environment(field.project, env)
    except OSError as error:
        said.append(str(error))
    assert SECRET not in "\n".join(said)
    if name not in ("in a repository inside", "borrowed objects"):
        assert "Git: not looked at" in said[0]


def test_a_head_that_changes_meanwhile(field: Field, tmp_path: Path) -> None:
    """A command can write HEAD: its content counts as a commit only if it looks like one."""
    env = child_environment({"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    tree = WorkTree(field.project, store=tmp_path / "store", index=tmp_path / "index", env=env)
    assert tree.observe().head.startswith("main ")
    head = field.project / ".git/HEAD"
    for text in (f"ref: refs/../../../{field.secret.name}", SECRET, f"ref: {SECRET}"):
        head.write_text(f"{text}\n")
        assert SECRET not in tree.observe().head
    head.unlink()
    head.symlink_to(field.secret)
    assert SECRET not in tree.observe().head
    assert SECRET not in current_branch(field.project)


def test_ordinary_repositories_lead_nowhere(field: Field) -> None:
    """Linked work trees, submodules, linked hooks and project files in settings are allowed."""
    project = field.project
    git(project, "worktree", "add", "-q", str(project.parent / "linked"))
    git(project, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(field.other),
        "sub")  # fmt: skip
    (project / ".git/hooks").mkdir(exist_ok=True)
    (project / ".git/hooks/pre-commit").symlink_to("../../a.txt")
    git(project, "config", "blame.ignoreRevsFile", ".git-blame-ignore-revs")
    for folder in (project, project.parent / "linked", project / "sub"):
        assert first_outside_link(folder) == ""
        approval = Approval(cwd=folder)
        assert judge(approval, "Bash", "git status").action == "allow", folder
    (project / "b.txt").write_text("x\n")
    (project / ".git-blame-ignore-revs").symlink_to("b.txt")
    assert judge(Approval(cwd=project), "Bash", "git status").action == "allow"
    verdict = judge(Approval(cwd=project, deny=["Read(b.txt)"]), "Bash", "git blame a.txt")
    assert verdict.action == "deny"


@pytest.mark.parametrize(
    "text",
    ['"../../secret" # x', "../../sec\\\nret", "~/secret ; x", '"../../se"cret',
     "%(prefix)/../secret", ":(optional)../secret", "a\x0c/../../secret", "../secret\r"],
)  # fmt: skip
def test_settings_that_are_written_oddly(field: Field, text: str) -> None:
    config = field.project / ".git/config"
    config.write_text(f"[blame] ignoreRevsFile = {text}\n{config.read_text()}")
    assert first_outside_link(field.project)
    config.write_text(config.read_text().partition("\n")[2])
    assert not [
        link for link in outside_links(str(field.project)) if "ignorerevs" in link.name.lower()
    ]


def test_a_repository_too_large_to_scan(field: Field) -> None:
    """A huge repository neither hides a link nor slows down the scan."""
    config = field.project / ".git/config"
    text = config.read_text()
    config.write_text(text + "\n" * (1 << 20) + f"[blame]\nignoreRevsFile = {field.secret}\n")
    assert SECRET in field.shown("git blame a.txt")  # the control
    assert "too large" in first_outside_link(field.project)
    config.write_text(text + "a" * 500_000 + "\n" * 500_000)
    assert first_outside_link(field.project) == ""
    assert judge(Approval(cwd=field.project), "Bash", "git status").action == "allow"
    config.write_text(text)
    store = field.project / ".git/objects"
    for number in range(300):  # stores that all name each other
        info = store / f"s{number}/info"
        info.mkdir(parents=True)
        info.joinpath("alternates").write_text("".join(f"../s{n}\n" for n in range(300)))
    (store / "info/alternates").write_text("s1\ns2\n")
    assert "/" in {link.target for link in outside_links(str(field.project))}


def test_names_that_differ_only_in_spaces(field: Field) -> None:
    """git reads a line with all its spaces."""
    repository(field.project.parent / "fine")
    shutil.rmtree(field.project / ".git")
    (field.project / "own").symlink_to(field.project.parent / "fine/.git")
    (field.project / "own ").symlink_to(field.other / ".git")
    (field.project / ".git").write_text("gitdir: own \n")
    assert SECRET in field.shown("git log")  # the control
    assert str(field.other) in first_outside_link(field.project)


def test_the_command_itself_asks(field: Field) -> None:
    """The real command in a headless run."""
    place = Place(field.project.parent)
    link("objects/info/alternates")(field.project, field.secret, field.other)
    calls = [("Bash", {"command": "git log"}), ("Glob", {"pattern": "*"})]
    with Server([Say(tools=calls), Say("Done.")]) as server:
        done = place.run("-p", "look", env=place.server(server.url))
        assert SECRET not in str(server.requests)
    assert done.returncode == 3, done.stderr
    assert f"makes git read {field.secret}: .git/objects/info/alternates leads there" in done.stderr
    assert SECRET not in done.stderr + done.stdout
