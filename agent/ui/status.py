"""The status line: model and effort, mode, branch, how full the context is, cost, what runs beside.
Made of plain values, and made to fit: the least important parts go first."""

from dataclasses import dataclass, field
from pathlib import Path

from prompt_toolkit.utils import get_cwidth

from .visible import clean

Fragment = tuple[str, str]  # a style of prompt_toolkit, and text

BAR = 8  # cells of the context bar
LONGEST = 32  # cells of a branch
SEPARATOR = " · "
BYPASS = "bypass"
OPEN = "no sandbox"
# Which part stays longest, first of all that nothing is asked; the rest goes from the end.
_STAYING = (
    BYPASS, OPEN, "model", "mode", "level", "jobs", "agents", "cost", "summary", "effort", "bar",
    "branch",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Status:
    """What the line shows. `share` is that of the window, None while no session is open; with
    `preparing` a summary is being written in the background, `unconfined` are commands that should
    run in a sandbox and cannot."""

    model: str
    mode: str = ""
    branch: str = ""
    share: float | None = None
    level: str = "GREEN"
    cost_usd: float | None = None
    agents: int = 0
    jobs: int = 0
    effort: str = ""
    preparing: bool = False
    unconfined: bool = False


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    fragments: list[Fragment] = field(default_factory=list)

    @property
    def before(self) -> str:
        """What parts it from the one to its left."""
        return " " if self.name == "effort" else SEPARATOR


def line(status: Status, width: int) -> list[Fragment]:
    """The line in at most `width` columns."""
    parts = _parts(status)
    while len(parts) > 1 and _width(_joined(parts)) > width:
        parts.remove(max(parts, key=lambda part: _STAYING.index(part.name)))
    out = _joined(parts)
    if len(parts) == 1:
        style, text = out[0]
        out[0] = style, _cut(text, width)
    return out


def _parts(status: Status) -> list[_Part]:
    level, share = f"class:level.{status.level.lower()}", status.share or 0.0
    parts = [_Part("model", [("", model_name(status.model))])]
    if status.effort:
        parts.append(_Part("effort", [("", status.effort)]))
    if status.mode:
        name = BYPASS if status.mode == BYPASS else "mode"
        parts.append(_Part(name, [(f"class:mode.{status.mode}", status.mode)]))
    if status.unconfined:
        parts.append(_Part(OPEN, [("class:mode.bypass", OPEN)]))
    if status.branch:
        parts.append(_Part("branch", [("", _cut(clean(status.branch), LONGEST))]))
    if status.share is not None:
        filled = min(BAR, round(share * BAR))
        parts.append(_Part("bar", [(level, "▰" * filled), ("", "▱" * (BAR - filled))]))
        parts.append(_Part("level", [(level, f"{share:.0%} {status.level}")]))
    if status.preparing:
        parts.append(_Part("summary", [("", "summary ▸")]))
    if status.cost_usd is not None:
        parts.append(_Part("cost", [("", f"${status.cost_usd:.2f}")]))
    for count, what in ((status.agents, "agent"), (status.jobs, "job")):
        if count:
            parts.append(_Part(f"{what}s", [("", f"{count} {what}{'s' * (count > 1)}")]))
    return parts


def _joined(parts: list[_Part]) -> list[Fragment]:
    out: list[Fragment] = []
    for part in parts:
        out += [("", part.before), *part.fragments] if out else part.fragments
    return out


def _width(fragments: list[Fragment]) -> int:
    return sum(get_cwidth(text) for _, text in fragments)


def _cut(text: str, width: int) -> str:
    """The text in at most `width` cells."""
    if get_cwidth(text) <= width:
        return text
    while text and get_cwidth(text) >= width:
        text = text[:-1]
    return f"{text}…" if width else ""


def model_name(id: str) -> str:
    """A model as people call it; a scripted one says so."""
    return "scripted model" if id.startswith("scripted") else id.removeprefix("claude-")


def short(path: Path) -> str:
    """A path as people write it, with `~`."""
    try:
        return f"~/{path.relative_to(Path.home())}".rstrip("/.")
    except (ValueError, RuntimeError):
        return str(path)
