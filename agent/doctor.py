"""Doctor: looks at the set-up, or at one session's log, and says what it found. Changes nothing."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from .config import Loaded
from .context import tokens
from .context.view import fold
from .context.wire import UNKNOWN_OUTCOME, messages
from .errors import conceal
from .record.log import read

FETCHING = 60  # seconds for a download


class Finding(NamedTuple):
    """One thing looked at. `ok` is False for what keeps the program from working."""

    what: str
    found: str
    ok: bool = True


def check_setup(loaded: Loaded, state: Path) -> list[Finding]:
    """What the program needs, and what it can use."""
    key = next((n for n in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN") if os.environ.get(n)), "")
    settings = loaded.settings
    return [
        Finding("Python", sys.version.split()[0]),
        Finding("model", settings.model.id),
        Finding("server", conceal(settings.model.base_url or "the public API")),
        Finding(
            "credentials",
            key or "none: set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN, or try `ctxagent demo`",
            bool(key) or settings.model.id.startswith("scripted:"),
        ),
        _writable(state),
        Finding("git", shutil.which("git") or "not found: no branch and status for the model"),
        Finding("ripgrep", shutil.which("rg") or "not found: Grep searches in Python, slower"),
        Finding(
            "tokenizer", str(tokens.vocabulary() or "word classes; --fetch-tokenizer gets one")
        ),
        Finding("settings", ", ".join(loaded.notices) or "all in force"),
    ]


def fetch() -> Finding:
    """Let tiktoken download its vocabulary, in a process that is ended after a minute."""
    if tokens.vocabulary() is None:
        command = [sys.executable, "-c", "import tiktoken; tiktoken.get_encoding('cl100k_base')"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=FETCHING, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            return Finding("tokenizer", f"not fetched: no answer in {FETCHING} s", False)
        if done.returncode or tokens.vocabulary() is None:
            why = done.stderr.strip().splitlines()[-1:] or ["unknown reason"]
            return Finding("tokenizer", f"not fetched: {why[0][:200]}", False)
    return Finding("tokenizer", f"{tokens.vocabulary()}")


def check_session(log: Path) -> list[Finding]:
    """A session's log: its lines, its entries, and whether a request can be made of it."""
    reading = read(log)
    torn = log.stat().st_size - reading.whole
    kinds = Counter(entry.kind for entry in reading.entries)
    sent = messages(fold(reading.entries).items)
    unanswered = sum(
        block.get("content") == UNKNOWN_OUTCOME for message in sent for block in message["content"]
    )
    return [
        Finding("log", str(log)),
        Finding("entries", ", ".join(f"{n} {kind}" for kind, n in kinds.items()) or "none"),
        Finding("lines skipped", "; ".join(reading.warnings) or "none", not reading.warnings),
        Finding("torn tail", f"{torn} bytes, cut off at the next opening" if torn else "none"),
        Finding("calls without a result", str(unanswered)),
        Finding("next request", f"{len(sent)} messages"),
    ]


def _writable(state: Path) -> Finding:
    folder = state
    while not folder.exists():
        folder = folder.parent
    ok = os.access(folder, os.W_OK | os.X_OK)
    return Finding("state", f"{state}" if ok else f"{state} cannot be written", ok)
