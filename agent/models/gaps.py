"""What a server does not accept, learned from its answers: features, and prompts above a size.

Servers of every protocol lack some features. A refused request is sent again without the features
that may be the cause. A feature is known to be missing once a request without it is accepted. The
server's messages only choose which feature is tried first. Findings per server and model are stored
with their date in the state directory, and tested again after a week.

The context window is read from descriptions of a model, in which servers use different field names.
Servers on the user's machine have interfaces of their own for the window of the loaded model. The
window in a list of models may be the largest possible one.
"""

import json
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...tools.system.files import make_private_folder, read_below, replace_file
from ..context.request import Request
from ..errors import PromptTooLong, RequestRejected
from ..lazy import regex
from ..session.searches import names_search
from .catalog import Limits
from .refusals import may_be_cause, says_no_images

# In order: the API and gateways, vLLM, OpenRouter, others, llama.cpp (in `meta`).
_WINDOW_FIELDS = ("max_input_tokens", "max_model_len", "context_length", "context_window", "n_ctx")
_NUM_CTX = regex(r"^num_ctx\s+(\d{3,9})", re.M)


def parse_limits(model: object) -> Limits | None:
    """Return the limits in a server's description of a model, None if it has none."""
    described = model if isinstance(model, dict) else {}
    meta = described.get("meta")
    fields: dict[str, Any] = {**(meta if isinstance(meta, dict) else {}), **described}
    window = next(filter(None, (_tokens(fields.get(name)) for name in _WINDOW_FIELDS)), 0)
    output = _tokens(fields.get("max_tokens")) or None
    return Limits(window, output, "server") if window else None


async def ask_local(
    get: Callable[[str], Awaitable[object]],
    post: Callable[[str, dict[str, Any]], Awaitable[object]],
    name: str,
) -> Limits | None:
    """Return the limits of a model from the own interfaces of Ollama, LM Studio and llama.cpp.
    `get` and `post` return the JSON answer for a path, None on failure.
    """
    running = _named(_rows(await get("/api/ps"), "models"), name)
    window = _tokens(running.get("context_length"))
    if not window:
        loaded = _named(_rows(await get("/api/v0/models"), "data"), name)
        window = _tokens(loaded.get("loaded_context_length"))
    if not window:
        settings = _dict(_dict(await get("/props")).get("default_generation_settings"))
        window = _tokens(settings.get("n_ctx"))
    if not window:
        shown = _dict(await post("/api/show", {"model": name}))
        found = _NUM_CTX.search(str(shown.get("parameters", "")))
        window = int(found[1]) if found else 0
    return Limits(window, None, "server") if window else None


