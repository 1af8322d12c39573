"""Known models: prices, limits and cache terms, from the table and other sources."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxagent.agent.errors import ConfigError, UsageError
from ctxagent.agent.models.catalog import (
    CacheTerms,
    Limits,
    add_models,
    cache_terms,
    check_price,
    cost,
    known_limits,
    known_model,
    known_models,
    model_of_family,
    price_factor,
    scripted_id,
)
from ctxagent.agent.session.entries import Usage

ROW = "window = 32_000\noutput = 4_000\ninput_price = {}\noutput_price = 0\n"
MILLION = Usage(input=1_000_000)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """A user's models file, removed from the catalog after the test."""
    path = tmp_path / "models.toml"
    yield path
    path.write_text("")
    add_models(path)


def test_a_cache_lives_as_long_as_the_table_says(own: Path) -> None:
    assert cache_terms("claude-sonnet-5-5").life == cache_terms("unheard-of").life == 300
    own.write_text(f"[walrus]\n{ROW.format(1)}cache_life = 1_800\n")
    add_models(own)
    assert cache_terms("walrus").life == cache_terms(scripted_id("walrus")).life == 1800
    for wrong in ("0", "-1", '"5m"', "true"):
        own.write_text(f"[walrus]\n{ROW.format(1)}cache_life = {wrong}\n")
        with pytest.raises(ConfigError, match="is not a number of seconds"):
            add_models(own)


def test_a_free_model_has_the_terms_of_its_provider(own: Path) -> None:
    own.write_text(f"[walrus]\n{ROW.format(0)}['groq/walrus']\n{ROW.format(0)}")
    add_models(own)
    assert cache_terms("walrus") == cache_terms("unheard-of") == CacheTerms(0.1, 1.25, 300)
    assert cache_terms("groq/walrus") == CacheTerms(1.0, 1.0, 300)


def test_cache_writes_can_have_their_own_price(own: Path) -> None:
    own.write_text(f"[walrus]\n{ROW.format(2)}cache_write_price = 2\ncache_read_price = 0.5\n")
    add_models(own)
    assert cache_terms("walrus") == CacheTerms(read=0.25, write=1.0, life=300)
    assert cost("walrus", Usage(cache_creation=1_000_000)) == 2.0
    own.write_text(f"[walrus]\n{ROW.format(2)}")
    add_models(own)
    assert cost("walrus", Usage(cache_creation=1_000_000)) == 2.5


def test_a_cache_write_costs_at_least_as_much_as_input(own: Path) -> None:
    own.write_text(f"[walrus]\n{ROW.format(2)}cache_write_price = 0\ncache_read_price = 3\n")
    add_models(own)
    assert cache_terms("walrus") == CacheTerms(read=1.0, write=1.0, life=300)


def test_a_row_without_cache_prices_has_the_shares_of_its_provider(own: Path) -> None:
    own.write_text(f"['openai/walrus']\n{ROW.format(2)}")
    add_models(own)
    assert cost("openai/walrus", Usage(cache_creation=1_000_000)) == 2.0
    assert cache_terms("openai/walrus") == CacheTerms(read=0.1, write=1.0, life=300)


def test_the_users_row_wins_over_the_price_data(own: Path) -> None:
    own.write_text(f"['openai/gpt-5.5']\n{ROW.format(7)}['anthropic/walrus']\n{ROW.format(3)}")
    add_models(own)
    assert cost("openai/gpt-5.5", MILLION) == 7
    assert known_limits("openai/gpt-5.5") == Limits(32_000, 4_000, "table")
    assert cost("walrus", MILLION) == cost("anthropic/walrus", MILLION) == 3
    assert "walrus" in known_models()


def test_a_longer_prompt_can_cost_more(own: Path) -> None:
    own.write_text(f"[walrus]\n{ROW.format(1)}surcharge_above = 1_000\nsurcharge_factor = 3\n")
    add_models(own)
    assert (price_factor("walrus", 1_000), price_factor("walrus", 1_001)) == (1, 3)
    assert cost("walrus", MILLION) == 3


def test_a_date_at_the_end_of_an_id_changes_nothing() -> None:
    assert known_model("claude-haiku-4-5-20251001") == known_model("claude-haiku-4-5") is not None


def test_a_model_on_this_machine_is_free_and_its_server_is_asked_for_its_window() -> None:
    assert cost("ollama/qwen3:8b", MILLION) == 0.0
    assert known_limits("ollama/qwen3:8b") is None
    assert price_factor("ollama/qwen3:8b", 1_000_000) == 1.0
    check_price("ollama/qwen3:8b")


def test_a_budget_needs_a_price() -> None:
    check_price("openai/gpt-5.5")
    for unknown in ("unheard-of", "openai/unheard-of", "scripted"):
        with pytest.raises(UsageError, match="a budget in dollars cannot be enforced"):
            check_price(unknown)
        assert cost(unknown, MILLION) is None


@pytest.mark.parametrize(
    ("own", "haiku"),
    [
        ("claude-sonnet-5-5", "claude-haiku-5-5"),
        ("scripted", "scripted"),
        ("ollama/qwen3", "ollama/qwen3"),
        ("vertex/claude-sonnet-5", "vertex/claude-sonnet-5"),
    ],
)
def test_a_family_is_asked_only_where_the_session_has_its_provider(own: str, haiku: str) -> None:
    assert model_of_family("haiku", own) == haiku
    assert model_of_family("claude-haiku-4-5", own) == "claude-haiku-4-5"
    assert model_of_family("openai/walrus", own) == "openai/walrus"
