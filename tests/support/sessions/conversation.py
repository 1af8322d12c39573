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
from ctxagent.agent.loop.resume import create_session, resume_session
from ctxagent.agent.loop.turn import run_turn
from ctxagent.agent.models.base import Model
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.permissions.approval import Approval
from ctxagent.agent.security.planted import PlantedWatch
from ctxagent.agent.session.entries import Entry, Session, User
from ctxagent.agent.session.log import read_log
from ctxagent.agent.session.search.recall import enable_recall
from ctxagent.tools.base import Context, Tool

from ..server.validator import validate
from .setup import FixedEnvironment, FixedHooks, agent_of, every_tool, put_together


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
        opened = resume_session(path) if path.exists() else create_session(path)
        context = Context(cwd=cwd, session_dir=path.parent, env={"PATH": "/usr/bin:/bin"})
        enable_recall(context, state, path)
        agent = agent_of(
            opened,
            self.model,
            context,
            opening=self._session,
            emit=self.events.append,
            ask=ask,
            approval=Approval(mode=mode, allow=allow, deny=deny, cwd=cwd),
            policy=policy or DEFAULT,
            meter=BudgetMeter(bounds or Budget()),
        )
        self.environment = FixedEnvironment(
            agent, lambda: [User(content="Still here.", source="environment")]
        )
        self.agent = put_together(
            agent, self.environment, self.hooks, self.tools, PlantedWatch(cwd)
        )

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

            self.agent.emit = emit
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
