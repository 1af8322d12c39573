"""Hooks in the published format, with the real command: each kind of plugin has its documented
effect.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.replay.request_check import check_log

from ..support.command import Place, comes
from ..support.keeper import LIMITS, Keeper, kill_in_a_turn, of_turns, told
from ..support.server.loopback import Body, Say, Server
from ..support.sessions.killed import write_killed
from ..support.terminal.screen import Terminal

START = "You have a kit. Look for a fitting skill before you answer."
SAYS_START = f"""
import json, sys
given = json.load(sys.stdin)
print(json.dumps({{"hookSpecificOutput": {{
    "hookEventName": "SessionStart", "additionalContext": "{START}"}}}}))
"""
# Sends the agent on with the same task until its last reply has the promised word.
LOOPS = """
import json, pathlib, sys
given, state = json.load(sys.stdin), pathlib.Path("loop.json")
with open("heard", "a") as file:
    file.write(json.dumps(given) + "\\n")
if not state.exists():
    sys.exit()
rows = [line for line in open(given["transcript_path"]) if '"role":"assistant"' in line]
said = "".join(b.get("text", "") for b in json.loads(rows[-1])["message"]["content"])
loop = json.loads(state.read_text())
if "<promise>DONE</promise>" in said:
    state.unlink()
    sys.exit()
loop["round"] += 1
state.write_text(json.dumps(loop))
print(json.dumps({"decision": "block", "reason": loop["task"],
    "systemMessage": f"round {loop['round']}"}))
"""
# Rules of a user, for four events.
RULES = """
import json, sys
given = json.load(sys.stdin)
event, answer = given["hook_event_name"], {}
if event == "PreToolUse" and "rm -rf" in given["tool_input"].get("command", ""):
    answer = {"hookSpecificOutput": {"hookEventName": event, "permissionDecision": "deny"},
        "systemMessage": "Rule one: nothing is removed here"}
elif event == "PostToolUse" and "made" in given["tool_input"].get("command", ""):
    answer = {"decision": "block", "reason": "Rule two: what is made is tested"}
elif event == "UserPromptSubmit" and "password" in given["prompt"]:
    answer = {"decision": "block", "reason": "Rule three: no passwords"}
elif event == "UserPromptSubmit":
    print("Rule four: answer in short.")
    sys.exit()
elif event == "Stop" and "checked" not in open(given["transcript_path"]).read():
    answer = {"decision": "block", "reason": "Rule five: say whether it holds"}
print(json.dumps(answer))
"""
# Warns of what is dangerous in an edit, once for each file, and asks about keys.
GUARDS = """
import json, pathlib, sys
given = json.load(sys.stdin)
if given["tool_input"]["file_path"].endswith(".pem"):
    print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse",
        "permissionDecision": "ask", "permissionDecisionReason": "this is a key"}}))
    sys.exit()
if "eval(" in given["tool_input"].get("content", "") and not pathlib.Path("warned").exists():
    pathlib.Path("warned").touch()
    print("Careful: eval runs whatever it is given.", file=sys.stderr)
    sys.exit(2)
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def hook(line: str, matcher: str = "", **more: Any) -> dict[str, Any]:
    return {"matcher": matcher, "hooks": [{"type": "command", "command": line, **more}]}


def add(place: Place, name: str, events: dict[str, list[dict[str, Any]]], script: str = "") -> None:
    """Add a plugin with these hooks; `run` in a command stands for the script."""
    folder = place.root / "sources" / name
    (folder / "hooks").mkdir(parents=True, exist_ok=True)
    (folder / "hooks" / "run.py").write_text(script)
    run = 'python3 "${CLAUDE_PLUGIN_ROOT}/hooks/run.py"'
    written = json.dumps({"hooks": events}).replace('"run"', json.dumps(run))
    (folder / "hooks" / "hooks.json").write_text(written)
    done = place.run("plugin", "add", "--yes", str(folder))
    assert done.returncode == 0, done.stderr


def ran(
    place: Place, steps: Any, *arguments: str, task: str = "go", code: int = 0
) -> tuple[Server, str]:
    with Server(steps) as server:
        done = place.run("-p", task, *arguments, env=place.server(server.url))
        assert done.returncode == code, done.stderr
    assert server.rejected == []
    return server, done.stderr


