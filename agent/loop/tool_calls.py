"""Run the tool calls of one message.

Each call is checked (known tool, valid arguments), judged by the permission rules, put to a person
where the rules say so, and run. Calls that change nothing run side by side, the others one after
another, all in the order the model wrote them. Each result is recorded as it finishes, so that an
interrupt, a crash or a kill loses none that was finished.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from ...tools.base import Context, Interrupted, Output, Params, Tool
from ...tools.network import NetworkParams, NetworkTool
from ...tools.system import orphans
from ..compaction.policy import Policy
from ..errors import ToolError
from ..events import Answer, Ask, Emit, Notice, Question, ToolFinished, ToolOutput, ToolStarted
from ..permissions import suggestions
from ..permissions.approval import Approval
from ..permissions.verdict import Verdict
from ..security.planted import PlantedWatch
from ..session.entries import Block, Entry, Note, ToolResult
from ..session.log import LOG_NAME
from ..session.store import locate_log
from .hooks import Hook, after_tool_event, before_tool_event
from .result_files import ResultFiles

if TYPE_CHECKING:
    from .file_changes import ChangeTracker

T = TypeVar("T")

UNJUDGED = Verdict("allow", "nobody was asked: it is a person's own call")

CUT_OFF = "The arguments of this call are not valid JSON, so nothing was run: {error}. Write the \
call again{hint}."
LONG_SUBJECT_CHARS = 500  # of a command that takes more than a moment to judge
MAX_JUDGING_S = 5.0  # for one call, before a person is asked
MAX_PARALLEL_CALLS = 16  # calls that run at once; each may hold a process and its pipes
INTERRUPTED = "[interrupted by the user]"
NOT_RUN = "[not run: the user interrupted before this call started]"


@dataclass(frozen=True, slots=True)
class Denial:
    """A call that was not allowed. `asked` is False where no person could be asked."""

    tool: str
    title: str
    rule: str
    reason: str
    asked: bool  # False where no person could be asked


class _Refused(Exception):
    """The call does not run; the output says why."""

    def __init__(self, text: str, **details: Any) -> None:
        super().__init__(text)
        self.output = Output(text, details, is_error=True)


@dataclass
class ToolRunner:
    """Runs the tool calls of one conversation."""

    tools: Mapping[str, Tool[Any]]
    approval: Approval
    context: Context
    policy: Policy
    record: Callable[[Entry], Entry]
    next_seq: Callable[[], int]
    emit: Emit
    ask: Ask | None  # None where no person can be asked: what would ask is denied
    denials: list[Denial] = field(default_factory=list)
    # finds what the calls change, for the details of results
    change_tracker: "ChangeTracker | None" = None
    # awaited before a call that may change something
    before_change: Callable[[], Awaitable[None]] | None = None
    run_hook: Hook | None = None  # awaited before and after each call
    planted: PlantedWatch | None = None  # finds what commands leave for other programs to run

    @property
    def files(self) -> ResultFiles:
        """Files of the session for results."""
        return ResultFiles(self.tools, self.context, self.policy, self.next_seq, self.emit)

    async def run(self, calls: list[Block], broken: Mapping[str, str], cut: bool) -> None:
        """Run the calls and record a result for each.

        `broken` has the raw arguments of calls whose JSON did not parse; `cut` says that the output
        limit cut the message off. When cancelled, a result is recorded for every call before
        CancelledError is raised.
        """
        waiting = list(calls)
        try:
            while waiting:
                group = self._group(waiting, broken)
                async with asyncio.TaskGroup() as tasks:
                    for call in group:
                        waiting.remove(call)
                        tasks.create_task(self._one(call, broken.get(call["id"]), cut))
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None
        except asyncio.CancelledError:
            for call in waiting:
                self._finish(call, self._title(call), _not_run(), 0.0)
            raise

    def _group(self, calls: list[Block], broken: Mapping[str, str]) -> list[Block]:
        """Return the calls to run next, side by side: a run of harmless ones, or a single other."""
        harmless = []
        for call in calls[:MAX_PARALLEL_CALLS]:
            tool = self.tools.get(call["name"])
            if call["id"] not in broken and tool and tool.effect not in ("none", "read"):
                break
            harmless.append(call)
        return harmless or calls[:1]

    async def _one(self, call: Block, raw: str | None, cut: bool) -> None:
        title, started, stopped = self._title(call), time.monotonic(), _not_run()
        name = call["name"]
        try:
            tool, params, given = self._checked(call, raw, cut)
            name, title = tool.name, tool.title(params)
            verdict = await self._allowed(tool, params, title, given, call["id"])
            started = time.monotonic()
            stopped = Output(INTERRUPTED, {"interrupted": True}, is_error=True)
            self.emit(ToolStarted(call["id"], tool.name, title, given))
            output = await self.watched(tool, params, call["id"], verdict)
        except _Refused as refused:  # the time that a person thought is none of the call's
            self._finish(call, title, refused.output, 0.0, name)
            return
        except Interrupted as interrupted:
            self._finish(call, title, interrupted.output, time.monotonic() - started, name)
            raise asyncio.CancelledError from None
        except asyncio.CancelledError:
            self._finish(call, title, stopped, 0.0, name)
            raise
        seconds = time.monotonic() - started
        output = self._finish(call, title, output, seconds, name)
        if self.run_hook is not None:
            before = before_tool_event(tool.name, title, given, self.context.cwd)
            await self.run_hook("after_tool", after_tool_event(before, output, seconds))

    async def permitted(self, tool: Tool[Any], params: Params, id: str) -> Output:
        """Run a call that is no model's, if it is permitted as one of the model's would be, and
        return its output with what it changed, or why it may not run; nothing is recorded. Raises
        as `watched` does."""
        try:
            given = params.model_dump()
            verdict = await self._allowed(tool, params, tool.title(params), given, id)
            return await self.watched(tool, params, id, verdict)
        except _Refused as refused:
            return refused.output

    async def watched(
        self, tool: Tool[Any], params: Params, id: str, verdict: Verdict = UNJUDGED
    ) -> Output:
        """Run a permitted call and return its output with what it changed; nothing is recorded.

        It runs in the sandbox that its verdict asks for, on the file that was judged. Raises
        Interrupted with what there is of it, or CancelledError.
        """
        if self.change_tracker is None:
            return await self._outcome(tool, params, id, verdict)
        token = await self.change_tracker.before(tool, params)
        if self.before_change and token and (token.before is not None or token.edits is not None):
            await self.before_change()
        await self.change_tracker.save(token)
        interrupted = False
        try:
            output = await self._outcome(tool, params, id, verdict)
        except Interrupted as interruption:
            output, interrupted = interruption.output, True
        try:
            found = await self.change_tracker.after(token, hurry=interrupted)
        except asyncio.CancelledError:
            raise Interrupted(output) from None
        output = replace(output, details={**output.details, **found})
        if interrupted:
            raise Interrupted(output)
        return output

    async def _outcome(self, tool: Tool[Any], params: Params, id: str, verdict: Verdict) -> Output:
        """Run a call, and tell the person and the model what its command planted for later."""
        watch = self.planted
        if watch is None or not (tool.effect == "run" or tool.name == "Job"):
            return await self._run(tool, params, id, verdict)
        await asyncio.to_thread(watch.begin, self.context.jobs, unasked=verdict.confined)
        interrupted = False
        try:
            output = await self._run(tool, params, id, verdict)
        except Interrupted as interruption:
            output, interrupted = interruption.output, True
        finally:
            found = await asyncio.to_thread(watch.end)
        if found:
            self.emit(Notice("warning", found.notice))
            output = replace(output, text=f"{output.text}\n{found.note}".strip("\n"))
            if output.filed:
                output.filed.file.add_note(self.context.redact(Output(found.note)).text)
        if interrupted:
            raise Interrupted(output)
        return output

    async def _run(self, tool: Tool[Any], params: Params, id: str, verdict: Verdict) -> Output:
        def tell(text: str) -> None:
            self.emit(ToolOutput(id, text))

        try:
            context = self._context(verdict)
            open_file = self.files.opener(tool.name, id)
            context = replace(context, progress=tell, env=self._env(id), open_file=open_file)
            return await tool.run(params, replace(context, is_denied=self.approval.denies_reading))
        except ToolError as error:
            return Output(str(error), dict(error.details), is_error=True)
        except Interrupted:
            raise
        except Exception as error:  # a tool's own fault must not end the session
            text = f"{tool.name} failed by a fault of its own: {type(error).__name__}: {error}"
            return Output(text, {"fault": type(error).__name__}, is_error=True)

    def _env(self, id: str) -> Mapping[str, str]:
        """Return the environment of a call's commands, which names the call they belong to, should
        they outlive this process."""
        context = self.context
        if context.session_dir is None:
            return context.env
        session = locate_log(context.session_dir / LOG_NAME)[1]
        name = orphans.call_name(session, self.next_seq(), id)
        return orphans.named(context.env, name)

    def _title(self, call: Block) -> str:
        """Return what a call is about: as its tool says or, of a call that cannot be run, the texts
        among its arguments."""
        tool, given = self.tools.get(call["name"]), call["input"]
        try:
            if tool is not None:
                return tool.title(tool.Params.model_validate(given))
        except ValidationError:
            pass
        texts = given.values() if isinstance(given, dict) else ()
        return " ".join(text for text in texts if isinstance(text, str))

    def _checked(
        self, call: Block, raw: str | None, cut: bool
    ) -> tuple[Tool[Any], Params, dict[str, Any]]:
        """Return the tool that a call is for, its parameters, and how they were given. Raises
        _Refused."""
        tool = self.tools.get(call["name"])
        if tool is None:
            raise _Refused(
                f"There is no tool {call['name']!r}. The tools: {', '.join(self.tools)}."
            )
        if raw is not None:
            error = "the output limit cut them off" if cut else _json_error(raw)
            hint = ", in smaller pieces" if cut else ""
            raise _Refused(CUT_OFF.format(error=error, hint=hint))
        try:
            asked, params = tool.resolve(tool.Params.model_validate(call["input"]))
        except ValidationError as error:
            raise _Refused(_argument_error(tool, error)) from None
        except ToolError as error:
            raise _Refused(str(error), **error.details) from None
        return asked, params, call["input"] if asked is tool else params.model_dump()

    async def _allowed(
        self, tool: Tool[Any], params: Params, title: str, given: dict[str, Any], id: str = ""
    ) -> Verdict:
        """Return the verdict by which the call `id` may run. Raises _Refused when it may not."""
        verdict = await self._judged_in_time(tool, params)
        if verdict.action == "deny":
            self._deny(tool, title, verdict, asked=True)
            raise _Refused(f"Not allowed: {verdict.reason}", denied=True)
        await self._run_before_hook(tool, title, given, verdict)
        if verdict.action == "allow":
            return verdict
        answer = None
        if self.ask is not None:
            question = await self._question(tool, params, title, given, verdict, id)
            self.approval.asked.append((tool, params))
            answer = await self.ask(question)
        if answer is None:
            self._deny(tool, title, verdict, asked=False)
            raise _Refused(
                f"Not allowed: {verdict.reason}, and nobody can be asked in this run. Do without "
                "it, or say in your answer what you would need.",
                denied=True,
            )
        if answer.allow:
            self._recheck(tool, params, verdict)
            if answer.sandboxed:
                self.approval.sandboxed = True
            elif answer.where:
                self.approval.allow_for_session(answer.rule)
            self._note_answer(tool, title, answer)
            unasked = answer.sandboxed or bool(answer.reason)  # a rule or the mode allows it now
            return replace(verdict, confined=unasked and self._judged(tool, params).confined)
        if (now := self._judged(tool, params)).action == "deny":  # the mode has changed
            self._deny(tool, title, now, asked=True)
            raise _Refused(f"Not allowed: {now.reason}", denied=True)
        self._deny(tool, title, replace(verdict, reason=answer.reason), asked=True, answer="no")
        why = f" They say: {answer.reason}" if answer.reason else ""
        details = {"reason": answer.reason} if answer.reason else {}
        raise _Refused(f"The user declined this call.{why}", denied=True, declined=True, **details)

    async def why_not_reached(self, host: str) -> str:
        """Return why a command in the sandbox may not reach a host that settings do not name, "" if
        it may: rules and the person decide, as of a call."""
        try:
            await self._allowed(NetworkTool(), NetworkParams(host=host), host, {"host": host})
        except _Refused as refused:
            return refused.output.text
        return ""

    def _context(self, verdict: Verdict) -> Context:
        """Return what a call is handed: the place that was judged, and the stricter sandbox if it
        runs because that confines it."""
        sandbox, context = self.context.sandbox, replace(self.context, judged=verdict.path)
        if sandbox is None:
            return context
        if not verdict.confined:
            return (
                replace(context, sandbox=sandbox.opening(verdict.opens))
                if verdict.opens
                else context
            )
        guarded = self.approval.guarded_files()
        if guarded is None:
            raise _Refused("Not done: files that rules guard cannot be found any more. Try again.")
        hidden, kept = guarded
        later = self.planted.closed() if self.planted else []
        return replace(context, sandbox=sandbox.unasked(hidden, [*kept, *later]))

    async def _judged_in_time(self, tool: Tool[Any], params: Params) -> Verdict:
        """Return the verdict, made beside all else: a person can interrupt it. One that takes too
        long is "ask" in every mode, and what would come of it later does not count."""
        try:
            async with asyncio.timeout(MAX_JUDGING_S):
                return await _beside(lambda: self._judged(tool, params), tool, params)
        except TimeoutError:
            return Verdict("ask", "what it does cannot be told in time")

    def _judged(self, tool: Tool[Any], params: Params) -> Verdict:
        """Return the verdict of the rules, or "ask" for an exception that no rule covers."""
        verdict = self.approval.judge(tool, params)
        why = tool.why_ask_anyway(params, self._context(verdict))
        if not why or verdict.action == "deny" or self.approval.mode == "bypass":
            return verdict
        reason = f"{why}; {verdict.reason}" if verdict.action == "ask" else why
        return replace(verdict, action="ask", reason=reason, confined=False)

    async def _run_before_hook(
        self, tool: Tool[Any], title: str, given: dict[str, Any], verdict: Verdict
    ) -> None:
        """Let the person's own hooks veto the call, before the person is asked."""
        if self.run_hook is None:
            return
        event = before_tool_event(tool.name, title, given, self.context.cwd)
        if (veto := await self.run_hook("before_tool", event)) is not None:
            reason = f"a before_tool hook prevented it: {veto}"
            self._deny(tool, title, replace(verdict, reason=reason), asked=True, answer="hook")
            raise _Refused(f"Not allowed: {reason}", denied=True)

    def _recheck(self, tool: Tool[Any], params: Params, asked: Verdict) -> None:
        """Refuse a call whose file leads elsewhere than when it was asked about.

        A person thinks for minutes, and jobs go on meanwhile.
        """
        now = self.approval.judge(tool, params)
        moved = tool.effect in ("read", "edit") and now.path != asked.path
        if moved or (now.action == "deny" and self.approval.mode != "plan"):
            why = "it leads elsewhere" if now.action == "allow" else now.reason
            raise _Refused(f"Not done: since it was asked about, {why}. Call it again.")

    async def _question(
        self,
        tool: Tool[Any],
        params: Params,
        title: str,
        given: dict[str, Any],
        verdict: Verdict,
        id: str,
    ) -> Question:
        def settled() -> Answer | None:
            now = self._judged(tool, params)
            if now.action == "ask":
                return None
            return Answer(now.action == "allow", reason=now.reason, rule=now.rule)

        def offers() -> Sequence[str]:
            return suggestions.suggest(self.approval, tool, params, verdict.rule, self.context.cwd)

        def confines() -> bool:
            return self.approval.would_confine(tool, params)

        anyway = tool.why_ask_anyway(params, self.context)
        return Question(
            tool.name,
            title,
            given,
            verdict.rule,
            verdict.reason,
            await self._diff(tool, params, verdict),
            call=id,
            may_be_sandboxed=not anyway and await _beside(confines, tool, params),
            offers=() if anyway else await _beside(offers, tool, params),
            check=lambda rule: suggestions.check_for_call(
                self.approval, rule, tool, params, self.context.cwd
            ),
            settled=settled,
        )

    async def _diff(self, tool: Tool[Any], params: Params, verdict: Verdict) -> str | None:
        """Return what the call would change.

        A call that must fail is refused, so that nobody is asked in vain, unless the reason would
        tell of a file that may not be read unasked.
        """
        try:
            found = await tool.preview(params, self._context(verdict))
        except ToolError as error:
            if self._may_read(tool.subject(params)):
                raise _Refused(str(error), **error.details) from None
            return None
        return found.get("diff")

    def _may_read(self, path: str) -> bool:
        reader = self.tools.get("Read")
        if reader is None:
            return False
        given = reader.Params.model_validate({"path": path})
        return self.approval.judge(reader, given).action == "allow"

    def _note_answer(self, tool: Tool[Any], title: str, answer: Answer) -> None:
        """Record that a call which was asked about is allowed."""
        kind = "always" if answer.where else "not needed" if answer.reason else "yes"
        data = {
            "answer": kind, "rule": answer.rule, "where": answer.where, "reason": answer.reason,
        }  # fmt: skip
        self.record(Note(topic="permission", text=f"allowed: {tool.name} {title}", data=data))

    def _deny(
        self, tool: Tool[Any], title: str, verdict: Verdict, *, asked: bool, answer: str = ""
    ) -> None:
        denial = Denial(tool.name, title, verdict.rule, verdict.reason, asked)
        self.denials.append(denial)
        text = f"not authorised: {tool.name} {title}"
        data = {
            "answer": answer, "rule": verdict.rule, "reason": verdict.reason, "asked": asked,
        }  # fmt: skip
        self.record(Note(topic="permission", text=text, data=data))

    def _finish(
        self, call: Block, title: str, output: Output, seconds: float, name: str = ""
    ) -> Output:
        """Record a result, and return the output as it was recorded. `name` is that of the tool
        which was run, where it is not the one that was called."""
        output = self.context.redact(output)
        details = {**output.details, **self.files.kept_original(output)}
        content: str | list[Block] = output.blocks or output.text
        offloaded = None
        if output.whole or isinstance(content, str):
            content, offloaded = self.files.settle(call["name"], output, details)
        recorded = self.record(
            ToolResult(
                tool_use_id=call["id"],
                content=content,
                is_error=output.is_error,
                details=details,
                offloaded=offloaded,
            )
        )
        shown = content if isinstance(content, str) else output.text
        self.emit(
            ToolFinished(
                call["id"], name or call["name"], title, output.is_error, shown, seconds, details,
                recorded.seq,
            )
        )  # fmt: skip
        return output


