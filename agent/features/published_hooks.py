"""The hooks of a conversation in the published format: which run at an event, and their answers.

The hooks of an event run one after another. Each gets the arguments as changed by the previous
hook. At an event that hooks can block, no hook runs after one that denies. A hook answers with its
exit code, and text or JSON on stdout. Its text for the model becomes an entry of source HOOK.

The transcript for these hooks has one JSON line per message. It is written from the log before each
run, only in sessions that have such hooks.
"""

import asyncio
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from datetime import datetime
from itertools import dropwhile, takewhile
from typing import Any, Literal, get_args

from pydantic import ValidationError

from ...tools.base import Output
from ...tools.system.phrasing import shorten
from ..compaction.layers.move import file_name
from ..errors import SessionError, UsageError
from ..events import waiting
from ..extensions.hook_files import PublishedHook
from ..lazy import dataclass
from ..loop.interface import ToolCall
from ..loop.live_session import LiveSession
from ..permissions.approval import Approval
from ..permissions.rules import parse_rule
from ..security.program_starts import gate_of
from ..session.archive import offload
from ..session.entries import HOOK, Assistant, Entry, Summary, ToolResult, User
from ..session.log import Log
from ..session.store import AGENTS, content_text
from .hook_runs import (
    MODES,
    VETO_EXIT_CODE,
    AnswerSink,
    HookOutput,
    changed_arguments,
    published_arguments,
    run_hook,
    subagent_names,
    tool_names,
)

TRANSCRIPT_NAME = "transcript.jsonl"  # in the session's folder


class HookTranscript:
    """The transcript of a session."""

    def __init__(self, log: Log) -> None:
        self._log, self._written, self._lock = log, 0, threading.Lock()
        self.path = log.path.with_name(TRANSCRIPT_NAME)

    def catch_up(self) -> None:
        """Write the new messages. Blocks. Raises OSError and SessionError."""
        with self._lock:  # read-only calls run in parallel
            if not self._written or self._log.last_seq > self._written:
                self._write()

    def _write(self) -> None:
        mode = 0 if self._written else os.O_TRUNC
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | mode
        with os.fdopen(os.open(self.path, flags, 0o600), "wb") as file:
            for entry in self._new_entries():
                if row := self._row(entry):
                    # Without spaces, because programs search the lines as text.
                    text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
                    file.write(text.encode("utf-8", "replace") + b"\n")
                self._written = entry.seq

    def _new_entries(self) -> Iterable[Entry]:
        """Return the entries that are not written yet, oldest first. A whole log is read entry
        by entry.
        """
        if not self._written:
            return self._log.entries()
        new = takewhile(lambda entry: entry.seq > self._written, reversed(self._log.entries()))
        return reversed([*new])

    def _row(self, entry: Entry) -> dict[str, Any] | None:
        message: dict[str, Any]
        if isinstance(entry, Assistant):
            if entry.purpose != "turn":
                return None
            message = {
                "role": "assistant", "id": entry.message_id, "type": "message",
                "model": entry.model, "content": entry.content,
                "stop_reason": entry.stop_reason, "usage": entry.usage,
            }  # fmt: skip
        elif isinstance(entry, ToolResult):
            result = {
                "type": "tool_result", "tool_use_id": entry.tool_use_id,
                "content": entry.content, "is_error": entry.is_error,
            }  # fmt: skip
            message = {"role": "user", "content": [result]}
        elif isinstance(entry, User):
            message = {"role": "user", "content": entry.content}
        elif isinstance(entry, Summary):
            message = {"role": "user", "content": entry.whole_text}
        else:
            return None
        return {
            "type": message["role"],
            "message": message,
            "uuid": str(entry.seq),
            "timestamp": entry.at,
            "sessionId": self._log.path.parent.name,
            "isMeta": isinstance(entry, User) and entry.source != "person",
            "isSidechain": False,
        }


Decision = Literal["", "allow", "ask", "deny"]

# Events whose hooks may send plain text to the model.
_PLAIN_TEXT_EVENTS = ("SessionStart", "UserPromptSubmit")
# Documented keys of answers that have no effect here.
_UNSUPPORTED = (
    "updatedToolOutput", "updatedMCPToolOutput", "updatedPermissions", "sessionTitle",
    "reloadSkills", "watchPaths", "initialUserMessage", "terminalSequence",
)  # fmt: skip
_DECISIONS: Mapping[Any, Decision] = {"approve": "allow", "block": "deny"}  # at the top level
_PERMISSIONS: tuple[str, ...] = get_args(Decision)


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """The answer of a hook. Missing values are "" or None."""

    problem: str = ""  # why there is no answer
    decision: Decision = ""  # about the event
    reason: str = ""  # of the decision
    context: str = ""  # for the model
    message: str = ""  # for the user
    stop: str | None = None  # the reason to end the turn
    arguments: Mapping[str, Any] | None = None  # replacement arguments of the call
    unsupported: tuple[str, ...] = ()  # keys without effect here

    @property
    def outcome(self) -> str:
        """How the hook ended, for the user."""
        if self.problem:
            return self.problem
        if self.stop is not None:
            return f"ended the turn: {self.stop or 'no reason'}"
        if self.decision:
            return f"{self.decision}: {self.reason or 'no reason'}"
        return f"ok: {self.context or self.message or 'no output'}"


