"""Find the folders where other agents store their sessions, and the sessions of a project."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from urllib.parse import quote

from ....api.recordings import FoundRecording
from . import stores

# Globs below the home directory. {slug}, {bare_slug}, {md5} and {quoted} encode the project's path;
# globs without them match the sessions of all projects.
_PLACES = (
    ("claude-code", ".claude/projects/{slug}/*.jsonl"),
    ("codex", ".codex/sessions/*/*/*/*.jsonl"),
    ("opencode", ".local/share/opencode/opencode.db"),
    ("opencode", ".local/share/opencode/storage/session/*/*.json"),
    ("pi", ".pi/agent/sessions/*/*.jsonl"),
    ("gemini-cli", ".gemini/tmp/*/chats/*.json*"),
    ("qwen-code", ".qwen/projects/{slug}/chats/*.jsonl"),
    ("kimi", ".kimi/sessions/{md5}/*/wire.jsonl"),
    ("kimi", ".kimi-code/sessions/*/*/agents/main/wire.jsonl"),
    ("vibe", ".vibe/logs/session/unified/*/CURRENT"),
    ("vibe", ".vibe/logs/session/*/messages.jsonl"),
    ("cursor", ".cursor/chats/{md5}/*/store.db"),
    ("cursor", ".cursor/projects/{bare_slug}/agent-transcripts/**/*.jsonl"),
    ("grok", ".grok/sessions/{quoted}/*/chat_history.jsonl"),
    ("hermes", ".hermes/state.db"),
    ("droid", ".factory/sessions/{slug}/*.jsonl"),
    ("copilot", ".copilot/session-state/*/events.jsonl"),
)
_MOVED_BY = {  # environment variables that replace a folder
    ".claude": "CLAUDE_CONFIG_DIR", ".codex": "CODEX_HOME", ".local/share": "XDG_DATA_HOME",
}  # fmt: skip
_PLACE_IN_PATH = {place.split("/")[0]: agent for agent, place in _PLACES if place[:2] != ".l"}
_SUBAGENT = "agent-"  # prefix of the files of Claude Code's subagents
_HEAD_BYTES = 1 << 16  # bytes of a file that are searched for the project's path
# Metadata files that may contain the path.
_BESIDE = ("meta.json", "workspace.yaml", "../.project_root")


def guessed_format(path: Path) -> str:
    """Return the agent whose folder contains the file, "" for none."""
    names = ("opencode" if part == "opencode" else _PLACE_IN_PATH.get(part) for part in path.parts)
    return next(filter(None, names), "")


def find_recordings(
    home: Path, environ: Mapping[str, str], cwd: Path | None
) -> list[FoundRecording]:
    """Return the sessions of a project, or all sessions if `cwd` is None, newest first."""
    found = dict[str, FoundRecording]()
    for agent, pattern in _PLACES:
        for path in _matches(home, environ, pattern, cwd):
            with suppress(OSError):
                for each in _sessions(agent, path, None if "{" in pattern else cwd):
                    found[each.path] = each
    return sorted(found.values(), key=lambda each: -each.changed)


def _matches(
    home: Path, environ: Mapping[str, str], pattern: str, cwd: Path | None
) -> Iterator[Path]:
    for folder, name in _MOVED_BY.items():
        if pattern.startswith(f"{folder}/") and environ.get(name):
            home, pattern = Path(environ[name]), pattern.removeprefix(f"{folder}/")
    real = "" if cwd is None else os.path.realpath(cwd)
    slug = re.sub(r"[^A-Za-z0-9]", "-", real)
    filled = pattern.format(
        slug=slug or "*",
        bare_slug=slug.lstrip("-") or "*",
        md5=hashlib.md5(real.encode(), usedforsecurity=False).hexdigest() if real else "*",
        quoted=quote(real, safe="") or "*",
    )
    with suppress(OSError):
        yield from (p for p in home.glob(filled) if not p.name.startswith(_SUBAGENT))


def _sessions(agent: str, path: Path, cwd: Path | None) -> Iterator[FoundRecording]:
    """Yield the sessions in a file; if `cwd` is given, only the sessions of that directory."""
    found = path.stat()
    if not S_ISREG(found.st_mode):  # reading a named pipe would not end
        return
    if path.suffix == ".db" and agent != "cursor":
        for id, where, title, changed in stores.sessions_in(path):
            if cwd is None or _is_same(where, cwd):
                mark = stores.SESSION_MARK
                yield FoundRecording(agent, f"{path}{mark}{id}", changed, title=title)
    elif cwd is None or _names(path, cwd):
        yield FoundRecording(agent, str(path), found.st_mtime, found.st_size)


def _is_same(where: str, cwd: Path) -> bool:
    return bool(where) and os.path.realpath(where) == os.path.realpath(cwd)


def _names(path: Path, cwd: Path) -> bool:
    """Return True if the file, or a metadata file next to it, contains the directory near its
    beginning.
    """
    real = os.path.realpath(cwd)
    told = {json.dumps(real).encode(), f": {real}\n".encode()}
    for file in (path, *(path.parent / name for name in _BESIDE)):
        with suppress(OSError), file.open("rb") as opened:
            head = opened.read(_HEAD_BYTES)
            if any(each in head for each in told) or head.strip() == real.encode():
                return True
    return False
