"""Find the newest sessions of other agents on this machine, and compare what they cost."""

import json
import subprocess
from collections.abc import Mapping
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING

from ...api.recordings import MAX_COMPARISON_S, ComparedSessions
from .formats.places import find_recordings

if TYPE_CHECKING:
    from ...api.recordings import FoundRecording
    from ...api.session import LaunchOptions

AGENTS = frozenset(("claude-code", "codex", "opencode", "pi", "gemini-cli"))
MAX_SESSIONS = 20
# Of a session, and of all; more takes too long to compare.
MAX_SESSION_BYTES, MAX_BYTES = 20_000_000, 60_000_000


def newest_sessions(home: Path, environ: Mapping[str, str]) -> "list[FoundRecording]":
    """Return the newest sessions of all projects, of the agents that most people use."""
    found = (each for each in find_recordings(home, environ, None) if each.agent in AGENTS)
    newest = [*islice((each for each in found if each.size <= MAX_SESSION_BYTES), MAX_SESSIONS)]
    sizes = accumulate(each.size for each in newest)
    return [each for each, total in zip(newest, sizes, strict=True) if total <= MAX_BYTES]


class OwnHistory:
    """The newest sessions of other agents on this machine. All methods block."""

    def __init__(self, launch: "LaunchOptions") -> None:
        self._launch = launch

    def newest_of_others(self) -> "list[FoundRecording]":
        """Return the newest sessions of all projects."""
        return newest_sessions(self._launch.places.home, self._launch.places.environ)

    def compare_newest(self) -> ComparedSessions | None:
        """Compare their cost in a process of its own, and write a page about it. Return None if
        that fails or takes more than MAX_COMPARISON_S seconds.
        """
        from ...api.files import make_private_folder
        from ...api.programs import isolated_python

        folder = self._launch.places.state / "history"  # a directory without sessions of its own
        page = folder / "history.html"
        command = [*isolated_python(), "-m", "ctxagent", "replay", "--json", "--report", str(page)]
        try:
            make_private_folder(folder)
            done = subprocess.run(
                command, cwd=folder, env=dict(self._launch.places.environ), capture_output=True,
                stdin=subprocess.DEVNULL, timeout=MAX_COMPARISON_S, check=True,
            )  # fmt: skip
            found = json.loads(done.stdout)
            before, own = (float(each["dollars"]) for each in found["totals"][:2])
        except (OSError, subprocess.SubprocessError, ValueError, KeyError):
            return None
        return ComparedSessions(len(found["recordings"]), before, own, page)
