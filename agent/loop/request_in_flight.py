"""Record and reserve the estimated cost of a request until its reply arrives."""

import hashlib
import secrets
import time
from contextlib import suppress
from pathlib import Path

from ...tools.system.files import make_private_folder
from ..lazy import dataclass
from ..models.catalog import cache_terms, cost
from ..session.entries import Usage
from ..session.in_flight import request_note
from ..session.store import locate_log
from .budget import BudgetMeter
from .session_record import SessionRecord

RUN_ID = secrets.token_hex(4)  # of this process
MAX_ERROR = 0.02  # relative error of an estimate; with a larger error it is recorded again
WARM_FOLDER = "warm"  # in the state folder: a file's age is the age of a prompt prefix in the cache


@dataclass(slots=True)
class RequestInFlight:
    """A request from its start until its reply is recorded.

    The estimated cost includes the prompt, with the cached part at the cache price, and a reply of
    the usual length.
    """

    session: SessionRecord
    meter: BudgetMeter
    purpose: str
    model: str
    dollars: float = 0.0
    is_open: bool = False

    def begin(self) -> None:
        """Record that the request is sent or sent again. Raises RecordError."""
        if not self.meter.records_requests:
            return
        (prompt, _), terms = self.session.view.prompt_tokens(), cache_terms(self.model)
        has_cache = terms.read < 1
        read = min(self._cached_tokens(terms.life), prompt) if has_cache else 0
        rest = prompt - read
        self._record(Usage(cache_read=read, cache_creation=rest) if has_cache else Usage(rest))

    def accepted(self, usage: Usage) -> None:
        """Correct the estimate with the server's token count of the prompt. Raises RecordError."""
        if not self.is_open or not usage.prompt:
            return
        if not self.session.totals.in_flight.replies:
            with suppress(OSError):
                warm = self._warm_file()
                make_private_folder(warm.parent)
                warm.touch(mode=0o600)
        self._record(usage)

    def _cached_tokens(self, life: float) -> int:
        """Return how many tokens of the prompt are in the server's cache: the session's newest
        prompt, or the system prompt and tools if another session has sent the same ones.
        """
        known, now = self.session.totals, time.time()
        replied = known.replied_at(self.model)
        if replied is not None:
            return known.in_flight.prompt if now - replied < life else 0
        with suppress(OSError):
            if now - self._warm_file().stat().st_mtime < life:
                view = self.session.view
                return view.scaled(view.size - sum(item.size for item in view.items))
        return 0

    def _warm_file(self) -> Path:
        view = self.session.view
        prefix = f"{self.model}\n{view.system}\n{view.tools}"
        name = hashlib.sha256(prefix.encode(errors="surrogatepass")).hexdigest()[:16]
        return locate_log(self.session.log.path)[0].parents[1] / WARM_FOLDER / name

    def _record(self, usage: Usage) -> None:
        output = max(usage.output, self.session.totals.in_flight.usual_output)
        whole = Usage(usage.input, usage.cache_read, usage.cache_creation, output)
        dollars = cost(self.model, whole) or 0.0
        if self.is_open and abs(dollars - self.dollars) <= MAX_ERROR * dollars:
            return
        note = request_note(self.purpose, RUN_ID, dollars, replaces=self.is_open)
        self.session.record(note)
        self.is_open = True
        self._reserve(dollars)

    def answered(self) -> None:
        """Release the reservation, since the reply's entry has the cost."""
        self.is_open = False
        self._reserve(0.0)

    def gave_up(self) -> None:
        """Record that there will be no reply. Raises RecordError."""
        if self.is_open:
            self.session.record(request_note(self.purpose, RUN_ID, None, replaces=True))
        self.answered()

    def _reserve(self, dollars: float) -> None:
        self.meter.reserve(dollars - self.dollars)
        self.dollars = dollars
