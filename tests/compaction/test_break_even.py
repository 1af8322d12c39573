"""The account: when an edit of history pays, and from where on. Each figure can be checked by
hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.compaction.layers.break_even import (
    BreakEven,
    DueMask,
    HistoryEdit,
    PromptPrices,
)
from ctxagent.agent.compaction.layers.later_calls import MISS_TOKENS
from ctxagent.agent.compaction.policy import DEFAULT
from ctxagent.agent.context.view import View

from ..support.sessions.history import History, words

READ, WRITE = 0.1, 1.25
REWRITTEN = WRITE - READ
MARGIN = DEFAULT.edit_margin


def priced(read: float = READ, write: float = WRITE, *, is_cold: bool = False) -> PromptPrices:
    """The prices of a model that charges the same for prompts of every size."""
    return PromptPrices(read, write, 100_000, MISS_TOKENS, lambda prompt: 1.0, MARGIN, is_cold)


def session(*sizes: int) -> tuple[History, list[int]]:
    """A session with results of about so many tokens, and their entries."""
    history = History()
    history.say("go")
    return history, [
        history.call("Bash", {"command": f"make {n}"}, words(size)) for n, size in enumerate(sizes)
    ]


def due(seq: int, saved: int, layer: str = "microcompact", chance: float = 0.0) -> DueMask:
    assert layer in ("microcompact", "truncate")
    return DueMask(layer, {"seq": seq, "tool_use_id": f"{layer[0]}{seq}"}, saved, chance)  # type: ignore[arg-type]


def best(
    account: BreakEven, listed: list[DueMask], view: View, prices: PromptPrices | None = None
) -> HistoryEdit:
    edit = account.best_edit(listed, view, prices or priced())
    assert edit is not None
    return edit


def tail(view: View, seq: int) -> int:
    """Tokens from an entry on."""
    place = view.position(seq)
    return sum(item.size for item in view.items[place:])


def test_nothing_is_due() -> None:
    history, _ = session(100)
    assert BreakEven().best_edit([], history.view(), priced()) is None


@pytest.mark.parametrize("write", [WRITE, 1.0])  # 1.0: writing to the cache costs nothing more
def test_it_pays_when_reading_has_cost_what_the_rewrite_costs(write: float) -> None:
    history, (first, _) = session(2_000, 500)
    view, listed, prices = history.view(), [due(first, 1_900)], priced(write=write)
    rewrite = MARGIN * (tail(view, first) - 1_900)
    account, calls = BreakEven(), 0
    while not best(account, listed, view, prices).pays:
        account.charge_reading(listed, prices)
        calls += 1
    assert (calls - 1) * READ * 1_900 < (write - READ) * rewrite <= calls * READ * 1_900
    assert MARGIN * best(account, listed, view).rewritten == rewrite


def test_without_a_cache_only_what_may_be_needed_waits() -> None:
    """All of a prompt is paid in full anyway, so an edit causes no cost, however far back."""
    history, (small, _, first, second) = session(1_100, 50_000, 2_000, 2_000)
    view, plain = history.view(), priced(read=1.0, write=1.0)
    sure, likely = [due(small, 1_000), due(first, 1_900)], due(second, 1_900, chance=0.05)
    account, calls = BreakEven(), 0
    while best(account, [*sure, likely], view, plain).due != (*sure, likely):
        assert best(account, [*sure, likely], view, plain).due == tuple(sure)
        assert best(account, [*sure, likely], view, plain).pays
        account.charge_reading([*sure, likely], plain)
        calls += 1
    assert (calls - 1) * 1_900 < plain.miss(likely) <= calls * 1_900


def test_a_cache_that_is_free_to_read_is_rewritten_only_when_it_has_ended() -> None:
    history, (first, _) = session(2_000, 500)
    view, listed, account = history.view(), [due(first, 1_900)], BreakEven()
    for _ in range(1_000):
        account.charge_reading(listed, priced(read=0.0, write=1.0))
    assert not best(account, listed, view, priced(read=0.0, write=1.0)).pays
    assert best(account, listed, view, priced(read=0.0, write=1.0, is_cold=True)).pays


def test_what_is_cheap_to_read_waits_longer() -> None:
    history, (first, _) = session(2_000, 500)
    view, listed = history.view(), [due(first, 1_900)]

    def calls(read: float) -> int:
        account, count = BreakEven(), 0
        while not best(account, listed, view, priced(read)).pays:
            account.charge_reading(listed, priced(read))
            count += 1
        return count

    assert calls(0.025) >= 3 * calls(0.1)


def test_where_the_cache_has_ended_all_goes_at_once() -> None:
    history, (small, _, large) = session(1_100, 50_000, 2_000)
    listed = [due(small, 1_000), due(large, 1_900)]
    edit = best(BreakEven(), listed, history.view(), priced(is_cold=True))
    assert edit.pays
    assert edit.due == tuple(listed)


def test_what_is_likely_to_be_needed_waits_longer_and_may_stay() -> None:
    """Without a chance of being needed it goes at once where the cache has ended; with one, only
    when reading it has cost as much as the misses."""
    history, (first, second) = session(2_000, 2_000)
    view, sure, likely = history.view(), due(first, 1_900), due(second, 1_900, chance=0.25)
    account, cold = BreakEven(), priced(is_cold=True)
    price = 0.25 * (READ * 100_000 + MISS_TOKENS + WRITE * 1_900)
    assert cold.miss(likely) == price
    assert best(account, [sure, likely], view, cold).due == (sure,)
    calls = 0
    while best(account, [sure, likely], view, cold).due != (sure, likely):
        account.charge_reading([sure, likely], cold)
        calls += 1
    spared = REWRITTEN * 1_900  # it would be written anew
    assert (calls - 1) * READ * 1_900 + spared < price <= calls * READ * 1_900 + spared
    assert BreakEven().best_edit([likely], view, cold) is None


def test_a_small_result_far_back_does_not_have_all_rewritten() -> None:
    history, (small, _, large, _) = session(1_100, 50_000, 20_000, 100)
    listed, account = [due(small, 1_000), due(large, 19_900)], BreakEven()
    account.charge_reading(listed, priced())
    edit = best(account, listed, history.view())
    assert edit.pays
    assert [each.seq for each in edit.due] == [large]
    assert edit.saved == 19_900


def test_what_is_taken_along_costs_no_further_rewrite() -> None:
    """An input before a result that goes has the same rewrite; one after it has none."""
    history, (first, second) = session(20_000, 2_000)
    listed = [due(first, 19_900), due(second, 300, "truncate")]
    account = BreakEven()
    account.charge_reading(listed, priced())
    assert best(account, listed, history.view()).due == tuple(listed)


def test_what_is_due_no_more_is_forgotten() -> None:
    _, (first,) = session(2_000)
    account, listed = BreakEven(), [due(first, 1_900)]
    account.charge_reading(listed, priced())
    account.charge_reading([], priced())
    account.charge_reading(listed, priced())
    assert account.reading_cost == {listed[0].id: READ * 1_900}


def test_a_price_that_rises_with_the_prompt_counts() -> None:
    """10,000 tokens are due of a prompt of 105,000, above 100,000 of which all costs five times as
    much: each call pays 5 x 1,000 to read them, and 4 x 9,500 for the other tokens. An edit that
    leaves the prompt above the step spares only the first."""
    history, (first, second) = session(10_000, 90_000)
    view, listed, account = history.view(), [due(first, 9_900), due(second, 100)], BreakEven()

    def factor(prompt: int) -> float:
        return 5.0 if prompt > 100_000 else 1.0

    prices = PromptPrices(READ, WRITE, 105_000, MISS_TOKENS, factor, MARGIN)
    account.charge_reading(listed, prices)
    assert account.reading_cost == {listed[0].id: 4_950.0, listed[1].id: 50.0}
    assert account.surcharge == 4 * READ * 95_000
    edit = account.best_edit(listed, view, prices)
    assert edit is not None
    assert edit.due == tuple(listed)
    assert edit.gain == 43_000 - REWRITTEN * MARGIN * edit.rewritten
    account.charge_reading(listed[1:], prices)
    assert account.surcharge == 0.0, "clearing that alone spares no surcharge"


def test_what_has_left_the_view_is_no_part_of_an_edit() -> None:
    history, (first,) = session(2_000)
    assert [
        d.seq for d in best(BreakEven(), [due(first, 9), due(99_999, 9)], history.view()).due
    ] == [first]


sizes = st.lists(st.integers(1, 400), min_size=1, max_size=12)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(sizes, st.lists(st.floats(0, 50), min_size=12, max_size=12), st.floats(0, 1.25))
def test_no_other_beginning_gains_more(sizes: list[int], owed: list[float], read: float) -> None:
    history, seqs = session(*sizes)
    view = history.view()
    listed = [due(seq, size) for seq, size in zip(seqs, sizes, strict=True)]
    account = BreakEven({each.id: debt for each, debt in zip(listed, owed, strict=False)})
    edit = best(account, listed, view, priced(read))
    gains = []
    for n in range(len(listed)):
        saved = sum(each.saved for each in listed[n:])
        rewrite = max(0, tail(view, listed[n].seq) - saved)
        gains.append(sum(owed[n : len(listed)]) - MARGIN * (WRITE - read) * rewrite)
    assert abs(edit.gain - max(gains)) < 1e-6
    assert edit.due == tuple(listed[-len(edit.due) :])