def words(place: Place) -> list[dict[str, Any]]:
    """Return the entries with the messages of hooks."""
    entries = (json.loads(line) for log in place.logs() for line in log.read_text().splitlines())
    return [entry for entry in entries if entry.get("source") == "hook"]


def heard(place: Place) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place.project / "heard").read_text().splitlines()]


def bash(*commands: str) -> Say:
    return Say(tools=[("Bash", {"command": command}) for command in commands])


def is_rebuilt(place: Place) -> bool:
    """Return True if each request can be rebuilt from its log, to the byte."""
    return all(check_log(log).holds for log in place.logs())


@pytest.mark.full
def test_session_start_text_is_in_the_context_once(place: Place) -> None:
    events = {event: [hook("cat >> heard", "auto")] for event in ("PreCompact", "PostCompact")}
    events["SessionStart"] = [hook("run", "startup|clear|compact")]
    add(place, "kit", events, SAYS_START)
    keeper = Keeper()
    keeper.until = 3
    with Server(keeper, bound=True, strict=True, window=24_000) as server:
        env = place.server(server.url)

        def go_on(*arguments: str) -> None:
            done = place.run("-p", "go on", *LIMITS, *arguments, env=env)
            assert done.returncode == 0, done.stderr

        go_on()
        kill_in_a_turn(place, env, keeper)
        keeper.until = keeper.summaries + 1
        go_on("--continue")
        go_on("--continue")
    assert server.rejected == []
    assert keeper.summaries >= 5
    assert [told(body).count(START) for body in of_turns(server.requests)] == [1] * len(
        of_turns(server.requests)
    )
    before, after = heard(place)[:2]
    assert (before["hook_event_name"], before["trigger"]) == ("PreCompact", "auto")
    assert (after["hook_event_name"], after["trigger"]) == ("PostCompact", "auto")
    assert "Look after the animals." in after["compact_summary"]
    first = words(place)[0]
    assert first["content"].startswith("[From the hook SessionStart of the plugin kit. These are")
    assert {each["details"]["hook"]["source"] for each in words(place)} == {"startup", "compact"}
    assert is_rebuilt(place)


@pytest.mark.full
def test_all_plugins_after_summaries_a_kill_and_a_resume(place: Place) -> None:
    add(place, "kit", {"SessionStart": [hook("run", "startup|clear|compact")]}, SAYS_START)
    rules = ("PreToolUse", "PostToolUse", "UserPromptSubmit")
    add(place, "rules", {event: [hook("run")] for event in rules}, RULES)
    add(place, "guard", {"PreToolUse": [hook("run", "Write")]}, GUARDS)
    add(place, "loop", {"Stop": [hook("run")]}, LOOPS)
    keeper = Keeper()
    keeper.until = 3
    write = Say(tools=[("Write", {"path": "a.py", "content": "eval(x)"})])
    with Server(keeper, bound=True, strict=True, window=24_000) as server:
        env = place.server(server.url)
        assert place.run("-p", "go on", *LIMITS, env=env).returncode == 0
        kill_in_a_turn(place, env, keeper)
        (place.project / "loop.json").write_text(json.dumps({"task": "Build it.", "round": 1}))
        promise = Say("It is <promise>DONE</promise>.")
        keeper.queue = [bash("rm -rf x"), bash("echo made"), write, write, Say("Tried."), promise]
        start = len(server.requests)
        done = place.run("-p", "go on", *LIMITS, "--continue", env=env)
        assert done.returncode == 0, done.stderr
    assert server.rejected == []
    assert "It is <promise>DONE</promise>." in done.stdout
    assert not (place.project / "loop.json").exists()
    last = server.requests[-1]
    for said in (
        START, "prevented it: Rule one", "Rule two: what is made is tested", "Rule four",
        "Careful: eval runs whatever it is given.", "Created a.py", "Build it.",
    ):  # fmt: skip
        assert said in told(last)
    assert {told(body).count(START) for body in of_turns(server.requests[start:])} == {1}
    assert heard(place)[-1]["stop_hook_active"] is True
    assert is_rebuilt(place)


