"""The agent as a library: a session in a directory that runs tasks.

    async with Agent("project", tools=[weather], approve=approve) as agent:
        run = agent.run("What should I wear in Rome?")
        async for event in run:
            ...
        print(run.result.text)

The events are those of `agent/events.py`. Settings, rules, instructions, MCP servers, skills and
commands apply as on the command line, whose headless runs use this class.
"""

import asyncio
import gc
import inspect
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from ...tools.system.hardening import close_memory
from ...tools.system.take_turn import finish_despite_cancel, in_thread, take_turn
from ..errors import CtxagentError, RecordError, ToolError, UsageError
from ..events import Answer, Emit, Event, Notice, Question, TurnFinished
from ..launch import AttachedData, Budget, LaunchOptions, Prompts, SessionChoice
from . import launch_parts
from .launch_parts import RunServers, Shown, expand_task
from .result import Result, result_of

if TYPE_CHECKING:
    from ..compaction.edits import ContextEditor
    from ..config.settings import FeatureName
    from ..features.result_schema import ResultSchema
    from ..loop.agent import AgentState
    from ..models.base import Model
    from ..session.entries import Content

    Decision = bool | Answer | None  # None: no user to answer
    Approve = Callable[[Question], Decision | Awaitable[Decision]]

ANSWERED = ("ok", "denied")  # statuses of turns with an answer


