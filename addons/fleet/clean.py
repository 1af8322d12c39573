"""Remove the worktrees, branches and clones of tasks whose work is collected.

The work in a place is compared with the collected patch. A place with other work stays.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from re import MULTILINE

from ...api.base import CtxagentError, dataclass, regex
from ...api.files import GitRunner, current_branch
from ...api.programs import child_environment
from ...api.record import is_in_use
from .ledger import PATCH_NAME, FleetFolder, TaskFolder, TaskRecord, logs_in
from .places import diff_of, digest_of, worktree_name
from .summary import find_place

BRANCH_PREFIX, HOLDER_SUFFIX = "ctxagent/", "-worktrees"  # of the worktrees of --worktree
# Why a place stays.
NOT_ENDED = "the next run continues the task"
NOT_DONE = "`fleet retry` continues the task there; --all includes it"
IN_USE = "its session is open in another process"
NOT_COLLECTED = "its changes are not collected"
EARLIER = "changes of an earlier session, which `fleet collect` leaves out"
NO_BASE = "it has no commit to compare with"
OTHER_COMMITS = "it has commits that are not checked out"
NESTED = "it contains a repository, whose files are not in the patch"

_NESTED = regex(rb"^(?:new file mode|index \S+) 160000$", MULTILINE)
_ONLY_IN_CLONE = ["rev-list", "--max-count=1", "--all", "--not", "--remotes", "--tags", "HEAD"]


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """A worktree or clone that a fleet created."""

    id: str
    path: Path
    repository: Path | None  # the main checkout of a worktree; None for a clone
    why: str = ""  # why it stays; "" if it can be removed

    @property
    def branch(self) -> str:
        """The branch that was created with a worktree."""
        return BRANCH_PREFIX + self.path.name if self.repository else ""


def find_places(
    records: Mapping[str, TaskRecord], folder: FleetFolder, environ: Mapping[str, str], *, all: bool
) -> Iterator[TaskPlace]:
    """Yield the existing worktrees and clones of all sessions, with the reason why each stays.
    `all` includes tasks that are not done.
    """
    env, logs = child_environment(environ), logs_in(folder.state)
    for record in records.values():
        for session in record.sums:
            kept, log = folder.task(record.id, session), logs.get(session)
            path, repository = kept.place, None
            if not path.is_dir():
                top = _worktree(find_place(log), kept)
                if top is None:
                    continue
                path = top
                repository = path.parent.with_name(path.parent.name.removesuffix(HOLDER_SUFFIX))
            why = ""
            if session == record.session and record.state in ("running", "stopped"):
                why = NOT_ENDED
            elif session == record.session and record.state != "done" and not all:
                why = NOT_DONE
            elif log and is_in_use(log.with_name("lock")):
                why = IN_USE
            found = TaskPlace(record.id, path, repository)
            why = why or _uncollected(found, kept, folder, env)
            if why == NOT_COLLECTED and session != record.session:
                why = EARLIER
            yield TaskPlace(record.id, path, repository, why)


def _worktree(place: Path | None, kept: TaskFolder) -> Path | None:
    """Return the existing worktree of a task that contains a folder; None for another folder."""
    for path in (place, *place.parents) if place else ():
        if path.name == worktree_name(kept) and path.parent.name.endswith(HOLDER_SUFFIX):
            return path if path.is_dir() else None
    return None


def _uncollected(
    place: TaskPlace, kept: TaskFolder, folder: FleetFolder, env: Mapping[str, str]
) -> str:
    """Return why the work in a place is not collected; "" if it is."""
    try:
        patch = diff_of(place.path, kept, env)
        if patch is None:
            return NO_BASE
        # The patch of the agent's work, if nothing has changed since the steps ended.
        is_left = (_content(kept.left) or b"").decode() == digest_of(patch)
        work = _content(kept.patch) if is_left else None
        work = patch if work is None else work
        copies = (path / place.id / PATCH_NAME for path in folder.collections)
        if work and all(_content(copy) != work for copy in copies):
            return NOT_COLLECTED
        if _NESTED.search(work):
            return NESTED
        git = GitRunner(place.path, env)
        if place.repository is None and git.run(*_ONLY_IN_CLONE):
            return OTHER_COMMITS
        if place.branch and current_branch(place.path) != place.branch:
            has_branch = git.find("rev-parse", "--verify", "--quiet", place.branch) is not None
            ancestor = ("merge-base", "--is-ancestor", place.branch, "HEAD")
            return OTHER_COMMITS if has_branch and git.find(*ancestor) is None else ""
    except (CtxagentError, OSError) as error:
        return str(error).partition("\n")[0]
    return ""


def _content(path: Path) -> bytes | None:
    with suppress(OSError):
        return path.read_bytes()
    return None


class Remover:
    """Removes places."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        env = child_environment(environ)
        self._git = cache(lambda repository: GitRunner(repository, env))

    def remove(self, place: TaskPlace) -> None:
        """Remove a place with its branch. Raises OSError."""
        if place.repository is None:
            shutil.rmtree(place.path)
            return
        git = self._git(place.repository)
        git.run("worktree", "remove", "--force", str(place.path))
        git.find("branch", "--delete", "--force", place.branch)
        with suppress(OSError):
            place.path.parent.rmdir()  # only without other worktrees
