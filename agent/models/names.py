"""Names of tools and IDs: bounded where they come from a server, and shorter where a protocol takes
shorter ones than the log has."""

import hashlib

MAX_NAME_CHARS = 64  # of a tool, by OpenAI's documents
_MAX_TOLD_CHARS = 256  # of a name or an ID from a server: a long name fills the context for good
_DIGEST_CHARS = 32


def told_name(value: object) -> str:
    """Return the beginning of a name or an ID that a server sent, "" for what is no text."""
    return value[:_MAX_TOLD_CHARS] if isinstance(value, str) else ""


def short(name: str, limit: int = MAX_NAME_CHARS) -> str:
    """Return a name of at most `limit` characters (40 or more), the same for the same name."""
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{name[: limit - _DIGEST_CHARS - 1]}_{digest}"
