"""Test results read from output: which tests failed, and which later run shows that they pass.

Names are verbatim in each runner's format: pytest, unittest, jest and vitest, go, cargo, TAP and
rspec. A test counts as failing until a later run certainly ran it and reports that it passed.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from ..lazy import dataclass, regex
from .command_output import CommandOutput
from .test_commands import TestCommand, find_test_command

MAX_TEST_NAME_CHARS = 300
MAX_OUTPUT_LINES = 20_000  # last lines of an output that are searched


@dataclass(slots=True)
class _Lines:
    """The lines of a text, with a cache of substring searches."""

    text: str
    _found: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def having(self, part: str) -> list[tuple[int, int]]:
        """Return the start and end of each line that contains `part`."""
        if part not in self._found:
            self._found[part] = [*self._search(part)]
        return self._found[part]

    def _search(self, part: str) -> Iterator[tuple[int, int]]:
        text, end = self.text, -1
        while (place := text.find(part, end + 1)) >= 0:
            end = text.find("\n", place)
            end = len(text) if end < 0 else end
            yield text.rfind("\n", 0, place) + 1, end


@dataclass(frozen=True, slots=True)
class _Sign:
    """A pattern with literal texts: each line that it matches (or begins to match in) contains one
    of them.

    Searching for the texts first is much faster than the pattern, because most lines have none.
    Signs share texts to save searches.
    """

    texts: tuple[str, ...]
    pattern: re.Pattern[str]

    def lines_in(self, lines: _Lines) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each line that the pattern may match in."""
        for each in self.texts:
            yield from lines.having(each)

    def is_in(self, lines: _Lines) -> bool:
        return any(self.pattern.search(lines.text, *line) for line in self.lines_in(lines))


def _sign(*texts: str, matches: str, flags: int = 0) -> _Sign:
    return _Sign(texts, regex(matches, flags))


