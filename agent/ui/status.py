"""The status line: model and effort, mode, branch, context usage, cost and jobs. The least
important parts are dropped first when the line is too long.
"""

from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.utils import get_cwidth

from ...tools.system.plural import count_of
from ...tools.system.unicode import clean
from ..lazy import dataclass
from .cells import cut_to_cells

if TYPE_CHECKING:
    from ...tools.base import Confinement

Fragment = tuple[str, str]  # (prompt_toolkit style, text)

BAR_CELLS = 8  # cells of the context bar
MAX_BRANCH_CELLS = 32  # cells of a branch
MAX_EXTRA_CELLS = 40  # cells of the extensions' texts
SEPARATOR = " · "
BYPASS = "bypass"
BYPASS_TEXT = "bypass: asks nothing"
NO_SANDBOX, PARTIAL_SANDBOX = "!!", "!"  # ASCII, for every terminal
WOULD_COST = "would cost"  # prefix of a simulated price
# Most important first. The bypass warning must never be cut off.
_PRIORITIES = (
    BYPASS, "sandbox", "model", "mode", "level", "jobs", "agents", "cost", "summary",
    "effort", "bar", "branch", "extra",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StatusLine:
    """The facts of the status line."""

    model: str  # "" for none yet
    mode: str = ""
    branch: str = ""
    share: float | None = None  # used share of the context window; None if no session is open
    level: str = "GREEN"
    cost_usd: float | None = None
    agents: int = 0
    jobs: int = 0
    effort: str = ""
    preparing: bool = False  # whether a summary is being prepared in the background
    extra: str = ""  # texts from extensions
    overloaded: str = ""  # ID of the overloaded model that `model` replaces
    sandbox: str = ""  # NO_SANDBOX or PARTIAL_SANDBOX, else ""


@dataclass(slots=True)
class _Part:
    name: str
    fragments: list[Fragment] = field(default_factory=list)


def fit_line(status: StatusLine, width: int) -> list[Fragment]:
    """Return the status line in at most `width` columns."""
    parts = _parts(status)
    if sum(get_cwidth(text) for _, text in _joined(parts)) > width:
        for part in parts:
            if part.name == BYPASS:
                part.fragments = [(part.fragments[0][0], BYPASS)]
    while len(parts) > 1 and sum(get_cwidth(text) for _, text in _joined(parts)) > width:
        parts.remove(max(parts, key=lambda part: _PRIORITIES.index(part.name)))
    out = _joined(parts)
    if len(parts) == 1:
        style, text = out[0]
        out[0] = style, cut_to_cells(text, width)
    return out


def _parts(status: StatusLine) -> list[_Part]:
    level, share = f"class:level.{status.level.lower()}", status.share or 0.0
    name = model_name(status.model)
    if status.overloaded:
        name = f"{model_name(status.overloaded)} (fallback {name})"
    parts = [_Part("model", [("", name)])] if name else []
    if status.effort:
        parts.append(_Part("effort", [("", status.effort)]))
    if status.mode:
        name = BYPASS if status.mode == BYPASS else "mode"
        text = BYPASS_TEXT if status.mode == BYPASS else status.mode
        parts.append(_Part(name, [(f"class:mode.{status.mode.partition('+')[0]}", text)]))
    if status.sandbox:
        style = "class:mode.bypass" if status.sandbox == NO_SANDBOX else ""
        parts.append(_Part("sandbox", [(style, status.sandbox)]))
    if status.branch:
        parts.append(_Part("branch", [("", cut_to_cells(clean(status.branch), MAX_BRANCH_CELLS))]))
    if status.share is not None:
        filled = min(BAR_CELLS, round(share * BAR_CELLS))
        parts.append(_Part("bar", [(level, "▰" * filled), ("", "▱" * (BAR_CELLS - filled))]))
        parts.append(_Part("level", [(level, f"{share:.0%} {status.level}")]))
    if status.preparing:
        parts.append(_Part("summary", [("", "summary ▸")]))
    if status.cost_usd is not None:
        unpaid = is_scripted(status.model) and status.cost_usd > 0
        would = f"{WOULD_COST} " if unpaid else ""
        parts.append(_Part("cost", [("", f"{would}${status.cost_usd:.2f}")]))
    if status.extra:
        parts.append(_Part("extra", [("", cut_to_cells(clean(status.extra), MAX_EXTRA_CELLS))]))
    for count, what in ((status.agents, "agent"), (status.jobs, "job")):
        if count:
            parts.append(_Part(f"{what}s", [("", count_of(count, what))]))
    return parts


def _joined(parts: list[_Part]) -> list[Fragment]:
    out: list[Fragment] = []
    for part in parts:
        separator = " " if part.name == "effort" else SEPARATOR
        out += [("", separator), *part.fragments] if out else part.fragments
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
