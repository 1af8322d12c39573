"""Test runs in shell commands: the runner, its arguments, and which tests a run covers."""

import pytest

from ctxagent.agent.session.test_commands import (
    MAX_COMMAND_CHARS,
    find_test_command,
    simple_commands,
)


@pytest.mark.parametrize(
    ("command", "runner", "arguments"),
    [
        ("pytest", "pytest", []), ("pytest -q tests", "pytest", ["-q", "tests"]),
        ("py.test a", "pytest", ["a"]),
        ("python -m pytest a", "pytest", ["a"]), ("python3.12 -m unittest", "unittest", []),
        ("python -m unittest discover", "unittest", []), ("uv run pytest a", "pytest", ["a"]),
        ("poetry run python -m pytest", "pytest", []),
        ("env A=1 timeout 60s pytest", "pytest", []),
        ("coverage run -m pytest a", "pytest", ["a"]), ("npx vitest run a", "vitest", ["a"]),
        ("vitest", "vitest", []),
        ("bundle exec rspec a", "rspec", ["a"]), ("npm test", "npm test", []),
        ("npm t", "npm test", []),
        ("npm run test:unit -- a", "npm test:unit", ["--", "a"]),
        ("npm -s test", "npm test", ["-s"]),
        ("yarn test", "yarn test", []), ("pnpm exec jest a", "jest", ["a"]),
        ("yarn jest a", "jest", ["a"]),
        ("bun x vitest run", "vitest", []), ("make test", "make test", []),
        ("make -C a check", "make check", ["-C", "a"]),
        ("make -j 4 test lint", "make test", ["-j", "4", "lint"]),
        ("gradle :app:test", "gradle :app:test", []),
        ("mvn verify", "mvn verify", []), ("make -f test all", "", []), ("make all", "", []),
        ("go test ./...", "go", ["./..."]),
        ("go build", "", []), ("cargo test a", "cargo", ["a"]), ("cargo t", "cargo", []),
        ("cargo +nightly test", "cargo", ["+nightly"]),
        ("cargo nextest run a", "nextest", ["a"]), ("dotnet test", "dotnet", []),
        ("mix test a", "mix", ["a"]),
        ("python manage.py test a", "manage.py", ["a"]), ("./manage.py test", "manage.py", []),
        ("ctest", "ctest", []),
        ("pytest --collect-only", "", []), ("pytest --version", "", []),
        ("make -n test", "make test", ["-n"]),
        ("make --dry-run test", "", []), ("pip install pytest", "", []), ("echo pytest", "", []),
        ("go test -list .", "", []),
        ("cargo test --no-run", "", []), ("npm install", "", []), ("npm run lint", "", []),
        ("/opt/bin/pytest a", "pytest", ["a"]),
        ("FOO=1 pytest", "pytest", []), ("pytest 'a b'", "pytest", ["a b"]),
        ("pytest > log 2>&1", "pytest", []),
        ("pytest `x`", "", []), ("nice -n 5 pytest", "pytest", []),
        ("sudo -E pytest", "pytest", []), ("tox -e py", "tox", ["-e", "py"]),
    ],
)  # fmt: skip
def test_the_runner(command: str, runner: str, arguments: list[str]) -> None:
    found = find_test_command(command)
    assert (found.runner, list(found.arguments)) == (runner, arguments)


def test_folder_and_variables() -> None:
    found = find_test_command("cd a && cd b && A=1 env B=2 pytest")
    assert (found.folder, found.variables) == ("a/b", ("A=1", "B=2"))
    assert find_test_command("cd /a; pytest").folder == "/a"


@pytest.mark.parametrize(
    ("command", "single", "is_only_printer", "decides_success"),
    [
        ("pytest", True, True, True), ("pytest a; pytest b", False, True, False),
        ("pytest && npm test", False, True, True),
        ("cat log; pytest", True, False, True), ("pytest | tail -5", True, True, False),
        ("pytest | grep x", True, True, False),
        ("set -o pipefail; pytest | tail", True, True, True),
        ("pytest || true", True, True, False), ("true || pytest", True, True, False),
        ("pytest &", True, True, False), ("bash x && pytest", True, False, True),
        ("ls && pytest", True, True, True),
        ("pytest; ls", True, True, False), ("ssh a pytest; pytest", True, False, True),
        ("grep x f && pytest", True, False, True),
        ("set -o pipefail; pytest | tail; ls", True, True, False),
        ("cat f | pytest", True, False, True),
    ],
)  # fmt: skip
def test_single_only_printer_and_decides_success(
    command: str, single: bool, is_only_printer: bool, decides_success: bool
) -> None:
    found = find_test_command(command)
    assert (found.single, found.is_only_printer, found.decides_success) == (
        single,
        is_only_printer,
        decides_success,
    )


