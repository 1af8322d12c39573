"""The state block: what the ledger knows, in one text behind the newest outline.

It lists every changed file with its last action, every open failure with its telling lines, the
files that were read, the todo list, running jobs and the last commit. It also names the next steps
of the newest summary that are answered since. No model is asked. The block is recorded with an edit
of history and changes only with one, so it needs no cache write of its own.

Changed files, open failures and the todo list are whole. Files that were only read fill the rest of
the block's budget, the newest first; older ones are counted by folder.
"""

from collections import Counter
from collections.abc import Iterator

from ...tools.offered import EVERY, Offered
from ...tools.system.unicode import replace_unprintable_but_tabs
from ..context.tokens import estimate
from ..session.archive import FILES_NAME
from ..session.entries import Summary
from ..session.ledger import Ledger
from .document import SummaryDocument
from .recall_hints import FOUND_BY, RECALL, names_each, without_hints
from .summary.merge import answered_steps
from .summary.open_failures import with_open_failures
from .summary.shorten import changed_file_rows, is_folder_row
from .summary.writer import document_of

HEADER = "[State at this point, as the log has it]"
BLOCK_SHARE = 0.03  # of the window
MIN_BLOCK_TOKENS = 600
MAX_LIST_SHARE = 0.125  # of the window, for changed files and for failures each
_ACTIONS = ("created", "modified", "deleted")


def state_block(
    ledger: Ledger, window_tokens: int, summary: Summary | None = None, offered: Offered = EVERY
) -> str:
    """Return the block for a window of this size; "" if the ledger has no facts for it. `summary`
    is the newest summary in the context.
    """
    room = int(MAX_LIST_SHARE * window_tokens)
    lines = [*_changed(ledger, room), *_failures(ledger, room), *_work(ledger)]
    steps = document.next_steps if (document := document_of(summary)) else ()
    if done := answered_steps(steps, ledger):
        lines.append(f"Answered since the summary: {'; '.join(done)}")
    budget = max(MIN_BLOCK_TOKENS, int(BLOCK_SHARE * window_tokens))
    read = _read(ledger, budget - estimate("\n".join([HEADER, *lines])))
    lines += [f"Files read: {read}"] if read else []
    text = "\n".join([HEADER, *map(replace_unprintable_but_tabs, lines)]) if lines else ""
    return text if RECALL in offered else without_hints(text, names_each(FILES_NAME))


def _changed(ledger: Ledger, room: int) -> Iterator[str]:
    """Yield a line for each action, with the changed files. Beyond `room` tokens, the least
    important ones are counted by folder.
    """
    rows = changed_file_rows(ledger.files, room)
    for action in _ACTIONS:
        paths = [row.path for row in rows if row.action == action and not is_folder_row(row)]
        if paths:
            yield f"Files {action}: {'; '.join(paths)}"
    yield from (f"In {row.path}: {row.change}" for row in rows if is_folder_row(row))


def _failures(ledger: Ledger, room: int) -> Iterator[str]:
    for failure in with_open_failures(SummaryDocument(), ledger, room).errors:
        head, *told = failure.split("\n")
        yield f"Still failing: {head}"
        yield from (f"  | {line}" for line in told)


def _work(ledger: Ledger) -> Iterator[str]:
    todos = [f"({todo['status']}) {todo['content']}" for todo in ledger.todos]
    if todos:
        yield f"Todo list: {'; '.join(todos)}"
    for job, command in ledger.running_jobs.items():
        yield f"Running: {job}, `{command}`"
    if ledger.head:
        yield f"Last commit: {ledger.head}"


def _read(ledger: Ledger, room: int) -> str:
    """Return the files that were only read, in about `room` tokens: the newest by name, the others
    by folder with their number.
    """
    paths = [*ledger.read]
    for count in (len(paths), *(len(paths) * eighths // 8 for eighths in range(7, -1, -1))):
        named = paths[len(paths) - count :]
        older = Counter(path[: path.rfind("/") + 1] or "./" for path in paths[: len(paths) - count])
        for folders in (older, _roots(older)):
            text = "; ".join([*(f"{n} in {folder}" for folder, n in folders.items()), *named])
            if estimate(text) <= room:
                return text
    return f"{len(paths)}{FOUND_BY}" if paths else ""


def _roots(folders: Counter[str]) -> Counter[str]:
    """Return the counts of the folders' first parts."""
    found = Counter[str]()
    for folder, count in folders.items():
        found[folder[: folder.find("/", 1) + 1]] += count
    return found
