"""Find the session that a request continues, or start a new session.

A session is recognised by its history: the request's messages begin with those of the session. A
request that diverges from the history continues a fork of the session.
"""

import os
import shutil
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ...api.base import LogDamaged, dataclass, regex
from ...api.context import Policy, fold
from ...api.guard import redaction_for
from ...api.models import DEFAULT_LIMITS, known_limits
from ...api.record import (
    SEARCH_TOOL,
    Assistant,
    Entries,
    Entry,
    Log,
    Note,
    Project,
    Session,
    conversation_text,
)
from .bodies.base import BodyFormat, Json, Preamble
from .history import PROXY_TOPIC, Digests, batches_of, common_batches
from .host import ProxyHost
from .session import EDITING_STOPPED, ProxySession

MAX_OPEN_SESSIONS = 64
MAX_SEARCHED_LOGS = 200  # per project, newest first, for sessions of earlier processes
MAX_READ_LOGS = 8  # per first message, newest first
MAX_UNRECORDED = 256  # of conversations without tools that are not recorded
_HEAD_BYTES = 4_096  # of a log; contains the client of the session
_CLIENT = regex(rb'"client": \{"first": "(\w+)"')


def for_clients(policy: Policy) -> Policy:
    """Return the policy for clients. Replies belong to the client, so search results in replies are
    not cleared and calls are not outlined. An input is truncated only if the text is on disk,
    because the client's model may have no tool to read the log.
    """
    tools = tuple(name for name in policy.clear_tools if name != SEARCH_TOOL)
    return replace(policy, clear_tools=tools, truncate="persisted", outline=False)


