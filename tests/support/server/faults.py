"""A fault plan: occasional faults of a server, a proxy or the network.

    plan = Faults(steps, rate=0.15, seed=1)
    with Server(plan) as server:
        run(server)
    assert plan.count["reset in the body"]

`Faults` wraps a function that chooses a step and is such a function itself. Four families:

- `PASSING`: the attempt fails and the same request is repeated. The content streamed before the
  break is not from the script: it has a call that creates the file `NEVER`, so that an incomplete
  call that was run leaves a trace.
- `BAD`: a complete but useless reply (broken arguments, or empty). The conversation continues; its
  calls would create `NEVER` too.
- `ODD`: the script's own reply in an unusual form. It must be accepted as if nothing were wrong.
- `REFUSED`: no retry helps. Most end the turn; the next message continues from there.

Faults of all families except ODD use up no step of the script. Every kind of a plan occurs once
before any occurs again, in an order determined by the seed.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .loopback import Body, Fail, Say, Step, in_blocks

NEVER = "made-by-a-call-that-must-not-run"

Script = Callable[[Body], Step]
Kind = Callable[[random.Random, Body, Script], Step]
Events = list[Body]

_CALL = ("Bash", {"command": f"touch {NEVER}"})
_EVENTS = 12  # maximum events before a break; in any protocol the content has more


class Faults:
    """Script with faults. `rate` is the share of requests with a fault of one of `kinds`; `count`
    counts the faults by kind.
    """

    def __init__(
        self,
        steps: Script,
        rate: float = 0.15,
        seed: int = 0,
        kinds: Mapping[str, Kind] | None = None,
    ) -> None:
        self.steps, self.rate = steps, rate
        self.kinds = dict(SURVIVED if kinds is None else kinds)
        self.count: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._bag: list[str] = []

    def __call__(self, body: Body) -> Step:
        if self._random.random() >= self.rate:
            return self.steps(body)
        if not self._bag:
            self._bag = list(self.kinds)
            self._random.shuffle(self._bag)
        name = self._bag.pop()
        self.count[name] += 1
        return self.kinds[name](self._random, body, self.steps)


def _fails(status: int, message: str = "no", **options: Any) -> Kind:
    return lambda chance, body, steps: Fail(status, message, **options)


def _busy(**headers: str) -> Kind:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return _fails(429, "Slow down", headers=named)


def _half(**options: Any) -> Kind:
    """Return a reply that breaks off at a random point before its stop reason."""
    return lambda chance, body, steps: Say(
        "Half of a thought", tools=[_CALL], deltas=6, after=chance.randrange(_EVENTS), **options
    )


def _edited(edit: Callable[[Events], Sequence[Body | str]]) -> Kind:
    """Return a reply with invalid events."""
    return lambda chance, body, steps: Say("Half of a thought", tools=[_CALL], edit=edit)


def _whole(**options: Any) -> Kind:
    return lambda chance, body, steps: Say(**options)


def _told(change: Callable[[Body, Events], Sequence[Body | str]]) -> Kind:
    """Return the script's own reply with its events changed; `change` also gets the request."""

    def step(chance: random.Random, body: Body, steps: Script) -> Step:
        chosen = steps(body)
        if isinstance(chosen, Fail):
            return chosen
        return replace(chosen, edit=lambda listed: change(body, listed))

    return step


def _said(**options: Any) -> Kind:
    """Return the script's own reply with other options."""

    def step(chance: random.Random, body: Body, steps: Script) -> Step:
        chosen = steps(body)
        return chosen if isinstance(chosen, Fail) else replace(chosen, **options)

    return step


# Changes of a reply's events.


def _instead(data: str) -> Callable[[Events], Sequence[Body | str]]:
    """Insert data that is not an event in the middle."""
    return lambda listed: [*listed[:5], data, *listed[5:]]


def _inserted(*events: Body) -> Callable[[Events], Sequence[Body | str]]:
    return lambda listed: [*listed[:5], *events, *listed[5:]]


def _ids(choose: Callable[[Body, int], Any]) -> Kind:
    """Replace the IDs of calls; `choose` gets the request and the position of the call."""

    def change(body: Body, listed: Events) -> Events:
        place = 0
        for event in listed:
            block = event.get("content_block", {})
            if event["type"] == "content_block_start" and block["type"] == "tool_use":
                block["id"] = choose(body, place)
                place += 1
        return listed

    return _told(change)


def _earlier(body: Body, place: int) -> str:
    """Return the ID of a much earlier call."""
    ids = [
        b["id"]
        for m in in_blocks(body)["messages"]
        for b in m["content"]
        if b["type"] == "tool_use"
    ]
    return ids[place] if place < len(ids) else f"toolu_first_{place}"


