"""Fixtures of a conversation for tests of features."""

from ..loop.conftest import events, handle, project

__all__ = ["events", "handle", "project"]
