"""Start known clients with the proxy's address, using environment variables and flags that their
vendors document. No settings file is changed.

Placeholders in all texts: `$url` is the proxy's address, `$mcp` the address of its MCP
server, `$sessions` the folder of the project's sessions, `$command` and `$arguments` (JSON) start a
program that connects to the MCP server, and `$files` the folder of files for clients.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import urlsplit

from ...api.base import dataclass
from ...api.models import MESSAGES
from ...api.programs import isolated_python
from ...api.record import SERVER
from .forward import GEMINI, OPENAI, UPSTREAMS

MCP_PATH = "/.ctxagent/mcp"  # of the MCP server in the proxy
_FILES = Path(__file__).parent
_STUB = _FILES / "mcp_stub.py"


@dataclass(frozen=True, slots=True)
class Client:
    """A known client and how to start it with the proxy."""

    name: str  # name of its command
    install: str  # command that installs it
    environ: Mapping[str, str] = field(default_factory=dict)
    json_environ: Mapping[str, Any] = field(default_factory=dict)  # merged into the current value
    flags: Sequence[str] = ()  # inserted before the user's arguments
    # Upstreams that differ from the proxy's defaults: (variables that may have the base URL,
    # default base URL).
    upstreams: Mapping[str, tuple[Sequence[str], str]] = field(default_factory=dict)


_MCP_SERVERS = f'{{"mcpServers": {{"{SERVER}": {{$server}}}}}}'
# `--flag=value`, because `--flag value` would parse the following prompt as another value.
CLIENTS = {
    client.name: client
    for client in (
        Client(
            "claude",
            "npm install -g @anthropic-ai/claude-code",
            {"ANTHROPIC_BASE_URL": "$url"},
            flags=(
                # Otherwise the first requests lack the tools; adding them breaks the cache.
                f"--mcp-config={_MCP_SERVERS}".replace(
                    "$server", '"type": "http", "url": "$mcp", "alwaysLoad": true'
                ),
                f"--allowedTools=mcp__{SERVER}",
                "--allowedTools=Read(/$sessions/**)",  # // marks an absolute path
            ),
        ),
        Client(
            "codex",
            "npm install -g @openai/codex",
            flags=(
                "-c", 'openai_base_url="$url"',
                "-c", f'mcp_servers.{SERVER}.url="$mcp"',
                "-c", f'mcp_servers.{SERVER}.default_tools_approval_mode="approve"',
                "-c", f"mcp_servers.{SERVER}.required=true",  # as alwaysLoad above
            ),
        ),
        Client(
            "opencode",
            "npm install -g opencode-ai",
            json_environ={
                "OPENCODE_CONFIG_CONTENT": {
                    "provider": {
                        "anthropic": {"options": {"baseURL": "$url/v1"}},
                        "openai": {"options": {"baseURL": "$url/v1"}},
                    },
                    "permission": {"external_directory": {"$sessions/**": "allow"}},
                    "mcp": {SERVER: {"type": "remote", "url": "$mcp"}},
                }
            },
        ),
        Client(
            "pi",
            "npm install -g @earendil-works/pi-coding-agent",
            {"CTXAGENT_PROXY_URL": "$url"},
            flags=("-e", "$files/pi_extension.js"),
        ),
        Client(  # it reads MCP servers only from its files
            "kimi",
            "npm install -g @moonshot-ai/kimi-code",
            {"KIMI_MODEL_BASE_URL": "$url/v1", "KIMI_BASE_URL": "$url/v1"},
            upstreams={
                OPENAI: (("KIMI_MODEL_BASE_URL", "KIMI_BASE_URL"), "https://api.moonshot.ai/v1")
            },
        ),
        Client(
            "qwen",
            "npm install -g @qwen-code/qwen-code",
            {"OPENAI_BASE_URL": "$url/v1", "ANTHROPIC_BASE_URL": "$url",
             "GOOGLE_GEMINI_BASE_URL": "$url"},
            flags=(
                f"--mcp-config={_MCP_SERVERS}".replace(
                    "$server", '"httpUrl": "$mcp", "trust": true, "alwaysLoadTools": true'
                ),
            ),
        ),
        Client(
            "gemini",
            "npm install -g @google/gemini-cli",
            {
                "GOOGLE_GEMINI_BASE_URL": "$url",
                "CTXAGENT_PROXY_URL": "$url",  # for the file
                "GEMINI_CLI_SYSTEM_DEFAULTS_PATH": "$files/gemini_settings.json",
            },
        ),
        Client(
            "copilot",
            "npm install -g @github/copilot",
            {"COPILOT_PROVIDER_BASE_URL": "$url"},
            flags=(
                f"--additional-mcp-config={_MCP_SERVERS}".replace(
                    "$server", '"type": "http", "url": "$mcp", "tools": ["*"]'
                ),
                f"--allow-tool={SERVER}",
            ),
            upstreams={
                name: (("COPILOT_PROVIDER_BASE_URL",), UPSTREAMS[name].url)
                for name in (MESSAGES, OPENAI)
            },
        ),
        Client(
            "crush",
            "npm install -g @charmland/crush",
            {"ANTHROPIC_API_ENDPOINT": "$url", "OPENAI_API_ENDPOINT": "$url/v1",
             "GEMINI_API_ENDPOINT": "$url"},
            upstreams={
                MESSAGES: (("ANTHROPIC_API_ENDPOINT",), UPSTREAMS[MESSAGES].url),
                OPENAI: (("OPENAI_API_ENDPOINT",), UPSTREAMS[OPENAI].url),
                GEMINI: (("GEMINI_API_ENDPOINT",), UPSTREAMS[GEMINI].url),
            },
        ),
        Client(
            "goose",
            "brew install block-goose-cli",
            {"ANTHROPIC_HOST": "$url", "OPENAI_HOST": "$url", "GOOGLE_HOST": "$url"},
            upstreams={
                MESSAGES: (("ANTHROPIC_HOST",), UPSTREAMS[MESSAGES].url),
                OPENAI: (("OPENAI_HOST",), UPSTREAMS[OPENAI].url),
                GEMINI: (("GOOGLE_HOST",), UPSTREAMS[GEMINI].url),
            },
        ),
        Client(
            "aider",
            "uv tool install aider-chat",
            {
                "ANTHROPIC_BASE_URL": "$url", "ANTHROPIC_API_BASE": "$url",
                "OPENAI_BASE_URL": "$url/v1", "OPENAI_API_BASE": "$url/v1",
            },
            upstreams={
                MESSAGES: (("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"), UPSTREAMS[MESSAGES].url),
                OPENAI: (("OPENAI_BASE_URL", "OPENAI_API_BASE"), UPSTREAMS[OPENAI].url),
            },
        ),
        Client(
            "kimi-cli",
            "uv tool install kimi-cli",
            {"KIMI_BASE_URL": "$url/v1", "OPENAI_BASE_URL": "$url/v1"},
            flags=(
                "--mcp-config",
                _MCP_SERVERS.replace("$server", '"command": $command, "args": $arguments'),
            ),
            upstreams={OPENAI: (("KIMI_BASE_URL",), "https://api.kimi.com/coding/v1")},
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClientStart:
    """The values of one start of a client."""

    url: str  # the proxy's address
    sessions: Path

    def flags(self, client: Client) -> list[str]:
        """Return the arguments to insert before the user's arguments."""
        return [self._filled(flag) for flag in client.flags]

    def environ(self, client: Client, given: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables to set. Raises ValueError if a variable in `given`
        should be JSON and is not.
        """
        values = {name: self._filled(text) for name, text in client.environ.items()}
        for name, tree in client.json_environ.items():
            before = json.loads(given.get(name) or "{}")
            values[name] = json.dumps(_merged(before, self._tree(tree)))
        return values

    def _filled(self, text: str) -> str:
        mcp = urlsplit(f"{self.url}{MCP_PATH}")
        place = str(mcp.hostname), str(mcp.port), mcp.path
        command, *arguments = [*isolated_python(), "-S", str(_STUB), *place]
        return Template(text).substitute(
            url=self.url,
            sessions=self.sessions,
            mcp=mcp.geturl(),
            command=json.dumps(command),
            arguments=json.dumps(arguments),
            files=_FILES,
        )

    def _tree(self, tree: Any) -> Any:
        if isinstance(tree, dict):
            return {self._filled(name): self._tree(value) for name, value in tree.items()}
        return self._filled(tree)


def upstreams_for(client: Client, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the base URLs for a client whose requests do not go to the default upstreams."""
    return {
        name: next(filter(None, map(environ.get, variables)), default)
        for name, (variables, default) in client.upstreams.items()
    }


def client_named(command: str) -> Client | None:
    """Return the client for a command or its path, None for an unknown client."""
    return CLIENTS.get(Path(command).name)


def _merged(before: Any, added: Any) -> Any:
    """Return `before` with `added` merged into it recursively."""
    if not isinstance(before, dict) or not isinstance(added, dict):
        return added
    return {**before, **{name: _merged(before.get(name), value) for name, value in added.items()}}
