"""The bytes of a protocol are deterministic, and can be rebuilt from the log."""

import hashlib
import json

import pytest

from ctxagent.agent.context.request import Request
from ctxagent.agent.models.gaps import Gap
from ctxagent.agent.models.messages.body import WIRE as MESSAGES
from ctxagent.agent.models.wire import Wire, encode

from .test_server_model import TextDraft

WORDS = [{"role": "user", "content": [{"type": "text", "text": "Grüße"}]}]
REQUEST = Request("ollama/walrus", [], [], WORDS, 100)
WIRE = Wire(
    "texts",
    "texts",
    "/texts",
    "/models",
    {
        "second": Gap("no b", None, lambda body: {k: v for k, v in body.items() if k != "b"}),
        "first": Gap("no a", None, lambda body: {k: v for k, v in body.items() if k != "a"}),
    },
    lambda request: {"a": 1, "b": 2},
    lambda request, given: {**given, "messages": request.messages},
    TextDraft,
)


def test_bytes_do_not_depend_on_the_order_of_names() -> None:
    assert encode({"b": "ü", "a": 1}) == encode({"a": 1, "b": "ü"}) == '{"a":1,"b":"ü"}'.encode()


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode({"a": float("nan")})


@pytest.mark.parametrize("wire", [WIRE, MESSAGES])
def test_a_request_is_built_again_from_what_the_log_keeps(wire: Wire) -> None:
    for gaps in ((), tuple(wire.gaps)[:2]):
        data = encode(wire.fitted_body(REQUEST, gaps))
        sent = json.loads(json.dumps(wire.sent_of(REQUEST, data, gaps)))
        assert sent["sha256"] == hashlib.sha256(data).hexdigest()
        later = Request("another", [], [], WORDS, 1)  # its parameters are ignored
        assert wire.rebuild(later, sent) == data


def test_gaps_leave_out_their_parts() -> None:
    assert set(WIRE.fitted_body(REQUEST, ())) == {"a", "b", "messages"}
    assert set(WIRE.fitted_body(REQUEST, ("first",))) == {"b", "messages"}
    assert set(WIRE.fitted_body(REQUEST, ("first", "second"))) == {"messages"}


def test_the_body_has_the_name_that_the_server_knows() -> None:
    assert MESSAGES.fitted_body(REQUEST, ())["model"] == "walrus"
