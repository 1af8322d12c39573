"""Plugins with the real command: their parts, the check of their content, a start without them."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..support.command import Place, comes, gone
from ..support.server.loopback import Body, Say, Server
from ..support.terminal.screen import Terminal

SERVER = Path(__file__).parents[1] / "support" / "mcp" / "plain.py"
VETO = {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "Not on"}}
SCOUT = """---
name: scout
description: "Finds things: all of them"
tools: Read, Grep, NotebookRead
model: inherit
color: blue
---
You find things.
"""
# Runs the command, and kills it with SIGKILL at the nth event of a kind, before that has happened.
KILLED = """
import os, signal, sys
kind, left = sys.argv[1], int(sys.argv[2])
def hook(event, arguments):
    global left
    if event == kind and "plugins" in str(arguments):
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
from ctxagent.agent.cli.main import main
main(sys.argv[3:])
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def own(place: Place) -> Path:
    return place.root / "home" / ".config" / "ctxagent"


def put(path: Path, content: str | dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def hooks(**commands: str) -> dict[str, Any]:
    """Return a hooks file. Its tool hooks are for Bash only."""
    rows = {
        event: [{"matcher": "Bash" if event.endswith("Use") else "", "hooks": [_command(line)]}]
        for event, line in commands.items()
    }
    return {"description": "Listens", "hooks": rows}


def _command(line: str) -> dict[str, Any]:
    return {"type": "command", "command": line, "timeout": 20}


def kit(place: Place, **commands: str) -> Path:
    """Make a plugin with one part of each kind, next to the project."""
    folder = place.root / "sources" / "kit"
    put(folder / ".claude-plugin" / "plugin.json", {"name": "kit", "version": "1.2"})
    put(folder / "commands" / "hello.md", "Hello $1, by !`cat ${CLAUDE_PLUGIN_ROOT}/words`.")
    put(folder / "words", "a kit")
    put(folder / "skills" / "one" / "SKILL.md", "---\nname: one\ndescription: Counts.\n---\nOne.")
    put(folder / "agents" / "scout.md", SCOUT)
    listen = "cat >> heard; echo $CLAUDE_PLUGIN_ROOT >> root"
    events = {"PreToolUse": listen, "PostToolUse": listen, "SessionStart": listen, "Setup": "true"}
    put(folder / "hooks" / "hooks.json", hooks(**(commands or events)))
    shutil.copy(SERVER, folder / "server.py")
    arguments = ["-I", "-S", "${CLAUDE_PLUGIN_ROOT}/server.py", "ok", str(place.root / "notes")]
    put(folder / ".mcp.json", {"plain": {"command": sys.executable, "args": arguments}})
    return folder


def added(place: Place, source: str | Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    done = place.run("plugin", "add", "--yes", *arguments, str(source))
    assert done.returncode == 0, done.stderr
    return done


def listed(place: Place) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(place.run("plugin", "list", "--json").stdout)
    return rows


def left_over(place: Place) -> list[str]:
    """Return the names of unfinished files and folders."""
    return [path.name for path in (own(place) / "plugins").glob(".*")]


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgSign=false")
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def committed(folder: Path) -> str:
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "more")
    return git(folder, "rev-parse", "HEAD")


def ran(
    place: Place, steps: list[Say], *arguments: str, task: str = "go", code: int = 0
) -> tuple[Server, "subprocess.CompletedProcess[str]"]:
    with Server(steps) as server:
        done = place.run("-p", task, *arguments, env=place.server(server.url))
        assert done.returncode == code, done.stderr
    assert server.rejected == []
    return server, done


def told(body: Body) -> str:
    return json.dumps(body["messages"])


def tools(server: Server) -> dict[str, Any]:
    return {tool["name"]: tool for tool in server.requests[0]["tools"]}


def test_folder_of_plugins_is_not_a_plugin(place: Place) -> None:
    home = place.root / "home"
    (home / "commands").mkdir(parents=True, exist_ok=True)
    for source in (home, home / ".config" / "ctxagent"):
        done = place.run("plugin", "add", "--yes", str(source))
        assert done.returncode == 2, done.stderr
        assert "contains the folder of the installed plugins" in done.stderr
        assert len(done.stderr) < 500


def test_parts_of_a_plugin(place: Place) -> None:
    shown = added(place, kit(place)).stdout
    assert "kit, from " in shown
    assert "1.2" in shown
    for line in (
        "command /hello",
        "runs, by the rules: cat ${CLAUDE_PLUGIN_ROOT}/words",
        "skill one",
        "subagent scout",
        "hook PreToolUse of Bash, runs: cat >> heard; echo $CLAUDE_PLUGIN_ROOT >> root",
        f"MCP server plain, runs: {sys.executable} -I -S ${{CLAUDE_PLUGIN_ROOT}}/server.py ok",
    ):
        assert line in shown
    folder = own(place) / "plugins" / "kit"
    steps = [
        Say(tools=[("Bash", {"command": "true"}), ("Read", {"path": str(folder / "words")})]),
        Say(tools=[("Mcp", {"tool": "mcp__plain__echo", "arguments": {"text": "a b"}})]),
        Say("Done."),
    ]
    allow = ("--allow", "Bash(true)", "--allow", "mcp__plain__*")
    server, done = ran(place, steps, *allow, task="/hello you")
    assert "Hello you, by a kit." in told(server.requests[0])
    assert '"a b"' in told(server.requests[-1])
    assert "1\\ta kit" in told(server.requests[-1]), "its files are read without a question"
    assert (place.project / "root").read_text().splitlines()[0] == str(folder)
    assert "- scout: Finds things: all of them" in json.dumps(tools(server)["Task"])
    assert "- one: Counts." in told(server.requests[0])
    assert done.stderr.count("the plugin kit: hooks for Setup are left out: unknown events") == 1
    events = [json.loads(line) for line in (place.project / "heard").read_text().splitlines()]
    assert [event["hook_event_name"] for event in events] == [
        "SessionStart", "PreToolUse", "PreToolUse", "PostToolUse",
    ], "of the command in the words, and of the model's; never of Read"  # fmt: skip
    assert events[0]["source"] == "startup"
    call = {key: events[-1][key] for key in ("tool_name", "tool_input", "cwd")}
    assert call == {
        "tool_name": "Bash",
        "tool_input": {"command": "true"},
        "cwd": str(place.project),
    }
    assert events[-1]["tool_response"]["is_error"] is False
    assert Path(events[-1]["transcript_path"]).is_file()


@pytest.mark.variants
@pytest.mark.parametrize(
    ("veto", "reason"),
    [
        (f"echo '{json.dumps(VETO)}'", "Not on"),
        ("""echo '{"decision": "block", "reason": "Blocked"}'""", "Blocked"),
        ("echo nothing runs here; exit 2", "nothing runs here"),
    ],
)
def test_hook_of_a_plugin_prevents_a_call(place: Place, veto: str, reason: str) -> None:
    added(place, kit(place, PreToolUse=veto))
    call = Say(tools=[("Bash", {"command": "touch made"})])
    server, _ = ran(place, [call, Say("No.")], "--allow", "Bash")
    prevented = f"the hook PreToolUse of the plugin kit prevented it: {reason}"
    assert prevented in told(server.requests[-1])
    assert not (place.project / "made").exists()


def test_hook_of_a_plugin_allows_nothing_that_a_rule_denies(place: Place) -> None:
    allow = json.dumps({"hookSpecificOutput": {"permissionDecision": "allow"}})
    added(place, kit(place, PreToolUse=f"echo '{allow}'"))
    call = Say(tools=[("Bash", {"command": "touch made"})])
    ran(place, [call, Say("No.")], "--deny", "Bash(touch:*)")
    ran(place, [call, Say("No.")], "--permission-mode", "plan")
    assert not (place.project / "made").exists()


def test_a_subagent_is_named_with_its_plugin_and_rules_mean_it_too(place: Place) -> None:
    added(place, kit(place))
    task = {"description": "look", "prompt": "find", "type": "kit:scout"}
    calls = [("Task", task), ("Task", {**task, "type": "other:scout"})]
    server, _ = ran(place, [Say(tools=calls[:1]), Say("Found."), Say("Done.")])
    assert "Found." in told(server.requests[-1])
    server, _ = ran(place, [Say(tools=calls), Say("No.")], "--deny", "Task(scout)")
    assert len(server.requests) == 2
    assert told(server.requests[-1]).count("denied by the rule Task(scout)") == 2
    server, _ = ran(place, [Say(tools=calls[1:]), Say("No.")])
    assert "There is no type 'other:scout'" in told(server.requests[-1])


def test_user_s_part_wins_over_a_plugin_s_with_the_same_name(place: Place) -> None:
    added(place, kit(place))
    put(own(place) / "commands" / "hello.md", "Mine.")
    put(own(place) / "agents" / "scout.md", "---\nname: scout\ndescription: My own\n---\nGo.")
    put(own(place) / "mcp.json", {"mcpServers": {"plain": {"command": "false"}}})
    server, done = ran(place, [Say("Done.")], task="/hello")
    assert "Mine." in told(server.requests[0])
    assert "- scout: My own" in json.dumps(tools(server)["Task"])
    assert "- kit:scout: Finds things: all of them" in json.dumps(tools(server)["Task"])
    assert "left out: there is a" not in done.stderr
    assert not (place.root / "notes").exists()


def test_repository_is_pinned_to_a_commit(place: Place) -> None:
    source = kit(place)
    first = committed(source)
    put(source / "words", "a newer kit")
    second = committed(source)
    url = f"file://{source}"
    added(place, url)
    assert listed(place)[0]["commit"] == second
    assert not (own(place) / "plugins" / "kit" / ".git").exists()
    done = added(place, url, "--ref", first)
    assert f"It replaces commit {second[:12]}, with different content." in done.stdout
    (row,) = listed(place)
    assert (row["commit"], row["ref"], row["source"]) == (first, first, url)
    assert (own(place) / "plugins" / "kit" / "words").read_text() == "a kit"
    added(place, url, "--ref", "main")
    assert listed(place)[0]["commit"] == second
    assert left_over(place) == []
    assert (own(place) / "plugins.json").stat().st_mode & 0o777 == 0o600


def test_fetching_a_repository_runs_nothing_of_it(place: Place) -> None:
    """No filter of the repository, no hook of its source, no submodule."""
    source, other = kit(place), place.root / "sources" / "other"
    put(other / "file", "of a submodule")
    committed(other)
    put(source / ".gitattributes", "* filter=evil\n")
    git_file = place.root / "home" / ".gitconfig"
    git_file.write_text(f'[filter "evil"]\nsmudge = touch {place.root}/smudged; cat\n')
    committed(source)
    git(source, "-c", "protocol.file.allow=always", "submodule", "add", f"file://{other}", "sub")
    committed(source)
    added(place, f"file://{source}")
    assert not (place.root / "smudged").exists()
    assert not (own(place) / "plugins" / "kit" / "sub").exists()
    assert (own(place) / "plugins" / "kit" / ".gitattributes").exists()


def test_changed_plugin_is_left_out_and_reported(place: Place) -> None:
    source = kit(place)
    added(place, source)
    call = Say(tools=[("Bash", {"command": "true"})])
    put(source / "words", "another kit")  # what it was copied from does not count any more
    assert ran(place, [Say("Done.")])[1].stderr.count("has changed") == 0
    words = own(place) / "plugins" / "kit" / "words"
    times = words.stat()
    words.write_text("A kit")  # of the same size, and with the times of before
    os.utime(words, ns=(times.st_atime_ns, times.st_mtime_ns))
    steps = [call, Say("Done.")]
    _, refused = ran(place, [], "--allow", "Bash(true)", task="/hello you", code=2)
    assert "there is no command /hello" in refused.stderr
    server, done = ran(place, steps, "--allow", "Bash(true)")
    for told_of in (refused.stderr, done.stderr):
        assert "kit has changed since it was added, so it is not used" in told_of
        assert f"reinstall it with `ctxagent plugin add {source}`" in told_of
    assert "Mcp" not in tools(server)
    assert "Skill" not in tools(server)
    assert (place.project / "heard").read_text().count("PreToolUse") == 0
    report = place.run("plugin", "list")
    assert report.returncode == 1
    assert "kit · 1.2: has changed since it was added" in report.stdout
    assert listed(place)[0]["version"] == "1.2"
    assert "note  plugin: kit has changed" in place.run("doctor").stdout
    added(place, source)
    server, done = ran(place, [Say("Done.")], task="/hello you")
    assert "Hello you, by another kit." in told(server.requests[0])


@pytest.mark.variants
@pytest.mark.parametrize("change", ["content", "more", "less", "mode", "link", "gone"])
def test_every_kind_of_change_is_noticed(place: Place, change: str) -> None:
    added(place, kit(place))
    folder = own(place) / "plugins" / "kit"
    old = 1_500_000_000
    for path in folder.rglob("*"):
        os.utime(path, (old, old))
    # Once its times have settled, a stamp stands for its content.
    stamps = place.state / "plugin_stamps.json"
    assert comes(lambda: listed(place)[0]["problem"] == "" and stamps.is_file())
    assert str(folder) in stamps.read_text()
    if change == "content":  # with the size and the times of before
        (folder / "words").write_text("A kit")
        os.utime(folder / "words", (old, old))
    elif change == "more":
        put(folder / "commands" / "__pycache__" / "x", "")
    elif change == "less":
        (folder / "words").unlink()
    elif change == "mode":
        (folder / "server.py").chmod(0o755)
    elif change == "link":
        (folder / "words").unlink()
        (folder / "words").symlink_to("server.py")
    else:
        shutil.rmtree(folder)
    wanted = "no longer exists" if change == "gone" else "has changed since it was added"
    assert listed(place)[0]["problem"] == wanted


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda at: (at / "out").symlink_to("../../home"),
            "out is a link that leads out of the plugin",
        ),
        (
            lambda at: (at / "out").symlink_to(at / "words"),
            "out is a link that leads out of the plugin",
        ),
        (lambda at: os.mkfifo(at / "pipe"), "pipe is neither a file nor a folder nor a link"),
        (lambda at: os.truncate(at / "words", 1 << 40), "it has more than 50,000,000 bytes"),
        (
            lambda at: [put(at / "more" / str(number), "") for number in range(5_000)],
            "it has more than 5,000 files",
        ),
        (lambda at: put(at / ".claude-plugin/plugin.json", "{"), "plugin.json is not JSON"),
        (lambda at: put(at / ".claude-plugin/plugin.json", "[]"), "plugin.json is not an object"),
        (
            lambda at: put(at / ".claude-plugin/plugin.json", {"name": "../kit"}),
            "its name '../kit' is invalid: use up to 80 letters",
        ),
        (
            lambda at: (
                [shutil.rmtree(each) for each in at.iterdir() if each.is_dir()]
                + [(at / ".mcp.json").unlink()]
            ),
            "it is not a plugin: it has none of commands, skills, agents",
        ),
    ],
)
def test_plugins_that_cannot_be_added(place: Place, change: Any, why: str) -> None:
    folder = kit(place)
    change(folder)
    done = place.run("plugin", "add", "--yes", str(folder))
    assert done.returncode == 2
    assert why in done.stderr
    assert listed(place) == []
    assert left_over(place) == []


