"""Redaction of known values and shapes in outputs, entries and streams."""

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from ctxagent.agent.security.redaction import (
    MAX_HELD_LINE_BYTES,
    OVERLAP_BYTES,
    Redaction,
    redaction_for,
)
from ctxagent.agent.session.entries import Assistant, Note, ToolResult, User, altered_thinking
from ctxagent.tools.base import Output
from ctxagent.tools.redaction_marks import mark

from ..support.secret_texts import ENVIRON, HARMLESS, KEY, OTHER, PEM, SECRETS, lot


class Heard:
    def __init__(self) -> None:
        self.data = b""
        self.closed = 0

    def feed(self, data: bytes) -> None:
        self.data += data

    def close(self) -> None:
        self.closed += 1


WHOLE = [said for said in SECRETS if not said.endswith("-----") or "BEGIN" in said]
PARTS = st.lists(
    st.one_of(
        st.sampled_from([*WHOLE, *HARMLESS, KEY, OTHER, KEY[:20], "\n", "\r\n", "é", "-----"]),
        st.text(max_size=20),
    ),
    max_size=12,
)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(PARTS, st.lists(st.integers(1, 90), min_size=1, max_size=20), st.booleans())
def test_it_makes_no_difference_where_output_is_cut(
    parts: list[str], sizes: list[int], shapes: bool
) -> None:
    text = "\n".join(parts).encode("utf-8", "replace").decode()
    redaction = redaction_for(ENVIRON, shapes=shapes)
    heard = Heard()
    sieve = redaction.filtered_sink(heard)
    data, place, turn = text.encode(), 0, 0
    while place < len(data):
        size = sizes[turn % len(sizes)]
        sieve.feed(data[place : place + size])
        place, turn = place + size, turn + 1
    sieve.close()
    assert heard.closed == 1
    assert heard.data.decode() == redaction.clean_text(text)
    assert KEY.encode() not in heard.data


def test_output_that_is_no_text_comes_through_byte_for_byte() -> None:
    heard = Heard()
    sieve = redaction_for(ENVIRON, shapes=True).filtered_sink(heard)
    data = bytes(range(256)) * 1_000
    for place in range(0, len(data), 777):
        sieve.feed(data[place : place + 777])
    sieve.close()
    assert heard.data == data


def test_a_line_without_end_is_not_held_back_for_ever() -> None:
    heard = Heard()
    sieve = redaction_for(ENVIRON, shapes=True).filtered_sink(heard)
    for _ in range(60):
        sieve.feed(b"x" * 4_000 + b" ")
    assert 100_000 < len(heard.data) < 240_000
    sieve.feed(b"ghp_" + lot(36).encode())
    sieve.close()
    assert heard.data.endswith(b"[redacted: GitHub token]")


def test_only_a_possible_secret_is_held_back() -> None:
    heard = Heard()
    sieve = redaction_for(ENVIRON).filtered_sink(heard)
    sieve.feed(b"Password for sk-ant: ")
    assert heard.data == b"Password for sk-ant: "
    sieve.feed(KEY[:12].encode())
    assert heard.data == b"Password for sk-ant: "
    sieve.feed(b"!")
    assert heard.data.endswith(KEY[:12].encode() + b"!")
    assert redaction_for({}).filtered_sink(heard) is heard


# What is known


def test_known_are_keys_of_the_environment_that_no_text_holds_by_chance() -> None:
    known = redaction_for(
        {
            "ANTHROPIC_API_KEY": f" {KEY}\n",
            "ANTHROPIC_AUTH_TOKEN": "short-1x",
            "DEPLOY_TOKEN": OTHER,
            "PGPASSWORD": "postgres",
            "GPG_KEY_TOKEN": "not-needed-at-all-here",
            "SECRET_PLACE_TOKEN": "/run/user/1000/secret",
            "SOME_KEY": "https://host1.example/path",
            "PATH": "/usr/bin:/home/a1b2c3d4e5f6g7h8",
        },
        "https://me:p%40ss-w0rd-1@host/",
    ).known
    assert set(known) == {KEY, "short-1x", OTHER, "p%40ss-w0rd-1", "p@ss-w0rd-1"}
    assert list(known) == sorted(known, key=len, reverse=True)
    for harmless in ("ollama", "lm-studio", "sk-no-key-required", "EMPTY"):
        assert redaction_for({"ANTHROPIC_API_KEY": harmless}).known == {}


def test_entries_lose_what_is_known_wherever_it_stands() -> None:
    """Changed thinking has no valid signature: it is marked, so that it is not sent again."""
    thought = {"type": "thinking", "thinking": f"the key is {KEY}", "signature": "s"}
    said = {"type": "text", "text": f"It is {KEY}."}
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": f"echo {KEY}"}}
    entry = Assistant(content=[thought, said, call], usage={}, stop_reason=None, model="m")
    redaction = redaction_for(ENVIRON)
    left = redaction.clean(entry).content
    assert left[0] == altered_thinking("the key is [redacted: ANTHROPIC_API_KEY]")
    packed = {**thought, "thinking": "a word", "signature": json.dumps({"arguments": KEY})}
    hidden = replace(entry, content=[packed])
    assert redaction.clean(hidden).content == [altered_thinking("a word")]
    harmless = replace(entry, content=[{**thought, "thinking": "a word"}])
    assert redaction.clean(harmless) is harmless
    assert left[1]["text"] == "It is [redacted: ANTHROPIC_API_KEY]."
    assert left[2]["input"]["command"] == "echo [redacted: ANTHROPIC_API_KEY]"
    plain = User(content="hello")
    assert redaction.clean(plain) is plain


