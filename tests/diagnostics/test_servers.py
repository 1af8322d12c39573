"""Which language servers a session has, and which of them start."""

import json
from pathlib import Path

import pytest

from ctxagent.addons.diagnostics import servers as servers_module
from ctxagent.addons.diagnostics.servers import servers_of
from ctxagent.agent.extensions.plugins import Plugin

from .test_server import Project, play


@pytest.mark.parametrize("command", ["/nowhere/server", "walrus-server --stdio", "'walrus"])
def test_a_server_that_is_not_installed(tmp_path: Path, command: str) -> None:
    async def scene(project: Project) -> None:
        assert await project.edit("a.x", "error: a\n") == []
        assert [*project.servers.absent.values()] == ["not installed"]

    assert play(tmp_path, "push", scene, command=command).told == []


def test_files_without_a_server_or_outside_of_the_project_start_no_server(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()

    async def scene(project: Project) -> None:
        for path in (folder / "a.txt", tmp_path / "a.x"):
            path.write_text("error: a\n")
            await project.servers.check(path, None)
        assert project.servers.running == {}

    play(folder, "push", scene)


def test_one_server_for_each_root_and_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers_module, "MAX_SERVERS", 1)

    async def scene(project: Project) -> None:
        (project.folder / "deep").mkdir()
        await project.edit("a.x", "")
        await project.edit("deep/b.y", "")
        assert [root for _, root in project.servers.running] == [project.folder]
        project.servers.running.update(dict.fromkeys([("other", project.folder)], project.server))
        del project.servers.running[next(iter(project.servers.running))]
        await project.edit("c.x", "")
        assert [*project.servers.absent.values()] == [
            f"not started in {project.folder}: 1 servers run already"
        ]

    play(tmp_path, "push", scene)


def test_the_servers_of_a_plugin(tmp_path: Path) -> None:
    own = {"command": "pyls", "args": ["${WHERE}"], "extensionToLanguage": {".py": "python"}}
    rows = {"py": own, "odd": {"command": "x", "extensionToLanguage": {}}, "none": {}}
    (tmp_path / ".lsp.json").write_text(json.dumps(rows))
    plugin = Plugin("kit", tmp_path, str(tmp_path), "")
    found, problems = servers_of(plugin, {"WHERE": "here"})
    assert [*found] == ["py"]
    assert found["py"].commands[0] == ("pyls", "here")
    assert found["py"].commands[1][0] == "pyright-langserver"  # if pyls is not installed
    assert problems == [
        ".lsp.json: the language server odd is left out: it has no extensionToLanguage",
        ".lsp.json: the language server none is left out: it has no command",
    ]
    assert servers_of(plugin, None)[0]["py"].commands[0] == ("pyls", "${WHERE}")
