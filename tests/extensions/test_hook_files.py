"""Files of hooks in the published format."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.config.trust import trust
from ctxagent.agent.extensions.hook_files import HookFiles, PublishedHook, project_files, read_hooks


def read(tmp_path: Path, content: Any) -> tuple[list[PublishedHook], list[str]]:
    path = tmp_path / "hooks" / "hooks.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_hooks(path, "plugin kit", {"CLAUDE_PLUGIN_ROOT": "/a kit"})


def one(tmp_path: Path, row: Any, event: str = "PreToolUse", matcher: str = "") -> PublishedHook:
    hooks, problems = read(tmp_path, {"hooks": {event: [{"matcher": matcher, "hooks": [row]}]}})
    assert problems == []
    return hooks[0]


def test_a_missing_file_has_none(tmp_path: Path) -> None:
    assert read_hooks(tmp_path / "hooks.json", "x", {}) == ([], [])


def test_a_command(tmp_path: Path) -> None:
    row = {"type": "command", "command": "check", "timeout": 5, "async": True, "if": "Bash(ls:*)"}
    assert one(tmp_path, row, matcher="Bash") == PublishedHook(
        "plugin kit", "PreToolUse", "check", "command", "Bash", "Bash(ls:*)", 5.0, True,
        {"CLAUDE_PLUGIN_ROOT": "/a kit"},
    )  # fmt: skip


def test_arguments_are_quoted_except_for_the_hooks_variables(tmp_path: Path) -> None:
    row = {
        "command": "${CLAUDE_PLUGIN_ROOT}/run",
        "args": ["a b", "$HOME ${HOME}", "", "in ${CLAUDE_PROJECT_DIR}!"],
    }
    found = one(tmp_path, row)
    env = {**found.environ, "CLAUDE_PROJECT_DIR": "/my $(touch x) 'project'", "HOME": "/h"}
    line = f"printf '<%s>' {found.run}"
    done = subprocess.run(["sh", "-c", line], env=env, cwd=tmp_path, capture_output=True, text=True)
    words = ("/a kit/run", "a b", "$HOME ${HOME}", "", "in /my $(touch x) 'project'!")
    assert done.stdout == "".join(f"<{word}>" for word in words)


def test_an_address(tmp_path: Path) -> None:
    row = {"type": "http", "url": "http://x/", "headers": {"A": "$B"}, "allowedEnvVars": ["B"]}
    hook = one(tmp_path, row)
    assert (hook.kind, hook.run, hook.headers) == ("http", "http://x/", {"A": "$B"})
    assert hook.allowed_variables == ("B",)


@pytest.mark.parametrize(("given", "wanted"), [(0, 600.0), (0.01, 0.1), (90, 90.0), (1e9, 3600.0)])
def test_the_time_has_bounds(tmp_path: Path, given: float, wanted: float) -> None:
    assert one(tmp_path, {"command": "x", "timeout": given}).seconds == wanted


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[]", 'no hook in it is used: it is not {"hooks": {EVENT: […]}}'),
        ("{", 'no hook in it is used: it is not {"hooks": {EVENT: […]}}'),
        ({"hooks": {"Stop": [3]}}, "hooks for Stop are left out: "),
        ({"hooks": {"Stop": [{"matcher": "(", "hooks": []}]}}, "hooks for Stop are left out: "),
        (
            {"hooks": {"Stop": [{"matcher": "a{99999999999}", "hooks": []}]}},
            "hooks for Stop are left out: ",
        ),
        (
            {"hooks": {"Stop": [{"hooks": [{"command": "x", "timeout": 10**400}]}]}},
            "a hook for Stop is left out: ",
        ),
        ({"hooks": {"Setup": [{}], "Elicitation": [{}]}}, "hooks for Setup, Elicitation are left"),
        (
            {"hooks": {"Stop": [{"hooks": [{"type": "agent"}]}]}},
            "its type 'agent' is not supported",
        ),
        ({"hooks": {"Stop": [{"hooks": [{"command": " "}]}]}}, "it has no command"),
        ({"hooks": {"Stop": [{"hooks": [{"type": "http"}]}]}}, "it has no url"),
        (
            {"hooks": {"Stop": [{"hooks": [{"command": "x", "if": "Bash"}]}]}},
            "`if` is only supported for PreTool",
        ),
        ({"hooks": {"Stop": [{"hooks": ["x"]}]}}, "a hook for Stop is left out: "),
    ],
)
def test_invalid_hooks_are_reported(tmp_path: Path, content: Any, problem: str) -> None:
    hooks, (found,) = read(tmp_path, content)
    assert hooks == []
    assert problem in found


def test_an_event_without_a_list_costs_no_other_event(tmp_path: Path) -> None:
    stop = {"hooks": [{"command": "x"}]}
    hooks, problems = read(tmp_path, {"hooks": {"PreToolUse": None, "Setup": 5, "Stop": stop}})
    assert [(hook.event, hook.run) for hook in hooks] == [("Stop", "x")]
    assert problems == ["hooks for Setup: it is not a list"]


def test_the_others_of_a_file_are_used(tmp_path: Path) -> None:
    rows = [{"type": "prompt", "prompt": "Well?"}, {"command": "x"}]
    hooks, problems = read(tmp_path, {"hooks": {"Stop": [{"hooks": rows}], "Setup": [{}]}})
    assert [hook.run for hook in hooks] == ["x"]
    assert len(problems) == 2


@pytest.mark.parametrize(
    ("matcher", "names", "fits"),
    [
        ("", ("Bash",), True),
        ("*", ("Bash",), True),
        ("Bash", ("Bash",), True),
        ("bash", ("Bash",), False),
        ("Edit|Write", ("Write",), True),
        ("Edit, Write", ("Write",), True),
        ("Edit", ("MultiEdit",), False),
        ("Task", ("Task", "Agent"), True),
        ("code-reviewer", ("my-code-reviewer",), False),
        ("mcp__memory__.*", ("mcp__memory__read",), True),
        ("mcp__memory", ("mcp__memory__read",), False),
        ("^Notebook", ("NotebookRead",), True),
    ],
)
def test_matchers_match_names(matcher: str, names: tuple[str, ...], fits: bool) -> None:
    assert PublishedHook("kit", "PreToolUse", "x", matcher=matcher).matches(*names) == fits


def test_some_events_have_no_matcher() -> None:
    assert PublishedHook("kit", "Stop", "x", matcher="Bash").matches()


def put(path: Path, event: str = "Stop", **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    hooks = {event: [{"hooks": [{"command": f"run {path.name}"}]}]}
    path.write_text(json.dumps({"hooks": hooks, **more}))


def files(tmp_path: Path) -> HookFiles:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True, exist_ok=True)
    return HookFiles(
        tmp_path / "home" / ".config", project / "sub", tmp_path / "home", tmp_path / "trust"
    )


def test_the_users_file_is_used_at_once_and_the_projects_once_trusted(tmp_path: Path) -> None:
    put(tmp_path / "home" / ".config" / "hooks.json")
    path = tmp_path / "project" / ".claude" / "settings.json"
    put(path, model="x")
    found = files(tmp_path)
    assert [hook.origin for hook in found.hooks] == ["file ~/.config/hooks.json"]
    (warning,) = found.warnings
    assert warning.startswith(f"{path}: no hook in it is used: not trusted: read the file")
    trust(path, tmp_path / "trust")
    assert [hook.run for hook in files(tmp_path).hooks] == ["run hooks.json", "run settings.json"]
    put(path, "SessionStart")
    assert len(files(tmp_path).hooks) == 1


def test_hooks_get_the_folder_of_their_file(tmp_path: Path) -> None:
    put(tmp_path / "home" / ".config" / "hooks.json")
    path = tmp_path / "project" / ".claude" / "settings.json"
    put(path)
    trust(path, tmp_path / "trust")
    own, projects = files(tmp_path).hooks
    assert own.environ == {}
    assert projects.environ == {"CLAUDE_PROJECT_DIR": str(tmp_path / "project")}


def test_settings_without_hooks_are_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "project" / ".claude" / "settings.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"model": "x"}')
    assert (files(tmp_path).hooks, files(tmp_path).warnings) == ([], [])


def test_the_files_of_all_folders_of_the_project_count(tmp_path: Path) -> None:
    files(tmp_path)
    project, home = tmp_path / "project", tmp_path / "home"
    paths = [
        project / ".ctxagent" / "hooks.json",
        project / ".claude" / "settings.local.json",
        project / "sub" / ".claude" / "settings.local.json",
    ]
    for path in paths:
        put(path)
        trust(path, tmp_path / "trust")
    assert project_files(project / "sub", home) == paths
    origins = [hook.origin for hook in files(tmp_path).hooks]
    assert origins == [f"file {path}" for path in paths]
    assert files(tmp_path).hooks[-1].environ == {"CLAUDE_PROJECT_DIR": str(project / "sub")}


def test_settings_without_hooks_hide_no_hooks_of_the_root(tmp_path: Path) -> None:
    files(tmp_path)
    project = tmp_path / "project"
    put(project / ".claude" / "settings.json")
    trust(project / ".claude" / "settings.json", tmp_path / "trust")
    (project / "sub" / ".claude").mkdir(parents=True)
    (project / "sub" / ".claude" / "settings.local.json").write_text('{"model": "x"}')
    assert [hook.run for hook in files(tmp_path).hooks] == ["run settings.json"]
    assert files(tmp_path).warnings == []


def test_a_link_that_leaves_the_project_is_reported(tmp_path: Path) -> None:
    files(tmp_path)
    put(tmp_path / "elsewhere.json")
    link = tmp_path / "project" / "sub" / ".ctxagent" / "hooks.json"
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere.json")
    assert project_files(tmp_path / "project" / "sub", tmp_path / "home") == []
    (warning,) = files(tmp_path).warnings
    assert warning.startswith(f"{link}: no hook in it is used: it is a link that leads out")
