"""What a list shows of the sessions of a project, kept beside them: a cache, for when there are
thousands. An entry counts as long as its log has the size and the time of change it had then. The
file may be deleted, and is made anew when it cannot be read.
"""

import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

NAME = "sessions.json"
VERSION = 1
SHAPE = [int, int, str, str, int, str, str]

# Size and time of change in nanoseconds, then title, last words, entries, branch and directory.
Card = tuple[int, int, str, str, int, str, str]


class Catalogue:
    """The cards of one project, by the names of its sessions."""

    def __init__(self, project: Path) -> None:
        self._path = project / NAME
        self._cards: dict[str, Any] = {}
        self.fresh = 0  # cards that are not in the file
        with suppress(OSError, ValueError, RecursionError):
            kept = json.loads(self._path.read_bytes())
            cards = kept.get("cards") if isinstance(kept, dict) else None
            if isinstance(cards, dict) and kept.get("v") == VERSION:
                self._cards = cards

    def get(self, name: str, size: int, changed: int) -> Card | None:
        """The card of a session whose log has this size and time of change."""
        card = self._cards.get(name)
        if not isinstance(card, list) or [*map(type, card)] != SHAPE:
            return None
        found: Card = tuple(card)
        return found if found[:2] == (size, changed) else None

    def put(self, name: str, card: Card) -> None:
        self._cards[name] = [*card]
        self.fresh += 1

    def save(self) -> None:
        """Write the cards of the sessions that there are. Where that cannot be done, the logs are
        read again next time."""
        part = self._path.with_name(f"{NAME}.{secrets.token_hex(4)}")
        with suppress(OSError):
            there = {path.name for path in self._path.with_name("sessions").iterdir()}
            cards = {name: card for name, card in self._cards.items() if name in there}
            text = json.dumps({"v": VERSION, "cards": cards})
            try:
                descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
                part.replace(self._path)
            finally:
                part.unlink(missing_ok=True)
        self.fresh = 0
