"""Reserve file descriptors for the agent, so that work for its commands cannot use them up."""

import os
import resource

RESERVED_DESCRIPTORS = 64  # descriptors that the agent can always open
MAX_SOFT_LIMIT = 4096  # children inherit it, and some loop over all possible descriptors
WAIT_S = 0.1


def raise_limit() -> None:
    """Raise this process's limit of open files above the usual 1024 if the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_SOFT_LIMIT if hard == resource.RLIM_INFINITY else min(hard, MAX_SOFT_LIMIT)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def has_spare_descriptors(count: int = 1) -> bool:
    """Return True if this process can open `count` more and keep the reserve. Raises OSError."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return True
    return len(os.listdir("/dev/fd")) + count + RESERVED_DESCRIPTORS <= soft  # noqa: PTH208


async def spare_descriptor() -> None:
    """Wait until one more descriptor can be opened without using the reserve."""
    import asyncio  # slow to import, and `raise_limit` needs none

    while not has_spare_descriptors():  # noqa: ASYNC110 - closing sends no event
        await asyncio.sleep(WAIT_S)