_STILL_FAILING = _sign(
    " fail", " error", "FAIL", "ok ",
    matches=r"\b[1-9]\d* (?:failed|failures?|errors?|failing)\b|^(?:FAILED|FAIL)\b|^not ok ",
    flags=re.MULTILINE,
)  # fmt: skip
_LEFT_OUT = _sign(
    " deselected", " filtered out", matches=r"\b[1-9]\d* (?:deselected|filtered out)\b"
)
# The line in which each runner reports passed tests: all tests, once at the end, or some tests.
_ALL_PASSED_LINES = {
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
_SOME_PASSED_LINES = {
    "go": r"ok[ \t]+\S+[ \t]+(?:[\d.]+s|\(cached\))(?:[ \t]+coverage: [^\[\n]*)?",
    "cargo": r"test result: ok\. [1-9]\d* passed; 0 failed;.*",
    "mix": r"(?:\d+ doctests?, )?[1-9]\d* tests?, 0 failures\b.*",
    "dotnet": r"Passed! +- Failed: +0, Passed: +[1-9]\d*,.*",
    "maven": r"\[INFO\] Tests run: [1-9]\d*, Failures: 0, Errors: 0, Skipped: \d+",
    "minitest": r"[1-9]\d* runs, \d+ assertions, 0 failures, 0 errors, \d+ skips",
    "bun": r" *[1-9]\d* pass",
    "tap": r"# pass +[1-9]\d*",
}
_SUCCESS = _sign(
    " pass", "Ran ", "OK (", "0 failures", "PASS", "ok ", "ok\t", "Passed!", "Failures: 0",
    matches="^(?:{})$".format(
        "|".join(
            rf"(?P<{runner}>{line})"
            for runner, line in (_ALL_PASSED_LINES | _SOME_PASSED_LINES).items()
        )
    ),
    flags=re.MULTILINE,
)  # fmt: skip

_WORKER = r"(?:\[gw\d+\] \[ *\d+%\] )?"


# The group of a pattern is the test's name. With two groups, they are its method and its class.
_FAILED_LINES = (
    # pytest: its summary, then its lines with -v
    _sign(
        "FAIL", "ERROR",
        matches=rf"{_WORKER}(?:FAILED|ERROR) ((?>\S*?::)[^\[]+?(?:\[.*?\])?|\S*\.py)(?: - .*)?",
    ),
    _sign("FAIL", "ERROR", matches=r"(?=\S+?::)(.+) (?:FAILED|ERROR)(?:\s+\[ *\d+%\])?"),
    # unittest
    _sign("FAIL", "ERROR", matches=r"(?:FAIL|ERROR): (\w+) \(([\w.]+)\)"),
    # go, cargo, TAP, rspec
    _sign("FAIL", matches=r"\s*--- FAIL: (\S+)(?: \([\d.]+s\))?"),
    _sign("FAIL", matches=r"test (\S+) \.\.\. FAILED"),
    _sign("ok ", matches=r"\s*not ok \d+(?: -)? (?!.*# (?:TODO|SKIP))(.+?)"),
    _sign("rspec ./", matches=r"rspec (\./\S+)(?: # .*)?"),
    # vitest and jest: the full name, including the suite
    _sign("FAIL", matches=r"\s*FAIL\s+(\S+ > .+?)(?: \d+ ?m?s)?"),
)  # fmt: skip
# Only jest marks a test with a dot. Outside `describe`, a test's name has no suite.
_IS_JEST = _sign("FAIL", "Tests: ", matches=r"^(?:FAIL +\S|Tests: +\d)", flags=re.MULTILINE)
_FAILED_JEST_LINES = _sign(
    "● ",
    matches=r"\s*● (?!(?:Console|Test suite failed to run|Validation Warning:?"
    r"|Deprecation Warning:?|Multiple configurations found:?"
    r"|Cannot log after tests are done\b.*)$)(.+)",
)
_DOT_WITH_SUITE = _sign("● ", matches=r"\s*● (.+ › .+)")
_FAILED_SHORT_LINES = (_sign("✕ ", "× ", "✗ ", matches=r"\s*[✕×✗] (.+?)(?: \(?[\d.]+ ?m?s\)?)?"),)
_PASSED_LINES = (
    _sign("PASS", matches=r"(?=\S+?::)(.+) PASSED(?:\s+\[ *\d+%\])?"),
    _sign("PASS", matches=rf"{_WORKER}PASSED (\S+?::.+)"),
    _sign("... ok", matches=r"(\w+) \(([\w.]+)\) \.\.\. ok"),
    _sign("PASS", matches=r"\s*--- PASS: (\S+)(?: \([\d.]+s\))?"),
    _sign("... ok", matches=r"test (\S+) \.\.\. ok"),
    _sign("ok ", matches=r"\s*ok \d+(?: -)? (?!.*# (?:TODO|SKIP))(.+?)"),
)


@dataclass(frozen=True, slots=True)
class TestReport:
    """The test results in the output of one command."""

    failed: tuple[str, ...]
    passed: frozenset[str]
    # Runners that report passed tests; empty if any failure is mentioned.
    passing_runners: frozenset[str]
    has_no_failure: bool  # no failure is mentioned
    partial: bool  # some tests were left out


def read_report(output: str) -> TestReport:
    """Return the test results in an output. Its lines must have no trailing blanks."""
    lines = output.split("\n")[-MAX_OUTPUT_LINES:]
    text = "\n".join([line if len(line) <= 2 * MAX_TEST_NAME_CHARS else "" for line in lines])
    searched = _Lines(text)
    whole = searched if text == output else _Lines(output)
    dots = _FAILED_JEST_LINES if _IS_JEST.is_in(whole) else _DOT_WITH_SUITE
    failed = _test_names(searched, (*_FAILED_LINES, dots))
    failed = failed or _test_names(searched, _FAILED_SHORT_LINES)
    passed = set(_test_names(searched, _PASSED_LINES)) - set(failed)
    has_no_failure = not failed and not _STILL_FAILING.is_in(whole)
    passing_runners = frozenset(_successes(searched)) if has_no_failure else frozenset[str]()
    return TestReport(
        failed, frozenset(passed), passing_runners, has_no_failure, _LEFT_OUT.is_in(searched)
    )


def _successes(lines: _Lines) -> Iterator[str]:
    """Yield the runners that report passed tests in a text."""
    end = 0
    for start, _ in sorted(_SUCCESS.lines_in(lines)):
        if start >= end and (found := _SUCCESS.pattern.match(lines.text, start)):
            end = found.end()
            yield str(found.lastgroup)


@dataclass(frozen=True, slots=True)
class FailingTest:
    """A test that has failed at least once."""

    name: str
    ref: int  # of the newest run in which it failed
    resolved: int | None = None  # ref of the later run in which it passed


@dataclass(frozen=True, slots=True)
class _EndedCommand:
    """A command that has ended."""

    runner: str  # or the whole command if no runner is known
    command: str
    launch: TestCommand
    folder: str
    ref: int


@dataclass(slots=True)
class FailingTests:
    """The tests that have failed at least once, in the order of their first failure."""

    tests: dict[str, FailingTest] = field(default_factory=dict)
    # The newest failing run of each test that has not passed since, and the same by runner.
    _open: dict[str, _EndedCommand] = field(default_factory=dict)
    _open_by_runner: dict[str, dict[str, _EndedCommand]] = field(default_factory=dict)
    # The commands in which a test failed, and the open tests of a command.
    _commands_by_test: dict[str, set[str]] = field(default_factory=dict)
    _tests_by_command: dict[str, set[str]] = field(default_factory=dict)
    # Failed runs that named no test, by runner and command.
    _unnamed: dict[str, dict[str, _EndedCommand]] = field(default_factory=dict)
    # (start, end) of the newest run in which all tests passed, by command.
    _passed: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(
        self, command: str, output: CommandOutput, ref: int, *, passed: bool, cwd: str, started: int
    ) -> tuple[bool, list[str]]:
        """Add a command that has ended. Return whether tests failed in it, and the commands whose
        last open failure it resolves.

        A test is resolved by a run that names it as passed. It is also resolved by a run that
        reports only passed tests, if this run repeats or covers the run in which the test failed. A
        run that started before the failure resolves nothing.
        """
        launch = find_test_command(command)
        runner = launch.runner or command
        if passed and not launch.runner and runner not in self._open_by_runner:
            return False, []
        run = read_report(output.text)
        folder = posixpath.normpath(posixpath.join(cwd, launch.folder))
        now = _EndedCommand(runner, command, launch, folder, ref)
        cleared = self._resolve(now, run, passed=passed, started=started)
        names = run.failed if launch.runner or not passed else ()
        passed_since, by = self._passed.get(command, (0, 0))
        if passed_since > started:  # reported late, after a newer run had passed
            told = {name: FailingTest(name, ref, by) for name in names if name not in self._open}
            self.tests.update(told)
            return False, cleared
        for name in names:
            self._remove_open(name)
            self.tests[name] = FailingTest(name, ref)
            self._open[name] = now
            self._open_by_runner.setdefault(runner, {})[name] = now
            self._commands_by_test.setdefault(name, set()).add(command)
            self._tests_by_command.setdefault(command, set()).add(name)
        # If the exit code may be another program's, the output decides.
        failed = (
            bool(names)
            or not passed
            or not (run.has_no_failure or launch.decides_success or not launch.is_only_printer)
        )
        if failed and launch.runner:
            self._remove_unnamed(runner, command)
            if not names:
                self._unnamed.setdefault(runner, {})[command] = now
        return failed and bool(launch.runner), cleared

    def _resolve(
        self, now: _EndedCommand, run: TestReport, *, passed: bool, started: int
    ) -> list[str]:
        """Resolve the tests that a run reports as passed. Return the commands without open failures
        after that.
        """
        runner, earlier = now.runner, dict[str, _EndedCommand]()
        done = [
            name
            for name in run.passed
            if (failed := self._open.get(name))
            and failed.ref < started
            and _applies_to(now, failed, name, named=True)
        ]
        if passed and _all_passed(now.launch, run):
            newest = self._passed.get(now.command, (0, 0))
            self._passed[now.command] = max(newest, (started, now.ref))

            def is_done(failed: _EndedCommand, name: str) -> bool:
                covered = not run.partial and _applies_to(now, failed, name)
                return failed.ref < started and (failed.command == now.command or covered)

            done += [
                n
                for n, failed in self._open_by_runner.get(runner, {}).items()
                if is_done(failed, n)
            ]
            unnamed = self._unnamed.get(runner, {})
            earlier = {c: failed for c, failed in unnamed.items() if is_done(failed, "")}
        cleared: list[str] = []
        for command in earlier:
            self._remove_unnamed(runner, command)
            cleared += [] if command in self._tests_by_command else [command]
        for name in dict.fromkeys(done):
            self._remove_open(name)
            self.tests[name] = replace(self.tests[name], resolved=now.ref)
            cleared += self._remove_from_commands(name)
        return cleared

    def _remove_unnamed(self, runner: str, command: str) -> None:
        rows = self._unnamed.get(runner, {})
        if rows.pop(command, None) and not rows:
            del self._unnamed[runner]

    def _remove_from_commands(self, name: str) -> list[str]:
        """Remove a resolved test from its commands. Return the commands without open failures after
        that.
        """
        cleared = []
        for command in sorted(self._commands_by_test.pop(name, ())):
            self._tests_by_command[command].discard(name)
            if not self._tests_by_command[command]:
                del self._tests_by_command[command]
                is_open = any(command in rows for rows in self._unnamed.values())
                cleared += [] if is_open else [command]
        return cleared

    def _remove_open(self, name: str) -> None:
        failed = self._open.pop(name, None)
        if failed is not None:
            del self._open_by_runner[failed.runner][name]
            if not self._open_by_runner[failed.runner]:
                del self._open_by_runner[failed.runner]


def _all_passed(launch: TestCommand, run: TestReport) -> bool:
    """Return True if a successful command reports that all its tests passed. If its exit code is
    not that of the test run, a runner that reports per package is not trusted.
    """
    known = launch.runner in _ALL_PASSED_LINES or launch.runner in _SOME_PASSED_LINES
    said = launch.runner in run.passing_runners if known else bool(run.passing_runners)
    return said and (
        launch.decides_success or not launch.runner or launch.runner in _ALL_PASSED_LINES
    )


def _applies_to(
    now: _EndedCommand, failed: _EndedCommand, name: str, *, named: bool = False
) -> bool:
    """Return True if a later command's results apply to the failed test. `named`: the results name
    the test, which is enough if the name includes its file's path.
    """
    if named and now.command == failed.command:
        return True
    if not now.launch.is_only_printer or now.folder != failed.folder:
        return False
    same = now.runner == failed.runner and now.launch.covers(name, failed.launch)
    return same or (named and ".py::" in name)


def _test_names(lines: _Lines, signs: Sequence[_Sign]) -> tuple[str, ...]:
    """Return the names in the lines that a pattern matches completely, without duplicates."""
    may_match = {
        (start, n, end) for n, sign in enumerate(signs) for start, end in sign.lines_in(lines)
    }
    names = (
        _test_name(*found.groups())[:MAX_TEST_NAME_CHARS]
        for start, n, end in sorted(may_match)
        if (found := signs[n].pattern.fullmatch(lines.text, start, end))
    )
    return tuple(dict.fromkeys(names))


def _test_name(name: str, place: str = "") -> str:
    """Return the full name of a test. In newer versions of Python, `place` already includes the
    method.
    """
    return name if not place else place if place.endswith(f".{name}") else f"{place}.{name}"
