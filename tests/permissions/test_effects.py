"""What a command destroys or publishes: computed from files and by git."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxagent.agent.permissions import effects
from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.permissions.effects import count_files, with_effects

Effect = Callable[[str], str]
RUN_TIME = effects.AT_RUN_TIME


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", folder, *identity, *words], check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout one commit ahead of its remote, with a changed file and an ignored folder."""
    folder = tmp_path / "project"
    for name in ("build", "ignored"):
        (folder / name).mkdir(parents=True)
        for number in range(3):
            (folder / name / f"{number}.txt").touch()
    (folder / "a.txt").write_text("1")
    (folder / ".gitignore").write_text("ignored\n")
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "remote.git")
    git(tmp_path, "init", "-q", "-b", "main", "project")
    git(folder, "add", "a.txt", ".gitignore")
    git(folder, "commit", "-qm", "one")
    git(folder, "remote", "add", "origin", str(tmp_path / "remote.git"))
    git(folder, "push", "-q", "origin", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "two")
    (folder / "a.txt").write_text("2")
    return folder


@pytest.fixture
def effect(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Effect:
    """Return the only effect of a command, "" for none."""
    cache = tmp_path / "home" / ".cache" / "thing"
    cache.mkdir(parents=True)
    for number in range(214):
        (cache / str(number)).touch()
    (cache / "link").symlink_to("/usr")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def found(command: str) -> str:
        named = Approval(cwd=project).effects(command, os.environ)
        assert len(named) <= 1
        return next(iter(named.values()), "")

    return found


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        # The variable hides the path from the records, which save files by name.
        ("rm -rf $HOME/.cache/thing",
         "deletes 215 files in ~/.cache/thing, outside the project; cannot be undone"),
        ('rm -rf "${HOME}/.cache/thing"',
         "deletes 215 files in ~/.cache/thing, outside the project; cannot be undone"),
        ("rm -rf ~/.cache/thing",
         "deletes 215 files in ~/.cache/thing, outside the project; /rewind restores them"),
        ("HOME=/x; rm -rf $HOME/.cache", RUN_TIME),
        ("rm -rf $NOWHERE/x", RUN_TIME),
        ("rm -rf `pwd`", RUN_TIME),
        ("find . -name '*.txt' | xargs rm", RUN_TIME),
        ("rm a.txt", "deletes a.txt; /rewind restores it"),
        ("rm -r build ignored", "deletes 6 files in build, ignored; /rewind restores them"),
        ("cd build && rm *",
         "deletes build/0.txt, build/1.txt, build/2.txt; /rewind restores them"),
        ("sh -c 'rm -rf build'", "deletes 3 files in build; /rewind restores them"),
        ("for d in build ignored; do rm -r $d; done",
         "deletes 3 files in build; /rewind restores them and "
         "deletes 3 files in ignored; /rewind restores them"),
        ("find ignored -delete", "deletes at most 3 files in ignored; cannot be undone"),
        ("find build -name '1*' -delete",
         "deletes at most 3 files in build; /rewind restores them"),
        ("rm build", ""), ("rm --help", ""), ("rm missing", ""), ("ls", ""), ("find . -type f", ""),
    ],
)  # fmt: skip
def test_removals(effect: Effect, command: str, wanted: str) -> None:
    assert effect(command) == wanted


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("git push origin main", "publishes 1 commit to origin/main; cannot be undone"),
        ("git push", "publishes 1 commit to origin/main; cannot be undone"),
        ("git push origin HEAD:new",
         "publishes the new branch new with 1 commit to origin; cannot be undone"),
        ("git push origin :main", "deletes the branch main on origin; cannot be undone"),
        ("git push -d origin main", "deletes the branch main on origin; cannot be undone"),
        ("git push --tags", "publishes all tags to origin; cannot be undone"),
        ("git push https://me:secret@host/x.git main",
         "publishes the new branch main with 2 commits to https://…@host/x.git; cannot be undone"),
        ("git push origin $BRANCH",
         "publishes commits that are known only at run time; cannot be undone"),
        ("git reset --hard", "discards the changes in 1 file; /rewind restores them"),
        ("git reset --hard HEAD~1",
         "discards the changes in 1 file and removes 1 commit from the branch; "
         "/rewind restores them"),
        ("git checkout a.txt", "discards the changes in 1 file; /rewind restores them"),
        ("git restore .", "discards the changes in 1 file; /rewind restores them"),
        ("git clean -fd", "deletes 3 untracked files; /rewind restores them"),
        ("git clean -fdx", "deletes 6 untracked and ignored files; cannot be undone"),
        ("npm publish", "publishes a package; cannot be undone"),
        ("git checkout main", ""), ("git reset HEAD~1", ""), ("git status", ""),
        ("git restore --staged .", ""), ("npm install publish", ""),
    ],
)  # fmt: skip
def test_git_and_packages(effect: Effect, command: str, wanted: str) -> None:
    assert effect(command) == wanted


def test_a_forced_push_removes_commits(effect: Effect, project: Path) -> None:
    git(project, "push", "-q", "origin", "main")
    git(project, "reset", "-q", "--soft", "HEAD~1")
    assert effect("git push --force") == (
        "publishes 0 commits to origin/main, removes 1 commit from it; cannot be undone"
    )
    assert "removes" not in effect("git push")


def test_a_count_is_bounded(effect: Effect, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "MAX_COUNTED_FILES", 3)
    assert count_files([str(project / "build"), str(project / "ignored")])[1] is False
    assert effect("rm -r build ignored").startswith("deletes more than 3 files in build, ignored; ")


def test_the_reason_names_the_effect() -> None:
    found = {"rm -r x": "deletes 3 files in x; cannot be undone"}
    wanted = "`rm -r x` deletes 3 files in x; cannot be undone"
    assert with_effects("`rm -r x` may change something", found) == wanted
    assert with_effects("`rm -r x` may change something; why", found) == f"{wanted}; why"
    assert with_effects("a path outside", found) == "a path outside"
    assert with_effects("a path outside", found, "rm -r x") == f"{wanted}; a path outside"
