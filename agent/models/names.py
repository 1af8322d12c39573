"""Limit the length of tool names and IDs from a server, and shorten them for protocols with lower
limits.
"""

import hashlib

MAX_NAME_CHARS = 64  # of a tool, from OpenAI's documentation
_MAX_FOREIGN_CHARS = 256  # of a name or an ID from a server, to protect the context
_DIGEST_CHARS = 32


def cut_name(value: object) -> str:
    """Cut a name or an ID from a server to a safe length; return "" for anything but text."""
    return value[:_MAX_FOREIGN_CHARS] if isinstance(value, str) else ""


def shorten_name(name: str, limit: int = MAX_NAME_CHARS) -> str:
    """Return a name of at most `limit` characters (40 or more). Equal names give equal results."""
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{name[: limit - _DIGEST_CHARS - 1]}_{digest}"
