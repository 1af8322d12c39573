"""Hooks: commands of the user, of plugins and of files that run at an event of the agent.

Commands in the settings get the event as one line of JSON on stdin. A command that runs before an
event can veto the event with exit code 2; the first lines of its output are the reason. Other
failures are only warnings.

Hooks in the published format (`published_hooks`) can also send text to the model, change calls,
answer questions and continue a turn.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ...tools.base import Output
from ...tools.system.phrasing import shorten
from ..config.settings import HookSettings
from ..config.start_gate import StartGate, StartRefused
from ..errors import SessionError, ToolError
from ..events import Answer, Notice, Question, TurnFinished, waiting
from ..extensions.hook_files import PublishedHook
from ..loop.interface import Feature, IncomingMessage, Ruling, ToolCall, Turn, Veto
from ..loop.live_session import LiveSession
from ..models.base import Reply, text_of
from ..security.program_starts import gate_of
from ..session.entries import End, Note
from ..session.log import Entries
from ..session.store import content_text
from .hook_runs import (
    CHECKING_EVENTS,
    MAX_COMMAND_CHARS,
    VETO_EXIT_CODE,
    HeadSink,
    changed_arguments,
    failure,
    run_command,
    subagent_names,
    tool_response,
)
from .published_hooks import HookOutcome, HookText, PublishedHooks

HOOK_TIMEOUT_S = 30.0
MAX_TOOL_OUTPUT_CHARS = 16_384
MAX_CONTINUATIONS_IN_A_ROW = 8  # by hooks, without a tool call in between
MAX_CONTINUATIONS = 100  # by hooks, per turn
IDLE_S = 60.0  # delay after a turn before hooks are notified that the agent waits
HOOK_TOPIC = "hook"  # topic of the note that the SessionStart hooks have run

Begins = Literal["startup", "resume", "clear", "compact"]


class HookRun(NamedTuple):
    """The last run of a hook in this session."""

    at: float  # seconds since the epoch
    outcome: str


def before_tool_event(call: ToolCall) -> dict[str, Any]:
    """Return the event of a call that is about to run."""
    return {
        "tool": call.tool, "title": call.title, "input": call.arguments, "cwd": str(call.cwd),
    }  # fmt: skip


def after_tool_event(call: ToolCall, output: Output, seconds: float) -> dict[str, Any]:
    """Return the event of a call that has run."""
    details = output.details
    changed = [row["path"] for row in details.get("changes", ())]
    if "diff" in details and "path" in details:
        changed.append(details["path"])
    return {
        **before_tool_event(call),
        "is_error": output.is_error,
        "output": output.text[:MAX_TOOL_OUTPUT_CHARS],
        "characters": output.filed.characters if output.filed else len(output.text),
        "seconds": round(seconds, 3),
        "changed": changed,
    }


class HooksFeature(Feature):
    """Runs the hooks of a conversation."""

    name = "hooks"

    def __init__(
        self,
        session: LiveSession,
        settings: HookSettings,
        published: Sequence[PublishedHook] = (),
        *,
        begins: Begins = "startup",
        kind: str = "",
        environ: Mapping[str, str] = {},
    ) -> None:
        """The `published` hooks run after the user's own. `kind` is the subagent type of the
        conversation, or "". `environ` is the environment of the agent.
        """
        super().__init__(session)
        self._settings, self._begins = settings, begins
        self.last_runs: dict[tuple[str, str], HookRun] = {}  # by event and command
        self._log_path = session.log.path
        self.published = PublishedHooks(
            session,
            published,
            kind,
            lambda hook, outcome: self._ran(hook.event, hook.run, outcome),
            environ,
        )
        self._names = subagent_names(kind) if kind else ()
        self._has_begun = False
        self._at_start = list[tuple[str, HookText]]()  # (kind of start, text), not recorded yet
        self._about_message: Sequence[HookText] = ()
        self._stop_reason: str | None = None  # why the turn must end
        self._continuations = self._continuations_in_a_row = 0
        self._idle: asyncio.TimerHandle | None = None
        if self.published.has("Notification") and session.ask and not self.published.is_subagent:
            session.ask = self._notifying(session.ask)

    async def session_started(self) -> None:
        """Run the hooks for the start of a session, and record their texts."""
        await self._run_own("session_start", {})
        await self._begin()
        if not self._at_start and not self.published.has("SessionStart"):
            return
        while self._at_start:
            source, text = self._at_start[0]
            self.published.record_texts(text, source=source)
            del self._at_start[0]
        self._note_start(self._begins)

    async def session_ended(self) -> None:
        """Run the hooks for the end of a session."""
        await self._run_own("session_end", {})
        if not self.published.is_subagent:
            await self.published.run("SessionEnd", ("other",), reason="other")

    async def _begin(self) -> None:
        """Run the published hooks for the start of a session, once. A resumed session also runs
        those of an earlier start that a kill interrupted.
        """
        if self._has_begun:
            return
        if self.published.is_subagent:
            if self._begins == "startup":
                found = await self.published.run("SubagentStart", self._names)
                self._at_start += [("startup", text) for text in found.texts]
        elif self.published.has("SessionStart"):
            missed = self._interrupted_start() if self._begins == "resume" else None
            texts = list[tuple[str, HookText]]()
            for source in (missed, self._begins):
                texts += await self._run_start_hooks(source) if source else []
            self._at_start += texts
        self._has_begun = True

    async def _run_start_hooks(self, source: Begins) -> list[tuple[str, HookText]]:
        model = self.session.model.id
        found = await self.published.run("SessionStart", (source,), source=source, model=model)
        return [(source, text) for text in found.texts]

    def _interrupted_start(self) -> Begins | None:
        """Return the start whose hooks did not finish according to the log, or None."""
        summary = self.session.view.summary
        with suppress(SessionError):
            for entry in reversed(self.session.log.entries()):
                if summary is not None and entry.seq <= summary.seq:
                    return "compact"
                if isinstance(entry, Note) and entry.topic == HOOK_TOPIC:
                    return None
        return "startup"

    def _note_start(self, source: Begins) -> None:
        """Record that the hooks for a start have run and that their texts are recorded."""
        if not self.published.is_subagent:
            text = f"the hooks of SessionStart have run: {source}"
            self.session.record(Note(topic=HOOK_TOPIC, text=text, data={"source": source}))

    async def message_received(self, message: IncomingMessage) -> None:
        """Run the hooks for a user message. Raises Veto."""
        if self.published.is_subagent:
            return
        self._cancel_idle()
        await self._begin()
        text = content_text(message.content)
        found = await self.published.run("UserPromptSubmit", prompt=text, user_prompt=text)
        if found.decision == "deny" or found.stop is not None:
            raise Veto(found.describe("prevented the message"))
        self._about_message = found.texts

    async def message_recorded(self, message: IncomingMessage) -> None:
        """Record the texts of hooks about a message."""
        texts, self._about_message = self._about_message, ()
        self.published.record_texts(*texts)

    async def turn_started(self, turn: Turn) -> None:
        """Reset the count of continuations by hooks."""
        self._stop_reason, self._continuations, self._continuations_in_a_row = None, 0, 0

    async def before_call(self) -> None:
        """Record the texts of background hooks. Raises Veto if a hook ended the turn."""
        self.published.record_background_texts()
        if self._stop_reason is not None:
            raise Veto(self._stop_reason)

    async def before_tool(self, call: ToolCall) -> Ruling | None:
        """Run the hooks before a tool call. Raises Veto."""
        if (veto := await self._run_own("before_tool", before_tool_event(call))) is not None:
            raise Veto(f"a before_tool hook prevented it: {veto}")
        return self._ruling(await self.published.run("PreToolUse", call=call), call)

    async def before_question(self, call: ToolCall, reason: str) -> Ruling | None:
        """Run the hooks that may answer a permission question. Raises Veto."""
        return self._ruling(await self.published.run("PermissionRequest", call=call), call)

    def _ruling(self, found: HookOutcome, call: ToolCall) -> Ruling | None:
        self.published.record_texts(*found.texts)
        if found.stop is not None:
            self._stop_reason = found.describe("ended the turn")
            raise Veto(self._stop_reason)
        if found.decision == "deny":
            raise Veto(found.describe("prevented it"))
        given = None
        if found.arguments is not None:
            given = changed_arguments(call.tool, call.arguments, found.arguments, call.cwd)
            given = None if given is call.arguments else given
        if found.decision == "ask":
            return Ruling("ask", found.describe("asks"), given)
        if found.decision == "allow":
            return Ruling("allow", found.describe("allows it"), given)
        return None if given is None else Ruling(arguments=given)

    async def tool_finished(self, call: ToolCall, output: Output, seconds: float) -> None:
        """Run the hooks after a tool call, and record their texts."""
        self._continuations_in_a_row = 0
        await self._run_own("after_tool", after_tool_event(call, output, seconds))
        text, duration = output.text[:MAX_TOOL_OUTPUT_CHARS], round(1000 * seconds)
        if output.is_error:
            found = await self.published.run(
                "PostToolUseFailure", call=call, error=text, is_interrupt=False,
                duration_ms=duration,
            )  # fmt: skip
        else:
            found = await self.published.run(
                "PostToolUse", call=call, tool_response=tool_response(call, output, text),
                duration_ms=duration,
            )  # fmt: skip
        self.published.record_texts(*found.texts)
        if found.stop is not None:
            self._stop_reason = found.describe("ended the turn")

    async def reply_received(self, reply: Reply, *, is_final: bool) -> str | None:
        """Run the hooks for the end of a turn. Continue the turn if a hook requests it."""
        if not is_final:
            return None
        event = "SubagentStop" if self.published.is_subagent else "Stop"
        found = await self.published.run(
            event,
            self._names,
            stop_hook_active=self._continuations > 0,
            last_assistant_message=text_of(reply.content),
        )
        if found.decision == "deny" and found.hook:
            found.texts.append(HookText(found.hook, found.reason or "Go on: it gave no reason."))
        if found.stop is not None or not found.texts:
            return None
        if (
            self._continuations_in_a_row >= MAX_CONTINUATIONS_IN_A_ROW
            or self._continuations >= MAX_CONTINUATIONS
        ):
            told = f"the hooks of {event} have continued the turn {self._continuations} times"
            self.session.notify("warning", f"{told}: it ends now")
            return None
        self._continuations += 1
        self._continuations_in_a_row += 1
        self.published.record_texts(*found.texts)
        origin = found.texts[-1].hook.origin
        self.session.notify("info", f"the hook {event} of the {origin} continues the turn")
        return ""

    async def before_summary(self, event: Mapping[str, Any]) -> None:
        """Run the hooks before a summary. Raises Veto."""
        if (veto := await self._run_own("before_compact", event)) is not None:
            raise Veto(veto)
        trigger = _trigger(event)
        found = await self.published.run(
            "PreCompact",
            (trigger,),
            trigger=trigger,
            custom_instructions=event.get("instructions", ""),
        )
        if found.decision == "deny" or found.stop is not None:
            raise Veto(found.describe("prevented it"))

    async def after_summary(self, event: Mapping[str, Any]) -> None:
        """Run the hooks after a summary, then the SessionStart hooks, whose texts are added to the
        context again.
        """
        await self._run_own("after_compact", event)
        trigger, summary = _trigger(event), self.session.view.summary
        await self.published.run(
            "PostCompact",
            (trigger,),
            trigger=trigger,
            compact_summary=summary.whole_text if summary else "",
        )
        if self.published.has("SessionStart") and not self.published.is_subagent:
            for source, text in await self._run_start_hooks("compact"):
                self.published.record_texts(text, source=source)
            self._note_start("compact")

    async def context_reached(self, text: str, event: Mapping[str, Any]) -> None:
        """Run the hooks for a context that has reached a size of the user's choice."""
        await self._run_own("context_reached", event)
        kind = "context_reached"
        await self.published.run("Notification", (kind,), notification_type=kind, message=text)

    async def turn_ended(self, finished: TurnFinished) -> None:
        """Start a timer that notifies hooks that the agent waits for the user."""
        if self.published.has("Notification") and not self.published.is_subagent:
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(
                IDLE_S, self._notify_hooks, "idle_prompt", "The agent is waiting for your input"
            )

    async def close(self) -> None:
        """Stop the timer and the background hooks."""
        self._cancel_idle()
        await self.published.close()

    def _cancel_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _notifying(self, ask: Callable[[Question], Any]) -> Callable[[Question], Any]:
        """Wrap `ask` so that hooks are notified before the user is asked."""

        async def asked(question: Question) -> Answer | None:
            kind = "elicitation_dialog" if question.form else "permission_prompt"
            about = f"The agent needs your permission: {question.tool} {question.title}"
            self._notify_hooks(kind, "The agent asks you something" if question.form else about)
            answer: Answer | None = await ask(question)
            return answer

        return asked

    def _notify_hooks(self, kind: str, message: str) -> None:
        """Run the hooks for a notification in the background."""
        self.published.start(
            self.published.run("Notification", (kind,), notification_type=kind, message=message)
        )

    async def _run_own(self, name: str, event: Mapping[str, Any]) -> str | None:
        """Run the commands in the settings for the event `name`. Return the reason of a veto, or
        None.

        A subagent's session is part of its parent's and has no start and end events.
        """
        commands = getattr(self._settings, name)
        if not commands or (self.published.is_subagent and name.startswith("session_")):
            return None
        told = {"event": name, "session": self._log_path.parent.name, **event}
        if name == "session_start":
            told["log"], told["cwd"] = str(self._log_path), str(self.session.context.cwd)
            told["resumed"] = self._begins == "resume"
        elif name == "session_end":
            told["log"], told["status"] = str(self._log_path), _last_status(self._log_path)
        with waiting(self.session.emit, f"the hooks of {name}"):
            return await run_hooks(
                commands,
                told,
                cwd=self.session.context.cwd,
                env=self.session.context.env,
                starts=gate_of(self.session.options),
                warn=self._warn,
                ran=lambda command, outcome: self._ran(name, command, outcome),
            )

    def _ran(self, event: str, command: str, outcome: str) -> None:
        self.last_runs[event, command] = HookRun(time.time(), outcome)

    def _warn(self, text: str) -> None:
        self.session.emit(Notice("warning", self.session.context.redact(Output(text)).text))


