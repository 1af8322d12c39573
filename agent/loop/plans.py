"""The plan of a conversation: proposed by the agent, agreed to by the person, never forgotten.

A plan that stands is an entry of source PLAN in the log, so that a resumed session, a copy and a
rewound one have it by themselves. No layer clears it, and after each summary it is said again,
whole. `plan.md` in the session's folder is a copy of it for people. Its steps are the todo list
that the agent begins with, and what the agent does later is held against it.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from ...tools.base import Context, Output
from ...tools.plan import PlanTool, steps_of, title_of
from ...tools.system.files import replace_file
from ..compaction.drift.monitor import DriftMonitor
from ..compaction.summary.request import first_tokens
from ..config.settings import PermissionMode
from ..context.tokens import estimate
from ..context.view import View
from ..context.window import Window
from ..errors import ToolError, UsageError
from ..events import Ask, Emit, Notice, Question
from ..permissions.approval import Approval
from ..session.entries import PLAN, Entry, Note, User
from ..session.ledger import PLAN_TOPIC, Ledger, PlanFact
from ..session.log import Log
from .permission_mode import announced_mode, mode_notice

PLAN_SHARE = 0.08  # of the window, for a plan
CUT_SHARE = 0.16  # of it, beyond which a plan is cut: the window became smaller than it was
PLAN_FILE = "plan.md"

AGREED = "The user agrees to this plan"
AGREED_HERE = "The user agrees to the plan as you proposed it."
EDITED_HERE = "The user has edited the plan and agrees to it as it is now; it follows."
STANDS_ALONE = (
    "The plan is kept, and is what this run is for. Nobody can agree to it here, so end now."
)
GO_ON_ALONE = (
    "The plan is kept. Nobody can agree to it in this run: carry it out as far as the permission "
    "mode allows."
)
PROPOSED = "This plan was proposed. The user has not agreed to it but by what they say later"
DECLINED = "The user does not agree to the plan yet.{why} Change it and propose it again."
DONE = (
    "[The plan that was agreed to in #{ref}, {title}, is carried out: every step on the todo list "
    "is completed. Recall #{ref} has it.]"
)
_CUT = "\n[{left:,} more characters: Recall #{ref} has all of it.]"


class PlanHost(Protocol):
    """A conversation as its plan needs it; `AgentState` has these members."""

    log: Log
    view: View
    ledger: Ledger
    approval: Approval
    context: Context
    drift_monitor: DriftMonitor
    unrecorded_answers: list[str]

    @property
    def ask(self) -> Ask | None: ...

    @property
    def emit(self) -> Emit: ...

    @property
    def tools(self) -> Any: ...

    @property
    def folder(self) -> Path: ...

    def record(self, entry: Entry) -> Entry: ...

    def current_window(self) -> Window: ...


@dataclass(frozen=True, slots=True)
class _Pending:
    """A plan that stands from now on and is not recorded yet."""

    text: str
    agreed: bool


class SessionPlan:
    """The plan of one conversation."""

    def __init__(self, agent: PlanHost) -> None:
        self._agent = agent
        self._pending: _Pending | None = None
        self._result = ""  # the plan that a run which only plans ends with

    async def propose(self, text: str) -> Output:
        """Put a plan to the person, and return what they say; where nobody can be asked it is kept
        as proposed. Raises ToolError for one that is too long."""
        agent = self._agent
        try:
            self.check(text)
        except UsageError as error:
            raise ToolError(f"{error.message}. {error.hint}") from None
        answer = await agent.ask(self._question(text)) if agent.ask else None
        if answer is None:
            self._pending = _Pending(text, agreed=False)
            if agent.approval.mode == "plan":
                self._result = text
                return Output(STANDS_ALONE, _details(text, agreed=False))
            return Output(GO_ON_ALONE, _details(text, agreed=False))
        if not answer.allow:
            if answer.reason:
                agent.unrecorded_answers.append(
                    f"[Of the proposed plan {title_of(text)!r}:] {answer.reason}"
                )
            why = f" They say: {answer.reason}" if answer.reason else ""
            return Output(DECLINED.format(why=why), {"declined": True})
        agreed = answer.plan or text
        self._pending = _Pending(agreed, agreed=True)
        if answer.mode:
            agent.approval.mode = cast(PermissionMode, answer.mode)
            agent.approval.sandboxed = False
        said = AGREED_HERE if agreed == text else EDITED_HERE
        return Output(said, _details(agreed, agreed=True))

    def check(self, text: str) -> str:
        """Return "" for a plan that may stand. Raises UsageError for one that has no steps or is
        too long."""
        most = int(PLAN_SHARE * self._agent.current_window().size)
        if (size := estimate(text)) > most:
            raise UsageError(
                f"the plan takes {size:,} tokens, and a plan may take {most:,} of this window",
                hint="Make it shorter.",
            )
        if not steps_of(text):
            raise UsageError("the plan has no steps", hint='List them below a heading "## Steps".')
        return ""

    def take_result(self) -> str:
        """Return the plan that a run which only plans ends with, once; "" for none."""
        result, self._result = self._result, ""
        return result

    def record_pending(self) -> None:
        """Record the plan that was agreed to, and the mode in which it is carried out. Raises
        RecordError."""
        agent, pending = self._agent, self._pending
        if pending is None:
            return
        self.keep(pending.text, agreed=pending.agreed)
        self._pending = None
        mode = agent.approval.mode
        if pending.agreed and announced_mode(agent.view) != mode:
            agent.record(User(content=mode_notice(mode), source="notice"))

    def keep(self, text: str, *, agreed: bool = True) -> None:
        """Record a plan that stands from now on. Raises RecordError."""
        agent = self._agent
        known = {todo["content"]: todo["status"] for todo in agent.ledger.todos}
        todos = [{"content": s, "status": known.get(s, "pending")} for s in steps_of(text)]
        head = AGREED if agreed else PROPOSED
        details = {"plan": {"agreed": agreed}, "todos": todos}
        agent.record(User(content=f"[{head}:]\n\n{text}", source=PLAN, details=details))
        agent.context.todos[:] = todos
        if agreed:
            agent.drift_monitor.arm_for_plan(agent.view.summary)
        try:
            replace_file(agent.folder / PLAN_FILE, f"{text}\n".encode(errors="replace"))
        except OSError as error:
            told = f"the plan stands in the log, but cannot be written to {PLAN_FILE}"
            agent.emit(Notice("warning", f"{told}: {error.strerror}"))

    def drop(self) -> None:
        """Take back the plan that stands. Raises RecordError."""
        agent = self._agent
        agent.record(Note(topic=PLAN_TOPIC, text="dropped"))
        agent.record(User(content="The user dropped the plan; it holds no more.", source="notice"))

    def first_entries(self) -> list[Entry]:
        """Return what a session that is opened has to be told of its plan: one that a killed
        process did not say again after a summary. One that it did not record at all is recorded
        with the next words."""
        agent, fact = self._agent, self._agent.ledger.plan
        if pending := self._unrecorded():
            self._pending = pending
            return []
        if fact is None or any(item.source == PLAN for item in agent.view.items):
            return []
        return [self._again(fact)]

    def after_summary(self, staying: Collection[int]) -> list[Entry]:
        """Return what is to be said again after a summary behind which the items with the seqs
        `staying` still stand."""
        fact = self._agent.ledger.plan
        if fact is None or any(_seq_of(self._agent.view, seq) == fact.ref for seq in staying):
            return []
        return [self._again(fact)]

    def _again(self, fact: PlanFact) -> Entry:
        todos, details = self._agent.ledger.todos, {"plan": {"ref": fact.ref}}
        if fact.agreed and todos and all(todo["status"] == "completed" for todo in todos):
            text = DONE.format(ref=fact.ref, title=title_of(fact.text))
        else:
            head = AGREED if fact.agreed else PROPOSED
            text = f"[{head}, in #{fact.ref}; it still holds:]\n\n{fact.text}"
            most = int(CUT_SHARE * self._agent.current_window().size)
            if estimate(text) > most:
                kept = first_tokens(text, most)
                text = kept + _CUT.format(left=len(text) - len(kept), ref=fact.ref)
        return User(content=text, source=PLAN, details=details)

    def _unrecorded(self) -> _Pending | None:
        """Return a plan that a result names and that was never recorded."""
        view = self._agent.view
        since = self._agent.ledger.plan.ref if self._agent.ledger.plan else 0
        for item in reversed(view.items):
            if item.seq <= since or item.source == PLAN:
                return None
            found = view.facts(item)[0].get("plan")
            if isinstance(found, dict) and isinstance(found.get("text"), str):
                return _Pending(found["text"], agreed=found.get("agreed") is True)
        return None

    def _question(self, text: str) -> Question:
        approval = self._agent.approval
        modes: list[PermissionMode] = ["accept-edits", "ask"]
        modes += [] if approval.unconfined else ["sandboxed"]
        modes += ["bypass"] if approval.first_mode == "bypass" else []
        name, title = PlanTool.name, title_of(text)
        return Question(name, title, {}, "", "", plan=text, modes=modes, check=self.check)


def announce_planning(agent: PlanHost) -> None:
    """Tell the model that it is to plan, or no longer, where it takes it to be otherwise. Raises
    RecordError."""
    if not any(isinstance(tool, PlanTool) for tool in agent.tools):
        return
    now, known = agent.approval.mode, announced_mode(agent.view)
    if now != known and "plan" in (now, known):
        agent.record(User(content=mode_notice(now), source="notice"))


def _details(text: str, *, agreed: bool) -> dict[str, Any]:
    return {"plan": {"text": text, "agreed": agreed}}


def _seq_of(view: View, seq: int) -> int:
    """Return the seq of the plan that an item says, 0 if it says none."""
    place = view.position(seq)
    item = None if place is None else view.items[place]
    if item is None or item.source != PLAN:
        return 0
    found = view.facts(item)[0].get("plan")
    ref = found.get("ref", seq) if isinstance(found, dict) else 0
    return ref if isinstance(ref, int) else 0
