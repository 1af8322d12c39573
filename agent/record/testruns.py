"""Runs of tests, as their output tells them: which tests failed, and which later run says that one
passes. Names are verbatim, as each runner writes them: pytest, unittest, jest and vitest, go,
cargo, TAP and rspec. A test counts as failing until a run is known to have run it and says that it
passed: in doubt it stays so."""

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from .runners import Launch, launched

LONGEST = 300  # characters of a name
MOST_LINES = 20_000  # of an output that are looked at, its last ones

_STILL_FAILING = re.compile(
    r"\b[1-9]\d* (?:failed|failures?|errors?|failing)\b|^(?:FAILED|FAIL)\b|^not ok ", re.MULTILINE
)
_LEFT_OUT = re.compile(r"\b[1-9]\d* (?:deselected|filtered out)\b")
# The line in which each runner says that all passed. Those in `_OF_ALL` say it once, at the end.
_OF_ALL = {
    "pytest": r"(?:=+ )?[1-9]\d* passed"
    r"(?:, \d+ (?:skipped|deselected|xfailed|xpassed|warnings?|rerun|subtests passed))*"
    r" in [\d.]+ ?s(?:econds)?(?: \([\d:]+\))?(?: =+)?",
    "unittest": r"Ran [1-9]\d* tests? in [\d.]+s\n\nOK(?: \(.*\))?",
    "jest": r"Tests: +(?:\d+ (?:skipped|todo), )*[1-9]\d* passed, \d+ total",
    "vitest": r" *Tests  [1-9]\d* passed(?: \| \d+ (?:skipped|todo|expected fail))* \(\d+\)",
    "mocha": r" *[1-9]\d* passing(?: \([\d.]+m?s\))?",
    "rspec": r"[1-9]\d* examples?, 0 failures(?:, \d+ pending)?",
    "prove": r"Result: PASS",
    "ctest": r"100% tests passed, 0 tests failed out of [1-9]\d*",
    "phpunit": r"OK \([1-9]\d* tests?, \d+ assertions?\)",
    "nextest": r" *Summary \[.*\] *[1-9]\d* tests? run: [1-9]\d* passed\b.*",
}
_OF_SOME = {
    "go": r"ok[ \t]+\S+[ \t]+(?:[\d.]+s|\(cached\))(?:[ \t]+coverage: [^\[\n]*)?",
    "cargo": r"test result: ok\. [1-9]\d* passed; 0 failed;.*",
    "mix": r"(?:\d+ doctests?, )?[1-9]\d* tests?, 0 failures\b.*",
    "dotnet": r"Passed! +- Failed: +0, Passed: +[1-9]\d*,.*",
    "maven": r"\[INFO\] Tests run: [1-9]\d*, Failures: 0, Errors: 0, Skipped: \d+",
    "minitest": r"[1-9]\d* runs, \d+ assertions, 0 failures, 0 errors, \d+ skips",
    "bun": r" *[1-9]\d* pass",
    "tap": r"# pass +[1-9]\d*",
}
_SAID = re.compile(
    "|".join(rf"^(?P<{name}>{said})$" for name, said in (_OF_ALL | _OF_SOME).items()), re.MULTILINE
)

_WORKER = r"(?:\[gw\d+\] \[ *\d+%\] )?"

_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    # pytest: the summary, then the lines of -v
    (
        re.compile(rf"{_WORKER}(?:FAILED|ERROR) ((?>\S*?::)[^\[]+?(?:\[.*?\])?|\S*\.py)(?: - .*)?"),
        lambda m: m[1],
    ),
    (re.compile(r"(?=\S+?::)(.+) (?:FAILED|ERROR)(?:\s+\[ *\d+%\])?"), lambda m: m[1]),
    # unittest
    (re.compile(r"(?:FAIL|ERROR): (\w+) \(([\w.]+)\)"), lambda m: _unittest(m[1], m[2])),
    # go, cargo, TAP, rspec
    (re.compile(r"\s*--- FAIL: (\S+)(?: \([\d.]+s\))?"), lambda m: m[1]),
    (re.compile(r"test (\S+) \.\.\. FAILED"), lambda m: m[1]),
    (re.compile(r"\s*not ok \d+(?: -)? (?!.*# (?:TODO|SKIP))(.+?)"), lambda m: m[1]),
    (re.compile(r"rspec (\./\S+)(?: # .*)?"), lambda m: m[1]),
    # vitest and jest: the whole name, with that of the suite
    (re.compile(r"\s*FAIL\s+(\S+ > .+?)(?: \d+ ?m?s)?"), lambda m: m[1]),
    (re.compile(r"\s*● (.+ › .+)"), lambda m: m[1]),
)
_SHORT = re.compile(r"\s*[✕×✗] (.+?)(?: \(?[\d.]+ ?m?s\)?)?")
_PASSED: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"(?=\S+?::)(.+) PASSED(?:\s+\[ *\d+%\])?"), lambda m: m[1]),
    (re.compile(rf"{_WORKER}PASSED (\S+?::.+)"), lambda m: m[1]),
    (re.compile(r"(\w+) \(([\w.]+)\) \.\.\. ok"), lambda m: _unittest(m[1], m[2])),
    (re.compile(r"\s*--- PASS: (\S+)(?: \([\d.]+s\))?"), lambda m: m[1]),
    (re.compile(r"test (\S+) \.\.\. ok"), lambda m: m[1]),
    (re.compile(r"\s*ok \d+(?: -)? (?!.*# (?:TODO|SKIP))(.+?)"), lambda m: m[1]),
)


