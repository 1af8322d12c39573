"""Keep file descriptors for the agent itself, whatever its commands make it open."""

import asyncio
import os
import resource

RESERVED_DESCRIPTORS = 64  # files, sockets and pipes that the agent can always open
MAX_SOFT_LIMIT = 4096  # children have it, too, and some go through all the numbers there may be
WAIT_S = 0.1


def raise_limit() -> None:
    """Let this process open more than the usual 1024, where the system allows that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_SOFT_LIMIT if hard == resource.RLIM_INFINITY else min(hard, MAX_SOFT_LIMIT)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def has_spare_descriptors(count: int = 1) -> bool:
    """Return True if the reserve stays when this process opens more. Raises OSError."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return True
    return len(os.listdir("/dev/fd")) + count + RESERVED_DESCRIPTORS <= soft  # noqa: PTH208


async def spare_descriptor() -> None:
    """Wait until the reserve stays when one more is opened at once."""
    while not has_spare_descriptors():  # noqa: ASYNC110 - nothing tells when others close theirs
        await asyncio.sleep(WAIT_S)
