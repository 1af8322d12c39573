"""Marketplaces with the real command: plugins are added, updated, searched, and distinguished by
name.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ..support import language_server
from ..support.command import Place
from ..support.server.loopback import Say
from .test_plugins import committed, git, hooks, listed, own, put, ran, told, tools


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def market(place: Place, name: str = "tools", **more: Any) -> Path:
    """Make a repository with a marketplace of three plugins, two of them in it."""
    folder = place.root / "sources" / name
    kit = folder / "plugins" / "kit"
    put(kit / "commands" / "hello.md", f"Hello from {name}.")
    put(kit / "commands" / "more" / "bye.md", "Bye.")
    put(kit / "skills" / "one" / "SKILL.md", f"---\nname: one\ndescription: Of {name}.\n---\nOne.")
    put(kit / "agents" / "scout.md", f"---\nname: scout\ndescription: Of {name}.\n---\nGo.")
    put(kit / "hooks" / "hooks.json", hooks(SessionStart="true"))
    put(folder / "plugins" / "lint" / "README.md", "What it needs is in the list.")
    server = [language_server.__file__, "pull", str(place.root / "heard")]
    lint = {"command": sys.executable, "args": server, "extensionToLanguage": {".x": "x"}}
    rows = [
        {"name": "kit", "source": "./plugins/kit", "description": "Greets people"},
        {
            "name": "lint",
            "source": "lint",
            "description": "Finds errors",
            "keywords": ["greets"],
            "strict": False,
            "lspServers": {"x-server": lint},
        },
        {"name": "far", "source": {"source": "npm", "package": "far"}},
    ]
    listing = {"name": name, "plugins": rows, "metadata": {"pluginRoot": "./plugins"}, **more}
    put(folder / ".claude-plugin" / "marketplace.json", listing)
    committed(folder)
    return folder


def said(place: Place, *arguments: str, code: int = 0) -> str:
    """Run `ctxagent plugin`, and return its output."""
    done = place.run("plugin", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    output: str = done.stdout + done.stderr
    return output


def test_what_a_marketplace_offers_is_found_and_added(place: Place) -> None:
    url = f"file://{market(place)}"
    assert "there is no marketplace yet" in said(place, "search", "kit", code=2)
    assert "added: tools, 3 plugins" in said(place, "marketplace", "add", url)
    found = said(place, "search", "GREETS").splitlines()
    assert found == ["kit@tools: Greets people", "lint@tools: Finds errors"]
    assert "none" not in said(place, "search", "greets", "people")
    assert "no plugin of your marketplaces" in said(place, "search", "greets", "nobody", code=1)
    shown = said(place, "add", "--yes", "kit@tools")
    assert f"kit, from {url}#plugins/kit, commit " in shown
    assert "hook SessionStart, runs: true" in shown
    (row,) = listed(place)
    (line,) = said(place, "list").splitlines()
    assert line.startswith("kit · kit@tools: ")
    assert row["version"] == ""
    assert (row["market"], row["path"]) == ("tools", "plugins/kit")
    assert row["commit"] == git(place.root / "sources" / "tools", "rev-parse", "HEAD")
    assert not (own(place) / "plugins" / "kit" / "plugins").exists(), "nothing else of it"
    rows = json.loads(place.run("plugin", "search", "--json", "kit").stdout)
    assert rows == [
        {
            "name": "kit",
            "marketplace": "tools",
            "description": "Greets people",
            "installed": True,
        }
    ]
    refused = said(place, "add", "--yes", "far@tools", code=2)
    assert "far@tools cannot be added: it comes from 'npm', which is not supported" in refused
    assert "has no plugin nothing" in said(place, "add", "nothing@tools", code=2)
    assert "There are: tools" in said(place, "add", "kit@others", code=2)
    (kept,) = json.loads(place.run("plugin", "marketplace", "list", "--json").stdout)
    assert (kept["name"], kept["source"], kept["plugins"]) == ("tools", url, 3)
    said(place, "marketplace", "remove", "tools")
    assert len(listed(place)) == 1


@pytest.mark.variants
@pytest.mark.parametrize("is_url", [True, False])
def test_a_repository_with_several_plugins_is_listed(place: Place, is_url: bool) -> None:
    folder = market(place)
    source = f"file://{folder}" if is_url else str(folder)
    output = said(place, "add", "--yes", source, code=2)
    assert output.splitlines()[:2] == ["kit@tools: Greets people", "lint@tools: Finds errors"]
    assert f"{source} is a marketplace with 3 plugins, none was added" in output
    assert f"`ctxagent plugin marketplace add {source}`, then `ctxagent plugin add kit@" in output
    assert listed(place) == []
    said(place, "marketplace", "add", source)
    said(place, "add", "--yes", "kit@tools")
    assert len(listed(place)) == 1


def test_an_update_shows_what_differs_and_asks(place: Place) -> None:
    folder = market(place)
    said(place, "marketplace", "add", f"file://{folder}")
    said(place, "add", "--yes", "kit@tools")
    (before,) = listed(place)
    assert "kit: unchanged, commit " in said(place, "update")
    kit = folder / "plugins" / "kit"
    put(kit / "hooks" / "hooks.json", hooks(SessionStart="true", Stop="false"))
    put(kit / ".mcp.json", {"far": {"command": "serve"}})
    put(kit / "commands" / "hello.md", "---\nallowed-tools: Bash(rm:*)\n---\nHello.")
    (kit / "commands" / "more" / "bye.md").unlink()
    committed(folder)
    output = said(place, "update", "kit", code=2)
    for line in (
        "+ hook Stop, runs: false",
        "+ MCP server far, runs: serve",
        "- command /bye",
        "+ command /hello, allows for its turn: Bash(rm:*)",
        "changed: hooks/hooks.json",
        "new: .mcp.json",
        "gone: commands/more/bye.md",
        "kit: not updated, because there is no terminal to ask",
    ):
        assert line in output
    assert listed(place) == [before]
    assert "updated, pinned to commit" in said(place, "update", "--yes")
    (after,) = listed(place)
    assert after["commit"] == git(folder, "rev-parse", "HEAD") != before["commit"]
    assert after["servers"] == ["far"]
    (folder / ".claude-plugin" / "marketplace.json").unlink()
    committed(folder)
    assert "is not a marketplace: the repository has no folder .claude-plugin" in said(
        place, "update", code=2
    )
    assert listed(place) == [after]


def test_equal_names_are_distinguished(place: Place) -> None:
    """Names of two plugins from different places, and names of the parts that they contain."""
    for name in ("tools", "others"):
        said(place, "marketplace", "add", str(market(place, name)))
    said(place, "add", "--yes", "kit@tools")
    shown = said(place, "add", "--yes", "kit@others")
    assert f"It is renamed, because {place.root}/sources/tools/plugins/kit has" in shown
    said(place, "add", "--yes", "kit@others")
    assert [row["name"] for row in listed(place)] == ["kit", "others-kit"]
    task = {"description": "look", "prompt": "find", "type": "others-kit:scout"}
    steps = [Say(tools=[("Task", task)]), Say("Found."), Say("Done.")]
    server, done = ran(place, steps, task="/others-kit:hello")
    assert "left out" not in done.stderr
    assert "Hello from others." in told(server.requests[0])
    types = json.dumps(tools(server)["Task"])
    assert "- scout: Of tools." in types
    assert "- others-kit:scout: Of others." in types
    assert "- others-kit:one: Of others." in told(server.requests[0])
    assert "Found." in told(server.requests[-1])
    server, _ = ran(place, [Say("Done.")], task="/kit:hello")
    assert "Hello from tools." in told(server.requests[0])
    server, _ = ran(place, [Say(tools=[("Task", task)]), Say("No.")], "--deny", "Task(scout)")
    assert "denied by the rule Task(scout)" in told(server.requests[-1])


def test_marketplace_from_another_place_cannot_take_a_name(place: Place) -> None:
    first = market(place)
    said(place, "marketplace", "add", str(first))
    url = f"file://{first}"
    output = said(place, "marketplace", "add", url, code=2)
    assert f"there is a marketplace tools already, from {first}" in output
    put(first / "plugins" / "kit" / "words", "more")
    listing = {"name": "tools", "plugins": [{"name": "new", "source": "./plugins/kit"}]}
    put(first / ".claude-plugin" / "marketplace.json", listing)
    assert "tools: 1 plugin +new -far -kit -lint" in said(place, "marketplace", "update")


def test_two_plugins_may_share_a_folder(place: Place) -> None:
    rows = [
        {"name": f"kit-{name}", "source": "./", "strict": False, "skills": [f"./skills/{name}"]}
        for name in ("one", "two")
    ]
    folder = market(place, plugins=rows)
    for name in ("one", "two", "three"):
        put(folder / "skills" / name / "SKILL.md", f"---\ndescription: {name}.\n---\nDo.")
    said(place, "marketplace", "add", str(folder))
    for name in ("one", "two", "two"):
        said(place, "add", "--yes", f"kit-{name}@tools")
    skills = {row["name"]: row["skills"] for row in listed(place)}
    assert skills == {"kit-one": ["one"], "kit-two": ["two"]}


def test_the_language_server_of_a_plugin_checks_edits(place: Place) -> None:
    said(place, "marketplace", "add", str(market(place)))
    shown = said(place, "add", "--yes", "lint@tools")
    assert f"language server x-server for .x, runs: {sys.executable}" in shown
    call = Say(tools=[("Write", {"path": "a.x", "content": "error: wrong\n"})])
    allow = ("--allow", "Write", "-c", "lsp.enabled=on", "-c", "sandbox.mode=off")
    server, _ = ran(place, [call, Say("Done.")], *allow)
    assert "[New errors, says the language server:\\na.x:1:1: wrong" in told(server.requests[-1])


def test_parts_that_a_manifest_names(place: Place) -> None:
    folder = place.root / "sources" / "odd"
    manifest = {
        "name": "odd",
        "commands": ["./prompts/ask.md"],
        "skills": ["./more/two"],
        "agents": "./people",
        "hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "echo hi"}]}]},
        "mcpServers": "./servers.json",
        "outputStyles": "./styles",
        "lspServers": "../outside.json",
    }
    put(folder / ".claude-plugin" / "plugin.json", manifest)
    put(folder / "prompts" / "ask.md", "Ask.")
    put(folder / "commands" / "hidden.md", "Not this.")
    put(folder / "more" / "two" / "SKILL.md", "---\ndescription: Two.\n---\nTwo.")
    put(
        folder / "people" / "a.md",
        "---\nname: Ann\ndescription: when: she\n  is: [asked\n---\nAnn.",
    )
    put(folder / "servers.json", {"mcpServers": {"far": {"command": "serve"}}})
    put(folder / "bin" / "x", "")
    shown = said(place, "add", "--yes", str(folder))
    for line in ("command /ask", "skill two", "subagent a", "hook SessionStart, runs: echo hi",
                 "MCP server far, runs: serve", "not supported here: outputStyles, bin",
                 "lspServers, which is outside of the plugin"):  # fmt: skip
        assert line in shown
    assert "hidden" not in shown
    server, _ = ran(place, [Say("Done.")], task="/ask")
    assert "- Ann: when: she is: [asked" in json.dumps(tools(server)["Task"])
    assert "- two: Two." in told(server.requests[0])
