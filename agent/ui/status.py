"""The status line: model, mode, branch, how full the context is, cost, what runs beside. Made of
plain values, and made to fit: the least important parts go first."""

from dataclasses import dataclass
from pathlib import Path

Fragment = tuple[str, str]  # a style of prompt_toolkit, and text

BAR = 8  # cells of the context bar
SEPARATOR = " · "
_STYLES = {
    "GREEN": "ansigreen",
    "YELLOW": "ansiyellow",
    "ORANGE": "ansiyellow bold",
    "RED": "ansired",
    "CRITICAL": "ansired bold",
}
_MODES = {"ask": "", "plan": "ansicyan", "accept-edits": "ansiyellow", "bypass": "ansired bold"}


@dataclass(frozen=True, slots=True)
class Status:
    """What the line shows. `share` is that of the window, None while no session is open."""

    model: str
    mode: str = ""
    branch: str = ""
    share: float | None = None
    level: str = "GREEN"
    cost_usd: float | None = None
    agents: int = 0
    jobs: int = 0


def line(status: Status, width: int) -> list[Fragment]:
    """The line in at most `width` columns."""
    level = _STYLES.get(status.level, "")
    share = status.share or 0.0
    parts: list[tuple[int, list[Fragment]]] = [(0, [("", model_name(status.model))])]
    if status.mode:
        parts.append((1, [(_MODES.get(status.mode, ""), status.mode)]))
    if status.branch:
        parts.append((6, [("", status.branch)]))
    if status.share is not None:
        filled = min(BAR, round(share * BAR))
        parts.append((5, [(level, "▰" * filled), ("", "▱" * (BAR - filled))]))
        parts.append((2, [(level, f"{share:.0%} {status.level}")]))
    if status.cost_usd is not None:
        parts.append((4, [("", f"${status.cost_usd:.2f}")]))
    for count, what in ((status.agents, "agent"), (status.jobs, "job")):
        if count:
            parts.append((3, [("", f"{count} {what}{'s' * (count > 1)}")]))
    while len(parts) > 1 and _width(parts) > width:
        parts.remove(max(parts, key=lambda part: part[0]))
    out: list[Fragment] = []
    for _, fragments in parts:
        out += [("", SEPARATOR), *fragments] if out else fragments
    return out


def model_name(id: str) -> str:
    """A model as people call it; a scripted one says so."""
    return "scripted model" if id.startswith("scripted") else id.removeprefix("claude-")


def branch(cwd: Path) -> str:
    """The branch checked out at `cwd`, read from the files of git; "" outside a repository."""
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


def _width(parts: list[tuple[int, list[Fragment]]]) -> int:
    text = sum(len(text) for _, fragments in parts for _, text in fragments)
    return text + len(SEPARATOR) * (len(parts) - 1)


def short(path: Path) -> str:
    """A path as people write it, with `~`."""
    try:
        return f"~/{path.relative_to(Path.home())}".rstrip("/.")
    except (ValueError, RuntimeError):
        return str(path)
