"""Finding what stood in the context once: one query over an archive of 200 MB, with its index warm,
deleted, and behind; and a ref looked up in logs of 100 and of 100,000 entries.

The archive is twenty sessions of calls whose results are pieces of the standard library's sources,
a tenth of them offloaded. One result holds a fact that stands nowhere else, 300 calls before the
newest session ends.
"""

import random
import statistics
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import measure

from ctxagent.agent.record.archive import offload
from ctxagent.agent.record.entries import Assistant, Note, ToolResult, User
from ctxagent.agent.record.index import NAME, Index
from ctxagent.agent.record.log import Log
from ctxagent.agent.record.sessions import whole_text

MEGABYTES = int(sys.argv[1]) if len(sys.argv) > 1 else 200
SESSIONS, AGO = 20, 300
FACT = "the staging gateway listens on 48231"
QUERIES = {
    "the fact": "staging gateway listens",
    "an identifier": "os.path.join",
    "an error line": "raise KeyError(key)",
    "common words": "what is the value of the first argument",
}


class Sources:
    """Endless text: pieces of the standard library in an order that is always the same."""

    def __init__(self) -> None:
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        self.text = "".join(f.read_text(errors="replace") for f in files)
        self.random = random.Random(0)

    def piece(self, size: int) -> str:
        start = self.random.randrange(len(self.text) - size)
        return self.text[start : start + size]


def call(log: Log, number: int, text: str) -> int:
    """Record one call and its result; the size of its text."""
    use = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {"command": "cat"}}
    log.append(Assistant(content=[use], usage={}, stop_reason="tool_use", model="m"))
    name = None
    if number % 10 == 0:
        name = f"offloaded/{number}.md"
        offload(log.path.parent / name, text)
    shown = text[:500] if name else text
    log.append(ToolResult(tool_use_id=f"c{number}", content=shown, offloaded=name))
    return len(text)


def archive(folder: Path) -> Log:
    """The sessions, oldest first; the log of the newest, still open."""
    sources, size = Sources(), MEGABYTES * 1_000_000 // SESSIONS
    for session in range(SESSIONS):
        log = Log.create(folder / "sessions" / f"20261101-0000{session:02}-a" / "log.jsonl")
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


def searched(index: Index, query: str, session: str | None = None) -> dict[str, float]:
    """Seconds of one search, whether it found the fact, and the share that was indexed by then."""
    started = time.perf_counter()
    found = index.search(query, session=session)
    return {
        "s": time.perf_counter() - started,
        "fact": any(FACT in hit.excerpt for hit in found.hits),
        "hits": len(found.hits),
        "indexed": found.indexed / found.size,
    }


def searching(folder: Path) -> None:
    log = archive(folder)
    session = log.path.parent.name
    index = Index(folder)
    started = time.perf_counter()
    index.catch_up()
    seconds = time.perf_counter() - started
    size = sum(f.stat().st_size for f in folder.glob("sessions/*/**/*") if f.is_file())
    row = {
        "mb": size / 1e6,
        "s": seconds,
        "mb_per_s": size / 1e6 / seconds,
        "x_of_text": (folder / NAME).stat().st_size / size,
    }
    measure.report("the index", {"made from nothing": row})
    rows = {}
    for name, query in QUERIES.items():
        runs = [searched(index, query) for _ in range(10)][1:]
        rows[name] = {
            "ms": statistics.median(run["s"] for run in runs) * 1e3,
            "hits": runs[0]["hits"],
        }
    measure.report("a query, the index warm", rows)
    (folder / NAME).unlink()
    rows = {}
    for name, where in (("this session", session), ("the project", None), ("again", None)):
        rows[f"deleted: {name}"] = searched(index, QUERIES["the fact"], where)
    index.catch_up()
    sources = Sources()
    for more in range(84):
        call(log, 10_000_001 + 10 * more, sources.piece(12_000))
    rows["1 MB behind"] = searched(index, QUERIES["the fact"])
    measure.report("the fact, the index gone or behind", rows)
    log.close()


def references() -> None:
    rows = {}
    for length in (100, 100_000):
        with tempfile.TemporaryDirectory() as folder:
            log = Log.create(Path(folder) / "log.jsonl")
            for n in range(length):
                log.append(Note(topic="decision", text=f"note {n} " + "x" * 500))
            log.close()
            wanted = [random.Random(n).randrange(1, length + 1) for n in range(50)]
            started = time.perf_counter()
            for seq in wanted:
                assert whole_text(log.path, seq) is not None
            rows[f"log of {length:,} entries"] = {
                "ms": (time.perf_counter() - started) / len(wanted) * 1e3
            }
    measure.report("a ref looked up", rows)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        searching(Path(folder))
    references()


if __name__ == "__main__":
    main()
