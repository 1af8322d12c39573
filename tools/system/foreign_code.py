"""Run code of tools and extensions, whose failures must not harm the agent."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODULE_PREFIX = "ctxagent_extension_"  # of the modules of extension files


@contextmanager
def foreign_code(*passed: type[BaseException]) -> Iterator[list[str]]:
    """Yield a list that receives a description of the exception in the block, with its place.
    Exceptions in `passed` and interrupts are raised again. SystemExit counts as a failure.
    """
    problems = list[str]()
    try:
        yield problems
    except passed:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | GeneratorExit) or _is_cancelled(error):
            raise
        text = str(traceback.TracebackException(type(error), error, None))  # str(error) might raise
        what = ": ".join(filter(None, [type(error).__name__, text]))
        problems.append(f"{what}{_place_of(error)}")


def _is_cancelled(error: BaseException) -> bool:
    """Return True if an error comes from a request to cancel the current task."""
    asyncio = sys.modules.get("asyncio")  # to import it here would slow down a start
    if asyncio is None:
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # outside of the event loop
        return False
    return isinstance(error, asyncio.CancelledError) and bool(task and task.cancelling())


def _place_of(error: BaseException) -> str:
    """Return the last executed line in a file of the extension, "" for none."""
    places = [
        f" ({Path(frame.f_code.co_filename).name}, line {line})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__", "")).startswith(MODULE_PREFIX)
    ]
    return places[-1] if places else ""
