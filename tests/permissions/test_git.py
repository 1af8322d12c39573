"""Git commands and repositories: the files a command shows, and the programs git would run."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.permissions.shell import git
from ctxagent.agent.permissions.shell.parser import SimpleCommand, parse
from ctxagent.tools.bash import BashParams, BashTool


def run(folder: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with three tracked files, which tests only read."""
    return make_repository(tmp_path_factory.mktemp("shared") / "project")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    for name in ("objects", "refs", "hooks"):
        (root / ".git" / name).mkdir()
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return root


def make_repository(root: Path) -> Path:
    (root / "src" / "deep").mkdir(parents=True)
    for name in ("key", "src/app.py", "src/deep/key"):
        (root / name).write_text("x")
    run(root.parent, "init", "-q", str(root))
    run(root, "add", ".")
    return root


def command(text: str) -> SimpleCommand:
    return parse(text).parts[0]


def may_show(text: str, base: Path, *guarded: str) -> bool:
    top = base if (base / ".git").exists() else base.parent
    paths = {str(top / name) for name in guarded}
    return git.may_show_file(command(text), str(base), paths.__contains__)


@pytest.mark.parametrize(
    "text",
    [
        "git diff", "git show", "git show HEAD", "git log -p", "git log -u", "git diff key",
        "git diff -- key", "git diff HEAD -- key", "git blame key", "git grep x",
        "git grep x -- key",
        "git stash show -p", "git show HEAD:key", "git show :key", "git show :0:key",
        "git cat-file -p HEAD:key", "git cat-file blob HEAD:key", "git cat-file -p abcdef",
        "git range-diff a b", "git log --patch", "git log -Ux", "git status -v", "git status -sv",
        "git status --verbose", "git diff src key", "git diff 'k*'", "git diff -- ':key'",
        "git show abcdef", "git show HEAD^{tree}", "git show ':/fix'", "git diff $x",
        "git diff a:key b:key", "git diff-tree -p HEAD", "git log -L1,2:key",
        "git diff --full-index",
        "git diff -- '[k]ey'", "git cat-file --batch", "git diff -- k?y", "git diff -- 'k\\ey'",
        "git show HEAD:./key", "git log --function-context", "git stash show",
        "git --no-pager diff", "git diff --stat -p", "git diff .", "git diff -- .",
        "git diff --word-diff", "git reflog -p", "git whatchanged -p",
    ],
)  # fmt: skip
def test_git_commands_that_may_show_a_file(shared: Path, text: str) -> None:
    assert may_show(text, shared, "key")


@pytest.mark.parametrize(
    "text",
    [
        "git status", "git log", "git log --oneline -5", "git log --stat", "git diff --stat",
        "git diff --name-only", "git diff --name-status HEAD", "git diff src/app.py",
        "git diff -- src/app.py", "git show HEAD:src/app.py", "git blame src/app.py",
        "git grep x -- src", "git diff src", "git cat-file -t HEAD", "git cat-file -s HEAD:key",
        "git cat-file -e HEAD:key", "git stash list", "git stash list --oneline",
        "git rev-parse HEAD",
        "git ls-files", "git log --since=now --author=a -n3", "git reflog",
        "git log -Sx --graph --all", "git diff --shortstat --cached", "git diff-tree HEAD",
        "git diff --summary --raw", "git status -s", "git log --pretty=%s -- key", "git branch",
        "git diff -s", "git diff --quiet key", "git diff --numstat=3 key",
        "git show :2:src/app.py",
        "git", "git log --format=%H --merges",
    ],
)  # fmt: skip
def test_git_commands_that_cannot_show_a_file(shared: Path, text: str) -> None:
    assert not may_show(text, shared, "key")


def test_paths_count_from_the_folder_and_those_in_commits_from_the_top(shared: Path) -> None:
    src = shared / "src"
    assert may_show("git diff deep", src, "src/deep/key")
    assert not may_show("git diff deep", src, "key")
    assert may_show("git diff ../key", src, "key")
    assert may_show("git show HEAD:key", src, "key")
    assert not may_show("git show HEAD:key", src, "src/deep/key")
    assert may_show("git show HEAD:./deep/key", src, "src/deep/key")
    assert may_show("git show HEAD:../key", src, "key")
    assert not may_show("git show HEAD:../key", src, "src/deep/key")