def test_a_repository_that_unpacks_to_too_much(place: Place) -> None:
    folder = kit(place)
    os.truncate(folder / "words", 60_000_000)
    committed(folder)
    done = place.run("plugin", "add", "--yes", f"file://{folder}")
    assert done.returncode == 2
    assert "it has more than 50,000,000 bytes" in done.stderr


def test_a_link_in_a_repository_that_leads_out(place: Place) -> None:
    folder = kit(place)
    (folder / "commands" / "out.md").symlink_to("../../../secret")
    committed(folder)
    done = place.run("plugin", "add", "--yes", f"file://{folder}")
    assert done.returncode == 2
    assert "commands/out.md is a link that leads out of the plugin" in done.stderr
    assert listed(place) == []


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("ext::sh -c touch% made", "git helper programs are not supported"),
        ("--upload-pack=touch made", "is an option, not a source"),
        ("ssh://-oProxyCommand=touch%20made/x", "the name of its host begins with a dash"),
        ("http://127.0.0.1/x", "http:// is not supported"),
        ("no/such", "neither a folder nor a git URL"),
        ("file:///no/such", "git could not fetch it: fatal: '/no/such' does not appear to be"),
    ],
)
def test_invalid_sources(place: Place, source: str, why: str) -> None:
    done = place.run("plugin", "add", "--yes", "--", source)
    assert done.returncode in (1, 2)
    assert why in done.stderr
    assert list(place.project.iterdir()) == []
    for ref in ("--upload-pack=touch made", "+main:main"):
        done = place.run("plugin", "add", "--yes", f"--ref={ref}", f"file://{place.root}")
        assert "is not a branch, tag or commit" in done.stderr


