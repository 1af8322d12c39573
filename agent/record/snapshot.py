"""The work tree as git sees it, read through GitPython."""

from pathlib import Path

from git import Repo
from git.exc import GitError

MOST = 40  # changed files named


def describe(cwd: Path) -> str:
    """Branch, newest commits and changed files, in a few lines for the model.

    The project's git configuration is not trusted: no program it names is started.
    """
    try:
        repo = Repo(cwd, search_parent_directories=True)
    except (GitError, OSError):
        return "Git: not a repository"
    with repo:
        git = repo.git(c=["core.fsmonitor=false", "log.showSignature=false"])
        try:
            status = git.status("--short", "--branch").splitlines()
        except (GitError, OSError) as error:
            return f"Git: {repo.working_tree_dir}, unreadable ({type(error).__name__})"
        changed = status[1:]
        lines = [f"Git branch: {status[0].removeprefix('## ')}"]
        lines += ["Changed files:", *changed[:MOST]] if changed else ["Work tree: clean"]
        if len(changed) > MOST:
            lines.append(f"… and {len(changed) - MOST} more")
        if repo.head.is_valid():
            lines.append("Newest commits:")
            git = repo.git(c=["core.fsmonitor=false", "log.showSignature=false"])
            log = git.log("-5", "--format=%h %s")
            lines += [line[:100] for line in log.splitlines()]
        return "\n".join(lines)
