"""The data behind the tool Recall: texts by ref, and the search of the archive.

A ref is 42 or "#42" for an entry of this session. "SESSION#42" is an entry of another session of
the project, and "SESSION/agents/AGENT#42" an entry of a subagent. The path of a file in a session's
folder is also a ref.
"""

from pathlib import Path

from ....tools.base import Context, Findings, Passage
from ....tools.system.kept_text import KeptText
from ..log import LOG_NAME, find_entry
from ..store import entry_images, find_text, kept_text
from .index import CATCH_UP_S, SearchIndex
from .query import Hit, best_parts

_MAX_REF_DIGITS = 18
_MAX_PARTS = 6  # of one text that match a query
_MAX_SHOWN_ID_CHARS = 80  # of an unknown ID in the answer

_ENTRY_NAMES = {"user": "words to the agent", "assistant": "reply", "agent": "subagent"}
_SCOPES = {"session": "this session", "project": "all sessions of this project"}


def enable_recall(context: Context, folder: Path, log: Path) -> None:
    """Give a conversation access to its own past. `folder` is the project's, `log` the
    conversation's log.
    """
    here = log.parent.relative_to(folder / "sessions").as_posix()
    context.recall = lambda ref: text_of_ref(folder, here, ref)
    context.recall_images = lambda ref: images_of_ref(folder, here, ref)
    context.search = lambda query, scope: search_sessions(folder, here, query, scope)
    context.find_parts = lambda text, query: best_parts(text, query.split(), _MAX_PARTS)


def text_of_ref(folder: Path, here: str, ref: int | str) -> KeptText | None:
    """Return the whole text of a ref, or None if the project has none."""
    found = _log_and_seq(folder, here, ref)
    if found is not None:
        log, seq = found
        return find_text(log, seq) if log else None
    sessions = folder / "sessions"
    path = _inside(sessions, sessions / here / str(ref).strip())
    return None if path is None else kept_text(path.parent, path.name)


def images_of_ref(folder: Path, here: str, ref: int | str) -> list[bytes]:
    """Return the images of a ref, or [] if the project has none."""
    log, seq = _log_and_seq(folder, here, ref) or (None, 0)
    entry = find_entry(log, seq) if log else None
    return entry_images(entry, log.parent) if log and entry else []


def _log_and_seq(folder: Path, here: str, ref: int | str) -> tuple[Path | None, int] | None:
    """Return the log and the seq of a ref to an entry. The log is None if the session does not
    exist. Return None for any other kind of ref.
    """
    sessions = folder / "sessions"
    session, hash, seq = str(ref).strip().rpartition("#")
    if not (seq.isdecimal() and len(seq) <= _MAX_REF_DIGITS and (hash or not session)):
        return None
    own = sessions / here / LOG_NAME  # trusted, so not checked by `_inside`
    return find_session(folder, session) if session else own, int(seq)


def find_session(folder: Path, id: str) -> Path | None:
    """Return the log of a session or subagent of a project, or None."""
    return _inside(folder / "sessions", folder / "sessions" / id / LOG_NAME)


def search_sessions(
    folder: Path,
    here: str,
    query: str,
    scope: str,
    *,
    limit: int = 8,
    patience: float | None = CATCH_UP_S,
) -> Findings:
    """Search for the words of a query. `scope` is "session" for this session, "project" for all
    sessions with this one first, or a session ID.
    """
    index = SearchIndex(folder)
    if scope not in _SCOPES and not find_session(folder, scope):
        shown_id = scope[:_MAX_SHOWN_ID_CHARS]
        return Findings(searched=f"nothing: no session of this project has the id {shown_id}")
    session = {"session": here, "project": None}.get(scope, scope)
    found = index.search(query, session=session, limit=limit, patience=patience)
    hits = found.hits
    if scope == "project":
        own = index.search(query, session=here, limit=limit, patience=patience).hits
        hits = list(dict.fromkeys([*own[: limit // 2], *hits]))[:limit]
    searched = f"{_SCOPES.get(scope, f'session {scope}')}, {_size(found.size)}"
    if not found.is_whole:
        searched += f", of which {_size(found.indexed)} are indexed so far (ask again in a moment)"
    return Findings([to_passage(hit, here) for hit in hits], searched)


def to_passage(hit: Hit, here: str = "") -> Passage:
    what = _ENTRY_NAMES.get(hit.kind, hit.kind)
    if hit.kind == "tool_result":
        what = f"result of {hit.tool or 'a tool'}{', an error' if hit.is_error else ''}"
    elif hit.tool:
        what = f"{what} that calls {hit.tool}"
    ref = f"#{hit.seq}" if hit.session == here else f"{hit.session}#{hit.seq}"
    return Passage(ref, what, hit.at, hit.excerpt, hit.offset)


def _inside(sessions: Path, path: Path) -> Path | None:
    """Return the real path of a file, or None if it is outside the folder or not a file."""
    try:
        real = path.resolve()
        return real if real.is_relative_to(sessions.resolve()) and real.is_file() else None
    except (OSError, ValueError):
        return None


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count / 1e3:,.1f} kB"
