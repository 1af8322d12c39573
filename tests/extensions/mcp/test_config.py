"""Files of MCP servers: precedence, valid contents, and reasons for skipped servers."""

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.config.trust import trust
from ctxagent.agent.errors import ConfigError
from ctxagent.agent.extensions.mcp import config as module
from ctxagent.agent.extensions.mcp.config import (
    OWN_FILE,
    PROJECT_FILE,
    ServerConfig,
    check_server,
    load_servers,
    plain_name,
    project_file,
    read_document,
    servers_of,
    write_document,
)
from ctxagent.agent.extensions.plugins import Plugin


class Place:
    """A home, a repository in it, and a plugin."""

    def __init__(self, root: Path) -> None:
        self.home, self.state = root / "home", root / "state"
        self.config, self.project = self.home / "config", self.home / "project"
        self.plugin = Plugin("p", root / "plugin", "/src", "0" * 64)
        for folder in (self.config, self.project / ".git", self.plugin.folder):
            folder.mkdir(parents=True)

    def own(self, document: Any) -> Path:
        return self._written(self.config / OWN_FILE, document)

    def ours(self, document: Any) -> Path:
        path = self._written(self.project / PROJECT_FILE, document)
        trust(path, self.state)
        return path

    def plugins(self, document: Any) -> Path:
        return self._written(self.plugin.folder / PROJECT_FILE, document)

    def _written(self, path: Path, document: Any) -> Path:
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    def load(self, **environ: str) -> tuple[dict[str, ServerConfig], list[str]]:
        servers, warnings = load_servers(
            self.project, config_home=self.config, home=self.home, trust_dir=self.state,
            environ=environ, plugins=(self.plugin,),
        )  # fmt: skip
        return {server.name: server for server in servers}, warnings


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path.resolve())


def named(**servers: Any) -> dict[str, Any]:
    return {"mcpServers": servers}


def server(values: Any, path: str = "/folder/mcp.json", **environ: str) -> ServerConfig:
    return check_server(values, Path(path), environ)