class Agent:
    """An agent in the directory `cwd`, in a new session or in the session that `resume` names.

    Args:
        cwd: The working directory.
        model: The ID of a model, or a `CustomModel`. Default: the model in the settings.
        tools: Functions that the model may call, in addition to the agent's own tools. They run
            without approval.
        approve: Answers calls that neither rules nor the mode decide, and the agent's questions
            and plans. It may be a coroutine. The run raises its exceptions. Without `approve`,
            these calls are denied.
        on_event: Gets each event as it happens, also between runs. The run raises its exceptions.
        settings: Values by name, such as {"permissions.mode": "accept-edits"}. They override
            files and the environment.
        resume: The ID of a session, or True for the newest one of the directory.
        fork: Continue in a copy of that session.
        session_id: The ID of a session for a single task, created if it is missing. The task is
            done once: a later run continues an interrupted one, or returns its result again.
        system_prompt: Replaces the built-in system prompt.
        append_system_prompt: Text to append to the system prompt.
        max_calls: The limit of model calls, for all runs together.
        max_cost_usd: The limit of the cost in dollars, for all runs together.
        safe: Start without MCP servers, plugins, extensions and hooks, and without commands,
            skills and subagents from files.
        environ: Replaces the environment variables of this process.

    Use it with `async with`, or call `open` and `close`. On Linux, the process becomes undumpable,
    so that commands cannot read keys from its memory. Debuggers and core dumps then do not work.
    """

    def __init__(
        self,
        cwd: "str | Path" = ".",
        *,
        model: "str | Model" = "",
        tools: Sequence[Callable[..., Any]] = (),
        approve: "Approve | None" = None,
        on_event: Emit | None = None,
        settings: Mapping[str, Any] | None = None,
        resume: str | bool = False,
        fork: bool = False,
        session_id: str | None = None,
        system_prompt: str = "",
        append_system_prompt: str = "",
        max_calls: int | None = None,
        max_cost_usd: float | None = None,
        safe: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        def launch() -> LaunchOptions:
            here, env = Path(cwd).absolute(), os.environ if environ is None else environ
            if not here.is_dir():
                raise UsageError(f"{here} is not a directory", hint="Give cwd an existing one.")
            more = {"model.id": model} if isinstance(model, str) and model else {}
            loaded = launch_parts.load(
                here, env, launch_parts.as_flags({**(settings or {}), **more})
            )
            self._notices = launch_parts.notices_of(loaded, env)
            made = launch_parts.launch_options(
                loaded,
                here,
                env,
                prompts=Prompts(system_prompt, append_system_prompt),
                budget=Budget(max_calls, max_cost_usd),
                safe=safe,
            )
            return replace(
                made,
                model=None if isinstance(model, str) else model,
                extras=replace(made.extras, tools=_own_tools(tools)),
            )

        choice = SessionChoice(
            newest=resume is True,
            id=resume if isinstance(resume, str) else None,
            fork=fork,
            for_task=session_id,
        )
        if resume and session_id is not None:
            raise UsageError("resume and session_id name two sessions", hint="Give one of them.")
        if fork and not resume:
            raise UsageError("fork needs a session to copy", hint="Give resume too.")
        self._set_up(launch, choice, on_event, approve)

    @classmethod
    def launched(
        cls,
        launch: LaunchOptions,
        choice: SessionChoice | None = None,
        *,
        approve: "Approve | None" = None,
        on_event: Emit | None = None,
        check_words: Callable[[str], None] | None = None,
    ) -> Self:
        """Return an agent for existing launch options, such as those of the command line, in a new
        session or in the chosen one. `approve` and `on_event` are as in `Agent`. `check_words`
        raises UsageError for an invalid message. Raises NoCredentials.
        """
        launch_parts.check_key(launch)
        made = cls.__new__(cls)
        made._set_up(lambda: launch, choice or SessionChoice(), on_event, approve)
        made._check_words = check_words
        return made

    def _set_up(
        self,
        launch: Callable[[], LaunchOptions],
        choice: SessionChoice,
        on_event: Emit | None,
        approve: "Approve | None",
    ) -> None:
        self._make_launch, self._choice = launch, choice
        self._check_words: Callable[[str], None] | None = None
        self._on_event, self._approve = on_event, approve
        self._state: AgentState | None = None
        self._notices = list[str]()  # about settings
        self._servers: RunServers | None = None
        self._launch: LaunchOptions
        self._first_model = ""
        self._early: list[Event] | None = []  # emitted while the session opens
        self._run: AgentRun | None = None

    @property
    def state(self) -> "AgentState":
        """The state of the open session. Raises UsageError if no session is open."""
        if self._state is None:
            raise UsageError("the agent is not open", hint="Use it with `async with`.")
        return self._state

    @property
    def session_id(self) -> str:
        """The session's ID, for resuming it. Raises UsageError if no session is open."""
        return self.state.log.path.parent.name

    @property
    def context(self) -> "ContextEditor":
        """The items of the context, and edits of them: `items`, `drop`, `restore`, `compact` and
        `undo`. An edit during a model call waits for its end. Raises UsageError if no session is
        open.
        """
        return self.state.edits

    @property
    def is_for_task(self) -> bool:
        """Whether the session is for a single task."""
        return self._choice.for_task is not None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._end_run()
            if kind is None and self._run is not None and self._run.is_ok:
                await self.finish()
        finally:
            await self.close()

    async def open(self) -> None:
        """Open the session. Raises ConfigError, UsageError, NoCredentials, SessionError, and
        SessionBusy if another process has the session open.
        """
        if self._state is not None:
            raise UsageError(
                "the agent is open already", hint="Make another Agent for a second conversation."
            )
        self._early = []
        opening = asyncio.ensure_future(self._open())
        try:
            self._state = await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.gather(self._leave_unwanted(opening), return_exceptions=True)
            raise
        early, self._early = self._early, None
        for event in early:
            self._emit(event)

    async def _open(self) -> "AgentState":
        return await in_thread(self._opened)

    def _opened(self) -> "AgentState":
        """Open the session; blocking."""
        from ..app import open_agent
        from ..security.sandbox import check_sandbox

        launch = self._make_launch()
        launch_parts.check_key(launch)
        check_sandbox(launch)
        close_memory()
        _freeze_modules()
        servers, warnings, state = RunServers(launch), list[str](), None
        try:
            self._launch = launch.with_servers(servers.begin(warnings.append))
            ask = self._asked if self._approve else None
            state = open_agent(self._launch, self._choice, emit=self._emit, ask=ask)
        finally:
            if state is None:
                servers.end()
        self._servers, self._first_model = servers, state.model.id
        for warning in warnings:
            self._emit(Notice("warning", warning))
        for notice in self._notices:
            self._emit(Notice("info", notice))
        launch_parts.warm(launch)  # while git scans the project
        return state

    async def _leave_unwanted(self, opening: "asyncio.Future[AgentState]") -> None:
        self._state = await opening
        await self.close()

    def run(
        self,
        words: "Content",
        *,
        schema: "Mapping[str, Any] | ResultSchema | None" = None,
        verbatim: bool = False,
        attached: AttachedData | None = None,
        next_words: "Callable[[], Content | None] | None" = None,
    ) -> "AgentRun":
        """Return a run of one task, which starts when you await it or read its events.

        `words` is the message: text, or blocks of the Messages API (text and images). It can call
        commands (`/compact`) and skills and name files with @, as on the command line, unless it is
        `verbatim`.
        The answer must fit `schema`, a JSON Schema. `attached` is data that is sent with the
        message. `next_words` is called before each model call for another message; it replaces
        `AgentRun.say`.
        """
        return AgentRun(self, words, schema, verbatim, attached, next_words)

    def interrupt(self) -> bool:
        """End the run in progress, if any. Return True if this call interrupted it."""
        return self._run is not None and self._run.is_on and self._run.interrupt()

    async def finish(self) -> None:
        """Run the steps that the settings define for the successful end of a session."""
        await self.state.finish()

    async def close(self) -> None:
        """Interrupt the run, and close the session, its jobs, its MCP servers and the connections
        to the model.
        """
        try:
            await self._end_run()
        finally:
            await self._close()

    async def _close(self) -> None:
        state, self._state = self._state, None
        try:
            if state is not None:
                await state.close()
        finally:
            if self._servers is not None:
                ending, self._servers = self._servers, None
                await finish_despite_cancel(asyncio.to_thread(ending.end))

    async def _end_run(self) -> None:
        if self._run is not None:
            await self._run.end()

    async def _asked(self, question: Question) -> Answer | None:
        """Pass a question to `approve`. An exception in `approve` ends the run, which raises it."""
        assert self._approve is not None
        asking = _answered(self._approve, question)
        answer: Any
        (answer,) = await asyncio.gather(asking, return_exceptions=True)
        if not isinstance(answer, BaseException):
            return cast("Answer | None", answer)
        if self._run is not None:
            self._run.take_fault(type(answer), answer, answer.__traceback__)
        return None

    def _emit(self, event: Event) -> None:
        if self._early is not None:
            self._early.append(event)
            return
        if self._on_event is not None:
            with ExitStack() as stack:
                if self._run is not None and self._run.is_on:
                    stack.push(self._run.take_fault)
                self._on_event(event)
        if self._run is not None:
            self._run.hear(event)

    def begin_run(self, run: "AgentRun") -> None:
        """Set the current run. Raises UsageError if another run has not ended."""
        if self._run is not None and self._run.is_on:
            hint = "Wait for its end, or send it a message with `say`."
            raise UsageError("a run is already in progress", hint=hint)
        self._run = run

    def check_feature(self, name: "FeatureName", user: str) -> None:
        """Raise UsageError if the feature `name` is off. `user` names what needs it."""
        if name in self._launch.settings.features.off:
            raise UsageError(
                f"{user} needs the feature {name}, which features.off switches off",
                hint="Remove its name from features.off.",
            )

    async def begin_task(self, words: "Content") -> None:
        """Check a message, and return to the session's model if a command used its own for its
        turn. Raises RecordError, and UsageError for an invalid message.
        """
        from ..app import change_model

        if self.state.model.id != self._first_model:
            change_model(self.state, self._first_model)
        if self._check_words is not None and isinstance(words, str):
            await asyncio.to_thread(self._check_words, words)


class AgentRun:
    """A run of one task. Await it for its result, or read its events with `async for` first. If you
    stop reading early, the run continues. If the reader is cancelled, the run is interrupted.
    """

    def __init__(
        self,
        agent: Agent,
        words: "Content",
        schema: "Mapping[str, Any] | ResultSchema | None",
        verbatim: bool,
        attached: AttachedData | None,
        next_words: "Callable[[], Content | None] | None",
    ) -> None:
        self._agent, self._words, self._verbatim = agent, words, verbatim
        self._schema, self._attached = schema, attached
        self._next_words = next_words or self._next_message
        self._waiting: deque[Content] = deque()  # queued messages
        self._task: asyncio.Task[Result] | None = None
        self._events: asyncio.Queue[Event | None] | None = None
        self._is_unwanted = False  # interrupted before its start
        self.finished = TurnFinished("interrupted", "")
        self._fault: BaseException | None = None  # raised by the program's code

    @property
    def is_on(self) -> bool:
        """Whether the run has started and not ended."""
        return self._task is not None and not self._task.done()

    @property
    def is_ok(self) -> bool:
        """Whether the run has ended with status "ok"."""
        return self._task is not None and self._task.done() and self.finished.status == "ok"

    @property
    def result(self) -> Result:
        """The result of an ended run. Raises the exception of the run, and UsageError before its
        end.
        """
        if self._task is None or not self._task.done():
            raise UsageError("the run has not ended", hint="Await it, or read all its events.")
        return self._task.result()

    def say(self, words: "Content") -> None:
        """Queue another message, which the model gets before its next call."""
        self._waiting.append(words)

    def interrupt(self) -> bool:
        """End the run as soon as possible. Return True if this call interrupted it."""
        if self._task is None:
            self._is_unwanted = True
            return True
        return not self._task.done() and not self._task.cancelling() and self._task.cancel()

    def take_fault(
        self, kind: object, fault: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """End the run because of an exception in the program's code. The run raises this
        exception.
        """
        if fault is None or isinstance(fault, KeyboardInterrupt) or self._task is None:
            return False
        self._fault = self._fault or fault
        self._task.get_loop().call_soon_threadsafe(self.interrupt)
        return True

    async def end(self) -> None:
        """Interrupt the run if it has not ended, and wait for its end."""
        if self._task is not None:
            self.interrupt()
            await asyncio.wait({self._task})

    def __await__(self) -> Generator[Any, None, Result]:
        return self._awaited().__await__()

    async def __aiter__(self) -> AsyncIterator[Event]:
        if self._task is None:
            self._events = asyncio.Queue()
            self._begin()
        while self._events is not None and (event := await self._events.get()) is not None:
            yield event
        await self._awaited()

    def hear(self, event: Event) -> None:
        """Queue an event for the reader, if there is a reader."""
        if self._events is not None:
            self._events.put_nowait(event)

    async def _awaited(self) -> Result:
        task = self._begin()
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            self.interrupt()
            await asyncio.wait({task})
            raise
        return task.result()

    def _begin(self) -> "asyncio.Task[Result]":
        if self._task is None:
            self._agent.begin_run(self)
            self._task = asyncio.ensure_future(self._ran())
            self._task.add_done_callback(self._end_events)
        return self._task

    def _end_events(self, task: "asyncio.Task[Result]") -> None:
        if self._events is not None:
            self._events.put_nowait(None)

    async def _ran(self) -> Result:
        from ..features.result_schema import as_schema

        if self._schema is not None:
            self._agent.check_feature("result-schema", "a schema")
        if self._attached is not None:
            self._agent.check_feature("attachments", "piped input")
        began, schema = time.monotonic(), as_schema(self._schema)
        self.finished = await self._turn(schema)
        if self._fault is not None:
            raise self._fault
        answered = schema is not None and self.finished.status in ANSWERED
        output = schema.read(self.finished.text).value if schema and answered else None
        return result_of(self._agent.state, self.finished, time.monotonic() - began, output)

    async def _turn(self, schema: "ResultSchema | None") -> TurnFinished:
        """Run the turn and return its end. Raises RecordError."""
        from ..loop.turn import run_turn

        if self._is_unwanted:
            return TurnFinished("interrupted", "")
        try:
            await take_turn()
            if self._agent.is_for_task and (done := await self._earlier_answer(schema)):
                return done
            words: Content | Shown | None = self._words
            if not self._verbatim:
                await self._agent.begin_task(self._words)
                if isinstance(self._words, str):
                    words = await expand_task(self._agent.state, self._words)
        except asyncio.CancelledError:
            return TurnFinished("interrupted", "")
        except RecordError:
            raise
        except (CtxagentError, ToolError) as error:  # the command in the message failed
            shown = {"type": type(error).__name__, "message": str(error)}
            return TurnFinished("error", "", shown)
        if isinstance(words, Shown):
            shown_text = TurnFinished("ok", words.text)
            self._agent.state.emit(shown_text)
            return shown_text
        if self._agent.is_for_task and self._agent.state.totals.turns:
            words = None  # continue the turn
        return await run_turn(
            self._agent.state,
            words,
            self._next_words,
            attached=[self._attached] if self._attached else (),
            verbatim=self._verbatim,
            schema=schema,
        )

    async def _earlier_answer(self, schema: "ResultSchema | None") -> TurnFinished | None:
        """Return the earlier answer to the session's single task, or None."""
        from ..loop.single_task import find_answer

        return await find_answer(self._agent.state, str(self._words), needs_end=schema is not None)

    def _next_message(self) -> "Content | None":
        return self._waiting.popleft() if self._waiting else None


@cache
def _freeze_modules() -> None:
    """Exclude the loaded modules from later garbage collections, each of which would stop all
    threads for a tenth of a second. Do this only once, because existing garbage is then never
    collected.
    """
    gc.freeze()


def _own_tools(functions: Sequence[Callable[..., Any]]) -> "list[Any]":
    """Return functions as tools. Raises UsageError for a function that cannot be a tool."""
    if not functions:
        return []
    from ...tools.function_tool import function_tools
    from ..permissions.rules import TOOL_NAMES

    return function_tools(functions, TOOL_NAMES)


async def _answered(approve: "Approve", question: Question) -> Answer | None:
    """Return the answer of `approve`, which runs in a thread if it is not a coroutine. Raises its
    exceptions, and UsageError for an answer that does not match the question.
    """
    if (settled := question.settled()) is not None:
        return settled
    given: Any
    if inspect.iscoroutinefunction(approve):
        given = approve(question)
    else:
        given = await asyncio.to_thread(cast(Any, approve), question)
    decided: Decision = await given if inspect.isawaitable(given) else given
    if isinstance(decided, bool):
        return Answer(decided and not question.form)  # a form needs answers, not True
    form = question.form if decided is not None and decided.allow else ()
    if decided is not None and form and len(decided.words) != len(form):
        raise UsageError(
            f"approve gave {len(decided.words)} of {len(form)} answers",
            hint="Give Answer(True, words=[...]) with one for each of question.form.",
        )
    return decided
