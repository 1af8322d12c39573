"""Logs of proxy sessions, in their real format, with times chosen by the test.

made = Proxied("20260101-080000-00000a")
made.words("Fix it").reply(written=9_000).later(10).reply(read=9_000, written=500)
log = made.write(project)
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from ctxagent.agent.models.catalog import cost
from ctxagent.agent.session.entries import (
    Assistant,
    Entry,
    Mask,
    Note,
    Revert,
    Session,
    Summary,
    ToolResult,
    Usage,
    User,
)
from ctxagent.agent.session.log import LOG_NAME, encode_line
from ctxagent.agent.session.store import Project

MODEL = "claude-opus-4-8"
AGENT = "claude-cli/2.1.197 (external, cli)"


@dataclass
class Proxied:
    id: str
    model: str = MODEL
    client: dict[str, Any] = field(
        default_factory=lambda: {"protocol": "messages", "upstream": "u", "agent": AGENT}
    )
    entries: list[Entry] = field(default_factory=list)
    now: datetime = datetime(2026, 1, 1, 8, tzinfo=UTC)

    def __post_init__(self) -> None:
        if self.entries:  # a fork of the session with these entries
            return
        self.add(
            Session(
                id=self.id, cwd="/p", version="1", model=self.model, client=self.client,
                system="Be brief.", tools=[],
            )
        )  # fmt: skip

    @property
    def last(self) -> int:
        return len(self.entries)

    def add(self, entry: Entry) -> Self:
        at = self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.entries.append(replace(entry, seq=self.last + 1, at=at))
        return self

    def later(self, seconds: float) -> Self:
        self.now += timedelta(seconds=seconds)
        return self

    def words(self, text: str, source: str = "person") -> Self:
        return self.add(User(content=text, source=source))

    def reply(
        self, *, read: int = 0, written: int = 0, plain: int = 0, output: int = 100,
        saved: int | None = 0, purpose: str = "turn",
    ) -> Self:  # fmt: skip
        """Add a reply of the server ten seconds later. `saved=None` means a reply to a request from
        the proxy itself.
        """
        usage = Usage(plain, read, written, output)
        self.later(10)
        return self.add(
            Assistant(
                content=[{"type": "text", "text": "Done."}],
                usage=usage.to_json(),
                stop_reason="end_turn",
                model=self.model,
                purpose=purpose,
                message_id=f"msg_{self.id}_{self.last}",
                cost_usd=cost(self.model, usage),
                request={} if saved is None else {"client": {}, "saved": saved},
            )
        )

    def result(self, text: str = "ok", saved: int = 0) -> Self:
        """Add a result; `saved` are the context tokens saved by its file."""
        details = {"tokens_saved": saved} if saved else {}
        return self.add(
            ToolResult(tool_use_id="t", content=text, details=details, offloaded="offloaded/r.md")
        )

    def mask(self, before: int, after: int, count: int = 3, trigger: str = "it pays") -> Self:
        targets = [{"seq": 1, "tool_use_id": str(n), "stub": "gone"} for n in range(count)]
        return self.add(
            Mask(layer="microcompact", targets=targets, tokens_before=before, tokens_after=after,
                 trigger=trigger)
        )  # fmt: skip

    def summary(self, before: int, after: int) -> Self:
        return self.add(
            Summary(document={"intent": "x"}, text="x", covers=[1, 2], keep_from=self.last,
                    tokens_before=before, tokens_after=after, trigger="HOOK-CTX-003: 85%")
        )  # fmt: skip

    def revert(self, target: int) -> Self:
        return self.add(Revert(target=target, reason="taken back by the user"))

    def note(self, text: str, topic: str = "proxy") -> Self:
        return self.add(Note(topic=topic, text=text))

    def data(self, start: int = 0) -> bytes:
        return b"".join(map(encode_line, self.entries[start:]))

    def path(self, project: Project) -> Path:
        return project.folder / "sessions" / self.id / LOG_NAME

    def write(self, project: Project) -> Path:
        log = self.path(project)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(self.data())
        return log
