"""The project's git repository, read by git itself. Its configuration is not trusted: no program
that it names is started, and none would find a secret in its environment."""

import errno
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ...tools.system.environment import git_variables
from ...tools.system.files import open_kept
from ...tools.system.git_links import leads_astray
from ...tools.system.programs import own_environment, program

NOT_INSTALLED = "Git: not installed"
MAX_HEAD_BYTES = 8_192
MAX_CHANGED_FILES = 40  # that are named
RUN_TIMEOUT_S = 1_800  # for a command that may copy a whole repository
MAX_SAID_CHARS = 500  # of what git says when it fails

_HARMLESS = {
    "core.fsmonitor": "false",
    "log.showSignature": "false",
    "safe.bareRepository": "explicit",  # a folder that only looks like a repository is none
}
_QUIET = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "submodule.recurse=false")
# Variables by which git would look at another repository than the one in its folder.
_OF_ANOTHER_REPOSITORY = frozenset(
    ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
)
_NO_FETCH = {"GIT_ALLOW_PROTOCOL": "none"}  # a partial clone would, by a program it can name
_IN_ENGLISH = {"LANGUAGE": "C", "LC_ALL": "C"}
# The umask of git: what it writes is opened to others, if at all, when it is whole.
PRIVATE_UMASK = 0o077


def git_program(env: Mapping[str, str]) -> str:
    """Return the path of the git that the agent trusts, "" where there is none."""
    return program("git", env.get("PATH"))


def run_git(
    command: Sequence[str],
    folder: str | Path,
    env: Mapping[str, str],
    given: bytes = b"",
    seconds: float | None = RUN_TIMEOUT_S,
) -> tuple[bytes, bytes]:
    """Run a git that only reads, or writes for us alone, and return its output and its complaints.
    `given` is its input. An interrupt from the keyboard does not reach it. Raises OSError with
    git's own words."""
    with subprocess.Popen(
        command, cwd=folder, env={**env, **_IN_ENGLISH}, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        umask=PRIVATE_UMASK,
    ) as child:  # fmt: skip
        try:
            said, complaints = child.communicate(given, seconds)
        except subprocess.TimeoutExpired as error:
            raise OSError(errno.ETIMEDOUT, str(error)) from None
        finally:
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
    if child.returncode:
        told = complaints.decode("utf-8", "replace").strip()[-MAX_SAID_CHARS:]
        raise OSError(errno.EIO, told or f"git ended with {child.returncode}")
    return said, complaints


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
    """Read the start of a regular file. Raises OSError, also for a link, which may lead to
    anything."""
    with open_kept(path) as file:
        return file.read(most).decode("utf-8", "replace")


def describe_repository(cwd: Path, env: Mapping[str, str]) -> str:
    """Describe branch, newest commits and changed files in a few lines for the model. `env` is what
    a command of the model would get: variables that it lacks are kept from git too."""
    if not git_program(env):
        return NOT_INSTALLED
    if astray := leads_astray(cwd):
        return f"Git: not looked at: {astray}"
    root = next((each for each in (cwd, *cwd.parents) if os.path.lexists(each / ".git")), None)
    if root is None:
        return "Git: not a repository"
    try:
        return _describe(cwd, env)
    except OSError as error:
        return f"Git: {root}, unreadable ({type(error).__name__})"


def _describe(cwd: Path, env: Mapping[str, str]) -> str:
    env = {**own_environment(env), "GIT_OPTIONAL_LOCKS": "0", **_NO_FETCH}
    env |= git_variables({**_HARMLESS, **_no_filters(cwd, env)}, env)

    def lines_of(*words: str) -> list[str]:
        return (
            run_git([git_program(env), *words], cwd, env)[0].decode("utf-8", "replace").splitlines()
        )

    # What has changed in a repository inside would be said by a git that reads its settings.
    status = lines_of("status", "--short", "--branch", "--ignore-submodules=dirty")
    changed = status[1:]
    lines = [f"Git branch: {status[0].removeprefix('## ')}"]
    lines += ["Changed files:", *changed[:MAX_CHANGED_FILES]] if changed else ["Work tree: clean"]
    if len(changed) > MAX_CHANGED_FILES:
        lines.append(f"… and {len(changed) - MAX_CHANGED_FILES} more")
    with suppress(OSError):  # before the first commit
        newest = lines_of("log", "-5", "--format=%h %s")
        lines += ["Newest commits:", *(line[:100] for line in newest)]
    return "\n".join(lines)


def safe_git_environment(cwd: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` with which git runs no filter of the repository and fetches nothing. Raises
    OSError where there is no git, and where the repository would have it look elsewhere."""
    env = own_environment(env)
    if not git_program(env):
        raise FileNotFoundError(errno.ENOENT, "git is not installed")
    if astray := leads_astray(cwd):
        raise PermissionError(errno.EACCES, f"{astray}, out of the repository")
    return {**env, **_NO_FETCH, **git_variables(_no_filters(cwd, env), env)}


class GitRunner:
    """Runs commands of git in a folder, and no hook or program that a repository there names."""

    def __init__(self, folder: Path, env: Mapping[str, str], *, fetches: bool = False) -> None:
        """With `fetches` git may ask other machines. Raises OSError where there is no git, or the
        repository would have it look elsewhere."""
        env = {name: value for name, value in env.items() if name not in _OF_ANOTHER_REPOSITORY}
        self._folder, self._program = folder, git_program(env)
        if not self._program:
            raise FileNotFoundError(errno.ENOENT, "git is not installed")
        self.env = {**(env if fetches else safe_git_environment(folder, env)), "LC_ALL": "C"}

    def find(self, *words: str, given: bytes = b"") -> str | None:
        """Return what a command prints, None where it fails."""
        with suppress(OSError):
            return os.fsdecode(self.run(*words, given=given)).strip()
        return None

    def run(self, *words: str, given: bytes = b"") -> bytes:
        """Return what a command prints; `given` is its input. Raises OSError with git's own
        words."""
        settings = [part for setting in _QUIET for part in ("-c", setting)]
        try:
            done = subprocess.run(
                [self._program, *settings, *words],
                cwd=self._folder,
                env=self.env,
                input=given,
                capture_output=True,
                timeout=RUN_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise OSError(errno.ETIMEDOUT, str(error)) from None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise OSError(errno.EIO, said[-MAX_SAID_CHARS:])
        return done.stdout


def _no_filters(folder: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return settings that empty every filter: `git status` would run those that clean files."""
    command = [git_program(env), "config", "--null", "--name-only", "--get-regexp", r"^filter\."]
    try:
        listed, _ = run_git(command, folder, env)
    except OSError as error:
        if error.errno != errno.EIO:  # with which it ends when there are none
            raise
        return {}
    return dict.fromkeys(filter(None, os.fsdecode(listed).split("\0")), "")
