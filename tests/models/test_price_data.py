"""Prices of models that are not in the table. The numbers are from a list made for this test."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot
from genai_prices.types import (
    ClauseEquals,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    Provider,
    StartDateConstraint,
    Tier,
    TieredPrices,
)

from ctxagent.agent.models import catalog
from ctxagent.agent.models.catalog import (
    CacheTerms,
    Limits,
    Price,
    cache_terms,
    cost,
    known_limits,
    known_model,
    price_factor,
)
from ctxagent.agent.models.providers import providers
from ctxagent.agent.session.entries import Usage


def dollars(**prices: Any) -> ModelPrice:
    return ModelPrice(**{f"{k}_mtok": v if isinstance(v, TieredPrices) else Decimal(str(v))
                         for k, v in prices.items()})  # fmt: skip


def tiers(base: float, **above: float) -> TieredPrices:
    """Return prices by the prompt's size, given as `k200=4`."""
    found = [Tier(int(name[1:]) * 1_000, Decimal(str(price))) for name, price in above.items()]
    return TieredPrices(Decimal(str(base)), found)


def model(
    id: str, prices: ModelPrice | list[ConditionalPrice], window: int | None = None
) -> ModelInfo:
    return ModelInfo(id, ClauseEquals(id), context_window=window, prices=prices)


MILLION_EACH = Usage(input=1_000_000, output=1_000_000, cache_read=1_000_000)
DAY = date(2026, 3, 1)
LISTED = {
    "openai": [
        model("walrus", dollars(input=2, output=8, cache_read=0.5), 400_000),
        model("writes", dollars(input=2, output=8, cache_read=0.5, cache_write=2.5)),
        model("on-top", dollars(input=2, output=8, cache_read=3, cache_write=0.1)),
        model("no-cache-price", dollars(input=2, output=8)),
        model("dated", [ConditionalPrice(prices=dollars(input=4, output=4)),
                        ConditionalPrice(StartDateConstraint(DAY), prices=dollars(input=1))]),
    ],
    "google": [
        model("tiered", dollars(input=tiers(2, k200=4, k500=6), output=tiers(12, k200=18),
                                cache_read=tiers(0.2, k200=0.4))),
    ],
    "openrouter": [model("a/b", dollars(input=1, output=1)), model("a/b:free", ModelPrice())],
    "anthropic": [model("claude-walrus", dollars(input=1, output=5))],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _listed() -> Iterator[None]:
    found = [Provider(id, id, id, models=models) for id, models in LISTED.items()]
    catalog._find.cache_clear()
    set_custom_snapshot(DataSnapshot(found, from_auto_update=False))
    yield
    set_custom_snapshot(None)
    catalog._find.cache_clear()


def test_prices_and_the_window_are_those_of_the_provider() -> None:
    assert cost("openai/walrus", MILLION_EACH) == 2 + 8 + 0.5
    assert known_limits("openai/walrus") == Limits(400_000, None, "table")
    assert known_limits("openai/writes") is None  # ask the server
    assert known_model("openrouter/walrus") is None
    assert known_model("walrus") is None  # unknown model of the default provider
    assert cost("claude-walrus", Usage(1_000_000)) == 1


def test_the_terms_of_a_cache_are_those_of_its_prices() -> None:
    assert cache_terms("openai/walrus") == CacheTerms(0.25, 1.0, 300)
    assert cache_terms("openai/writes") == CacheTerms(0.25, 1.25, 300)
    assert cache_terms("openai/no-cache-price") == CacheTerms(0.1, 1.0, 300)  # of the provider
    assert cache_terms("openai/unheard-of") == cache_terms("openai/no-cache-price")


def test_reading_costs_no_more_than_input_and_writing_no_less() -> None:
    assert cache_terms("openai/on-top") == CacheTerms(1.0, 1.0, 300)


def test_longer_prompts_have_prices_of_their_own() -> None:
    row = known_model("gemini/tiered")
    assert row is not None
    assert row.price.at(200_000) is row.price
    assert row.price.at(200_001) == Price(4, 18, 0.4, 4)
    assert row.price.at(500_001) == Price(6, 18, 0.4, 6)
    assert [price_factor("gemini/tiered", size) for size in (0, 200_001, 900_000)] == [1, 2, 3]
    usage = Usage(input=100_000, output=1_000_000, cache_read=200_000)
    assert cost("gemini/tiered", usage) == pytest.approx(0.4 + 18 + 0.08)


def test_a_variant_without_prices_of_its_own_has_those_of_the_model() -> None:
    assert cost("openrouter/a/b:nitro", Usage(1_000_000)) == 1
    assert cost("openrouter/a/b:free", Usage(1_000_000)) == 0
    assert cost("gemini/models/tiered", Usage(1_000)) is not None


def test_prices_are_those_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.combine(DAY, time(), UTC)

    class Clock:
        @staticmethod
        def now(zone: Any) -> datetime:
            return now

    monkeypatch.setattr(catalog, "datetime", Clock)
    assert cost("openai/dated", Usage(1_000_000)) == 1
    now = now.replace(year=2025)
    assert cost("openai/dated", Usage(1_000_000)) == 4


def test_the_package_knows_every_provider_that_names_it() -> None:
    from genai_prices.data import providers as listed

    known = {provider.id for provider in listed} | {"litellm"}
    assert {p.prices for p in providers().values() if p.prices} <= known


def test_nothing_is_imported_for_a_model_of_the_table() -> None:
    code = (
        "import sys; from ctxagent.agent.models.catalog import cache_terms, known_model;"
        "[(known_model(id), cache_terms(id)) for id in"
        " ('claude-haiku-5-5', 'unheard-of', 'scripted', 'ollama/qwen3')];"
        "assert not [name for name in sys.modules if name.startswith('genai_prices')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
