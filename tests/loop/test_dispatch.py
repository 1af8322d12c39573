"""How features are called: in order, until the first answer, and switched off when they fail."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.layers.layer import Clear, Layer, LayerState
from ctxagent.agent.config.keys import Setting
from ctxagent.agent.context.window import Window
from ctxagent.agent.errors import RecordError, RequestRejected
from ctxagent.agent.events import Event, Notice, StatusPart, TurnFinished
from ctxagent.agent.extensions.command import Command
from ctxagent.agent.loop.dispatch import Features
from ctxagent.agent.loop.interface import (
    Feature,
    IncomingMessage,
    Ruling,
    ToolCall,
    Turn,
    Veto,
)
from ctxagent.agent.loop.live_session import LiveSession
from ctxagent.agent.models.base import Reply
from ctxagent.agent.session.entries import Assistant, Content, Entry, Note, Usage
from ctxagent.tools.base import Output, Tool
from ctxagent.tools.read import ReadTool
from ctxagent.tools.todo import TodoTool

from ..support.sessions.setup import options_with

REPLY = Reply([{"type": "text", "text": "Done."}], "end_turn", Usage(), "m")
CALL = ToolCall("c1", "Read", "a.txt", {"path": "a.txt"}, Path("/project"))
OUTPUT = Output("alpha")
REFUSAL = RequestRejected("no", status=400)
# Every event that is announced to all features and wants no answer.
ANNOUNCED: dict[str, tuple[Any, ...]] = {
    "prepare": (),
    "session_started": (),
    "session_ended": (),
    "turn_started": (Turn(),),
    "message_recorded": (IncomingMessage("go"),),
    "before_call": (),
    "tool_finished": (CALL, OUTPUT, 0.5),
    "before_summary": ({"trigger": "manual"},),
    "after_summary": ({"trigger": "manual"},),
    "turn_ended": (TurnFinished("ok", "Done."),),
    "close": (),
}


@pytest.fixture
def features(events: list[Event]) -> Features:
    return Features(events.append)


def made(session: LiveSession, name: str, **methods: Callable[..., Any]) -> Feature:
    """A feature of a new class with these methods, which get no `self`."""
    own = {each: staticmethod(method) for each, method in methods.items()}
    feature: Feature = type(name, (Feature,), {"name": name, **own})(session)
    return feature


def with_layers(session: LiveSession, name: str, *layers: type[Layer]) -> Feature:
    feature: Feature = type(name, (Feature,), {"name": name, "layers": layers})(session)
    return feature


class FullHost:
    """A conversation as layers see it."""

    def __init__(self, session: LiveSession) -> None:
        self.view = session.view


def answering(said: list[str], name: str, answer: Any = None) -> Callable[..., Any]:
    """An async method that records its name and returns `answer`, or raises it."""

    async def method(*given: Any, **more: Any) -> Any:
        said.append(name)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return method


def tool_use(id: str) -> Assistant:
    block = {"type": "tool_use", "id": id, "name": "Read", "input": {"path": "a.txt"}}
    return Assistant(content=[block], model="m", usage={}, stop_reason="tool_use")


def run(call: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(call)


@pytest.mark.parametrize("event", ANNOUNCED)
def test_an_event_goes_to_all_in_order(
    session: LiveSession, features: Features, event: str
) -> None:
    heard: list[tuple[str, tuple[Any, ...]]] = []

    def listener(name: str) -> Feature:
        async def method(*given: Any) -> None:
            heard.append((name, given))

        return made(session, name, **{event: method})

    features.add(listener("a"), made(session, "deaf"))
    features.add(listener("b"))
    run(getattr(features, event)(*ANNOUNCED[event]))
    assert heard == [("a", ANNOUNCED[event]), ("b", ANNOUNCED[event])]


def test_entries_and_tools_are_joined_in_order(session: LiveSession, features: Features) -> None:
    notes = [Note(topic="t", text=str(n)) for n in range(3)]
    staying: list[Any] = []

    def reinserted(given: Any) -> Sequence[Entry]:
        staying.append(given)
        return notes[2:]

    def tools(*kinds: type[Tool[Any]]) -> Callable[[], list[Tool[Any]]]:
        return lambda: [kind() for kind in kinds]

    features.add(
        made(session, "a", first_entries=lambda: notes[:2], tools=tools(TodoTool)),
        made(session, "b", reinserted=reinserted, tools=tools(ReadTool)),
        made(session, "c", first_entries=lambda: notes[2:]),
    )
    assert features.first_entries() == notes
    assert features.reinserted({4}) == notes[2:]
    assert staying == [{4}]
    assert [tool.name for tool in features.tools()] == ["Todo", "Read"]


def test_an_entry_goes_to_all(session: LiveSession, features: Features) -> None:
    heard: list[Entry] = []
    features.add(*(made(session, name, recorded=heard.append) for name in "ab"))
    note = Note(topic="t", text="x")
    features.recorded(note)
    assert heard == [note, note]


def test_a_message_is_changed_by_one_after_another(
    session: LiveSession, features: Features
) -> None:
    def adding(word: str) -> Callable[..., Any]:
        async def method(message: IncomingMessage) -> Content | None:
            return f"{message.content} {word}" if word else None

        return method

    features.add(
        *(made(session, f"f{word}", message_received=adding(word)) for word in ("b", "", "c"))
    )
    message = IncomingMessage("a", ("data",), verbatim=True, mid_turn=True)
    changed = run(features.message_received(message))
    assert changed == IncomingMessage("a b c", ("data",), verbatim=True, mid_turn=True)


def test_a_call_is_changed_by_one_after_another(session: LiveSession, features: Features) -> None:
    seen: list[ToolCall] = []

    def changing(given: Mapping[str, Any] | None) -> Callable[..., Any]:
        async def method(call: ToolCall) -> Mapping[str, Any] | None:
            seen.append(call)
            return given

        return method

    features.add(made(session, "keeps", before_tool=changing(None)))
    assert run(features.before_tool(CALL)) == (CALL, Ruling())
    features.add(*(made(session, n, before_tool=changing({"path": n})) for n in ("b.txt", "c.txt")))
    changed, _ = run(features.before_tool(CALL))
    assert changed.arguments == {"path": "c.txt"}
    assert (changed.id, changed.tool, changed.cwd) == (CALL.id, CALL.tool, CALL.cwd)
    assert [call.arguments["path"] for call in seen[1:]] == ["a.txt", "a.txt", "b.txt"]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([Ruling("allow", "a"), None], Ruling("allow", "a")),
        ([Ruling("allow", "a"), Ruling("ask", "b")], Ruling("ask", "b")),
        ([Ruling("ask", "a"), Ruling("allow", "b")], Ruling("ask", "a")),
        ([{"path": "b"}, Ruling(arguments={"path": "c"})], Ruling()),
    ],
)
def test_the_strictest_ruling_counts(
    session: LiveSession, features: Features, given: list[Any], wanted: Ruling
) -> None:
    features.add(*(made(session, "x", before_tool=answering([], "x", each)) for each in given))
    call, ruling = run(features.before_tool(CALL))
    assert ruling == wanted
    assert call.arguments == ({"path": "c"} if wanted == Ruling() else CALL.arguments)


def test_the_first_answer_to_a_question_counts(session: LiveSession, features: Features) -> None:
    assert run(features.before_question(CALL, "why")) is None
    rulings = (None, Ruling("ask"), Ruling("allow", "one"), Ruling("allow", "two"))
    features.add(
        *(made(session, "x", before_question=answering([], "x", each)) for each in rulings)
    )
    assert run(features.before_question(CALL, "why")) == Ruling("allow", "one")


def test_an_output_is_changed_by_one_after_another(
    session: LiveSession, features: Features
) -> None:
    def adding(word: str) -> Callable[..., Any]:
        async def method(call: ToolCall, output: Output, seconds: float) -> Output | None:
            return Output(f"{output.text} {word}") if word else None

        return method

    features.add(*(made(session, f"f{word}", after_tool=adding(word)) for word in ("b", "", "c")))
    assert run(features.after_tool(CALL, Output("a"), 0.5)) == Output("a b c")


def test_the_first_notice_lets_a_turn_go_on(session: LiveSession, features: Features) -> None:
    said: list[str] = []
    answers = {"a": None, "b": "", "c": "never given"}
    features.add(
        *(made(session, n, reply_received=answering(said, n, a)) for n, a in answers.items())
    )
    assert run(features.reply_received(REPLY, is_final=True)) == ""
    assert said == ["a", "b"]
    assert run(features.reply_received(REPLY, is_final=False)) is None
    assert said[2:] == ["a", "b", "c"]  # each sees a reply that ends nothing


def test_the_first_answer_ends_a_turn(session: LiveSession, features: Features) -> None:
    said: list[str] = []
    answers = {"a": None, "b": "the plan", "c": "never given"}
    features.add(
        *(made(session, n, step_finished=answering(said, n, a)) for n, a in answers.items())
    )
    assert run(features.step_finished()) == "the plan"
    assert said == ["a", "b"]


def test_the_first_that_removes_the_cause_of_a_refusal(
    session: LiveSession, features: Features
) -> None:
    said: list[str] = []
    features.add(made(session, "a", request_refused=answering(said, "a", False)))
    assert not run(features.request_refused(REFUSAL))
    features.add(*(made(session, n, request_refused=answering(said, n, True)) for n in "bc"))
    assert run(features.request_refused(REFUSAL))
    assert said == ["a", "a", "b"]


VETOED: dict[str, tuple[Any, ...]] = {
    "message_received": (IncomingMessage("go"),),
    "before_call": (),
    "before_tool": (CALL,),
    "before_summary": ({},),
}


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("event", VETOED)
@pytest.mark.parametrize("error", [Veto("no"), RecordError("the disk is full")])
def test_a_veto_and_a_log_that_cannot_be_written_are_passed_on(
    session: LiveSession,
    features: Features,
    events: list[Event],
    error: Exception,
    event: str,
    guarded: bool,
) -> None:
    said: list[str] = []
    features.add(made(session, "a", **{event: answering(said, "a", error)}), guarded=guarded)
    features.add(made(session, "b", **{event: answering(said, "b")}))
    with pytest.raises(type(error), match=str(error)):
        run(getattr(features, event)(*VETOED[event]))
    assert said == ["a"]
    assert events == []
    assert [feature.name for feature in features] == ["a", "b"]


def test_a_guarded_feature_that_fails_is_switched_off_with_a_warning(
    session: LiveSession, features: Features, events: list[Event]
) -> None:
    said: list[str] = []
    broken = answering(said, "broken", ZeroDivisionError("by zero"))
    features.add(made(session, "broken", step_finished=broken, turn_ended=broken), guarded=True)
    features.add(made(session, "whole", step_finished=answering(said, "whole", "the answer")))
    assert run(features.step_finished()) == "the answer"
    text = "the extension broken failed in step_finished and is switched off for this session"
    assert events == [Notice("warning", f"{text}: ZeroDivisionError: by zero")]
    assert [feature.name for feature in features] == ["whole"]
    run(features.turn_ended(TurnFinished("ok", "")))
    assert run(features.step_finished()) == "the answer"
    assert said == ["broken", "whole", "whole"]
    assert len(events) == 1


def test_a_guarded_feature_that_fails_changes_nothing(
    session: LiveSession, features: Features, events: list[Event]
) -> None:
    wrong: Any = answering([], "wrong", KeyError("x"))

    def fails(*given: Any) -> Any:
        raise KeyError("x")

    methods = {"message_received": wrong, "before_tool": wrong, "after_tool": wrong}
    for name, method in methods.items():
        features.add(made(session, name, **{name: method}), guarded=True)
    features.add(made(session, "sync", tools=fails), guarded=True)
    message = IncomingMessage("go")
    assert run(features.message_received(message)) == message
    assert run(features.before_tool(CALL)) == (CALL, Ruling())
    assert run(features.after_tool(CALL, OUTPUT, 0.5)) is OUTPUT
    assert features.tools() == []
    assert list(features) == []
    assert len(events) == 4


def test_the_error_of_a_feature_that_is_not_guarded_is_passed_on(
    session: LiveSession, features: Features, events: list[Event]
) -> None:
    features.add(made(session, "own", prepare=answering([], "own", ZeroDivisionError("by zero"))))
    with pytest.raises(ZeroDivisionError):
        run(features.prepare())
    assert events == []
    assert len(list(features)) == 1


def test_a_cancelled_feature_stays(session: LiveSession, features: Features) -> None:
    async def wait() -> None:
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        await asyncio.Event().wait()

    features.add(made(session, "a", before_call=wait), guarded=True)
    with pytest.raises(asyncio.CancelledError):
        run(features.before_call())
    assert len(list(features)) == 1


def test_a_feature_that_awaits_a_cancelled_task_has_failed(
    session: LiveSession, features: Features, events: list[Event]
) -> None:
    features.add(
        made(session, "a", before_call=answering([], "a", asyncio.CancelledError())), guarded=True
    )
    run(features.before_call())
    assert list(features) == []
    assert len(events) == 1


def test_a_veto_at_another_event_is_a_failure(
    session: LiveSession, features: Features, events: list[Event]
) -> None:
    features.add(made(session, "a", turn_ended=answering([], "a", Veto("no"))), guarded=True)
    run(features.turn_ended(TurnFinished("ok", "")))
    assert list(features) == []
    assert "failed in turn_ended" in str(events)


def test_a_method_without_async_is_called_as_well(session: LiveSession, features: Features) -> None:
    def vetoes(call: ToolCall) -> None:
        raise Veto("no")

    features.add(made(session, "a", before_call=lambda: None), guarded=True)
    features.add(made(session, "b", before_tool=vetoes), guarded=True)
    run(features.before_call())
    with pytest.raises(Veto, match="the extension b prevented it: no"):
        run(features.before_tool(CALL))
    assert len(list(features)) == 2


@pytest.mark.parametrize("event", ["close", "session_ended"])
def test_an_end_that_never_comes_is_not_waited_for(
    session: LiveSession,
    features: Features,
    events: list[Event],
    event: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hangs() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("ctxagent.agent.loop.dispatch.MAX_ENDING_SECONDS", 0.01)
    features.add(made(session, "a", **{event: hangs}), guarded=True)
    run(getattr(features, event)())
    assert "TimeoutError: it took longer than 0.01 s" in str(events)


def test_a_layer_that_fails_is_switched_off_with_its_extension(
    session: LiveSession, features: Features, events: list[Event]
) -> None:
    class Broken(Layer):
        name = "broken"

        def plan(self, state: LayerState) -> list[Clear]:
            return [5]  # type: ignore[list-item]

    class Whole(Layer):
        name = "whole"

    features.add(with_layers(session, "a", Broken, Whole), guarded=True)
    features.add(with_layers(session, "b", type("Last", (Whole,), {"name": "last"})), guarded=True)
    broken, *_ = found = features.layers()
    assert [layer.name for layer in found] == ["broken", "whole", "last"]
    state = LayerState(FullHost(session), session.policy, Window(0, 1))  # type: ignore[arg-type]
    assert broken.now(state)[0] == []
    assert "the layer broken must give Clear(RESULT, TEXT), not 5" in str(events)
    assert features.layers() == found[2:]
    assert [feature.name for feature in features] == ["b"]


def test_a_layer_with_a_taken_name_is_left_out(
    session: LiveSession, features: Features, events: list[Event]
) -> None:
    class Mine(Layer):
        name = "mine"

    features.add(with_layers(session, "a", Mine), with_layers(session, "b", Mine))
    assert [layer.name for layer in features.layers()] == ["mine"]
    assert "the layer mine of an extension is left out: the name is taken" in str(events)


def test_a_layer_gets_the_settings_of_its_extension(
    session: LiveSession, features: Features
) -> None:
    class Keeping(Layer):
        name = "keeping"

    session.options = options_with({"a": {"keep": 7}}, session.options)
    feature = with_layers(session, "a", Keeping)
    type(feature).settings = {"keep": Setting(3, ""), "above": Setting(100, "")}
    features.add(feature)
    assert features.layers()[0].settings == {"keep": 7, "above": 100}
    assert feature.setting("keep") == 7


def test_the_tools_of_extensions_are_known_after_they_were_switched_off(
    session: LiveSession, features: Features
) -> None:
    mine, own = TodoTool(), ReadTool()
    broken = answering([], "a", ValueError())
    features.add(made(session, "own", tools=lambda: [own]))
    features.add(made(session, "a", tools=lambda: [mine], before_call=broken), guarded=True)
    assert features.tools() == [own, mine]
    run(features.before_call())
    assert features.extension_tools == [mine]
    run(features.remove_extensions())
    assert features.extension_tools == []


def test_an_extension_that_is_equal_to_none_is_switched_off(
    session: LiveSession, features: Features, events: list[Event]
) -> None:
    def raises(*given: Any) -> Any:
        raise ValueError("never compare this")

    feature = made(session, "a", before_call=answering([], "a", KeyError("x")))
    type(feature).__eq__ = type(feature).__hash__ = raises  # type: ignore[method-assign]
    features.add(feature, guarded=True)
    run(features.before_call())
    assert list(features) == []


def test_a_feature_is_found_by_its_class_until_it_is_dropped(
    session: LiveSession, features: Features
) -> None:
    said: list[str] = []
    feature = made(session, "a", prepare=answering(said, "a"))
    assert features.find(type(feature)) is None
    features.add(made(session, "b"), feature)
    run(features.prepare())
    assert features.find(type(feature)) is feature
    features.drop(feature)
    run(features.prepare())
    assert features.find(type(feature)) is None
    assert said == ["a"]


def test_commands_and_status_are_joined_in_order(session: LiveSession, features: Features) -> None:
    async def run(words: str) -> None:
        """Do nothing."""

    commands = [Command(name, "Help.", run) for name in "abc"]
    awake = StatusPart("awake", rank=5)
    features.add(
        made(session, "a", commands=lambda: commands[:2], status=lambda: "asleep"),
        made(session, "b", status=lambda: ""),
        made(
            session, "c", commands=lambda: commands[2:], status=lambda: StatusPart("awake", rank=5)
        ),
    )
    assert features.commands() == commands
    assert features.status() == [StatusPart("asleep"), awake]


def test_extensions_start_and_end_while_a_session_is_open(
    session: LiveSession, features: Features
) -> None:
    said: list[str] = []
    events = ("prepare", "session_started", "close")

    def listener(name: str) -> Feature:
        return made(session, name, **{each: answering(said, f"{name} {each}") for each in events})

    features.add(listener("own"))
    features.add(listener("a"), listener("b"), guarded=True)
    assert [each.name for each in features.extensions] == ["a", "b"]
    run(features.start_extensions())
    assert said == ["a prepare", "b prepare", "a session_started", "b session_started"]
    said.clear()
    run(features.remove_extensions())
    assert said == ["a close", "b close"]
    assert [each.name for each in features] == ["own"]
    assert features.extensions == []
