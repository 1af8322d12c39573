"""The output side of a real terminal: several paints as one write, and never a question to it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from prompt_toolkit.data_structures import Size
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from .signals import unseen


class SteadyOutput(Vt100_Output):
    """A terminal to which several paints can go as one write. Never asks where the cursor is."""

    _held = False

    def flush(self) -> None:
        if not self._held:
            with unseen():
                super().flush()

    @contextmanager
    def held(self) -> Iterator[None]:
        self._held = True
        try:
            yield
        finally:
            self._held = False
            self.flush()


def steady(stream: TextIO, *, size: Callable[[], Size] | None = None) -> SteadyOutput:
    """The output for a stream; `size` is asked of the terminal when not given."""

    def measure() -> Size:
        columns = rows = 0
        with unseen():
            columns, rows = os.get_terminal_size(stream.fileno())
        return Size(rows=rows or 24, columns=columns or 80)

    return SteadyOutput(
        stream, size or measure, default_color_depth=ColorDepth.from_env(), enable_cpr=False
    )
