"""`make mutants`: what is changed, what is left out, and that a mutant is tested."""

import ast
from pathlib import Path

import pytest

from ctxagent.tests.support.mutants.mutations import Mutant, changes_of, replaced, sample
from ctxagent.tests.support.mutants.run import CoverageMap

pytestmark = pytest.mark.slow  # libcst takes a moment


def mutants(source: str) -> set[str]:
    return {replaced(source, change) for change in changes_of(source)}


@pytest.mark.parametrize(
    ("source", "mutant"),
    [
        ("if a < b: pass\n", "if a <= b: pass\n"),
        ("if a and b: pass\n", "if a or b: pass\n"),
        ("limit = 3\n", "limit = 4\n"),
        ("def f():\n    return not a\n", "def f():\n    return a\n"),
        ("run(a, b)\n", "run(a)\n"),
        ('kind = "one two"\n', 'kind = "ONE TWO"\n'),
        ("x = a if b else c\n", "x = a if (b) and False else c\n"),
    ],
)
def test_changes_of_meaning_are_made(source: str, mutant: str) -> None:
    made = {ast.dump(ast.parse(each)) for each in mutants(source)}
    assert ast.dump(ast.parse(mutant)) in made


@pytest.mark.parametrize(
    "source",
    [
        'def f(a: dict[str, "X"]) -> "Y":\n    """Return it."""\n',
        "@dataclass(frozen=True)\nclass A(Base, total=False):\n    b: int\n",
        "if TYPE_CHECKING:\n    X = 1\n",
        '__all__ = ["a"]\n',
        "Names = dict[str, int] | None\n",
        'raise ToolError(f"{path} is missing", 3)\n',
        '"""What it is for."""\n',
    ],
)
def test_changes_that_no_test_should_notice_are_left_out(source: str) -> None:
    assert mutants(source) == set()


def test_wording_stays_and_patterns_change() -> None:
    assert mutants('print("too many words")\n') == {"print(None)\n"}
    assert any("XX" in each for each in mutants('find(r"too many words")\n'))


def test_a_sample_is_the_same_each_time_and_grows_with_its_size(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("".join(f"x{at} = {at} + y\n" for at in range(40)))
    small, large, again = (sample(tmp_path, ["a.py"], size, seed=1) for size in (5, 10, 5))
    assert small == again == large[:5]
    assert len({each.line for each in large}) == 10
    assert sample(tmp_path, ["a.py"], 5, seed=2) != small


def test_a_head_of_a_block_ends_before_its_body(tmp_path: Path) -> None:
    source = "def f():\n    while (\n        a < b\n    ):\n        c()\n"
    (tmp_path / "a.py").write_text(source)
    (mutant,) = sample(tmp_path, ["a.py"], 9, seed=1)
    assert mutant.line == 3
    assert mutant.in_function
    assert mutant.statement == range(2, 5)


def test_the_tests_that_run_a_line_are_chosen_those_of_the_module_first() -> None:
    own, quick, other = "tests/r/test_a.py::t", "tests/r/test_b.py::t", "tests/r/test_c.py::t"
    lines = {"agent/r/a.py": {3: {own, quick}, 4: {""}, 5: {"", quick}}}
    known = CoverageMap({own: 3.0, quick: 1.0, other: 2.0}, lines, [])

    def chosen(line: int, *, in_function: bool = True) -> list[str]:
        statement = range(line, line + 1)
        return known.tests_of(Mutant("agent/r/a.py", line, statement, in_function, "", ""))

    assert chosen(3) == [own, quick]
    assert chosen(5) == [quick]
    assert chosen(6) == []
    assert chosen(4) == [own, quick, other]  # the import runs it, so that any test may notice
    assert chosen(3, in_function=False) == [own, quick, other]