def test_a_program_and_an_address() -> None:
    values = {
        "command": "npx",
        "args": ["-y", "x"],
        "env": {"A": "b"},
        "cwd": "sub",
        "timeout": 500,
    }
    assert server(values) == ServerConfig(
        "new", Path("/folder/mcp.json"), ("npx", "-y", "x"), {"A": "b"}, Path("/folder/sub"),
        timeout=0.5,
    )  # fmt: skip
    values = {
        "url": "https://host/mcp",
        "headers": {"A": "b"},
        "oauth": {"clientId": "me", "callbackPort": 8080, "other": 1, "scopes": None},
        "enabled": False,
    }
    assert server(values) == ServerConfig(
        "new", Path("/folder/mcp.json"), url="https://host/mcp", headers={"A": "b"},
        oauth={"clientId": "me", "callbackPort": "8080"}, enabled=False,
    )  # fmt: skip
    assert server({"command": "x"}).cwd is None
    assert server({"command": "x", "cwd": "/abs"}).cwd == Path("/abs")
    for kind in ("http", "streamable-http", "streamable_http"):
        assert server({"type": kind, "url": "HTTP://host"}).url == "HTTP://host"
    assert server({"type": "sse", "url": "http://h"}).is_sse
    assert server({"transport": "sse", "serverUrl": "http://h"}).is_sse
    assert not server({"httpUrl": "http://h"}).is_sse
    assert not server({"command": "x", "disabled": True}).enabled
    assert server({"command": "x", "args": [8080, True]}).command == ("x", "8080", "true")
    assert server({"command": "x", "env": {"PORT": 8080}}).env == {"PORT": "8080"}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ("x", "it is not an object"),
        ({}, 'it has neither "command" nor "url"'),
        ({"command": "  "}, 'it has neither "command" nor "url"'),
        ({"command": ["x"]}, 'it has neither "command" nor "url"'),
        ({"command": "x", "args": "y"}, "args is not a list of texts"),
        ({"command": "x", "args": [None]}, "args is not a list of texts"),
        ({"command": "x", "env": {"A": []}}, "env is not an object of texts"),
        ({"command": "x", "env": ["A"]}, "env is not an object of texts"),
        ({"command": "x", "cwd": 7}, "cwd is not a path"),
        ({"command": "x", "enabled": "no"}, "enabled and disabled must be true or false"),
        ({"command": "x", "timeout": 0}, "timeout is not a number of milliseconds"),
        ({"command": "x", "timeout": True}, "timeout is not a number of milliseconds"),
        ({"command": "x", "timeout": "9"}, "timeout is not a number of milliseconds"),
        ({"type": "ws", "url": "http://h"}, 'type is \'ws\'; "stdio", "http" and "sse" are known'),
        ({"url": "ftp://host"}, "url is not an http:// or https:// address"),
        ({"url": "http://host /x"}, "url is not an http:// or https:// address"),
        ({"type": "http"}, "url is not an http:// or https:// address"),
        ({"url": "http://h", "headers": {"A": None}}, "headers is not an object of texts"),
        ({"url": "http://h", "oauth": []}, "oauth is not an object"),
        ({"url": "http://h", "oauth": {"callbackPort": "x"}}, "oauth.callbackPort is not a number"),
        ({"command": "${NOWHERE}"}, "the variable NOWHERE is not set"),
    ],
)
def test_an_invalid_server_is_refused_with_the_reason(values: Any, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        server(values)


def test_variables_are_replaced_once_in_any_text() -> None:
    values = {
        "command": "${BIN:-/bin}/x",
        "args": ["${A}", "${EMPTY:-b}", "${NONE:-}", "$A ${A-b} ${1}"],
        "env": {"KEY": "${A}${A}"},
    }
    found = server(values, A="${BIN}", EMPTY="")
    assert found.command == ("/bin/x", "${BIN}", "b", "", "$A ${A-b} ${1}")
    assert found.env == {"KEY": "${BIN}${BIN}"}


def test_the_place_of_a_server_is_shown_without_secrets() -> None:
    assert server({"command": "/opt/bin/x", "args": ["--key=1"]}).where == "x"
    assert server({"url": "https://me:word@host/mcp"}).where == "https://…@host/mcp"
    assert len(server({"url": f"https://host/{'x' * 900}"}).where) == 200


def test_for_equal_names_the_projects_server_wins_then_the_users(place: Place) -> None:
    one, two, three = ({"command": name} for name in ("one", "two", "three"))
    place.plugins({"a": three, "b": three, "c": three})
    place.own(named(a=two, b=two))
    place.ours(named(a=one))
    found, warnings = place.load()
    assert {name: each.command[0] for name, each in found.items()} == {
        "a": "one", "b": "two", "c": "three",
    }  # fmt: skip
    assert warnings == []


def test_a_disabled_server_hides_another_one_of_the_same_name(place: Place) -> None:
    place.own(named(a={"command": "two"}))
    place.ours(named(a={"command": "one", "enabled": False}))
    assert place.load() == ({}, [])


def test_a_projects_file_is_used_only_with_the_accepted_content(place: Place) -> None:
    path = place.ours(named(a={"command": "x"}))
    assert list(place.load()[0]) == ["a"]
    path.write_text(path.read_text() + " ")
    found, (warning,) = place.load()
    assert found == {}
    assert warning.startswith(f"{path} is not trusted")
    assert "ctxagent config --trust" in warning


def test_servers_of_a_plugin_get_its_folder(place: Place) -> None:
    path = place.plugins({"a": {"command": "${CLAUDE_PLUGIN_ROOT}/x", "env": {"A": "b"}}})
    (found,) = place.load()[0].values()
    assert found.command == (f"{place.plugin.folder}/x",)
    assert found.env == {**place.plugin.environ, "A": "b"}
    assert servers_of(place.plugin) == json.loads(path.read_text())
    place.plugins(named(b={"command": "y"}))
    assert servers_of(place.plugin) == {"b": {"command": "y"}}
    path.unlink()
    assert servers_of(place.plugin) == {}


def test_an_invalid_server_does_not_affect_the_others(place: Place) -> None:
    path = place.own(named(**{"a b": {"command": "x"}, "a_b": {"command": "y"}, "c": {}}))
    found, (warning,) = place.load()
    assert len(found) == 2
    assert found["a_b"].command == ("x",)
    (other,) = set(found) - {"a_b"}
    assert other.startswith("a_b_")
    assert warning == (
        f'{path}: the MCP server c is not started: it has neither "command" nor "url"'
    )


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ("{", "it is not JSON: "),
        ("[" * 100_000, "it is not JSON: "),
        ("[]", "it is not an object"),
        ({"mcpServers": []}, 'it has no "mcpServers"'),
        (
            named(**{f"s{n}": {} for n in range(101)}),
            "it has 101 servers, but at most 100 are allowed",
        ),
        (" " * 100_001, "it is larger than 100,000 bytes"),
    ],
)
def test_an_invalid_file_is_reported_and_does_not_affect_the_others(
    place: Place, document: Any, why: str
) -> None:
    path = place.own(document)
    place.plugins({"a": {"command": "x"}})
    found, (warning,) = place.load()
    assert list(found) == ["a"]
    assert warning.startswith(f"{path}: no MCP server in it is started: {why}")
    with pytest.raises(ConfigError) as told:
        read_document(path)
    assert told.value.where == str(path)
    assert why.removeprefix("it is larger") in told.value.message


