"""The logs of subagents, as used by their parent and by later subagents with a similar task.

Each subagent has an ordinary log in the parent's folder, in `agents/<id>/`. Entries in the parent's
log contain what the parent needs to know. If a killed process could not record these entries, they
are made from the subagent's log when the session continues.

A new subagent gets the summary of an earlier one with a similar task. A repeated task is rarely
worded the same way, and parts of one job may differ only in a name. So files and directories count
first, then the words that both tasks share:

1. Tasks that name files, but no common file, are different.
2. Tasks with the same description are similar.
3. Otherwise, most of each task's topics must occur in the other task, and the tasks must share
   enough words. Topics are the words of a description that its prompt repeats, and words with
   digits. For tasks about the same files, most topics of one of the tasks and fewer shared words
   are enough.

No word list of a language is used: short words count little, endings are ignored, and text without
spaces between words is compared by pairs of characters.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ...tools.offered import EVERY, Offered
from ...tools.system.phrasing import cut_after
from ..errors import SessionError
from ..lazy import dataclass, regex
from .archive import SUMMARY_NAME
from .conversation import CONVERSATION_NAME
from .entries import Assistant, End, Entry, Note, SubagentRun, ToolResult, User
from .ledger import Ledger
from .log import LOG_NAME, Entries
from .store import AGENTS, content_text, locate_log, read_kept_text
from .totals import Totals

MIN_SHARED_WORDS = 2  # for tasks without a common file
MIN_OVERLAP, MIN_OVERLAP_SAME_FILES = (
    0.5,
    0.25,
)  # part of the shorter task's words that the other has
MIN_TOPICS = 0.75  # part of each task's topics that the other task has
MIN_TOPICS_SAME_FILES = 0.65  # the same for one of the tasks
MIN_FILES = 0.5  # part of the new task's files that the earlier task has
MIN_STEM_CHARS = 4  # common beginning of two words that count as one
MIN_STEM_SHARE = 4 / 7  # the same, as a part of the longer word
MIN_WORD_CHARS, MAX_WORD_WEIGHT = 3, 6
MAX_TEXT_CHARS = 8_000  # compared characters of a task

_TOKEN = regex(r"[^\s\"'`()\[\]{}<>|,;，、。；：「」《》（）]+")
_AROUND_PATH = ".:!?…*"
_FILE = regex(r"(?:[^/]*/)*(?:[\w~@+-][\w.~@+-]*\.[a-z][a-z0-9]{0,5}|\.[a-z][\w.-]*)")
_ABBREVIATION = regex(r"(?:\w\.)+\w?")  # `e.g`, `z.B`
_UNSPACED = regex(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+)"
)


@dataclass(frozen=True, slots=True)
class GivenTask:
    """A task, and the files that a subagent read or changed for it."""

    description: str
    prompt: str
    files: Collection[str] = ()

    @property
    def text(self) -> str:
        return f"{self.description}\n{self.prompt}"


def similarity(new: GivenTask, earlier: GivenTask) -> float:
    """Return the similarity of a new task to an earlier one; 0.0 means different tasks."""
    named, known = _paths(new.text), _paths(earlier.text)
    touched = {tuple(path.casefold().strip("/").split("/")) for path in earlier.files}
    shared_files = _share(named, known | touched)
    if named and (known or touched) and not (shared_files or _share(known, named)):
        return 0.0
    description, before = _words(new.description), _words(earlier.description)
    if _is_same(description, before, new.description, earlier.description):
        return 2.0
    words, others = _words(new.text), _words(earlier.text)
    overlap = _share_of_words(*sorted((words, others), key=_weight))
    topics, others_topics = _topics(new) or description, _topics(earlier) or before
    covered = _share_of_words(topics, others), _share_of_words(others_topics, words)
    if named and shared_files >= MIN_FILES:
        is_alike = overlap >= MIN_OVERLAP_SAME_FILES and max(covered) >= MIN_TOPICS_SAME_FILES
    else:
        shared = len(_shared_words(words, others))
        is_alike = overlap >= MIN_OVERLAP and shared >= MIN_SHARED_WORDS
        is_alike = is_alike and bool(_shared_words(topics, others_topics))
        is_alike = is_alike and min(covered) >= MIN_TOPICS
    return overlap + shared_files if is_alike else 0.0


def _is_same(words: set[str], others: set[str], text: str, other: str) -> bool:
    """Return True if two descriptions have the same words, in any order and form."""
    if not words or not others:
        return text.casefold().split() == other.casefold().split()
    return _shared_words(words, others) == words and _shared_words(others, words) == others


def _paths(text: str) -> set[tuple[str, ...]]:
    """Return the files and directories named in a text, as tuples of path parts."""
    found = set()
    for token in _TOKEN.findall(text[:MAX_TEXT_CHARS]):
        path = token.rstrip(_AROUND_PATH).casefold().removeprefix("./")
        is_directory = path.endswith("/") or path.startswith(("/", "~/")) or path.count("/") > 1
        is_file = _FILE.fullmatch(path) and not _ABBREVIATION.fullmatch(path)
        if (is_directory or is_file) and "://" not in path and path.strip("/."):
            found.add(tuple(path.strip("/").split("/")))
    return found


def _share(paths: Collection[tuple[str, ...]], others: Collection[tuple[str, ...]]) -> float:
    """Return the share of `paths` that match a path in `others` or contain or are contained
    in one.
    """
    same = sum(any(_is_same_or_inside(path, other) for other in others) for path in paths)
    return same / len(paths) if paths else 0.0


def _is_same_or_inside(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return True if two paths are the same or one contains the other; either may be relative."""
    short, long = sorted((one, other), key=len)
    ends = range(len(long) - len(short) + 1)
    return any(long[start : start + len(short)] == short for start in ends)


