"""Find damage after kills. `Inquest` checks a session after each kill and at the end of a chain of
kills; findings are counted in `Figures`.
"""

import contextlib
import fcntl
import json
import os
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ctxagent.agent.context.request import build_messages
from ctxagent.agent.context.view import fold
from ctxagent.agent.session.entries import Assistant, Entry, ToolResult
from ctxagent.agent.session.ledger import Ledger
from ctxagent.agent.session.log import try_parse_entry
from ctxagent.agent.session.search import SearchIndex

from ..command import Place
from ..server.loopback import Body, Server
from .errands import DONE, MADE, kind_of

TEMPORARY = ("*.part", "*.new", "*.tmp", "worktree.index.*")
# Temporary files whose names are reused: there is never more than one of each.
ONE_AT_MOST = re.compile(
    r"(summary\.md|resume\.(json|stat)|\d+\.json|\d{8}-\d{6}-[0-9a-f]{6})\.part"
)
LETS_GO = 60.0  # seconds in which processes release locks after a kill, on a busy machine
MUST_BE_0 = {  # descriptions of the counts in `Figures.wrong`
    "lost": "entries lost",
    "twice": "calls run twice",
    "untold": "outcomes untold",
    "unrecorded": "files unrecorded",
    "rejected": "requests rejected",
    "stuck": "locks stuck",
    "broken": "anything else",
}


@dataclass
class Figures:
    """What was done and found. `wrong` counts the violations by kind, `told` describes them."""

    kills: Counter[str] = field(default_factory=Counter)  # by phase
    recorded: Counter[str] = field(default_factory=Counter)  # kinds of entry in the logs
    counts: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)

    def fault(self, kind: str, what: str) -> None:
        self.wrong[kind] += 1
        self.told.append(f"{kind}: {what}")

    def add(self, other: "Figures") -> None:
        self.kills += other.kills
        self.recorded += other.recorded
        self.counts += other.counts
        self.wrong += other.wrong
        self.told += other.told


