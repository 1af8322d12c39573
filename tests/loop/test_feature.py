"""The interface of features: without an override nothing happens, and each event is dispatched."""

import asyncio
import inspect
from typing import Any

import pytest

from ctxagent.agent.loop.feature import Feature, Veto
from ctxagent.agent.loop.features import Features
from ctxagent.agent.loop.session_handle import SessionHandle

EVENTS = {
    name: method
    for name, method in vars(Feature).items()
    if inspect.isfunction(method) and not name.startswith("_") and name not in ("layers", "setting")
}


def test_each_event_is_dispatched_with_the_same_arguments() -> None:
    for name, method in EVENTS.items():
        given = inspect.signature(getattr(Features, name)).parameters
        assert list(given) == list(inspect.signature(method).parameters), name


@pytest.mark.parametrize("name", EVENTS)
def test_without_an_override_nothing_happens(handle: SessionHandle, name: str) -> None:
    names = list(inspect.signature(EVENTS[name]).parameters)[1:]
    given: dict[str, Any] = dict.fromkeys(names)
    result = getattr(Feature(handle), name)(**given)
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    assert not result
    assert handle.log.last_seq == 0


def test_a_veto_has_a_reason() -> None:
    veto = Veto("not on a Sunday")
    assert (veto.message, str(veto)) == ("not on a Sunday", "not on a Sunday")