def test_paths_in_commits(shared: Path, tmp_path: Path) -> None:
    def named(text: str, base: Path = shared) -> list[str]:
        return git.paths_in_commits(command(text), str(base))

    assert named("git show HEAD:key :src/app.py") == [
        str(shared / "key"),
        str(shared / "src/app.py"),
    ]
    assert named("git show :1:key") == [str(shared / "key")]
    assert named("git show HEAD:key", shared / "src") == [str(shared / "key")]
    assert named("git show HEAD:../key", shared / "src") == [str(shared / "key")]
    assert named("git show HEAD:./a/../b", shared / "src") == [str(shared / "src/b")]
    assert named("git show HEAD:..key", shared / "src") == [str(shared / "..key")]
    assert named("git show HEAD:key", tmp_path) == [str(tmp_path / "key")]
    assert named("git show HEAD") == named("cat HEAD:key") == named("git show HEAD:") == []


def test_the_files_that_git_tracks(shared: Path, tmp_path: Path) -> None:
    names = ["key", "src/app.py", "src/deep/key"]
    for folder in (shared, shared / "src"):
        assert git.tracked_paths(str(folder)) == [str(shared / name) for name in names]
    assert git.tracked_paths(str(tmp_path)) == []
    assert git.repository_top(str(shared / "src")) == str(shared)
    assert git.repository_top(str(tmp_path)) == str(tmp_path)


def test_an_index_with_shortened_paths(repository: Path) -> None:
    folder = repository / "src" / "with a long name"
    folder.mkdir(parents=True)
    for number in range(300):
        (folder / f"file{number}.py").touch()
    (repository / "z").touch()
    for version in ("2", "4"):
        run = ["git", "-C", str(repository), "-c", "core.quotepath=off"]
        subprocess.run([*run, "add", "."], check=True)
        subprocess.run([*run, "update-index", "--index-version", version], check=True)
        listed = subprocess.run([*run, "ls-files"], capture_output=True, text=True, check=True)
        found = git.tracked_paths(str(repository))
        assert found == [f"{repository}/{line}" for line in listed.stdout.splitlines()]
        assert git.index_path_outside(str(repository)) == ""


@pytest.mark.parametrize("path", ["../secret", "/etc/shadow", "src/../../secret", "..", "a/../b"])
def test_an_index_that_leads_out_of_the_project(repository: Path, path: str) -> None:
    """Git itself writes no such index, but a downloaded folder may contain one."""
    name = path.encode()
    entry = bytes(24) + b"\0\0\x81\xa4" + bytes(32) + len(name).to_bytes(2, "big") + name
    entry += bytes(8 - len(entry) % 8)
    data = b"DIRC\0\0\0\2\0\0\0\1" + entry
    (repository / ".git" / "index").write_bytes(data + hashlib.sha1(data).digest())
    leaves = os.path.normpath(path) if path != "a/../b" else ""
    assert git.index_path_outside(str(repository)) == leaves
    for command in ("git diff", "git add .", "git status"):
        approval = Approval(cwd=repository, allow=["Bash(git:*)"], path="/usr/bin:/bin")
        asked = approval.judge(BashTool(), BashParams(command=command)).action == "ask"
        assert asked is bool(leaves)


def test_an_index_that_cannot_be_read_may_hold_any_file(repository: Path) -> None:
    index = repository / ".git" / "index"
    for data in (
        b"DIRC",
        b"DIRC\0\0\0\5\0\0\0\0",
        b"DIRC\0\0\0\4\0\0\0\1",
        b"DIRC\0\0\0\2\0\0\0\1",
        b"DIRC\0\0\0\2sdir\0\0\0\0",
    ):
        index.write_bytes(data)
        assert git.tracked_paths(str(repository)) is None
        assert may_show("git diff", repository)
        assert not may_show("git status", repository)
    index.write_bytes(b"DIRC\0\0\0\2\0\0\0\0")
    assert git.tracked_paths(str(repository)) == []
    (repository / ".git" / "config").write_text("[extensions]\nobjectformat = sha256\n")
    assert git.tracked_paths(str(repository)) is None


