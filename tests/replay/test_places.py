"""Where other agents store their sessions on this machine, and which belong to a project."""

import hashlib
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from ctxagent.addons.replay.formats import load_recording
from ctxagent.addons.replay.formats.places import find_recordings
from ctxagent.agent.errors import UsageError

from ..support.sessions.recorded import claude, codex_line, lines, pi
from ..support.sessions.stories import STORY
from .test_stores import CLIENTS


def fill(home: Path, cwd: str) -> None:
    """Write a session of each agent in a directory."""
    slug = re.sub(r"[^A-Za-z0-9]", "-", cwd)
    md5 = hashlib.md5(cwd.encode(), usedforsecurity=False).hexdigest()
    meta = json.dumps({"environment": {"working_directory": cwd}})
    files: dict[str, bytes] = {
        f".claude/projects/{slug}/a.jsonl": claude(),
        f".claude/projects/{slug}/agent-a.jsonl": claude(),
        ".codex/sessions/2026/11/26/rollout-a.jsonl": lines(
            [codex_line(0, "session_meta", cwd=cwd)]
        ),
        ".pi/agent/sessions/--p--/a.jsonl": lines([{"type": "session", "cwd": cwd}]) + pi(),
        ".gemini/tmp/project/chats/session-a.jsonl": (CLIENTS / "gemini-cli.jsonl").read_bytes(),
        ".gemini/tmp/project/.project_root": cwd.encode(),
        f".qwen/projects/{slug}/chats/a.jsonl": STORY["qwen-code"](),
        f".kimi/sessions/{md5}/a/wire.jsonl": STORY["kimi"](),
        ".vibe/logs/session/session_a/messages.jsonl": STORY["vibe"](),
        ".vibe/logs/session/session_a/meta.json": meta.encode(),
        f".cursor/projects/{slug.lstrip('-')}/agent-transcripts/a.jsonl": STORY["cursor"](),
        f".grok/sessions/{quote(cwd, safe='')}/a/chat_history.jsonl": STORY["grok"](),
        f".factory/sessions/{slug}/a.jsonl": STORY["droid"](),
        ".copilot/session-state/a/events.jsonl": STORY["copilot"](),
        ".copilot/session-state/a/workspace.yaml": f"id: a\ncwd: {cwd}\n".encode(),
    }
    for name, data in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(data)
    for place, script in (
        (".hermes/state.db", "hermes.sql"),
        (".local/share/opencode/opencode.db", "opencode.sql"),
    ):
        (home / place).parent.mkdir(parents=True)
        with closing(sqlite3.connect(home / place)) as base:
            told = (CLIENTS / script).read_text().replace("/home/me/project", cwd)
            base.executescript(told)


ALL = {
    "claude-code", "codex", "pi", "gemini-cli", "qwen-code", "kimi", "vibe", "cursor", "grok",
    "droid", "copilot", "hermes", "opencode",
}  # fmt: skip


def test_the_sessions_of_a_project(tmp_path: Path) -> None:
    home, project, other = (tmp_path / name for name in ("home", "my_project", "other"))
    project.mkdir()
    fill(home, os.path.realpath(project))
    found = find_recordings(home, {}, project)
    assert {each.agent for each in found} == ALL
    assert len(found) == len(ALL)
    for each in found:
        if each.agent != "codex":  # whose file has no message here
            assert load_recording(Path(each.path)).format == each.agent
    assert [each.changed for each in found] == sorted((e.changed for e in found), reverse=True)
    assert find_recordings(home, {}, other) == []
    assert {each.agent for each in find_recordings(home, {}, None)} == ALL


def test_places_that_variables_name(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    fill(home, str(project))
    shutil.move(home / ".claude", tmp_path / "elsewhere")
    environ = {"CLAUDE_CONFIG_DIR": str(tmp_path / "elsewhere")}
    agents = [each.agent for each in find_recordings(home, environ, project)]
    assert agents.count("claude-code") == 1


def test_named_pipes_and_folders_in_these_places_are_no_sessions(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in (".codex/sessions/2026/01/02/a.jsonl", ".local/share/opencode/opencode.db"):
        (home / name).parent.mkdir(parents=True)
        os.mkfifo(home / name)
    (home / ".pi/agent/sessions/p/s.jsonl").mkdir(parents=True)
    assert find_recordings(home, {}, tmp_path) == [] == find_recordings(home, {}, None)


@pytest.fixture
def error(tmp_path: Path) -> Callable[[str, bytes], UsageError]:
    """Return the error for a file with this path and content."""

    def error(name: str, data: bytes) -> UsageError:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        with pytest.raises(UsageError) as caught:
            load_recording(path)
        return caught.value

    return error


def test_an_unreadable_file_names_the_agent_and_the_line(
    error: Callable[[str, bytes], UsageError],
) -> None:
    found = error(".gemini/tmp/p/chats/session-1.jsonl", b'{"a": 1}\n{"b": \n')
    assert "is in the folder of gemini-cli's sessions" in found.message
    found = error(".claude/projects/p/a.jsonl", b"\n\nno JSON\n")
    assert "is in the folder of claude-code's sessions" in found.message
    assert "line 3" in found.message
    empty = json.dumps({"type": "session_start", "id": "s"})
    found = error("s.jsonl", f"{empty}\nbroken\n".encode())
    assert "a session of droid without messages; line 2 cannot be read" in found.message
    assert all(each.hint for each in (found,))