@pytest.mark.parametrize(
    ("later", "earlier", "name", "covers"),
    [
        ("pytest", "pytest tests/a.py", "tests/a.py::test_b", True),
        ("pytest tests", "pytest", "tests/a.py::test_b", True),
        ("pytest tests/a.py", "pytest", "tests/a.py::test_b", True),
        ("pytest tests/a", "pytest", "tests/ab.py::test_b", False),
        ("pytest tests/a.py::test_b", "pytest", "tests/a.py::test_b", True),
        ("pytest other", "pytest", "tests/a.py::test_b", False),
        ("pytest tests/a.py::test_b", "pytest", "tests/a.py::test_b_c", False),
        ("pytest ./tests/", "pytest", "./tests/a.py::t", True),
        ("pytest .", "pytest -x", "a.py::t", True),
        ("pytest -q", "pytest -v --tb=short", "a.py::t", True),
        ("pytest -k x", "pytest", "a.py::t", False),
        ("pytest -k x", "pytest -k x", "a.py::t", True),
        ("pytest", "pytest -k x", "a.py::t", True),
        ("pytest", "pytest --runslow", "a.py::t", False),
        ("pytest --runslow", "pytest", "a.py::t", True),
        ("pytest --strange", "pytest", "a.py::t", False),
        ("pytest --strange", "pytest --strange", "a.py::t", True),
        ("pytest", "pytest --lf", "a.py::t", True), ("pytest -n 4", "pytest", "a.py::t", True),
        ("pytest -p no:x", "pytest", "a.py::t", True),
        ("pytest -p x", "pytest", "a.py::t", False), ("A=1 pytest", "pytest", "a.py::t", False),
        ("A=1 pytest", "A=1 pytest", "a.py::t", True),
        ("pytest; pytest a", "pytest", "a.py::t", False),
        ("go test ./...", "go test ./a", "TestX", True),
        ("go test ./a", "go test ./...", "TestX", False),
        ("go test", "go test ./...", "TestX", False),
        ("go test ./a", "go test ./a", "TestX", True),
        ("go test -count 1 ./...", "go test -v ./a", "TestX", True),
        ("cargo test --workspace", "cargo test", "a::b", True),
        ("cargo test", "cargo test --workspace", "a::b", False),
        ("pytest --maxfail 1", "pytest", "a.py::t", True),
        ("pytest", "pytest --deselect=a", "a.py::t", True),
    ],
)  # fmt: skip
def test_whether_a_run_covers_a_failed_test(
    later: str, earlier: str, name: str, covers: bool
) -> None:
    assert find_test_command(later).covers(name, find_test_command(earlier)) is covers


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("a b; c", [("", ["a", "b"], ";"), (";", ["c"], "")]), ("a && b || c", [("", ["a"], "&&"),
        ("&&", ["b"], "||"), ("||", ["c"], "")]),
        ("a | b |& c", [("", ["a"], "|"), ("|", ["b"], "|&"), ("|&", ["c"], "")]),
        ("a &", [("", ["a"], "&")]), ("a # b; c", [("", ["a"], "")]),
        ("a \\\n b", [("", ["a", "b"], "")]),
        ("a 'b c' \"d e\" f\\ g", [("", ["a", "b c", "d e", "f g"], "")]),
        ("a >b <c 2>&1 d", [("", ["a", "d"], "")]),
        ("a > b", [("", ["a"], "")]), ("a >| b c", [("", ["a", "c"], "")]),
        ("a 2>> b c", [("", ["a", "c"], "")]), ("a;;b", [("", ["a"], ";"), (";", ["b"], "")]),
        ("a $x \"$y\"", [("", ["a", "$x", "$y"], "")]), ("a$(b)", []), ("a `b`", []), ("(a)", []),
        ("a <<E\nE", []), ("a 'b", []), ("", []), ("a\nb", [("", ["a"], "\n"), ("\n", ["b"], "")]),
        ("a#b", [("", ["a#b"], "")]), ("a &> b c", [("", ["a", "c"], "")]),
        ("a ''", [("", ["a", ""], "")]), ("a \"b\\\"c\"", [("", ["a", "b\\\"c"], "")]),
    ],
)  # fmt: skip
def test_a_command_taken_apart(command: str, parts: list[tuple[str, list[str], str]]) -> None:
    assert [(each.before, each.words, each.after) for each in simple_commands(command)] == parts


def test_a_command_that_is_too_long_is_not_read() -> None:
    word = "a" * (MAX_COMMAND_CHARS - 7)
    assert find_test_command(f"pytest {word}").runner == "pytest"
    assert find_test_command(f"pytest {word}a").runner == ""
