"""The status line: model and effort, mode, branch, context usage, cost and jobs. The least
important parts are dropped first when the line is too long. Only what needs the user has a colour.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.utils import get_cwidth

from ...tools.system.phrasing import count_of
from ...tools.system.unicode import clean
from ..events import StatusPart
from ..lazy import dataclass
from .cells import cut_to_cells

if TYPE_CHECKING:
    from ...tools.system.confinement import Confinement

Fragment = tuple[str, str]  # (prompt_toolkit style, text)

BAR_CELLS = 8  # cells of the context bar
MAX_BRANCH_CELLS = 32  # cells of a branch
MAX_PART_CELLS = 40  # cells of an extension's part
SEPARATOR = " · "
BYPASS = "bypass"
BYPASS_TEXT = "bypass: asks nothing"
NO_SANDBOX, PARTIAL_SANDBOX = "!!", "!"  # ASCII, for every terminal
WOULD_COST = "would cost"  # prefix of a simulated price


@dataclass(frozen=True, slots=True)
class StatusLine:
    """The facts of the status line."""

    model: str  # "" for none yet
    mode: str = ""
    branch: str = ""
    share: float | None = None  # used share of the context window; None if no session is open
    fullness: str = ""  # the same in words
    next_step: str = ""  # what makes room in the context
    user_acts: bool = False  # whether the next step is up to the user
    cost_usd: float | None = None
    agents: int = 0
    jobs: int = 0
    effort: str = ""
    more: Sequence[StatusPart] = ()  # of features
    overloaded: str = ""  # ID of the overloaded model that `model` replaces
    sandbox: str = ""  # NO_SANDBOX or PARTIAL_SANDBOX, else ""


def fit_line(status: StatusLine, width: int) -> list[Fragment]:
    """Return the status line in at most `width` columns."""
    parts = [*_parts(status), *map(_clean, status.more), *_tasks(status)]
    if _cells(parts) > width:
        parts = [replace(part, text=part.short or part.text) for part in parts]
    while len(parts) > 1 and _cells(parts) > width:
        lowest = min(part.rank for part in parts)
        del parts[max(n for n, part in enumerate(parts) if part.rank == lowest)]
    out = _joined(parts)
    if len(parts) == 1:
        style, text = out[0]
        out[0] = style, cut_to_cells(text, width)
    return out


def _parts(status: StatusLine) -> Iterator[StatusPart]:
    """Yield the parts about the session."""
    name = model_name(status.model)
    if status.overloaded:
        name = f"{model_name(status.overloaded)} (fallback {name})"
    if name:
        yield StatusPart(name, rank=11)
    if status.effort:
        yield StatusPart(status.effort, rank=4, joins=True)
    if status.mode == BYPASS:  # never left out
        yield StatusPart(BYPASS_TEXT, math.inf, f"class:mode.{BYPASS}", short=BYPASS)
    elif status.mode:
        yield StatusPart(status.mode, 10, f"class:mode.{status.mode.partition('+')[0]}")
    if status.sandbox:
        style = f"class:mode.{BYPASS}" if status.sandbox == NO_SANDBOX else ""
        yield StatusPart(status.sandbox, 12, style)
    if status.branch:
        yield StatusPart(cut_to_cells(clean(status.branch), MAX_BRANCH_CELLS), rank=2)
    if status.share is not None:
        filled = min(BAR_CELLS, round(status.share * BAR_CELLS))
        yield StatusPart("▰" * filled + "▱" * (BAR_CELLS - filled), rank=3)
        yield StatusPart(status.fullness, rank=9)
    if status.user_acts:
        yield StatusPart(status.next_step, 9.5, "class:level.red")
    elif status.next_step:
        yield StatusPart(status.next_step, rank=5)
    if status.cost_usd is not None:
        unpaid = is_scripted(status.model) and status.cost_usd > 0
        yield StatusPart(f"{f'{WOULD_COST} ' * unpaid}${status.cost_usd:.2f}", rank=6)


def _tasks(status: StatusLine) -> Iterator[StatusPart]:
    """Yield the parts about what runs."""
    if status.agents:
        yield StatusPart(count_of(status.agents, "agent"), rank=7)
    if status.jobs:
        yield StatusPart(count_of(status.jobs, "job"), rank=8)


def _clean(part: StatusPart) -> StatusPart:
    """Return the part of an extension so that it can be shown."""
    text, short = (cut_to_cells(clean(each), MAX_PART_CELLS) for each in (part.text, part.short))
    return replace(part, text=text, short=short, rest=clean(part.rest)[:MAX_PART_CELLS])


def _cells(parts: Sequence[StatusPart]) -> int:
    return sum(get_cwidth(text) for _, text in _joined(parts))


def _joined(parts: Sequence[StatusPart]) -> list[Fragment]:
    out: list[Fragment] = []
    for part in parts:
        separator = " " if part.joins else SEPARATOR
        out += [("", separator)] if out else []
        out += [(part.style, part.text), *([("", part.rest)] if part.rest else [])]
    return out


def sandbox_mark(sandbox: "Confinement | None") -> str:
    """Return the mark of a sandbox that is incomplete or missing; "" if it is complete or off."""
    if sandbox is None:
        return ""
    from ..security.bubblewrap import state_of  # too slow for the first paint

    return {"none": NO_SANDBOX, "partial": PARTIAL_SANDBOX, "complete": ""}[state_of(sandbox)]


def model_name(id: str) -> str:
    """Return the short name of a model; "scripted model" for scripted ones."""
    return "scripted model" if is_scripted(id) else id.removeprefix("claude-")


def is_scripted(id: str) -> bool:
    return id.startswith("scripted")


def path_within(path: Path, cwd: Path) -> str:
    """Return a path relative to `cwd` if it is inside, else as `short_path` does."""
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else short_path(path)


def short_path(path: Path) -> str:
    """Return a path with `~` for the home folder."""
    try:
        return f"~/{path.relative_to(Path.home())}".rstrip("/.")
    except (ValueError, RuntimeError):
        return str(path)
