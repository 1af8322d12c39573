"""The plan of a conversation: the agent proposes it, the user approves it, and it is recorded.

A plan is an entry of source PLAN in the log, so resumed, copied and rewound sessions have it. No
layer clears it, and it is inserted again in full after each summary. `plan.md` in the session's
folder is a copy for the user. The steps of the plan become the todo list.
"""

from collections.abc import Collection
from typing import Any, cast

from ...tools.base import Output, Tool
from ...tools.plan import PlanTool, steps_of, title_of
from ...tools.system.files import replace_file
from ..compaction.summary.request import first_tokens
from ..config.settings import PermissionMode
from ..context.tokens import estimate
from ..context.view import View
from ..errors import ToolError, UsageError
from ..events import Notice, Question
from ..lazy import dataclass
from ..loop.interface import Feature, Turn
from ..loop.live_session import LiveSession
from ..loop.permission_mode import announced_mode, mode_notice
from ..session.entries import PLAN, Entry, Note, User
from ..session.ledger import PLAN_TOPIC, PlanFact

PLAN_SHARE = 0.08  # of the window, limit for a new plan
CUT_SHARE = 0.16  # of the window, limit for a recorded plan after a change to a smaller window
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
    "is completed.",
    " {Recall} #{ref} has it.",
    "]",
)
_CUT = ("\n[{left} more characters", ": {Recall} #{ref} has all of it", ".]")


@dataclass(frozen=True, slots=True)
class _Pending:
    """A plan that applies from now on but is not recorded yet."""

    text: str
    agreed: bool


