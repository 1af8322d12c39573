"""Code of tools and extensions, which may fail in any way without harm to the agent."""

import asyncio
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODULE_PREFIX = "ctxagent_extension_"  # of the modules that files of extensions become


@contextmanager
def foreign_code(*passed: type[BaseException]) -> Iterator[list[str]]:
    """Yield a list that is empty, or says what the code within raised and where. Pass `passed`
    errors and interrupts on. An exit of the process is a failure like any other."""
    problems = list[str]()
    try:
        yield problems
    except passed:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | GeneratorExit) or _is_cancelled(error):
            raise
        text = str(traceback.TracebackException(type(error), error, None))  # which cannot fail
        what = ": ".join(filter(None, [type(error).__name__, text]))
        problems.append(f"{what}{_place_of(error)}")


def _is_cancelled(error: BaseException) -> bool:
    """Return True if an error comes from a request to cancel the current task."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # outside of the event loop
        return False
    return isinstance(error, asyncio.CancelledError) and bool(task and task.cancelling())


def _place_of(error: BaseException) -> str:
    """Return the line of the extension's file that was run last, "" for none."""
    places = [
        f" ({Path(frame.f_code.co_filename).name}, line {line})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__", "")).startswith(MODULE_PREFIX)
    ]
    return places[-1] if places else ""