def _words(text: str) -> set[str]:
    """Return the words of a text outside paths. Text without spaces gives pairs of characters."""
    outside = (t for t in _TOKEN.findall(text[:MAX_TEXT_CHARS]) if not _paths(t))
    text = unicodedata.normalize("NFKC", " ".join(outside)).casefold()
    letters = (c if unicodedata.category(c)[0] in "LMN" or c == "_" else " " for c in text)
    found = set[str]()
    for run in _UNSPACED.split("".join(letters)):
        if _UNSPACED.fullmatch(run):
            found |= {run[n : n + 2] for n in range(max(1, len(run) - 1))}
        else:
            found |= {w for w in run.split() if len(w) >= MIN_WORD_CHARS or _has_digit(w)}
    return found


def _topics(work: GivenTask) -> set[str]:
    """Return a task's topics: the words of its description that its prompt repeats, and words with
    digits.
    """
    words = _words(work.description)
    return _shared_words(words, _words(work.prompt)) | set(filter(_has_digit, words))


def _share_of_words(words: set[str], others: set[str]) -> float:
    """Return the share of `words` that occur in `others`, by weight."""
    return _weight(_shared_words(words, others)) / _weight(words) if words else 0.0


def _weight(words: Iterable[str]) -> int:
    return sum(
        MAX_WORD_WEIGHT
        if _has_digit(word)
        else MIN_WORD_CHARS
        if _UNSPACED.fullmatch(word)
        else min(len(word) + 1 - MIN_WORD_CHARS, MAX_WORD_WEIGHT)
        for word in words
    )


def _shared_words(words: set[str], others: set[str]) -> set[str]:
    """Return the words that occur in `others`, in any form."""
    stems: dict[str, list[str]] = {}
    for other in others:
        stems.setdefault(other[:MIN_STEM_CHARS], []).append(other)
    return {
        word
        for word in words
        if any(_is_same_word(word, other) for other in stems.get(word[:MIN_STEM_CHARS], ()))
    }


def _is_same_word(one: str, other: str) -> bool:
    """Return True if two words are the same or two forms of one word."""
    if one == other or _has_digit(one + other):
        return one == other
    short, long = sorted((one, other), key=len)
    same = next((n for n, c in enumerate(short) if c != long[n]), len(short))
    return same >= MIN_STEM_CHARS and (same == len(short) or same >= MIN_STEM_SHARE * len(long))


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))


MAX_ANSWER_CHARS = 8_000  # characters of earlier answers that are handed over
MIN_ANSWER_CHARS = 500  # for each of several answers handed over together
MAX_LISTED = 12
MAX_COMPARED = 100  # newest earlier subagents that are compared
MAX_FILES_RECORDED = 200  # newest files that a subagent read or changed

SubagentStatus = Literal["done", "error", "interrupted", "limit"]
STATUS_OF_TURN: dict[str, SubagentStatus] = {  # status of a subagent by the status of its turn
    "ok": "done", "denied": "done", "error": "error", "limit": "limit",
    "interrupted": "interrupted",
}  # fmt: skip
_REF = regex(r"(?<![\w/&])#(\d{1,18})\b")  # not the `&#38;` of a summary
_RESUME_HINT = " ({Task} with resume set to its id goes on with one where it was)"