class PlanFeature(Feature):
    """The plan of a conversation."""

    def __init__(self, session: LiveSession) -> None:
        super().__init__(session)
        self._turn = Turn()
        self._pending: _Pending | None = None
        self._result = ""  # the plan as the result of a run that only plans

    def tools(self) -> list[Tool[Any]]:
        """Return the tool Plan."""
        return [PlanTool(self.propose)]

    async def turn_started(self, turn: Turn) -> None:
        """Record a pending plan, and announce to the model when planning starts or stops."""
        self._turn = turn
        self._record_pending()
        self._announce_planning()

    async def step_finished(self) -> str | None:
        """Record an approved plan. In a run that only plans, return the plan as the result."""
        self._record_pending()
        result, self._result = self._result, ""
        return result if result and self._turn.schema is None else None

    async def propose(self, text: str) -> Output:
        """Show a plan to the user and return the answer. Without a user, keep the plan as proposed.
        Raises ToolError for a plan that is too long or has no steps.
        """
        session = self.session
        try:
            self.check(text)
        except UsageError as error:
            raise ToolError(f"{error.message}. {error.hint}") from None
        answer = await session.ask(self._question(text)) if session.ask else None
        if answer is None:
            self._pending = _Pending(text, agreed=False)
            if session.approval.mode == "plan":
                self._result = text
                return Output(STANDS_ALONE, _details(text, agreed=False))
            return Output(GO_ON_ALONE, _details(text, agreed=False))
        if not answer.allow:
            if answer.reason:
                session.queued_messages.append(
                    f"[Of the proposed plan {title_of(text)!r}:] {answer.reason}"
                )
            why = f" They say: {answer.reason}" if answer.reason else ""
            return Output(DECLINED.format(why=why), {"declined": True})
        agreed = answer.plan or text
        self._pending = _Pending(agreed, agreed=True)
        if answer.mode:
            session.approval.mode = cast(PermissionMode, answer.mode)
            session.approval.sandboxed = False
        said = AGREED_HERE if agreed == text else EDITED_HERE
        return Output(said, _details(agreed, agreed=True))

    def check(self, text: str) -> str:
        """Return "" for a valid plan. Raises UsageError for a plan that is too long or has no
        steps.
        """
        most = int(PLAN_SHARE * self.session.model.current_window().size)
        if (size := estimate(text)) > most:
            raise UsageError(
                f"the plan takes {size:,} tokens, and a plan may take {most:,} of this window",
                hint="Make it shorter.",
            )
        if not steps_of(text):
            raise UsageError("the plan has no steps", hint='List them below a heading "## Steps".')
        return ""

    def _record_pending(self) -> None:
        """Record the pending plan and the permission mode for it. Raises RecordError."""
        session, pending = self.session, self._pending
        if pending is None:
            return
        self.keep(pending.text, agreed=pending.agreed)
        self._pending = None
        mode = session.approval.mode
        if pending.agreed and announced_mode(session.view) != mode:
            notice = mode_notice(mode, session.context.offered)
            session.record(User(content=notice, source="notice"))

    def keep(self, text: str, *, agreed: bool = True) -> None:
        """Record a plan that applies from now on. Raises RecordError."""
        session = self.session
        known = {todo["content"]: todo["status"] for todo in session.ledger.todos}
        todos = [{"content": s, "status": known.get(s, "pending")} for s in steps_of(text)]
        head = AGREED if agreed else PROPOSED
        details = {"plan": {"agreed": agreed}, "todos": todos}
        session.record(User(content=f"[{head}:]\n\n{text}", source=PLAN, details=details))
        session.context.todos[:] = todos
        try:
            replace_file(session.folder / PLAN_FILE, f"{text}\n".encode(errors="replace"))
        except OSError as error:
            told = f"the plan is in the log, but cannot be written to {PLAN_FILE}"
            session.emit(Notice("warning", f"{told}: {error.strerror}"))

    def drop(self) -> None:
        """Drop the plan. Raises RecordError."""
        session = self.session
        session.record(Note(topic=PLAN_TOPIC, text="dropped"))
        session.record(
            User(content="The user dropped the plan; it holds no more.", source="notice")
        )

    def first_entries(self) -> list[Entry]:
        """Return the plan if a kill prevented its insertion after a summary. A plan that was never
        recorded is recorded at the next turn.
        """
        session, fact = self.session, self.session.ledger.plan
        if pending := self._unrecorded():
            self._pending = pending
            return []
        if fact is None or any(item.source == PLAN for item in session.view.items):
            return []
        return [self._reinserted_entry(fact)]

    def reinserted(self, staying: Collection[int]) -> list[Entry]:
        """Return the plan, unless an entry in `staying` has it."""
        fact = self.session.ledger.plan
        if fact is None or any(_seq_of(self.session.view, seq) == fact.ref for seq in staying):
            return []
        return [self._reinserted_entry(fact)]

    def _announce_planning(self) -> None:
        """Record a notice that the model must start or stop planning, if the model does not know.
        Raises RecordError.
        """
        session = self.session
        if not any(isinstance(tool, PlanTool) for tool in session.tools):
            return  # a subagent without the tool
        now, known = session.approval.mode, announced_mode(session.view)
        if now != known and "plan" in (now, known):
            notice = mode_notice(now, session.context.offered)
            session.record(User(content=notice, source="notice"))

    def _reinserted_entry(self, fact: PlanFact) -> Entry:
        todos, details = self.session.ledger.todos, {"plan": {"ref": fact.ref}}
        offered = self.session.context.offered
        if fact.agreed and todos and all(todo["status"] == "completed" for todo in todos):
            text = offered.say(*DONE, ref=fact.ref, title=title_of(fact.text))
        else:
            head = AGREED if fact.agreed else PROPOSED
            text = f"[{head}, in #{fact.ref}; it still holds:]\n\n{fact.text}"
            most = int(CUT_SHARE * self.session.model.current_window().size)
            if estimate(text) > most:
                kept = first_tokens(text, most)
                text = kept + offered.say(*_CUT, left=f"{len(text) - len(kept):,}", ref=fact.ref)
        return User(content=text, source=PLAN, details=details)

    def _unrecorded(self) -> _Pending | None:
        """Return the plan of a call whose result is in the log but whose plan entry is missing,
        or None.
        """
        view = self.session.view
        since = self.session.ledger.plan.ref if self.session.ledger.plan else 0
        for item in reversed(view.items):
            if item.seq <= since or item.source == PLAN:
                return None
            found = view.facts(item)[0].get("plan")
            if isinstance(found, dict) and isinstance(found.get("text"), str):
                return _Pending(found["text"], agreed=found.get("agreed") is True)
        return None

    def _question(self, text: str) -> Question:
        approval = self.session.approval
        modes: list[PermissionMode] = ["accept-edits", "ask"]
        modes += [] if approval.unconfined else ["sandboxed"]
        modes += ["bypass"] if approval.first_mode == "bypass" else []
        name, title = PlanTool.name, title_of(text)
        return Question(name, title, {}, "", "", plan=text, modes=modes, check=self.check)


def _details(text: str, *, agreed: bool) -> dict[str, Any]:
    return {"plan": {"text": text, "agreed": agreed}}


def _seq_of(view: View, seq: int) -> int:
    """Return the seq of the entry whose plan an entry of the view repeats, or 0."""
    place = view.position(seq)
    item = None if place is None else view.items[place]
    if item is None or item.source != PLAN:
        return 0
    found = view.facts(item)[0].get("plan")
    ref = found.get("ref", seq) if isinstance(found, dict) else 0
    return ref if isinstance(ref, int) else 0
