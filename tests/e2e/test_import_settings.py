"""`ctxagent import-settings`: settings of other agents, and copies that only add."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place
from ..support.server.loopback import Say
from .test_plugins import own, put, ran, told, tools

RULES = {"allow": ["Bash(npm test:*)", "SlashCommand(/x)"], "deny": ["Read(./secrets/**)"]}
CODEX = """
model = "gpt-5.5-codex"
approval_policy = "never"
[mcp_servers.docs]
command = "docs"
"""
OPENCODE = """{ // settings
  "mcp": {"docs": {"type": "local", "command": ["other"]}, "web": {"type": "remote", "url": "https://x/y"},},
  "model": "anthropic/claude-sonnet-4-5" /* and no more */
}"""  # fmt: skip

ANOTHER = ": there is another one of this name"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path)
    project, home = found.project, found.root / "home"
    (project / ".git").mkdir()
    put(project / ".claude" / "settings.json", {"permissions": RULES, "statusLine": {}})
    put(project / ".claude" / "commands" / "own.md", "Own.")
    put(project / ".codex" / "config.toml", CODEX)
    put(project / ".codex" / "prompts" / "draft.md", "Draft $1.")
    put(project / "opencode.json", OPENCODE)
    agent = "---\ndescription: Reviews: code\ntools:\n  write: false\n---\nReview."
    put(project / ".opencode" / "agent" / "checker.md", agent)
    put(project / ".gemini" / "commands" / "say.toml", 'prompt = "Say {{args}} now."')
    put(project / ".gemini" / "skills" / "deep" / "SKILL.md", "---\ndescription: Deep.\n---\nDo.")
    put(project / ".gemini" / "skills" / "deep" / "more.txt", "more")
    put(home / ".claude" / "settings.json", {"model": "claude-opus-5-5", "hooks": {"Stop": []}})
    put(home / ".claude.json", {"mcpServers": {"mem": {"command": "mem"}}})
    return found


def imported(place: Place, *arguments: str) -> dict[str, Any]:
    done = place.run("import-settings", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_copied_settings_take_effect(place: Place) -> None:
    found = imported(place)
    assert found["written"] is False
    assert not (place.project / ".agentrc").exists()
    rows = {(row["source"], row["status"], row["what"]): row["target"] for row in found["findings"]}
    for row, target in {
        (".claude/commands", "taken", "1 command"): "",
        (".claude/settings.json", "copy", "allow Bash(npm test:*)"): ".agentrc",
        (".claude/settings.json", "copy", "deny Read(secrets/**)"): ".agentrc",
        (".claude/settings.json", "not", "settings without effect here: statusLine"): "",
        (".codex/config.toml", "copy", "model.id = openai/gpt-5.5-codex"): ".agentrc",
        (".codex/config.toml", "copy", "MCP server docs"): ".mcp.json",
        ("opencode.json", "kept", f"MCP server docs{ANOTHER}"): ".mcp.json",
        ("opencode.json", "copy", "MCP server web"): ".mcp.json",
        ("~/.claude/settings.json", "copy", "model.id = claude-opus-5-5"): (
            "~/.config/ctxagent/agentrc"
        ),
        ("~/.claude.json", "copy", "MCP server mem"): "~/.config/ctxagent/mcp.json",
    }.items():  # fmt: skip
        assert rows[row] == target
    assert any("+allow = " in row["diff"] for row in found["files"])
    shown = place.run("import-settings", "--write").stdout
    assert '+allow = ["Bash(npm test:*)"]' in shown
    assert (
        "written. A changed file of the project needs your trust: `ctxagent config --trust`."
        in shown
    )
    settings = tomllib.loads((place.project / ".agentrc").read_text())
    assert settings["permissions"] == {
        "allow": ["Bash(npm test:*)"],
        "deny": ["Read(secrets/**)"],
    }
    assert [*json.loads((place.project / ".mcp.json").read_text())["mcpServers"]] == ["docs", "web"]
    assert [*json.loads((own(place) / "mcp.json").read_text())["mcpServers"]] == ["mem"]
    assert (own(place) / "agentrc").stat().st_mode & 0o777 == 0o600
    again = imported(place, "--write")
    assert again["files"] == []
    assert {row["status"] for row in again["findings"]} == {"taken", "kept", "not"}
    (place.project / ".mcp.json").unlink()
    (own(place) / "mcp.json").unlink()
    place.run("config", "--trust")
    arguments = ("--model", "claude-sonnet-4-5")
    server, _ = ran(place, [Say("Done.")], *arguments, task="/draft this")
    assert "Draft this." in told(server.requests[0])
    assert "- deep: Deep." in told(server.requests[0])
    assert "- checker: Reviews: code" in json.dumps(tools(server)["Task"])
    server, _ = ran(place, [Say("Done.")], *arguments, task="/say it")
    assert "Say it now." in told(server.requests[0])


def test_nothing_is_overwritten_and_no_link_is_followed(place: Place) -> None:
    project = place.project
    put(project / ".agentrc", '# mine\n[model]\nid = "claude-haiku-4-5"\n')
    put(project / ".ctxagent" / "commands" / "draft.md", "My own draft.")
    secret = place.root / "secret"
    secret.write_text("the secret")
    (project / ".codex" / "prompts" / "evil.md").symlink_to(secret)
    (project / ".gemini" / "skills" / "deep" / "key").symlink_to(secret)
    (project / ".claude" / "settings.local.json").symlink_to(secret)
    elsewhere = place.root / "elsewhere"
    elsewhere.mkdir()
    (project / ".ctxagent" / "agents").symlink_to(elsewhere)
    done = place.run("import-settings", "--write")
    assert done.returncode == 0
    assert "model.id = openai/gpt-5.5-codex: your file has claude-haiku-4-5" in done.stdout
    assert done.stdout.count("it is a link that leads out of the project") == 3
    text = (project / ".agentrc").read_text()
    assert text.startswith('# mine\n[model]\nid = "claude-haiku-4-5"\n')
    assert (project / ".ctxagent" / "commands" / "draft.md").read_text() == "My own draft."
    assert [*elsewhere.iterdir()] == []
    assert "the secret" not in done.stdout
    copied = project / ".ctxagent" / "skills" / "deep"
    assert sorted(each.name for each in copied.iterdir()) == ["SKILL.md", "more.txt"]