@dataclass(frozen=True, slots=True)
class Run:
    """What one command says of tests. `says`: the runners whose word for success is in it, none
    when it speaks of a failure too; `partial`: some tests were left out."""

    failed: tuple[str, ...]
    passed: frozenset[str]
    says: frozenset[str]
    partial: bool


def read(output: str) -> Run:
    lines = [line.rstrip() for line in output.split("\n")[-MOST_LINES:]]
    failed = _named(lines, _PATTERNS) or _named(lines, ((_SHORT, lambda m: m[1]),))
    passed = set(_named(lines, _PASSED)) - set(failed)
    clean = not failed and not _STILL_FAILING.search(output)
    text = "\n".join(line if len(line) <= 2 * LONGEST else "" for line in lines)
    says = (
        frozenset(str(found.lastgroup) for found in _SAID.finditer(text)) if clean else frozenset()
    )
    return Run(failed, frozenset(passed), says, bool(_LEFT_OUT.search(text)))


@dataclass(frozen=True, slots=True)
class FailingTest:
    """`ref` is the newest run in which it failed, `resolved` the later one that says it passes."""

    name: str
    ref: int
    resolved: int | None = None


@dataclass(frozen=True, slots=True)
class _Ended:
    """A command that has ended. `place` is its runner, or all of it where none is known."""

    place: str
    command: str
    launch: Launch
    folder: str


@dataclass(slots=True)
class FailingTests:
    """The tests that failed at some time, by name, in the order in which they first did."""

    tests: dict[str, FailingTest] = field(default_factory=dict)
    _open: dict[str, _Ended] = field(default_factory=dict)  # of those that fail still
    _places: dict[str, dict[str, _Ended]] = field(default_factory=dict)  # the same, by place
    _blamed: dict[str, set[str]] = field(default_factory=dict)  # of a test, the commands it failed
    _blame: dict[str, set[str]] = field(default_factory=dict)  # of such a command, its open tests

    def add(self, command: str, output: str, ref: int, *, passed: bool, cwd: str = "") -> list[str]:
        """Fold in one command that has ended; the commands of whose tests the last open one is
        resolved by it. A test is resolved when a run says its name with success, or says that all
        passed and is that in which it failed, or covers it."""
        launch = launched(command)
        place = launch.runner or command
        if passed and not launch.runner and place not in self._places:
            return []
        run = read(output)
        now = _Ended(place, command, launch, posixpath.normpath(posixpath.join(cwd, launch.folder)))
        done = [
            name
            for name in run.passed
            if (failed := self._open.get(name)) and _is_its(now, failed, name, named=True)
        ]
        if passed and _all_passed(launch, run):
            done += [
                name
                for name, failed in self._places.get(place, {}).items()
                if failed.command == command or (not run.partial and _is_its(now, failed, name))
            ]
        cleared: list[str] = []
        for name in dict.fromkeys(done):
            self._close(name)
            self.tests[name] = replace(self.tests[name], resolved=ref)
            cleared += self._forgive(name)
        for name in run.failed if launch.runner or not passed else ():
            self._close(name)
            self.tests[name] = FailingTest(name, ref)
            self._open[name] = now
            self._places.setdefault(place, {})[name] = now
            if not passed:
                self._blamed.setdefault(name, set()).add(command)
                self._blame.setdefault(command, set()).add(name)
        return cleared

    def _forgive(self, name: str) -> list[str]:
        """The commands that have no open test left, now that this one is resolved."""
        cleared = []
        for command in sorted(self._blamed.pop(name, ())):
            self._blame[command].discard(name)
            if not self._blame[command]:
                del self._blame[command]
                cleared.append(command)
        return cleared

    def _close(self, name: str) -> None:
        failed = self._open.pop(name, None)
        if failed is not None:
            del self._places[failed.place][name]
            if not self._places[failed.place]:
                del self._places[failed.place]


def _all_passed(launch: Launch, run: Run) -> bool:
    """Whether a command that succeeded says of all its tests that they passed. Where its exit code
    is not that of the run, one package's word is not enough."""
    known = launch.runner in _OF_ALL or launch.runner in _OF_SOME
    said = launch.runner in run.says if known else bool(run.says)
    return said and (launch.decides or not launch.runner or launch.runner in _OF_ALL)


def _is_its(now: _Ended, failed: _Ended, name: str, *, named: bool = False) -> bool:
    """Whether what a later command says is about the test that failed. `named`: it says the name,
    which is enough of one that has the path of its file."""
    if named and now.command == failed.command:
        return True
    if not now.launch.quiet or now.folder != failed.folder:
        return False
    same = now.place == failed.place and now.launch.covers(name, failed.launch)
    return same or (named and ".py::" in name)


def _named(
    lines: list[str], patterns: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]
) -> tuple[str, ...]:
    """The names in lines that a pattern matches as a whole, each once."""
    names = (
        name(found)[:LONGEST]
        for line in lines
        if len(line) <= 2 * LONGEST
        for pattern, name in patterns
        if (found := pattern.fullmatch(line))
    )
    return tuple(dict.fromkeys(names))


def _unittest(method: str, place: str) -> str:
    """Newer versions of Python name the method in both places."""
    return place if place.endswith(f".{method}") else f"{place}.{method}"
