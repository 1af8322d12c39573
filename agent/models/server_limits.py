"""Read a model's context window from a server's answer; servers use different field names.

Servers on the user's machine have interfaces of their own, which tell the window of the loaded
model. The window in a list of models may be the largest possible one.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any

from ..lazy import regex
from .catalog import Limits

# In order: the API and gateways, vLLM, OpenRouter, others, llama.cpp (in `meta`).
_WINDOW_FIELDS = ("max_input_tokens", "max_model_len", "context_length", "context_window", "n_ctx")
_NUM_CTX = regex(r"^num_ctx\s+(\d{3,9})", re.M)


def parse_limits(model: object) -> Limits | None:
    """Return the limits in a server's description of a model, None if it has none."""
    described = model if isinstance(model, dict) else {}
    meta = described.get("meta")
    fields: dict[str, Any] = {**(meta if isinstance(meta, dict) else {}), **described}
    window = next(filter(None, (_tokens(fields.get(name)) for name in _WINDOW_FIELDS)), 0)
    output = _tokens(fields.get("max_tokens")) or None
    return Limits(window, output, "server") if window else None


async def ask_local(
    get: Callable[[str], Awaitable[object]],
    post: Callable[[str, dict[str, Any]], Awaitable[object]],
    name: str,
) -> Limits | None:
    """Return the limits of a model from the own interfaces of Ollama, LM Studio and llama.cpp.
    `get` and `post` return the JSON answer for a path, None on failure.
    """
    running = _named(_rows(await get("/api/ps"), "models"), name)
    window = _tokens(running.get("context_length"))
    if not window:
        loaded = _named(_rows(await get("/api/v0/models"), "data"), name)
        window = _tokens(loaded.get("loaded_context_length"))
    if not window:
        settings = _dict(_dict(await get("/props")).get("default_generation_settings"))
        window = _tokens(settings.get("n_ctx"))
    if not window:
        shown = _dict(await post("/api/show", {"model": name}))
        found = _NUM_CTX.search(str(shown.get("parameters", "")))
        window = int(found[1]) if found else 0
    return Limits(window, None, "server") if window else None


def _named(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the row of a model. Ollama adds `:latest` to a name without a tag."""
    names = (name, f"{name}:latest")
    keys = ("id", "name", "model")
    return next((row for row in rows if any(row.get(key) in names for key in keys)), {})


def _rows(answer: object, field: str) -> list[dict[str, Any]]:
    rows = _dict(answer).get(field)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def listed_models(answer: object) -> list[dict[str, Any]]:
    """Return the entries in a server's list of models."""
    return _rows(answer, "data")


def find_in_list(answer: object, id: str) -> object:
    """Return a model's entry in a list of models, None if it is missing. A list with a single model
    matches any name.
    """
    models = listed_models(answer)
    named = next((row for row in models if row.get("id") == id), None)
    return models[0] if named is None and len(models) == 1 else named


def _tokens(value: object) -> int:
    return value if type(value) is int and value > 0 else 0
