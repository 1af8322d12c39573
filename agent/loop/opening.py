"""The entry that records how a process opens a session."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...tools.base import Tool
from ...tools.system.git_head import current_branch
from ..context.view import View
from ..lazy import dataclass
from ..models.base import Model
from ..session.entries import BOUND, FREE, Session
from ..version import __version__


@dataclass(frozen=True, slots=True)
class SessionOpening:
    """The options with which a process opens a session."""

    log_path: Path
    cwd: Path
    system: str  # the system prompt
    own_prompt: str = ""  # the part that replaces the built-in prompt
    parent: Mapping[str, Any] | None = None  # ID and newest entry of the session it was forked from

    def model_entry(self, model: Model) -> Session:
        """Return the entry for a change of the model."""
        return Session(
            id=self.log_path.parent.name,
            cwd=str(self.cwd),
            branch=current_branch(self.cwd),
            version=__version__,
            model=model.id,
            thinking=BOUND if model.abilities.binds_thinking else FREE,
        )

    def session_entry(self, view: View, model: Model, tools: Sequence[Tool[Any]]) -> Session:
        """Return the entry. It has the system prompt and the tools only if they differ from the
        view's.
        """
        schemas = [tool.schema() for tool in tools]
        is_same = self.system == view.system
        return replace(
            self.model_entry(model),
            system=None if is_same else self.system,
            own_prompt=None if is_same else self.own_prompt or None,
            tools=None if schemas == view.tools else schemas,
            parent=dict(self.parent) if self.parent else None,
        )
