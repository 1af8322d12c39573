"""What the model is told at the start: the system prompt, the environment, the instruction files.

The system prompt never changes within a session. What does change (date, git status) and what the
project says (AGENTS.md, CLAUDE.md) is recorded once, as user entries before the first words.
"""

import os
import platform
from datetime import date
from importlib import resources
from pathlib import Path

from .record.entries import Entry, User

FILES = ("AGENTS.md", "CLAUDE.md")
LARGEST = 100_000  # characters of one instruction file


def system(append: str = "") -> str:
    """The system prompt, with the person's own addition at its end."""
    text = resources.files(__package__).joinpath("prompts/system.md").read_text("utf-8")
    return f"{text.strip()}\n\n{append.strip()}".strip()


def opening(cwd: Path, config_home: Path) -> list[Entry]:
    """The entries before the first words: where and when this is, and the instruction files."""
    entries: list[Entry] = [User(content=environment(cwd), source="environment")]
    entries += [
        User(content=f"Instructions from {path}:\n\n{text}", source="instructions")
        for path, text in instructions(cwd, config_home)
    ]
    return entries


def environment(cwd: Path) -> str:
    """Directory, platform, date, git branch and status, as the model reads them."""
    from .record import snapshot  # GitPython costs 126 ms

    lines = [
        "The environment at the start of this session:",
        f"Working directory: {cwd}",
        f"Platform: {platform.system()} {platform.release()}, shell {Path(_shell()).name}",
        f"Date: {date.today().isoformat()}",
        snapshot.describe(cwd),
    ]
    return "\n".join(lines)


def instructions(cwd: Path, config_home: Path) -> list[tuple[Path, str]]:
    """Path and text of each instruction file: the user's own first, then from the root of the
    file system down to `cwd`, so that the nearest is read last. A file reached twice (by a link,
    or with the same text) is given once."""
    folders = [config_home, *reversed(cwd.parents), cwd]
    found: list[tuple[Path, str]] = []
    known: set[str] = set()
    for path in (folder / name for folder in folders for name in FILES):
        try:
            if not path.is_file():
                continue
            text = path.read_text("utf-8", errors="replace").strip()
        except OSError:
            continue
        if not text or text in known:
            continue
        known.add(text)
        if len(text) > LARGEST:
            text = f"{text[:LARGEST]}\n[cut at {LARGEST:,} characters; Read {path} for the rest]"
        found.append((path, text))
    return found


def _shell() -> str:
    return os.environ.get("SHELL") or "sh"
