"""What a server does not take of the Messages API, learned from its refusals.

Ollama, LM Studio, llama.cpp, vLLM and gateways serve `/v1/messages`, each without a part of it. The
first request that is refused for such a part is made again without it, and the same server gets no
such request again: what was learned of a server and a model is kept in the state directory. Of the
public API it is learned that a model takes no images, or that it does not summarise by itself; its
other refusals are defects of ours.
"""

import json
import re
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from ....tools.system.files import make_private_folder, read_below, replace_file
from ...context.compaction_block import COMPACTION, begins_with_block, with_plain_text
from ...context.view import THINKING
from ...errors import PromptTooLong, RequestRejected
from ...session.entries import Block
from ..address import host_of
from ..refusals import says_no_images

API_HOST = "api.anthropic.com"
FILE_NAME = "servers.json"  # in the state directory
MAX_FILE_BYTES = 1 << 20
KEPT_SECONDS = 30 * 86_400  # after which a server is tried with all of it again

IMAGES = "images"
# What each gap is, for people; in the order in which they are tried where a server names none.
GAPS = {
    "cache": "no cache_control",
    "effort": "no output_config",
    "thinking": "no thinking",
    "blocks": "text in strings only, not in blocks",
    IMAGES: "no images",
    COMPACTION: "no compaction of its own",
}
_GUESSED = ("cache", "effort", "thinking", "blocks")
_STATUSES = (400, 404, 422, 500, 501)
_NAMED_BY = {
    "cache": re.compile(r"cache_control|ephemeral|prompt caching", re.I),
    "effort": re.compile(r"output_config|\beffort\b", re.I),
    "thinking": re.compile(r"\bthinking\b|redacted_thinking|adaptive", re.I),
    "blocks": re.compile(
        r"(?:content|system|messages).*(?:expected|must be|valid|should be) (?:an? )?str(?:ing)?\b|"
        r"unexpected list|invalid type: sequence|cannot unmarshal array",
        re.I,
    ),
}
# Of a request for a compaction block, and of one that holds one. What stands behind it is bound to
# it, so a block that does not count is told of as thinking with a wrong signature, too.
_NO_COMPACTION = re.compile(
    rf"{COMPACTION}|extra inputs|un(?:expected|known|recogni[sz]ed)|"
    r"not (?:permitted|allowed|supported)",
    re.I,
)
_NO_BLOCK = re.compile(
    rf"{COMPACTION}|signature|thinking|messages\W?0\b|first message|\broles?\b", re.I
)
_OF_ITS_USE = re.compile(r"signature|modified|must remain|maximum|at most|\bttl\b", re.I)
_SAYS_NOTHING = re.compile(
    r"(?:(?:error|bad request|malformed request|invalid[ _]request(?:[ _]error| body| data)?|"
    r"unprocessable (?:entity|content)|internal (?:server )?error)\W*)*",
    re.I,
)


