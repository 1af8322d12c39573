"""Recording formats of extensions."""

from collections.abc import Callable, Iterable
from typing import Any

from ...tools.system.foreign_code import foreign_code
from ..border.values import JsonObject
from ..errors import UsageError
from ..lazy import dataclass
from .builder import TranscriptBuilder


@dataclass(frozen=True, slots=True)
class ForeignFormat:
    """A recording format from an extension. Its methods raise UsageError if the reader fails."""

    name: str
    reader: Any

    def recognizes(self, row: JsonObject) -> bool:
        """Return True if the extension recognizes the row."""
        return bool(self._call(self.reader.recognizes, row))

    def read(self, rows: Iterable[JsonObject]) -> TranscriptBuilder:
        """Return the transcript that the extension reads from the rows."""
        found = self._call(self.reader.read, rows)
        if isinstance(found, TranscriptBuilder):
            return found
        raise UsageError(f"the format {self.name} of an extension gives no TranscriptBuilder")

    def _call(self, function: Callable[[Any], Any], given: Any) -> Any:
        with foreign_code() as problems:
            return function(given)
        raise UsageError(f"the format {self.name} of an extension failed: {problems[0]}")


ADDED_FORMATS: dict[str, ForeignFormat] = {}  # of extensions, by name


def add_format(name: str, reader: Any) -> None:
    """Register a format from an extension. `reader` has the functions `recognizes` and `read`, like
    `ctxagent.addons.replay.formats.pi`.
    """
    ADDED_FORMATS.setdefault(name, ForeignFormat(name, reader))
