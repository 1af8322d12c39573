"""Start each agent headless, in its own home, against a given server.

Agents keep their defaults except for what the comparison needs: the server's address, the model,
its window, automatic approval of tool calls, and no connections to other servers.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ctxagent.agent.models.catalog import cache_terms

MODEL = "claude-sonnet-5"  # known to every agent; the server ignores it
TERMS = cache_terms(MODEL)
KEY = "scripted"
PRESETS = ("lean", "append")  # presets of ctxagent, compared as separate agents
OURS = ("ctxagent", *PRESETS)


@dataclass(frozen=True, slots=True)
class Start:
    """The arguments after the command, and additional environment variables."""

    arguments: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)


def environ(home: Path) -> dict[str, str]:
    """Return an environment in which no file of the user is read or written."""
    return {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "DO_NOT_TRACK": "1",
    }


def ctxagent(home: Path, url: str, window: int, task: str, preset: str = "default") -> Start:
    return Start(
        ["-p", task, "--permission-mode", "bypass", "--model", MODEL,
         "--context-window", str(window), "--preset", preset],
        {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY},
    )  # fmt: skip


def pi(home: Path, url: str, window: int, task: str) -> Start:
    """Configure pi with its built-in provider and model; models.json has the address and the
    window.
    """
    model = {"modelOverrides": {MODEL: {"contextWindow": window}}}
    _write(
        home / ".pi/agent/models.json",
        json.dumps({"providers": {"anthropic": {"baseUrl": url, **model}}}),
    )
    return Start(
        ["--print", "--model", f"anthropic/{MODEL}", task],
        {"ANTHROPIC_API_KEY": KEY, "PI_OFFLINE": "1", "PI_TELEMETRY": "0",
         "PI_SKIP_VERSION_CHECK": "1"},
    )  # fmt: skip


def claude(home: Path, url: str, window: int, task: str) -> Start:
    """Configure Claude Code. It compacts at the given window, but uses its own value for the
    model's window otherwise.
    """
    return Start(
        ["--print", "--model", MODEL, "--dangerously-skip-permissions", task],
        {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY, "IS_SANDBOX": "1",
         "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
         "CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(window)},
    )  # fmt: skip


def opencode(home: Path, url: str, window: int, task: str) -> Start:
    """Configure OpenCode with its provider `anthropic`, the address and the window."""
    model = {"name": MODEL, "tool_call": True, "limit": {"context": window, "output": 32_000}}
    provider = {"options": {"baseURL": f"{url}/v1", "apiKey": KEY}, "models": {MODEL: model}}
    chosen = f"anthropic/{MODEL}"
    config = {
        "provider": {"anthropic": provider}, "model": chosen, "small_model": chosen,
        "permission": "allow", "autoupdate": False, "share": "disabled",
    }  # fmt: skip
    _write(home / ".config/opencode/opencode.json", json.dumps(config))
    return Start(["run", "--model", chosen, task], {"OPENCODE_DISABLE_MODELS_FETCH": "1"})


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


AGENTS: dict[str, Callable[[Path, str, int, str], Start]] = {
    "ctxagent": ctxagent,
    "pi": pi,
    "claude": claude,
    "opencode": opencode,
    **{preset: partial(ctxagent, preset=preset) for preset in PRESETS},
}
