"""Count the changes of a room's code that the room's own tests detect.

Usage: python -m ctxagent.tests.support.mutants.run ROOM [--sample N] [--seed N]

Works on copies of the project in a temporary folder. Exits with 1 below 85 %.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from .mutations import Mutant, sample

ROOT = Path(__file__).parents[3]
ENOUGH_KILLED = 0.85
WORKERS = 2
MIN_SECONDS = 20  # minimum timeout of a mutant's tests, for a busy machine
SLOWDOWN = 5
MAX_TESTS = 400  # tests per mutant
IMPORT = ""  # coverage context of lines that run at import
PROGRESS_STEP = 20
PACKAGE = "ctxagent.tests.support.mutants"
FIRST_TIME = 1_000_000_000  # first modification time; each source of a copy gets a unique one


@dataclass
class Outcome:
    """The outcome of the tests for a mutant."""

    mutant: Mutant
    verdict: str  # killed, survived or timeout
    tests: int


@dataclass
class CoverageMap:
    """The lines that each test runs."""

    seconds: dict[str, float]
    lines: dict[str, dict[int, set[str]]]
    libraries: list[str]

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the changed line, at most `MAX_TESTS`.

        For a line that runs at import: the tests that run the module, then all others. Tests in the
        module's own test file come first, then the fastest.
        """
        lines = self.lines.get(mutant.path, {})
        found = set[str]().union(*(lines.get(at, set()) for at in mutant.statement))
        if mutant.in_function and found != {IMPORT}:
            groups = [found - {IMPORT}]
        else:
            groups = [set[str]().union(*lines.values()) - {IMPORT}, set(self.seconds)]
        own = f"/test_{Path(mutant.path).stem}.py::"
        ordered: dict[str, None] = {}
        for group in groups:
            order = sorted(group, key=lambda test: (own not in test, self.seconds[test], test))
            ordered.update(dict.fromkeys(order))
        return list(ordered)[:MAX_TESTS]


def copy_project(target: Path) -> Path:
    """Copy all files that git does not ignore; return the package's folder."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    package = target / "ctxagent"
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, package / name)
    (package / ".venv").symlink_to(ROOT / ".venv")
    return package


def environment(package: Path) -> dict[str, str]:
    """Return an environment in which `ctxagent` is imported from a copy."""
    return {**os.environ, "PYTHONPATH": str(package.parent), "TMPDIR": str(package.parent)}


def record_coverage(room: str, copies: list[Path]) -> CoverageMap:
    """Run a room's tests under coverage, divided among the copies."""
    files = sorted(
        (str(path.relative_to(ROOT)) for path in (ROOT / "tests" / room).rglob("test_*.py")),
        key=lambda name: -(ROOT / name).stat().st_size,
    )
    command = [sys.executable, "-m", f"{PACKAGE}.coverage_map", room]
    running = []
    for at, package in enumerate(copies[: len(files)]):
        output = package.parent / "coverage.json"
        share = [*command, str(output), *files[at :: len(copies)]]
        printed = output.with_suffix(".txt")
        with printed.open("w") as file:
            process = subprocess.Popen(share, cwd=package, env=environment(package), stdout=file)
        running.append((process, output, printed))
    found = CoverageMap({}, {}, [])
    for process, output, printed in running:
        if process.wait():
            sys.exit(f"{printed.read_text()}\nThe tests fail without a mutant.")
        recorded = json.loads(output.read_text())
        found.seconds.update(recorded["seconds"])
        found.libraries = sorted({*found.libraries, *recorded["libraries"]})
        for path, lines in recorded["lines"].items():
            for line, tests in lines.items():
                found.lines.setdefault(path, {}).setdefault(int(line), set()).update(tests)
    return found


