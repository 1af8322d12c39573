"""ctxagent: a coding agent for the terminal that keeps old results on disk.

A program uses it by the names below, which are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agent import events as events
    from .agent.context.request import Request as Request
    from .agent.errors import CtxagentError as CtxagentError
    from .agent.events import Answer as Answer
    from .agent.events import Question as Question
    from .agent.library.agent import Agent as Agent
    from .agent.library.agent import AgentRun as AgentRun
    from .agent.library.custom_model import CustomModel as CustomModel
    from .agent.library.result import Result as Result
    from .agent.models.base import Reply as Reply
    from .agent.session.entries import Usage as Usage

    __version__: str

# Not `names_on_demand`: the import of its module would take a third of `--version`.
_PLACES = {
    "Agent": "agent.library.agent",
    "Answer": "agent.events",
    "CtxagentError": "agent.errors",
    "CustomModel": "agent.library.custom_model",
    "Question": "agent.events",
    "Reply": "agent.models.base",
    "Request": "agent.context.request",
    "Result": "agent.library.result",
    "AgentRun": "agent.library.agent",
    "Usage": "agent.session.entries",
    "__version__": "agent.version",
}


def __getattr__(name: str) -> Any:
    if name == "events":
        return import_module(".agent.events", __name__)
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_PLACES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), "events", *_PLACES])