def subagent_log(folder: Path, id: str) -> Path:
    """Return the log of a subagent of the session in `folder`."""
    return folder / AGENTS / id / LOG_NAME


@dataclass(frozen=True, slots=True)
class HandOver:
    """The texts of an earlier subagent that a new subagent receives."""

    id: str  # of the earlier subagent
    description: str
    text: str


def earlier_work(
    folder: Path, ledger: Ledger, type: str, description: str, prompt: str
) -> HandOver | None:
    """Return the record and the answer of the finished subagent of this type whose task is most
    similar (the newest of equals), or None.
    """
    new, found = GivenTask(description, prompt), list[tuple[float, SubagentRun]]()
    for agent in list(ledger.agents.values())[: -MAX_COMPARED - 1 : -1]:
        if agent.type == type and agent.status != "running":
            like = similarity(new, GivenTask(agent.description, agent.prompt, agent.files))
            found += [(like, agent)] if like else []
    for _, agent in sorted(found, key=lambda pair: -pair[0]):
        if text := _handed_over(folder, agent):
            return HandOver(agent.id, agent.description, text)
    return None


def _handed_over(folder: Path, agent: SubagentRun) -> str:
    """Return the task, record and answer of an earlier subagent, or "" if it has no record and no
    answer.
    """
    log = subagent_log(folder, agent.id)
    record = (read_kept_text(log.parent, SUMMARY_NAME) or "").strip()
    if not record and not agent.answer:
        return ""
    texts = [
        f'Subagent {agent.id} worked on a task like yours ("{agent.description}"); it ended as: '
        f"{agent.status}. Your own task counts where the two differ.",
        f"Its task:\n{cut_after(agent.prompt, MIN_ANSWER_CHARS, ' …')}",
    ]
    texts += [f"The record of its work:\n\n{record}"] if record else []
    if agent.answer:
        texts.append(f"Its answer:\n{cut_after(agent.answer, MAX_ANSWER_CHARS, ' …')}")
    if (conversation := log.with_name(CONVERSATION_NAME)).is_file():
        texts.append(f"All that was said in it: {conversation}")
    return qualify_refs("\n\n".join(texts), log, _last_seq(log))


def touched_files(ledger: Ledger) -> list[str]:
    """Return the files that a subagent read or changed, newest last."""
    return [*ledger.read, *ledger.files][-MAX_FILES_RECORDED:]


def qualify_refs(text: str, log: Path, last: int) -> str:
    """Add the session name to the refs in a subagent's text, for use in other conversations.
    Numbers above `last`, the last entry of `log`, are not refs.
    """
    name = locate_log(log)[1]

    def with_name(found: re.Match[str]) -> str:
        return f"{name}{found[0]}" if 0 < int(found[1]) <= last else found[0]

    return _REF.sub(with_name, text)


def changes_since(before: Ledger, now: Ledger, id: str) -> list[dict[str, Any]]:
    """Return the files that subagent `id` changed after `before`, as rows for `changes`."""
    rows = []
    for shown, fact in now.files.items():
        known = before.files.get(shown)
        if known is not None and known.times == fact.times:
            continue
        path = now.absolute_path(shown)
        kind, _, digest = now.contents.get(path, "").partition(":")
        row = {
            "path": path,
            "action": fact.action,
            "added": fact.added - (known.added if known else 0),
            "removed": fact.removed - (known.removed if known else 0),
            "by": id,
        }
        rows.append(row | ({kind: digest} if digest else {}))
    return rows


def ledger_known_to_parent(entries: Iterable[Entry], agent: SubagentRun | None) -> Ledger:
    """Return the ledger of the part of a subagent's log that its entry in the parent's log
    covers.
    """
    ledger = Ledger()
    for entry in entries:
        if agent is not None and entry.seq <= agent.told:
            ledger.add(entry)
    return ledger


