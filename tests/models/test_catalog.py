"""What is known of models: how long a cache lives, and what a free model's cache costs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxagent.agent.errors import ConfigError
from ctxagent.agent.models.catalog import (
    CACHE_LIFE_S,
    CacheTerms,
    add_models,
    cache_terms,
    cost,
    scripted_id,
)
from ctxagent.agent.session.entries import Usage

ROW = "window = 32_000\noutput = 4_000\ninput_price = {}\noutput_price = 0\n"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """A person's file, which counts for nothing afterwards."""
    path = tmp_path / "models.toml"
    yield path
    path.write_text("")
    add_models(path)


def test_a_cache_lives_as_long_as_the_table_says(own: Path) -> None:
    assert cache_terms("claude-sonnet-5-5").life == cache_terms("unheard-of").life == CACHE_LIFE_S
    own.write_text(f"[walrus]\n{ROW.format(1)}cache_life = 1_800\n")
    add_models(own)
    assert cache_terms("walrus").life == cache_terms(scripted_id("walrus")).life == 1800
    for wrong in ("0", "-1", '"5m"', "true"):
        own.write_text(f"[walrus]\n{ROW.format(1)}cache_life = {wrong}\n")
        with pytest.raises(ConfigError, match="is no number of seconds"):
            add_models(own)


def test_a_free_model_has_the_relations_of_most(own: Path) -> None:
    own.write_text(f"[walrus]\n{ROW.format(0)}")
    add_models(own)
    assert cache_terms("walrus") == cache_terms("unheard-of")


def test_writing_to_the_cache_has_a_price_of_its_own(own: Path) -> None:
    own.write_text(f"[walrus]\n{ROW.format(2)}cache_write_price = 2\ncache_read_price = 0.5\n")
    add_models(own)
    assert cache_terms("walrus") == CacheTerms(read=0.25, write=1.0)
    assert cost("walrus", Usage(cache_creation=1_000_000)) == 2.0
    own.write_text(f"[walrus]\n{ROW.format(2)}")
    add_models(own)
    assert cost("walrus", Usage(cache_creation=1_000_000)) == 2.5
