"""A number that an option does not allow is refused with the numbers that it allows."""

import pytest
from click.testing import CliRunner

from ctxagent.agent.cli.main import main


@pytest.mark.parametrize(
    ("words", "value", "allowed"),
    [
        (["--max-turns"], "0", "whole number of 1 or more"),
        (["--max-turns"], "abc", "whole number of 1 or more"),
        (["--max-turns"], "1.5", "whole number of 1 or more"),
        (["--max-turns"], "", "whole number of 1 or more"),
        (["--max-budget-usd"], "abc", "number of 0 or more"),
        (["--max-budget-usd"], "-1", "number of 0 or more"),
        (["--max-budget-usd"], "nan", "number of 0 or more"),
        (["--max-budget-usd"], "inf", "number of 0 or more"),
        (["fleet", "run", "--max-outage"], "inf", "number of 0 or more"),
        (["fleet", "run", "--attempts"], "1001", "whole number from 1 to 1000"),
        (["proxy", "--port"], "65536", "whole number from 0 to 65535"),
        (["replay", "--bound"], "100.5", "number from 0 to 100"),
    ],
)
def test_a_wrong_number_names_the_allowed_numbers(
    words: list[str], value: str, allowed: str
) -> None:
    done = CliRunner().invoke(main, [*words, value])
    assert done.exit_code == 2
    error = done.output.splitlines()[-1]
    message = f"Error: Invalid value for '{words[-1]}': {value!r} is not allowed. Give a {allowed}."
    assert error == message


def test_help_names_the_allowed_numbers() -> None:
    done = CliRunner().invoke(main, ["fleet", "run", "--help"], terminal_width=100)
    assert "[1 to 1000]" in done.output
    assert "[default: 3600; 0 or more]" in done.output
