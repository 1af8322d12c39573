"""Fixtures of a conversation for tests of diagnostics."""

from ..loop.conftest import events, project, session

__all__ = ["events", "project", "session"]
