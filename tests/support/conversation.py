"""A loop on a scripted model in a folder of its own, with every request checked.

talk = Conversation(tmp_path, [Step(text="hello")])
finished = talk.say("hi")
talk.kinds()  # the kinds of entry in the log
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ctxagent.agent.approval import Approval, Mode
from ctxagent.agent.compaction.policy import DEFAULT, Policy
from ctxagent.agent.events import Answer, Ask, Event, Question, TurnFinished
from ctxagent.agent.launch import Bounds
from ctxagent.agent.loop import Loop
from ctxagent.agent.model.base import Model
from ctxagent.agent.model.scripted import ScriptedModel, Step
from ctxagent.agent.recall import equip
from ctxagent.agent.record.checkpoints import Checkpoints
from ctxagent.agent.record.entries import Checkpoint, Entry, Session, User
from ctxagent.agent.record.log import read
from ctxagent.agent.resumption import begin, go_on
from ctxagent.agent.spending import Spending
from ctxagent.tools.base import Context, Tool

from .validator import validate


class Conversation:
    """`cwd` holds the project and `cwd/../state` the session. `ask` answers permission prompts;
    None stands for nobody being there."""

    def __init__(
        self,
        cwd: Path,
        steps: Sequence[Step] | Callable[[Any], Step] = (),
        *,
        tools: Sequence[Tool[Any]] | None = None,
        mode: Mode = "bypass",
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        ask: Ask | None = None,
        bounds: Bounds | None = None,
        model: Model | None = None,
        window: int = 200_000,
        policy: Policy | None = None,
    ) -> None:
        from ctxagent.agent.compose import every_tool

        self.cwd = cwd
        self.events: list[Event] = []
        self.hooked: list[tuple[str, dict[str, Any]]] = []
        self.veto: str | None = None
        self.tools = every_tool() if tools is None else list(tools)
        self.model = model or ScriptedModel(steps, check=validate, window=window)
        state = cwd.parent / f"{cwd.name}-state"
        path = state / "sessions" / "s" / "log.jsonl"
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        self._checkpoints: int | None = None
        log, standing, resumption = go_on(path) if path.exists() else begin(path)
        checkpoints = Checkpoints(path.parent, None, standing.numbering)
        context = Context(cwd=cwd, session_dir=path.parent, env={"PATH": "/usr/bin:/bin"})
        equip(context, state, path)
        self.loop = Loop(
            log=log,
            view=standing.view,
            ledger=standing.ledger,
            totals=standing.totals,
            checkpoints=checkpoints,
            resumption=resumption,
            model=self.model,
            tools=self.tools,
            approval=Approval(mode=mode, allow=allow, deny=deny, cwd=cwd),
            context=context,
            emit=self.events.append,
            ask=ask,
            opening=self._session,
            surroundings=lambda: [],
            renewal=lambda: [User(content="Still here.", source="environment")],
            hook=self._hook,
            checkpoint=self._checkpoint,
            policy=policy or DEFAULT,
            spending=Spending(bounds or Bounds()),
        )

    def _session(self) -> Session:
        schemas = [tool.schema() for tool in self.tools]
        return Session(
            id="s", cwd=str(self.cwd), version="0", model="scripted", system="Be good.",
            tools=schemas,
        )  # fmt: skip

    async def _hook(self, name: str, event: dict[str, Any]) -> str | None:
        self.hooked.append((name, event))
        return self.veto if name.startswith("before_") else None

    async def _checkpoint(self, trigger: str) -> Checkpoint | None:
        if self._checkpoints is None:
            self._checkpoints = len(self.of(Checkpoint))
        self._checkpoints += 1
        made = self.loop.record(Checkpoint(number=self._checkpoints, path="", trigger=trigger))
        assert isinstance(made, Checkpoint)
        return made

    def say(self, words: str) -> TurnFinished:
        """One turn, from start to end, in an event loop of its own."""
        return asyncio.run(self.loop.turn(words))

    def interrupted_at(self, words: str, when: Callable[[Event], bool]) -> TurnFinished:
        """One turn that is cancelled as soon as an event answers to `when`."""

        async def run() -> TurnFinished:
            turn = asyncio.ensure_future(self.loop.turn(words))

            def emit(event: Event) -> None:
                self.events.append(event)
                if when(event):
                    asyncio.get_running_loop().call_soon(turn.cancel)

            self.loop.emit = emit
            return await turn

        return asyncio.run(run())

    def entries(self) -> list[Entry]:
        return read(self.loop.log.path).entries

    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.entries()]

    def of(self, kind: type[Any]) -> list[Any]:
        return [entry for entry in self.entries() if isinstance(entry, kind)]

    def seen(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def answering(*answers: Answer) -> tuple[Ask, list[Question]]:
    """An `ask` that gives these answers in order, and the questions it was put."""
    questions: list[Question] = []

    async def ask(question: Question) -> Answer:
        questions.append(question)
        return answers[len(questions) - 1]

    return ask, questions
