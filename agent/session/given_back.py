"""Recognize calls that give back recorded text, whatever the client calls its tools.

Such a call names a file of `offloaded/` (also in a shell command), a ref, or our MCP server.
"""

from collections.abc import Mapping
from typing import Any

from ...tools.text import strings_in
from ..lazy import regex
from .archive import OFFLOADED

SERVER = "ctxagent"  # name of our MCP server
# Key in the details of a result that gives back recorded text: the refs and files. The result is
# not moved to a file again.
RECALLED = "recalled"
_PATH_CHARS = r"[^\s'\"`;|&<>()]"
_FILE = regex(
    rf"{_PATH_CHARS}*sessions/{_PATH_CHARS}+/{OFFLOADED}(?:/{_PATH_CHARS}*)?"
    rf"|\b{OFFLOADED}/(?:\d{{8}}_\d{{6}}_\w+|result)_\d+\.md"
)
_REF = regex(r"(?:[\w.-]+(?:/agents/[\w.-]+)*)?#\d+")
_ANSWER = regex(r"\[([\w.-]+(?:/agents/[\w.-]+)*#\d+)\]\n")  # first line of an answer of `recall`
_WORD_ENDS = regex(r"[^a-z0-9]+")


def is_of_our_server(tool: str) -> bool:
    """Return True if a client's name of a tool includes the name of our server."""
    return SERVER in _WORD_ENDS.split(tool.lower())


def refs_in(tool: str, given: Mapping[str, Any]) -> list[str]:
    """Return the ref that a call of `recall` names, or the tool if it is another one of our
    server; [] for any other call.
    """
    ref, is_ours = str(given.get("ref", "")).strip(), is_of_our_server(tool)
    if ref and (is_ours or _REF.fullmatch(ref)):
        return [ref]
    return [tool] if is_ours else []


def recorded_sources(tool: str, given: Mapping[str, Any], text: str = "") -> list[str]:
    """Return the refs and files whose recorded text a call gives back; [] if it gives back none.
    `text` is its result.
    """
    files = [file for each in strings_in(given) for file in _FILE.findall(each)]
    answered = _ANSWER.match(text)
    return files or refs_in(tool, given) or ([answered[1]] if answered else [])
