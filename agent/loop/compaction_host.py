"""The interface of the agent for the compaction engine: its state and its actions."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...tools.offered import Offered
from ..compaction import checkpoint
from ..compaction.edits import ContextEditor
from ..compaction.engine import CompactionEngine
from ..compaction.host import CompactionPurpose
from ..compaction.layers import truncate
from ..compaction.preserve import PreservedSection, preserved_sections
from ..context.request import Request
from ..context.view import View
from ..errors import ModelError, PromptTooLong
from ..events import Emit
from ..models.base import Reply
from ..models.catalog import CacheTerms, cost, price_factor
from ..models.refusals import may_be_cause
from ..session.entries import Checkpoint, Usage, User
from ..session.store import content_text, find_texts
from .agent import AgentState
from .interface import Veto
from .ladder import SAME_FAILURES
from .repeated_text import MIN_RECORD_CHARS, RepeatedReply


def attach_engine(agent: AgentState) -> AgentState:
    """Give an agent its compaction engine and its context editor, and return the agent."""
    host, policy = CompactionHost(agent), agent.policy
    agent.engine = CompactionEngine(host, policy, agent.features.layers)
    agent.edits = ContextEditor(agent.engine, agent.log.entries)
    return agent


class CompactionHost:
    """An agent as a `compaction.host.EngineHost`, where each member is documented."""

    def __init__(self, agent: AgentState) -> None:
        self._agent, model, features = agent, agent.model, agent.features
        self.ledger, self.folder = agent.ledger, agent.folder
        self.record, self.rebuild_view = agent.record, agent.rebuild_view
        self.record_model, self.warn_once = agent.record_model, agent.warn_once
        self.sync, self.recall = agent.log.sync_all, partial(find_texts, agent.log.path)
        self.current_window, self.token_seconds = model.current_window, model.token_seconds
        self.takes_images, self.has_compaction = model.takes_images, model.has_compaction
        self.reinserted, self.after_summary = features.reinserted, features.after_summary
        self.file_sha256 = truncate.file_sha256

    @property
    def view(self) -> View:
        return self._agent.view

    @property
    def effort(self) -> str | None:
        return self._agent.model.effort

    @property
    def emit(self) -> Emit:
        return self._agent.emit

    @property
    def offered(self) -> Offered:
        return self._agent.context.offered

    @property
    def model_id(self) -> str:
        return self._agent.model.id

    def cache_terms(self) -> CacheTerms:
        return self._agent.model.client.abilities.cache

    def price_factor(self, prompt: int) -> float:
        return price_factor(self.model_id, prompt)

    def call_cost_usd(self, cached_tokens: int, output_tokens: int) -> float | None:
        return cost(self.model_id, Usage(cache_read=cached_tokens, output=output_tokens))

    def has_one_slot(self) -> bool:
        return self._agent.model.client.abilities.slots == 1

    def cache_is_cold(self) -> bool:
        asked_at = self._asked_at()
        return asked_at is None or time.time() - asked_at > self.cache_terms().life

    def user_was_away(self) -> bool:
        return self._agent.has_user and self._asked_at() is not None and self.cache_is_cold()

    def _asked_at(self) -> float | None:
        """Return the Unix time of the newest call; None for none. Each model has its own cache."""
        agent, model = self._agent, self.model_id
        return agent.model.last_calls.get(model) or agent.totals.replied_at(model)

    async def take_checkpoint(self, trigger: str) -> Checkpoint | None:
        agent = self._agent
        return await checkpoint.take_checkpoint(
            self, agent.checkpoints, trigger, mode=agent.approval.mode
        )

    def preserved_sections(self) -> Sequence[PreservedSection]:
        agent = self._agent
        return preserved_sections(
            agent.context.cwd,
            agent.policy.rules,
            agent.ledger,
            agent.ledger.phase,
            agent.model.current_window().size,
        )

    def redact(self, words: str) -> str:
        return content_text(self._agent.log.redact(User(content=words)).content)

    async def ask_model(self, request: Request, purpose: CompactionPurpose) -> Reply:
        """Ask the model. A refusal for any reason counts as too long: the engine then asks for the
        summary in parts, as plain text.
        """
        try:
            return await self._agent.model.ask(
                replace(request, same_failures=SAME_FAILURES),
                purpose,
                repeats=RepeatedReply(MIN_RECORD_CHARS).add,
            )
        except ModelError as error:
            if not may_be_cause(error) or isinstance(error, PromptTooLong):
                raise
            raise PromptTooLong(
                error.message, status=error.status, request_id=error.request_id
            ) from error

    async def before_summary(self, event: dict[str, Any]) -> str | None:
        try:
            await self._agent.features.before_summary(event)
        except Veto as veto:
            return veto.message
        return None
