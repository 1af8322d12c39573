"""The fixtures of a conversation that features are tested in."""

from ..loop.conftest import events, handle, project

__all__ = ["events", "handle", "project"]
