"""Configure and start each client against a base URL, in an empty home.

Clients keep their defaults except for the address, the model, its window, automatic approval of
tool calls, and no connections to other servers.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents import KEY, Start, pi

CLAUDE_MODEL = "claude-sonnet-4-5"
BOUND_MODEL = "claude-sonnet-5-5"
OPENAI_MODEL = "gpt-5"
GEMINI_MODEL = "gemini-2.5-pro"
OTHER_MODEL = "scripted"
Steps = Sequence[str]  # names of keys, or texts to type with a leading "="


@dataclass(frozen=True, slots=True)
class InTerminal:
    """A session in a terminal. The screen shows `ready` when the client accepts input."""

    arguments: Sequence[str]
    ready: str
    rewind: Steps  # keys that rewind to before the second message
    compact: Steps = ("=/compact", "Enter")


@dataclass(frozen=True, slots=True)
class Client:
    """A client. `configure(home, project, url, window)` returns its environment; `task` and `again`
    return the arguments to start it with a task.
    """

    name: str
    package: str  # of npm; "" if `make clients` does not install it
    protocol: str  # messages, responses, chat or gemini
    configure: Callable[[Path, Path, str, int], Mapping[str, str]]
    task: Callable[[str], Sequence[str]]
    again: Callable[[str], Sequence[str]]  # continues the newest session in a new process
    terminal: InTerminal | None = None
    has_files: bool = True  # tools that read and write files
    has_tools: bool = True
    largest_output: int | None = None  # in bytes; the client shortens larger outputs of commands
    window: int | None = None  # of its model, if it cannot be configured
    has_subagents: bool = False
    waits: bool = False  # its subagents run in the background, and a tool waits for them
    bound: tuple[str, str] | None = None  # its model, and one whose thinking is bound


def _claude(home: Path, project: Path, url: str, window: int) -> Mapping[str, str]:
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    known = {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": [KEY], "rejected": []},
        "projects": {str(project): trusted},
    }
    (home / ".claude.json").write_text(json.dumps(known))
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
    }


def _codex(home: Path, project: Path, url: str, window: int) -> Mapping[str, str]:
    folder = home / ".codex"
    folder.mkdir()
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
[projects."{project}"]
trust_level = "trusted"
"""
    )
    return {"CODEX_HOME": str(folder), "OPENAI_API_KEY": KEY}