def test_the_nearest_file_within_the_project(place: Place) -> None:
    inner = place.project / "inner"
    inner.mkdir()
    assert project_file(inner, place.home) is None
    (place.home / PROJECT_FILE).write_text("{}")  # outside of the repository
    assert project_file(inner, place.home) is None
    above = place.ours(named())
    assert project_file(inner, place.home) == above
    (inner / PROJECT_FILE).mkdir()
    assert project_file(inner, place.home) == above
    (inner / PROJECT_FILE).rmdir()
    (inner / PROJECT_FILE).write_text("{}")
    assert project_file(inner, place.home) == inner / PROJECT_FILE


def test_names_are_converted_for_tools_and_rules() -> None:
    def plain(name: str, *taken: str) -> str:
        return plain_name(name, taken.__contains__)

    assert [plain(name) for name in ("a-B_9", "a.b c", "é", "")] == ["a-B_9", "a_b_c", "_", "_"]
    longest = "x" * module.MAX_NAME_CHARS
    assert plain(longest) == longest
    long = plain(f"{longest}y")
    assert (len(long), long[:57]) == (module.MAX_NAME_CHARS, "x" * 57)
    assert long != plain(f"{longest}z")
    assert plain("a", "a").startswith("a_")
    assert plain("a b", "a_b") != plain("a.b", "a_b")


def test_a_document_is_written_as_it_was_read(place: Place) -> None:
    path = place.config / "new" / OWN_FILE
    assert read_document(path) == {"mcpServers": {}}
    document = {"other": 1, **named(é={"command": "x"})}
    data = write_document(path, document)
    assert path.read_bytes() == data
    assert data.decode() == json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    assert read_document(path) == document
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.write_bytes(b"\xef\xbb\xbf" + data)
    assert read_document(path) == document


def test_a_document_that_cannot_be_written_is_an_error(place: Place) -> None:
    (place.config / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written") as told:
        write_document(place.config / "file" / OWN_FILE, named())
    assert "XDG_CONFIG_HOME" in told.value.hint
    with pytest.raises(ConfigError) as told:
        write_document(place.config / "none" / PROJECT_FILE, named())
    assert told.value.hint == ""
