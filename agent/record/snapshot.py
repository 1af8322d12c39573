"""The work tree as git sees it, read through GitPython. The project's git configuration is not
trusted: no program that it names is started, and none would find a secret in its environment."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...tools.programs import own_environment
from .gitprogram import git_program

if TYPE_CHECKING:
    from git import Git, Repo

NONE = "Git: not installed"
MOST = 40  # changed files named

_HARMLESS = {
    "core.fsmonitor": "false",
    "log.showSignature": "false",
    "safe.bareRepository": "explicit",  # a folder that only looks like a repository is none
}
_NO_FETCH = {"GIT_ALLOW_PROTOCOL": "none"}  # a partial clone would, by a program it can name


def describe(cwd: Path, env: Mapping[str, str]) -> str:
    """Branch, newest commits and changed files, in a few lines for the model.

    `env` is what a command of the model would get: variables that it lacks are kept from git too.
    """
    try:
        if not git_program(env):
            return NONE
        from git import Repo
        from git.exc import GitError
    except ImportError:  # GitPython's way to say that there is no git
        return NONE
    try:
        repo = Repo(cwd, search_parent_directories=True)
    except (GitError, OSError):
        return "Git: not a repository"
    with repo:
        try:
            return _described(repo, env)
        except (GitError, OSError) as error:
            return f"Git: {repo.working_tree_dir}, unreadable ({type(error).__name__})"


def _described(repo: "Repo", env: Mapping[str, str]) -> str:
    git = repo.git
    git.update_environment(
        **{name: "" for name in os.environ if name not in env and name != "PATH"},
        PATH=own_environment(env)["PATH"],
        GIT_OPTIONAL_LOCKS="0",
        **_NO_FETCH,
    )
    git.update_environment(**_overriding({**_HARMLESS, **_no_filters(git)}, os.environ))
    # What has changed in a repository inside would be said by a git that reads its settings.
    status = git.status("--short", "--branch", "--ignore-submodules=dirty").splitlines()
    changed = status[1:]
    lines = [f"Git branch: {status[0].removeprefix('## ')}"]
    lines += ["Changed files:", *changed[:MOST]] if changed else ["Work tree: clean"]
    if len(changed) > MOST:
        lines.append(f"… and {len(changed) - MOST} more")
    if repo.head.is_valid():
        lines.append("Newest commits:")
        lines += [line[:100] for line in git.log("-5", "--format=%h %s").splitlines()]
    return "\n".join(lines)


def unarmed(cwd: Path, env: Mapping[str, str]) -> dict[str, str]:
    """`env` with which git runs no filter that the repository sets up, and fetches nothing. Raises
    OSError where there is no git."""
    env = own_environment(env)
    try:
        if not git_program(env):
            raise FileNotFoundError(errno.ENOENT, "git is not installed")
        from git import Git
        from git.exc import GitError
    except ImportError as error:  # GitPython's way to say that there is no git
        raise FileNotFoundError(errno.ENOENT, "git is not installed") from error
    git = Git(cwd)
    blank = {name: "" for name in os.environ if name not in env}
    git.update_environment(**blank, **env)
    try:
        emptied = _no_filters(git)
    except GitError as error:
        raise OSError(errno.EIO, "its configuration cannot be read") from error
    return {**env, **_NO_FETCH, **_overriding(emptied, env)}


def _no_filters(git: "Git") -> dict[str, str]:
    """Every filter that is set up, emptied: `git status` would run those that clean files."""
    options = ("--null", "--name-only", "--get-regexp", r"^filter\.")
    listed = str(git.config(*options, with_exceptions=False))  # it fails when there are none
    return dict.fromkeys(filter(None, listed.split("\0")), "")


def _overriding(settings: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Variables that put settings above all of git's files; names may hold any character. They
    come after those that `env` sets in the same way."""
    before = env.get("GIT_CONFIG_COUNT", "")
    first = int(before) if before.isdecimal() else 0
    variables = {"GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (name, value) in enumerate(settings.items(), first):
        variables[f"GIT_CONFIG_KEY_{number}"] = name
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return variables