def _opencode(home: Path, project: Path, url: str, window: int) -> Mapping[str, str]:
    model = {"tool_call": True, "limit": {"context": window, "output": 32_000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
        "models": {OTHER_MODEL: model},
    }
    config = {
        "provider": {"scripted": provider},
        "model": f"scripted/{OTHER_MODEL}",
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


def _qwen(home: Path, project: Path, url: str, window: int) -> Mapping[str, str]:
    folder = home / ".qwen"
    folder.mkdir()
    model = {"name": OTHER_MODEL, "generationConfig": {"contextWindowSize": window}}
    settings = {
        "model": model,
        "security": {"auth": {"selectedType": "openai"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": KEY,
        "OPENAI_MODEL": OTHER_MODEL,
    }


def _gemini(home: Path, project: Path, url: str, window: int) -> Mapping[str, str]:
    folder = home / ".gemini"
    folder.mkdir()
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    return {
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": KEY,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }


def _copilot(home: Path, project: Path, url: str, window: int) -> Mapping[str, str]:
    return {
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
        "COPILOT_PROVIDER_TYPE": "anthropic",
        "COPILOT_PROVIDER_BASE_URL": url,
        "COPILOT_PROVIDER_API_KEY": KEY,
        "COPILOT_MODEL": CLAUDE_MODEL,
        "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": str(window),
    }


def _kimi(home: Path, project: Path, url: str, window: int) -> Mapping[str, str]:
    return {
        "KIMI_MODEL_NAME": OTHER_MODEL,
        "KIMI_MODEL_API_KEY": KEY,
        "KIMI_MODEL_BASE_URL": f"{url}/v1",
        "KIMI_MODEL_MAX_CONTEXT_SIZE": str(window),
        "KIMI_CODE_NO_AUTO_UPDATE": "1",
    }


def _aider(home: Path, project: Path, url: str, window: int) -> Mapping[str, str]:
    known = {
        "max_input_tokens": window, "max_output_tokens": 32_000, "max_tokens": 32_000,
        "litellm_provider": "openai", "mode": "chat",
    }  # fmt: skip
    metadata = home / "model.json"
    metadata.write_text(json.dumps({f"openai/{OTHER_MODEL}": known}))
    return {
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": KEY,
        "AIDER_MODEL": f"openai/{OTHER_MODEL}",
        "AIDER_EDIT_FORMAT": "diff",
        "AIDER_MODEL_METADATA_FILE": str(metadata),
        "AIDER_ANALYTICS": "false",
        "AIDER_CHECK_UPDATE": "false",
        "AIDER_SHOW_RELEASE_NOTES": "false",
        "AIDER_YES_ALWAYS": "true",
        "AIDER_GIT": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


def _peer(make: Callable[[Path, str, int, str], Start]) -> Callable[..., Mapping[str, str]]:
    """Return a `configure` function for an agent of `benchmarks/peers`."""
    return lambda home, project, url, window: make(home, url, window, "").environ


def _before(*flags: str) -> Callable[[str], Sequence[str]]:
    return lambda task: [*flags, task]


_CLAUDE = ("--model", CLAUDE_MODEL)
_CLAUDE_FREE = (*_CLAUDE, "--dangerously-skip-permissions", "-p")
_CODEX_FREE = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
_COPILOT_FREE = ("--allow-all-tools", "--allow-all-paths")
_GEMINI = ("--model", GEMINI_MODEL, "--yolo")
_PI = ("--model", "anthropic/claude-sonnet-5")
CLIENTS = {
    client.name: client
    for client in (
        Client(
            "claude", "@anthropic-ai/claude-code", "messages", _claude,
            _before(*_CLAUDE_FREE),
            _before("--continue", *_CLAUDE_FREE),
            InTerminal(
                [*_CLAUDE, "--allowedTools=Bash"],
                "for shortcuts",
                ("Escape Escape", "Up", "Enter", "Enter"),
            ),
            has_subagents=True, bound=(CLAUDE_MODEL, BOUND_MODEL),
        ),
        Client(
            "codex", "@openai/codex", "responses", _codex,
            _before("exec", *_CODEX_FREE),
            _before("exec", "resume", "--last", *_CODEX_FREE),
            InTerminal(
                [_CODEX_FREE[1]], "for shortcuts", ("Escape", "Escape", "Enter")
            ),
            has_files=False, largest_output=9_000, has_subagents=True, waits=True,
        ),
        Client(
            "opencode", "opencode-ai", "chat", _opencode,
            _before("run"),
            _before("run", "--continue"),
            InTerminal([], "Ask anything", ("=/undo", "Enter")),
            has_subagents=True,
        ),
        Client(
            "pi", "@earendil-works/pi-coding-agent", "messages", _peer(pi),
            _before("--print", *_PI),
            _before("--print", "--continue", *_PI),
            InTerminal(
                [*_PI], "escape interrupt", ("=/tree", "Enter", "=Part 1 is", "Enter", "Enter")
            ),
            bound=("claude-sonnet-5", BOUND_MODEL),
        ),
        Client(
            "qwen", "@qwen-code/qwen-code", "chat", _qwen,
            _before("--yolo", "--prompt"),
            _before("--yolo", "--continue", "--prompt"),
            has_subagents=True,
        ),
        Client(
            "gemini", "@google/gemini-cli", "gemini", _gemini,
            _before(*_GEMINI, "--prompt"),
            _before("--resume", "latest", *_GEMINI, "--prompt"),
            window=1_048_576,
        ),
        Client(
            "kimi", "@moonshot-ai/kimi-code", "chat", _kimi,
            _before("--prompt"),
            _before("--continue", "--prompt"),
            has_subagents=True,
        ),
        Client(
            "copilot", "@github/copilot", "messages", _copilot,
            _before(*_COPILOT_FREE, "--prompt"),
            _before(*_COPILOT_FREE, "--continue", "--prompt"),
            largest_output=18_000,
            has_subagents=True,
        ),
        Client(
            "aider", "", "chat", _aider,
            _before("--message"),
            _before("--restore-chat-history", "--message"),
            has_files=False, has_tools=False,
        ),
    )
}  # fmt: skip
