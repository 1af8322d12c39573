"""Measure search in past context: one query over an archive of 200 MB, with its index warm, deleted
and outdated; and lookups of a ref in logs of 100 and 100,000 entries.

The archive has twenty sessions of calls whose results are pieces of the standard library's sources,
a tenth of them offloaded. One result has a unique fact, 300 calls before the end of the newest
session.
"""

import random
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import measure

from ctxagent.agent.session.archive import offload
from ctxagent.agent.session.entries import Assistant, Note, ToolResult, User
from ctxagent.agent.session.log import Log
from ctxagent.agent.session.search import INDEX_NAME, SearchIndex
from ctxagent.agent.session.store import full_text

SIZES: dict[str, dict[str, Any]] = {
    "full": {"megabytes": 200, "logs": (100, 100_000)},
    "quick": {"megabytes": 20, "logs": (100, 10_000)},
    "tiny": {"megabytes": 1, "logs": (10, 100)},
}
SESSIONS, AGO = 20, 300
FACT = "the staging gateway listens on 48231"
QUERIES = {
    "the fact": "staging gateway listens",
    "an identifier": "os.path.join",
    "an error line": "raise KeyError(key)",
    "common words": "what is the value of the first argument",
}


class Sources:
    """Endless text: pieces of the standard library in a reproducible order."""

    def __init__(self) -> None:
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        self.text = "".join(f.read_text(errors="replace") for f in files)
        self.random = random.Random(0)

    def piece(self, size: int) -> str:
        start = self.random.randrange(len(self.text) - size)
        return self.text[start : start + size]


def call(log: Log, number: int, text: str) -> int:
    """Record one call and its result; return the size of its text."""
    use = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {"command": "cat"}}
    log.append(Assistant(content=[use], usage={}, stop_reason="tool_use", model="m"))
    name = None
    if number % 10 == 0:
        name = f"offloaded/{number}.md"
        offload(log.path.parent / name, text)
    shown = text[:500] if name else text
    log.append(ToolResult(tool_use_id=f"c{number}", content=shown, offloaded=name))
    return len(text)


def archive(folder: Path, megabytes: int) -> Log:
    """Write the sessions, oldest first; return the open log of the newest."""
    sources, size = Sources(), megabytes * 1_000_000 // SESSIONS
    for session in range(SESSIONS):
        log = Log(folder / "sessions" / f"20261101-0000{session:02}-a" / "log.jsonl")
        log.append(User(content="Read them all."))
        number = written = 0
        while written < size:
            number += 1
            written += call(log, number, sources.piece(60_000 if number % 10 == 0 else 12_000))
        if session == SESSIONS - 1:
            call(log, number + 1, sources.piece(6_000) + FACT + sources.piece(6_000))
            for more in range(AGO):
                call(log, number + 2 + more, sources.piece(12_000))
            return log
        log.close()
    raise AssertionError("there is a last session")


def searched(index: SearchIndex, query: str, session: str | None = None) -> dict[str, float]:
    """Search once; return the seconds, the hits, the indexed share, whether the fact was found, and
    whether it was missed although everything was indexed.
    """
    started = time.perf_counter()
    found = index.search(query, session=session)
    seconds = time.perf_counter() - started
    fact = any(FACT in hit.excerpt for hit in found.hits)
    return {
        "s": seconds,
        "hits": len(found.hits),
        "indexed": found.indexed / found.size,
        "fact": fact,
        "missed": not fact and found.indexed == found.size,
    }


def searching(folder: Path, megabytes: int) -> Iterator[measure.Table]:
    log = archive(folder, megabytes)
    session = log.path.parent.name
    index = SearchIndex(folder)
    started = time.perf_counter()
    index.catch_up()
    seconds = time.perf_counter() - started
    size = sum(f.stat().st_size for f in folder.glob("sessions/*/**/*") if f.is_file())
    row = {
        "mb": size / 1e6,
        "s": seconds,
        "s_per_mb": seconds / (size / 1e6),
        "x_of_text": (folder / INDEX_NAME).stat().st_size / size,
    }
    yield measure.Table("the index", {"made from nothing": row})
    rows = {}
    for name, query in QUERIES.items():
        runs = [searched(index, query) for _ in range(10)][1:]
        rows[name] = {
            "ms": statistics.median(run["s"] for run in runs) * 1e3,
            "hits": runs[0]["hits"],
        }
    yield measure.Table("a query, the index warm", rows)
    (folder / INDEX_NAME).unlink()
    rows = {}
    for name, where in (("this session", session), ("the project", None), ("again", None)):
        rows[f"deleted: {name}"] = searched(index, QUERIES["the fact"], where)
    index.catch_up()
    sources = Sources()
    for more in range(84):
        call(log, 10_000_001 + 10 * more, sources.piece(12_000))
    rows["1 MB behind"] = searched(index, QUERIES["the fact"])
    log.close()
    yield measure.Table("the fact, index deleted or outdated", rows)


def references(logs: Sequence[int]) -> Iterator[measure.Table]:
    rows = {}
    for length in logs:
        with tempfile.TemporaryDirectory() as folder:
            log = Log(Path(folder) / "log.jsonl")
            for n in range(length):
                log.append(Note(topic="decision", text=f"note {n} " + "x" * 500))
            log.close()
            wanted = [random.Random(n).randrange(1, length + 1) for n in range(50)]
            started = time.perf_counter()
            for seq in wanted:
                assert full_text(log.path, seq) is not None
            rows[f"log of {length:,} entries"] = {
                "ms": (time.perf_counter() - started) / len(wanted) * 1e3
            }
    yield measure.Table("a ref looked up", rows)


def main(megabytes: int, logs: Sequence[int]) -> Iterator[measure.Table]:
    with tempfile.TemporaryDirectory() as folder:
        yield from searching(Path(folder), megabytes)
    yield from references(logs)


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
