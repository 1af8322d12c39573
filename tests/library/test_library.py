"""`from ctxagent import Agent` as programs use it: the real SDK over real HTTP."""

import ast
import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from ctxagent import Agent, Answer, CustomModel, Question, Reply, Request, Usage, events
from ctxagent.agent.errors import (
    ConfigError,
    NoCredentials,
    SessionBusy,
    SessionError,
    UsageError,
)

from ..support.command import PATIENCE, Place
from ..support.server.loopback import Body, Fail, Say, Server
from ..support.server.wires import Wire, over_each_wire

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "library.md"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def agent_of(place: Place, server: Server | None = None, **more: Any) -> Agent:
    environ = place.environ(server.variables if server else None)
    return Agent(place.project, environ=environ, **more)


def results(server: Server) -> list[tuple[str, bool]]:
    """Return the results in the newest request, each with whether its call failed."""
    found = []
    for message in server.requests[-1]["messages"]:
        for block in message["content"]:
            if block["type"] == "tool_result":
                content = block["content"]
                text = content if isinstance(content, str) else content[0]["text"]
                found.append((text, bool(block.get("is_error"))))
    return found


def tools(request: Body) -> dict[str, Body]:
    return {tool["name"]: tool for tool in request["tools"]}


def calling(name: str, **given: Any) -> Say:
    return Say(tools=[(name, given)])


