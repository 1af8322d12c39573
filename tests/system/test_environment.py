"""The variables that commands see."""

from collections.abc import Iterator

import pytest

from ctxagent.tools.system.environment import (
    NON_INTERACTIVE,
    child_environment,
    declare_secrets,
    is_secret,
)


@pytest.fixture
def declared() -> Iterator[None]:
    declare_secrets(["GATEWAY_LOGIN", "GATEWAY_FILE"])
    yield
    declare_secrets([])


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "HF_TOKEN",
        "CORP_PASS",
        "ANTHROPIC_BASE_URL",
        "db_password",
        "OTEL_EXPORTER_OTLP_HEADERS",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    ],
)
def test_names_of_keys_are_secret(name: str) -> None:
    assert is_secret(name)
    assert name not in child_environment({name: "x"})
    assert child_environment({name: "x"}, [name])[name] == "x"


@pytest.mark.parametrize(
    "name", ["PATH", "MAX_TOKENS", "KEY_FILE", "SSH_AUTH_SOCK", "GATEWAY_LOGIN"]
)
def test_other_names_are_not(name: str) -> None:
    assert not is_secret(name)
    assert child_environment({name: "x"})[name] == "x"


def test_declared_names_are_secret_whatever_they_look_like(declared: None) -> None:
    passed = child_environment({"GATEWAY_LOGIN": "x", "GATEWAY_FILE": "x", "GATEWAY": "x"})
    assert passed.keys() & {"GATEWAY_LOGIN", "GATEWAY_FILE", "GATEWAY"} == {"GATEWAY"}
    assert child_environment({"GATEWAY_LOGIN": "x"}, ["GATEWAY_*"])["GATEWAY_LOGIN"] == "x"


def test_programs_are_told_that_nobody_waits() -> None:
    assert NON_INTERACTIVE.items() <= child_environment({"PAGER": "less"}).items()
