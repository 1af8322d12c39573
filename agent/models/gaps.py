"""Features that a server lacks, learned from its error messages.

Servers of every protocol lack some features. If a request is refused for one, it is sent again
without that feature, and later requests omit it from the start. Findings per server and model are
stored in the state directory.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...tools.system.files import make_private_folder, read_below, replace_file
from ..errors import PromptTooLong, RequestRejected
from ..lazy import regex
from .refusals import says_no_images

FILE_NAME = "servers.json"  # in the state directory
MAX_FILE_BYTES = 1 << 20
KEPT_SECONDS = 30 * 86_400  # afterwards, all features are tried again

IMAGES = "images"  # gap that exists in every protocol
NO_IMAGES = "no images"
_STATUSES = (400, 404, 422, 500, 501)
_WRONG_USE = regex(r"signature|modified|must remain|maximum|at most|\bttl\b", re.I)
_GENERIC_MESSAGE = regex(
    r"(?:(?:error|bad request|malformed request|invalid[ _]request(?:[ _]error| body| data)?|"
    r"unprocessable (?:entity|content)|internal (?:server )?error)\W*)*",
    re.I,
)


class Gap(NamedTuple):
    """A feature of a protocol that a server may lack."""

    what: str  # shown to the user, e.g. "no images"
    named_by: re.Pattern[str] | None  # matches error messages about this feature
    fit: Callable[[dict[str, Any]], dict[str, Any]]  # returns a body without the feature
    guessed: bool = False  # True: try it if the error message names no feature
    # Returns True if a refusal of a body is about this gap. Checked before `named_by` of all gaps.
    matches: Callable[[str, Mapping[str, Any]], bool] | None = None


def unchanged(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body unchanged: the feature is omitted elsewhere."""
    return body


# Images are left out of the context, so the log shows it.
NO_IMAGES_GAP = Gap(NO_IMAGES, None, unchanged)


class ServerGaps:
    """The gaps of one model on one server. `table` has all gaps by name, in the order to try them
    if an error message names none.
    """

    def __init__(self, path: Path | None, url: str, model: str, table: Mapping[str, Gap]) -> None:
        """`path` is the file that stores the gaps, None to store nothing. An unreadable file counts
        as empty.
        """
        self._path, self._key, self.table = path, f"{url.rstrip('/')} {model}", table
        self.names = tuple(self._kept("gaps"))
        self.supported = tuple(self._kept("seen"))  # features that the server has accepted
        self._guessed: list[str] = []  # gaps not confirmed by a successful request
        self._is_confirmed = False  # True after a successful request of this process

    def learn(self, refusal: RequestRejected, body: Mapping[str, Any]) -> str:
        """Record and return the gap for which a request with this `body` was refused, "" if the
        refusal has another reason. If the server names no feature, guess one gap per refusal until
        a request succeeds.
        """
        if refusal.status not in _STATUSES or isinstance(refusal, PromptTooLong):
            return ""
        if says_no_images(refusal.message):
            return self.add(IMAGES)
        words = refusal.message.rpartition("): ")[2]
        for name, gap in self.table.items():
            if gap.matches and name not in self.names and gap.matches(words, body):
                return self.add(name)
        here = [
            name
            for name, gap in self.table.items()
            if name not in self.names and not gap.matches and gap.fit(dict(body)) != body
        ]
        if _WRONG_USE.search(words):  # the feature exists, but the request used it incorrectly
            return ""
        for name in here:
            named_by = self.table[name].named_by
            if named_by and named_by.search(words):
                return self.add(name)
        here = [name for name in here if self.table[name].guessed]
        if self._is_confirmed or not here or not _GENERIC_MESSAGE.fullmatch(words):
            self._forget_guesses()
            return ""
        self._guessed.append(here[0])
        self.names = (*self.names, here[0])
        return here[0]

    def confirm_guesses(self) -> None:
        """Record that a request succeeded, which confirms the guesses."""
        self._is_confirmed = True
        if self._guessed:
            self._guessed = []
            self._keep()

    def _forget_guesses(self) -> None:
        self.names = tuple(name for name in self.names if name not in self._guessed)
        self._guessed = []

    def add(self, name: str) -> str:
        """Store a gap and return its name, "" if it is already known or not in the table."""
        if name in self.names or name not in self.table:
            return ""
        self.names = (*self.names, name)
        self._keep()
        return name

    def drop(self, name: str) -> None:
        """Remove a gap that the server does not have."""
        if name in self.names:
            self.names = tuple(each for each in self.names if each != name)
            self._keep()

    def mark_supported(self, name: str) -> None:
        """Store that the server accepted a feature."""
        if name not in self.supported:
            self.supported = (*self.supported, name)
            self._keep()

    def _kept(self, what: str) -> list[str]:
        row = _read(self._path).get(self._key)
        if not isinstance(row, dict) or not isinstance(row.get(what), list):
            return []
        at = row.get("at")
        if not isinstance(at, int | float) or not 0 <= time.time() - at <= KEPT_SECONDS:
            return []
        return [name for name in row[what] if name in self.table]

    def _keep(self) -> None:
        """Write the gaps to the file. Ignore errors: the gaps are then learned again in the next
        run.
        """
        if self._path is None:
            return
        rows = _read(self._path)
        known = [name for name in self.names if name not in self._guessed]
        rows[self._key] = {"gaps": known, "seen": [*self.supported], "at": int(time.time())}
        try:
            make_private_folder(self._path.parent)
            replace_file(self._path, json.dumps(rows, indent=1).encode(), durable=False)
        except OSError:
            return


def _read(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        found = json.loads(read_below(path.parent, path.name, MAX_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