@dataclass
class Conversations:
    """The sessions of one proxy."""

    project: Project
    policy: Policy
    summaries: bool = True
    window: int | None = None  # tokens, set by the user
    open: list[ProxySession] = field(default_factory=list)  # sorted by last use
    _unrecorded: deque[list[str]] = field(default_factory=lambda: deque(maxlen=MAX_UNRECORDED))
    _closed: dict[str, list[Path]] = field(default_factory=dict)  # by first digest, newest first

    def __post_init__(self) -> None:
        self.policy = for_clients(self.policy)
        for log in self.project.logs()[:MAX_SEARCHED_LOGS]:
            if first := _first_digest(log):
                self._closed.setdefault(first, []).append(log)

    async def find(
        self, format: BodyFormat, messages: Sequence[Json], preamble: Preamble, model: str,
        client: Mapping[str, Any],
    ) -> ProxySession | None:  # fmt: skip
        """Return the session that a request continues, a fork, or a new session. Return None for a
        request that is not recorded. Raises CtxagentError.
        """
        idle = [session for session in self.open if not session.lock.locked()]
        for oldest in idle[:-MAX_OPEN_SESSIONS]:
            await self._close(oldest)
        digests = Digests(format, messages)
        found = self._next_of_open(format, digests, preamble)
        if found is None:
            search = self._next_of_logs if _has_reply(format, messages) else self._unanswered
            found = search(format, digests, model)
        if found is None and (preamble.tools or self._was_seen(digests)):
            client = {"first": digests.of(0).whole, **client}
            found = self._session(format, Log(self.project.new_log()), model, client)
        if found is None:
            return None
        if found in self.open:
            self.open.remove(found)
        self.open.append(found)
        return found

    def closest(
        self, format: BodyFormat, messages: Sequence[Json]
    ) -> tuple[ProxySession, int] | None:
        """Return the open session that shares the most messages with a request, and their
        number.
        """
        digests = Digests(format, messages)
        found = [(s, s.common(digests)) for s in self._open(format)]
        best = max(found, key=lambda each: each[1], default=None)
        return best if best and best[1] else None

    def repeated(self, format: BodyFormat, messages: Sequence[Json]) -> ProxySession | None:
        """Return the open session for a request without new messages: a retry of the client, or a
        request that keeps the cache warm.
        """
        digests, count = Digests(format, messages), len(messages)
        for session in self._open(format):
            is_older = len(session.known) > count or session.pending is not None
            if is_older and session.common(digests) == count and _has_reply(format, messages):
                return session
        return None

    @asynccontextmanager
    async def close_on_error(self, session: ProxySession) -> AsyncIterator[None]:
        """Close the session if the block fails. Its log keeps everything recorded so far."""
        with ExitStack() as undo:
            undo.callback(self._forget, session)
            yield
            undo.pop_all()

    async def close(self) -> None:
        """Close all sessions."""
        for session in [*self.open]:
            await self._close(session)

    # The search

    def _open(self, format: BodyFormat) -> Iterator[ProxySession]:
        """Yield the open sessions of a protocol, newest first. Close a session whose log another
        process has changed; a later request opens it again.
        """
        for session in [*reversed(self.open)]:
            log = session.host.log
            if log.last_seq and log.unchanged_state is None:
                self._forget(session)
            elif session.format is format:
                yield session

    def _next_of_open(
        self, format: BodyFormat, digests: Digests, preamble: Preamble
    ) -> ProxySession | None:
        """Return the open session that a request continues."""
        for session in self._open(format):
            count = session.common(digests)
            if count < len(session.known) or not session.is_followed_by(digests.messages):
                continue
            view = session.host.view
            is_same = (preamble.system, preamble.tools) == (view.system, view.tools)
            if is_same or _has_reply(format, digests.messages[:count]):
                return session
        return None

    def _next_of_logs(
        self, format: BodyFormat, digests: Digests, model: str
    ) -> ProxySession | None:
        """Return the session of an earlier process that a request continues, or a fork of the
        session with most of its messages.
        """
        opened = {session.host.log.path for session in self.open}
        paths = [s.host.log.path for s in self._open(format) if s.common(digests)]
        paths += self._closed.get(digests.of(0).whole, [])[:MAX_READ_LOGS]
        best: tuple[int, int, Path] | None = None
        for path in paths:
            entries = [*Entries(path)]
            batches, pending = batches_of(entries)
            matched = common_batches(batches, digests, pending)
            count = sum(len(batch.digests) for batch in matched)
            has_reply = _has_reply(format, digests.messages[:count])
            if not has_reply and pending is None:
                continue
            if len(matched) == len(batches) and path not in opened:
                session = self._resumed(format, path, digests, model)
                if session is None:
                    continue
                if session.is_followed_by(digests.messages):
                    return session
                session.host.log.close()
            if not has_reply:  # only the first task is equal
                continue
            upto = batches[len(matched)].before if len(matched) < len(batches) else None
            if upto is None:
                upto = pending.seq - 1 if pending else entries[-1].seq
            if best is None or count > best[0]:
                best = count, upto, path
        if best is None:
            return None
        fork = self.project.fork(best[2], best[1])
        session = self._resumed(format, fork, digests, model)
        if session is None:
            shutil.rmtree(fork.parent, ignore_errors=True)
        return session

    def _unanswered(self, format: BodyFormat, digests: Digests, model: str) -> ProxySession | None:
        """Return a session of an earlier process whose first request is this one and was never
        answered.
        """
        opened = {session.host.log.path for session in self.open}
        for path in self._closed.get(digests.of(0).whole, [])[:MAX_READ_LOGS]:
            if path in opened or any(isinstance(entry, Assistant) for entry in Entries(path)):
                continue
            batches, pending = batches_of(Entries(path))
            if len(common_batches(batches, digests, pending)) == len(batches):
                return self._resumed(format, path, digests, model)
        return None

    def _was_seen(self, digests: Digests) -> bool:
        """Return True if messages continue an earlier request that was not recorded. Otherwise
        remember them.
        """
        made = [digests.of(index).whole for index in range(len(digests.messages))]
        if any(len(seen) < len(made) and made[: len(seen)] == seen for seen in self._unrecorded):
            return True
        self._unrecorded.append(made)
        return False

    # Opening and closing

    def _resumed(
        self, format: BodyFormat, path: Path, digests: Digests, model: str
    ) -> ProxySession | None:
        """Open the session in a log. Return None if the log is damaged or does not match the
        messages. Raises CtxagentError.
        """
        try:
            log = Log.open(path)
        except LogDamaged:
            return None
        with log.closed_on_error():
            entries = [*log.entries()]
            session = self._session(format, log, model, _client_of(entries), entries)
            session.host.view = fold(entries)
            for entry in entries:
                session.host.ledger.add(entry)
                session.editing_stopped = session.editing_stopped or _why_editing_stopped(entry)
            batches, session.pending = batches_of(entries)
            session.host.last_call = _last_call(entries)
            if session.resume(digests, batches):
                log.release()
                return session
        log.close()
        return None

    def _session(
        self, format: BodyFormat, log: Log, model: str, client: Mapping[str, Any],
        entries: Sequence[Entry] = (),
    ) -> ProxySession:  # fmt: skip
        log.redact = redaction_for(os.environ).clean
        log.keep_conversation(sum(len(conversation_text(entry)) for entry in entries))
        host = ProxyHost(log, model, self.window_of(model), summaries=self.summaries)
        return ProxySession(format, host, self.policy, self.project.cwd, dict(client))

    def window_of(self, model: str) -> int:
        """Return the context window of a model in tokens."""
        return self.window or (known_limits(model) or DEFAULT_LIMITS).window

    def _forget(self, session: ProxySession) -> None:
        """Close a session. A later request can open it again."""
        if session in self.open:
            self.open.remove(session)
        session.host.log.close()
        if session.known:
            path = session.host.log.path
            closed = self._closed.setdefault(session.known[0].digest.whole, [])
            closed[:] = [path, *(each for each in closed if each != path)]

    async def _close(self, session: ProxySession) -> None:
        await session.engine.close()
        self._forget(session)


def _client_of(entries: Sequence[Entry]) -> Mapping[str, Any]:
    """Return what a log has about its client."""
    return next((e.client for e in entries if isinstance(e, Session) and e.client), {})


def _has_reply(format: BodyFormat, messages: Sequence[Json]) -> bool:
    """Return True if one of the messages is from a model."""
    return any(message.get("role") not in format.other_roles for message in messages)


def _why_editing_stopped(entry: Entry) -> str:
    """Return the reason if an entry records that the session is no longer edited, else ""."""
    is_said = (
        isinstance(entry, Note) and entry.topic == PROXY_TOPIC and EDITING_STOPPED in entry.data
    )
    return str(getattr(entry, "text", "")) if is_said else ""


def _last_call(entries: Sequence[Entry]) -> float | None:
    """Return the Unix time of the newest reply, None if there is none."""
    replies = (e for e in reversed(entries) if isinstance(e, Assistant) and e.purpose == "turn")
    newest = next(replies, None)
    return datetime.fromisoformat(newest.at).timestamp() if newest else None


def _first_digest(log: Path) -> str:
    """Return the digest of the first message in a client's session, "" for any other session."""
    with suppress(OSError), log.open("rb") as file:
        if found := _CLIENT.search(file.read(_HEAD_BYTES)):
            return found[1].decode()
    return ""
