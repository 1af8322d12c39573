"""What a session is told and the hooks it runs, as a test says."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ctxagent.agent.session.entries import Entry, Session, User


@dataclass
class FixedSetup:
    """A stand-in for `SessionSetup`; each field may be set anew by a test."""

    session: Callable[[], Session]
    startup: Callable[[], Sequence[Entry]] = list
    after_summary: Callable[[], Sequence[Entry]] = list

    def session_entry(self, *given: Any) -> Session:
        return self.session()

    def startup_entries(self, *given: Any) -> Sequence[Entry]:
        return self.startup()

    def changed_instructions(self, *given: Any) -> Sequence[tuple[User, str]]:
        return ()

    def reinserted(self, *given: Any, **named: Any) -> Sequence[Entry]:
        return self.after_summary()


@dataclass
class FixedHooks:
    """A stand-in for `SessionHooks`: keeps what it was told, and vetoes when a test says so."""

    has_tool_hooks: bool = False
    veto: str | None = None
    seen: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    async def run(self, name: str, event: Mapping[str, Any]) -> str | None:
        self.seen.append((name, event))
        return self.veto if name.startswith("before_") else None