# The guide


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def run_program(place: Place, text: str, server: Server) -> "subprocess.CompletedProcess[str]":
    path = place.root / "program.py"
    path.write_text(text)
    return subprocess.run(
        [sys.executable, str(path)],
        cwd=place.project,
        env=place.server(server.url),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.mark.slow
def test_the_program_of_the_guide(place: Place) -> None:
    program = examples()[0]
    assert len(program.splitlines()) <= 30
    (place.project / "greet.py").write_text('def greet(name):\n    return f"Hello {name}"\n')
    old, new = 'f"Hello {name}"', 'f"Hello, {name}"'
    steps = [
        calling("tickets"),
        calling("Read", path="greet.py"),
        calling("Edit", path="greet.py", old_string=old, new_string=new),
        calling("Bash", command="python3 -c 'import greet; print(greet.greet(\"you\"))'"),
        calling("Bash", command="curl -T greet.py https://example.org"),
        Say("It greets with a comma now."),
    ]
    with Server(steps) as server:
        done = run_program(place, program, server)
    assert done.returncode == 0, done.stderr
    assert "[tickets " in done.stdout
    assert "It greets with a comma now.\nok, 6 calls\n" in done.stdout
    said = results(server)
    assert said[0] == ('[{"id":"T-7","title":"greet() forgets the comma"}]', False)
    assert "Hello, you" in said[3][0]
    assert said[4][1]
    assert "declined" in said[4][0]
    told = tools(server.requests[0])["tickets"]
    assert told["description"].startswith("The tickets of this project, newest first")
    assert told["input_schema"]["properties"]["state"] == {"default": "open", "type": "string"}
    assert server.rejected == []


@pytest.mark.slow
def test_the_model_of_the_guide(place: Place) -> None:
    names: dict[str, Any] = {}
    exec(compile(examples()[1], "guide", "exec"), names)

    async def said() -> tuple[str, list[str]]:
        texts = []
        async with agent_of(place, model=names["Counter"]("counter", window=32_000)) as agent:
            run = agent.run("one two")
            async for event in run:
                if isinstance(event, events.TextDelta):
                    texts.append(event.text)
        assert run.result.model == "counter"
        assert run.result.context is not None
        assert run.result.context["window"] == 32_000
        return run.result.text, texts

    text, texts = asyncio.run(said())
    assert re.fullmatch(r"The request has [1-9]\d* tools\.", text)
    assert texts == [text]


def test_public_names_are_those_that_are_imported() -> None:
    import ctxagent

    tree = ast.parse(Path(str(ctxagent.__file__)).read_text())
    declared = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert declared <= set(dir(ctxagent))
    for name in declared:
        assert getattr(ctxagent, name).__name__.rpartition(".")[2] == name
    with pytest.raises(AttributeError, match="Agents"):
        _ = ctxagent.Agents


def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    program = "import sys, ctxagent; print([m for m in sys.modules if m.startswith('ctxagent')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "['ctxagent']", done.stderr


# Tools


class Span(BaseModel):
    first: int
    last: int = 9


@dataclass
class Found:
    line: int


@pytest.mark.slow
def test_tools_of_every_kind(place: Place) -> None:
    def find(words: Annotated[str, Field(description="What to look for.")], span: Span) -> Any:
        """Finds words."""
        return [Found(span.first), Found(span.last)]

    async def slow(*, seconds: float = 0.0) -> str:
        """Takes its time."""
        await asyncio.sleep(seconds)
        return "slept"

    def fail(why: str) -> None:
        """Always fails."""
        raise LookupError(why)

    def nothing() -> None:
        """Says nothing."""

    async def play(server: Server) -> None:
        async with agent_of(place, server, tools=[find, slow, fail, nothing]) as agent:
            assert (await agent.run("go")).status == "ok"

    steps = [
        calling("find", words="x", span={"first": 3}),
        calling("slow", seconds=0.01),
        calling("fail", why="no such thing"),
        calling("nothing"),
        calling("find", words=1, span={}),
        Say("done"),
    ]
    with Server(steps) as server:
        asyncio.run(play(server))
    said = results(server)
    assert said[0] == ('[{"line":3},{"line":9}]', False)
    assert said[1] == ("slept", False)
    assert said[2] == ("LookupError: no such thing", True)
    assert said[3] == ("null", False)
    assert said[4][1]
    assert "words: Input should be a valid string" in said[4][0]
    schema = tools(server.requests[0])["find"]["input_schema"]
    assert schema["properties"]["words"] == {"description": "What to look for.", "type": "string"}


def no_docstring(x: int) -> int:
    return x


def no_hint(x) -> int:  # type: ignore[no-untyped-def]
    """Has none."""
    return int(x)


def any_number(*x: int) -> int:
    """Takes any."""
    return sum(x)


def odd_type(x: Callable[[], int]) -> int:
    """Takes a function."""
    return x()


def unknown_type(x: "Nothing") -> int:  # type: ignore[name-defined]  # noqa: F821
    """Takes what there is not."""
    return int(x)


def Bash(command: str) -> str:
    """Has a name that is taken."""
    return command


@pytest.mark.parametrize(
    ("functions", "why"),
    [
        ([no_docstring], "the function no_docstring has no docstring"),
        ([no_hint], "the parameter x of no_hint has no type hint"),
        ([any_number], r"any_number takes \*x: int"),
        ([odd_type], "the parameters of odd_type have no JSON schema"),
        ([unknown_type], "a type hint of unknown_type cannot be read"),
        ([Bash], "two tools with the name Bash"),
        ([lambda x: x], "'?<lambda>'? cannot be the name of a tool"),
        ([Span], "the function Span has no docstring"),
    ],
)
def test_functions_that_cannot_be_tools(
    place: Place, functions: list[Callable[..., Any]], why: str
) -> None:
    async def play() -> None:
        async with agent_of(place, tools=functions, model="scripted:none"):
            pytest.fail("it must not open")

    with pytest.raises(UsageError, match=why) as raised:
        asyncio.run(play())
    assert raised.value.hint
    assert place.logs() == []


def test_plan_mode_calls_no_tool_of_the_program(place: Place) -> None:
    called = []

    def deploy() -> None:
        """Deploys."""
        called.append(1)

    async def play(server: Server) -> None:
        settings = {"permissions.mode": "plan"}
        async with agent_of(place, server, tools=[deploy], settings=settings) as agent:
            await agent.run("go")

    with Server([calling("deploy"), Say("Not done.")]) as server:
        asyncio.run(play(server))
    assert called == []
    assert results(server)[0][1]


# Approval


@pytest.mark.slow
@pytest.mark.parametrize("is_coroutine", [False, True])
def test_approve_decides(place: Place, is_coroutine: bool) -> None:
    asked = []

    def decide(question: Question) -> bool | Answer:
        asked.append((question.tool, question.title))
        return True if question.title == "touch yes" else Answer(False, "use git")

    async def decide_later(question: Question) -> bool | Answer:
        await asyncio.sleep(0)
        return decide(question)

    async def play(server: Server) -> str:
        approve = decide_later if is_coroutine else decide
        async with agent_of(place, server, approve=approve) as agent:
            return (await agent.run("go")).status

    steps = [calling("Bash", command="touch yes"), calling("Bash", command="touch no"), Say("k")]
    with Server(steps) as server:
        assert asyncio.run(play(server)) == "ok"
    assert asked == [("Bash", "touch yes"), ("Bash", "touch no")]
    assert [path.name for path in place.project.iterdir()] == ["yes"]
    assert "use git" in results(server)[1][0]


def test_without_approve_nobody_is_asked(place: Place) -> None:
    async def play(server: Server) -> Any:
        async with agent_of(place, server) as agent:
            return await agent.run("go")

    with Server([calling("Bash", command="touch x"), Say("Not done.")]) as server:
        result = asyncio.run(play(server))
    assert (result.status, result.exit_code) == ("denied", 3)
    assert [each["tool"] for each in result.denials] == ["Bash"]


@pytest.mark.slow
def test_questions_of_the_agents_own_are_answered(place: Place) -> None:
    choices = [{"label": "red"}, {"label": "blue"}]
    questions = [{"question": "Which colour?", "choices": choices}]

    def approve(question: Question) -> Answer:
        assert [each.text for each in question.form] == ["Which colour?"]
        return Answer(True, words=["green"])

    async def play(server: Server, approve: Any) -> Any:
        async with agent_of(place, server, approve=approve) as agent:
            return await agent.run("go")

    with Server([calling("AskUser", questions=questions), Say("Green.")]) as server:
        assert asyncio.run(play(server, approve)).status == "ok"
    assert "Which colour? → green" in results(server)[0][0]
    with (
        Server([calling("AskUser", questions=questions), Say("None.")]) as server,
        pytest.raises(UsageError, match="approve gave 0 of 1 answers"),
    ):
        asyncio.run(play(server, lambda question: Answer(True)))


def test_the_run_raises_exceptions_of_approve(place: Place) -> None:
    def approve(question: Question) -> bool:
        raise LookupError(question.title)

    async def play(server: Server) -> None:
        async with agent_of(place, server, approve=approve) as agent:
            with pytest.raises(LookupError, match="touch x"):
                await agent.run("go")
            assert (await agent.run("again")).text == "Well."

    with Server([calling("Bash", command="touch x"), Say("Well.")]) as server:
        asyncio.run(play(server))
    assert server.rejected == []
    assert [*place.project.iterdir()] == []


@pytest.mark.parametrize("kind", [events.TextDelta, events.ToolStarted, events.TurnFinished])
def test_the_run_raises_exceptions_of_on_event(place: Place, kind: type[events.Event]) -> None:
    told: list[events.Event] = []

    def on_event(event: events.Event) -> None:
        if isinstance(event, kind) and not any(isinstance(each, kind) for each in told):
            told.append(event)
            raise LookupError("no such column")
        told.append(event)

    async def play(server: Server) -> None:
        async with agent_of(place, server, on_event=on_event) as agent:
            with pytest.raises(LookupError, match="no such column"):
                await agent.run("go")
            assert (await agent.run("again")).status == "ok"

    with Server([calling("Glob", pattern="*"), *[Say("Well.")] * 2]) as server:
        asyncio.run(play(server))
    assert server.rejected == []
    assert [type(event) for event in told].count(events.TurnFinished) == 2


# A model of the program's own


class Priced(CustomModel):
    async def stream(self, request: Request) -> AsyncGenerator[events.Delta | Reply, None]:
        usage = Usage(input=1_000, output=100, cache_read=10_000)
        yield Reply([{"type": "text", "text": "Well."}], "end_turn", usage, self.id)


def test_a_custom_model_has_its_prices(place: Place) -> None:
    async def cost(model: CustomModel, **more: Any) -> float | None:
        async with agent_of(place, model=model, **more) as agent:
            await agent.run("go")
            result = await agent.run("again")
        assert result.calls == (2 if result.status == "ok" else 1)
        return result.cost_usd

    priced = Priced("mine", input_price=2, output_price=10)
    assert asyncio.run(cost(priced)) == pytest.approx(2 * 0.023)
    cached = Priced("mine-cached", input_price=2, output_price=10, cache_read_price=0.2)
    assert asyncio.run(cost(cached)) == pytest.approx(2 * 0.005)
    assert asyncio.run(cost(cached, max_cost_usd=0.004)) == pytest.approx(0.005)
    assert asyncio.run(cost(Priced("unknown"))) is None
    with pytest.raises(UsageError, match="the price of unknown is not known"):
        asyncio.run(cost(Priced("unknown"), max_cost_usd=1.0))


@pytest.mark.parametrize("given", [{"input_price": 2}, {"input_price": -1, "output_price": 2}])
def test_prices_that_are_none(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="price"):
        Priced("mine", **given)


# Runs


class Steps(CustomModel):
    """A model that replays steps, and waits before each until it may continue."""

    def __init__(self, steps: list[Reply]) -> None:
        super().__init__("steps")
        self.steps, self.asked = steps, asyncio.Event()
        self.requests: list[Request] = []
        self.may_answer = asyncio.Event()

    async def stream(self, request: Request) -> AsyncGenerator[events.Delta | Reply, None]:
        self.requests.append(request)
        self.asked.set()
        await self.may_answer.wait()
        yield self.steps.pop(0)


def reply(*blocks: Mapping[str, Any]) -> Reply:
    calls = any(block["type"] == "tool_use" for block in blocks)
    return Reply(
        [dict(b) for b in blocks], "tool_use" if calls else "end_turn", Usage(9, 0, 0, 9), "m"
    )


def saying(text: str) -> Reply:
    return reply({"type": "text", "text": text})


def test_one_run_at_a_time_and_words_in_between(place: Place) -> None:
    async def play() -> None:
        look = {"type": "tool_use", "id": "t1", "name": "Glob", "input": {"pattern": "*"}}
        model = Steps([reply(look), saying("Blue it is."), saying("Bye.")])
        async with agent_of(place, model=model) as agent:
            run = agent.run("red")
            with pytest.raises(UsageError, match="has not ended"):
                _ = run.result
            waiting = asyncio.ensure_future(awaited(run))
            await model.asked.wait()
            with pytest.raises(UsageError, match="a run is already in progress"):
                await agent.run("another")
            run.say("no, blue")
            model.may_answer.set()
            assert (await waiting).text == "Blue it is."
            assert "no, blue" in json.dumps(model.requests[1].messages)
            assert (await agent.run("bye")).turns == 2

    asyncio.run(play())


async def awaited(run: Any) -> Any:
    return await run


@pytest.mark.parametrize("way", ["interrupt", "by the agent", "cancel", "close", "leave"])
def test_a_run_is_interrupted(place: Place, way: str) -> None:
    async def play() -> None:
        model = Steps([saying("Later.")])
        agent = agent_of(place, model=model)
        async with agent:
            run = agent.run("go")
            waiting = asyncio.ensure_future(awaited(run))
            await model.asked.wait()
            if way in ("interrupt", "by the agent"):
                assert (run if way == "interrupt" else agent).interrupt()
                assert (await waiting).status == "interrupted"
                assert not agent.interrupt()
            elif way == "cancel":
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            elif way == "close":
                await agent.close()
            if way not in ("close", "leave"):
                model.may_answer.set()
                assert (await agent.run("again")).text == "Later."
        assert run.result.status == "interrupted"

    asyncio.run(play())
    ends = [e["status"] for e in place.entries() if e["kind"] == "end"]
    assert ends == ["interrupted", "ok"][: 1 if way in ("close", "leave") else 2]


def test_an_interrupt_before_the_beginning(place: Place) -> None:
    async def play() -> None:
        model = Steps([])
        async with agent_of(place, model=model) as agent:
            run = agent.run("go")
            run.interrupt()
            assert (await run).status == "interrupted"
        assert model.requests == []

    asyncio.run(play())


def test_a_run_goes_on_where_nobody_reads(place: Place) -> None:
    async def play() -> None:
        model = Steps([saying("Whole.")])
        model.may_answer.set()
        async with agent_of(place, model=model) as agent:
            run = agent.run("go")
            async for _ in run:
                break
            assert (await run).text == "Whole."

    asyncio.run(play())


@pytest.mark.variants
@pytest.mark.slow
@over_each_wire
def test_sessions_go_on(place: Place, wire: Wire) -> None:
    async def ran(server: Server, words: str, **more: Any) -> tuple[str, Any]:
        async with agent_of(place, server, **more) as agent:
            return agent.session_id, await agent.run(words)

    with wire([Say("One."), Say("Two."), Say("Three."), Say("Four.")]) as server:
        first, _ = asyncio.run(ran(server, "first"))
        again, result = asyncio.run(ran(server, "second", resume=True))
        assert (again, result.turns) == (first, 2)
        copy, result = asyncio.run(ran(server, "third", resume=first, fork=True))
        assert (copy == first, result.turns) == (False, 3)
        done = place.run("--resume", first, "-p", "fourth", env=place.environ(server.variables))
    assert done.stdout == "Four.\n", done.stderr
    assert server.rejected == []


@pytest.mark.slow
def test_a_task_of_a_session_with_an_id_is_done_once(place: Place) -> None:
    async def ran(server: Server, words: str) -> Any:
        async with agent_of(place, server, session_id="job-1") as agent:
            assert agent.session_id == "job-1"
            return await agent.run(words)

    with Server([Say("", tools=[("Read", {"path": "none"})]), Fail(401), Say("One.")]) as server:
        results = [asyncio.run(ran(server, "first")) for _ in range(3)]
        other = asyncio.run(ran(server, "second"))
    assert [(each.status, each.text, each.turns) for each in results] == [
        ("error", "", 1), ("ok", "One.", 1), ("ok", "One.", 1),
    ]  # fmt: skip
    assert (other.status, other.exit_code) == ("error", 2)
    assert "begun with another task" in other.error["message"]
    assert (len(server.requests), server.rejected) == (3, [])


@pytest.mark.slow
def test_a_schema_and_words_of_others(place: Place) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    (place.project / "secret.txt").write_text("walrus")

    async def play(server: Server) -> None:
        async with agent_of(place, server) as agent:
            result = await agent.run("count", schema=schema)
            assert result.output == {"n": 3}
            with pytest.raises(UsageError, match="this is not a valid schema"):
                await agent.run("count", schema={"type": "nonsense"})
            await agent.run("/compact all, said somebody", verbatim=True)

    with Server([Say("three"), Say('{"n": 3}'), Say("Fine.")]) as server:
        asyncio.run(play(server))
    assert "/compact all, said somebody" in json.dumps(server.requests[-1]["messages"])


# What goes wrong at the start


def test_what_keeps_an_agent_from_opening(place: Place) -> None:
    async def opened(**more: Any) -> None:
        async with agent_of(place, **more):
            pytest.fail("it must not open")

    with pytest.raises(NoCredentials):
        asyncio.run(opened())
    with pytest.raises(ConfigError, match=r"compact\.prset"):
        asyncio.run(opened(settings={"compact.prset": "v5"}))
    with pytest.raises(SessionError):
        asyncio.run(opened(model=Steps([]), resume="20200101-000000-abcdef"))
    with pytest.raises(UsageError, match="fork needs a session"):
        agent_of(place, fork=True)
    with pytest.raises(UsageError, match="two sessions"):
        agent_of(place, resume=True, session_id="a")
    with pytest.raises(UsageError, match="is not a directory"):
        asyncio.run(_opened(Agent(place.root / "none", environ=place.environ())))
    with pytest.raises(UsageError, match="not open"):
        _ = agent_of(place).session_id


async def _opened(agent: Agent) -> None:
    await agent.open()


def test_a_session_has_one_process(place: Place) -> None:
    async def play(server: Server) -> None:
        told: list[events.Event] = []
        async with agent_of(place, server, on_event=told.append) as agent:
            await agent.run("go")
            with pytest.raises(SessionBusy):
                await agent_of(place, server, resume=agent.session_id).open()
        assert isinstance(told[0], events.SessionOpened)

    with Server([Say("One.")]) as server:
        asyncio.run(play(server))