@pytest.mark.full
def test_killed_between_a_summary_and_the_words_of_a_hook(place: Place) -> None:
    """A kill at that moment leaves a log that ends with the summary."""
    add(place, "kit", {"SessionStart": [hook("run", "compact")]}, SAYS_START)
    keeper = Keeper()
    keeper.until = 1
    with Server(keeper, bound=True, strict=True, window=24_000) as server:
        env = place.server(server.url)
        assert place.run("-p", "go", *LIMITS, env=env).returncode == 0
        (log,) = place.logs()
        lines = log.read_bytes().splitlines(keepends=True)
        sources = [json.loads(line).get("source") for line in lines]
        said = sources.index("hook")
        (summary,) = [n for n, line in enumerate(lines) if json.loads(line)["kind"] == "summary"]
        for end in (summary + 1, said, said + 1, said + 2):
            write_killed(log, lines[:end])
            for cache in log.parent.glob("resume.*"):
                cache.unlink()
            start = len(server.requests)
            done = place.run("-p", "go on", *LIMITS, "--continue", env=env)
            assert done.returncode == 0, done.stderr
            assert {told(body).count(START) for body in server.requests[start:]} == {1}
    assert server.rejected == []


def test_stop_hook_continues_until_the_promised_word(place: Place) -> None:
    add(place, "loop", {"Stop": [hook("run")]}, LOOPS)
    (place.project / "loop.json").write_text(json.dumps({"task": "Build it.", "round": 1}))
    steps = [Say("First try."), Say("Second try."), Say("It is <promise>DONE</promise>.")]
    server, error = ran(place, steps)
    assert len(server.requests) == 3
    assert "round 3" in error
    assert told(server.requests[-1]).count("Build it.") == 2
    assert [each["stop_hook_active"] for each in heard(place)] == [False, True, True]
    assert heard(place)[0]["last_assistant_message"] == "First try."
    assert is_rebuilt(place)


def test_endless_stop_hook_is_ended(place: Place) -> None:
    add(place, "loop", {"Stop": [hook("echo more >&2; exit 2")]})
    server, error = ran(place, lambda body: Say(f"Done {len(body['messages'])}."))
    assert len(server.requests) == 9
    assert "the hooks of Stop have continued the turn 8 times: it ends now" in error


def test_rules_for_four_events(place: Place) -> None:
    events = ("PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop")
    add(place, "rules", {event: [hook("run")] for event in events}, RULES)
    server, error = ran(place, [], task="my password is x", code=1)
    assert server.requests == []
    assert "Rule three: no passwords" in error
    assert "my password" not in place.logs()[0].read_text()
    steps = [bash("rm -rf x"), bash("echo made"), Say("Done."), Say("It is checked.")]
    server, _ = ran(place, steps, "--permission-mode", "bypass", "--continue")
    one, two, three, four = server.requests
    assert "Rule four: answer in short." in told(one)
    assert "prevented it: Rule one: nothing is removed here" in told(two)
    assert "Rule two: what is made is tested" in told(three)
    assert "PostToolUse of the plugin rules, about the call Bash echo made." in told(three)
    assert "Rule five: say whether it holds" in told(four)
    assert is_rebuilt(place)


def test_a_guard_warns_with_exit_code_2_and_asks(place: Place) -> None:
    add(place, "guard", {"PreToolUse": [hook("run", "Edit|Write|MultiEdit")]}, GUARDS)
    write = ("Write", {"path": "a.py", "content": "eval(x)"})
    key = ("Write", {"path": "a.pem", "content": "k"})
    steps = [Say(tools=[write]), Say(tools=[write]), Say(tools=[key]), Say("Done.")]
    server, error = ran(place, steps, "--permission-mode", "accept-edits", code=3)
    assert "Careful: eval runs whatever it is given." in told(server.requests[1])
    assert "this is a key" in told(server.requests[3])
    assert "this is a key" in error
    assert (place.project / "a.py").exists()
    assert not (place.project / "a.pem").exists()