class Inquest:
    """Checks of one session in a place that uses a server."""

    def __init__(self, place: Place, server: Server) -> None:
        self.place, self.server = place, server
        self.figures = Figures()
        self.patience = LETS_GO
        self._kept: dict[Path, bytes] = {}  # complete lines by log
        self._silent: set[str] = set()  # calls without a result that no request has mentioned yet

    def log(self) -> Path | None:
        logs = self.place.logs()
        assert len(logs) < 2, logs
        return logs[0] if logs else None

    def logs(self) -> list[Path]:
        """Return the log of the session, then those of its subagents."""
        agents = self.place.state.glob("projects/*/sessions/*/agents/*/log.jsonl")
        return [*self.place.logs(), *agents]

    def size(self) -> int:
        """Return the bytes of complete lines in the session's log at the last check."""
        log = self.log()
        return len(self._kept.get(log, b"")) if log else 0

    def lines(self, begin: int) -> int:
        """Return the number of lines in the log after offset `begin`."""
        log = self.log()
        if log is None:
            return 0
        with log.open("rb") as file:
            file.seek(begin)
            return file.read().count(b"\n")

    # After each kill

    def look(self, requests: Sequence[Body]) -> None:
        """Check the files on disk and the requests after a kill."""
        for reason, _ in self.server.rejected[self.figures.wrong["rejected"] :]:
            self.figures.fault("rejected", reason)
        for path in self.logs():
            self._compare(path)
        log = self.log()
        if log is None:
            return
        self._check_told(requests)
        entries = [try_parse_entry(line) for line in self._kept[log].splitlines()]
        self._silent = _unanswered([entry for entry in entries if entry is not None])
        for mark, times in Counter((self._read(DONE)).split()).items():
            if times > 1:
                self.figures.fault("twice", f"{mark} ran {times} times")
        for path in self.logs():
            self._check_lock(path.with_name("lock"))

    def _compare(self, path: Path) -> None:
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        before = self._kept.get(path, b"")
        if not whole.startswith(before):
            there = set(whole.splitlines())
            gone = [line for line in before.splitlines() if line not in there]
            self.figures.fault("lost", f"{path.parent.name}: {len(gone)} lines, {gone[:1]}")
        self._kept[path] = whole

    def _check_told(self, requests: Sequence[Body]) -> None:
        """Check that the first request of a turn marks every call without a result as not run or
        with an unknown outcome.
        """
        asked = next((body for body in requests if kind_of(body) == "turn"), None)
        if asked is None:
            return
        answers = {
            block["tool_use_id"]: json.dumps(block.get("content"))
            for message in asked["messages"]
            for block in message["content"]
            if block["type"] == "tool_result"
        }
        for id in self._silent:
            if not any(known in answers.get(id, "") for known in ("outcome unknown", "not run:")):
                self.figures.fault("untold", f"{id}: {answers.get(id, 'not there')[:200]}")

    def _check_lock(self, path: Path) -> None:
        """Check that a lock becomes free. A process that was being started at the kill keeps a copy
        of the lock until it executes its program.
        """
        until = time.monotonic() + self.patience
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                if time.monotonic() >= until:
                    self.figures.fault("stuck", f"{path} is held")
                    return
                os.sched_yield()

    def _read(self, name: str) -> str:
        path = self.place.project / name
        return path.read_text() if path.exists() else ""

    # In the end

    def close(self, log: Path, requests: Sequence[Body]) -> None:
        """Check everything after a last run that was not killed and sent `requests`."""
        all_entries = {path: self._entries(path) for path in self.logs()}
        for path, entries in all_entries.items():
            self._check_entries(path, entries)
        self.check_files(all_entries[log])
        self._check_request(all_entries[log], requests)
        self._check_rest(log)

    def calls(self) -> int:
        """Return the number of model calls in all logs."""
        entries = [
            try_parse_entry(line) for kept in self._kept.values() for line in kept.splitlines()
        ]
        return sum(isinstance(entry, Assistant) for entry in entries)

    def _entries(self, path: Path) -> list[Entry]:
        entries = [try_parse_entry(line) for line in self._kept[path].splitlines()]
        self.figures.recorded += Counter(entry.kind for entry in entries if entry is not None)
        self.figures.counts["entries"] += len(entries)
        return [entry for entry in entries if entry is not None]

    def _check_entries(self, path: Path, entries: Sequence[Entry]) -> None:
        if [entry.seq for entry in entries] != list(range(1, len(entries) + 1)):
            self.figures.fault("broken", f"{path}: the numbers have gaps")
        for entry in entries:
            if not isinstance(entry, ToolResult):
                continue
            if entry.offloaded:
                self.figures.counts["offloaded"] += 1
                if not (path.parent / entry.offloaded).stat().st_size:
                    self.figures.fault("broken", f"{entry.offloaded} is empty")
            if entry.details.get("not_offloaded"):
                self.figures.fault("broken", f"not offloaded: {entry.details['not_offloaded']}")

    def _check_request(self, entries: Sequence[Entry], requests: Sequence[Body]) -> None:
        """Check that the last request matches the whole log, however the session was opened."""
        replies = [e.seq for e in entries if isinstance(e, Assistant) and e.purpose == "turn"]
        asked = [body for body in requests if kind_of(body) == "turn"]
        if not (asked and replies):
            return
        said = build_messages(fold([e for e in entries if e.seq < replies[-1]]).items)
        if json.dumps(said) != json.dumps(_bare(asked[-1]["messages"])):
            self.figures.fault("broken", "the last request is not what the log says")

    def check_files(self, entries: Sequence[Entry]) -> None:
        """Check that the ledger has every file that was made."""
        ledger = Ledger()
        for entry in entries:
            ledger.add(entry)
        known = {Path(ledger.absolute_path(path)).name for path in ledger.files}
        for path in (self.place.project / MADE).iterdir():
            if path.name not in known:
                self.figures.fault("unrecorded", f"{path.name} is in no ledger")

    def _check_rest(self, log: Path) -> None:
        """Check that doctor and the session list work, the index is complete, and no temporary
        files are left.
        """
        for words in (("doctor", log.parent.name), ("sessions", "list")):
            done = self.place.run(*words)
            if done.returncode or log.parent.name not in done.stdout:
                self.figures.fault("broken", f"{words}: {done.stdout}{done.stderr}")
        folder = log.parents[2]
        found = SearchIndex(folder).search("errands", patience=None)
        if found.indexed != found.size or not found.hits:
            self.figures.fault("broken", f"the index has {found.indexed} of {found.size} bytes")
        with contextlib.closing(sqlite3.connect(folder / "index.db")) as db:
            if (said := db.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
                self.figures.fault("broken", f"the index: {said}")
        left = [p for name in TEMPORARY for p in self.place.state.rglob(name)]
        left = [path for path in left if not ONE_AT_MOST.fullmatch(path.name)]
        left += (self.place.root / "tmp").iterdir()
        if left:
            self.figures.fault("broken", f"left over: {left[:5]} of {len(left)}")


def _bare(sent: list[Body]) -> list[Body]:
    """Return messages without cache marks."""
    return [
        {
            **message,
            "content": [
                {k: v for k, v in block.items() if k != "cache_control"}
                for block in message["content"]
            ],
        }
        for message in sent
    ]


def _unanswered(entries: Sequence[Entry]) -> set[str]:
    """Return the calls of the newest reply that have no result. Earlier calls were known when it
    was written.
    """
    left: dict[str, None] = {}
    for entry in entries:
        if isinstance(entry, Assistant) and entry.purpose == "turn":
            uses = (block for block in entry.content if block.get("type") == "tool_use")
            left = dict.fromkeys(str(block["id"]) for block in uses)
        elif isinstance(entry, ToolResult):
            left.pop(entry.tool_use_id, None)
    return set(left)