def test_images_stay_as_they_are() -> None:
    data = "AKIA" + "A" * 16
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    output = Output("", {}, blocks=[image, {"type": "text", "text": data}])
    left = Redaction(shapes=True).clean(output).blocks
    assert left == [image, {"type": "text", "text": mark("AWS key")}]


def test_shapes_are_redacted_in_results_but_not_in_messages() -> None:
    token = f"ghp_{lot(36)}"
    redaction = Redaction(shapes=True)
    for found in (
        ToolResult(tool_use_id="t", content=token, details={"diff": f"+{token}"}),
        User(content=[{"type": "text", "text": token}], source="instructions"),
        Note(topic="warning", text=token),
    ):
        assert token not in str(redaction.clean(found))
    assert token in str(redaction.clean(User(content=token)))


def test_an_output_loses_what_is_known_in_all_its_parts() -> None:
    output = Output(
        f"a {KEY}",
        {"path": f"/{KEY}", "rows": [{"diff": f"+{KEY}"}], "count": 3},
        whole=f"all of {KEY}",
        blocks=[{"type": "text", "text": f"b {KEY}"}, {"type": "redacted_thinking", "data": KEY}],
    )
    left, name = redaction_for(ENVIRON).clean(output), mark("ANTHROPIC_API_KEY")
    assert (left.text, left.whole) == (f"a {name}", f"all of {name}")
    assert left.details == {"path": f"/{name}", "rows": [{"diff": f"+{name}"}], "count": 3}
    assert left.blocks == [
        {"type": "text", "text": f"b {name}"},
        {"type": "redacted_thinking", "data": KEY},
    ]
    assert Redaction().clean(output) is output
    named = Output("", {"type": "image", "path": f"/{KEY}"})  # no block
    assert redaction_for(ENVIRON).clean(named).details["path"] == f"/{name}"


def test_a_redacted_api_summary_loses_its_signature() -> None:
    block = {"type": "compaction", "content": f"It is {KEY}.", "signature": "s"}
    redaction = redaction_for(ENVIRON)
    assert redaction.clean_blocks([block]) == [
        {"type": "compaction", "content": f"It is {mark('ANTHROPIC_API_KEY')}."}
    ]
    harmless = {**block, "content": "It is a word."}
    assert redaction.clean_blocks([harmless]) == [harmless]


def test_known_values_have_a_minimum_length() -> None:
    """An API key may be shorter than other secrets."""
    values = {"ANTHROPIC_API_KEY": lot(8), "DEPLOY_TOKEN": lot(16)}
    assert set(redaction_for(values).known) == set(values.values())
    assert redaction_for({name: value[1:] for name, value in values.items()}).known == {}
    assert redaction_for({}, f"https://me:{lot(8)}@host").known.keys() == {lot(8)}
    assert redaction_for({}, f"https://me:{lot(7)}@host").known == {}
    assert redaction_for({"ANTHROPIC_API_KEY": "a1 b2 c3 d4 e5"}).known == {}


def test_passwords_are_known_from_the_addresses_of_servers() -> None:
    known = redaction_for({"ANTHROPIC_BASE_URL": f"https://me:{lot(12)}@host"}).known
    assert known == {lot(12): "password of an address"}
    assert redaction_for({}, "http://[::1", None, "no address").known == {}


def test_of_two_known_values_the_longer_one_is_taken_out_whole() -> None:
    short = lot(16)
    redaction = redaction_for({"A_TOKEN": short, "B_TOKEN": f"{short}-and-more-1"})
    assert redaction.without_known(f"{short}-and-more-1 {short}") == (
        f"{mark('B_TOKEN')} {mark('A_TOKEN')}"
    )


def test_a_long_line_is_passed_on_up_to_a_gap_between_words() -> None:
    heard = Heard()
    sieve = redaction_for({}, shapes=True).filtered_sink(heard)
    assert sieve is not heard
    held = MAX_HELD_LINE_BYTES
    sieve.feed(b"x" * held)
    assert heard.data == b""
    sieve.feed(b" y")  # too far in the line to be near its end
    assert heard.data == b"x" * (held + 2 - OVERLAP_BYTES)
    heard.data = b""
    sieve.feed(b"\nz")
    assert heard.data.endswith(b" y\n")
    heard.data = b""
    sieve.feed(b"z" * (held - OVERLAP_BYTES) + b",word" + b"z" * OVERLAP_BYTES)
    assert heard.data.endswith(b"z,")
    assert b"word" not in heard.data


def test_an_unfinished_private_key_waits_for_its_end() -> None:
    heard = Heard()
    sieve = redaction_for({}, shapes=True).filtered_sink(heard)
    first, rest = PEM[:200], PEM[200:]
    sieve.feed(f"before\n{first}\n".encode())
    assert heard.data == b"before\n"
    sieve.feed(f"{rest}\n".encode())
    assert heard.data == f"before\n{mark('private key')}\n".encode()
    sieve.feed(b"-----BEGIN PRIVATE KEY-----\n" + b"no key\n" * 4_000)
    assert heard.data.endswith(b"no key\n")  # too long to be one
