"""The expansion of a manifest line to attempts and cells of a matrix."""

import json
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.fleet.manifest import Manifest
from ctxagent.agent.errors import UsageError

GOOD = {"id": "a", "prompt": "Do it.", "dir": "repo"}


def manifest(tmp_path: Path, *lines: Any, attempts: int | None = None) -> Manifest:
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return Manifest(path, attempts=attempts)


def test_each_attempt_in_each_cell_has_a_name(tmp_path: Path) -> None:
    matrix = {
        "model": ["openai/gpt-5", "claude-sonnet-5-5"],
        "prompt": {"plain": "{prompt}", "careful": "{prompt} Be careful."},
        "kept": {"few": {"clear.keep": 2}},
    }
    found = manifest(tmp_path, {**GOOD, "repeat": 2, "matrix": matrix, "settings": {"a": 1}})
    assert list(found.lines)[:3] == [
        "a@gpt-5.plain.few@1", "a@gpt-5.plain.few@2", "a@gpt-5.careful.few@1",
    ]  # fmt: skip
    assert len(found.lines) == 8
    task = found.task("a@gpt-5.careful.few@1")
    assert (task.line, task.cell, task.prompt) == ("a", "gpt-5.careful.few", "Do it. Be careful.")
    assert task.settings == {"a": 1, "model.id": "openai/gpt-5", "clear.keep": 2}
    digests = {line.cell: line.digest for line in found.lines.values()}
    assert len(set(digests.values())) == 4, "another cell is another task"
    assert found.lines["a@gpt-5.plain.few@1"].digest == found.lines["a@gpt-5.plain.few@2"].digest


def test_the_number_of_attempts_is_from_the_line_or_the_run(tmp_path: Path) -> None:
    other = {**GOOD, "id": "b"}
    found = manifest(tmp_path, {**GOOD, "repeat": 1}, other)
    assert list(found.lines) == ["a@1", "b"]
    found = manifest(tmp_path, {**GOOD, "repeat": 1}, other, attempts=2)
    assert list(found.lines) == ["a@1", "b@1", "b@2"]


def test_lines_override_the_defaults(tmp_path: Path) -> None:
    defaults = {"dir": "repo", "score": "s", "settings": {"a": 1, "b": 1}, "env": ["A"]}
    lines = {"id": "a", "prompt": "x"}, {**GOOD, "id": "b", "score": {"command": "t"}}
    found = manifest(tmp_path, {"defaults": defaults}, *lines)
    first, second = found.task("a"), found.task("b")
    assert first.score is not None
    assert second.score is not None
    assert (first.score.command, first.score.time_limit, first.env) == ("s", 600, ("A",))
    assert (second.score.command, second.score.sandbox, second.dir) == ("t", True, "repo")
    assert found.lines["a"].has_score


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"repeat": 2, "worktree": False}, "each attempt needs its own worktree"),
        ({"repeat": 0}, "repeat must be a whole number from 1"),
        ({"score": ""}, "score must be a command, or an object with command"),
        ({"score": {"command": "x", "limit": 1}}, "score must be a command"),
        ({"after": {"time_limit": 1}}, "after must be a command"),
        ({"matrix": {"model": []}}, "matrix.model must be an object of names and values"),
        ({"matrix": {"model": ["a/x", "b/x"]}}, "matrix.model has duplicate names"),
        ({"matrix": {"model": ["1x"]}}, "'1x' is not a valid name"),
        ({"matrix": {"prompt": {"a": "no place"}}}, "must be a text with {prompt} in it"),
        ({"matrix": {"more": ["a"]}}, "matrix.more.a must be an object with settings"),
        ({"matrix": {"a": {"b.c": {}, "b": {}}, "d": {"d": {}, "c.d": {}}}}, "have the name b.c.d"),
        ({"matrix": {n: {f"v{m}": {} for m in range(5)} for n in "abc"}}, "more than 100 cells"),
    ],
)
def test_errors_of_variants_are_named(tmp_path: Path, more: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError) as error:
        manifest(tmp_path, {**GOOD, **more})
    assert why in error.value.message


def test_invalid_defaults_are_named(tmp_path: Path) -> None:
    for line in ({"defaults": 1}, {"defaults": {"id": "a"}}, {"defaults": {"x": 1}}):
        with pytest.raises(UsageError):
            manifest(tmp_path, line, GOOD)
    with pytest.raises(UsageError, match="defaults must be on the first line"):
        manifest(tmp_path, GOOD, {"defaults": {}})