def test_a_question_that_a_hook_asks_for_is_asked_in_every_mode(place: Place) -> None:
    notes = hook("cat >> heard", "permission_prompt")
    events = {"PreToolUse": [hook("run", "Write")], "Notification": [notes]}
    add(place, "guard", events, GUARDS)
    steps = [Say(tools=[("Write", {"path": "a.pem", "content": "k"})]), Say("Done.")]
    with Server(steps) as server:
        terminal = Terminal(
            "--permission-mode", "accept-edits", cwd=place.project, env=place.server(server.url)
        )
        terminal.see("❯")
        terminal.type("go\r")
        terminal.keys("[y]es")
        assert "this is a key" in terminal.see("this is a key")
        assert comes((place.project / "heard").exists)
        terminal.type("y")
        terminal.see("Done.")
        terminal.press("ctrl-d")
        assert terminal.leave() == 0
    assert (place.project / "a.pem").read_text() == "k"
    (note,) = heard(place)
    assert note["notification_type"] == "permission_prompt"
    assert "Write a.pem" in note["message"]


CHANGES = """
import json, sys
given = json.load(sys.stdin)
changed = {**given["tool_input"], "command": given["tool_input"]["command"].replace("one", "two")}
print(json.dumps({"hookSpecificOutput": {
    "hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": changed}}))
"""


def test_changed_call_is_checked_run_and_recorded(place: Place) -> None:
    add(place, "kit", {"PreToolUse": [hook("run", "Bash")]}, CHANGES)
    steps = [bash("touch one"), bash("rm one"), Say("Done.")]
    deny = ("--deny", "Bash(rm two)", "--output-format", "stream-json")
    with Server(steps) as server:
        done = place.run("-p", "go", *deny, env=place.server(server.url))
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in place.project.iterdir()) == ["two"]
    assert "denied by the rule Bash(rm two)" in told(server.requests[-1])
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (started,) = [event for event in events if event["type"] == "tool_started"]
    assert (started["title"], started["input"]["command"]) == ("touch two", "touch two")
    result = next(entry for entry in place.entries() if entry["kind"] == "tool_result")
    assert result["details"]["arguments"]["command"] == "touch two"
    assert is_rebuilt(place)


def test_ask_rules_apply_to_calls_that_a_hook_allows(place: Place) -> None:
    allow = json.dumps({"hookSpecificOutput": {"permissionDecision": "allow"}})
    add(place, "kit", {"PreToolUse": [hook(f"echo '{allow}'")]})
    steps = [bash("touch made"), bash("touch asked"), Say("Done.")]
    _, error = ran(place, steps, "-c", "permissions.ask=Bash(touch asked)", code=3)
    assert [path.name for path in place.project.iterdir()] == ["made"]
    assert "touch asked" in error


@pytest.mark.parametrize("behavior", ["allow", "deny"])
def test_a_question_is_answered_by_a_hook(place: Place, behavior: str) -> None:
    decision = {"behavior": behavior, "message": "not at night"}
    answer = json.dumps({"hookSpecificOutput": {"decision": decision}})
    add(place, "kit", {"PermissionRequest": [hook(f"echo '{answer}'", "Bash")]})
    server, _ = ran(place, [bash("touch made"), Say("Done.")])
    assert (place.project / "made").exists() == (behavior == "allow")
    assert ("not at night" in told(server.requests[-1])) == (behavior == "deny")


def test_long_hook_text_is_cut_and_kept(place: Place) -> None:
    say = "seq -f 'line %g of a long text' 2000"
    add(place, "kit", {"UserPromptSubmit": [hook(say)]})
    server, _ = ran(place, [Say("Done.")])
    (entry,) = words(place)
    assert 10_000 < len(entry["content"]) < 10_300
    assert f"more characters; Recall #{entry['seq']} has all of it]" in entry["content"]
    assert "line 2000 of" not in told(server.requests[0])
    recall = ("Recall", {"ref": f"#{entry['seq']}", "offset": 40_000})
    server, _ = ran(place, [Say(tools=[recall]), Say("Yes.")], "--continue")
    assert "line 2000 of a long text" in told(server.requests[-1])


