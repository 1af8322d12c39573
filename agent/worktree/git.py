"""The project's git repository, read through GitPython. Its configuration is not trusted: no
program that it names is started, and none would find a secret in its environment."""

import errno
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...tools.system.git_links import leads_astray
from ...tools.system.programs import own_environment, program

if TYPE_CHECKING:
    from git import Git, Repo

NOT_INSTALLED = "Git: not installed"
MAX_HEAD_BYTES = 8_192
MAX_CHANGED_FILES = 40  # that are named

_PROGRAM_VARIABLE = "GIT_PYTHON_GIT_EXECUTABLE"
_HARMLESS = {
    "core.fsmonitor": "false",
    "log.showSignature": "false",
    "safe.bareRepository": "explicit",  # a folder that only looks like a repository is none
}
_NO_FETCH = {"GIT_ALLOW_PROTOCOL": "none"}  # a partial clone would, by a program it can name


def git_program(env: Mapping[str, str]) -> str:
    """Return the path of the git that the agent trusts, "" where there is none that runs.
    GitPython, which starts a git as soon as it is imported, is imported with this one."""
    path = program("git", env.get("PATH"))
    if path and "git" not in sys.modules:
        before = os.environ.get(_PROGRAM_VARIABLE)
        os.environ[_PROGRAM_VARIABLE] = path
        try:
            import git  # noqa: F401
        except ImportError:  # GitPython's way to say that it does not run
            return ""
        finally:
            if before is None:
                os.environ.pop(_PROGRAM_VARIABLE, None)
            else:
                os.environ[_PROGRAM_VARIABLE] = before
    return path


def current_branch(cwd: Path) -> str:
    """Return the branch checked out at `cwd`, or its commit; "" outside a repository."""
    for folder in (cwd, *cwd.parents):
        git = folder / ".git"
        try:
            if git.is_file():  # a worktree: the file names the directory
                named = read_start(git).partition("gitdir:")[2]
                git = folder / named.strip()
            head = read_start(git / "HEAD").strip()
        except (OSError, ValueError):  # anyone may have written what is named there
            continue
        return head.removeprefix("ref: refs/heads/") if head.startswith("ref:") else head[:8]
    return ""


def read_start(path: Path, most: int = MAX_HEAD_BYTES) -> str:
    """Read the start of a regular file; "" for a pipe or a device, which is not waited for. Raises
    OSError for a link too, which may lead to anything."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        return file.read(most).decode("utf-8", "replace") if regular else ""


def describe_repository(cwd: Path, env: Mapping[str, str]) -> str:
    """Describe branch, newest commits and changed files in a few lines for the model. `env` is what
    a command of the model would get: variables that it lacks are kept from git too."""
    if not git_program(env):
        return NOT_INSTALLED
    from git import Repo
    from git.exc import GitError

    if astray := leads_astray(cwd):
        return f"Git: not looked at: {astray}"
    try:
        repo = Repo(cwd, search_parent_directories=True)
    except (GitError, OSError):
        return "Git: not a repository"
    with repo:
        try:
            return _describe(repo, env)
        except (GitError, OSError) as error:
            return f"Git: {repo.working_tree_dir}, unreadable ({type(error).__name__})"


def _describe(repo: "Repo", env: Mapping[str, str]) -> str:
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
    lines += ["Changed files:", *changed[:MAX_CHANGED_FILES]] if changed else ["Work tree: clean"]
    if len(changed) > MAX_CHANGED_FILES:
        lines.append(f"… and {len(changed) - MAX_CHANGED_FILES} more")
    if repo.head.is_valid():
        lines.append("Newest commits:")
        lines += [line[:100] for line in git.log("-5", "--format=%h %s").splitlines()]
    return "\n".join(lines)


def safe_git_environment(cwd: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` with which git runs no filter of the repository and fetches nothing. Raises
    OSError where there is no git, and where the repository would have it look elsewhere."""
    env = own_environment(env)
    if not git_program(env):
        raise FileNotFoundError(errno.ENOENT, "git is not installed")
    if astray := leads_astray(cwd):
        raise PermissionError(errno.EACCES, f"{astray}, out of the repository")
    from git import Git
    from git.exc import GitError

    git = Git(cwd)
    blank = {name: "" for name in os.environ if name not in env}
    git.update_environment(**blank, **env)
    try:
        emptied = _no_filters(git)
    except GitError as error:
        raise OSError(errno.EIO, "its configuration cannot be read") from error
    return {**env, **_NO_FETCH, **_overriding(emptied, env)}


def _no_filters(git: "Git") -> dict[str, str]:
    """Return settings that empty every filter: `git status` would run those that clean files."""
    options = ("--null", "--name-only", "--get-regexp", r"^filter\.")
    listed = str(git.config(*options, with_exceptions=False))  # it fails when there are none
    return dict.fromkeys(filter(None, listed.split("\0")), "")


def _overriding(settings: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Return variables that put settings above all of git's files, after those that `env` sets so.
    Names of settings may hold any character."""
    before = env.get("GIT_CONFIG_COUNT", "")
    first = int(before) if before.isdecimal() else 0
    variables = {"GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (name, value) in enumerate(settings.items(), first):
        variables[f"GIT_CONFIG_KEY_{number}"] = name
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return variables