def missing_entries(
    folder: Path,
    unreported_ids: Collection[str],
    agents: Iterable[SubagentRun],
    offered: Offered = EVERY,
) -> list[Entry]:
    """Return the entries to record when a session continues after its process was killed.

    Each subagent whose log has entries that its entry in the session's log does not cover gets an
    updated entry. One notice tells the model about the subagents whose results it never received
    (`unreported_ids`), with the answers of those that had finished.
    """
    found, unreported = list[Entry](), list[SubagentRun]()
    for agent in agents:
        log = subagent_log(folder, agent.id)
        if agent.status == "running" or _last_seq(log) > agent.told:
            *rows, agent = _newer_entries(log, agent)
            found += [*rows, agent]
        if agent.id in unreported_ids:
            unreported.append(agent)
    if unreported:
        head = "The session was left while subagents were at work."
        unfinished = f"{head} {list_unfinished(unreported, (), offered)}".strip()
        text = "\n".join(filter(None, (unfinished, _finished_answers(unreported))))
        found.append(User(content=text, source="notice"))
    return found


def list_unfinished(
    agents: Iterable[SubagentRun], at_work: Collection[str] = (), offered: Offered = EVERY
) -> str:
    """Return a text for the model that lists the unfinished subagents and those `at_work`; "" if
    there are none.
    """
    left, working = list[str](), list[str]()
    for agent in agents:
        if agent.id in at_work or agent.status != "done":
            rows = working if agent.id in at_work else left
            rows.append(f"- {agent.id} ({agent.type}): {agent.description}")
    head = f"Subagents that did not finish{offered.say(_RESUME_HINT)}:"
    parts = [head, *left[-MAX_LISTED:]] if left else []
    parts += ["Subagents at work in the background:", *working] if working else []
    return "\n".join(parts)


def _finished_answers(agents: Iterable[SubagentRun]) -> str:
    done = [agent for agent in agents if agent.status == "done"][-MAX_LISTED:]
    if not done:
        return ""
    room = max(MIN_ANSWER_CHARS, MAX_ANSWER_CHARS // len(done))
    texts = [
        f"{agent.id} ({agent.type}): {agent.description}\n{cut_after(agent.answer, room, ' …')}"
        for agent in done
    ]
    return "\n\n".join(["Subagents that had finished, and their answers:", *texts])


def update_unreported(unreported_ids: set[str], entry: Entry) -> None:
    """Update the IDs of started subagents that no result or notice has mentioned since."""
    if isinstance(entry, SubagentRun) and entry.status == "running":
        unreported_ids.add(entry.id)
    elif isinstance(entry, ToolResult):
        if entry.details.get("status") != "running":  # else it continues in the background
            unreported_ids.discard(str(entry.details.get("agent")))
    elif isinstance(entry, User) and entry.source == "notice" and unreported_ids:
        words = content_text(entry.content)
        unreported_ids -= {id for id in unreported_ids if f"{id} (" in words}


def _newer_entries(log: Path, agent: SubagentRun) -> tuple[*tuple[Entry, ...], SubagentRun]:
    """Return a subagent's new entry, preceded by a note of unrecorded file changes if there are
    any.

    A killed subagent may have finished before the kill. Its status and answer are those of its
    first unrecorded turn. Later turns, started manually by the user, change only the totals.
    """
    totals, known, ledger = Totals(), Ledger(), Ledger()
    answer, end, turns, last = "", "", 0, 0
    for entry in Entries(log) if log.is_file() else ():
        totals.add(entry)
        ledger.add(entry)
        last = max(last, entry.seq)
        if entry.seq <= agent.told:
            known.add(entry)
            continue
        turns += isinstance(entry, User) and entry.begins_turn
        if turns == 1 and isinstance(entry, User):  # even a message after the turn's end
            end = ""
        elif turns == 1 and isinstance(entry, Assistant) and entry.purpose == "turn":
            answer = "".join(str(b.get("text", "")) for b in entry.content) or answer
        elif turns == 1 and isinstance(entry, End):
            end = entry.status
    now = replace(agent, told=max(last, agent.told))
    if agent.status == "running":
        status = STATUS_OF_TURN.get(end, "interrupted")
        now = replace(
            now,
            status=status,
            lost=not end,
            answer=qualify_refs(answer, log, last),
            files=touched_files(ledger),
        )
    rows = changes_since(known, ledger, agent.id)
    if not rows:
        return (totals.all.recorded_in(now),)
    text = f"{agent.id} had changed files that were not told of: {len(rows)}"
    return Note(topic="agent", text=text, data={"changes": rows}), totals.all.recorded_in(now)


def _last_seq(log: Path) -> int:
    try:
        return next((entry.seq for entry in reversed(Entries(log))), 0)
    except SessionError:
        return 0