def test_a_link_into_another_repository(shared: Path, repository: Path) -> None:
    (repository / "link").symlink_to(shared / "src")
    found = git.tracked_paths(str(repository / "link"))
    assert found == [str(shared / name) for name in ("key", "src/app.py", "src/deep/key")]


@pytest.mark.parametrize(
    "setting",
    [
        "[diff]\nexternal = x", '[filter "a"]\nclean = x',
        '[filter "a"]\nsmudge = x', '[filter "a"]\nprocess = x', '[diff "a"]\ntextconv = x',
        '[diff "a"]\ncommand = x', "[gpg]\nprogram = x", "[include]\npath = x",
        "[core]\nalternateRefsCommand = x", "[remote \"a\"]\npromisor = true",
        '[merge "a"]\ndriver = x',
    ],
)  # fmt: skip
def test_settings_that_name_programs(repository: Path, setting: str) -> None:
    (repository / ".git" / "config").write_text(setting + "\n")
    found = git.program_git_runs(str(repository / "src"))
    key = setting.splitlines()[1].partition(" ")[0].lower()
    assert found.startswith(f"`{key} = ")
    assert found.endswith("in config")


def test_settings_that_do_not(repository: Path) -> None:
    assert git.program_git_runs(str(repository)) == ""
    config = repository / ".git" / "config"
    config.write_text(
        "[core]\nbare = false\nworktree = ..\n[user]\nname = x\n"
        '[filter "lfs"]\nclean = git-lfs clean -- %f\nprocess = "git-lfs filter-process"\n'
    )
    assert git.program_git_runs(str(repository)) == ""
    config.write_text('[filter "lfs"]\nclean = git-lfs clean; x\n')
    assert git.program_git_runs(str(repository)) == "`clean = git-lfs clean; x` in config"
    config.write_text("[core]\nworktree = ../../other\n")
    assert git.program_git_runs(str(repository)) == "the work tree ../../other"
    config.write_text(f"[diff]\nexternal = {'x' * 90}\n")
    assert git.program_git_runs(str(repository)) == f"`external = {'x' * 60}` in config"


def test_a_work_trees_own_settings(repository: Path) -> None:
    (repository / ".git" / "config.worktree").write_text("[diff]\nexternal = x\n")
    assert git.program_git_runs(str(repository)) == "`external = x` in config.worktree"


def test_the_hook_that_looking_runs(repository: Path) -> None:
    hook = repository / ".git" / "hooks" / "post-index-change"
    hook.write_text("#!/bin/sh\n")
    assert git.program_git_runs(str(repository)) == ""
    hook.chmod(0o755)
    assert git.program_git_runs(str(repository)) == "the hook post-index-change"
    hook.rename(repository / "post-index-change")
    assert git.program_git_runs(str(repository)) == ""
    (repository / ".git" / "config").write_text("[core]\nhooksPath = .\n")
    assert "hook" in git.program_git_runs(str(repository))


def test_the_hooks_and_settings_of_a_command_that_changes(repository: Path) -> None:
    def runs(command: str) -> str:
        return git.program_git_runs(str(repository), parse(command).parts[0])

    hooks, config = repository / ".git" / "hooks", repository / ".git" / "config"
    (hooks / "pre-commit.sample").touch(0o755)
    (hooks / "pre-push").touch(0o755)
    assert runs("git add .") == runs("git tag v1") == ""
    assert runs("git push") == "the hook pre-push"
    (hooks / "reference-transaction").touch(0o755)
    assert runs("git tag v1") == "the hook reference-transaction"
    assert git.program_git_runs(str(repository)) == ""
    (hooks / "reference-transaction").unlink()
    for text, found in (
        ("[core]\nsshCommand = x\n", "`sshcommand = x` in config"),
        ('[trailer "a"]\ncmd = x\n', "`cmd = x` in config"),
        ("[credential]\nhelper = !x\n", "`helper = !x` in config"),
        ("[credential]\nhelper = store\n", ""),
    ):
        config.write_text(text)
        assert runs("git add .") == found
        assert git.program_git_runs(str(repository)) == ""


