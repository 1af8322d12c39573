"""Read a model's context window from a server's answer; servers use different field names."""

from typing import Any

from .catalog import Limits

# In order: the API and gateways, vLLM, OpenRouter, others, llama.cpp (in `meta`).
_WINDOW_FIELDS = ("max_input_tokens", "max_model_len", "context_length", "context_window", "n_ctx")


def parse_limits(model: object) -> Limits | None:
    """Return the limits in a server's description of a model, None if it has none."""
    described = model if isinstance(model, dict) else {}
    meta = described.get("meta")
    fields: dict[str, Any] = {**(meta if isinstance(meta, dict) else {}), **described}
    window = next(filter(None, (_tokens(fields.get(name)) for name in _WINDOW_FIELDS)), 0)
    output = _tokens(fields.get("max_tokens")) or None
    return Limits(window, output, "server") if window else None


def listed_models(answer: object) -> list[dict[str, Any]]:
    """Return the entries in a server's list of models."""
    rows = answer.get("data") if isinstance(answer, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def find_in_list(answer: object, id: str) -> object:
    """Return a model's entry in a list of models, None if it is missing. A list with a single model
    matches any name.
    """
    models = listed_models(answer)
    named = next((row for row in models if row.get("id") == id), None)
    return models[0] if named is None and len(models) == 1 else named


def _tokens(value: object) -> int:
    return value if type(value) is int and value > 0 else 0