def _usage(*values: Any) -> Kind:
    """Replace the usage by (input, cache read, cache written, output); None omits a value."""
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    pairs = zip((*names, "output_tokens"), values, strict=True)
    return _said(usage={name: value for name, value in pairs if value is not None})


def _without_usage(body: Body, listed: Events) -> Events:
    for event in listed:
        event.pop("usage", None)
        event.get("message", {}).pop("usage", None)
    return listed


def _stopping(reason: Any) -> Kind:
    def change(body: Body, listed: Events) -> Events:
        for event in listed:
            if event["type"] == "message_delta":
                event["delta"]["stop_reason"] = reason
        return listed

    return _told(change)


def _without(kind: str) -> Kind:
    return _told(lambda body, listed: [event for event in listed if event["type"] != kind])


def _undivided(body: Body, listed: Events) -> Events:
    """Send calls complete, without deltas."""
    calls: dict[int, Body] = {}
    raws: dict[int, str] = {}
    kept: Events = []
    for event in listed:
        kind, index = event["type"], event.get("index", -1)
        if kind == "content_block_start" and event["content_block"]["type"] == "tool_use":
            calls[index] = event["content_block"]
        if kind == "content_block_delta" and index in calls:
            raws[index] = raws.get(index, "") + event["delta"]["partial_json"]
        else:
            kept.append(event)
    for index, raw in raws.items():
        calls[index]["input"] = json.loads(raw)
    return kept


def _going_on(body: Body, listed: Events) -> Events:
    """Add a call after the end of the message."""
    block = {"type": "tool_use", "id": "late", "name": _CALL[0], "input": _CALL[1]}
    start = {"type": "content_block_start", "index": 70, "content_block": block}
    return [*listed, start, {"type": "content_block_stop", "index": 70}]


_DELTA = {"type": "text_delta", "text": "x"}
_DEEP = '{"command": ' + "[" * 5_000 + "]" * 5_000 + "}"
_LARGE = '{"command": "touch ' + NEVER + "; echo " + "x" * 2_000_000  # and no end
_HTML = "<!doctype html><title>Sign in</title>"
_PAGE = {"content-type": "text/html"}
_HUGE = 10**12

PASSING: dict[str, Kind] = {
    "429": _busy(retry_after="0.01"),
    "429, in milliseconds": _busy(retry_after_ms="7"),
    "429, before now": _busy(retry_after="-5"),
    "429, no number": _busy(retry_after="nan"),
    "429, no milliseconds": _busy(retry_after_ms="nan", retry_after="0.01"),
    "429, a date gone by": _busy(retry_after="Wed, 21 Oct 2015 07:28:00 GMT"),
    "429, no date": _busy(retry_after="Mon, 99 Foo 0000 99:99:99 -9999"),
    "429, garbage": _busy(retry_after="½ soon, really; \t"),
    "408": _fails(408),
    "500": _fails(500, "oh"),
    "502 with a page": _fails(502, body=_HTML, headers=_PAGE),
    "503 without a body": _fails(503, body=""),
    "500 whose body is a list": _fails(500, body="[1, 2]"),
    "500 whose error is a word": _fails(500, body='{"error": "no"}'),
    "500 whose words are none": _fails(500, body='{"error": {"type": ["x"], "message": {"a": 1}}}'),
    "529": _fails(529, "Overloaded"),
    "hang up": _whole(fault="hang up"),
    "reset in the body": _half(fault="reset"),
    "cut": _half(fault="cut"),
    "end": _half(fault="end"),
    "garbage": _half(fault="garbage"),
    "overloaded in mid-stream": _half(error=("overloaded_error", "Overloaded")),
    "unknown error in mid-stream": _half(error=("", "")),
    "error without words": _edited(
        _inserted({"type": "error", "error": {"type": [], "message": 1}})
    ),
    "error that is none": _edited(_inserted({"type": "error", "error": "no"})),
    "a page in the stream": _edited(_instead(_HTML)),
    "bytes that are no text": _edited(_instead('{"type": "\udcff\udcfe"}')),
    "an event that is a list": _edited(_instead("[1]")),
    "an event without end": _edited(_instead('{"type": ' + "[" * 50_000)),
    "a delta of no block": _edited(
        _inserted({"type": "content_block_delta", "index": 40, "delta": _DELTA})
    ),
    "the end of no block": _edited(_inserted({"type": "content_block_stop", "index": 40})),
    "a block of no number": _edited(_inserted({"type": "content_block_stop", "index": [1]})),
    "a delta of no number": _edited(
        _inserted({"type": "content_block_delta", "index": {}, "delta": _DELTA})
    ),
    "a block twice": _edited(lambda listed: [*listed[:8], *listed[2:]]),
    "an encoding that is not there": _half(headers={"content-encoding": "gzip"}),
}

