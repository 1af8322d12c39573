"""Each pattern for test output is searched wherever it can match."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.session import test_results as results

SIGNS = {
    sign.pattern.pattern: sign
    for sign in (
        *results._FAILED_LINES,
        *results._FAILED_SHORT_LINES,
        *results._PASSED_LINES,
        results._FAILED_JEST_LINES,
        results._DOT_WITH_SUITE,
        results._IS_JEST,
        results._STILL_FAILING,
        results._LEFT_OUT,
        results._SUCCESS,
    )
}


@pytest.mark.slow
@pytest.mark.parametrize("pattern", SIGNS)
def test_what_a_pattern_matches_has_a_text_of_its_sign(pattern: str) -> None:
    sign = SIGNS[pattern]

    # Hypothesis cannot make atomic groups, which only say how to match.
    @settings(max_examples=50)
    @given(st.from_regex(pattern.replace("(?>", "(?:")))
    def holds(text: str) -> None:
        if sign.pattern.search(text):
            assert any(sign.lines_in(results._Lines(text)))

    holds()


@pytest.mark.slow
@pytest.mark.parametrize("sign", [results._IS_JEST, results._STILL_FAILING, results._LEFT_OUT])
def test_a_sign_is_where_its_pattern_matches(sign: results._Sign) -> None:
    @settings(max_examples=100)
    @given(st.lists(st.one_of(st.from_regex(sign.pattern.pattern), st.sampled_from(sign.texts))))
    def holds(parts: list[str]) -> None:
        for between in ("", "\n", " "):
            text = between.join(parts)
            assert sign.is_in(results._Lines(text)) == bool(sign.pattern.search(text))

    holds()


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("FAILED tests/a.py::test_b - assert 1", "tests/a.py::test_b"),
        ("FAILED tests/a.py::test_b[x - y] - no", "tests/a.py::test_b[x - y]"),
        ("ERROR tests/a.py", "tests/a.py"),
        ("[gw1] [ 50%] FAILED tests/a.py::test_b", "tests/a.py::test_b"),
        ("tests/a.py::test_b FAILED   [ 50%]", "tests/a.py::test_b"),
        ("a.py::T::test_b ERROR", "a.py::T::test_b"),
        ("FAIL: test_b (a.T)", "a.T.test_b"), ("ERROR: test_b (a.T.test_b)", "a.T.test_b"),
        ("--- FAIL: TestA (0.01s)", "TestA"), ("    --- FAIL: TestA/sub", "TestA/sub"),
        ("test a::b ... FAILED", "a::b"), ("not ok 3 - it works", "it works"),
        ("not ok 3 it works", "it works"), ("rspec ./spec/a.rb:3 # A is b", "./spec/a.rb:3"),
        (" FAIL  src/a.test.ts > suite > works 12ms", "src/a.test.ts > suite > works"),
        ("  ● suite › works", "suite › works"), ("  ✕ works (12 ms)", "works"),
        ("  × works 3ms", "works"),
    ],
)  # fmt: skip
def test_a_failed_test_is_named(line: str, name: str) -> None:
    report = results.read_report(f"some output\n{line}\nmore")
    assert report.failed == (name,)
    assert not report.has_no_failure


@pytest.mark.parametrize(
    "line",
    ["not ok 3 - x # TODO later", "not ok 1 - x # SKIP", "  ● works", "FAILED",
    "FAILED to start", "x" * 700 + "::test FAILED", "ERROR something else"],
)  # fmt: skip
def test_what_names_no_test(line: str) -> None:
    assert results.read_report(line).failed == ()


def test_dots_of_jest() -> None:
    assert results.read_report("FAIL src/a.test.js\n  ● works\n  ● Console\n").failed == ("works",)
    assert results.read_report("Tests: 1 failed\n● Test suite failed to run").failed == ()


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("tests/a.py::test_b PASSED [ 50%]", "tests/a.py::test_b"),
        ("PASSED tests/a.py::test_b", "tests/a.py::test_b"),
        ("[gw0] [ 10%] PASSED tests/a.py::test_b", "tests/a.py::test_b"),
        ("test_b (a.T) ... ok", "a.T.test_b"), ("--- PASS: TestA (0.01s)", "TestA"),
        ("test a::b ... ok", "a::b"), ("ok 3 - it works", "it works"),
    ],
)  # fmt: skip
def test_a_passed_test_is_named(line: str, name: str) -> None:
    report = results.read_report(line)
    assert report.passed == {name}
    assert report.failed == ()
    assert report.has_no_failure


@pytest.mark.parametrize(
    ("text", "runner"),
    [
        ("===== 3 passed in 0.12s =====", "pytest"),
        ("3 passed, 1 skipped, 2 warnings in 1.2s", "pytest"),
        ("12 passed in 61.02s (0:01:01)", "pytest"), ("Ran 3 tests in 0.1s\n\nOK", "unittest"),
        ("Ran 1 test in 0.1s\n\nOK (skipped=1)", "unittest"),
        ("Tests:       3 passed, 3 total", "jest"),
        ("Tests: 1 skipped, 3 passed, 4 total", "jest"), ("      Tests  3 passed (3)", "vitest"),
        (" Tests  3 passed | 1 skipped (4)", "vitest"), ("  3 passing (12ms)", "mocha"),
        ("3 examples, 0 failures", "rspec"), ("1 example, 0 failures, 1 pending", "rspec"),
        ("Result: PASS", "prove"),
        ("100% tests passed, 0 tests failed out of 3", "ctest"),
        ("OK (3 tests, 5 assertions)", "phpunit"),
        ("     Summary [   0.1s] 3 tests run: 3 passed, 0 skipped", "nextest"),
        ("ok  \texample.com/a\t0.01s", "go"), ("ok  \ta\t(cached)", "go"),
        ("ok a 0.1s coverage: 80% of statements", "go"),
        ("test result: ok. 3 passed; 0 failed; 0 ignored", "cargo"),
        ("1 doctest, 3 tests, 0 failures", "mix"),
        ("Passed!  - Failed:     0, Passed:     3, Skipped: 0", "dotnet"),
        ("[INFO] Tests run: 3, Failures: 0, Errors: 0, Skipped: 0", "maven"),
        ("3 runs, 5 assertions, 0 failures, 0 errors, 0 skips", "minitest"), (" 3 pass", "bun"),
        ("# pass  3", "tap"),
    ],
)  # fmt: skip
def test_each_runner_says_that_all_passed(text: str, runner: str) -> None:
    report = results.read_report(f"some output\n{text}\nmore")
    assert report.passing_runners == {runner}
    assert report.has_no_failure
    assert results.read_report(f"{text}\n1 failed").passing_runners == frozenset()


@pytest.mark.parametrize(
    "text",
    ["0 passed in 0.1s", "Ran 0 tests in 0.1s\n\nOK", "Tests: 0 passed, 0 total",
    "3 examples, 1 failures", "OK (0 tests, 0 assertions)", "3 passed", "we say 3 passed in 1s",
    "Result: FAIL", "Ran 3 tests in 0.1s\nOK",
     "test result: ok. 0 passed; 0 failed; 1 ignored",
     "0 runs, 0 assertions, 0 failures, 0 errors, 0 skips", "# pass 0", "0 passing"],
)  # fmt: skip
def test_no_tests_and_no_runner_say_nothing(text: str) -> None:
    assert results.read_report(text).passing_runners == frozenset()


def test_tests_that_were_left_out() -> None:
    assert results.read_report("3 passed, 2 deselected in 0.1s").partial
    assert results.read_report("test result: ok. 3 passed; 0 failed; 2 filtered out").partial
    assert not results.read_report("3 passed, 0 deselected in 0.1s").partial


@pytest.mark.parametrize(
    "text", ["2 failed", "1 error", "3 failures", "1 failing", "FAILED", "FAIL x", "not ok 1"]
)
def test_a_failure_without_a_name(text: str) -> None:
    assert not results.read_report(text).has_no_failure


@pytest.mark.parametrize("text", ["0 failed", "10 fails", "no errors", "it FAILED", "is not ok"])
def test_no_failure(text: str) -> None:
    assert results.read_report(text).has_no_failure


def test_each_test_is_named_once_and_what_failed_did_not_pass() -> None:
    text = "FAILED a.py::b\na.py::b FAILED\na.py::b PASSED\na.py::c PASSED"
    report = results.read_report(text)
    assert report.failed == ("a.py::b",)
    assert report.passed == {"a.py::c"}


def test_the_end_of_a_long_output_is_read() -> None:
    lines = ["FAILED a.py::first", *["x"] * (results.MAX_OUTPUT_LINES - 1), "FAILED a.py::last"]
    assert results.read_report("\n".join(lines)).failed == ("a.py::last",)
    assert len(results.read_report("FAILED a.py::" + "b" * 400).failed[0]) == 300