def test_a_repository_that_is_not_whole(repository: Path, tmp_path: Path) -> None:
    unreadable = f"{repository}/.git, which cannot be read"
    head = repository / ".git" / "HEAD"
    assert git.program_git_runs(str(repository)) == ""
    head.write_text("a" * 40)
    assert git.program_git_runs(str(repository)) == ""
    for text in ("", "ref: other", "a" * 39):
        head.write_text(text)
        assert git.program_git_runs(str(repository)) == unreadable
    head.unlink()
    head.symlink_to("refs/heads/main")
    assert git.program_git_runs(str(repository)) == unreadable
    head.unlink()
    head.write_text("ref: refs/heads/main")
    (repository / ".git" / "objects").rmdir()
    assert git.program_git_runs(str(repository)) == unreadable
    head.unlink()
    assert git.program_git_runs(str(repository)) == ""  # git continues upward


def test_a_file_that_names_the_repository(repository: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (repository / ".git" / "config").write_text("[diff]\nexternal = x\n")
    own = repository / ".git" / "worktrees" / "tree"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    (own / "commondir").write_text("../..\n")
    (tree / ".git").write_text(f"gitdir: {own}\n")
    assert git.program_git_runs(str(tree)) == "`external = x` in config"
    for text in ("", "elsewhere", "gitdir: \0", "gitdir: nowhere"):
        (tree / ".git").write_text(text)
        assert git.program_git_runs(str(tree)) == f"{tree}/.git, which cannot be read"


@pytest.mark.slow
def test_repositories_inside_others(tmp_path: Path) -> None:
    """Programs of an inner repository are found; one nested too deeply counts as unreadable."""
    tops = [tmp_path / "a"]
    for name in ("b", "c", "d", "e"):
        tops.append(tops[-1] / name)
    for top in reversed(tops):
        make_repository(top)
        run(top, "commit", "-q", "-m", "x")
        if top is not tops[-1]:
            run(top, "add", ".")
    assert "cannot be read" in git.program_git_runs(str(tops[0]))
    assert git.program_git_runs(str(tops[1])) == ""
    run(tops[2], "config", "diff.external", "x")
    for top in tops[:3]:
        assert git.program_git_runs(str(top)) == "`external = x` in config"
    assert git.program_git_runs(str(tops[3])) == ""
    (tops[3] / ".git" / "objects" / "info").mkdir(exist_ok=True)
    (tops[3] / ".git" / "HEAD").unlink()
    assert git.program_git_runs(str(tops[3])) == "`external = x` in config"


@pytest.mark.parametrize(
    ("text", "words", "folder"),
    [
        ("git -C src log -1", ["git", "log", "-1"], "src"),
        ("git -C a -C b log", ["git", "-C", "b", "log"], "a"),
        ("git log -C src", None, ""), ("git -C src", None, ""), ("git -C $x log", None, ""),
        ("git -C s* log", None, ""), ("git -C '' log", None, ""), ("cat -C src log", None, ""),
        ("git -P -C src log", None, ""),
    ],
)  # fmt: skip
def test_a_folder_before_the_subcommand(text: str, words: list[str] | None, folder: str) -> None:
    part = command(text)
    plain, found = git.without_folder(part)
    assert found == folder
    assert [word.text for word in plain.words] == (words or [word.text for word in part.words])


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("git log", True), ("cd src && git log", True), ("cd $x && git log", False),
        ("cd s* && git log", False), ("cd && git log", False), ("cd a b && git log", False),
        ("ls; cd src; git log", False), ("cd src && cd a && git log", False),
        ("pushd src && git log", False), ("cd $x && cat", True), ("(cd src; git log)", False),
        ("  cd src; git log", True), ("ls && git log", True), ("popd; git log", False),
    ],
)  # fmt: skip
def test_the_folder_that_git_starts_in(text: str, known: bool) -> None:
    script = parse(text)
    assert git.has_known_folder(script.parts[-1], script) is known


def test_only_a_leading_cd_is_known() -> None:
    for text, leading in (
        ("cd a; ls", True),
        ("ls; cd a", False),
        ("(cd a)", False),
        ("cd", False),
    ):
        script = parse(text)
        part = next(each for each in script.parts if each.name == "cd")
        assert git.is_leading_cd(part, script) is leading
        assert git.has_known_folder(part, script) is leading
