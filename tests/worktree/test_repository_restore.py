"""Losses of a git repository since a record are restored; later additions stay."""

import os
import subprocess
from pathlib import Path

import pytest

from ctxagent.agent.errors import RecordError
from ctxagent.agent.worktree import RepositoryRecorder
from ctxagent.agent.worktree.repository_restore import RepositoryRestorer

THROW_AWAY = ("reflog expire --expire=now --all", "gc -q --prune=now")
FORMATS = ("--object-format=sha1", "--object-format=sha256", "--ref-format=reftable")


class Project:
    """A project with a repository, and the keeper of its records."""

    def __init__(self, root: Path, *options: str, below: str = "") -> None:
        self.root, self.folder = root, root / "project"
        (root / "home").mkdir(parents=True, exist_ok=True)
        (self.folder / below).mkdir(parents=True)
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(root / "home"), "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER")
               for what in ("NAME", "EMAIL")},
            "GIT_ALLOW_PROTOCOL": "file",
        }  # fmt: skip
        self.git("init", "-q", "-b", "main", *options)
        state = root / "state" / "repository"
        self.keeper = RepositoryRecorder(self.folder / below, state, self.env)
        self.restorer = RepositoryRestorer(self.keeper)

    def git(self, *words: str, at: str = ".") -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.folder / at, env=self.env, capture_output=True, text=True
        )
        if done.returncode:
            raise AssertionError(f"git {words}: {done.stderr}")
        return done.stdout.strip()

    def run(self, *commands: str) -> None:
        for command in commands:
            subprocess.run(command, shell=True, cwd=self.folder, env=self.env, check=True,
                           capture_output=True)  # fmt: skip

    def commit(self, name: str, at: str = ".") -> str:
        (self.folder / at / name).write_text(f"{name}\n")
        self.git("add", name, at=at)
        self.git("commit", "-qm", name, at=at)
        return self.git("rev-parse", "HEAD", at=at)

    def fill(self) -> None:
        """Make commits, branches, tags, stashes and a staged file."""
        for name in ("one", "two"):
            self.commit(name)
        self.git("branch", "feature")
        self.git("tag", "-a", "v1", "-m", "first")
        self.git("tag", "light", "HEAD~1")
        self.git("checkout", "-qb", "topic")
        self.commit("three")
        self.git("checkout", "-q", "main")
        for name in ("older", "newer"):
            (self.folder / "one").write_text(name)
            self.git("stash", "push", "-qm", name)
        (self.folder / "staged").write_text("staged\n")
        self.git("add", "staged")

    def state(self, at: str = ".") -> list[str]:
        asked = ("for-each-ref", "stash list", "status --short", "symbolic-ref HEAD")
        return [self.git(*words.split(), at=at) for words in asked]

    def take(self) -> str:
        name = self.keeper.take()
        assert name, self.keeper.limits
        assert self.restorer.lost(name) == []
        return name

    def restore(self, name: str) -> str:
        """Restore the losses and return their description. Check that the repository is valid."""
        said = [line for lost in self.restorer.lost(name) for line in lost.describe()]
        self.restorer.restore(name)
        assert self.restorer.lost(name) == []
        self.git("fsck", "--full", "--no-dangling")
        return "\n".join(said)


def made(root: Path, *options: str, below: str = "") -> Project:
    try:
        return Project(root, *options, below=below)
    except AssertionError as error:
        if "--ref-format" in str(options):
            pytest.skip(f"this git has no reftable: {error}")
        raise


LOSSES = {
    "stashes": ("git stash clear", *(f"git {words}" for words in THROW_AWAY)),
    "one stash": ("git stash drop -q",),
    "branches": ("git branch -qD topic feature", "git tag -d v1 light", "git gc -q --prune=now"),
    "ref": ("git update-ref -d refs/heads/main",),
    "head": ("rm .git/HEAD",),
    "index": ("rm .git/index",),
    "refs": ("rm -r .git/refs",),
    "all refs": ("rm -rf .git/refs .git/packed-refs .git/reftable .git/HEAD",),
    "objects": ("rm -rf .git/objects",),
    "packs": ("rm -rf .git/objects/pack/*",),
    "everything": ("rm -rf .git",),
}  # fmt: skip


@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
@pytest.mark.parametrize("options", FORMATS)
@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_lost_comes_back(tmp_path: Path, loss: str, options: str, packed: bool) -> None:
    project = made(tmp_path, options)
    project.fill()
    if packed:
        project.git("gc", "-q")
    was = project.state()
    name = project.take()
    project.run(*LOSSES[loss])
    said = project.restore(name)
    assert said or (loss == "packs" and not packed)
    assert project.state() == was


