"""Which wire protocol a model has, and which variables belong to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxagent.agent.config.settings import ModelSettings
from ctxagent.agent.errors import NoCredentials, UsageError
from ctxagent.agent.models import factory
from ctxagent.agent.models.catalog import add_models

ROW = "window = 32_000\noutput = 4_000\ninput_price = 0\noutput_price = 0\n"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """A user's file, which counts for nothing afterwards."""
    path = tmp_path / "models.toml"
    yield path
    path.write_text("")
    add_models(path)


@pytest.mark.parametrize("id", ["claude-opus-5-5", "unheard-of"])
def test_the_messages_api_needs_a_key(id: str) -> None:
    wire = factory.protocol_of(ModelSettings(id=id))
    assert wire is factory.PROTOCOLS["messages"]
    with pytest.raises(NoCredentials):
        wire.load().find_key({})


def test_a_script_needs_neither_key_nor_address() -> None:
    chosen = ModelSettings(id="scripted:steps.json", base_url="http://models.example")
    assert factory.protocol_of(chosen).load().find_key({}) == ""
    assert factory.address_of(chosen, {"ANTHROPIC_BASE_URL": "http://models.example"}) == ""


def test_the_address_is_that_of_the_setting_else_of_the_environment() -> None:
    environ = {"ANTHROPIC_BASE_URL": "http://there.example"}
    assert factory.address_of(ModelSettings(), environ) == "http://there.example"
    assert factory.address_of(ModelSettings(), {}) == ""
    chosen = ModelSettings(base_url="http://here.example")
    assert factory.address_of(chosen, environ) == "http://here.example"


def test_an_unknown_protocol_is_bad_usage(own: Path) -> None:
    own.write_text(f'[walrus]\n{ROW}protocol = "telex"\n')
    add_models(own)
    with pytest.raises(UsageError, match="gives walrus the protocol 'telex', which is unknown"):
        factory.protocol_of(ModelSettings(id="walrus"))


def test_variables_belong_to_a_protocol_by_their_prefix() -> None:
    assert factory.is_of_protocol("ANTHROPIC_CUSTOM_HEADERS")
    assert not factory.is_of_protocol("HOME")
