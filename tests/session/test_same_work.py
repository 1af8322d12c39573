"""What is handed over is handed over where the work is the same, however it is worded."""

import pytest

from ctxagent.agent.session.same_work import is_same_work


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("Find  the port", "x"), ("find the port", "y")),
        (("Fix parser tests", "Make them pass."), ("fix the parser test", "It still fails.")),
        (("Count lines in logs", "a"), ("Count the lines of all logs", "b")),
        (
            ("Fix failing parser test", "Fix the parser test that fails in tests/test_parser.py."),
            ("Fix parser test", "tests/test_parser.py is failing. Mend the parser."),
        ),
        (("…", "x"), ("…", "y")),
    ],
    ids=lambda task: task[0],
)
def test_the_same_work(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert is_same_work(one, other)
    assert is_same_work(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("Find the port", "x"), ("other", "y")),
        (("Fix lint errors", "Only in src/a.py."), ("Fix lint errors", "Only in src/b.py.")),
        (("Review auth module", "Look at auth."), ("Review billing module", "Look at billing.")),
        (("Review auth", "One of auth, billing."), ("Review billing", "One of auth, billing.")),
        (("Review", "the code"), ("Review again the tests", "the code")),
        (("…", "x"), ("!", "x")),
    ],
    ids=lambda task: task[0],
)
def test_other_work(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert not is_same_work(one, other)
    assert not is_same_work(other, one)
