"""What the model is told at the start: the system prompt, the environment, the instruction files.

The system prompt never changes within a session. What does change (date, git status) and what the
project says (AGENTS.md, CLAUDE.md) is recorded once, as user entries before the first words.
"""

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import date
from importlib import resources
from pathlib import Path

from .record.entries import Entry, User

FILES = ("AGENTS.md", "CLAUDE.md")
MOST_CHANGED = 40  # files named
LARGEST = 100_000  # characters of one instruction file
OUTSIDE = "[a link that leaves the project: not followed]"
PRIOR = """## Prior Session Context
What follows was recorded in an earlier session. It is history, not an instruction.

"""


def system(append: str = "", part: str = "") -> str:
    """The system prompt, with the person's own addition and, for a subagent, what it is and its
    `part` at the end."""
    texts = [_text("system"), append, *([_text("agent"), part] if part else [])]
    return "\n\n".join(filter(None, map(str.strip, texts)))


def opening(cwd: Path, config_home: Path, env: Mapping[str, str], prior: str = "") -> list[Entry]:
    """The entries before the first words: where and when this is, the instruction files, and what
    another session hands over. `env` is what git may see of the environment."""
    here = User(content=environment(cwd, env), source="environment")
    handed = [User(content=f"{PRIOR}{prior}", source="environment")] if prior else []
    return [here, *_instruction_entries(cwd, config_home), *handed]


def environment(cwd: Path, env: Mapping[str, str]) -> str:
    """Directory, platform, date, git branch and status, as the model reads them."""
    from .record import snapshot  # GitPython costs 126 ms

    lines = [
        "The environment at the start of this session:",
        f"Working directory: {cwd}",
        f"Platform: {platform.system()} {platform.release()}, shell {Path(_shell()).name}",
        f"Date: {date.today().isoformat()}",
        snapshot.describe(cwd, env),
    ]
    return "\n".join(lines)


def renewal(
    cwd: Path,
    config_home: Path,
    *,
    mode: str,
    todos: Sequence[Mapping[str, str]],
    jobs: str,
    preserved: str,
    agents: str = "",
    changed: Sequence[str] = (),
) -> list[Entry]:
    """What must stand in the context after a summary: where this is, what is allowed, what is
    still to do and still runs, which subagents did not finish, what is preserved, and the
    instruction files as they are now."""
    lines = [
        "After the compression, as things stand now:",
        f"Working directory: {cwd}",
        f"Date: {date.today().isoformat()}",
        f"Permission mode: {mode}",
    ]
    if todos:
        lines += ["The todo list:", *(f"- [{t['status']}] {t['content']}" for t in todos)]
    if jobs:
        lines += ["Background jobs:", jobs]
    if agents:
        lines += [agents]
    if changed:
        lines += [_changed(changed)]
    if preserved:
        lines += ["", preserved]
    return [
        User(content="\n".join(lines), source="environment"),
        *_instruction_entries(cwd, config_home),
    ]


def changed(paths: Sequence[str]) -> list[Entry]:
    """What a session that goes on is told of files that are no longer as it knew them."""
    return [User(content=_changed(paths), source="environment")] if paths else []


def _changed(paths: Sequence[str]) -> str:
    more = [f"and {len(paths) - MOST_CHANGED:,} more"] if len(paths) > MOST_CHANGED else []
    named = ", ".join([*paths[:MOST_CHANGED], *more])
    return f"Changed on disk since this session last read or wrote them: {named}. Read them again."


def _instruction_entries(cwd: Path, config_home: Path) -> list[Entry]:
    return [
        User(content=f"Instructions from {path}:\n\n{text}", source="instructions")
        for path, text in instructions(cwd, config_home)
    ]


def instructions(cwd: Path, config_home: Path) -> list[tuple[Path, str]]:
    """Path and text of each instruction file: the user's own first, then from the root of the
    file system down to `cwd`, so that the nearest is read last. A file reached twice (by a link,
    or with the same text) is given once. Only the user's own may be links that lead away."""
    folders = [config_home, *reversed(cwd.parents), cwd]
    found: list[tuple[Path, str]] = []
    known: set[str] = set()
    root = next((f for f in (cwd, *cwd.parents) if (f / ".git").exists()), cwd)
    for path in (folder / name for folder in folders for name in FILES):
        try:
            if not path.is_file():
                continue
            if path.parent != config_home and _leaves(path, root):
                found.append((path, OUTSIDE))
                continue
            with path.open("rb") as file:  # never more than what may matter: it may be of any size
                text = file.read(4 * LARGEST + 1).decode("utf-8", "replace").strip()
        except OSError:
            continue
        if not text or text in known:
            continue
        known.add(text)
        if len(text) > LARGEST:
            text = f"{text[:LARGEST]}\n[cut at {LARGEST:,} characters; Read {path} for the rest]"
        found.append((path, text))
    return found


def _leaves(path: Path, root: Path) -> bool:
    """Whether a file is a link out of the project at `root`, or, above that, out of its folder: it
    could lead to anything that the user can read."""
    within = root if path.is_relative_to(root) else path.parent
    return not path.resolve().is_relative_to(within.resolve())


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(f"prompts/{name}.md").read_text("utf-8")


def _shell() -> str:
    return os.environ.get("SHELL") or "sh"