def test_url_rewritten_by_the_user_s_git_to_another_protocol(place: Place) -> None:
    config = '[url "ext::touch made "]\n\tinsteadOf = https://example.org/\n[protocol "ext"]\n'
    (place.root / "home" / ".gitconfig").write_text(f"{config}\tallow = always\n")
    done = place.run("plugin", "add", "--yes", "https://example.org/x")
    assert done.returncode == 1
    assert "transport 'ext' not allowed" in done.stderr
    assert list(place.project.iterdir()) == []


def test_a_person_is_asked(place: Place) -> None:
    source = kit(place)
    done = place.run("plugin", "add", str(source))
    assert done.returncode == 2
    assert "kit: not added, because there is no terminal to ask" in done.stderr
    assert "hook PreToolUse of Bash, runs: cat >> heard" in done.stdout
    for answer, code, names in (("\r", 1, []), ("y\r", 0, ["kit"])):
        terminal = Terminal(
            "plugin", "add", str(source), cwd=place.project, env=place.environ(), columns=200
        )
        shown = terminal.see("Add it? [y/N]")
        assert "runs: cat >> heard" in shown
        terminal.type(answer)
        assert terminal.leave() == code
        assert [row["name"] for row in listed(place)] == names


def test_a_name_that_is_taken(place: Place) -> None:
    first = kit(place)
    added(place, first)
    second = place.root / "second"
    shutil.copytree(first, second)
    for _ in range(2):
        added(place, second)
    added(place, first)
    rows = {row["name"]: row["source"] for row in listed(place)}
    assert rows == {"kit": str(first), f"{place.root.name}-kit": str(second)}


