"""Layers of extensions next to those of the product: order, break-even, words."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.history import acts, describe, savings
from ctxagent.agent.compaction.layers import known
from ctxagent.agent.compaction.layers.apply import LayerRunner
from ctxagent.agent.compaction.layers.clear import ClearResults
from ctxagent.agent.compaction.layers.known import LAYERS, add_layer, layer_named
from ctxagent.agent.compaction.layers.layer import Clear, Layer, LayerState
from ctxagent.agent.compaction.layers.short_outline import OutlineCalls
from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.context.items import ViewResult
from ctxagent.agent.events import Compacted
from ctxagent.agent.loop.compaction_host import CompactionHost
from ctxagent.agent.session.entries import Mask, Revert, User

from ..support.sessions.conversation import Conversation
from .test_apply import answer, masked, read, words

PAYS = replace(DEFAULT, clear_when="pays", clear_keep=1, outline=False)
OFF = replace(DEFAULT, clear_when="off")
CALLS = 200  # after which reading a result has cost more than any rewrite


class Brief(Layer):
    """Replaces every result by one word, when that pays."""

    name = "brief"
    nouns = ("page", "pages")
    done = ("made brief", "made brief")

    def plan(self, state: LayerState) -> Sequence[Clear]:
        return [Clear(result, "brief") for result in state.view.results()[:-1]]

    def need_chance(self, result: ViewResult, age: int) -> float:
        return 0.0


class Likely(Brief):
    """The same, but each result is needed again."""

    def need_chance(self, result: ViewResult, age: int) -> float:
        return 1.0


class Dear(Brief):
    """The same, but each replacement costs much."""

    def price(self, clear: Clear) -> float:
        return 1e9


class Long(Brief):
    """Saves less than a stub, and nothing is needed again."""

    def plan(self, state: LayerState) -> Sequence[Clear]:
        return [Clear(result, words(300)) for result in state.view.results()[:-1]]


class AtOnce(Layer):
    """Replaces every result at once, and says so twice."""

    name = "at-once"

    def plan(self, state: LayerState) -> Sequence[Clear]:
        return [Clear(each, text) for each in state.view.results() for text in ("first", "last")]


@pytest.fixture
def talk(tmp_path: Path) -> Conversation:
    (tmp_path / "project").mkdir()
    found = Conversation(tmp_path / "project")
    found.agent.open()
    found.agent.record(User(content="go"))
    return found


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register `Brief` for one test."""
    monkeypatch.setattr(known, "_known", {**known._known})
    add_layer(Brief)


def runner(talk: Conversation, *kinds: type[Layer], policy: Policy = PAYS) -> LayerRunner:
    made = [kind() for kind in kinds]
    return LayerRunner(CompactionHost(talk.agent), policy, lambda: made)


def masks_of(talk: Conversation, *kinds: type[Layer], policy: Policy = PAYS) -> list[Mask]:
    """The masks after many calls with results that were read."""
    for _ in range(4):
        read(talk, words(900))
        answer(talk)
    found = runner(talk, *kinds, policy=policy)
    for _ in range(CALLS):
        found.clear(talk.agent.model.current_window())
    return talk.of(Mask)


def layers_of(masks: Sequence[Mask]) -> set[str]:
    return {mask.layer for mask in masks}


def test_layers_act_in_their_order(talk: Conversation) -> None:
    class Early(Brief):
        name = "early"
        before = ClearResults.name

    class Late(Brief):
        name = "late"

    names = [layer.name for layer in runner(talk, Late, Early, Brief).layers]
    assert names[:2] == [LAYERS[0].name, "early"]
    place = names.index(OutlineCalls.name)
    assert names[place - 2 : place] == ["late", "brief"]
    assert sorted(names) == sorted(["early", "late", "brief", *(kind.name for kind in LAYERS)])


def test_break_even_chooses_the_mask_that_is_worth_more(talk: Conversation) -> None:
    """Both save about as much, but what the stub leaves out is needed more often."""
    masks = masks_of(talk, Brief)
    assert layers_of(masks) == {"brief"}
    assert masked(talk) == [True, True, True, False]
    assert {target["stub"] for mask in masks for target in mask.targets} == {"brief"}
    assert masks[0].trigger == "it pays"
    assert all(target["need_chance"] == 0 for target in masks[0].targets)
    assert all(target["read_for"] > 0 for target in masks[0].targets)


