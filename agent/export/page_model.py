"""What a page must know of a session before it can tell any part of it: which result answers which
call, what was taken back, what stands where; and how much text there is room for."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..session.entries import Assistant, Entry, Mask, Revert, SubagentRun, ToolResult, reverted_seqs
from ..session.log import Redact, without_redaction
from ..session.store import read_kept_text
from .html import Html, element, folded, html, joined
from .markdown_html import REF

LONGEST = 256 * 1024  # characters of one text
_HELD = re.compile(r"offloaded/[^/]+")  # a garbled log may name anything


@dataclass(slots=True)
class Room:
    """Characters of offloaded texts that the page may still take: past that it shows what the model
    saw, and the name of the file."""

    left: int = 32 * 1024 * 1024


@dataclass(slots=True)
class Story:
    """The entries of one log in their order. `prefix` begins its anchors, `depth` counts the logs
    around this one: those of the agents that started it. `redact` is for those within."""

    folder: Path
    entries: Sequence[Entry]
    room: Room = field(default_factory=Room)
    prefix: str = ""
    depth: int = 0
    redact: Redact = without_redaction
    answers: dict[tuple[int, str], ToolResult] = field(default_factory=dict)
    answering: set[int] = field(default_factory=set)  # places of results that stand with a call
    agents: dict[str, tuple[int, SubagentRun]] = field(
        default_factory=dict
    )  # number, where it starts
    newest: dict[str, SubagentRun] = field(default_factory=dict)
    stubbed: dict[int, list[int]] = field(default_factory=dict)  # by entry: the masks that stand
    reverts: dict[int, int] = field(default_factory=dict)
    _seqs: set[int] = field(default_factory=set)
    _used: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        asked: dict[str, int] = {}
        gone = reverted_seqs(self.entries)
        for place, entry in enumerate(self.entries):
            self._seqs.add(entry.seq)
            if isinstance(entry, Assistant) and entry.purpose == "turn":
                used = (b for b in entry.content if b.get("type") == "tool_use")
                asked.update((str(block.get("id")), entry.seq) for block in used)
            elif isinstance(entry, ToolResult) and entry.tool_use_id in asked:
                self.answers[asked.pop(entry.tool_use_id), entry.tool_use_id] = entry
                self.answering.add(place)
            elif isinstance(entry, SubagentRun):
                self.agents.setdefault(entry.id, (len(self.agents) + 1, entry))
                self.newest[entry.id] = entry
            elif isinstance(entry, Mask) and entry.seq not in gone:
                for target in entry.targets:
                    if isinstance(target.get("seq"), int):
                        self.stubbed.setdefault(target["seq"], []).append(entry.seq)
            elif isinstance(entry, Revert) and entry.target in gone and entry.seq not in gone:
                self.reverts[entry.target] = entry.seq

    @property
    def began(self) -> str:
        """When; "" for a story without entries."""
        return self.entries[0].at if self.entries else ""

    def find(self, seq: int) -> str | None:
        """The address of an entry in the page; None for one that is not there."""
        return f"#{self.prefix}e{seq}" if seq in self._seqs else None

    def anchor(self, seq: int) -> str:
        """The id of an entry that is told now. Numbers that a garbled log has twice stay apart."""
        self._used[seq] += 1
        again = f"-{self._used[seq]}" if self._used[seq] > 1 else ""
        return f"{self.prefix}e{seq}{again}"

    def link(self, seq: int) -> Html:
        address = self.find(seq)
        return element("a", f"#{seq}", href=address, class_="ref") if address else html(f"#{seq}")

    def referring(self, text: str) -> Html:
        """A text in which refs lead to their entries."""
        parts, end = [], 0
        for match in REF.finditer(text):
            parts += [html(text[end : match.start()]), self.link(int(match[1]))]
            end = match.end()
        return joined([*parts, html(text[end:])])

    def whole(self, path: str | None) -> str | None:
        """The text of an offloaded file. None for no file, one that is gone, or no room."""
        if path is None or not _HELD.fullmatch(path):
            return None
        text = read_kept_text(self.folder / path)
        if text is None or min(len(text), LONGEST) > self.room.left:
            return None
        self.room.left -= min(len(text), LONGEST)
        return str(self.redact(ToolResult(tool_use_id="", content=text)).content)


def cut(text: str, where: str) -> str:
    """A text of any length, its middle left out where it is too long; `where` has all of it."""
    if len(text) <= LONGEST:
        return text
    head, tail = LONGEST * 3 // 4, LONGEST // 4
    missing = len(text) - head - tail
    return f"{text[:head]}\n\n[… {missing:,} characters are left out; {where} …]\n\n{text[-tail:]}"


def lines(text: str) -> str:
    count = text.count("\n") + (not text.endswith("\n"))
    return f"{count:,} line{'s' * (count != 1)}"


def data(value: Any) -> Html:
    """Any value of a log, as JSON."""
    try:
        text = json.dumps(value, ensure_ascii=False, indent=1)
    except RecursionError:  # laid out, it nests deeper than Python goes
        text = json.dumps(value, ensure_ascii=False)
    return element("pre", cut(text, "the log has all of it"))


def more(head: str, value: Any) -> str:
    """Any value, folded; nothing for an empty one."""
    return folded(head, data(value)) if value else ""