def killed(place: Place, source: Path, kind: str, number: int) -> None:
    """Begin to add a plugin, and kill the process at the nth event of a kind."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, kind, str(number), "plugin", "add", "--yes", str(source)],
        env=place.environ(),
        cwd=place.project,
        capture_output=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.variants
@pytest.mark.parametrize(
    ("kind", "number"), [("os.mkdir", 1), ("os.mkdir", 4), ("os.rename", 1), ("os.rename", 2)]
)
def test_a_kill_in_the_middle_leaves_no_half(place: Place, kind: str, number: int) -> None:
    source = kit(place)
    killed(place, source, kind, number)
    assert listed(place) == []
    _, refused = ran(place, [], task="/hello you", code=2)
    assert "there is no command /hello" in refused.stderr
    server, done = ran(place, [Say("Done.")])
    assert done.stderr == ""
    assert "Mcp" not in tools(server)
    added(place, source)
    assert listed(place)[0]["problem"] == ""
    assert left_over(place) == []


@pytest.mark.variants
@pytest.mark.parametrize(
    ("number", "problem"),
    [(1, ""), (2, "no longer exists"), (3, "has changed since it was added")],
)
def test_a_kill_while_one_is_put_in_place_of_another(
    place: Place, number: int, problem: str
) -> None:
    source = kit(place)
    added(place, source)
    put(source / "words", "a newer kit")
    killed(place, source, "os.rename", number)
    assert listed(place)[0]["problem"] == problem
    is_whole = problem == ""
    server, done = ran(
        place, [Say("Done.")] if is_whole else [], task="/hello you", code=0 if is_whole else 2
    )
    assert is_whole == bool(server.requests)
    assert not is_whole or "Hello you, by a kit." in told(server.requests[0])
    assert problem in done.stderr
    added(place, source)
    assert listed(place)[0]["problem"] == ""
    assert left_over(place) == []


def test_git_ends_with_the_command(place: Place) -> None:
    started = place.root / "started"
    env = place.environ({"GIT_SSH_COMMAND": f"echo $$ > {started}; exec sleep 300; :"})
    child = place.start("plugin", "add", "--yes", "ssh://example.org/x", env=env)
    assert comes(lambda: started.exists() and started.read_text().endswith("\n"))
    other = place.run("plugin", "add", "--yes", str(kit(place)))
    assert "plugins are being changed by another process" in other.stderr
    child.kill()
    child.wait()
    assert gone(int(started.read_text()))
    added(place, kit(place))
    assert left_over(place) == []


def test_remove(place: Place) -> None:
    added(place, kit(place))
    done = place.run("plugin", "remove", "kit")
    assert done.returncode == 0, done.stderr
    assert listed(place) == []
    assert list((own(place) / "plugins").iterdir()) == []
    done = place.run("plugin", "remove", "kit")
    assert done.returncode == 2
    assert "there is no plugin kit" in done.stderr
    assert ran(place, [Say("Done.")])[1].stderr == ""


def test_a_broken_record_is_told(place: Place) -> None:
    added(place, kit(place))
    for content in ("{", '{"plugins": {"../x": {"source": "", "digest": ""}}}', '{"plugins": []}'):
        put(own(place) / "plugins.json", content)
        _, done = ran(place, [Say("Done.")])
        assert "no plugin is used: " in done.stderr
        assert "plugins.json: cannot be read: it is not a record of plugins" in done.stderr
        for command in ("list", "remove"):
            done = place.run("plugin", command, *(["kit"] if command == "remove" else []))
            assert done.returncode == 2
            assert "plugins.json: cannot be read" in done.stderr
        assert "FAIL  plugin: " in place.run("doctor").stdout


def test_invalid_plugin_hooks_are_reported(place: Place) -> None:
    source = kit(place)
    rows = [
        {"matcher": "(", "hooks": []},
        {"hooks": [{"type": "prompt", "prompt": "Well?"}]},
        {"hooks": [_command("touch heard")]},
    ]
    put(source / "hooks" / "hooks.json", {"hooks": {"SessionStart": rows}})
    added(place, source)
    _, done = ran(place, [Say("Done.")])
    assert done.stderr.count("the plugin kit: hooks for SessionStart are left out") == 1
    wrong = "a hook for SessionStart is left out: its type 'prompt' is not supported here"
    assert f"the plugin kit: {wrong}" in done.stderr
    assert (place.project / "heard").exists()
    put(source / "hooks" / "hooks.json", "[]")
    added(place, source)
    assert "the plugin kit: no hook in it is used" in ran(place, [Say("Done.")])[1].stderr


def test_doctor_lists_plugins_and_hooks(place: Place) -> None:
    added(place, kit(place))
    put(place.project / ".claude" / "commands" / "foreign.md", "Words.")
    put(own(place) / "agentrc", '[hooks]\nbefore_tool = ["true"]\n')
    shown = place.run("doctor").stdout
    digest = listed(place)[0]["digest"][:12]
    assert f"ok    plugin: kit: digest {digest}, unchanged" in shown
    assert "note  commands: 2 files, 1 of them not trusted" in shown
    assert "ok    hooks: 1 before_tool, 1 PreToolUse, 1 PostToolUse, 1 SessionStart" in shown
    assert "note  hooks: the plugin kit: hooks for Setup are left out" in shown
    assert f"MCP server: plain: {Path(sys.executable).name}" in shown


def furnished(place: Place) -> None:
    """Give the user, the project and a plugin one part of each kind."""
    added(place, kit(place))
    put(own(place) / "commands" / "mine.md", "My command.")
    put(own(place) / "agents" / "mine.md", "---\nname: mine\ndescription: My own\n---\nGo.")
    put(own(place) / "skills" / "two" / "SKILL.md", "---\nname: two\ndescription: d\n---\nTwo.")
    put(own(place) / "agentrc", '[hooks]\nbefore_tool = ["touch mine"]\n')
    put(own(place) / "mcp.json", {"mcpServers": {"mine": {"command": "touch", "args": ["mine"]}}})


def test_safe_start_has_no_plugins(place: Place) -> None:
    furnished(place)
    call = Say(tools=[("Bash", {"command": "true"})])
    steps = [call, Say("Done.")]
    server, done = ran(place, steps, "--safe", "--allow", "Bash(true)", task="/mine")
    assert done.stderr == (
        "note: safe start: no MCP servers, plugins, extensions, features of add-ons and hooks, no "
        "commands, skills and subagents from files\n"
    )
    assert "/mine" in told(server.requests[0])
    assert "My command." not in told(server.requests[0])
    assert {"Mcp", "Skill"} & set(tools(server)) == set()
    assert "- mine: " not in json.dumps(tools(server)["Task"])
    assert "scout" not in json.dumps(tools(server)["Task"])
    assert list(place.project.iterdir()) == []
    assert not (place.root / "notes").exists()
    server, _ = ran(place, steps, "--allow", "Bash(true)", task="/mine")
    assert "My command." in told(server.requests[0])
    assert {"Mcp", "Skill"} <= set(tools(server))
    assert (place.project / "mine").exists()


def test_a_safe_start_of_the_terminal(place: Place) -> None:
    furnished(place)
    with Server([Say("Yes.")]) as server:
        env = place.server(server.url)
        terminal = Terminal("--safe", cwd=place.project, env=env)
        terminal.see("safe start: no MCP servers")
        terminal.see("❯")
        terminal.type("/hello you\r")
        terminal.see("there is no command /hello")
        terminal.type("go\r")
        terminal.see("Yes.")
        terminal.type("/quit\r")
        terminal.leave()
        assert {"Mcp", "Skill"} & set(tools(server)) == set()
    assert list(place.project.iterdir()) == []
    done = place.run("--safe", "plugin", "list")
    assert done.returncode == 2
    assert "does not take --safe" in done.stderr