def test_input_of_each_event(place: Place) -> None:
    listened = (
        "SessionStart", "SessionEnd", "UserPromptSubmit", "PreToolUse", "PostToolUse",
        "PostToolUseFailure", "Stop", "SubagentStart", "SubagentStop",
    )  # fmt: skip
    add(place, "kit", {event: [hook("cat >> heard")] for event in listened})
    (place.project / "a.txt").write_text("a")
    task = {"type": "general", "description": "Look", "prompt": "Look."}
    reads = [("Read", {"path": "a.txt"}), ("Bash", {"command": "exit 3", "timeout": 5})]
    steps = [Say(tools=reads), Say(tools=[("Task", task)]), Say("Looked."), Say("Done.")]
    ran(place, steps, "--permission-mode", "bypass", task="look here")
    events = heard(place)
    names = [event["hook_event_name"] for event in events]
    assert names[:2] == ["SessionStart", "UserPromptSubmit"]
    assert sorted(names[2:6]) == ["PostToolUse", "PostToolUseFailure", "PreToolUse", "PreToolUse"]
    assert names[6:] == [
        "PreToolUse", "SubagentStart", "SubagentStop", "PostToolUse", "Stop", "SessionEnd"
    ]  # fmt: skip
    (log,) = [log for log in place.logs() if "agents" not in str(log)]
    common = {
        "session_id": log.parent.name, "transcript_path": str(log.parent / "transcript.jsonl"),
        "cwd": str(place.project), "permission_mode": "bypassPermissions",
    }  # fmt: skip
    assert all(event.items() >= common.items() for event in events)
    by_name = {event["hook_event_name"]: event for event in events}
    assert by_name["UserPromptSubmit"]["prompt"] == "look here"
    assert by_name["SessionStart"]["source"] == "startup"
    read = next(event for event in events if event.get("tool_name") == "Read")
    assert read["tool_input"] == {"file_path": str(place.project / "a.txt")}
    failed = by_name["PostToolUseFailure"]
    assert failed["tool_input"] == {"command": "exit 3", "timeout": 5000}
    assert by_name["SubagentStop"]["agent_type"] == "general-purpose"
    assert by_name["SubagentStop"]["last_assistant_message"] == "Looked."
    assert by_name["Stop"]["last_assistant_message"] == "Done."
    assert (log.parent / "transcript.jsonl").stat().st_mode & 0o777 == 0o600


def test_subagents_get_the_text_of_their_own_hooks(place: Place) -> None:
    start = '{"hookSpecificOutput": {"additionalContext": "For helpers alone."}}'
    once = "test -e once && exit 0; touch once; echo 'Look again.' >&2; exit 2"
    events = {
        "SubagentStart": [hook(f"echo '{start}'", "general-purpose")],
        "SubagentStop": [hook(once, "general-purpose")],
    }
    add(place, "kit", events)
    task = {"type": "general", "description": "Look", "prompt": "Look."}
    steps = [Say(tools=[("Task", task)]), Say("Seen."), Say("Seen twice."), Say("Done.")]
    server, _ = ran(place, steps)
    assert ["For helpers alone." in told(body) for body in server.requests] == [
        False, True, True, False
    ]  # fmt: skip
    assert "Look again." in told(server.requests[2])


def test_continue_false_ends_the_turn(place: Place) -> None:
    stop = '{"continue": false, "stopReason": "enough for today"}'
    add(place, "kit", {"PostToolUse": [hook(f"echo '{stop}'")]})
    steps = [bash("true"), Say("Never.")]
    server, error = ran(place, steps, "--permission-mode", "bypass", code=1)
    assert len(server.requests) == 1
    assert "ended the turn: enough for today" in error


def test_a_condition_and_a_background_hook(place: Place) -> None:
    late = '{"hookSpecificOutput": {"additionalContext": "The review is done."}}'
    slow = hook(
        f"cat >> heard; echo '{late}'", "Bash", **{"if": "Bash(echo late:*)", "async": True}
    )
    add(place, "kit", {"PostToolUse": [slow]})

    def answer(body: Body) -> Say:
        done = "The review is done." in told(body)
        count = len(body["messages"])
        return Say("Done.") if done or count > 40 else bash(f"true {count}", f"echo late {count}")

    server, _ = ran(place, answer, "--permission-mode", "bypass")
    commands = [event["tool_input"]["command"] for event in heard(place)]
    assert all(command.startswith("echo late") for command in commands)
    assert "The review is done." in told(server.requests[-1])