def read_answer(event: str, run: HookOutput) -> HookAnswer:
    """Return the answer of a hook."""
    if run.problem:
        return HookAnswer(run.problem)
    if run.code == VETO_EXIT_CODE:
        return HookAnswer(decision="deny", reason=run.stderr.strip() or run.stdout.strip())
    text = run.stdout.strip()
    said = _json(text)
    if said is None:
        return HookAnswer(context=text if event in _PLAIN_TEXT_EVENTS else "")
    own = _object(said.get("hookSpecificOutput"))
    decision, reason = _decision(said, own)
    stop = _text(said, "stopReason") if said.get("continue") is False else None
    granted = _object(own.get("decision"))
    arguments = granted.get("updatedInput", own.get("updatedInput"))
    return HookAnswer(
        decision=decision,
        reason=reason,
        context=_text(own, "additionalContext"),
        message=_text(said, "systemMessage"),
        stop=stop,
        arguments=arguments if isinstance(arguments, dict) else None,
        unsupported=tuple(key for key in _UNSUPPORTED if key in {**said, **own, **granted}),
    )


def _json(text: str) -> Mapping[str, Any] | None:
    """Return the JSON object in a text, or None for other text."""
    try:
        found = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _decision(said: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[Decision, str]:
    granted = _object(own.get("decision"))
    if granted.get("behavior") in ("allow", "deny"):
        return granted["behavior"], _text(granted, "message")
    if (found := own.get("permissionDecision")) in _PERMISSIONS:
        return found, _text(own, "permissionDecisionReason")
    found = said.get("decision")
    return (_DECISIONS[found] if found in ("approve", "block") else ""), _text(said, "reason")


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(said: Mapping[str, Any], key: str) -> str:
    value = said.get(key)
    return value.strip() if isinstance(value, str) else ""


MAX_TEXT_CHARS = 10_000  # of a hook's text at an event
MAX_CLOSING_S = 5.0  # maximum wait for background hooks at the end of a session
BLOCKING_EVENTS = (
    "UserPromptSubmit", "PreToolUse", "PermissionRequest", "Stop", "SubagentStop", "PreCompact",
)  # fmt: skip
FEEDBACK_EVENTS = ("PostToolUse", "PostToolUseFailure")  # refusals are sent to the model
MAX_CALL_CHARS = 80  # of a call's title in the head of a hook's text

_CONTINUES = "The call continues without this hook"
_HEAD = "[From the hook {event} of the {origin}{about}. These are not the user's words.]"
_CUT = ("[cut here: {left} more characters", "; {Recall} #{ref} has all of it", "]")


@dataclass(frozen=True, slots=True)
class HookText:
    """The text of a hook for the model."""

    hook: PublishedHook
    text: str
    about: str = ""  # the call it is about


@dataclass(slots=True)
class HookOutcome:
    """The combined answers of all hooks of an event."""

    decision: str = ""  # deny before ask before allow
    reason: str = ""
    hook: PublishedHook | None = None  # the hook that decided
    stop: str | None = None  # the reason to end the turn
    arguments: Mapping[str, Any] | None = None  # under their published names
    texts: list[HookText] = field(default_factory=list)

    def add(self, hook: PublishedHook, answer: HookAnswer, about: str = "") -> None:
        """Add the answer of a hook."""
        order = ("", "allow", "ask", "deny")
        if order.index(answer.decision) > order.index(self.decision):
            self.decision, self.hook = answer.decision, hook
            self.reason = answer.reason or answer.message
        if answer.stop is not None:
            self.stop, self.hook = answer.stop, hook
        if answer.arguments is not None:
            self.arguments = answer.arguments
        if answer.context:
            self.texts.append(HookText(hook, answer.context, about))
        if answer.decision == "deny" and hook.event in FEEDBACK_EVENTS:
            self.texts.append(HookText(hook, answer.reason or answer.message, about))

    def describe(self, what: str) -> str:
        """Return the decision as text for the user and the model."""
        assert self.hook is not None
        reason = (self.reason if self.stop is None else self.stop) or "it gave no reason"
        name = f"the hook {self.hook.event} of the {self.hook.origin}"
        return f"{name} {what}: {shorten(reason, MAX_TEXT_CHARS)}"


class PublishedHooks:
    """The hooks of a conversation in the published format."""

    def __init__(
        self,
        session: LiveSession,
        hooks: Sequence[PublishedHook],
        kind: str,
        ran: Callable[[PublishedHook, str], None],
        environ: Mapping[str, str],
    ) -> None:
        """`kind` is the subagent type of the conversation, or "". `ran` is called after each run
        with its outcome. Headers of requests may use variables from `environ`.
        """
        self.all, self._session, self._kind, self._ran = hooks, session, kind, ran
        self._environ = environ
        self._transcript = HookTranscript(session.log)
        self._conditions: dict[str, Approval | None] = {}
        self._background = set[asyncio.Task[None]]()
        self._background_texts = list[HookText]()  # from background hooks, not recorded yet
        self.is_subagent = session.folder.parent.name == AGENTS

    def has(self, event: str) -> bool:
        """Return True if there are hooks for an event."""
        return any(hook.event == event for hook in self.all)

    async def run(
        self,
        event: str,
        names: Sequence[str] = (),
        *,
        call: ToolCall | None = None,
        **fields: Any,
    ) -> HookOutcome:
        """Run the hooks of an event whose matcher accepts one of these names, or the tool of the
        call. `fields` are added to their input.
        """
        names = tool_names(call.tool) if call else names
        matching = (hook for hook in self.all if hook.event == event and hook.matches(*names))
        hooks = [*dropwhile(lambda hook: not self._matches_condition(hook, call), matching)]
        outcome, now = HookOutcome(), call
        if not hooks:
            return outcome
        with suppress(OSError, SessionError):
            await asyncio.to_thread(self._transcript.catch_up)
        given = {**self._common(event), **_call_fields(call), **fields}
        with waiting(self._session.emit, f"the hooks of {event}"):
            for hook in hooks:
                if not self._matches_condition(hook, now):
                    continue
                line = json.dumps(self._redacted(given)).encode() + b"\n"
                answer = await self._answer(hook, line)
                if answer is None:
                    continue
                outcome.add(hook, answer, _title(call))
                if answer.decision == "deny" and event in BLOCKING_EVENTS:
                    break
                if answer.arguments is not None and call:
                    given["tool_input"] = changed = dict(answer.arguments)
                    ours = changed_arguments(call.tool, call.arguments, changed, call.cwd)
                    now = replace(call, arguments=ours)
        return outcome

    async def _answer(self, hook: PublishedHook, line: bytes) -> HookAnswer | None:
        """Return the answer of a hook, or None if it continues in the background."""
        context, output = self._session.context, AnswerSink()
        env = hook.environment(context.env, context.cwd)
        if hook.kind == "http":
            env = {**self._environ, **env}
        work = asyncio.ensure_future(
            run_hook(
                hook, line, output, cwd=context.cwd, env=env, starts=gate_of(self._session.options)
            )
        )
        going_on = asyncio.ensure_future(output.goes_to_background.wait())
        if hook.in_background:
            output.goes_to_background.set()
        try:
            await asyncio.wait({work, going_on}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait({work})
            raise
        finally:
            going_on.cancel()
        if not work.done():
            self.start(self._await_background_hook(hook, work))
            return None
        return self._read_answer(hook, work.result())

    def _read_answer(self, hook: PublishedHook, found: HookOutput) -> HookAnswer:
        """Return the answer of a hook, and show its messages for the user."""
        answer, session = read_answer(hook.event, found), self._session
        self._ran(hook, answer.outcome)
        name = f"the hook {hook.event} of the {hook.origin}"
        if answer.problem:
            ending = f". {_CONTINUES}" if hook.event == "PreToolUse" else ""
            self._notify("warning", f"{name} {answer.problem}{ending}")
        elif answer.decision == "deny" and hook.event not in BLOCKING_EVENTS + FEEDBACK_EVENTS:
            self._notify("warning", f"{name} says: {answer.reason or answer.message}")
        elif answer.message and (answer.reason or answer.decision != "deny"):
            self._notify("warning", f"{hook.origin}: {answer.message}")
        for warning in found.warnings:
            session.warn_once(f"{name} {warning}")
        for key in answer.unsupported:
            session.warn_once(f"{name} answers {key}, which is not supported here")
        return answer

    async def _await_background_hook(
        self, hook: PublishedHook, work: "asyncio.Task[HookOutput]"
    ) -> None:
        try:
            answer = self._read_answer(hook, await work)
        finally:
            work.cancel()
        if text := answer.context or answer.reason:
            self._background_texts.append(HookText(hook, text))

    def start(self, work: Any) -> None:
        """Run a task in the background, until the session closes."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """Wait up to MAX_CLOSING_S for the background hooks, then cancel them."""
        if self._background:
            _, late = await asyncio.wait(self._background, timeout=MAX_CLOSING_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def record_background_texts(self) -> None:
        """Record the texts of background hooks. Raises RecordError."""
        while self._background_texts:
            self.record_texts(self._background_texts[0])
            del self._background_texts[0]

    def record_texts(self, *texts: HookText, source: str = "") -> None:
        """Record texts of hooks for the model; `source` is how the session started. At a start,
        skip a text that the context already has. Raises RecordError.
        """
        for each in texts:
            entry = self._entry(each, source)
            if not (source and self._is_in_context(entry)):
                self._session.record(entry)

    def _entry(self, text: HookText, source: str) -> User:
        """Return the entry of a text. A text above the limit is cut, and a file gets all of it."""
        session, hook = self._session, text.hook
        head = _HEAD.format(event=hook.event, origin=hook.origin, about=text.about)
        whole = content_text(
            session.log.redact(User(content=f"{head}\n{text.text}", source=HOOK)).content
        )
        digest = hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()
        about = {"event": hook.event, "of": hook.origin, "source": source, "sha256": digest}
        details = {"hook": about}
        limit = len(head) + MAX_TEXT_CHARS
        if len(whole) <= limit:
            return User(content=whole, source=HOOK, details=details)
        seq = session.log.last_seq + 1
        path = session.folder / "offloaded" / file_name("hook", seq, datetime.now())
        left = f"{len(whole) - limit:,}"
        shown = f"{whole[:limit]}\n{session.context.offered.say(*_CUT, left=left, ref=seq)}"
        offloaded = None
        try:
            offload(path, whole)
            offloaded = str(path.relative_to(session.folder))
        except OSError as error:
            self._notify(
                "warning", f"the text of a hook cannot be saved in {path}: {error.strerror}"
            )
        return User(content=shown, source=HOOK, details=details, offloaded=offloaded)

    def _is_in_context(self, entry: User) -> bool:
        view, digest = self._session.view, entry.details["hook"]["sha256"]
        items = (item for item in view.items if item.source == HOOK)
        return any(view.facts(item)[0].get("hook", {}).get("sha256") == digest for item in items)

    def _notify(self, level: Any, text: str) -> None:
        self._session.notify(level, self._session.context.redact(Output(text)).text)

    def _redacted(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the input of a hook without secrets."""
        return self._session.log.redact(User(content="", details=given)).details

    def _common(self, event: str) -> dict[str, Any]:
        """Return the fields that hooks get at every event."""
        session = self._session
        own = session.folder.parents[1] if self.is_subagent else session.folder
        fields = {
            "session_id": own.name,
            "transcript_path": str(own / self._transcript.path.name),
            "cwd": str(session.context.cwd),
            "permission_mode": MODES[session.approval.mode],
            "hook_event_name": event,
        }
        if self.is_subagent:
            fields["agent_id"] = session.folder.name
            fields["agent_type"] = subagent_names(self._kind)[0]
            fields["agent_transcript_path"] = str(self._transcript.path)
        return fields

    def _matches_condition(self, hook: PublishedHook, call: ToolCall | None) -> bool:
        """Return True if a call matches the condition of a hook. A hook with an invalid condition
        always runs.
        """
        if not hook.condition or call is None:
            return True
        approval = self._approval_of(hook)
        if approval is None:
            return True
        tool = next((each for each in self._session.tools if each.name == call.tool), None)
        if tool is None:
            return parse_rule(hook.condition).covers(call.tool)
        try:
            params = tool.Params.model_validate(call.arguments)
        except ValidationError:
            return True
        return approval.judge(tool, params).action == "deny"

    def _approval_of(self, hook: PublishedHook) -> Approval | None:
        """Return rules that deny the calls matching a condition, or None for an invalid
        condition.
        """
        condition, cwd = hook.condition, self._session.context.cwd
        if condition not in self._conditions:
            try:
                found: Approval | None = Approval(mode="bypass", deny=(condition,), cwd=cwd)
            except UsageError as error:
                found = None
                self._notify("warning", f"the {hook.origin}: its hook runs for all calls: {error}")
            self._conditions[condition] = found
        return self._conditions[condition]


def _call_fields(call: ToolCall | None) -> dict[str, Any]:
    if call is None:
        return {}
    return {
        "tool_name": tool_names(call.tool)[0],
        "tool_input": published_arguments(call.tool, call.arguments, call.cwd),
        "tool_use_id": call.id,
    }


def _title(call: ToolCall | None) -> str:
    if call is None:
        return ""
    return f", about the call {call.tool} {shorten(' '.join(call.title.split()), MAX_CALL_CHARS)}"
