"""Models whose thinking is bound to all earlier content.

Such a model refuses a request if content before a thinking block has changed, unless that thinking
is removed. (Anthropic, "Extended thinking", block binding.)
"""

from ...api.base import regex

# First version of each family with bound thinking.
_SINCE = {"fable": (5, 1), "mythos": (5, 1), "opus": (5, 5), "sonnet": (5, 5), "haiku": (5, 5)}
_NAME = regex(r"(?P<family>[a-z]+)-(?P<major>\d{1,2})(?:-(?P<minor>\d{1,2}))?(?!\d)")


def binds_thinking(model: str) -> bool:
    """Return True for a model with bound thinking."""
    for found in _NAME.finditer(model.rpartition("claude-")[2]):
        version = (int(found["major"]), int(found["minor"] or 0))
        if since := _SINCE.get(found["family"]):
            return version >= since
    return False