def test_mutants(
    package: Path, queue: SimpleQueue[Mutant], known: CoverageMap, outcomes: list[Outcome]
) -> None:
    """Test mutants in a copy until the queue is empty."""
    worker = subprocess.Popen(
        [sys.executable, "-m", f"{PACKAGE}.worker"],
        cwd=package, env=environment(package), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert worker.stdin
    assert worker.stdout
    with worker, worker.stdin:
        print(json.dumps(known.libraries), file=worker.stdin)
        for at, mutant in enumerate(remaining(queue)):
            tests = known.tests_of(mutant)
            verdict = "survived"
            if tests:
                path = package / mutant.path
                write(path, mutant.source, FIRST_TIME + 2 * at)
                seconds = MIN_SECONDS + SLOWDOWN * sum(known.seconds[test] for test in tests)
                request = {"tests": tests, "seconds": seconds}
                print(json.dumps(request), file=worker.stdin, flush=True)
                answer = worker.stdout.readline().strip()
                verdict = {"passed": "survived", "failed": "killed"}.get(answer, answer)
                write(path, mutant.original, FIRST_TIME + 2 * at + 1)
            outcomes.append(Outcome(mutant, verdict, len(tests)))
            if len(outcomes) % PROGRESS_STEP == 0:
                print(f"{len(outcomes)} mutants tested", file=sys.stderr)


def remaining(queue: SimpleQueue[Mutant]) -> Iterator[Mutant]:
    while True:
        try:
            yield queue.get_nowait()
        except Empty:
            return


def write(path: Path, source: str, modified: int) -> None:
    """Write a source with a unique modification time, because Python's cache compares whole
    seconds.
    """
    path.write_text(source)
    os.utime(path, (modified, modified))


def print_report(outcomes: list[Outcome]) -> float:
    """Print the figures by module and the survivors; return the share of killed mutants."""
    modules: dict[str, Counter[str]] = {}
    for each in outcomes:
        modules.setdefault(each.mutant.path, Counter())[each.verdict] += 1
    for each in sorted(outcomes, key=lambda each: (each.mutant.path, each.mutant.line)):
        if each.verdict == "survived":
            name = each.mutant.path
            before = each.mutant.original.splitlines()
            after = each.mutant.source.splitlines()
            print(f"\nsurvived {each.tests} tests:")
            print(*unified_diff(before, after, name, name, n=1, lineterm=""), sep="\n")
    print(f"\n{'module':48} killed survived timeouts")
    total: Counter[str] = Counter()
    for name, found in sorted(modules.items()):
        print(f"{name:48} {found['killed']:6} {found['survived']:8} {found['timeout']:8}")
        total += found
    share = 1 - total["survived"] / max(1, total.total())
    print(f"{'all':48} {total['killed']:6} {total['survived']:8} {total['timeout']:8}")
    print(f"\nThe tests notice {share:.1%} of {total.total()} mutants.", flush=True)
    return share


def main() -> int:
    """Sample mutants of a room, test them and print the report."""
    parser = argparse.ArgumentParser(prog="mutants")
    parser.add_argument("room")
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = ROOT / "agent" / options.room
    if not (folder.is_dir() and (ROOT / "tests" / options.room).is_dir()):
        parser.error(f"agent/ and tests/ have no room {options.room!r}")
    paths = sorted(str(path.relative_to(ROOT)) for path in folder.rglob("*.py"))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="m", dir="/tmp") as temporary:
        copies = [copy_project(Path(temporary, str(at))) for at in range(WORKERS)]
        known = record_coverage(options.room, copies)
        queue: SimpleQueue[Mutant] = SimpleQueue()
        for mutant in sample(copies[0], paths, options.sample, options.seed):
            queue.put(mutant)
        print(f"{time.monotonic() - begun:.0f} s for coverage and sample", file=sys.stderr)
        outcomes: list[Outcome] = []
        threads = [
            Thread(target=test_mutants, args=(package, queue, known, outcomes))
            for package in copies
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        share = print_report(outcomes)
        print(f"{time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return 0 if share >= ENOUGH_KILLED else 1


if __name__ == "__main__":
    sys.exit(main())
