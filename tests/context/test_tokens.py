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


def test_blocks_are_weighed_by_kind() -> None:
    assert tokens.estimate_block({"type": "image", "source": {}}) > 1_000
    call = {"type": "tool_use", "input": {"command": "ls -la"}}
    assert tokens.estimate_block(call) > tokens.estimate(json.dumps(call["input"]))
    assert tokens.estimate_content("two words") == 2
