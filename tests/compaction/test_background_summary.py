"""What a summary is held against, read while it is written: nothing is left to read when it is
applied, and what is found is what would have been found."""

from ctxagent.agent.compaction import drift, verify
from ctxagent.agent.compaction.document import SummaryDocument
from ctxagent.agent.compaction.language import evidence, words
from ctxagent.agent.context.view import View
from ctxagent.agent.session.entries import Assistant, User
from ctxagent.agent.session.ledger import Ledger

KEPT = (evidence._found, evidence._named, words._terms)


def test_nothing_is_left_to_read_after_reading_ahead() -> None:
    view, ledger = View(), Ledger()
    for n in range(1, 41, 2):
        said = f"Never touch config{n}.toml, and keep `load_{n}` as it is. Look at case {n}."
        reply = [{"type": "text", "text": f"We decided to use store {n} because it is small."}]
        for entry in (
            User(seq=n, content=said),
            Assistant(seq=n + 1, content=reply, usage={}, stop_reason="end_turn", model="m"),
        ):
            view.add(entry)
            ledger.add(entry)
    for kept in KEPT:
        kept.cache_clear()
    fresh = verify.choose_probes(view.items, ledger, None, 8_000)
    for kept in KEPT:
        kept.cache_clear()
    verify.prepare_reading(view.items, ledger)()
    drift.prepare_reading(ledger)()
    read = [kept.cache_info().misses for kept in KEPT]
    assert all(read)
    assert verify.choose_probes(view.items, ledger, None, 8_000) == fresh
    assert any("config" in probe.fact for probe in fresh)
    drift.DriftDetector(SummaryDocument(), ledger)
    found, named, terms = KEPT
    plans = 5  # of the newest texts, which are not read ahead: they change until it is applied
    assert found.cache_info().misses <= read[0] + plans
    assert named.cache_info().misses == read[1]
    assert terms.cache_info().hits >= read[2]
