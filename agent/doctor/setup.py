"""What the program needs, and what it can use."""

import os
import subprocess
import sys
from pathlib import Path

from ...tools.programs import describe_program
from ...tools.sandbox import probe
from ..config import Loaded
from ..context import tokens
from ..errors import conceal
from ..settings.effects import SandboxSettings
from .finding import Finding

FETCHING = 60  # seconds for a download


def check_setup(loaded: Loaded, state: Path) -> list[Finding]:
    """What the program needs, and what it can use."""
    key = next((n for n in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN") if os.environ.get(n)), "")
    settings, path = loaded.settings, os.environ.get("PATH")
    git, rg = describe_program("git", path), describe_program("rg", path)
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
        _sandbox(settings.sandbox),
        Finding("git", git or "not found: no branch and status for the model"),
        Finding("ripgrep", rg or "not found: Grep searches in Python, slower"),
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


def _sandbox(chosen: SandboxSettings) -> Finding:
    """Whether commands are confined, and what keeps them from being so."""
    if chosen.mode == "off":
        return Finding("sandbox", "off: commands run with all that you may do")
    network = "with the network" if chosen.network else "without a network"
    found = probe(str(Path.cwd()), chosen.network)
    if found.absent:
        return Finding("sandbox", f"none: {found.absent}", chosen.mode == "auto")
    return Finding("sandbox", f"{found.path}, {network}")


def _writable(state: Path) -> Finding:
    folder = state
    while not folder.exists():
        folder = folder.parent
    ok = os.access(folder, os.W_OK | os.X_OK)
    return Finding("state", f"{state}" if ok else f"{state} cannot be written", ok)
