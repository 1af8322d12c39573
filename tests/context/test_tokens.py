"""Estimates have a bounded cost, and the vocabulary is never downloaded automatically."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxagent.agent.context import tokens

from ..support.command import Place

ASK = (
    "import sys, socket\n"
    "def refuse(*a, **k): raise SystemExit('the network was asked')\n"
    "socket.socket.connect = socket.getaddrinfo = refuse\n"
    "from ctxagent.agent.context import tokens\n"
    "used, count = tokens.use_vocabulary(), tokens.estimate('hello world, hello')\n"
    "print(used, count, 'tiktoken' in sys.modules)"
)


def ask(folder: Path) -> str:
    """Return the output of a new process that looks for the vocabulary in `folder`, without
    network.
    """
    done = subprocess.run(
        [sys.executable, "-c", ASK], capture_output=True, text=True,
        env={**os.environ, "TIKTOKEN_CACHE_DIR": str(folder)},
    )  # fmt: skip
    return done.stdout.strip() + done.stderr.strip()


def test_without_a_vocabulary_word_classes_count(tmp_path: Path) -> None:
    assert ask(tmp_path) == "False 4 False"


def test_a_damaged_vocabulary_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / tokens.VOCABULARY_FILE).write_bytes(b"half of it")
    assert ask(tmp_path) == "False 4 False"
    assert (tmp_path / tokens.VOCABULARY_FILE).read_bytes() == b"half of it"


def test_a_vocabulary_on_disk_counts(tmp_path: Path) -> None:
    found = tokens.vocabulary_path()
    if found is None:
        pytest.skip("the vocabulary is not on this machine (ctxagent doctor --fetch-tokenizer)")
    assert hashlib.sha256(found.read_bytes()).hexdigest().startswith("223921b7")
    assert ask(found.parent) == "True 4 True"


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"TIKTOKEN_CACHE_DIR": "first", "DATA_GYM_CACHE_DIR": "second"}, "first"),
        ({"DATA_GYM_CACHE_DIR": "second"}, "second"),
        ({}, "data-gym-cache"),
        ({"TIKTOKEN_CACHE_DIR": "", "DATA_GYM_CACHE_DIR": "second"}, None),  # caches nothing
    ],
)
def test_the_vocabulary_is_found_where_tiktoken_stores_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    folder: str | None,
) -> None:
    monkeypatch.setattr(tokens, "_SHA256", hashlib.sha256(b"words").hexdigest())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, str(tmp_path / value) if value else "")
    for name in ("first", "second", "data-gym-cache"):
        (tmp_path / name).mkdir()
        (tmp_path / name / tokens.VOCABULARY_FILE).write_bytes(b"words")
    expected = folder and tmp_path / folder / tokens.VOCABULARY_FILE
    assert tokens.vocabulary_path() == expected


@pytest.mark.slow
def test_fetching_says_why_it_failed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    env = place.environ(
        {"TIKTOKEN_CACHE_DIR": str(tmp_path / "none"), "https_proxy": "http://127.0.0.1:9"}
    )
    done = place.run("doctor", "--fetch-tokenizer", env=env)
    assert done.returncode == 1
    assert "FAIL  tokenizer: not downloaded" in done.stdout


@pytest.mark.slow
@given(st.text())
def test_any_text_has_a_count(text: str) -> None:
    assert 0 <= tokens.estimate(text) <= 2 * len(text) + 1


def test_large_texts_are_sampled() -> None:
    line = "the quick brown fox jumps over the lazy dog\n"
    whole = tokens.estimate(line * 1_000)
    assert tokens.estimate(line * 100_000) == pytest.approx(100 * whole, rel=0.02)


def test_texts_below_256_kib_are_counted_whole() -> None:
    assert tokens.estimate("\n" * 200_000) == 200_000
    uneven = "\n" * 70_000 + "a" * 60_000 + "\n" * 70_000  # three samples would miss the middle
    assert tokens.estimate(uneven) == tokens.count_word_classes(uneven)


def test_an_unknown_text_is_estimated_by_its_length() -> None:
    assert tokens.estimate_length(7_000) == 2_000


def test_hidden_texts_are_estimated_by_length() -> None:
    thought = {"type": "thinking", "thinking": "two words", "signature": "s" * 900}
    assert tokens.estimate_block(thought) == 2
    assert tokens.estimate_block({"type": "redacted_thinking", "data": "x" * 8_000}) == 1_000
    page = {"type": "web_search_result", "url": "u", "title": "T", "encrypted_content": ""}

    def size(*pages: object) -> int:
        return tokens.estimate_block({"type": "web_search_tool_result", "content": [*pages]})

    hidden = {**page, "encrypted_content": "x" * 7_000}  # 5,250 bytes
    assert size(hidden) == size(page) + 1_500
    assert size(hidden, "damaged", hidden) == pytest.approx(2 * size(hidden), rel=0.01)


def test_a_failed_search_counts_its_error() -> None:
    error = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    size = tokens.estimate_block({"type": "web_search_tool_result", "content": error})
    assert size > tokens.estimate(json.dumps(error))


def test_values_too_deep_to_send_count_as_zero() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert tokens.estimate_block({"type": "other", "deep": deep}) == 0


def test_blocks_are_weighed_by_kind() -> None:
    assert tokens.estimate_block({"type": "image", "source": {}}) > 1_000
    call = {"type": "tool_use", "input": {"command": "ls -la"}}
    assert tokens.estimate_block(call) > tokens.estimate(json.dumps(call["input"]))
    assert tokens.estimate_content("two words") == 2