@pytest.mark.parametrize("kind", [Likely, Dear])
def test_break_even_prefers_a_layer_of_the_product(talk: Conversation, kind: type[Layer]) -> None:
    assert layers_of(masks_of(talk, kind)) == {ClearResults.name}
    assert masked(talk) == [True, True, True, False]


def test_a_layer_without_a_rival_waits_until_it_pays(talk: Conversation) -> None:
    read(talk, words(900))
    answer(talk)
    read(talk, words(20))
    found = runner(talk, Long, policy=replace(PAYS, clear_tools=()))
    found.clear(talk.agent.model.current_window())
    assert talk.of(Mask) == []
    for _ in range(CALLS):
        found.clear(talk.agent.model.current_window())
    assert layers_of(talk.of(Mask)) == {"brief"}
    assert masked(talk) == [True, False]


def test_three_masks_of_one_result_are_parts_of_each_other(talk: Conversation) -> None:
    for _ in range(3):
        read(talk, words(900))
        answer(talk)

    class Other(Long):
        name = "other"

    found = runner(talk, Other, Brief)
    found.clear(talk.agent.model.current_window())
    due = [each for each in found.due if each.parts]
    assert [[each.layer for each in whole.all] for whole in due] == [
        ["brief", ClearResults.name, "other"]
    ] * 2
    for whole in due:
        assert sum(each.saved_alone for each in whole.all) == whole.saved
        assert all(each.saved_alone >= 0 for each in whole.all)


@pytest.mark.parametrize(
    ("when", "clear_from", "layers"),
    [
        ("every-call", None, {"brief"}),
        ("from", 0.0, {"brief"}),
        ("from", 0.9, set()),
        ("off", 0.0, set()),
    ],
)
def test_without_break_even_the_setting_decides(
    talk: Conversation, when: Any, clear_from: float | None, layers: set[str]
) -> None:
    policy = replace(PAYS, clear_when=when, clear_from=clear_from, clear_tools=())
    assert layers_of(masks_of(talk, Brief, policy=policy)) == layers


@pytest.mark.parametrize("policy", [PAYS, OFF])
def test_a_layer_without_a_chance_acts_at_once(talk: Conversation, policy: Policy) -> None:
    read(talk, words(900), "short")
    found = runner(talk, AtOnce, policy=policy)
    found.clear(talk.agent.model.current_window())
    (mask,) = talk.of(Mask)
    assert (mask.layer, mask.trigger) == ("at-once", "a layer of an extension")
    assert [target["stub"] for target in mask.targets] == ["last"], "once, if that is smaller"
    found.clear(talk.agent.model.current_window())
    assert len(talk.of(Mask)) == 1
    talk.agent.record(Revert(target=mask.seq))
    talk.agent.rebuild_view()
    found.clear(talk.agent.model.current_window())
    assert masked(talk) == [False, False], "what was undone stays"


def test_the_words_of_a_layer_are_its_own(talk: Conversation, registered: None) -> None:
    masks = masks_of(talk, Brief)
    assert talk.seen(Compacted)[0].detail == f"{len(masks[0].targets)} pages made brief"
    assert describe(masks[0]) == f"{len(masks[0].targets)} pages made brief (it pays)"
    ((layer, count, saved),) = savings(acts(masks))
    assert (layer, count) == ("brief", len(masks))
    assert saved > 1_500
    assert layer_named(layer).heading() == "made brief"


def test_a_layer_that_is_not_loaded_has_its_name() -> None:
    assert layer_named("later").done_by(2) == "2 results cleared by later"
    assert layer_named("later").heading() == "cleared by later"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"name": ""}, "cannot be the name"),
        ({"name": "Two Words"}, "cannot be the name"),
        ({"name": ClearResults.name}, "it is taken"),
        ({"name": "mine", "before": "nothing"}, "is before 'nothing', not one of"),
    ],
)
def test_a_layer_that_cannot_be_used_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        add_layer(type("Mine", (Layer,), given))
    assert "mine" not in [kind.name for kind in known.known_layers()]


def test_only_layers_are_registered() -> None:
    with pytest.raises(TypeError, match="must be a subclass of Layer"):
        add_layer("mine")
