"""The profile for macOS's sandbox matches the boundary. Since sandbox-exec is not available here,
our own reader evaluates the rules: the last match wins.
"""

import asyncio
import os
import re
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxagent.agent.security import seatbelt
from ctxagent.agent.security.sandbox import Sandbox
from ctxagent.agent.security.sandbox_paths import Boundary, Region
from ctxagent.tools.system.process import Process

_TOKEN = re.compile(r'\(|\)|"(?:\\.|[^"\\])*"|[^\s()"]+')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n", "\\r": "\r"}


def parse(text: str) -> list[Any]:
    """The rules as nested lists; a string is a tuple with one item."""
    stack: list[list[Any]] = [[]]
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            stack[-2].append(stack.pop())
        elif token.startswith('"'):
            said = re.sub(r"\\.", lambda found: _ESCAPES[found[0]], token[1:-1], flags=re.DOTALL)
            stack[-1].append((said,))
        else:
            stack[-1].append(token)
    (rules,) = stack
    return rules


def decide(rules: Sequence[Any], operation: str, path: str) -> bool:
    """Return True if the profile allows an operation on a path."""
    allowed = False
    for action, *rest in rules:
        if action == "version":
            continue
        names = [each for each in rest if isinstance(each, str)]
        filters = [each for each in rest if isinstance(each, list)]
        if any(_names(name, operation) for name in names) and _matches(filters, path):
            allowed = action == "allow"
    return allowed


def _names(name: str, operation: str) -> bool:
    return name in ("default", operation) or (
        name.endswith("*") and operation.startswith(name[:-1])
    )


def _matches(filters: Sequence[Any], path: str) -> bool:
    def fits(kind: str, value: Any) -> bool:
        if kind == "literal":
            return bool(path == value[0])
        if kind == "subpath":
            return f"{path}/".startswith(value[0].rstrip("/") + "/")
        return False

    return not filters or any(fits(kind, value) for kind, value, *_ in filters)


NAMES = st.sampled_from(["a", "b", "c d", 'e"', "f\\", "g\nh", "(", ";", "ü"])
PATHS = st.lists(NAMES, min_size=1, max_size=5).map(lambda names: "/" + "/".join(names))
REGIONS = st.dictionaries(
    PATHS, st.sampled_from(["write", "read", "hidden", "empty"]).map(Region), max_size=8
)


@pytest.mark.slow
@given(REGIONS, st.lists(PATHS, min_size=1, max_size=12))
def test_the_profile_allows_what_the_boundary_does(
    regions: dict[str, Region], paths: list[str]
) -> None:
    boundary = Boundary(regions)
    rules = parse(seatbelt.profile(boundary.mounted(), (), network=False))
    for path in [*paths, *regions, *(f"{path}/inside" for path in regions)]:
        access = boundary.at(path)[1].access
        assert decide(rules, "file-read-data", path) == (access in ("read", "write")), path
        assert decide(rules, "file-write-data", path) == (access == "write"), path
        assert decide(rules, "file-write-create", path) == (access == "write"), path
        assert not decide(rules, "network-outbound", path) or access == "write"
        if access in ("read", "write"):  # one comes there
            above = str(Path(path).parent)
            while above != "/":
                assert decide(rules, "file-read-metadata", above), (path, above)
                above = str(Path(above).parent)


@pytest.mark.slow
@given(REGIONS, PATHS)
def test_forbidden_paths_are_not_created(regions: dict[str, Region], path: str) -> None:
    rules = parse(seatbelt.profile({**regions, path: Region("write")}, [path], network=True))
    assert not decide(rules, "file-write-create", path)
    assert not decide(rules, "file-write-data", f"{path}/x")


def test_the_network_and_services() -> None:
    without = seatbelt.profile({}, (), network=False)
    assert "(remote ip)" not in without
    assert "mDNSResponder" not in without
    assert "(allow network-outbound (remote ip))" in seatbelt.profile({}, (), network=True)
    (services,) = (rule for rule in parse(without) if rule[:2] == ["allow", "mach-lookup"])
    named = {name[0] for _, name in services[2:]}
    assert named
    assert not any(re.search("launch|Security|pasteboard|keychain", each) for each in named)
    assert parse(without)[1] == ["deny", "default"]


def test_commands_get_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in place of sandbox-exec stores the profile and runs the command."""
    kept, program = tmp_path / "profile", tmp_path / "sandbox-exec"
    program.write_text(f'#!/bin/sh\nprintf %s "$2" >"{kept}"\nshift 2\nexec "$@"\n')
    program.chmod(stat.S_IRWXU)
    project, home = tmp_path / "project", tmp_path / "home"
    for folder in (project / ".git", home / ".ssh"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(seatbelt, "SANDBOX_EXEC", str(program))
    seatbelt.works.cache_clear()
    monkeypatch.setattr(sys, "platform", "darwin")
    try:
        sandbox = Sandbox(
            project, {"HOME": str(home), "PATH": os.environ["PATH"]},
            own_temporary=tmp_path / "own" / "temporary", own_caches=tmp_path / "own" / "caches",
            required=True, network=False, hide=[tmp_path / "kept"], temporary=(),
        )  # fmt: skip
        assert (sandbox.absent, sandbox.partial, sandbox.unasked_absent) == ("", "", "")
        assert "sandbox-exec" in sandbox.describe()
        env = sandbox.environment({"PATH": os.environ["PATH"]})
        assert env["XDG_CACHE_HOME"] == str(tmp_path / "own" / "caches")
        said = _run(sandbox, project, env)
    finally:
        monkeypatch.undo()
        seatbelt.works.cache_clear()
    assert said == b"done\n"
    rules = parse(kept.read_text())
    real = os.path.realpath
    assert decide(rules, "file-write-create", f"{real(project)}/new")
    assert not decide(rules, "file-write-create", f"{real(project)}/.agentrc")
    assert not decide(rules, "file-write-create", f"{real(tmp_path)}/elsewhere")
    assert not decide(rules, "file-read-data", f"{real(home)}/.ssh/id")
    assert decide(rules, "file-read-data", "/usr/bin/env")


def _run(sandbox: Sandbox, cwd: Path, env: dict[str, str]) -> bytes:
    class Said:
        data = b""

        def feed(self, data: bytes) -> None:
            self.data += data

        def close(self) -> None:
            pass

    async def run() -> bytes:
        said = Said()
        process = await Process.start(
            "echo done", cwd=cwd, env=env, sink=said, enclose=sandbox.enclose
        )
        assert await process.finished(60)
        return said.data

    return asyncio.run(run())
