"""What a server does not take of its protocol, learned from its refusals.

Servers of every protocol leave out a part of it. The first request that is refused for such a part
is made again without it, and the same server gets no such request again: what was learned of a
server and a model is kept in the state directory.
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
KEPT_SECONDS = 30 * 86_400  # after which a server is tried with all of it again

IMAGES = "images"  # the gap that every protocol has
NO_IMAGES = "no images"
_STATUSES = (400, 404, 422, 500, 501)
_OF_ITS_USE = regex(r"signature|modified|must remain|maximum|at most|\bttl\b", re.I)
_SAYS_NOTHING = regex(
    r"(?:(?:error|bad request|malformed request|invalid[ _]request(?:[ _]error| body| data)?|"
    r"unprocessable (?:entity|content)|internal (?:server )?error)\W*)*",
    re.I,
)


class Gap(NamedTuple):
    """A part of a protocol that a server may lack."""

    what: str  # for people: "no images"
    named_by: re.Pattern[str] | None  # what a refusal says that names it
    fit: Callable[[dict[str, Any]], dict[str, Any]]  # returns a body without it, sharing its blocks
    guessed: bool = False  # whether it is tried where a server names nothing
    # Tells by a refusal and the body whether it is this, before all others.
    decides: Callable[[str, Mapping[str, Any]], bool] | None = None


def same(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body as it is: what is missing is left out elsewhere."""
    return body


NO_IMAGES_GAP = Gap(NO_IMAGES, None, same)  # left out of the context, so that the log has it


class ServerGaps:
    """The gaps of one model on one server, by their names in `table`, which has them in the order
    in which they are tried where a server names none."""

    def __init__(self, path: Path | None, url: str, model: str, table: Mapping[str, Gap]) -> None:
        """`path` is the file where they are kept, None for nowhere; one that cannot be read has
        nothing."""
        self._path, self._key, self.table = path, f"{url.rstrip('/')} {model}", table
        self.names = tuple(self._kept("gaps"))
        self.seen = tuple(self._kept("seen"))  # of those, what the server was seen to take
        self._guessed: list[str] = []  # that no request has proved yet
        self._is_proved = False  # whether the server has taken a request of this process

    def learn(self, refusal: RequestRejected, body: Mapping[str, Any]) -> str:
        """Return the gap for which a request with this `body` was refused, known from now on; ""
        for none, so that the refusal remains. Where the server names nothing, they are tried one
        after another until it takes a first request."""
        if refusal.status not in _STATUSES or isinstance(refusal, PromptTooLong):
            return ""
        if says_no_images(refusal.message):
            return self.add(IMAGES)
        words = refusal.message.rpartition("): ")[2]
        for name, gap in self.table.items():
            if gap.decides and name not in self.names and gap.decides(words, body):
                return self.add(name)
        here = [
            name
            for name, gap in self.table.items()
            if name not in self.names and not gap.decides and gap.fit(dict(body)) != body
        ]
        if _OF_ITS_USE.search(words):  # which it takes, and this request has it wrong
            return ""
        for name in here:
            named_by = self.table[name].named_by
            if named_by and named_by.search(words):
                return self.add(name)
        here = [name for name in here if self.table[name].guessed]
        if self._is_proved or not here or not _SAYS_NOTHING.fullmatch(words):
            self._forget_guesses()
            return ""
        self._guessed.append(here[0])
        self.names = (*self.names, here[0])
        return here[0]

    def prove(self) -> None:
        """Note that the server took a request: the guesses were right."""
        self._is_proved = True
        if self._guessed:
            self._guessed = []
            self._keep()

    def _forget_guesses(self) -> None:
        self.names = tuple(name for name in self.names if name not in self._guessed)
        self._guessed = []

    def add(self, name: str) -> str:
        """Keep a gap; return its name, "" for one that is known, or that the table has not."""
        if name in self.names or name not in self.table:
            return ""
        self.names = (*self.names, name)
        self._keep()
        return name

    def drop(self, name: str) -> None:
        """Forget a gap that the server does not have."""
        if name in self.names:
            self.names = tuple(each for each in self.names if each != name)
            self._keep()

    def see(self, name: str) -> None:
        """Keep that the server was seen to take something."""
        if name not in self.seen:
            self.seen = (*self.seen, name)
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
        """Write them down; what cannot be written is learned again next time."""
        if self._path is None:
            return
        rows = _read(self._path)
        known = [name for name in self.names if name not in self._guessed]
        rows[self._key] = {"gaps": known, "seen": [*self.seen], "at": int(time.time())}
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
