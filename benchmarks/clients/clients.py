"""How each client is configured and started against a base URL, in an empty home.

Everything is as the client comes, except the address, the model, its window, that no tool call
waits for a user, and that nobody is called but the server.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents import KEY, Start, kimi, pi

CLAUDE_MODEL = "claude-sonnet-4-5"
OPENAI_MODEL = "gpt-5"
Parts = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Client:
    """A client. `configure` gets its home, the server's address and the window, and returns its
    environment; each other field makes the arguments of a start, for a task where it takes one."""

    name: str
    protocol: str  # messages, responses or chat
    configure: Callable[[Path, str, int], Mapping[str, str]]
    task: Callable[[str], Sequence[str]]
    again: Callable[[str], Sequence[str]]  # in the newest session


def _claude(home: Path, url: str, window: int) -> Mapping[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
    }


def _claude_words(*more: str) -> Callable[[str], Sequence[str]]:
    own = ["--model", CLAUDE_MODEL, "--dangerously-skip-permissions"]
    return lambda task: ["-p", task, *own, *more]


def _codex(home: Path, url: str, window: int) -> Mapping[str, str]:
    folder = home / ".codex"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        f"""model = "{OPENAI_MODEL}"
model_provider = "scripted"
model_context_window = {window}
check_for_update_on_startup = false
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
[analytics]
enabled = false
"""
    )
    return {"CODEX_HOME": str(folder), "OPENAI_API_KEY": KEY}


CODEX_FREE = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")


def _opencode(home: Path, url: str, window: int) -> Mapping[str, str]:
    limits = {"limit": {"context": window, "output": 32_000}}
    model = {"name": OPENAI_MODEL, "tool_call": True, **limits}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
        "models": {OPENAI_MODEL: model},
    }
    config = {
        "provider": {"scripted": provider},
        "model": f"scripted/{OPENAI_MODEL}",
        "autoupdate": False,
        "share": "disabled",
        "permission": "allow",
    }
    return {
        "OPENCODE_CONFIG_CONTENT": json.dumps(config),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    }


def _aider(home: Path, url: str, window: int) -> Mapping[str, str]:
    limits = {
        "max_input_tokens": window, "max_output_tokens": 32_000, "max_tokens": 32_000,
        "litellm_provider": "openai", "mode": "chat",
    }  # fmt: skip
    metadata = home / "model.json"
    metadata.write_text(json.dumps({f"openai/{OPENAI_MODEL}": limits}))
    return {
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": KEY,
        "AIDER_MODEL": f"openai/{OPENAI_MODEL}",
        "AIDER_MODEL_METADATA_FILE": str(metadata),
        "AIDER_ANALYTICS": "false",
        "AIDER_CHECK_UPDATE": "false",
        "AIDER_SHOW_RELEASE_NOTES": "false",
        "AIDER_YES_ALWAYS": "true",
        "AIDER_GITIGNORE": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


def _of(make: Callable[[Path, str, int, str], Start]) -> Callable[..., Mapping[str, str]]:
    return lambda home, url, window: make(home, url, window, "").environ


CLIENTS = {
    client.name: client
    for client in (
        Client("claude", "messages", _claude, _claude_words(), _claude_words("--continue")),
        Client(
            "codex", "responses", _codex,
            lambda task: ["exec", *CODEX_FREE, task],
            lambda task: ["exec", "resume", "--last", *CODEX_FREE, task],
        ),
        Client(
            "opencode", "chat", _opencode,
            lambda task: ["run", task],
            lambda task: ["run", "--continue", task],
        ),
        Client(
            "pi", "messages", _of(pi),
            lambda task: ["--print", "--model", "anthropic/claude-sonnet-5", task],
            lambda task: ["--print", "--continue", "--model", "anthropic/claude-sonnet-5", task],
        ),
        Client(
            "kimi", "messages", _of(kimi),
            lambda task: ["--print", "--prompt", task],
            lambda task: ["--print", "--continue", "--prompt", task],
        ),
        Client(
            "aider", "chat", _aider,
            lambda task: ["--message", task],
            lambda task: ["--restore-chat-history", "--message", task],
        ),
    )
}  # fmt: skip
