"""The man page: as the command line is, and such that every reader of man pages takes it."""

import subprocess
from pathlib import Path

import pytest

from ctxagent.agent.config.load import USER_FILE_VARIABLE
from ctxagent.tests.install import man_page

from ..support.machine import skip_without

PAGE = Path(__file__).parents[2] / "share" / "man" / "man1" / "ctxagent.1"
CHECKERS = {
    "mandoc": ["mandoc", "-Tlint", "-Wstyle"],
    "groff": ["groff", "-man", "-ww", "-Tutf8", "-z"],
}


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == man_page.man_page(), "run `make manual`"


@pytest.mark.parametrize("program", CHECKERS)
def test_a_checker_finds_nothing(program: str) -> None:
    skip_without(program)
    done = subprocess.run([*CHECKERS[program], PAGE], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_what_a_person_wrote_is_there_too() -> None:
    page = PAGE.read_text("utf-8")
    for part in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "EXIT STATUS",
                 "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO"):  # fmt: skip
        assert f".SH {part}\n" in page
    for name in (USER_FILE_VARIABLE, "CTXAGENT_STATE_DIR", "ANTHROPIC_API_KEY", "sessions export"):
        assert name in page


def test_texts_command_nothing() -> None:
    assert man_page.escaped(r"a\b it's --x …") == r"a\eb it\(aqs \-\-x \[u2026]"
    assert man_page.wrapped(".TP") == [".TP"]
    long = f"{'x' * 79} .SH no request"
    assert man_page.wrapped(long) == ["x" * 79, r"\&.SH no request"]