def _trigger(event: Mapping[str, Any]) -> str:
    """Return the trigger of a summary for published hooks."""
    return "manual" if event.get("trigger") == "manual" else "auto"


def _last_status(log_path: Path) -> str:
    """Return how the newest turn of a log ended, or ""."""
    with suppress(SessionError):
        return next((e.status for e in reversed(Entries(log_path)) if isinstance(e, End)), "")
    return ""


async def run_hooks(
    commands: Sequence[str],
    event: Mapping[str, Any],
    *,
    cwd: Path,
    env: Mapping[str, str],
    starts: StartGate,
    warn: Callable[[str], None],
    ran: Callable[[str, str], None] = lambda command, outcome: None,
    seconds: float = HOOK_TIMEOUT_S,
) -> str | None:
    """Run the commands in order until one vetoes the event. Return the reason of the veto, or None.

    `event` has its name in "event". Only events whose name starts with "before_" can be vetoed. The
    timeout of each command is `seconds`. Call `warn` for each failed command, and `ran` with the
    outcome of each command. A command before a call that may not start vetoes it. A cancellation
    leaves no process running.
    """
    line, kind = json.dumps(event).encode() + b"\n", str(event["event"])
    vetoable = kind.startswith("before_")
    for command in commands:
        output = HeadSink()
        name = shorten(command, MAX_COMMAND_CHARS)
        try:
            cleared = await starts.clear(starts.of_settings(f"the hook {kind}", command, cwd, env))
            code = await run_command(cleared, line, output, seconds=seconds)
        except (ToolError, StartRefused) as error:
            failed, code = f"did not start: {error}", -1
            if kind in CHECKING_EVENTS and isinstance(error, StartRefused):
                ran(command, failed)
                return str(error)
        else:
            failed = failure(code, output.lines(), seconds)
        if code == VETO_EXIT_CODE and vetoable:
            reason = output.lines()
            ran(command, f"prevented it: {reason or 'no reason'}")
            return reason or f"hook `{name}` vetoed it and gave no reason"
        ran(command, failed or f"ok: {output.lines() or 'no output'}")
        if failed:
            warn(f"hook `{name}` {failed}")
    return None
