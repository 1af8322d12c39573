"""Fixtures of a conversation for tests of features."""

from ..loop.conftest import events, project, session

__all__ = ["events", "project", "session"]