BAD: dict[str, Kind] = {
    "empty": _whole(text=" \n"),
    "nothing at all": _whole(),
    "arguments cut off": _whole(tools=[("Bash", f'{{"command": "touch {NEVER}')]),
    "arguments that are a list": _whole(tools=[("Bash", f'["touch {NEVER}"]')]),
    "arguments that are a word": _whole(tools=[("Bash", f'"touch {NEVER}"')]),
    "arguments nested 5,000 deep": _whole(tools=[("Bash", _DEEP)]),
    "arguments of 2 MB, cut off": _whole(tools=[("Bash", _LARGE)]),
    "arguments of another tool": _whole(tools=[("Bash", {"path": "a", "n": 1})]),
    "a tool that is none": _whole(tools=[("Do it now!", {"command": f"touch {NEVER}"})]),
    "a tool without a name": _whole(tools=[("", {})]),
    "a block of no kind": _whole(blocks=[{"type": "hologram", "deep": {"shape": [None]}}]),
}

ODD: dict[str, Kind] = {
    "ids that cannot go back": _ids(lambda body, place: f"a call, no. {place}! " + "é" * 200),
    "no ids": _ids(lambda body, place: None),
    "ids that are numbers": _ids(lambda body, place: place),
    "one id for all": _ids(lambda body, place: "toolu_one"),
    "an earlier id": _ids(_earlier),
    "unknown blocks, deltas and events": _said(noise=True),
    "unknown stop reason": _stopping("solar_flare"),
    "stop reason that is none": _stopping({"why": 1}),
    "no usage": _told(_without_usage),
    "usage of nothing": _usage(0, 0, 0, 0),
    "negative usage": _usage(-5, -1, -1, -7),
    "enormous usage": _usage(_HUGE, _HUGE, _HUGE, _HUGE),
    "enormous output": _usage(None, None, None, _HUGE),
    "usage in words": _usage("many", [], {}, "few"),
    "usage in fractions": _usage(1.5, 1e300, True, float(2)),
    "bytes one by one": _said(pieces=1),
    "no message_start": _without("message_start"),
    "no message_stop": _without("message_stop"),
    "no message_delta": _without("message_delta"),
    "calls that come whole": _told(_undivided),
    "more after the end": _told(_going_on),
}

REFUSED: dict[str, Kind] = {
    "400": _fails(400, "messages: bad"),
    "401": _fails(401, "invalid x-api-key"),
    "401 that asks for a retry": _fails(401, headers={"x-should-retry": "true"}),
    "402": _fails(402),
    "403": _fails(403),
    "403 that asks for a retry": _fails(403, headers={"x-should-retry": "true"}),
    "404": _fails(404),
    "413": _fails(413, "Request exceeds the maximum size"),
    "key refused in mid-stream": _half(error=("authentication_error", "expired")),
    "too long": _fails(400, "prompt is too long"),
    "too long, with figures": _fails(400, "prompt is too long: 21000 tokens > 20000 maximum"),
    "too long, with figures that lie": _fails(400, "prompt is too long: 2 tokens > 1 maximum"),
    "too long, beyond all numbers": _fails(
        400, f"prompt is too long: 1{'0' * 400} tokens > 9{'0' * 300} maximum"
    ),
    "a proxy's page": _fails(200, body=_HTML, headers=_PAGE),
    "sent elsewhere": _fails(307, headers={"location": "http://127.0.0.1:9/v1/messages"}),
    "not a stream": _fails(200, body="{}"),
}

# Use only with short timeouts and a low limit on waits.
SLOW: dict[str, Kind] = {
    "no answer": _whole(fault="mute"),
    "silence": _half(fault="silence"),
    "429, in 50 seconds": _busy(retry_after="50"),
    "429, in 31 years": _busy(retry_after="1e9"),
    "429, never": _busy(retry_after="inf"),
}

SURVIVED = {**PASSING, **BAD, **ODD}

# Faults that are independent of the protocol's events.
OVER_ANY_WIRE: dict[str, Kind] = {
    **{name: PASSING[name] for name in PASSING if name[:3].isdigit()},
    **{name: PASSING[name] for name in ("hang up", "reset in the body", "cut", "end", "garbage")},
    "overloaded in mid-stream": PASSING["overloaded in mid-stream"],
    **{name: kind for name, kind in BAD.items() if name != "a block of no kind"},
    **{name: kind for name, kind in ODD.items() if "usage" in name and name != "no usage"},
    "bytes one by one": ODD["bytes one by one"],
}
