"""The data behind the tool Recall: texts by ref, and the search of the archive.

A ref is 42 or "#42" for an entry of this session. "SESSION#42" is an entry of another session of
the project, and "SESSION/agents/AGENT#42" an entry of a subagent. The path of a file in a session's
folder is also a ref.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from ....tools.base import Context, Findings, Passage
from ....tools.system.kept_text import KeptText
from ..entries import Assistant, ToolResult
from ..log import LOG_NAME, find_entries, find_entry
from ..store import entry_images, find_text, kept_text
from .index import CATCH_UP_S, SearchIndex
from .query import Hit, best_parts

_MAX_REF_DIGITS = 18
_MAX_PARTS = 6  # of one text that match a query
_MAX_RESULTS, _MAX_DISTANCE = 2, 12  # results of a reply; entries after it that are read
_MAX_END_CHARS = 200  # of a result, at either end
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
    return Findings([*_with_results(folder, here, hits)], searched)


def _with_results(folder: Path, here: str, hits: Sequence[Hit]) -> Iterator[Passage]:
    """Yield hits as passages. A reply with calls is followed by its results, because models search
    for a command to get its output.
    """
    left = {(hit.session, hit.seq): hit for hit in hits}
    found = set(left)
    for hit in hits:
        if left.pop((hit.session, hit.seq), None) is None:
            continue
        results = _results_of(folder, hit)
        unfound = (seq for seq in results if (hit.session, seq) not in found)
        ends = tuple((_ref(hit.session, seq, here), results[seq]) for seq in unfound)
        yield replace(to_passage(hit, here), results=ends)
        after = (left.pop((hit.session, seq), None) for seq in results)
        yield from (to_passage(each, here) for each in after if each)


def _results_of(folder: Path, hit: Hit) -> dict[int, str]:
    """Return the ends of the first results of a reply with calls, by seq."""
    log = find_session(folder, hit.session) if hit.tool and hit.kind == "assistant" else None
    if log is None:
        return {}
    entries = find_entries(log, range(hit.seq, hit.seq + _MAX_DISTANCE))
    reply = entries.pop(hit.seq, None)
    ids = {block.get("id") for block in reply.content} if isinstance(reply, Assistant) else set()
    results = (
        seq
        for seq, entry in sorted(entries.items())
        if isinstance(entry, ToolResult) and entry.tool_use_id in ids
    )
    return {seq: _ends(find_text(log, seq)) for seq in islice(results, _MAX_RESULTS)}


def _ends(text: KeptText | None) -> str:
    """Return the beginning and the end of a text."""
    if text is None:
        return ""
    first, size = text.part(0, 2 * _MAX_END_CHARS)
    if size <= 2 * _MAX_END_CHARS:
        return first
    last, _ = text.part(size - _MAX_END_CHARS, _MAX_END_CHARS)
    return f"{first[:_MAX_END_CHARS].rstrip()}\n[…]\n{last.strip()}"


def to_passage(hit: Hit, here: str = "") -> Passage:
    what = _ENTRY_NAMES.get(hit.kind, hit.kind)
    if hit.kind == "tool_result":
        what = f"result of {hit.tool or 'a tool'}{', an error' if hit.is_error else ''}"
    elif hit.tool:
        what = f"{what} that calls {hit.tool}"
    return Passage(_ref(hit.session, hit.seq, here), what, hit.at, hit.excerpt, hit.offset)


def _ref(session: str, seq: int, here: str) -> str:
    return f"#{seq}" if session == here else f"{session}#{seq}"


def _inside(sessions: Path, path: Path) -> Path | None:
    """Return the real path of a file, or None if it is outside the folder or not a file."""
    try:
        real = path.resolve()
        return real if real.is_relative_to(sessions.resolve()) and real.is_file() else None
    except (OSError, ValueError):
        return None


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count / 1e3:,.1f} kB"