def test_what_came_since_stays(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.fill()
    name = project.take()
    main, two = project.commit("four"), project.git("rev-parse", "topic~1")
    project.git("branch", "new")
    project.run("git branch -qD feature", "git checkout -q topic", "git reset -q --hard HEAD~1")
    project.run(*(f"git {words}" for words in THROW_AWAY))
    lost = project.git("rev-parse", "main~1")
    said = project.restore(name)
    assert "refs/heads/feature" in said
    assert "under new names: refs/heads/rewind/topic" in said
    assert project.git("rev-parse", "main", "new", "topic", "feature") == "\n".join(
        [main, main, two, lost]
    )
    assert project.git("log", "-1", "--format=%s", "rewind/topic") == "three"


def test_commits_in_a_reflog_are_not_lost(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.fill()
    name = project.take()
    project.run("git commit -q --amend -m Other", "git reset -q --hard HEAD~1")
    assert project.restorer.lost(name) == []


def test_names_that_are_used_meanwhile(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.fill()
    name, feature = project.take(), project.git("rev-parse", "feature")
    project.run("git branch -qD feature", "git branch feature/part", "git tag -f v1 HEAD~1")
    project.restore(name)
    assert project.git("rev-parse", "rewind/feature") == feature
    assert project.git("rev-parse", "refs/tags/rewind/v1^{commit}") == feature


def test_remotes_and_what_branches_follow_come_back(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.fill()
    project.git("clone", "-q", "--bare", ".", str(tmp_path / "remote"))
    project.run(f"git remote add origin {tmp_path}/remote", "git fetch -q")
    project.run("git branch -q -u origin/topic topic", "git remote set-head origin main")
    was, name = project.state(), project.take()
    config = project.git("config", "--list", "--local")
    project.run("git branch -qD topic", "git remote remove origin")
    project.restore(name)
    assert project.state() == was
    assert set(project.git("config", "--list", "--local").split()) == set(config.split())
    (project.folder / ".git/config").unlink()
    project.restore(name)
    assert project.git("config", "--list", "--local").split() == config.split()


def test_objects_of_a_partial_clone_that_were_never_fetched_are_not_lost(tmp_path: Path) -> None:
    project, other = Project(tmp_path), Project(tmp_path / "other")
    other.fill()
    other.git("config", "uploadpack.allowFilter", "true")
    project.run(f"git remote add origin file://{other.folder}")
    project.run("git fetch -q --filter=blob:none origin", "git branch -q topic origin/topic")
    absent = project.git("rev-list", "--objects", "--missing=print", "--all").count("?")
    assert absent
    was, name = project.state(), project.take()
    project.run("git branch -qD topic", "rm .git/refs/remotes/origin/* .git/objects/pack/*")
    assert "topic" in project.restore(name)
    assert project.state() == was
    assert project.git("rev-list", "--objects", "--missing=print", "--all").count("?") == absent


def test_a_repository_that_replaces_the_old_one(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.fill()
    main, name = project.git("rev-parse", "main"), project.take()
    project.run("rm -rf .git", "git init -q -b main", "git add -A", "git commit -qm Anew")
    project.restore(name)
    assert project.git("log", "--format=%s", "main") == "Anew"
    assert project.git("rev-parse", "rewind/main") == main
    assert project.git("stash", "list").count("\n") == 1


def test_a_detached_head(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.fill()
    project.run("git stash clear", "git reset -q --hard", "git checkout -q --detach")
    commit, name = project.commit("alone"), project.take()
    project.run("git checkout -q main", *(f"git {words}" for words in THROW_AWAY))
    project.restore(name)
    assert project.git("rev-parse", "rewind/HEAD") == commit


def test_a_branch_without_a_commit(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (project.folder / "staged").write_text("staged\n")
    project.git("add", "staged")
    name = project.take()
    project.run("rm -rf .git")
    project.restore(name)
    assert project.git("status", "--short", "--branch") == "## No commits yet on main\nA  staged"


def test_a_linked_work_tree(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.fill()
    project.git("worktree", "add", "-q", "--detach", "../linked")
    alone = project.commit("alone", at="../linked")
    was = [project.state(), project.git("status", "--short", "--branch", at="../linked")]
    linked = RepositoryRecorder(tmp_path / "linked", tmp_path / "state" / "linked", project.env)
    name, other = project.take(), linked.take()
    for command in ("rm ../linked/.git", "rm -rf .git", "rm -rf .git/worktrees"):
        project.run(command)
        assert RepositoryRestorer(linked).lost(other)
        RepositoryRestorer(linked).restore(other)
        assert [project.state(), project.git("status", "-sb", at="../linked")] == was
    project.run("git worktree remove -f ../linked", *(f"git {words}" for words in THROW_AWAY))
    project.restore(name)
    found = project.git("for-each-ref", "--points-at", alone, "--format=%(refname)")
    assert found == "refs/heads/rewind/worktrees/linked/HEAD"


@pytest.mark.variants
@pytest.mark.parametrize("place", ["vendor/objects", "logs"])
def test_a_submodule(tmp_path: Path, place: str) -> None:
    inner = Project(tmp_path / "inner")
    inner.fill()
    project = Project(tmp_path)
    project.commit("one")
    project.git("submodule", "--quiet", "add", str(inner.folder), place)
    project.commit("two")
    project.git("branch", "own", at=place)
    own = project.commit("inside", at=place)
    was, name = [project.state(), project.state(place)], project.take()
    for loss in (
        f"git -C {place} branch -D own && git -C {place} reflog expire --expire=now --all "
        f"&& git -C {place} gc -q --prune=now",
        f"rm -rf .git/modules/{place}",
        "rm -rf .git",
    ):
        project.run(loss)
        project.restore(name)
        assert [project.state(), project.state(place)] == was
        assert project.git("rev-parse", "HEAD", at=place) == own


def test_a_repository_above_the_folder(tmp_path: Path) -> None:
    project = made(tmp_path, below="part")
    project.fill()
    was, name = project.state(), project.take()
    assert project.restorer.root(name) == str(project.folder)
    project.run("rm -rf .git")
    project.restore(name)
    assert project.state() == was


def test_a_folder_that_leads_elsewhere_is_not_written(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.fill()
    name = project.take()
    (tmp_path / "elsewhere").mkdir()
    project.run("rm -rf .git", "ln -s ../elsewhere .git")
    with pytest.raises(RecordError, match="leads elsewhere"):
        project.restorer.restore(name)
    project.run("rm .git", "mkdir .git", "ln -s ../../elsewhere .git/hooks")
    with pytest.raises(RecordError, match="leads elsewhere"):
        project.restorer.restore(name)
    assert not list((tmp_path / "elsewhere").iterdir())
