"""The ledger: facts computed from the log without a model or the disk.

It lists the files created, changed, deleted or only read; commands that ran and failed; user
messages, pins and decisions; and denied calls. The cost per entry does not grow with the log.
"""

import json
import os.path
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any, Literal

from ...tools.base import OUTSIDE
from ..lazy import dataclass
from .change_rows import change_rows, content_key
from .command_output import CommandOutput, Work, answers_no, find_work, telling_lines
from .entries import (
    ATTACHMENT,
    DROP,
    PLAN,
    SKILL,
    Assistant,
    Entry,
    Mask,
    Note,
    Pin,
    Revert,
    Session,
    SubagentRun,
    Summary,
    ToolResult,
    Unpin,
    User,
    attachment_call,
    attachment_result,
    reverted_seqs,
    shell_result,
)
from .searches import FOUND
from .store import content_text
from .titles import TITLE_TOPIC, denial_reason, is_denial, moved_path, rename_of
from .user_messages import LoggedMessage, UserMessages

FileAction = Literal["created", "modified", "deleted"]

CHANGED_BY_TOPIC = {  # author of the changes listed in a note, by topic
    "rewind": "/rewind", "agent": "Task", "killed": "a call that was cut short",
}  # fmt: skip
WHILE_RAN = "while {tool} ran"  # author of a change that is not certainly the tool's
REFUSED = "refused"  # in the data of the note of a request that was refused in every form
PLAN_TOPIC = "plan"  # topic of the note that a plan was dropped
MAX_FAILED_CALLS = 20  # failed calls kept, of tools that run no commands
MAX_JOB_LINES = 2_000  # output lines kept of a running job
DENIAL_REASON = " · the user said: "  # between a denied call and the reason
SIGNAL_EXIT_CODE = 128  # a shell returns a higher exit code if a signal ended the command


@dataclass(frozen=True, slots=True)
class FileFact:
    """A file that a tool changed."""

    path: str
    action: FileAction
    added: int  # lines, over all changes
    removed: int
    tool: str  # of the last change
    ref: int  # of the last change
    times: int  # number of changes


