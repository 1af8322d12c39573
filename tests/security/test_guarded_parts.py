"""The guarded parts of a session's folders, which the threads of several commands look at."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.security import guarded_parts
from ctxagent.agent.security.guarded_parts import GuardedParts

PATIENCE = 30  # seconds for what takes a moment


def test_a_second_look_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, find = threading.Event(), threading.Event(), guarded_parts.find_repository

    def slow(folder: str) -> Any:
        begun.set()
        assert go_on.wait(PATIENCE)
        return find(folder)

    monkeypatch.setattr(guarded_parts, "find_repository", slow)
    parts = GuardedParts(str(tmp_path), (), "")

    def look() -> list[str]:
        parts.look()
        return list(parts.read_only)

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(look)
        assert begun.wait(PATIENCE)
        second = threads.submit(look)
        go_on.set()
        assert first.result(PATIENCE) == second.result(PATIENCE) == parts.read_only
    assert f"{tmp_path}/.agentrc" in parts.read_only
