"""Available providers with and without keys, and the models they list."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.config.settings import Settings
from ctxagent.agent.errors import ModelError
from ctxagent.agent.models.catalog import Limits, Price
from ctxagent.agent.models.overview import (
    models_of_other_providers,
    price_and_window,
    provider_states,
    providers_without_key,
    served_models,
)
from ctxagent.agent.models.providers import providers

from .test_transport import server

NOBODY = "http://127.0.0.1:9/v1"
HERE = ("OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM", "LITELLM")


def alone(**more: str) -> dict[str, str]:
    """An environment that hides all local servers except the given ones."""
    return {**{f"{name}_BASE_URL": NOBODY for name in HERE}, **more}


def states(environ: Mapping[str, str]) -> dict[str, tuple[bool, str]]:
    found = asyncio.run(provider_states(environ))
    assert [each.ready for each in found] == sorted((each.ready for each in found), reverse=True)
    return {each.provider.name: (each.ready, each.state) for each in found}


def test_a_provider_is_ready_with_its_key() -> None:
    found = states(alone(OPENROUTER_API_KEY="key-1", ANTHROPIC_AUTH_TOKEN="token-1"))
    assert found["openrouter"] == (True, "OPENROUTER_API_KEY")
    assert found["anthropic"] == (True, "ANTHROPIC_AUTH_TOKEN")
    assert found["groq"] == (False, "GROQ_API_KEY is not set")
    assert found["ollama"] == (False, "does not answer")


def test_the_protocol_is_that_of_the_address() -> None:
    found = asyncio.run(provider_states(alone(OPENAI_BASE_URL="https://llm.example/v1")))
    assert {s.provider.name: s.protocol for s in found}["openai"] == "chat"


def test_a_server_on_this_machine_is_ready_when_it_answers() -> None:
    with server(200, {"data": [{"id": "qwen3"}]}) as (url, _):
        found = states(alone(OLLAMA_BASE_URL=url))
    assert found["ollama"] == (True, "runs here, 1 model")


def listed(name: str, environ: dict[str, str], state: Path) -> list[Any]:
    return asyncio.run(served_models(providers()[name], Settings(), environ, state))


def test_a_server_lists_its_models_with_windows_and_prices(tmp_path: Path) -> None:
    rows = [{"id": "walrus", "max_model_len": 32_000}, {"id": "seal"}, {"name": "no id"}]
    with server(200, {"data": rows}) as (url, asked):
        found = listed("vllm", alone(VLLM_BASE_URL=url, VLLM_API_KEY="key-1"), tmp_path)
    assert asked[0]["authorization"] == "Bearer key-1"
    assert [each.id for each in found] == ["vllm/walrus", "vllm/seal"]
    assert found[0].limits == Limits(32_000, None, "server")
    assert found[1].limits is None
    assert price_and_window(found[0].limits, found[0].price) == ("free", "32k")


def test_the_public_list_of_the_messages_api_has_bare_ids(tmp_path: Path) -> None:
    with server(200, {"data": [{"id": "claude-opus-5-5"}]}) as (url, asked):
        environ = {"ANTHROPIC_BASE_URL": url.removesuffix("/v1"), "ANTHROPIC_API_KEY": "key-1"}
        found = listed("anthropic", environ, tmp_path)
    assert asked[0]["authorization"] == "Bearer key-1"
    assert [(each.id, price_and_window(each.limits, each.price)) for each in found] == [
        ("claude-opus-5-5", ("$4/20/0.2", "1M"))
    ]


@pytest.mark.parametrize(("status", "answer"), [(200, {"data": []}), (404, {}), (200, b"no")])
def test_a_server_without_a_list_is_named(tmp_path: Path, status: int, answer: Any) -> None:
    with server(status, answer) as (url, _), pytest.raises(ModelError) as caught:
        listed("vllm", alone(VLLM_BASE_URL=url), tmp_path)
    assert f"vllm does not list its models at {url}" in caught.value.message
    assert "Start it" in caught.value.hint


def test_what_other_providers_list_is_gathered(tmp_path: Path) -> None:
    with (
        server(200, {"data": [{"id": "qwen3"}]}) as (one, _),
        server(200, {"data": [{"id": "gemma"}]}) as (two, _),
    ):
        environ = alone(OLLAMA_BASE_URL=one, LMSTUDIO_BASE_URL=two, ANTHROPIC_API_KEY="key-1")
        found = asyncio.run(models_of_other_providers(Settings(), environ, tmp_path))
    assert sorted(each.id for each in found) == ["lmstudio/gemma", "ollama/qwen3"]


def test_facts_in_words() -> None:
    assert price_and_window(None, None) == ("", "")
    assert price_and_window(None, Price(1, 2, 0.5, 0)) == ("$1/2/0.5", "")


def test_a_hosted_provider_without_a_key_needs_one() -> None:
    found = providers_without_key({"OPENAI_API_KEY": "key-1"})
    assert {"anthropic", "gemini"} <= found
    assert not {"openai", "ollama"} & found
