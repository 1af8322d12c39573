"""What is checked out in a work tree, read from the files of git: at no cost, and without git."""

from pathlib import Path


def branch(cwd: Path) -> str:
    """The branch checked out at `cwd`, the beginning of the commit where there is none; "" outside
    a repository."""
    for folder in (cwd, *cwd.parents):
        git = folder / ".git"
        try:
            if git.is_file():  # a worktree: the file names the directory
                named = git.read_text(encoding="utf-8", errors="replace").partition("gitdir:")[2]
                git = folder / named.strip()
            head = (git / "HEAD").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            continue
        return head.removeprefix("ref: refs/heads/") if head.startswith("ref:") else head[:8]
    return ""
