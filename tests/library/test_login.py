"""Logins: the choices of a conversation, and its keys."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.config.settings import ModelSettings, Settings
from ctxagent.agent.launch import LaunchOptions, Places
from ctxagent.agent.library.login import Logins, add_stored_keys
from ctxagent.agent.models.providers import providers

CLOSED = "http://127.0.0.1:9/v1"


@pytest.fixture
def logins(tmp_path: Path) -> Logins:
    local = [each for each in providers().values() if each.local and each.address_variable]
    environ = {each.address_variable: CLOSED for each in local} | {"PATH": ""}
    launch = LaunchOptions(
        Settings(),
        Places(cwd=tmp_path, state=tmp_path / "state", config_home=tmp_path, environ=environ),
    )
    return Logins(launch, environ)


def with_model(logins: Logins, **chosen: str) -> Logins:
    settings = replace(logins.launch.settings, model=ModelSettings(**chosen))  # type: ignore[arg-type]
    return replace(logins, launch=replace(logins.launch, settings=settings))


def test_a_first_start_is_one_where_nothing_is_named(logins: Logins) -> None:
    assert logins.is_first
    assert with_model(logins, id="openai/walrus").is_first
    assert with_model(logins, base_url="https://localhost").is_first
    assert not with_model(logins, id="scripted:a.json").is_first
    assert not with_model(logins, id="ollama/qwen3").is_first  # its address is named
    logins.note_asked()
    assert not logins.is_first


def test_providers_that_need_only_a_key(logins: Logins) -> None:
    names = [each.provider.name for each in asyncio.run(logins.choices())]
    assert names[0] == "anthropic"
    assert {"openai", "openrouter", "gemini"} <= {*names}
    assert not {"bedrock", "vertex", "azure", "local"} & {*names}
    assert names[-5:] == ["ollama", "lmstudio", "llamacpp", "vllm", "litellm"]  # none runs


def test_a_key_is_used_at_once_and_kept_until_it_is_forgotten(logins: Logins) -> None:
    openai = providers()["openai"]
    assert not logins.has_stored(openai)
    assert logins.store_key(openai, "test-key-1") == logins.store.path
    assert logins.environ["OPENAI_API_KEY"] == "test-key-1"
    assert logins.has_stored(openai)
    environ: dict[str, str] = {}
    add_stored_keys(environ, logins.launch.places.state)
    assert environ == {"OPENAI_API_KEY": "test-key-1"}
    assert logins.remove_key(openai)
    assert not logins.remove_key(openai)
    assert "OPENAI_API_KEY" not in logins.environ


def test_the_usual_model_of_a_provider(logins: Logins) -> None:
    known = providers()
    assert logins.default_model(known["anthropic"]) == "claude-sonnet-5-5"
    assert logins.default_model(known["openai"]) == ""
    assert with_model(logins, id="openai/walrus").default_model(known["openai"]) == "openai/walrus"
