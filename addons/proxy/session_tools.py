"""Read-only tools that give other agents access to a project's recorded sessions."""

import asyncio
import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from ...api.base import ToolError, dataclass
from ...api.context import session_intent
from ...api.files import KeptText
from ...api.record import (
    Entries,
    Project,
    find_session,
    images_of_ref,
    locate_log,
    search_sessions,
    text_of_ref,
)
from ...api.text import shorten
from ...api.tools import (
    MAX_CHARS,
    Context,
    Output,
    Params,
    Refused,
    Tool,
    find_ripgrep,
    full_ref,
    images_of_entry,
    missing_ripgrep,
    nothing_found,
    part_of_text,
    passages_text,
    search_text,
)

MAX_PASSAGES = 8
MAX_MATCHES = 50
SEARCH_TIMEOUT_S = 30.0
IN_USE_S = 3_600.0  # time since the newest entry in which a session counts as in use
MAX_NAMED = 5  # sessions listed in an error
MAX_SHOWN_CHARS = 80  # of an unknown ID or ref in an error

SessionId = Annotated[str | None, Field(description="ID; without it the newest session here")]


@dataclass(frozen=True, slots=True)
class ServedSessions:
    """The sessions of one project, and the default session for calls without an ID."""

    project: Project
    fixed: Path | None = None  # log of the default session; None for the newest

    @property
    def folder(self) -> Path:
        return locate_log(self.fixed)[0] if self.fixed else self.project.folder

    def log(self, id: str | None) -> Path:
        """Return the log of a session or subagent. Raises ToolError if it does not exist."""
        if id is not None:
            if found := find_session(self.folder, id):
                return found
            raise ToolError(
                f"This project has no session {shorten(id, MAX_SHOWN_CHARS)!r}. `search` shows the "
                "IDs of sessions; without an ID it is the newest session."
            )
        logs = [self.fixed] if self.fixed else self.project.logs()
        if not logs:
            raise ToolError(
                f"No session of {self.project.cwd} is recorded yet, so there is nothing to read. "
                "The first message to ctxagent, or through its proxy, begins one."
            )
        return logs[0]

    def check_one_in_use(self, ref: str) -> None:
        """Raise ToolError if a ref without an ID is ambiguous: several sessions were written to in
        the last IN_USE_S seconds.
        """
        if self.fixed:
            return
        since = time.time() - IN_USE_S
        used = [log for log in self.project.logs() if log.stat().st_mtime > since]
        if len(used) > 1:
            names = ", ".join(f"{locate_log(log)[1]}{ref}" for log in used[:MAX_NAMED])
            raise ToolError(
                f"{len(used)} sessions of this project are in use, so {ref} may be of each. Name "
                f"the session: {names}. `search` shows what is in which."
            )


class RecallEntryParams(Params):
    ref: Annotated[int | str, WithJsonSchema({"type": "string"})] = Field(
        description="#42, SESSION#42 or a file that the session keeps"
    )
    session: SessionId = None
    offset: int = Field(0, ge=0, description="Characters to skip")
    limit: int = Field(MAX_CHARS, ge=1, le=MAX_CHARS)
    pattern: str | None = Field(
        None, description="Regular expression: show its matches, with their offsets"
    )


class RecallEntryTool(Tool[RecallEntryParams]):
    name = "recall"
    description = (
        "Returns the whole text of an entry that was shortened, cleared or summarised, by its "
        f"number #N: {MAX_CHARS:,} characters at a time, or {MAX_MATCHES} matches of a pattern."
    )
    effect = "none"
    Params = RecallEntryParams

    def __init__(self, sessions: ServedSessions) -> None:
        self._sessions = sessions

    async def run(self, params: RecallEntryParams, context: Context) -> Output:
        ref, found = await asyncio.to_thread(self._find, params)
        if isinstance(found, Output):
            return found
        if params.pattern:
            return Output(await _matches(params.pattern, ref, found))
        output = await asyncio.to_thread(part_of_text, ref, found, params.offset, params.limit)
        return replace(output, text=f"[{ref}]\n{output.text}")

    def _find(self, params: RecallEntryParams) -> tuple[str, KeptText | Output]:
        """Return the ref with its session, and its text or image. Raises ToolError."""
        ref = full_ref(str(params.ref), params.session)
        if ref.startswith("#"):
            self._sessions.check_one_in_use(ref)
        log = self._sessions.log(ref.rpartition("#")[0] or params.session)
        folder, session = locate_log(log)
        ref = full_ref(ref, session)
        text = text_of_ref(folder, session, ref)
        images = () if params.pattern else images_of_ref(folder, session, ref)
        if output := images_of_entry(ref, images, text, params.offset, params.limit):
            return ref, output
        if text:
            return ref, text
        last = next((entry.seq for entry in reversed(Entries(log))), 0)
        raise ToolError(
            f"There is no text {shorten(ref, MAX_SHOWN_CHARS)}. The entries of session {session} "
            f"are #1 to #{last}; `search` finds them by their words."
        )