def test_a_hook_over_http(place: Place) -> None:
    posted = list[tuple[dict[str, str], dict[str, Any]]]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append((dict(self.headers), json.loads(body)))
            answer = {"hookSpecificOutput": {"permissionDecision": "deny"}, "systemMessage": "No."}
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    web = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    post = {"type": "http", "url": f"http://127.0.0.1:{web.server_port}/hook"}
    post |= {  # type: ignore[dict-item]
        "headers": {
            "X-Who": "$LANG $HOME",
            "Authorization": "Bearer $MY_TOKEN",
            "X-Key": "$OPENAI_API_KEY$NO",
        },
        "allowedEnvVars": ["LANG", "MY_TOKEN", "OPENAI_API_KEY", "NO"],
    }
    gone = {"type": "http", "url": "http://127.0.0.1:9/"}
    add(place, "kit", {"PreToolUse": [{"hooks": [gone, post]}]})
    steps = [bash("touch made"), Say("Done.")]
    with Server(steps) as server:
        env = place.server(server.url) | {"MY_TOKEN": "of-mine", "OPENAI_API_KEY": "never"}
        error = place.run("-p", "go", "--permission-mode", "bypass", env=env).stderr
    web.shutdown()
    web.server_close()
    assert "did not answer" in error
    assert not (place.project / "made").exists()
    ((headers, event),) = posted
    assert headers["X-Who"] == "C.UTF-8"
    assert headers["Authorization"] == "Bearer of-mine"
    assert headers["X-Key"] == ""
    for warning in (
        "header X-Who without $HOME: allowedEnvVars does not list it",
        "header X-Key without $OPENAI_API_KEY: hooks never get the keys of models",
        "header X-Key without $NO: it is not set",
    ):
        assert f"the hook PreToolUse of the plugin kit sends its {warning}" in error
    assert event["tool_input"] == {"command": "touch made"}


def test_silent_hooks_change_no_request(place: Place) -> None:
    steps = [bash("echo on"), Say("Done.")]
    plain, _ = ran(place, steps, "--permission-mode", "bypass")
    assert not list(place.state.rglob("transcript.jsonl"))
    add(place, "kit", {"PreToolUse": [hook("true")], "Stop": [hook("true")]})
    hooked, _ = ran(place, steps, "--permission-mode", "bypass")
    assert plain.requests == hooked.requests


def test_hooks_in_files_of_the_user_and_of_a_trusted_project(place: Place) -> None:
    own = place.root / "home" / ".config" / "ctxagent" / "hooks.json"
    project = place.project / ".claude" / "settings.json"
    for path, said in ((own, "Mine."), (project, "Ours.")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"hooks": {"UserPromptSubmit": [hook(f"echo {said}")]}}))
    server, error = ran(place, [Say("Done.")])
    assert "Mine." in told(server.requests[0])
    assert "Ours." not in told(server.requests[0])
    assert f"{project}: no hook in it is used: not trusted" in error
    assert f"note  hooks: {project}: no hook in it is used" in place.run("doctor").stdout
    assert f"trusted with its current content: {project}" in place.run("config", "--trust").stderr
    server, error = ran(place, [Say("Done.")])
    assert f"UserPromptSubmit of the file {project}." in told(server.requests[0])
    assert error == ""
    server, _ = ran(place, [Say("Done.")], "--safe")
    assert "Mine." not in told(server.requests[0])


@pytest.mark.parametrize(
    "row",
    [
        {"command": '"$CLAUDE_PROJECT_DIR"/.claude/hooks/guard.sh'},
        {"command": "${CLAUDE_PROJECT_DIR}/.claude/hooks/guard.sh", "args": ["a b"]},
    ],
)
def test_hook_of_the_project_root_applies_in_subfolders(place: Place, row: dict[str, Any]) -> None:
    guard = place.project / ".claude" / "hooks" / "guard.sh"
    guard.parent.mkdir(parents=True)
    guard.write_text("#!/bin/sh\necho guarded >&2\nexit 2\n")
    guard.chmod(0o755)
    (place.project / ".git").mkdir()
    (place.project / "sub").mkdir()
    rows = {"PreToolUse": [{"matcher": "Bash", "hooks": [row]}]}
    (guard.parents[1] / "settings.json").write_text(json.dumps({"hooks": rows}))
    below = ("--cwd", "sub")
    assert place.run(*below, "config", "--trust").returncode == 0
    server, _ = ran(
        place, [bash("touch made"), Say("Done.")], "--permission-mode", "bypass", *below
    )
    assert "prevented it: guarded" in told(server.requests[-1])
    assert not (place.project / "sub" / "made").exists()
