"""Checks of what the program needs, and of what it can use."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ...tools.system.programs import describe_program
from ..config.keys import SCRIPTED
from ..config.load import LoadedSettings, config_home
from ..config.settings import SandboxSettings, Settings
from ..context import tokens
from ..errors import NoCredentials, conceal
from ..extensions.mcp.config import load_servers
from ..models.credentials import (
    BASE_URL_VAR,
    UNENCRYPTED,
    find_credentials,
    unencrypted_host,
)
from ..security import landlock
from ..security.bubblewrap import find_bubblewrap
from .finding import Finding

FETCH_TIMEOUT_S = 60


def check_setup(loaded: LoadedSettings, state: Path) -> list[Finding]:
    """Return what the program needs and can use, and what of it there is."""
    settings, path = loaded.settings, os.environ.get("PATH")
    git, rg = describe_program("git", path), describe_program("rg", path)
    return [
        Finding("Python", sys.version.split()[0]),
        Finding("model", settings.model.id),
        _server(settings.model.base_url),
        _credentials(settings.model.id),
        _writable(state),
        _sandbox(settings.sandbox),
        *_questions(settings),
        *_servers(loaded),
        Finding("git", git or "not found: no branch and status for the model"),
        Finding("ripgrep", rg or "not found: Grep searches in Python, slower"),
        Finding(
            "tokenizer",
            str(tokens.vocabulary_path() or "estimates; --fetch-tokenizer downloads one"),
        ),
        Finding("settings", ", ".join(loaded.notices) or "all in force", note=bool(loaded.notices)),
    ]


def download_vocabulary() -> Finding:
    """Let tiktoken download its vocabulary, in a process that is ended after FETCH_TIMEOUT_S."""
    if tokens.vocabulary_path() is None:
        command = [sys.executable, "-c", "import tiktoken; tiktoken.get_encoding('cl100k_base')"]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=FETCH_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return Finding("tokenizer", f"not fetched: no answer in {FETCH_TIMEOUT_S} s", False)
        if done.returncode or tokens.vocabulary_path() is None:
            why = done.stderr.strip().splitlines()[-1:] or ["unknown reason"]
            return Finding("tokenizer", f"not fetched: {why[0][:200]}", False)
    return Finding("tokenizer", f"{tokens.vocabulary_path()}")


def _server(address: str | None) -> Finding:
    url = address or os.environ.get(BASE_URL_VAR) or ""
    if host := unencrypted_host(url):
        return Finding("server", f"{conceal(url)}: {UNENCRYPTED.format(host=host)}", note=True)
    return Finding("server", conceal(url or "the public API"))


def _credentials(model_id: str) -> Finding:
    """Return what the model is asked with, and the ways on if there is nothing."""
    try:
        return Finding("credentials", find_credentials(os.environ))
    except NoCredentials as error:
        found = " ".join(str(error).split())
        return Finding("credentials", found, model_id.startswith(SCRIPTED))


def _sandbox(chosen: SandboxSettings) -> Finding:
    """Return whether commands are confined, and what prevents it if not."""
    if chosen.mode == "off":
        return Finding("sandbox", "off: commands can do everything that you can")
    network = "with the network if you allow it" if chosen.network else "without a network"
    if isinstance(chosen.network, tuple):
        network = f"with the network by name: {', '.join(chosen.network) or 'you are asked'}"
    found = find_bubblewrap(str(Path.cwd()), chosen.network is True)
    if found.absent:
        alone = chosen.mode == "auto" and landlock.works()
        what = f"Landlock alone, which holds less, {network}" if alone else "none"
        return Finding("sandbox", f"{what}: {found.absent}", chosen.mode == "auto")
    return Finding("sandbox", f"{found.command[0]}, {network}")


def _questions(settings: Settings) -> Iterator[Finding]:
    """Yield the advice to let confined commands run without a question, where that would help."""
    permissions = settings.permissions
    asks = permissions.mode in ("ask", "accept-edits") and permissions.sandboxed == "ask"
    if not asks or settings.sandbox.mode == "off":
        return
    if not find_bubblewrap(str(Path.cwd()), network=False).absent:
        advice = 'permissions.sandboxed = "allow" would ask about no command that the sandbox '
        yield Finding("questions", f"{advice}confines to the project, without a network")


def _servers(loaded: LoadedSettings) -> Iterator[Finding]:
    """Yield how each MCP server is configured; none is started."""
    configs, warnings = load_servers(
        Path.cwd(),
        config_home=config_home(os.environ),
        home=Path(os.environ.get("HOME") or Path.home()),
        trust_dir=loaded.trust_dir,
        environ=os.environ,
    )
    for each in configs:
        missing = each.command and not shutil.which(each.command[0])
        found = f"{each.command[0]} is not found" if missing else each.where
        yield Finding("MCP server", f"{each.name}: {found}", note=bool(missing))
    for warning in warnings:
        yield Finding("MCP server", warning, note=True)


def _writable(state: Path) -> Finding:
    folder = state
    while not folder.exists():
        folder = folder.parent
    ok = os.access(folder, os.W_OK | os.X_OK)
    return Finding("state", f"{state}" if ok else f"{state} cannot be written", ok)
