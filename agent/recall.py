"""What Recall is handed: texts by ref and the search of the archive, as plain data.

A ref is 42 or "#42" for an entry of this session, "SESSION#42" for one of another session of the
project (a subagent's is "SESSION/agents/AGENT"), or the path of a file that a session keeps.
"""

from pathlib import Path

from ..tools.base import Context, Findings, Passage
from .record.index import PATIENCE, Hit, Index
from .record.log import NAME
from .record.sessions import file_text, whole_text

__all__ = ["Passage", "equip", "find", "passage", "text_at"]

_LONGEST = 18  # digits of a ref
_SHOWN = 80  # characters of an id that is none, in the answer

_WHAT = {"user": "words to the agent", "assistant": "reply", "agent": "subagent"}
_SCOPES = {"session": "this session", "project": "all sessions of this project"}


def equip(context: Context, folder: Path, log: Path) -> None:
    """Give a conversation its way back; `folder` is the project's, `log` the conversation's."""
    here = log.parent.relative_to(folder / "sessions").as_posix()
    context.recall = lambda ref: text_at(folder, here, ref)
    context.search = lambda query, scope: find(folder, here, query, scope)


def text_at(folder: Path, here: str, ref: int | str) -> str | None:
    """The whole text that a ref names; None when there is none, or it is not the project's."""
    sessions = folder / "sessions"
    session, hash, seq = str(ref).strip().rpartition("#")
    if seq.isdecimal() and len(seq) <= _LONGEST and (hash or not session):
        own = sessions / here / NAME  # which needs no look at where it leads
        log = _inside(sessions, sessions / session / NAME) if session else own
        return None if log is None else whole_text(log, int(seq))
    path = _inside(sessions, sessions / here / str(ref).strip())
    return None if path is None else file_text(path)


def find(
    folder: Path,
    here: str,
    query: str,
    scope: str,
    *,
    limit: int = 8,
    patience: float | None = PATIENCE,
) -> Findings:
    """Where the words of a query stand: in this session ("session"), in all of the project, this
    one first ("project"), or in the session that `scope` names."""
    index = Index(folder)
    if scope not in _SCOPES and not _inside(index.sessions, index.sessions / scope / NAME):
        told = f"nothing: no session of this project has the id {scope[:_SHOWN]}"
        return Findings(searched=told)
    session = {"session": here, "project": None}.get(scope, scope)
    found = index.search(query, session=session, limit=limit, patience=patience)
    hits = found.hits
    if scope == "project":
        own = index.search(query, session=here, limit=limit, patience=patience).hits
        hits = list(dict.fromkeys([*own[: limit // 2], *hits]))[:limit]
    searched = f"{_SCOPES.get(scope, f'session {scope}')}, {_size(found.size)}"
    if not found.is_whole:
        searched += f", of which {_size(found.indexed)} are indexed so far (ask again in a moment)"
    return Findings([passage(hit, here) for hit in hits], searched)


def passage(hit: Hit, here: str = "") -> Passage:
    what = _WHAT.get(hit.kind, hit.kind)
    if hit.kind == "tool_result":
        what = f"result of {hit.tool or 'a tool'}{', an error' if hit.is_error else ''}"
    elif hit.tool:
        what = f"{what} that calls {hit.tool}"
    ref = f"#{hit.seq}" if hit.session == here else f"{hit.session}#{hit.seq}"
    return Passage(ref, what, hit.at, hit.excerpt, hit.offset)


def _inside(sessions: Path, path: Path) -> Path | None:
    """The path, unless it leads out of the folder."""
    try:
        real = path.resolve()
        return real if real.is_relative_to(sessions.resolve()) and real.is_file() else None
    except (OSError, ValueError):
        return None


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count / 1e3:,.1f} kB"
