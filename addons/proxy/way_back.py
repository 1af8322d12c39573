"""How the model of a client can get back what left its context, by the client's tools."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from ...api.context import Policy
from ...api.record import is_of_our_server
from ...api.recordings import our_name
from .session_tools import RecallEntryTool

WayBack = Literal["recall", "files", "none"]
_READERS = ("Read", "Bash", "Grep")
# Starts of the User-Agent of clients whose tools refuse files outside of the project.
_IN_PROJECT_ONLY = ("GeminiCLI",)
WARNINGS: dict[WayBack, str] = {
    "recall": "",
    "files": "the client offers no tool `recall`: only texts that a file has leave the context",
    "none": "the client offers no tool that returns a removed text: the context is shortened only "
    "when the window is full",
}


def way_back_of(tools: Sequence[Any] | None) -> WayBack:
    """Return the way back that the tools of a request offer."""
    offered = [*_offered(tools or ())]
    if any(
        is_of_our_server(name) or RecallEntryTool.description in about for name, about in offered
    ):
        return "recall"
    return "files" if any(our_name(name) in _READERS for name, _ in offered) else "none"


def reads_session_files(agent: str) -> bool:
    """Return True if the tools of a client with this User-Agent read files of the sessions."""
    return not agent.startswith(_IN_PROJECT_ONLY)


def policy_with(policy: Policy, way_back: WayBack) -> Policy:
    """Return a policy that removes, to save money, only what comes back on this way."""
    if way_back == "recall":
        return policy
    policy = replace(policy, outline=False, truncate="persisted")
    if way_back == "files":
        return policy
    return replace(
        policy, move_above=None, clear_when="off", truncate_at=None, summarize_when="full"
    )


def _offered(tools: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield the name and the description of each tool, also of tools in a group."""
    for tool in tools:
        if not isinstance(tool, dict):
            continue
        inner = tool.get("function")
        about = inner if isinstance(inner, dict) else tool
        yield str(about.get("name") or about.get("type")), str(about.get("description"))
        group = tool.get("tools")
        yield from _offered(group if isinstance(group, list) else ())