def _not_run() -> Output:
    """Return the output of a call that was stopped before it started."""
    return Output(NOT_RUN, {"interrupted": True, "not_run": True}, is_error=True)


async def _beside(look: Callable[[], T], tool: Tool[Any], params: Params) -> T:
    """Look at a call and return what was found: at once, or beside all else where that may take
    more than a moment."""
    if len(tool.subject(params)) < LONG_SUBJECT_CHARS:
        return look()
    return await asyncio.to_thread(look)


def denial_error(denials: Sequence[Denial]) -> dict[str, str] | None:
    """Return the error of a turn in which calls were denied that nobody was asked about."""
    if not denials:
        return None
    lines = [
        f"{d.tool} {d.title}: {d.reason}; "
        + (f"allow it with --allow '{d.rule}'" if d.rule else "answer it with --answers FILE")
        for d in denials
    ]
    return {"type": "PermissionDenied", "message": "\n".join(dict.fromkeys(lines))}


def _json_error(raw: str) -> str:
    try:
        json.loads(raw)
    except (ValueError, RecursionError) as error:
        return str(error)
    return "they are not a JSON object, or one that is nested too deep"


def _argument_error(tool: Tool[Any], error: ValidationError) -> str:
    """Turn pydantic's findings into short lines that the model can act on."""
    lines = [f"{tool.name} was not run, its arguments are wrong:"]
    for found in error.errors(include_url=False)[:8]:
        where = ".".join(map(str, found["loc"])) or "arguments"
        lines.append(f"- {where}: {found['msg']}")
    lines.append(f"It takes: {', '.join(tool.Params.model_fields)}.")
    return "\n".join(lines)
