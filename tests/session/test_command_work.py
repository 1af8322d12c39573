"""The words and the work of a command, and commands whose exit code answers "no" to a question."""

import pytest

from ctxagent.agent.session.command_output import (
    MAX_COMMAND_CHARS,
    answers_no,
    find_work,
    simple_commands,
)


def works(command: str) -> list[str]:
    return [" ".join(work.words) for work in find_work(command)]


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("npm run build", ["npm run build"]),
        ("cd app && npm run build 2>&1 | tail -20", ["npm run build"]),
        ("CI=1 npm run build > log", ["npm run build"]),
        ("make; make test", ["make", "make test"]),
        ("export A=1; source env; . env; echo x; mkdir d; make", ["make"]),
        ("pwd && cat f", ["pwd", "cat f"]),
        ("make | tee log | grep x", ["make"]), ("cat f | sort", ["cat f"]),
        ("timeout 5 make", ["make"]),
        ("/usr/bin/make", ["/usr/bin/make"]), ("set -o pipefail; make | tail", ["make"]),
        ("sleep 1", []),
        ("true", []), ("", []), ("echo $(make)", []), ("pushd a; make", ["make"]),
        ("unset A; make", ["make"]),
        ("make | python x", ["make", "x"]), ("sed -n p f", ["sed -n p f"]),
        ("make |& head", ["make"]),
        ("python3.12 -u -m pytest a", ["pytest a"]), ("uv run pytest a", ["pytest a"]),
        ("poetry run python -m pytest", ["pytest"]), ("bundle exec rspec a", ["rspec a"]),
        ("env A=1 timeout 60s pytest", ["pytest"]), ("coverage run -m pytest a", ["pytest a"]),
        ("sudo -E nice -n 5 pytest", ["pytest"]), ("pytest 'a b' # all", ["pytest a b"]),
    ],
)  # fmt: skip
def test_the_programs_that_a_command_runs(command: str, found: list[str]) -> None:
    assert works(command) == found


def test_folder_and_variables() -> None:
    first, second = find_work("cd a && A=1 make && cd b && make")
    assert (first.folder, first.variables, first.words) == ("a", ("A=1",), ("make",))
    assert (second.folder, second.variables) == ("a/b", ())
    (work,) = find_work("cd a; cd /b; env B=2 make")
    assert (work.folder, work.variables) == ("/b", ("B=2",))


@pytest.mark.parametrize(
    ("command", "decides_success"),
    [
        ("make", [True]), ("make && ls", [True, True]), ("make; ls", [False, True]),
        ("make || ls", [False, False]),
        ("make | tail", [False]), ("set -o pipefail; make | tail", [True]), ("make &", [False]),
        ("set -e; make | tail", [False]), ("make | tail; ls", [False, True]),
        ("set -o pipefail; make | tail; ls", [False, True]),
    ],
)  # fmt: skip
def test_decides_success(command: str, decides_success: list[bool]) -> None:
    assert [work.decides_success for work in find_work(command)] == decides_success


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("make", True), ("make | tail", True), ("make | cat", True), ("make | tee log", True),
        ("make | head", False),
        ("make | grep x", False), ("make | grep x | tail", False), ("make > log", False),
        ("make 2>&1 | tail", True),
        ("make >> log 2>&1", False), ("make |& tail", True), ("make && ls | grep x", True),
    ],
)  # fmt: skip
def test_is_shown(command: str, shown: bool) -> None:
    assert find_work(command)[0].is_shown is shown


@pytest.mark.parametrize(
    ("command", "hidden"),
    [
        ("make | tail", True), ("make | grep x | tail", True), ("ls; make |& cat", True),
        ("make", False), ("make; ls | tail", False), ("make | tail; ls", False),
        ("set -o pipefail; make | tail", False), ("make || true", False),
        ("cat f | tail", False), ("rg x | tail", False), ("git diff | cat", False),
    ],
)  # fmt: skip
def test_is_exit_code_hidden(command: str, hidden: bool) -> None:
    assert any(work.is_exit_code_hidden for work in find_work(command)) is hidden


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("grep x f", 1), ("rg x", 1), ("diff a b", 1), ("cmp a b", 1), ("test -f x", 1),
        ("[ -f x ]", 1), ("[[ -f x ]]", 1),
        ("which x", 1), ("command -v x", 1), ("pgrep x", 1), ("ls x", 2), ("ls x", 1),
        ("systemctl is-active x", 3),
        ("systemctl x", 4), ("git diff --quiet", 1), ("git grep x", 1), ("git -C a grep x", 1),
        ("git -c a=b diff", 1),
        ("git --no-pager diff", 1), ("cat x", 1), ("find x", 1), ("cd a && grep x f", 1),
        ("grep x f && ls y", 1),
        ("make | grep x", 1), ("! grep x f", 1), ("grep x f || ls y", 1), ("make; grep x f", 1),
        ("/bin/grep x f", 1),
        ("grep '$(x)' f", 1), ("grep $(x) f", 1), ("echo a; stat x", 1), ("jq . f", 1),
        ("git config a", 1),
        ("timeout 5 grep x f", 1), ("head f | grep x", 1),
    ],
)  # fmt: skip
def test_a_question_answered_no(command: str, code: int) -> None:
    assert answers_no(command, code)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("grep x f", 2), ("make", 1), ("ls x", 3), ("git status", 1), ("git diff", 128),
        ("make && grep x f", 1),
        ("grep x f && make", 1), ("grep x f | make", 1), ("set -o pipefail; make | grep x", 1),
        ("grep x f", None),
        ("cd a", 1), ("true", 1), ("", 1), ("echo $(grep x)", 1), ("systemctl x", 2), ("git", 1),
        ("git -C grep", 1),
        ("make || grep x f", 1), ("grep x f; make", 1), ("grep $(x) f; make", 1), ("egrep x f", 0),
    ],
)  # fmt: skip
def test_real_failures_are_not_negative_answers(command: str, code: int | None) -> None:
    assert not answers_no(command, code)


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
    assert works(f"pytest {word}") == [f"pytest {word}"]
    assert works(f"pytest {word}a") == []
