"""Code of extensions, which may fail in any way without harm to the agent."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import CtxagentError


@contextmanager
def foreign_code() -> Iterator[list[str]]:
    """Yield a list that is empty, or says what the code within raised. Errors of our own, which
    name what to do, and interrupts are passed on; an exit of the process is a failure."""
    problems = list[str]()
    try:
        yield problems
    except (CtxagentError, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        problems.append(f"{type(error).__name__}: {error}")
