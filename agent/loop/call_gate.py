"""Permission for tool calls: rules, features and the user decide, in this order."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any, TypeVar

from pydantic import ValidationError

from ...tools.base import Context, Params, Tool
from ...tools.bash import BashParams
from ...tools.network import NetworkParams, NetworkTool
from ...tools.system.confinement import CommandLimits, Confinement
from ..errors import ToolError, UsageError
from ..events import Answer, Question
from ..lazy import dataclass
from ..permissions import suggestions
from ..permissions.approval import Approval
from ..permissions.effects import with_effects
from ..permissions.objections import PLAN_MODE_REFUSAL, Verdict
from ..permissions.rule_set import RuleKind
from ..security.planted import PlantedWatch
from ..session.entries import Note
from .call_arguments import CallRefused, argument_error
from .denials import Denial
from .dispatch import Features
from .interface import ToolCall, Veto
from .live_session import LiveSession

T = TypeVar("T")

LONG_SUBJECT_CHARS = 500  # a longer command may be slow to judge
MAX_JUDGING_S = 5.0  # for one call; then the user is asked
TOO_MANY_GUARDED = (
    "permission rules guard more files of this project than the sandbox can hide. For commands "
    "that you or a rule allow, only the text of the command is checked against these rules"
)


@dataclass
class CallGate:
    """Decides which calls of one conversation may run."""

    session: LiveSession
    features: Features
    planted: PlantedWatch | None = None
    # Commands that the user has allowed to write to the project's repository.
    _repository_commands: set[str] = field(default_factory=set, init=False)
    # Files guarded by rules, to hide and to make read-only, from the last successful search.
    guarded: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []), init=False)

    async def permit(
        self, tool: Tool[Any], params: Params, call: ToolCall
    ) -> tuple[Params, ToolCall, Verdict]:
        """Return the verdict that permits a call, and the call as changed by features. Raises
        CallRefused.
        """
        verdict = await self._ruled(tool, params, call.title)
        waited = list[bool]()  # not empty once another task has run
        mark = asyncio.get_running_loop().call_soon(waited.append, True)
        with self._vetoes(tool, call, verdict):
            changed, ruling = await self.features.before_tool(call)
        mark.cancel()
        if changed is not call:
            params, call, verdict = await self._ruled_again(tool, changed)
        elif waited:  # files and rules may have changed
            verdict = await self._ruled(tool, params, call.title)
        if ruling.action == "allow" and verdict.action == "ask":
            verdict = self._allowed(tool, params, call, verdict, ruling.reason)
        must_ask = ruling.action == "ask"
        if must_ask:
            verdict = _to_be_asked(verdict, ruling.reason)
        if verdict.action == "allow":
            return params, call, verdict
        with self._vetoes(tool, call, verdict):
            answered = await self.features.before_question(call, verdict.reason)
        if answered is None:
            verdict = await self._asked(tool, params, call, verdict, must_ask=must_ask)
            return params, call, verdict
        if answered.arguments is not None:
            changed = replace(call, arguments=answered.arguments)
            params, call, verdict = await self._ruled_again(tool, changed)
        else:  # the answer may have taken minutes
            await self._ruled(tool, params, call.title)
            self._recheck(tool, params, verdict)
        self._note_answer(tool, call.title, Answer(allow=True, reason=answered.reason))
        return params, call, verdict

    async def _ruled_again(
        self, tool: Tool[Any], changed: ToolCall
    ) -> tuple[Params, ToolCall, Verdict]:
        """Return a call that features have changed, with the rules' verdict on the changed call.
        Raises CallRefused.
        """
        try:
            params = tool.Params.model_validate(changed.arguments)
        except ValidationError as error:
            raise CallRefused(argument_error(tool, error)) from None
        call = replace(changed, title=tool.title(params))
        return params, call, await self._ruled(tool, params, call.title)

    def _allowed(
        self, tool: Tool[Any], params: Params, call: ToolCall, asked: Verdict, reason: str
    ) -> Verdict:
        """Return the verdict on a call as if a rule allowed its tool. Return the verdict `asked` if
        such a rule would not be enough.
        """
        try:
            as_if = self.session.approval.with_rule(tool.name)
        except UsageError:  # no rule can name the tool
            return asked
        verdict = self._judged(tool, params, as_if)
        if verdict.action != "allow":
            return asked
        self._note_answer(tool, call.title, Answer(allow=True, reason=reason))
        return replace(verdict, reason=reason)

    async def _ruled(self, tool: Tool[Any], params: Params, title: str) -> Verdict:
        """Return the rules' verdict. Raises CallRefused for a denied call."""
        verdict = await self._judged_in_time(tool, params)
        if verdict.action == "deny":
            self._deny(tool, title, verdict, asked=True)
            raise self._refused(verdict)
        return verdict

    @contextmanager
    def _vetoes(self, tool: Tool[Any], call: ToolCall, verdict: Verdict) -> Iterator[None]:
        """Record a feature's veto and raise CallRefused for it."""
        try:
            yield
        except Veto as veto:
            verdict = replace(verdict, reason=veto.message)
            self._deny(tool, call.title, verdict, asked=True, answer="hook")
            raise CallRefused(f"Not allowed: {veto.message}", denied=True) from None

    async def _asked(
        self, tool: Tool[Any], params: Params, call: ToolCall, verdict: Verdict, *, must_ask: bool
    ) -> Verdict:
        """Ask the user, and return the verdict if they allow the call. With `must_ask`, no rule and
        no mode answers for the user. Raises CallRefused.
        """
        answer, title = None, call.title
        if self.session.ask is not None:
            question = await self._question(tool, params, call, verdict, must_ask=must_ask)
            self.session.approval.asked.append((tool, params))
            answer = await self.session.ask(question)
        if answer is None:
            self._deny(tool, title, verdict, asked=False)
            raise CallRefused(
                f"Not allowed: {verdict.reason}, and nobody can be asked in this run. Do without "
                "it, or say in your answer what you would need.",
                denied=True,
            )
        if answer.allow:
            self._recheck(tool, params, verdict)
            if answer.sandboxed:
                self.session.approval.sandboxed = True
            elif answer.where:
                self.session.approval.allow_for_session(answer.rule)
            self._note_answer(tool, title, answer)
            if answer.sandboxed or answer.reason:  # the mode or a rule allows it now
                return replace(self._judged(tool, params), action="allow")
            if isinstance(params, BashParams) and params.repository:
                self._repository_commands.add(params.command)
                verdict = replace(verdict, writes_repository=True)
            return verdict
        if (now := self._judged(tool, params)).action == "deny":  # the mode has changed
            self._deny(tool, title, now, asked=True)
            raise self._refused(now)
        self._deny(tool, title, replace(verdict, reason=answer.reason), asked=True, answer="no")
        why = f" They say: {answer.reason}" if answer.reason else ""
        details = {"reason": answer.reason} if answer.reason else {}
        raise CallRefused(
            f"The user declined this call.{why}", denied=True, declined=True, **details
        )

    def _refused(self, verdict: Verdict) -> CallRefused:
        """Return the refusal of a call that the rules or the mode deny."""
        text = f"Not allowed: {verdict.reason}"
        if verdict.reason == PLAN_MODE_REFUSAL:
            text += self.session.context.offered.say(" with {Plan}")
        return CallRefused(text, denied=True)

    async def network_refusal(self, host: str) -> str:
        """Return the reason why a sandboxed command may not connect to a host; "" if it may. Rules
        and the user decide, as for a call.
        """
        tool, params = NetworkTool(), NetworkParams(host=host)
        call = ToolCall("", tool.name, host, {"host": host}, self.session.context.cwd)
        try:
            await self.permit(tool, params, call)
        except CallRefused as refused:
            return refused.output.text
        return ""

    def context_for(
        self, tool: Tool[Any], verdict: Verdict, hide: Sequence[str] = (), keep: Sequence[str] = ()
    ) -> Context:
        """Return the context of a call: the judged path and, for a command, the sandbox of its
        verdict. The paths in `hide` are hidden, the paths in `keep` are read-only.
        """
        context = replace(self.session.context, judged_path=verdict.path)
        sandbox = self._sandbox_of(verdict)
        if tool.effect != "run" or sandbox is None:
            return context
        limits = CommandLimits(
            unasked=verdict.confined,
            looks=verdict.read_only and sandbox is context.read_only_sandbox,
            writes_repository=verdict.writes_repository,
            hide=hide,
            keep=keep,
            opens=verdict.opens,
        )
        return replace(context, sandbox=sandbox.for_command(limits))

    def context_to_run(self, tool: Tool[Any], verdict: Verdict) -> Context:
        """Return the context to run a permitted call in. Files that deny rules name are hidden from
        commands or read-only. If the user was not asked, this includes files that ask rules name.
        Raises CallRefused.
        """
        sandbox = self._sandbox_of(verdict)
        if tool.effect != "run" or sandbox is None or sandbox.absent:
            return self.context_for(tool, verdict)
        kinds: tuple[RuleKind, ...] = ("deny",)
        if verdict.confined or verdict.read_only:
            kinds = ("deny", "ask")
        guarded = self.session.approval.guarded_files(kinds)
        if guarded is None:
            if verdict.confined:
                raise CallRefused(
                    "Not done: files that rules guard cannot be found any more. Try again."
                )
            self.session.warn_once(TOO_MANY_GUARDED)
            guarded = self.guarded  # the last known files: now there are too many
        self.guarded = hide, keep = guarded
        if verdict.confined and self.planted:
            keep = [*keep, *self.planted.watched_paths()]
        return self.context_for(tool, verdict, hide, keep)

    def _sandbox_of(self, verdict: Verdict) -> Confinement | None:
        """Return the sandbox for the session's commands, or the one for read-only commands."""
        context = self.session.context
        confined = context.read_only_sandbox
        if verdict.read_only and confined is not None and confined.holds_looking:
            return confined
        return context.sandbox

    async def _judged_in_time(self, tool: Tool[Any], params: Params) -> Verdict:
        """Return the rules' verdict; an interrupt can cancel this. After a timeout, the verdict is
        "ask" in every mode.
        """
        try:
            async with asyncio.timeout(MAX_JUDGING_S):
                return await _beside(lambda: self._judged(tool, params), tool, params)
        except TimeoutError:
            return Verdict("ask", "checking what it does took too long")

    def _judged(self, tool: Tool[Any], params: Params, approval: Approval | None = None) -> Verdict:
        """Return the rules' verdict, or "ask" for an exception that no rule covers."""
        verdict = (approval or self.session.approval).judge(tool, params)
        if tool.subject(params) in self._repository_commands:
            verdict = replace(verdict, writes_repository=True)
        why = tool.why_ask_anyway(params, self.context_for(tool, verdict))
        if not why or verdict.action == "deny" or self.session.approval.mode == "bypass":
            return verdict
        return _to_be_asked(verdict, why)

    def _recheck(self, tool: Tool[Any], params: Params, asked: Verdict) -> None:
        """Refuse a call whose file has moved since the user was asked.

        The user may take minutes to answer, and background jobs keep running.
        """
        now = self.session.approval.judge(tool, params)
        moved = tool.effect in ("read", "edit") and now.path != asked.path
        if moved or (now.action == "deny" and self.session.approval.mode != "plan"):
            why = "it leads elsewhere" if now.action == "allow" else now.reason
            raise CallRefused(f"Not done: since it was asked about, {why}. Call it again.")

    async def _question(
        self,
        tool: Tool[Any],
        params: Params,
        call: ToolCall,
        verdict: Verdict,
        *,
        must_ask: bool,
    ) -> Question:
        approval = self.session.approval

        def settled() -> Answer | None:
            now = self._judged(tool, params)
            if now.action == "ask" or (must_ask and now.action == "allow"):
                return None
            return Answer(now.action == "allow", reason=now.reason, rule=now.rule)

        def offers() -> Sequence[str]:
            cwd = self.session.context.cwd
            return suggestions.suggest(approval, tool, params, verdict.rule, cwd)

        def confines() -> bool:
            return approval.would_confine(tool, params)

        def causes() -> Sequence[tuple[str, str]]:
            return approval.causes(tool.subject(params)) if tool.name == "Bash" else ()

        def effects() -> Mapping[str, str]:
            env = self.session.context.env
            return approval.effects(tool.subject(params), env) if tool.name == "Bash" else {}

        def accepts_edits() -> bool:
            edits = tool.effect == "edit" and approval.mode == "ask"
            return edits and approval.in_mode("accept-edits").judge(tool, params).action == "allow"

        named = await asyncio.to_thread(effects)
        anyway = must_ask or tool.why_ask_anyway(params, self.context_for(tool, verdict))
        return Question(
            tool.name,
            call.title,
            dict(call.arguments),
            verdict.rule,
            with_effects(verdict.reason, named),
            await self._diff(tool, params, verdict),
            call=call.id,
            may_be_sandboxed=not anyway and await _beside(confines, tool, params),
            may_accept_edits=not anyway and await _beside(accepts_edits, tool, params),
            causes=[
                (text, with_effects(reason, named, text))
                for text, reason in await _beside(causes, tool, params)
            ],
            effects=tuple(named.values()),
            offers=() if anyway else await _beside(offers, tool, params),
            check=lambda rule: suggestions.check_for_call(
                approval, rule, tool, params, self.session.context.cwd
            ),
            settled=settled,
        )

    async def _diff(self, tool: Tool[Any], params: Params, verdict: Verdict) -> str | None:
        """Return the diff of a call, for the question.

        A call that must fail is refused without a question, unless the reason would reveal the
        content of an unreadable file.
        """
        try:
            found = await tool.preview(params, self.context_for(tool, verdict))
        except ToolError as error:
            if self._may_read(tool.subject(params)):
                raise CallRefused(str(error), **error.details) from None
            return None
        return found.get("diff")

    def _may_read(self, path: str) -> bool:
        reader = next((tool for tool in self.session.tools if tool.name == "Read"), None)
        if reader is None:
            return False
        given = reader.Params.model_validate({"path": path})
        return self.session.approval.judge(reader, given).action == "allow"

    def _note_answer(self, tool: Tool[Any], title: str, answer: Answer) -> None:
        """Record that the user, a rule or a feature allowed a call after a question."""
        kind = "always" if answer.where else "not needed" if answer.reason else "yes"
        data = {
            "answer": kind, "rule": answer.rule, "where": answer.where, "reason": answer.reason,
        }  # fmt: skip
        self.session.record(
            Note(topic="permission", text=f"allowed: {tool.name} {title}", data=data)
        )

    def _deny(
        self, tool: Tool[Any], title: str, verdict: Verdict, *, asked: bool, answer: str = ""
    ) -> None:
        denial = Denial(tool.name, title, verdict.rule, verdict.reason, asked)
        self.session.denials.add(denial)
        text = f"not authorised: {tool.name} {title}"
        data = {
            "answer": answer, "rule": verdict.rule, "reason": verdict.reason, "asked": asked,
        }  # fmt: skip
        self.session.record(Note(topic="permission", text=text, data=data))


def _to_be_asked(verdict: Verdict, why: str) -> Verdict:
    """Return the verdict changed to "ask", with one more reason."""
    reason = f"{why}; {verdict.reason}" if verdict.action == "ask" else why
    return replace(verdict, action="ask", reason=reason, confined=False, read_only=False)


async def _beside(look: Callable[[], T], tool: Tool[Any], params: Params) -> T:
    """Return the result of `look`. Run it in a thread if the call has a long subject, since it may
    be slow.
    """
    if len(tool.subject(params)) < LONG_SUBJECT_CHARS:
        return look()
    return await asyncio.to_thread(look)