@dataclass(frozen=True, slots=True)
class CommandFact:
    """A command that ran."""

    command: str
    exit_code: int | None  # None if unknown, e.g. while it runs in the background
    ref: int
    errors: tuple[str, ...] = ()  # the telling lines of its output; () if it did not fail


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A failed call of a tool that runs no commands."""

    tool: str
    ref: int
    errors: tuple[str, ...]  # the telling lines of its result


@dataclass(frozen=True, slots=True)
class SkillFact:
    """A skill that was loaded."""

    name: str
    path: str  # of its SKILL.md
    digest: str  # of its text
    ref: int  # of the entry with its whole text


@dataclass(frozen=True, slots=True)
class PlanFact:
    """The current plan."""

    text: str  # Markdown
    agreed: bool  # the user agreed to it; False if no user was present to agree
    ref: int  # of the entry with the plan


@dataclass(frozen=True, slots=True)
class JobFact:
    """A command in the background and its outcome, if known."""

    command: str
    exit_code: int | None = None  # None until its end is known
    interrupted: bool = False  # stopped on purpose


@dataclass(slots=True)
class _RunningJob:
    """A background command whose outcome is not known yet."""

    command: str
    ref: int  # of its start
    lines: list[str] = field(default_factory=list)  # output so far
    has_ended: bool = False  # its end is known, but not its last output


@dataclass(slots=True)
class Ledger:
    """The facts, for reading only. Paths inside the session's directory are relative to it."""

    cwd: str = ""
    phase: str = ""
    title: str = ""  # given by the user
    head: str = ""  # git branch and commit, once a command has changed them
    _calls: dict[str, str] = field(default_factory=dict)  # tools of unanswered calls, by call ID
    # This field and the next three use absolute paths.
    _files: dict[str, FileFact] = field(default_factory=dict)
    _read: dict[str, int] = field(default_factory=dict)
    # The content of each file when the session last read or changed it: `sha256:…`, `blob:…` (a git
    # object ID), or "" for a file that the session deleted.
    contents: dict[str, str] = field(default_factory=dict)
    _created: set[str] = field(default_factory=set)  # files that the session created
    commands: list[CommandFact] = field(default_factory=list)
    _failing: dict[str, tuple[CommandFact, int]] = field(default_factory=dict)  # with start, by key
    # Failures of commands that have failed again since.
    _replaced_failures: list[CommandFact] = field(default_factory=list)
    failed_calls: list[FailedCall] = field(default_factory=list)  # the newest, oldest first
    _jobs: dict[str, _RunningJob] = field(default_factory=dict)
    # Failed commands, each with the ref of the later run that passed.
    resolved: list[tuple[CommandFact, int]] = field(default_factory=list)
    _passed: dict[str, tuple[int, int]] = field(default_factory=dict)  # start and end, by work key
    # Each summary's statements about failures that no later run has resolved.
    _resolutions: dict[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    _user_messages: UserMessages = field(default_factory=UserMessages)
    # Whether each mask drops an entry or restores it, by mask and entry.
    _drops: dict[int, dict[int, bool]] = field(default_factory=dict)
    todos: list[dict[str, str]] = field(default_factory=list)
    summarized_todos: list[dict[str, str]] = field(default_factory=list)  # as of the newest summary
    _denials: dict[str, int] = field(default_factory=dict)
    _denial_reasons: dict[str, str] = field(default_factory=dict)  # as the user wrote them
    _decisions: dict[int, Sequence[str]] = field(default_factory=dict)  # by entry
    _constraints: dict[int, Sequence[str]] = field(default_factory=dict)  # by summary
    _reverts: list[Revert] = field(default_factory=list)
    offloaded: dict[str, int] = field(default_factory=dict)  # refs of results, by file
    pins: dict[int, str] = field(default_factory=dict)  # by ref, or by seq for a text
    agents: dict[str, SubagentRun] = field(default_factory=dict)  # newest entries, by id
    jobs: dict[str, JobFact] = field(default_factory=dict)  # by id
    skills: dict[str, SkillFact] = field(default_factory=dict)  # by name, last loaded last
    plan: PlanFact | None = None  # the current plan
    was_refused: bool = False  # the server refused the newest request in every form
    outside: str = ""  # the newest text from outside of the project that the model got, "" for none

    def add(self, entry: Entry) -> None:
        """Process one entry. Malformed data is ignored."""
        self._user_messages.add(entry)
        if isinstance(entry, ToolResult):
            tool = self._calls.pop(entry.tool_use_id, "")
            self._add_result(entry, tool, by=tool)
        elif isinstance(entry, Assistant):
            self.was_refused = self.was_refused and entry.purpose != "turn"
            for block in entry.content:
                if block.get("type") == "tool_use" and entry.purpose == "turn":
                    self._calls[str(block.get("id"))] = str(block.get("name"))
                elif block.get("type") == FOUND:
                    self.outside = "results of a web search"
        elif isinstance(entry, User):
            if entry.source == "shell":
                self._add_result(shell_result(entry), "Bash", by="user")
            elif entry.source == ATTACHMENT:
                self._add_result(attachment_result(entry), attachment_call(entry)[0], by="user")
            elif entry.source == SKILL:
                self._add_skill(entry)
            elif entry.source == PLAN:
                self._add_plan(entry)
            elif entry.source == "notice":
                self._add_job(entry.seq, entry.details)
        elif isinstance(entry, Note):
            self._add_note(entry)
        elif isinstance(entry, Summary):
            self.summarized_todos = self.todos
            self._decisions[entry.seq] = _section_texts(entry.document, "decisions")
            facts = _section_texts(entry.document, "facts")
            self._constraints[entry.seq] = _rule_texts(entry.document) + facts
            self._resolutions[entry.seq] = entry.resolved
        elif isinstance(entry, Mask):
            self._add_drops(entry)
        elif isinstance(entry, Revert):
            self._reverts.append(entry)
        elif isinstance(entry, Pin):
            self.pins[entry.ref if isinstance(entry.ref, int) else entry.seq] = entry.text
        elif isinstance(entry, Unpin):
            self.pins = {ref: text for ref, text in self.pins.items() if ref != entry.ref}
        elif isinstance(entry, SubagentRun):
            self.agents[entry.id] = entry
            self.outside = entry.outside or self.outside
        elif isinstance(entry, Session):
            self.cwd = entry.cwd
            self._jobs.clear()  # they ended with the previous process; outcome unknown

    def _add_note(self, entry: Note) -> None:
        refused = isinstance(entry.data, dict) and entry.data.get(REFUSED) is True
        self.was_refused = self.was_refused or refused
        if entry.topic == "permission":
            if is_denial(entry):
                self._denials.setdefault(entry.text, entry.seq)
                if reason := denial_reason(entry):
                    self._denial_reasons[entry.text] = reason
        elif entry.topic == "decision":
            self._decisions[entry.seq] = [entry.text]
        elif entry.topic == "phase":
            self.phase = entry.text
        elif found := rename_of(entry):
            self.contents = {moved_path(path, *found): v for path, v in self.contents.items()}
        elif entry.topic == TITLE_TOPIC:
            self.title = entry.text
        elif entry.topic == PLAN_TOPIC:
            self.plan = None
        elif entry.topic in CHANGED_BY_TOPIC and isinstance(entry.data, dict):
            self._add_changes(entry.data, CHANGED_BY_TOPIC[entry.topic], entry.seq)

    def _add_drops(self, entry: Mask) -> None:
        """Record the entries that the user drops from the context, or restores."""
        for target in filter(lambda each: isinstance(each, dict), entry.targets):
            if entry.layer == DROP or target.get("whole") is True:
                drops = self._drops.setdefault(entry.seq, {})
                drops[target.get("seq", 0)] = entry.layer == DROP

    @property
    def messages(self) -> Sequence[LoggedMessage]:
        """The user's messages and attachments, oldest first, without those that the user dropped
        from the context.
        """
        if not self._drops:
            return self._user_messages.messages
        gone, is_dropped = reverted_seqs(self._reverts), dict[int, bool]()
        for seq, drops in self._drops.items():
            is_dropped |= drops if seq not in gone else {}
        return [each for each in self._user_messages.messages if not is_dropped.get(each.ref)]

    @property
    def turns(self) -> Sequence[int]:
        """Refs of the messages that started turns."""
        return self._user_messages.turns

    @property
    def typed_messages(self) -> list[tuple[int, str]]:
        """The user's typed messages as (ref, text), oldest first; previews of long messages."""
        return [(m.ref, m.opening) for m in self.messages if not m.is_attached]

    def _add_skill(self, entry: User) -> None:
        """Record a loaded skill, unless its text is repeated after a summary."""
        skill = entry.details.get("skill")
        if not isinstance(skill, dict) or "ref" in skill:
            return
        name, path, digest = (str(skill.get(key, "")) for key in ("name", "path", "digest"))
        self.skills.pop(name, None)
        self.skills[name] = SkillFact(name, path, digest, entry.seq)

    def _add_plan(self, entry: User) -> None:
        """Record a new current plan and its steps, unless it is repeated after a summary."""
        plan = entry.details.get("plan")
        if not isinstance(plan, dict) or "ref" in plan:
            return
        text = content_text(entry.content).partition("\n\n")[2]
        self.plan = PlanFact(text, plan.get("agreed") is True, entry.seq)
        self._set_todos(entry.details.get("todos"))

    @property
    def files(self) -> Mapping[str, FileFact]:
        """Changed files by path, in the order of their first change."""
        shown = (replace(fact, path=self.display_path(fact.path)) for fact in self._files.values())
        return {fact.path: fact for fact in shown}

    @property
    def read(self) -> Mapping[str, int]:
        """Files that were read and never changed, with the ref of the newest read; newest last."""
        return {self.display_path(path): ref for path, ref in self._read.items()}

    def unresolved(self) -> list[CommandFact]:
        """Return the failed commands that no later run or summary resolved, oldest first."""
        settled = self.settled_refs
        return [fact for fact, _ in self._failing.values() if fact.ref not in settled]

    @property
    def running_jobs(self) -> Mapping[str, str]:
        """The commands that run in the background, as far as the log tells, by job."""
        return {id: job.command for id, job in self._jobs.items() if not job.has_ended}

    def past_failures(self) -> list[CommandFact]:
        """Return failures that were fixed, or replaced, or called resolved by a summary."""
        settled = self.settled_refs
        said = [fact for fact, _ in self._failing.values() if fact.ref in settled]
        return [*(fact for fact, _ in self.resolved), *self._replaced_failures, *said]

    @property
    def resolutions(self) -> list[Mapping[str, Any]]:
        """The statements about earlier failures in summaries that are not reverted."""
        gone = reverted_seqs(self._reverts)
        return [row for seq, rows in self._resolutions.items() if seq not in gone for row in rows]

    @property
    def settled_refs(self) -> set[int]:
        """The refs of failures that the newest statement of a summary calls resolved."""
        settled: set[int] = set()
        for row in self.resolutions:
            for refs, change in (("refs", settled.update), ("reopened", settled.difference_update)):
                change(ref for ref in _as_list(row.get(refs)) if isinstance(ref, int))
        return settled

    def with_resolutions(self, rows: Sequence[Mapping[str, Any]]) -> "Ledger":
        """Return this ledger as it will be after a summary with these statements is recorded."""
        return replace(self, _resolutions={**self._resolutions, 0: rows})

    @property
    def denials(self) -> Sequence[str]:
        """Denied calls, without duplicates."""
        return list(self._denials)

    def reason_of(self, denial: str) -> str:
        """Return the user's last reason for a denied call as a suffix, or ""."""
        reason = self._denial_reasons.get(denial, "")
        return f"{DENIAL_REASON}{reason}" if reason else ""

    @property
    def decisions(self) -> list[tuple[int, str]]:
        """Decisions, verbatim, each with the ref of its first note or unreverted summary."""
        gone, first = reverted_seqs(self._reverts), dict[str, int]()
        for ref, texts in self._decisions.items():
            for text in texts if ref not in gone else ():
                first.setdefault(text, ref)
        return [(ref, text) for text, ref in first.items()]

    @property
    def constraints(self) -> list[tuple[int, str]]:
        """Rules and critical facts of the newest summary, denied calls and pins, verbatim, each
        with its ref.
        """
        gone = reverted_seqs(self._reverts)
        newest = max((ref for ref in self._constraints if ref not in gone), default=0)
        return [
            *((newest, text) for text in self._constraints.get(newest, ())),
            *((ref, text + self.reason_of(text)) for text, ref in self._denials.items()),
            *((ref, text) for ref, text in self.pins.items()),
        ]

    def display_path(self, path: str) -> str:
        """Return a path relative to the session's directory if inside it, else absolute."""
        absolute = self.absolute_path(path)
        inside = self.cwd and absolute.startswith(self.cwd.rstrip("/") + "/")
        return os.path.relpath(absolute, self.cwd) if inside else absolute

    def to_json(self) -> dict[str, Any]:
        """Return all the facts as plain JSON."""
        return {
            "cwd": self.cwd,
            "phase": self.phase,
            "head": self.head,
            "files": [asdict(fact) for fact in self.files.values()],
            "read": dict(self.read),
            "commands": [{**asdict(c), "errors": list(c.errors)} for c in self.commands],
            "unresolved": [fact.ref for fact in self.unresolved()],
            "resolved": [{"ref": fact.ref, "by": by} for fact, by in self.resolved],
            "resolutions": [dict(row) for row in self.resolutions],
            "words": _with_refs(self.typed_messages),
            "decisions": _with_refs(self.decisions),
            "constraints": _with_refs(self.constraints),
            "denials": list(self.denials),
            "pins": _with_refs(self.pins.items()),
            "todos": [dict(todo) for todo in self.todos],
            "plan": asdict(self.plan) if self.plan else None,
            "offloaded": dict(self.offloaded),
            "agents": [
                {"id": a.id, "type": a.type, "description": a.description, "status": a.status}
                for a in self.agents.values()
            ],
        }

    def absolute_path(self, path: str) -> str:
        """Return the absolute form of a path that a tool gives."""
        return os.path.normpath(os.path.join(self.cwd, path))  # noqa: PTH118 (as text: no disk)

    def _add_result(self, entry: ToolResult, tool: str, by: str) -> None:
        """Add the facts in the result of a tool; `by` names who made the changes in it."""
        if entry.offloaded:
            self.offloaded[entry.offloaded] = entry.seq
        details = entry.details
        if not isinstance(details, dict):
            return
        path, command = details.get("path"), details.get("command")
        if isinstance(details.get(OUTSIDE), str):
            self.outside = details[OUTSIDE]
        self._add_changes(details, by, entry.seq)
        if isinstance(details.get("head"), str):
            self.head = details["head"]
        if tool == "Bash" and isinstance(command, str):
            self._add_command(entry, command, details)
        elif tool == "Job" and isinstance(rows := details.get("jobs", [details]), list):
            for job in rows:
                self._add_job(entry.seq, job, None if "jobs" in details else CommandOutput(entry))
        elif entry.is_error:
            if tool and "denied" not in details:
                failed = FailedCall(tool, entry.seq, telling_lines(CommandOutput(entry).lines))
                self.failed_calls = [*self.failed_calls, failed][-MAX_FAILED_CALLS:]
        elif tool == "Todo":
            self._set_todos(details.get("todos"))
        elif tool in ("Write", "Edit") and isinstance(path, str):
            action: FileAction = "created" if details.get("created") is True else "modified"
            self._add_change(path, action, tool, entry.seq, details)
            self._add_seen(details)
        elif tool == "Read" and isinstance(path, str):
            absolute = self.absolute_path(path)
            if absolute not in self._files:
                self._read.pop(absolute, None)
                self._read[absolute] = entry.seq
            self._add_seen(details)

    def _set_todos(self, todos: object) -> None:
        if isinstance(todos, list):
            self.todos = [
                {"content": str(row["content"]), "status": str(row.get("status"))}
                for row in todos
                if isinstance(row, dict) and row.get("content")
            ]

    def _add_changes(self, details: Mapping[str, Any], tool: str, ref: int) -> None:
        for row in change_rows(details):
            by = tool if row.get("certain", True) else WHILE_RAN.format(tool=tool)
            changed = self._add_change(row["path"], row["action"], by, ref, row)
            self.contents.pop(changed, None)
            if row["action"] == "deleted":
                self.contents[changed] = ""
            elif known := content_key(row):
                self.contents[changed] = known

    def _add_seen(self, details: Mapping[str, Any]) -> None:
        seen = details.get("seen")
        if isinstance(seen, dict) and {"path", "sha256"} <= seen.keys():
            self.contents[self.absolute_path(str(seen["path"]))] = f"sha256:{seen['sha256']}"

    def _add_change(
        self, named: str, action: FileAction, tool: str, ref: int, details: Mapping[str, Any]
    ) -> str:
        """Add a change of a file and return its absolute path. A file that the session created
        counts as created until it is deleted. Any other existing file counts as modified, even if
        it was deleted in between.
        """
        path = self.absolute_path(named)
        self._read.pop(path, None)
        before = self._files.get(path)
        if before is None and action == "created":
            self._created.add(path)
        existing: FileAction = "created" if path in self._created else "modified"
        self._files[path] = FileFact(
            path,
            "deleted" if action == "deleted" else existing,
            (before.added if before else 0) + _count_or_zero(details.get("added")),
            (before.removed if before else 0) + _count_or_zero(details.get("removed")),
            tool,
            ref,
            (before.times if before else 0) + 1,
        )
        return path

    def _add_command(self, entry: ToolResult, command: str, details: Mapping[str, Any]) -> None:
        code, job = details.get("exit_code"), details.get("job")
        output = CommandOutput(entry)
        if isinstance(job, str) and "running" in details:  # started in the background
            said = output.lines if details.get("backgrounded") is True else ()
            self._jobs[job] = _RunningJob(command, entry.seq, [*said])
            self.jobs[job] = JobFact(command)
            self.commands.append(CommandFact(command, None, entry.seq))
        else:
            fact = CommandFact(command, code if isinstance(code, int) else None, entry.seq)
            unknown = details.get("interrupted") is True
            self._add_outcome(fact, output, passed=not entry.is_error, unknown=unknown)

    def _add_job(self, ref: int, details: Any, said: CommandOutput | None = None) -> None:
        """Add what an entry says about a job, and the job's new output if the entry contains it."""
        id = details.get("job") if isinstance(details, dict) else None
        job = self._jobs.get(id) if isinstance(id, str) else None
        if job is None:
            return
        if said:  # the last line of each report is a note about the job
            new = (line for line in said.lines if line[:1] != "[" or f"{id}: " not in line)
            job.lines = [*job.lines, *new][-MAX_JOB_LINES:]
        code = details.get("exit_code")
        if not isinstance(code, int) or details.get("running") is True:
            return
        self.jobs[str(id)] = JobFact(job.command, code, details.get("interrupted") is True)
        if said:
            del self._jobs[str(id)]
        if said or not job.has_ended:
            job.has_ended = True
            fact = CommandFact(job.command, code, ref)
            killed = details.get("interrupted", code < 0 or code > SIGNAL_EXIT_CODE) is True
            output = CommandOutput(job.lines)
            self._add_outcome(fact, output, passed=code == 0, unknown=killed, started=job.ref)

    def _add_outcome(
        self,
        fact: CommandFact,
        output: CommandOutput,
        *,
        passed: bool,
        unknown: bool,
        started: int | None = None,
    ) -> None:
        """Add a command that has ended. `unknown` means that it was interrupted, so its outcome
        does not change earlier failures. `started` is the ref of its start, if recorded separately:
        the command does not change the outcome of runs that started later.
        """
        works, since = find_work(fact.command), started or fact.ref
        key = self._work_key(fact.command, works)
        before, failed_since = self._failing.get(key, (None, 0))
        hidden = any(work.is_exit_code_hidden and work.is_shown for work in works[-1:])
        asked = not passed and answers_no(fact.command, fact.exit_code)
        failed = output.ends_with_error() if passed and hidden else not passed and not asked
        if not unknown and failed:
            fact = replace(fact, errors=telling_lines(output.lines, fact.exit_code, fact.command))
            passed_since, by = self._passed.get(key, (0, 0))
            if passed_since > since:  # a job's failure, reported after a newer run had passed
                self.resolved.append((fact, by))
            elif failed_since > since:  # or had failed
                self._replaced_failures.append(fact)
            else:
                self._replaced_failures += [before] if before else []
                self._failing.pop(key, None)
                self._failing[key] = fact, since
        elif fact.exit_code is not None and not unknown:
            shown = [work for work in works if work.is_shown and not work.decides_success]
            succeeded = shown if shown and output.has_success_sign() else []
            done = [work for work in works if work.decides_success or work in succeeded]
            for work in () if asked else done:
                self._resolve(self._work_key(fact.command, [work]), fact.ref, since)
            if asked or len(done) == len(works) or (before and before.command == fact.command):
                self._resolve(key, fact.ref, since)
        self.commands.append(fact)

    def _work_key(self, command: str, works: Sequence[Work]) -> str:
        """Return the key of a command: its work, or its text if the work is not certain."""
        rows = [(self.absolute_path(w.folder), w.variables, w.words) for w in works]
        return json.dumps(rows) if rows else command

    def _resolve(self, key: str, ref: int, since: int) -> None:
        self._passed[key] = max(self._passed.get(key, (0, 0)), (since, ref))
        failed, failed_since = self._failing.get(key, (None, 0))
        if failed is not None and failed_since < since:
            del self._failing[key]
            self.resolved.append((failed, ref))


def _section_texts(document: Any, section: str) -> list[str]:
    texts = document.get(section) if isinstance(document, dict) else None
    rows = (row.get("text") if isinstance(row, dict) else row for row in _as_list(texts))
    return [text for text in rows if isinstance(text, str)]


def _rule_texts(document: Any) -> list[str]:
    """Return the user's rules in a summary document, formatted as in the summary's text."""
    rows = document.get("rules") if isinstance(document, dict) else None
    return [
        f"#{row.get('ref')}: {row['text']}"
        for row in _as_list(rows)
        if isinstance(row, dict) and isinstance(row.get("text"), str)
    ]


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _with_refs(texts: Iterable[tuple[int, str]]) -> list[dict[str, Any]]:
    return [{"ref": ref, "text": text} for ref, text in texts]


def _count_or_zero(value: Any) -> int:
    return value if isinstance(value, int) else 0
