"""Functions for messages of all protocols."""

import pytest

from ctxagent.addons.proxy.bodies.base import (
    BodyPlace,
    Edits,
    is_client_text,
    is_same,
    replaced_inputs,
    split_reminders,
    text_blocks,
    text_of,
    words,
)
from ctxagent.tests.support.proxy.clients import MARK, PIXEL

TEXT = {"role": "user", "content": "Go on."}
BLOCK = {"type": "text", "text": "Go on."}


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (TEXT, True),
        ({"role": "user", "content": [BLOCK]}, True),
        ({"role": "user", "content": [{**BLOCK, **MARK}]}, True),
        ({"role": "user", "content": [BLOCK, BLOCK]}, False),
        ({"role": "assistant", "content": "Go on."}, False),
        ({"role": "user", "content": "Go on"}, False),
        ({"role": "user", "content": "Go on.", "name": "me"}, False),
    ],
)
def test_marks_and_the_form_of_a_text_do_not_matter(other: dict[str, object], same: bool) -> None:
    assert is_same(TEXT, other) is same


def test_a_place_for_each_block_and_not_for_each_character() -> None:
    assert words("A long text.", 3, by_client=False).places == (BodyPlace(3),)
    assert words([BLOCK, BLOCK], 3, by_client=False).places == (BodyPlace(3),) * 2
    assert words([], 3, by_client=True).places == (BodyPlace(3),)
    assert words(None, 3, by_client=True).content == []


def test_parts_become_blocks() -> None:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    other = {"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    given = [{"type": "input_text", "text": "a"}, image, other, "no part"]
    attached = {"type": "text", "text": "[attachment]"}
    assert [*text_blocks(given)] == [
        {"type": "text", "text": "a"}, {"type": "image", "source": source}, attached,
    ]  # fmt: skip
    assert text_of([{"text": "a"}, {"text": "b"}]) == "a\n\nb"
    assert text_of(None) == ""


@pytest.mark.parametrize(
    ("text", "is_clients"),
    [
        ("<system-reminder>x</system-reminder>", True),
        ("\n<environment_context>", True),
        ("# AGENTS.md instructions for /x", True),
        ("What is a <system-reminder>?", False),
        ("", False),
    ],
)
def test_a_text_of_the_client_is_not_the_users(text: str, is_clients: bool) -> None:
    assert is_client_text(text) is is_clients


REMINDER = "<system-reminder>\n9 tokens left\n</system-reminder>"


@pytest.mark.parametrize(
    ("own", "added"),
    [
        ("ok\n", f"\n\n{REMINDER}\n\n{REMINDER}\n"),
        ("ok", REMINDER),
        (f"{REMINDER}\nok", ""),
        ("a </system-reminder>", ""),
        ("", REMINDER),
        ("ok", ""),
    ],
)
def test_reminders_at_the_end_of_a_result_are_not_its_text(own: str, added: str) -> None:
    assert split_reminders(own + added) == (own, added)


def test_texts_are_replaced_wherever_they_are() -> None:
    given = {"a": "old", "b": [{"c": "old", "d": 1}], "e": "older"}
    after = {"a": "new", "b": [{"c": "new", "d": 1}], "e": "older"}
    assert replaced_inputs(given, {"old": "new"}) == after


def test_a_mark_alone_is_no_edit() -> None:
    assert not Edits(mark=3, start=0)
    assert Edits(results={BodyPlace(1): "stub"})
    assert Edits(head=[BLOCK])
