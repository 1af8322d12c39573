"""Windows in the answers of servers."""

import asyncio
from typing import Any

import pytest

from ctxagent.agent.models.gaps import ask_local, find_in_list, parse_limits


@pytest.mark.parametrize(
    ("answers", "window"),
    [
        # Ollama, with the model loaded
        ({"/api/ps": {"models": [{"name": "q:latest", "context_length": 4096}]}}, 4096),
        ({"/api/ps": {"models": [{"name": "other", "context_length": 4096}]}}, None),
        # Ollama, with the model not loaded yet
        ({"/api/show": {"parameters": "stop x\nnum_ctx   8192\n"}}, 8192),
        ({"/api/show": {"model_info": {"llama.context_length": 131072}}}, None),
        # LM Studio: the loaded window, not the largest one
        (
            {
                "/api/v0/models": {
                    "data": [
                        {"id": "q", "max_context_length": 131072, "loaded_context_length": 4096}
                    ]
                }
            },
            4096,
        ),
        ({"/api/v0/models": {"data": [{"id": "q", "max_context_length": 131072}]}}, None),
        # llama.cpp
        ({"/props": {"default_generation_settings": {"n_ctx": 16384}}}, 16384),
        ({"/props": {"default_generation_settings": None}, "/api/ps": [], "/api/show": 3}, None),
        ({}, None),
    ],
)
def test_local_servers_are_asked_by_their_own_interfaces(
    answers: dict[str, Any], window: int | None
) -> None:
    async def get(path: str) -> object:
        return answers.get(path)

    async def post(path: str, body: dict[str, Any]) -> object:
        assert body == {"model": "q"}
        return answers.get(path)

    found = asyncio.run(ask_local(get, post, "q"))
    assert (found.window if found else None) == window


def test_the_window_of_vllm_is_in_the_list_of_models() -> None:
    listed = {"data": [{"id": "a", "max_model_len": 24_000}, {"id": "b"}]}
    found = parse_limits(find_in_list(listed, "a"))
    assert found is not None
    assert found.window == 24_000
    assert parse_limits(find_in_list(listed, "b")) is None
