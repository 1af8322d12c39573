"""The simulated prompt cache that prices requests; you can check every number manually."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxagent.addons.replay.cache_prices import CacheBill, PromptCache
from ctxagent.agent.models.catalog import CacheTerms, cache_terms

TERMS = cache_terms("claude-sonnet-5")
MARK = {"cache_control": {"type": "ephemeral"}}


def words(count: int, word: str = "a") -> dict[str, Any]:
    """Return a block of `count` tokens."""
    return {"type": "text", "text": f"{word} " * count}


def marked(count: int, word: str = "a") -> dict[str, Any]:
    return {**words(count, word), **MARK}


def body(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": list(blocks)}], **more}


def price_requests(bodies: Iterable[dict[str, Any]]) -> CacheBill:
    """Return the bill of several request bodies, sent one after another."""
    cache = PromptCache(TERMS.life)
    return sum(map(cache.charge, bodies), CacheBill())


def test_without_breakpoints_all_tokens_are_plain() -> None:
    assert price_requests([body(words(100)), body(words(100))]) == CacheBill(plain=200)


def test_nothing_costs_nothing() -> None:
    assert price_requests([]) == CacheBill()


def test_blocks_after_the_last_breakpoint_are_plain() -> None:
    assert price_requests([body(words(30), marked(20), words(7))]) == CacheBill(written=50, plain=7)


def test_a_prefix_that_grows_is_read() -> None:
    first = body(words(100), marked(20))
    second = body(words(100), words(20), marked(5))
    third = body(words(100), words(20), words(5), marked(1))
    assert price_requests([first, second, third]) == CacheBill(written=126, read=120 + 125)


def test_a_repeated_request_is_read_completely() -> None:
    assert price_requests([body(marked(9), words(1))] * 3) == CacheBill(written=9, read=18, plain=3)


def test_a_pause_lasts_from_the_last_use() -> None:
    cache = PromptCache(300.0)
    assert (cache.pause(1_000.0), cache.is_cold(1_000.0)) == (0.0, True), "it was never used"
    cache.charge(body(marked(2_000)), 1_000.0)
    assert (cache.pause(None), cache.pause(1_300.0), cache.pause(1_301.0)) == (0.0, 300.0, 301.0)
    assert [cache.is_cold(at) for at in (None, 1_300.0, 1_301.0)] == [False, False, True]


def test_the_price() -> None:
    bill = CacheBill(written=100, read=1_000, plain=7, misses=3)
    assert bill.relative(TERMS) == pytest.approx(232)
    assert bill.relative(CacheTerms(1.0, 1.0, 300.0)) == bill.prompt  # without a cache


def test_a_change_in_the_middle_is_written_again_from_the_breakpoint_before_it() -> None:
    before = body(marked(100), words(50), marked(20))
    after = body(marked(100), words(50, "b"), marked(20))
    assert price_requests([before, after]) == CacheBill(written=170 + 70, read=100, misses=1)


def test_a_change_without_a_breakpoint_before_it_reads_nothing() -> None:
    before = body(words(100), words(50), marked(20))
    after = body(words(100), words(50, "b"), marked(20))
    assert price_requests([before, after]) == CacheBill(written=340, misses=1)


def test_an_older_stored_prefix_is_found() -> None:
    one, other = body(marked(10)), body(marked(10, "b"))
    assert price_requests([one, other, one]) == CacheBill(written=20, read=10, misses=1)


@pytest.mark.parametrize(("added", "read", "misses"), [(19, 100, 0), (20, 0, 1)])
def test_it_looks_back_twenty_blocks(added: int, read: int, misses: int) -> None:
    more = [words(1)] * (added - 1)
    second = body(words(100), *more, marked(1))
    bill = price_requests([body(marked(100)), second])
    assert bill == CacheBill(100 + 100 + added - read, read, 0, misses)


def test_any_breakpoint_looks_back() -> None:
    between = [words(1)] * 19
    second = body(words(100), *between[1:], marked(1), *between, marked(1))
    assert price_requests([body(marked(100)), second]) == CacheBill(written=100 + 39, read=100)


def test_the_prefix_is_tools_then_system_then_messages() -> None:
    tools = [{"name": "Bash", "description": "a " * 40, "input_schema": {}}]
    first = body(marked(3), tools=tools, system=[marked(30)])
    (schema,) = [b.written - 33 for b in [price_requests([first])]]
    assert schema > 40
    changed = {**first, "system": [marked(30, "b")]}
    assert price_requests([first, changed]) == CacheBill(written=2 * (schema + 33), misses=1)
    other = body(marked(5, "b"), tools=tools, system=[marked(30)])
    assert price_requests([first, other]) == CacheBill(schema + 38, schema + 30, 0, 1)
    ordered = body(marked(3), tools=[{**tools[0], **MARK}], system=[words(30)])
    renewed = {**ordered, "system": [words(30, "b")]}
    assert price_requests([ordered, renewed]).read == schema


def test_a_string_equals_one_text_block() -> None:
    spoken = {"model": "m", "system": "a " * 5, "messages": [{"role": "user", "content": "a a"}]}
    assert price_requests([spoken]) == CacheBill(plain=7)


def test_prefixes_differ_by_model_and_role() -> None:
    first = body(marked(10))
    assert price_requests([first, {**first, "model": "n"}]).read == 0
    said = {"model": "m", "messages": [{"role": "assistant", "content": [marked(10)]}]}
    assert price_requests([first, said]).read == 0
    apart = [{"role": "user", "content": [words(10)]}, {"role": "user", "content": [marked(1)]}]
    together = [{"role": "user", "content": [words(10), marked(1)]}]
    assert price_requests([{"model": "m", "messages": m} for m in (apart, together)]).read == 0


def test_cache_marks_are_not_part_of_the_prefix() -> None:
    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    assert price_requests([body(marked(10)), body({**words(10), **hour})]) == CacheBill(
        written=10, read=10
    )


BLOCKS = st.builds(
    lambda count, word, mark: marked(count, word) if mark else words(count, word),
    st.integers(1, 5), st.sampled_from("ab"), st.booleans(),
)  # fmt: skip
BODIES = st.lists(st.lists(BLOCKS, min_size=1, max_size=6).map(lambda b: body(*b)), max_size=6)


@pytest.mark.slow
@given(BODIES)
def test_every_token_is_charged_once_and_the_order_of_counting_does_not_matter(
    bodies: list[dict[str, Any]],
) -> None:
    cache = PromptCache(TERMS.life)
    bills = [cache.charge(b) for b in bodies]
    assert sum(bills, CacheBill()) == price_requests(bodies)
    for bill, request in zip(bills, bodies, strict=True):
        (message,) = request["messages"]
        size = sum(len(block["text"]) // 2 for block in message["content"])
        assert bill.written + bill.read + bill.plain == size
        assert min(bill.written, bill.read, bill.plain) >= 0
    again = [cache.charge(b) for b in bodies]
    assert sum(b.written for b in again) == 0
