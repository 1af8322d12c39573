"""Short names of models, and the notice about unknown ones."""

import pytest

from ctxagent.agent.models.factory import full_model_id, unknown_model_notice


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("haiku", "claude-haiku-5-5"),
        ("Opus", "claude-opus-5-5"),
        ("sonnet", "claude-sonnet-5-5"),
        ("sonnet-4-6", "claude-sonnet-4-6"),
        ("gpt-5", "openai/gpt-5"),
        ("claude-opus-4-8", "claude-opus-4-8"),
        ("claude-opus-9", "claude-opus-9"),
        ("openai/gpt-5", "openai/gpt-5"),
        ("scripted:steps.json", "scripted:steps.json"),
        ("own:model", "own:model"),
        ("5", "5"),
        ("walrus", "walrus"),
    ],
)
def test_a_short_name_becomes_an_id(name: str, id: str) -> None:
    assert full_model_id(name, None, {}) == id


@pytest.mark.parametrize(
    ("base_url", "environ"),
    [("http://localhost:1", {}), (None, {"ANTHROPIC_BASE_URL": "http://localhost:1"})],
)
def test_only_families_are_short_names_on_the_users_own_server(
    base_url: str | None, environ: dict[str, str]
) -> None:
    assert full_model_id("gpt-5", base_url, environ) == "gpt-5"
    assert full_model_id("haiku", base_url, environ) == "claude-haiku-5-5"
    assert unknown_model_notice("walrus", base_url, environ) == ""


@pytest.mark.parametrize(
    ("id", "near"),
    [
        ("claude-sonet-5-5", "claude-sonnet-5-5"),
        ("anthropic/claude-sonet-5-5", "claude-sonnet-5-5"),
        ("haikuu", "haiku"),
        ("openai/gpt5", "openai/gpt-5"),
        ("walrus", ""),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest_one(id: str, near: str) -> None:
    notice = unknown_model_notice(id, None, {})
    assert f"{id.removeprefix('anthropic/')} is not a known model" in notice
    assert (f"did you mean {near}?" in notice) is bool(near)


@pytest.mark.parametrize(
    "id",
    ["claude-sonnet-5-5", "claude-sonnet-5-5-20261101", "openai/gpt-5", "ollama/any", "own:model",
     "openrouter/zzz/unheard-of", "scripted:a", "noprovider/model"],
)  # fmt: skip
def test_other_names_have_no_notice(id: str) -> None:
    assert unknown_model_notice(id, None, {}) == ""
