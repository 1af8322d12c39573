"""The cost accounts behind the engine's decisions, before each call of a replay. They are recorded
from the real planners: their inputs and their answers.
"""

import asyncio
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ctxagent.addons.replay.player import Player, Terms
from ctxagent.addons.replay.results import ReplayRun
from ctxagent.agent.compaction.layers.break_even import (
    BreakEven,
    DueMask,
    HistoryEdit,
    PromptPrices,
)
from ctxagent.agent.compaction.summary.background import SummaryAccount, SummaryCost
from ctxagent.agent.context.request import Request
from ctxagent.agent.context.view import View
from ctxagent.agent.recordings.recording import Recording


@dataclass(frozen=True, slots=True)
class EditAccount:
    """The account of an edit before a call: the reading cost so far of the texts to clear, and the
    price of the edit.
    """

    number: int  # of the call
    reading: float
    rewrite: float
    misses: float


@dataclass(frozen=True, slots=True)
class SummaryState:
    """The account of a summary before a call: reading cost so far, and price of a summary."""

    number: int  # of the call
    reading: float
    price: float


@dataclass(frozen=True, slots=True)
class _Text:
    """A text that could be cleared: its reading cost, and the parts of the price of an edit."""

    reading: float
    miss: float
    saved: int
    behind: int  # tokens from its entry to the end of the context


@dataclass(frozen=True, slots=True)
class _Choice:
    """The planner's input and choice before a call."""

    texts: Mapping[str, _Text]
    rewrite_price: float
    edit: HistoryEdit | None


@dataclass
class NotingPlayer(Player):
    """Player that records the accounts before each call."""

    choices: dict[int, _Choice] = field(default_factory=dict)
    summaries: list[SummaryState] = field(default_factory=list)

    # Answers of the planners since the last request.
    _choice: _Choice | None = None
    _summary: tuple[float, float] | None = None

    def request(self) -> Request:
        number = len(self._priced) + 1
        if self._choice is not None:
            self.choices[number], self._choice = self._choice, None
        if self._summary is not None:
            self.summaries.append(SummaryState(number, *self._summary))
            self._summary = None
        return super().request()

    @contextmanager
    def noting(self) -> Iterator[None]:
        best_edit, pays = BreakEven.best_edit, SummaryAccount.pays

        def noted_edit(
            account: BreakEven, due: Sequence[DueMask], view: View, prices: PromptPrices
        ) -> HistoryEdit | None:
            edit = best_edit(account, due, view, prices)
            every = [each for whole in due for each in (whole, *whole.parts)]
            texts = {each.id: _text(account, each, view, prices) for each in every}
            self._choice = _Choice(texts, prices.margin * prices.rewrite, edit)
            return edit

        def noted_summary(account: SummaryAccount, cost: SummaryCost) -> bool:
            self._summary = account.spent, cost.price
            return pays(account, cost)

        changed: tuple[tuple[type, str, Any], ...] = (
            (BreakEven, "best_edit", noted_edit),
            (SummaryAccount, "pays", noted_summary),
        )
        with patch.object(*changed[0]), patch.object(*changed[1]):
            yield


def _text(account: BreakEven, due: DueMask, view: View, prices: PromptPrices) -> _Text:
    behind = sum(item.size for item in view.items[view.position(due.seq) :])
    reading = sum(account.reading_cost[id] for id in due.ids)
    return _Text(reading, prices.miss(due), due.saved, view.scaled(behind))


def noted(recording: Recording, terms: Terms) -> tuple[NotingPlayer, ReplayRun]:
    """Play a recording under the terms; return the player and the run."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        player = NotingPlayer(recording, terms, Path("replay"))
        with player.noting():
            return player, asyncio.run(player.run())


def first_that_pays(player: NotingPlayer) -> tuple[HistoryEdit, list[EditAccount]]:
    """Return the first edit made because it pays, and its account at each call until then, limited
    to its texts that could be cleared at that call.
    """
    number, edit = next(
        (number, choice.edit)
        for number, choice in player.choices.items()
        if choice.edit and choice.edit.pays
    )
    accounts = []
    for at, choice in player.choices.items():
        there = choice.texts
        ids = [
            id
            for each in edit.due
            for id in ([each.id] if each.id in there else [part.id for part in each.parts])
        ]
        texts = [there[id] for id in ids if id in there]
        if texts and at <= number:
            rewritten = max(text.behind for text in texts) - sum(text.saved for text in texts)
            accounts.append(
                EditAccount(
                    at,
                    sum(text.reading for text in texts),
                    choice.rewrite_price * max(0, rewritten),
                    sum(text.miss for text in texts),
                )
            )
    last = accounts[-1]
    assert math.isclose(last.reading - last.rewrite - last.misses, edit.gain)
    return edit, accounts