async def _matches(pattern: str, ref: str, text: KeptText) -> str:
    """Return the first matches of a pattern in a text, each with its offset. Raises ToolError."""
    path = os.environ.get("PATH")
    ripgrep = find_ripgrep(path)
    if ripgrep is None:
        raise ToolError(f"{missing_ripgrep(path)}. Without it, use offset and limit.")
    shown = repr(shorten(pattern, MAX_SHOWN_CHARS))
    lines, shown_to, more = list[str](), 0, False
    try:
        async with (
            asyncio.timeout(SEARCH_TIMEOUT_S),
            contextlib.aclosing(search_text(ripgrep, pattern, text)) as matches,
        ):
            async for match in matches:
                if more := len(lines) == MAX_MATCHES:
                    break
                if match.start >= shown_to:  # else the previous excerpt includes it
                    lines.append(f"{match.start}: {match.excerpt}")
                    shown_to = match.excerpt_end
    except Refused as refusal:
        raise ToolError(f"ripgrep refuses the pattern {shown}: {refusal}") from None
    except ValueError as error:
        raise ToolError(f"The pattern {shown} cannot be searched for: {error}.") from None
    except TimeoutError:
        raise ToolError(
            f"The search for {shown} in {ref} took more than {SEARCH_TIMEOUT_S:g} s. Use a simpler "
            "pattern, or offset and limit."
        ) from None
    except OSError as error:
        raise ToolError(f"{ripgrep.program} cannot be started: {error.strerror}.") from error
    if not lines:
        return f"No match of {shown} in {ref}."
    end = [f"[more matches after offset {shown_to}: use a narrower pattern]"] if more else []
    return "\n".join([f"[{ref}, offset: match]", *lines, *end])


class SearchSessionsParams(Params):
    query: str = Field(description="Names, numbers or words as they were; no syntax")
    session: str | None = Field(None, description="ID, to search one session")


class SearchSessionsTool(Tool[SearchSessionsParams]):
    name = "search"
    description = (
        "Full-text search in everything that the sessions of this project recorded, also what has "
        f"left the context. At most {MAX_PASSAGES} passages with refs for `recall`; among equal "
        "matches, the newest first."
    )
    effect = "none"
    Params = SearchSessionsParams

    def __init__(self, sessions: ServedSessions) -> None:
        self._sessions = sessions

    async def run(self, params: SearchSessionsParams, context: Context) -> Output:
        return Output(await asyncio.to_thread(self._found, params.query, params.session))

    def _found(self, query: str, session: str | None) -> str:
        folder, here = locate_log(self._sessions.log(session))
        scope = "session" if session else "project"
        findings = search_sessions(folder, here, query, scope, limit=MAX_PASSAGES)
        if not findings.passages:
            return f"{nothing_found(query, findings)} Try other words."
        # Refs need the session ID, because the newest session may change before `recall`.
        passages = [replace(each, ref=full_ref(each.ref, here)) for each in findings.passages]
        return passages_text(replace(findings, passages=passages))


class SessionIntentParams(Params):
    session: SessionId = None


class SessionIntentTool(Tool[SessionIntentParams]):
    name = "session_intent"
    description = (
        "What the user asked for in a session: their messages verbatim, the intent in the newest "
        "summary, changed files; about 10,000 tokens at most."
    )
    effect = "none"
    Params = SessionIntentParams

    def __init__(self, sessions: ServedSessions) -> None:
        self._sessions = sessions

    async def run(self, params: SessionIntentParams, context: Context) -> Output:
        return Output(await asyncio.to_thread(self._intent, params.session))

    def _intent(self, session: str | None) -> str:
        log = self._sessions.log(session)
        text = session_intent(Entries(log))
        return f"[session {locate_log(log)[1]}]\n{text or 'The user has not said anything yet.'}"


def session_tools(sessions: ServedSessions) -> dict[str, Tool[Any]]:
    """Return all tools of this module by name."""
    made = (cls(sessions) for cls in (RecallEntryTool, SearchSessionsTool, SessionIntentTool))
    return {tool.name: tool for tool in made}
