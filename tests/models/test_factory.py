"""The wire protocol of each model, and the variables of providers."""

from pathlib import Path

import pytest

from ctxagent.agent.config.settings import ModelSettings, Settings
from ctxagent.agent.errors import NoCredentials, RequestRejected, UsageError
from ctxagent.agent.models import factory


@pytest.mark.parametrize("id", ["claude-opus-5-5", "unheard-of", "anthropic/claude-opus-5-5"])
def test_the_messages_api_needs_a_key(id: str) -> None:
    chosen = ModelSettings(id=id)
    assert factory.protocol_for(chosen, {}) is factory.PROTOCOLS["messages"]()
    with pytest.raises(NoCredentials):
        factory.find_key(chosen, {})


@pytest.mark.parametrize(
    ("id", "instead"),
    [
        ("opnai/gpt-5", "Did you mean openai/gpt-5"),
        ("google/gemini-3", "Did you mean gemini/gemini-3?"),
        ("walrus/tusk", "`ctxagent models` lists the providers."),
    ],
)
def test_an_unknown_provider_is_refused_with_near_names(
    tmp_path: Path, id: str, instead: str
) -> None:
    chosen, environ = ModelSettings(id=id), {"ANTHROPIC_API_KEY": "key-1"}
    for call in (
        lambda: factory.find_key(chosen, environ),
        lambda: factory.make_model(Settings(model=chosen), environ, tmp_path),
    ):
        with pytest.raises(UsageError, match="is not a provider of models") as e:
            call()
        assert e.value.hint.startswith(instead)
    gate = {**environ, "ANTHROPIC_BASE_URL": "http://gate.example"}
    assert factory.find_key(chosen, gate) == "ANTHROPIC_API_KEY"


def test_the_name_of_a_provider_is_no_model(tmp_path: Path) -> None:
    settings = Settings(model=ModelSettings(id="openrouter"))
    with pytest.raises(UsageError, match="openrouter is a provider, not a model") as e:
        factory.make_model(settings, {}, tmp_path)
    assert "openrouter/NAME" in e.value.hint


def test_a_script_needs_neither_key_nor_address() -> None:
    chosen = ModelSettings(id="scripted:steps.json", base_url="http://models.example")
    assert factory.find_key(chosen, {}) == ""
    assert factory.address_of(chosen, {"ANTHROPIC_BASE_URL": "http://models.example"}) == ""


def test_the_address_is_that_of_the_setting_else_of_the_environment() -> None:
    environ = {"ANTHROPIC_BASE_URL": "http://there.example"}
    assert factory.address_of(ModelSettings(), environ) == "http://there.example"
    assert factory.address_of(ModelSettings(), {}) == ""
    chosen = ModelSettings(base_url="http://here.example")
    assert factory.address_of(chosen, environ) == "http://here.example"


def test_an_invalid_address_is_reported_before_a_request() -> None:
    environ = {"ANTHROPIC_BASE_URL": "host:80", "ANTHROPIC_API_KEY": "key-1"}
    with pytest.raises(RequestRejected, match="'host:80' is not an http or https address") as e:
        factory.find_key(ModelSettings(), environ)
    assert "ANTHROPIC_BASE_URL" in e.value.hint


def test_a_model_of_another_provider_is_not_asked_at_the_same_address() -> None:
    chosen = ModelSettings(id="ollama/qwen3", base_url="http://here.example/v1", context_window=9)
    same = factory.with_model(chosen, "ollama/gemma")
    assert (same.base_url, same.context_window) == ("http://here.example/v1", 9)
    other = factory.with_model(chosen, "claude-opus-5-5")
    assert (other.base_url, other.context_window) == (None, None)


@pytest.mark.parametrize(
    "name", ["ANTHROPIC_CUSTOM_HEADERS", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_API_KEY"]
)
def test_variables_belong_to_a_provider(name: str) -> None:
    assert factory.is_provider_variable(name)


def test_other_variables_belong_to_none() -> None:
    assert not factory.is_provider_variable("HOME")
