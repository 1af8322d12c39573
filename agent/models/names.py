"""Names of tools and IDs of calls, where a protocol takes shorter ones than the log has."""

import hashlib

MAX_NAME_CHARS = 64  # of a tool, by OpenAI's documents
_DIGEST_CHARS = 32


def short(name: str, limit: int = MAX_NAME_CHARS) -> str:
    """Return a name of at most `limit` characters (40 or more), the same for the same name."""
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{name[: limit - _DIGEST_CHARS - 1]}_{digest}"