def _named(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the row of a model. Ollama adds `:latest` to a name without a tag."""
    names = (name, f"{name}:latest")
    keys = ("id", "name", "model")
    return next((row for row in rows if any(row.get(key) in names for key in keys)), {})


def _rows(answer: object, field: str) -> list[dict[str, Any]]:
    rows = _dict(answer).get(field)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def listed_models(answer: object) -> list[dict[str, Any]]:
    """Return the entries in a server's list of models."""
    return _rows(answer, "data")


def find_in_list(answer: object, id: str) -> object:
    """Return a model's entry in a list of models, None if it is missing. A list with a single model
    matches any name.
    """
    models = listed_models(answer)
    named = next((row for row in models if row.get("id") == id), None)
    return models[0] if named is None and len(models) == 1 else named


def _tokens(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


FILE_NAME = "servers.json"  # in the state directory
MAX_FILE_BYTES = 1 << 20
RETESTED_SECONDS = 7 * 86_400  # afterwards, a finding is tested again

IMAGES = "images"  # gap that exists in every protocol
NO_IMAGES = "no images"
SHORT_REPLIES = "short"  # gap that exists in every protocol
SHORT_REPLY_TOKENS = 4_096  # accepted by every known server
_WRONG_USE = regex(r"signature|modified|must remain|maximum|at most|\bttl\b", re.I)


class Gap(NamedTuple):
    """A feature of a protocol that a server may lack."""

    what: str  # shown to the user, e.g. "no images"
    named_by: re.Pattern[str] | None  # matches error messages about this feature
    fit: Callable[[dict[str, Any]], dict[str, Any]]  # returns a body without the feature
    optional: bool = False  # True: requests may always omit it, whatever the server says
    # Returns True if a refusal of a body is about this gap. Checked before `named_by` of all gaps.
    matches: Callable[[str, Mapping[str, Any]], bool] | None = None
    hides_thinking: bool = False  # True: the body without it has no thinking of earlier replies


def unchanged(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body unchanged: the feature is omitted elsewhere."""
    return body


# Images are left out of the context, so the log shows it.
NO_IMAGES_GAP = Gap(NO_IMAGES, None, unchanged)


def short_reply_gap(*parameters: str) -> Gap:
    """Return the gap of a server that allows only short replies. `parameters` are the names of the
    limit.
    """

    def fit(body: dict[str, Any]) -> dict[str, Any]:
        high = {n: SHORT_REPLY_TOKENS for n in parameters if body.get(n, 0) > SHORT_REPLY_TOKENS}
        return {**body, **high} if high else body

    return Gap(f"no replies above {SHORT_REPLY_TOKENS:,} tokens", None, fit, optional=True)


def has_images(request: Request) -> bool:
    """Return True if a request contains an image or a document."""
    blocks = (block for message in request.messages for block in message["content"])
    return any(
        each.get("type") in ("image", "document")
        for block in blocks
        for each in (block, *(block["content"] if _has_parts(block) else ()))
    )


def _has_parts(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "tool_result" and isinstance(block["content"], list)


class ServerGaps:
    """The gaps and the window of one model on one server. `table` has all gaps by name, in the
    order to test them.

    A refusal makes features *suspects*, which later requests omit. After an accepted request, each
    suspect is tested alone: the next request contains it again. If it is refused, the suspect is a
    gap, else the server supports it.
    """

    def __init__(self, path: Path | None, url: str, model: str, table: Mapping[str, Gap]) -> None:
        """`path` is the file that stores the gaps, None to store nothing. An unreadable file counts
        as empty.
        """
        self._path, self._key, self.table = path, f"{url.rstrip('/')} {model}", table
        row, now = self._row(), time.time()
        dates = {n: at for n, at in _dates(row.get("gaps")).items() if n in table}
        self._known = {n: at for n, at in dates.items() if 0 <= now - at <= RETESTED_SECONDS}
        self._suspects = [name for name in dates if name not in self._known]
        self._suspects += [n for n in _names(row.get("suspects")) if n in table and n not in dates]
        self.supported = tuple(name for name in _names(row.get("seen")) if name in table)
        self._window = _window_in(row, now)
        self._proven: set[str] = set()  # features in requests that were accepted
        self._trial = self._suspects[0] if self._suspects else ""  # next requests contain it
        self._fresh: list[str] = []  # suspects since the last accepted request
        self._named: set[str] = set()  # suspects that are the only possible cause
        self._has_refused_images = False
        self._body: Mapping[str, Any] = {}  # the last refused body

    @property
    def names(self) -> tuple[str, ...]:
        """The features that requests omit now."""
        return (*self._known, *(name for name in self._suspects if name != self._trial))

    @property
    def hides_thinking(self) -> bool:
        """True if requests omit the thinking of earlier replies because it may be refused."""
        omitted = (name for name in self._suspects if name != self._trial)
        return any(self.table[name].hides_thinking for name in omitted)

    @property
    def window(self) -> int | None:
        """The window in tokens, if a server has shown it by accepting only smaller prompts."""
        return self._window[0] if self._window else None

    def suspect(
        self, refusal: RequestRejected, body: dict[str, Any], *, has_thinking: bool = False
    ) -> list[str]:
        """Return the features to omit after a request with this `body` was refused; [] if its size
        or its web searches are more likely than its features. With `has_thinking`, it contains
        thinking of earlier replies, which may be invalid although the server supports thinking.
        """
        if not may_be_cause(refusal):
            return []
        self.note_refused(body)
        if names_search(refusal.message):
            return []
        if isinstance(refusal, PromptTooLong) and refusal.maximum is not None:
            return []
        if tested := self.end_trial():
            return [tested]
        if isinstance(refusal, PromptTooLong):
            return []
        name = self._named_in(refusal, body)
        if name in self._proven and self.table[name].hides_thinking and has_thinking:
            return []  # the context still has thinking that can be removed
        found = [name] if name else [n for n in self._optional(body) if n not in self._proven]
        if len(found) == 1 and not (self.table[found[0]].hides_thinking and has_thinking):
            self._named.add(found[0])
        return self._add_suspects(found)

    def note_refused(self, body: Mapping[str, Any]) -> None:
        """Note the body of a request that was refused, for `withhold_all`."""
        self._body = body

    def withhold_all(self) -> list[str]:
        """Return everything optional in the last refused request, which later requests omit."""
        return self._add_suspects(self._optional(self._body))

    def suspect_images(self) -> None:
        """Note that the next request lacks refused images. A single image may be invalid, so the
        server lacks images only after another refusal, if it has never accepted any.
        """
        is_known = IMAGES in {*self.names, *self._proven} or IMAGES not in self.table
        if not is_known and self._has_refused_images:
            self._named.add(IMAGES)
            self._add_suspects([IMAGES])
        self._has_refused_images = True

    def accept(
        self, gaps: Collection[str], body: dict[str, Any], whole: dict[str, Any], *, images: bool
    ) -> None:
        """Learn from an accepted request. `body` was sent without the features in `gaps`, `whole`
        is the body with all of them. `images` is True if the request had images.
        """
        for name, gap in self.table.items():
            is_tested = gap.optional or name in (IMAGES, self._trial)
            is_new = is_tested and name not in (*gaps, *self._proven)
            if is_new and self._is_in(name, body, images=images):
                self._proven.add(name)
        if not self._suspects:
            return
        omitted = [name for name in self._suspects if self._was_omitted(name, gaps, whole)]
        proved = [name for name in omitted if name in self._named]
        cleared = [name for name in self._suspects if name in self._proven and name not in gaps]
        if cleared or any(name in self._fresh for name in omitted):
            self._fresh = []
        self._known.update({name: time.time() for name in proved})
        self._named.difference_update(proved)
        done = {*proved, *cleared}
        self._suspects = [name for name in self._suspects if name not in done]
        if self._trial not in self._suspects:
            self._trial = ""
        if not (self._trial or self._fresh):
            there = (n for n in self._suspects if n == IMAGES or self._is_in(n, whole))
            self._trial = next(there, "")
        if done or omitted:
            self._keep()

    def give_up(self) -> None:
        """Forget the suspects of a request that was refused in every form."""
        self._suspects = [name for name in self._suspects if name not in self._fresh]
        self._named.difference_update(self._fresh)
        self._fresh, self._trial = [], ""

    def add(self, name: str) -> None:
        """Store a gap. Ignore a name that is not in the table."""
        if name in self.table:
            self._suspects = [each for each in self._suspects if each != name]
            self._known[name] = time.time()
            self._keep()

    def drop(self, name: str) -> None:
        """Remove a gap that the server does not have."""
        if name in self._known or name in self._suspects:
            self._known.pop(name, None)
            self._suspects = [each for each in self._suspects if each != name]
            self._keep()

    def mark_supported(self, name: str) -> None:
        """Store that the server accepted a feature."""
        if name not in self.supported:
            self.supported = (*self.supported, name)
            self._keep()

    def keep_window(self, tokens: int | None) -> None:
        """Store the size of the window, None if it is unknown."""
        if tokens != self.window:
            self._window = None if tokens is None else (tokens, time.time())
            self._keep()

    def end_trial(self) -> str:
        """Return the suspect that the last refused request contained for a test, "" for none. Later
        requests omit it.
        """
        tested = self._trial
        if not (tested and self._body and self._is_in(tested, self._body)):
            return ""
        self._trial = ""
        self._named.add(tested)
        self._fresh.append(tested)
        return tested

    def _named_in(self, refusal: RequestRejected, body: dict[str, Any]) -> str:
        """Return the feature that a refusal names, "" if it names none."""
        if says_no_images(refusal.message) and IMAGES not in self.names and IMAGES in self.table:
            return IMAGES
        words = refusal.message.rpartition("): ")[2]
        left = [(name, gap) for name, gap in self.table.items() if name not in self.names]
        for name, gap in left:
            if gap.matches and gap.matches(words, body):
                return name
        if _WRONG_USE.search(words):  # the feature exists, but the request used it incorrectly
            return ""
        for name, gap in left:
            is_named = gap.named_by and not gap.matches and gap.named_by.search(words)
            if is_named and self._is_in(name, body):
                return name
        return ""

    def _optional(self, body: Mapping[str, Any]) -> list[str]:
        """Return the features of a body that requests may always omit."""
        return [
            name
            for name, gap in self.table.items()
            if gap.optional and name not in self.names and body and self._is_in(name, body)
        ]

    def _is_in(self, name: str, body: Mapping[str, Any], *, images: bool = False) -> bool:
        return images if name == IMAGES else self.table[name].fit({**body}) != body

    def _was_omitted(self, name: str, gaps: Collection[str], whole: Mapping[str, Any]) -> bool:
        return name in gaps and (name == IMAGES or self._is_in(name, whole))

    def _add_suspects(self, names: Iterable[str]) -> list[str]:
        new = [name for name in names if name not in self.names]
        self._fresh += new
        self._trial = "" if self._trial in new else self._trial
        self._suspects += [name for name in new if name not in self._suspects]
        return new

    def _row(self) -> dict[str, Any]:
        row = _read(self._path).get(self._key)
        return row if isinstance(row, dict) else {}

    def _keep(self) -> None:
        """Write the findings to the file. Ignore errors: they are then learned again in the next
        run.
        """
        if self._path is None:
            return
        rows = _read(self._path)
        rows[self._key] = {
            "gaps": {name: int(at) for name, at in self._known.items()},
            "suspects": [name for name in self._suspects if name not in self._fresh],
            "seen": [*self.supported],
            "window": [self._window[0], int(self._window[1])] if self._window else None,
        }
        try:
            make_private_folder(self._path.parent)
            replace_file(self._path, json.dumps(rows, indent=1).encode(), durable=False)
        except OSError:
            return


def _dates(found: object) -> dict[str, float]:
    """Return the dates of stored gaps by name, in Unix time."""
    pairs = found.items() if isinstance(found, dict) else ()
    return {name: at for name, at in pairs if isinstance(at, int | float)}


def _names(found: object) -> list[str]:
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _window_in(row: Mapping[str, Any], now: float) -> tuple[int, float] | None:
    """Return the stored window and its date, None if it has to be tested again."""
    try:
        tokens, at = row["window"]
        is_valid = type(tokens) is int and tokens > 0 and 0 <= now - at <= RETESTED_SECONDS
    except (KeyError, TypeError, ValueError):
        return None
    return (tokens, at) if is_valid else None


def _read(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        found = json.loads(read_below(path.parent, path.name, MAX_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
