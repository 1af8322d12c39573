"""Words, assignments, rules and imports in the texts of commands and programs."""

import pytest

from ctxagent.agent.config.program_text import (
    imported,
    is_argument_file,
    is_code,
    is_option_file,
    is_settings_of,
    plain,
    reached_rules,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=x; sh $A/y ${A}/z ${B:-c}/d $(A)", "A=x; sh x/y x/z c/d x"),
        ("A=$(pwd); sh $A/y", "A=$(pwd); sh $A/y"),
        ("A = b\nC = $(A)/d\nsh $(C)", "A = b\nC = b/d\nsh b/d"),
        ("sh a > out.sh 2>&1", "sh a    "),
        ("# sh a\nsh 'b' c/{d,e}", "\nsh b c/d c/e"),
        ("sh \\\n a", "sh   a"),
    ],
)
def test_plain_text(text: str, expected: str) -> None:
    assert plain(text, {})[0] == expected


def test_rules_that_a_goal_reaches() -> None:
    text = (
        "A = 1\nB = 2\nC := $(shell c)\nx: y\n\techo $(A)\ny:\n\ty\n\n\ty\nz:\n\tz\n%.o: a\n\tcc\n"
    )
    words = {"x"}
    reached = reached_rules(text, words)
    assert reached.split("\n") == [
        "A = 1", "", "C := $(shell c)", "x: y", "\techo $(A)", "y:", "\ty", "", "\ty", "", "%.o: a",
        "\tcc", "",
    ]  # fmt: skip
    assert words == {"x", "y", "a"}
    assert reached_rules(text, {"other"}) == text


def test_imports() -> None:
    text = "from ..a import (b,\n c)\nimport d as e, f.g; from h import *\nx = __import__('i.j')\n"
    assert list(imported(text)) == [
        (2, "a", ["b", "c"]),
        (0, "h", []),
        (0, "d", []),
        (0, "f.g", []),
        (0, "i.j", []),
    ]


@pytest.mark.parametrize(
    ("name", "program", "expected"),
    [
        ("prettier.config.js", "prettier", True),
        (".prettierrc", "prettier", True),
        (".lintstagedrc.js", "lint-staged", True),
        ("noxfile.py", "nox", True),
        (".prettierignore", "prettier", False),
        ("prettier.md", "prettier", False),
        ("prettier.log", "prettier", False),
        ("pretty.js", "prettier", False),
        ("ruff.toml", "ruff", False),
        ("pnpm-lock.yaml", "pnpm", False),
        ("test", "test", False),
    ],
)
def test_settings_by_name(name: str, program: str, expected: bool) -> None:
    assert is_settings_of(name, program) == expected


def test_kinds_of_files() -> None:
    names = ["/x/a.py", "/x/a.so", "/x/a.yml", "/x/a.json", "/x/.rc", "/x/a.md", "/x/a.state"]
    for test, count in ((is_code, 2), (is_argument_file, 3), (is_option_file, 5)):
        assert [test(name) for name in names] == [True] * count + [False] * (7 - count)
