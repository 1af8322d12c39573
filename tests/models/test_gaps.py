"""What is learned about a server from refused and accepted requests."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.context.request import Request
from ctxagent.agent.errors import KeyRefused, PromptTooLong, RequestRejected
from ctxagent.agent.lazy import regex
from ctxagent.agent.models.gaps import (
    IMAGES,
    NO_IMAGES_GAP,
    RETESTED_SECONDS,
    SHORT_REPLY_TOKENS,
    Gap,
    ServerGaps,
    has_images,
    short_reply_gap,
)


def without(name: str) -> Any:
    return lambda body: {key: value for key, value in body.items() if key != name}


TABLE = {
    "a": Gap("no a", regex("feature a"), without("a"), optional=True),
    "b": Gap("no b", None, without("b"), optional=True),
    "thoughts": Gap("no thoughts", None, without("thoughts"), True, hides_thinking=True),
    "needed": Gap("no needed", regex("needed part"), without("needed")),
    IMAGES: NO_IMAGES_GAP,
}
WHOLE = {"a": 1, "b": 2, "thoughts": 3, "needed": 4, "text": 5}
BAD = RequestRejected("the server refused the request (400): bad", status=400)


def gaps_in(folder: Path | None = None) -> ServerGaps:
    path = folder / "servers.json" if folder else None
    return ServerGaps(path, "http://x", "m", TABLE)


def sent(gaps: ServerGaps) -> dict[str, Any]:
    return {name: value for name, value in WHOLE.items() if name not in gaps.names}


def accept(gaps: ServerGaps, *, images: bool = False) -> None:
    gaps.accept(gaps.names, sent(gaps), WHOLE, images=images)


def play(gaps: ServerGaps, *lacking: str) -> int:
    """Send one request to a server that lacks these features. Return the number of refusals."""
    refused = 0
    while any(name in sent(gaps) for name in lacking):
        refused += 1
        assert gaps.suspect(BAD, sent(gaps)), "something is left to try"
    accept(gaps)
    return refused


@pytest.mark.parametrize("lacking", ["a", "b", "thoughts"])
def test_the_cause_is_found_with_two_refusals(tmp_path: Path, lacking: str) -> None:
    """One with all features, one with the missing one alone. A new process does not ask again."""
    gaps = gaps_in(tmp_path)
    assert [play(gaps, lacking) for _ in range(6)].count(1) == 2
    assert gaps.names == (lacking,)
    assert gaps_in(tmp_path).names == (lacking,)


def test_several_causes_are_found(tmp_path: Path) -> None:
    assert sum(play(gaps_in(tmp_path), "a", "thoughts") for _ in range(8)) == 3
    assert {*gaps_in(tmp_path).names} == {"a", "thoughts"}


def test_a_feature_that_was_accepted_is_not_suspected() -> None:
    gaps = gaps_in()
    accept(gaps)
    assert gaps.suspect(BAD, sent(gaps)) == []
    assert gaps.withhold_all() == ["a", "b", "thoughts"]
    assert gaps.hides_thinking
    gaps.give_up()
    assert gaps.names == ()


def test_a_named_feature_is_suspected_alone_and_known_once_that_helps(tmp_path: Path) -> None:
    gaps = gaps_in(tmp_path)
    said = RequestRejected("the server refused the request (400): needed part", status=400)
    assert gaps.suspect(said, WHOLE) == ["needed"]
    assert gaps_in(tmp_path).names == ()
    accept(gaps)
    assert gaps_in(tmp_path).names == ("needed",)


@pytest.mark.parametrize(
    "refusal",
    [
        PromptTooLong("too long"),
        KeyRefused("no", status=401),
        RequestRejected("never sent"),
    ],
)
def test_other_refusals_suspect_no_feature(refusal: RequestRejected) -> None:
    assert gaps_in().suspect(refusal, WHOLE) == []


def test_thinking_of_earlier_replies_may_be_invalid_on_a_server_that_thinks() -> None:
    gaps = gaps_in()
    table = {"thoughts": TABLE["thoughts"]}
    gaps.table = table
    assert gaps.suspect(BAD, WHOLE, has_thinking=True) == ["thoughts"]
    accept(gaps)
    assert gaps.names == (), "it is tested again"


def test_images_are_a_gap_after_two_refused_ones_and_none_accepted() -> None:
    gaps = gaps_in()
    gaps.suspect_images()
    assert IMAGES not in gaps.names
    gaps.suspect_images()
    accept(gaps)
    assert gaps.names == (IMAGES,)
    other = gaps_in()
    accept(other, images=True)
    other.suspect_images()
    other.suspect_images()
    assert other.names == ()


def test_findings_are_tested_again_after_a_week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaps = gaps_in(tmp_path)
    gaps.add("a")
    gaps.keep_window(24_000)
    assert gaps_in(tmp_path).window == 24_000
    later = time.time() + RETESTED_SECONDS + 1
    monkeypatch.setattr(time, "time", lambda: later)
    again = gaps_in(tmp_path)
    assert (again.names, again.window) == ((), None)
    assert play(again, "a") == 1
    assert gaps_in(tmp_path).names == ("a",)
    fixed = gaps_in(tmp_path)
    fixed.drop("a")
    assert gaps_in(tmp_path).names == ()


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"gaps": ["a"], "at": 1},
        {"gaps": {"a": "soon", "unknown": 1}, "suspects": 3, "window": ["x", None]},
        [],
    ],
)
def test_an_unreadable_row_counts_as_empty(tmp_path: Path, row: Any) -> None:
    (tmp_path / "servers.json").write_text(json.dumps({"http://x m": row}))
    gaps = gaps_in(tmp_path)
    assert (gaps.names, gaps.window, gaps.supported) == ((), None, ())


def test_images_are_found_in_messages_and_results() -> None:
    image = {"type": "image", "source": {}}

    def request(*blocks: Any) -> Request:
        return Request("m", [], [], [{"role": "user", "content": [*blocks]}], 10)

    assert has_images(request(image))
    assert has_images(request({"type": "tool_result", "tool_use_id": "c", "content": [image]}))
    assert not has_images(request({"type": "tool_result", "tool_use_id": "c", "content": "x"}))


def test_a_short_reply_is_a_limit_that_every_server_accepts() -> None:
    gap = short_reply_gap("max_tokens", "most")
    assert gap.fit({"max_tokens": 32_000}) == {"max_tokens": SHORT_REPLY_TOKENS}
    assert gap.fit({"most": 10, "x": 1}) == {"most": 10, "x": 1}


@pytest.mark.parametrize(("maximum", "found"), [(None, ["a"]), (9_000, [])])
def test_a_refusal_for_the_size_ends_the_test_of_a_feature_unless_it_has_figures(
    maximum: int | None, found: list[str]
) -> None:
    """Servers send 413 for other reasons too."""
    gaps = gaps_in()
    assert gaps.suspect(BAD, sent(gaps)) == ["a", "b", "thoughts"]
    accept(gaps)
    assert "a" in sent(gaps), "it is tested"
    too_large = PromptTooLong("large", status=413, maximum=maximum)
    assert gaps.suspect(too_large, sent(gaps)) == found
    assert ("a" in sent(gaps)) == (not found)