class ServerGaps:
    """The gaps of one model on one server, by the names in `GAPS`."""

    def __init__(self, path: Path | None, url: str, model: str) -> None:
        """`path` is the file where they are kept, None for nowhere; one that cannot be read has
        nothing."""
        self._path, self._key = path, f"{url.rstrip('/')} {model}"
        self.is_public = not url or host_of(url) == API_HOST
        self.names = tuple(self._kept("gaps"))
        self.seen = tuple(self._kept("seen"))  # of those, what the server was seen to take
        self._guessed: list[str] = []  # that no request has proved yet
        self._is_proved = False  # whether the server has taken a request of this process

    def learn(self, refusal: RequestRejected, body: Mapping[str, Any]) -> str:
        """Return the gap for which a request with this `body` was refused, known from now on; ""
        for none, so that the refusal stands. Where the server names nothing, they are tried one
        after another until it takes a first request."""
        if refusal.status not in _STATUSES or isinstance(refusal, PromptTooLong):
            return ""
        if says_no_images(refusal.message):
            return self.add(IMAGES)
        if COMPACTION not in self.names and _is_about_compaction(refusal.message, body):
            return self.add(COMPACTION)
        if self.is_public:
            return ""
        here = [
            gap for gap in _GUESSED
            if gap not in self.names and not _lacks_nothing(body, gap)
        ]  # fmt: skip
        words = refusal.message.rpartition("): ")[2]
        if _OF_ITS_USE.search(words):  # which it takes, and this request has it wrong
            return ""
        named = next((gap for gap in here if _NAMED_BY[gap].search(words)), "")
        if named:
            return self.add(named)
        if self._is_proved or not here or not _SAYS_NOTHING.fullmatch(words):
            self._forget_guesses()
            return ""
        self._guessed.append(here[0])
        self.names = (*self.names, here[0])
        return here[0]

    def prove(self) -> None:
        """Note that the server took a request: what was guessed holds."""
        self._is_proved = True
        if self._guessed:
            self._guessed = []
            self._keep()

    def _forget_guesses(self) -> None:
        self.names = tuple(name for name in self.names if name not in self._guessed)
        self._guessed = []

    def add(self, name: str) -> str:
        """Keep a gap; return its name, "" for one that is known."""
        if name in self.names:
            return ""
        self.names = (*self.names, name)
        self._keep()
        return name

    def drop(self, name: str) -> None:
        """Forget a gap that the server does not have."""
        if name in self.names:
            self.names = tuple(each for each in self.names if each != name)
            self._keep()

    @property
    def takes_compaction_block(self) -> bool:
        """Whether the server takes a compaction block in the messages, as far as is known. One that
        was never seen to make one might leave it out, and the model would know nothing."""
        return COMPACTION not in self.names and (self.is_public or COMPACTION in self.seen)

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
        return [name for name in row[what] if name in GAPS]

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


def fitted(body: Mapping[str, Any], gaps: Collection[str]) -> dict[str, Any]:
    """Return the body of a request without what a server does not take."""
    out = dict(body)
    if COMPACTION in gaps:
        out.pop(COMPACTION, None)
        out["messages"] = with_plain_text(out["messages"])
    if "effort" in gaps:
        out.pop("output_config", None)
    if "thinking" in gaps:
        out.pop("thinking", None)
        out["messages"] = [_with_blocks(m, _without_thinking) for m in out["messages"]]
    if "cache" in gaps:
        for name in {"system", "tools"} & out.keys():
            out[name] = _unmarked(out[name])
        out["messages"] = [_with_blocks(m, _unmarked) for m in out["messages"]]
    if "blocks" in gaps:
        out["messages"] = [_with_blocks(m, _as_text) for m in out["messages"]]
        if "system" in out:
            out["system"] = _as_text(out["system"])
    return out


def _is_about_compaction(message: str, body: Mapping[str, Any]) -> bool:
    """Tell whether a request was refused for a compaction block that it asks for or holds."""
    words = message.rpartition("): ")[2]
    if COMPACTION in body:
        return bool(_NO_COMPACTION.search(words))
    return begins_with_block(body["messages"]) and bool(_NO_BLOCK.search(words))


def _lacks_nothing(body: Mapping[str, Any], gap: str) -> bool:
    """Tell whether a request has nothing that a gap would leave out."""
    return fitted(body, (gap,)) == body


def _with_blocks(message: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    return {**message, "content": change(message["content"])}


def _without_thinking(blocks: list[Block]) -> list[Block]:
    return [block for block in blocks if block["type"] not in THINKING]


def _unmarked(blocks: list[Block]) -> list[Block]:
    return [{k: v for k, v in block.items() if k != "cache_control"} for block in blocks]


def _as_text(blocks: list[Block]) -> str | list[Block]:
    """Return blocks as one string where all are text; of results in them the same."""
    if all(block.get("type") == "text" for block in blocks):
        return "\n\n".join(block["text"] for block in blocks)
    return [
        {**block, "content": _as_text(block["content"])}
        if block.get("type") == "tool_result" and isinstance(block["content"], list)
        else block
        for block in blocks
    ]
