"""An agent on a scripted model in a separate folder, with every request validated.

talk = Conversation(tmp_path, [Step(text="hello")])
finished = talk.say("hi")
talk.kinds()  # the kinds of entry in the log
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.config.settings import PermissionMode
from ctxagent.agent.events import Answer, Ask, Event, Question, TurnFinished
from ctxagent.agent.launch import Budget
from ctxagent.agent.loop.budget import BudgetMeter
from ctxagent.agent.loop.model_roles import ModelRoles
from ctxagent.agent.loop.model_session import ModelSession
from ctxagent.agent.loop.open_log import SessionRecord
from ctxagent.agent.loop.resume import create_session, resume_session
from ctxagent.agent.loop.session_handle import SessionHandle
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.base import Model
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.security.planted import PlantedWatch
from ctxagent.agent.session.checkpoints import Checkpoints
from ctxagent.agent.session.entries import Entry, Session, User
from ctxagent.agent.session.log import read_log
from ctxagent.agent.session.search.recall import enable_recall
from ctxagent.tools.base import Context, Tool

from ..server.validator import validate
from ..starts import start_gate
from .setup import FixedEnvironment, FixedHooks, FixedOpening, every_tool, put_together


class Conversation:
    """A conversation. `cwd` is the project; its sessions are in a folder next to it. `ask` answers
    permission prompts; None means that no user is present.
    """

    def __init__(
        self,
        cwd: Path,
        steps: Sequence[Step] | Callable[[Any], Step] = (),
        *,
        tools: Sequence[Tool[Any]] | None = None,
        mode: PermissionMode = "bypass",
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        ask: Ask | None = None,
        bounds: Budget | None = None,
        model: Model | None = None,
        window: int = 200_000,
        policy: Policy | None = None,
        session: str = "s",
    ) -> None:
        self.cwd = cwd
        self.events: list[Event] = []
        self.hooks = FixedHooks()
        self.tools = every_tool() if tools is None else list(tools)
        self.model = model or ScriptedModel(steps, check=validate, window=window)
        state = cwd.parent / f"{cwd.name}-state"
        path = state / "sessions" / session / "log.jsonl"
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        log, standing, resumption = resume_session(path) if path.exists() else create_session(path)
        checkpoints = Checkpoints(path.parent, None, standing.numbering)
        context = Context(cwd=cwd, session_dir=path.parent, env={"PATH": "/usr/bin:/bin"})
        enable_recall(context, state, path)
        meter = BudgetMeter(bounds or Budget())
        record = SessionRecord(
            log, standing.view, standing.ledger, standing.totals, checkpoints, resumption
        )
        handle = SessionHandle(
            session=record,
            model=ModelSession(
                ModelRoles(self.model), record, meter, lambda event: handle.emit(event)
            ),
            tools=[],
            approval=Approval(mode=mode, allow=allow, deny=deny, cwd=cwd),
            context=context,
            opening=FixedOpening(self._session),  # type: ignore[arg-type]
            emit=self.events.append,
            ask=ask,
            policy=policy or DEFAULT,
            budget_meter=meter,
            starts=start_gate(path.parent),
        )
        self.environment = FixedEnvironment(
            handle, lambda: [User(content="Still here.", source="environment")]
        )
        watch = PlantedWatch(cwd)
        self.agent = put_together(handle, self.environment, self.hooks, self.tools, watch)

    def _session(self) -> Session:
        schemas = [tool.schema() for tool in self.tools]
        return Session(
            id="s", cwd=str(self.cwd), version="0", model="scripted", system="Be good.",
            tools=schemas,
        )  # fmt: skip

    def use(self, model: Model) -> None:
        """Continue with another model."""
        self.agent.model.roles.choose(model, planning=False)
        self.agent.model.change(model)

    def say(self, words: str) -> TurnFinished:
        """Run one turn in a new event loop."""
        return asyncio.run(run_turn(self.agent, words))

    def interrupted_at(self, words: str, when: Callable[[Event], bool]) -> TurnFinished:
        """Run one turn and cancel it as soon as `when` returns True for an event."""

        async def run() -> TurnFinished:
            turn = asyncio.ensure_future(run_turn(self.agent, words))

            def emit(event: Event) -> None:
                self.events.append(event)
                if when(event):
                    asyncio.get_running_loop().call_soon(turn.cancel)

            self.agent.handle.emit = emit
            return await turn

        return asyncio.run(run())

    def entries(self) -> list[Entry]:
        return read_log(self.agent.log.path).entries

    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.entries()]

    def of(self, kind: type[Any]) -> list[Any]:
        return [entry for entry in self.entries() if isinstance(entry, kind)]

    def seen(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def answering(*answers: Answer) -> tuple[Ask, list[Question]]:
    """Return an `ask` that gives these answers in order, and the list of questions it received."""
    questions: list[Question] = []

    async def ask(question: Question) -> Answer:
        questions.append(question)
        return answers[len(questions) - 1]

    return ask, questions
