"""The real command, headless, against a strict server over HTTP."""

import io
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.cli.main import main
from ctxagent.agent.cli.options import run_and_exit
from ctxagent.agent.compaction.policy import PRESETS
from ctxagent.agent.config.settings import KEYS
from ctxagent.agent.ui.headless import Headless

from ..support.command import COMMAND, PATIENCE, Place, comes, running
from ..support.server.loopback import Body, Fail, Say, Server
from ..support.server.wires import Wire, over_each_wire


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def document(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    """The one JSON document on standard output."""
    assert done.stdout.count("\n") == 1, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["exit_code"] == done.returncode
    return result


def test_fifty_calls_in_one_run(place: Place) -> None:
    (place.project / "a.txt").write_text("alpha\nbeta\n")
    calls = [
        ("Bash", {"command": "echo hello $RANDOM; exit 3"}),
        ("Read", {"path": "a.txt"}),
        ("Grep", {"pattern": "al", "output_mode": "content"}),
        ("Glob", {"pattern": "*.txt"}),
        ("Write", {"path": "b/c.txt", "content": "one\n"}),
    ]
    steps = [Say("Working.", tools=[calls[n % 4]]) for n in range(30)]
    steps += [Say(thinking="All at once.", tools=calls[:4]) for _ in range(5)]
    with Server([*steps, Say("All done.")]) as server:
        done = place.run(
            "-p", "work", "--output-format", "json", "--permission-mode", "bypass",
            env=place.server(server.url),
        )  # fmt: skip
    assert server.rejected == []
    result = document(done)
    assert (result["status"], result["exit_code"], result["result"]) == ("ok", 0, "All done.")
    assert (result["calls"], result["tool_calls"], result["turns"]) == (36, 50, 1)
    entries = place.entries()
    assert sum(e["kind"] == "tool_result" for e in entries) == 50
    usages = [e["usage"] for e in entries if e["kind"] == "assistant"]
    assert result["usage"] == {k: sum(u[k] for u in usages) for k in usages[0]}
    assert result["cost_usd"] == pytest.approx(
        sum(e["cost_usd"] for e in entries if e["kind"] == "assistant")
    )
    assert result["cost_usd"] > 0
    assert [e["seq"] for e in entries] == list(range(1, len(entries) + 1))
    assert result["log"] == str(place.logs()[0])
    assert result["context"]["level"] == "GREEN"
    assert "test-key-1" not in place.logs()[0].read_text()


def test_it_fixes_a_failing_test(place: Place) -> None:
    (place.project / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (place.project / "test_calc.py").write_text(
        "import unittest\nfrom calc import add\n\n"
        "class T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(add(1, 2), 3)\n"
    )
    test = ("Bash", {"command": "python3 -m unittest"})
    # Of another length: within a second Python takes a file of the same one for unchanged.
    change = {"path": "calc.py", "old_string": "a - b", "new_string": "(a + b)"}
    with Server(
        [
            Say(tools=[test, ("Read", {"path": "calc.py"})]),
            Say(tools=[("Edit", change), test]),
            Say("Fixed: `calc.py:2` subtracted."),
        ]
    ) as server:
        done = place.run(
            "-p", "fix the failing test", "--permission-mode", "accept-edits",
            "--allow", "Bash(python3 -m unittest:*)", env=place.server(server.url),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Fixed: `calc.py:2` subtracted.\n"
    results = [e for e in place.entries() if e["kind"] == "tool_result"]
    assert [e["is_error"] for e in results] == [True, False, False, False]
    assert "a + b" in (place.project / "calc.py").read_text()


def test_stream_json_begins_with_the_session_and_ends_with_the_result(place: Place) -> None:
    with Server([Say("Let me see.", tools=[("Glob", {"pattern": "*"})]), Say("Done.")]) as server:
        done = place.run(
            "-p", "look", "--output-format", "stream-json", env=place.server(server.url)
        )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["type"] == "session_opened"
    assert lines[0]["session_id"] == lines[-1]["session_id"]
    assert lines[-1]["type"] == "result"
    assert {"call_started", "text_delta", "tool_started", "tool_finished"} <= {
        line["type"] for line in lines
    }


def test_no_key(place: Place) -> None:
    done = place.run("-p", "hello")
    assert done.returncode == 5
    for name in ("ANTHROPIC_API_KEY", "ctxagent models", "ctxagent demo"):
        assert name in done.stderr
    assert done.stdout == ""
    assert place.logs() == []
    result = document(place.run("-p", "hello", "--output-format", "json"))
    assert result["error"]["type"] == "NoCredentials"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, "ANTHROPIC_API_KEY is not set, ANTHROPIC_AUTH_TOKEN is not set"),
        ({"ANTHROPIC_API_KEY": ""}, "ANTHROPIC_API_KEY is set but empty"),
        ({"ANTHROPIC_API_KEY": " "}, "ANTHROPIC_API_KEY is set but blank"),
        ({"ANTHROPIC_API_KEY": "sk-1\n"}, "begins or ends with a line break"),
        ({"ANTHROPIC_AUTH_TOKEN": " t"}, "ANTHROPIC_AUTH_TOKEN begins or ends with a blank"),
    ],
)
def test_malformed_key(place: Place, more: dict[str, str], told: str) -> None:
    """A run reports the key before it reads or sends anything, and so does the doctor."""
    with Server([]) as server:
        env = place.environ({"ANTHROPIC_BASE_URL": server.url, **more})
        done, checked = place.run("-p", "hello", env=env), place.run("doctor", env=env)
    assert (done.returncode, checked.returncode) == (5, 1)
    assert told in done.stderr
    (line,) = [line for line in checked.stdout.splitlines() if "credentials" in line]
    assert line.startswith("FAIL")
    assert told in line
    assert "export ANTHROPIC" in checked.stdout
    assert "sk-1" not in done.stderr + checked.stdout
    assert server.requests == []
    assert place.logs() == []


def test_a_key_that_the_server_does_not_accept(place: Place) -> None:
    with Server([Fail(401, "invalid x-api-key")]) as server:
        done = place.run("-p", "hello", env=place.server(server.url))
    assert done.returncode == 5
    assert "the key was not accepted (401): invalid x-api-key" in done.stderr
    assert "No key" not in done.stderr


def test_authentication_headers_count_as_a_key(place: Place) -> None:
    with Server([Say("Yes.")]) as server:
        headers = {"ANTHROPIC_CUSTOM_HEADERS": "Authorization: Bearer mine"}
        env = place.environ({"ANTHROPIC_BASE_URL": server.url, **headers})
        done = place.run("-p", "hello", env=env)
    assert (done.returncode, done.stdout) == (0, "Yes.\n"), done.stderr


def test_an_unknown_setting(place: Place) -> None:
    (place.project / ".agentrc").write_text("# mine\n[model]\neffrot = 'high'\n")
    done = place.run("-p", "hello")
    assert done.returncode == 2
    assert f"{place.project}/.agentrc:3" in done.stderr
    assert "model.effort" in done.stderr
    result = document(place.run("-p", "hello", "--output-format", "json"))
    assert (result["exit_code"], result["error"]["type"]) == (2, "ConfigError")


def test_commands_that_start_nothing_report_an_invalid_setting(place: Place) -> None:
    (place.project / ".agentrc").write_text("[model]\neffrot = 'high'\n[ui]\nplain = true\n")
    wrong = f"{place.project}/.agentrc:2"
    listed = place.run("sessions")
    assert listed.returncode == 0
    assert f"warning: ignored: {wrong}" in listed.stderr
    checked = place.run("doctor", "--json")
    rows = json.loads(checked.stdout)["findings"]
    (found,) = [row for row in rows if wrong in row["found"]]
    assert (found["what"], found["ok"]) == ("settings", False)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-p", " "], "there is no task"),
        ([], "there is no task"),
        (["-p", "x", "--fork"], "--fork needs a session"),
        (["-p", "x", "--allow", "Bsh(ls)"], "Bash"),
        (["-p", "x", "-c", "model.nope=1"], "model.nope"),
        (["-p", "x", "--model", "scripted:/nowhere"], "/nowhere"),
        (["-p", "x", "--nope"], "--nope"),
        (["-p", "x", "--resume", ""], "--resume"),
        (["-p", "x", "--max-budget-usd", "nan"], "nan"),
        (["-p", "x", "--max-budget-usd", "inf"], "inf"),
    ],
)
def test_wrong_usage(place: Place, arguments: list[str], told: str) -> None:
    done = place.run(*arguments, env=place.server("http://127.0.0.1:9"))
    assert done.returncode == 2, done.stderr
    assert told in done.stderr
    assert place.logs() == []


def test_a_file_that_does_not_exist_is_an_error_unless_quoted(place: Place) -> None:
    (place.project / "calc.py").write_text("x = 1\n")
    with Server([Say("Yes."), Say("Yes.")]) as server:
        env = place.server(server.url)
        for arguments in (["-p", "look at @calk.py"], ["@calk.py explain"]):
            done = place.run(*arguments, env=env)
            assert (done.returncode, done.stdout) == (2, "")
            assert "there is no file calk.py\nDid you mean @calc.py?" in done.stderr
        assert not server.requests
        for arguments in (["-p", "look at '@calk.py'"], ["-p", "--", "look at @calk.py"]):
            assert place.run(*arguments, env=env).returncode == 0
    assert len(server.requests) == 2


def test_a_file_that_is_no_command_is_told_how_to_attach_it(place: Place) -> None:
    (place.project / "calc.py").write_text("x = 1\n")
    done = place.run("calc.py", "explain", env=place.server("http://127.0.0.1:9"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "To attach the file: ctxagent '@calc.py explain'" in done.stderr
    assert "To send it to the agent: ctxagent -- calc.py explain" in done.stderr
    assert place.logs() == []


def test_an_unknown_provider(place: Place) -> None:
    env = place.environ({"ANTHROPIC_API_KEY": "test-key-1"})
    done = place.run("-p", "x", "--model", "opnai/gpt-5", env=env)
    assert done.returncode == 2, done.stderr
    assert "'opnai' is not a provider of models\nDid you mean openai/gpt-5" in done.stderr
    assert place.logs() == []


def test_a_mistyped_command_is_told_before_a_missing_key(place: Place) -> None:
    done = place.run("replya", "--worktree", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Did you mean `ctxagent replay`?" in done.stderr
    assert "key" not in done.stderr


def test_doctor_lists_the_options_without_a_key_one_per_line(place: Place) -> None:
    shown = place.run("doctor").stdout.splitlines()
    at = next(n for n, line in enumerate(shown) if line.startswith("FAIL  credentials: No key"))
    assert [line[:8] for line in shown[at + 1 : at + 6]] == ["      To", *["      - "] * 4]
    assert max(map(len, shown[at : at + 6])) < 200
    (found,) = [
        row["found"]
        for row in json.loads(place.run("doctor", "--json").stdout)["findings"]
        if row["what"] == "credentials"
    ]
    assert found.count("\n") == 5


@pytest.mark.parametrize(
    "arguments",
    [
        ["-p", "x", "--resume", "nosuch"],
        ["-p", "x", "--continue"],
        ["-p", "x", "--from", "nosuch"],
        ["replay", "nosuch"],
        ["log", "nosuch"],
        ["doctor", "nosuch"],
        ["recover", "1", "--session", "nosuch"],
        ["sessions", "export", "nosuch"],
        ["sessions", "fork", "nosuch"],
        ["sessions", "rename", "nosuch", "x"],
        ["compact", "nosuch", "--undo"],
        ["mcp", "get", "nosuch"],
        ["mcp", "remove", "nosuch"],
        ["plugin", "remove", "nosuch"],
    ],
)
def test_unknown_names_are_wrong_usage(place: Place, arguments: list[str]) -> None:
    done = place.run(*arguments, env=place.server("http://127.0.0.1:9"))
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "ctxagent: there is no " in done.stderr


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (["-p", "hi", "doctor"], "-p"),
        (["--continue", "sessions", "list"], "--continue"),
        (["--resume", "x", "config"], "--resume"),
        (["--fork", "demo"], "--fork"),
    ],
)
def test_option_without_effect_is_refused(place: Place, arguments: list[str], flag: str) -> None:
    done = place.run(*arguments)
    assert done.returncode == 2
    assert f"does not take {flag}" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["--server", "--fetch-tokenizer"],
            "--fetch-tokenizer and --server are 2 different actions",
        ),
        (["x", "--repair", "--server"], "--server and --repair are 2 different actions"),
        (["x", "--server"], "--server does not take a session"),
    ],
)
def test_doctor_does_one_thing_at_a_time(place: Place, arguments: list[str], told: str) -> None:
    done = place.run("doctor", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


@pytest.mark.parametrize("arguments", ["", "-p"])
def test_closed_standard_input_is_no_task(place: Place, arguments: str) -> None:
    done = subprocess.run(
        f"exec {COMMAND} {arguments} <&-", shell=True, cwd=place.project, capture_output=True,
        env=place.server("http://127.0.0.1:9"), text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("ctxagent: there is no task\n")


def test_a_preset_is_an_option(place: Place) -> None:
    shown = place.run("--preset", "ctx-001", "-c", "compact.preset=v5", "config")
    assert 'compact.preset = "ctx-001"' in shown.stdout
    unknown = place.run("--preset", "v6", "config")
    assert unknown.returncode == 2
    assert "'v6' is not one of" in unknown.stderr
    option = next(each for each in main.params if each.name == "preset")
    assert list(option.to_info_dict()["type"]["choices"]) == list(PRESETS)


def test_a_list_of_sessions_is_aligned(place: Place) -> None:
    with Server([Say("Yes."), Say("Yes.")]) as server:
        env = place.server(server.url)
        place.run("-p", "hi", "--session-id", "a", env=env)
        place.run("-p", "hi", env=env)
    rows = place.run("sessions", "list").stdout.splitlines()
    assert len(rows) == 2
    assert len({row.index(" KiB") for row in rows}) == 1


def test_titles_are_clean_wherever_they_are_listed(place: Place) -> None:
    with Server([Say("a \x1b]0;pwn\x07")]) as server:
        said = place.run("-p", "b \x1b]0;pwn\x07", env=place.server(server.url))
    assert said.stdout == "a \x1b]0;pwn\x07\n"  # a program gets what was said
    listed = place.run("sessions", "list").stdout
    assert "pwn" in listed
    assert "\x1b" not in listed


def test_call_that_needs_approval_is_denied_and_names_the_rule(place: Place) -> None:
    with Server([Say(tools=[("Bash", {"command": "touch a"})]), Say("I may not.")]) as server:
        done = place.run("-p", "go", "--output-format", "json", env=place.server(server.url))
    result = document(done)
    assert (result["status"], result["exit_code"], result["result"]) == ("denied", 3, "I may not.")
    assert result["denials"][0]["rule"] == "Bash(touch:*)"
    assert "Bash(touch:*)" in result["error"]["message"]
    assert not (place.project / "a").exists()


def test_limits(place: Place) -> None:
    with Server(lambda body: Say(tools=[("Bash", {"command": "echo x"})])) as server:
        done = place.run(
            "-p", "go", "--max-turns", "3", "--output-format", "json", env=place.server(server.url)
        )
    result = document(done)
    assert (result["status"], result["exit_code"], result["calls"]) == ("limit", 4, 3)


def test_a_budget_needs_a_price(place: Place) -> None:
    done = place.run(
        "-p",
        "go",
        "--max-budget-usd",
        "1",
        "--model",
        "who",
        env=place.server("http://127.0.0.1:9"),
    )
    assert done.returncode == 2
    assert "price of who" in done.stderr


@pytest.mark.parametrize(
    ("step", "kind", "told"),
    [
        (Fail(401, "bad key"), "KeyRefused", "ANTHROPIC_API_KEY"),
        (Fail(404, "no such model"), "RequestRejected", "claude-sonnet-5-5"),
        (Say("x", error=("invalid_request_error", "bad")), "RequestRejected", "bad"),
    ],
)
def test_refusals_are_reported_and_the_session_continues(
    place: Place, step: Any, kind: str, told: str
) -> None:
    answers = [step]
    with Server(lambda body: answers[-1], lenient=True) as server:
        first = place.run("-p", "go", "--output-format", "json", env=place.server(server.url))
        asked = len(server.requests)
        answers.append(Say("Better."))
        again = place.run("--continue", "-p", "go on", env=place.server(server.url))
    result = document(first)
    assert (result["exit_code"], result["error"]["type"]) == (5, kind)
    assert told in result["error"]["message"]
    assert asked == (1 if kind == "KeyRefused" else 3), "the request, a plain and a tiny one"
    assert (again.returncode, again.stdout) == (0, "Better.\n")
    assert server.rejected == []
    assert len(server.requests) == asked + 1


@over_each_wire
def test_passing_faults_are_retried(place: Place, wire: Wire) -> None:
    steps = [
        Fail(529, "overloaded"),
        Fail(429, "slow down", headers={"retry-after": "0"}),
        Say("half of it", fault="cut"),
        Say("some", error=("overloaded_error", "busy"), after=2),
        Say("whole", fault="end", after=3),
        Say("whole"),
    ]
    with wire(steps) as server:
        done = place.run("-p", "go", "--output-format", "json", env=place.environ(server.variables))
    result = document(done)
    assert (result["status"], result["result"]) == ("ok", "whole")
    assert done.stderr.count("retry ") == 5
    assert server.rejected == []


def test_piped_input_is_the_task(place: Place) -> None:
    with Server(lambda body: Say("Yes.")) as server:
        env = place.server(server.url)
        for arguments in (["-p", "-"], ["-p"], []):
            done = place.run(*arguments, env=env, stdin="is it\nso?")
            assert (done.returncode, done.stdout) == (0, "Yes.\n")
            assert "is it\\nso?" in json.dumps(server.requests[-1]["messages"])


@pytest.mark.parametrize(
    "task", ["- fix this", "--permission-mode=bypass", "-c", "--no-such-option", "-p", "--", "---"]
)
def test_a_task_may_begin_with_a_dash(place: Place, task: str) -> None:
    exact = task in ("-c", "-p", "--")  # in these forms only
    forms = [[f"--print={task}"], [f"-p{task}"]] + ([] if exact else [["-p", task]])
    with Server(lambda body: Say("Yes.")) as server:
        for form in forms:
            done = place.run(*form, "--permission-mode", "ask", env=place.server(server.url))
            assert (done.returncode, done.stdout) == (0, "Yes.\n")
            assert task in json.dumps(server.requests[-1]["messages"])


def test_the_name_of_an_option_after_p_is_the_option(place: Place) -> None:
    with Server(lambda body: Say("Yes.")) as server:
        env = place.server(server.url)
        done = place.run("-p", "--output-format", "json", env=env, stdin="hello")
        assert document(done)["result"] == "Yes."
        assert place.run("-p", "-", "--model", env=env).returncode == 2


def test_an_open_standard_input_does_not_block(place: Place) -> None:
    reading, writing = os.pipe()
    with Server([Say("Yes.")]) as server:
        done = place.run("-p", "hello", env=place.server(server.url), stdin=reading)
    os.close(reading)
    os.close(writing)
    assert done.stdout == "Yes.\n"


@pytest.mark.variants
@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_the_run_and_keeps_what_was_done(place: Place, name: int) -> None:
    (place.project / "pipe").unlink(missing_ok=True)
    os.mkfifo(place.project / "pipe")
    sleep = f"sleep 300.{secrets.randbelow(10**9)}"
    command = f"echo begun > pipe; {sleep}"
    with Server([Say(tools=[("Bash", {"command": command})]), Say("Fine.")]) as server:
        env = place.server(server.url)
        with place.start(
            "-p", "go", "--permission-mode", "bypass", "--output-format", "json", env=env,
            stdout=subprocess.PIPE,
        ) as run:  # fmt: skip
            assert (place.project / "pipe").read_text() == "begun\n"  # waits for the command
            run.send_signal(name)
            run.send_signal(name)  # a shell passes on what the kernel has sent
            out, _ = run.communicate(timeout=PATIENCE)
        assert run.returncode == 130
        assert json.loads(out)["status"] == "interrupted"
        assert comes(lambda: not running(sleep))
        again = place.run("--continue", "-p", "go on", env=env)
    assert again.stdout == "Fine.\n"
    assert server.rejected == []


def test_a_run_under_nohup_outlives_its_terminal(place: Place) -> None:
    for name in ("begun", "enough"):
        os.mkfifo(place.project / name)
    command = "echo yes > begun; cat enough"
    with (
        Server([Say(tools=[("Bash", {"command": command})]), Say("Done.")]) as server,
        subprocess.Popen(
            ["nohup", COMMAND, "-p", "go", "--permission-mode", "bypass"],
            cwd=place.project, env=place.server(server.url), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        ) as run,
    ):  # fmt: skip
        assert (place.project / "begun").read_text() == "yes\n"
        run.send_signal(signal.SIGHUP)
        (place.project / "enough").write_text("go on\n")
        out, _ = run.communicate(timeout=PATIENCE)
    assert (run.returncode, out) == (0, "Done.\n")


def test_killed_run_continues(place: Place) -> None:
    os.mkfifo(place.project / "pipe")
    sleep = f"sleep 300.{secrets.randbelow(10**9)}"
    slow = ("Bash", {"command": f"{sleep} & echo begun > pipe; wait"})
    quick = ("Bash", {"command": "echo done"})
    with Server([Say("First.", tools=[quick]), Say("Then.", tools=[quick, slow]), Say("On.")]) as s:
        env = place.server(s.url)
        run = place.start(
            "-p", "go", "--permission-mode", "bypass", env=env,
            stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        assert (place.project / "pipe").read_text() == "begun\n"
        run.kill()
        run.wait()
        before = place.entries()
        with place.logs()[0].open("ab") as log:
            log.write(b'{"v": 1, "seq": 99, "kind": "tool_res')  # and torn in the middle of a write
        done = place.run("--continue", "-p", "go on", "--verbose", env=env)
    assert (done.returncode, done.stdout) == (0, "On.\n")
    assert "incomplete last line" in done.stderr
    assert s.rejected == []
    assert place.entries()[: len(before)] == before
    sent = json.dumps(s.requests[-1]["messages"])
    assert sent.count("outcome unknown") == 1
    assert '"go on"' in sent
    for pid in running(sleep):  # where no sandbox has ended it
        os.kill(pid, signal.SIGKILL)


def test_resume_by_id_and_fork(place: Place) -> None:
    with Server([Say("One."), Say("Two."), Say("Three.")]) as server:
        env = place.server(server.url)
        place.run("-p", "first", env=env)
        (log,) = place.logs()
        place.run("--resume", log.parent.name[:-2], "-p", "second", env=env)
        before = log.read_bytes()
        place.run("--continue", "--fork", "-p", "third", env=env)
    assert log.read_bytes() == before
    assert len(place.logs()) == 2
    fork = next(p for p in place.logs() if p != log)
    opened = [e for e in map(json.loads, fork.read_text().splitlines()) if e["kind"] == "session"]
    assert opened[-1]["parent"]["id"] == log.parent.name
    third = server.requests[-1]["messages"]
    assert [m["role"] for m in third] == ["user", "assistant"] * 2 + ["user"]
    listed = place.run("sessions", "list").stdout
    assert log.parent.name in listed
    assert "first" in listed
    shown = place.run("sessions", "show", log.parent.name).stdout
    assert "## User" in shown
    assert "Two." in shown
    exported = place.run("sessions", "export", log.parent.name, "--format", "json").stdout
    assert json.loads(exported)[0]["kind"] == "session"
    copy = place.run("sessions", "fork", log.parent.name).stdout.strip()
    assert [p.parent.name for p in place.logs()].count(copy) == 1
    assert place.run("sessions", "show", "nope").returncode == 2


def test_instruction_files_are_sent_once(place: Place) -> None:
    (place.project / "AGENTS.md").write_text("Always say please.")
    (place.project / "CLAUDE.md").symlink_to("AGENTS.md")
    (place.root / "CLAUDE.md").write_text("From the parent.")
    home = place.root / "home" / ".config" / "ctxagent"
    home.mkdir(parents=True)
    (home / "AGENTS.md").write_text("From the user.")
    with Server([Say("Yes."), Say("Yes.")]) as server:
        env = place.server(server.url)
        place.run("-p", "hello", env=env)
        place.run("--continue", "-p", "hello again", env=env)
    for request in server.requests:
        sent = json.dumps(request["messages"])
        for words in ("Always say please.", "From the parent.", "From the user."):
            assert sent.count(words) == 1
        assert sent.index("From the user.") < sent.index("From the parent.")
        assert sent.index("From the parent.") < sent.index("Always say please.")


def test_other_servers_and_unknown_models(place: Place) -> None:
    with Server([Say("Hi."), Say("Hi.")], models={"local-7b": (32_000, 4_000)}) as server:
        env = place.server(server.url)
        arguments = ["-p", "hello", "--output-format", "json", "--model"]
        asked = document(place.run(*arguments, "local-7b", env=env))
        guessed = document(place.run(*arguments, "mystery", env=env))
        given = place.run("config", "--model", "x", env=env)
    assert asked["context"]["window"] == 32_000
    assert server.requests[0]["max_tokens"] == 4_000
    assert guessed["context"]["window"] == 200_000
    assert asked["cost_usd"] is None
    assert given.returncode == 2  # options of the agent stand before the command


def test_a_short_or_mistyped_model_name_before_the_first_request(place: Place) -> None:
    with Server(lambda body: Say("Hi.")) as server:
        env = place.server(server.url)
        done = place.run("-p", "hello", "--model", "haiku", env=env)
        assert done.returncode == 0
        assert server.requests[-1]["model"] == "claude-haiku-5-5"
    done = place.run("-p", "hello", "--model", "claude-sonet-5-5")  # there is no key
    assert done.returncode == 5
    assert "note: claude-sonet-5-5 is not a known model: did you mean claude-sonnet" in done.stderr


def test_config_and_doctor(place: Place) -> None:
    (place.project / ".agentrc").write_text('[permissions]\nallow = ["Bash(make:*)"]\n')
    shown = place.run("config", "--explain")
    assert "permissions.allow = []" in shown.stdout
    assert "ctxagent config --trust" in shown.stderr
    assert place.run("config", "--trust").returncode == 0
    assert 'permissions.allow = ["Bash(make:*)"]' in place.run("config").stdout
    found = place.run("doctor")
    assert "ok    settings: all applied" in found.stdout
    assert found.returncode == 1
    assert "FAIL  credentials" in found.stdout
    assert place.run("doctor", env=place.server("http://127.0.0.1:9")).returncode == 0


def test_untrusted_project_file_is_reported_by_every_command_that_reads_it(place: Place) -> None:
    (place.project / ".agentrc").write_text('[permissions]\nallow = ["Bash(make:*)"]\n')
    told = "note: " + str(place.project / ".agentrc") + " is not trusted, so permissions.allow"
    with Server([Say("Done."), Say("Done.")]) as server:
        env = place.server(server.url)
        text = place.run("-p", "work", env=env)
        as_json = place.run("-p", "work", "--output-format", "json", env=env)
        found = place.run("doctor", env=env)
    assert text.stdout == "Done.\n"
    assert document(as_json)["status"] == "ok"
    compacted = place.run("compact", "--dry-run", env=env)
    for done in (text, as_json, compacted):
        assert done.stderr.count(told) == 1
        assert "not trusted" not in done.stdout
    assert found.returncode == 0
    assert told.replace("note: ", "note  settings: ") in found.stdout


def test_the_demo_runs_to_its_end(place: Place) -> None:
    done = place.run("demo", "--fast")
    assert done.returncode == 0, done.stderr
    assert "scripted" in done.stdout
    assert "FAILED (failures=1)" in done.stdout
    assert "Ran 4 tests" in done.stdout
    assert "OK" in done.stdout
    # How many depends on the lengths of the paths on this machine.
    assert re.search(r"^  [2-9] old results cleared", done.stdout, re.M)
    for shown in (  # every layer, on real results
        "lines (/unfold)",
        "summary written by the model",
        "monday 0001 INFO checkout of order 3641 took 12 ms",
        "Order 3641, at logs/monday.log:1.",
    ):
        assert shown in " ".join(done.stdout.split())  # lines break where the width has it
    recalled = done.stdout.partition("● Recall")[2].partition("Order 3641")[0]
    assert "monday 0001 INFO checkout of order 3641" in recalled
    assert "The project and the session of this demo are deleted." in done.stdout


@pytest.mark.parametrize(
    ("shown", "arguments", "fast"),
    [(True, [], False), (True, ["--fast"], True), (False, [], True)],
)
def test_the_demo_pauses_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, shown: bool, arguments: list[str], fast: bool
) -> None:
    played = []

    def play(folder: Path, *, fast: bool, is_kept: bool = False) -> int:
        played.append(fast)
        return 0

    monkeypatch.setattr("ctxagent.agent.cli.demo.play", play)
    monkeypatch.setattr("sys.stdout.isatty", lambda: shown)
    with pytest.raises(SystemExit) as left:
        main(["demo", *arguments])
    assert (left.value.code, played) == (0, [fast])


def test_the_demo_removes_its_folder_while_files_are_created_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The thread of the search index creates files."""
    write = 'n=0; while : > "$0/$n"; do n=$((n+1)); done'  # ends when the folder is gone
    writers: list[subprocess.Popen[bytes]] = []

    def play(folder: Path, *, fast: bool, is_kept: bool = False) -> int:
        command = ["sh", "-c", write, str(folder)]
        writers.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        assert comes((folder / "100").exists)
        return 0

    monkeypatch.setattr("ctxagent.agent.cli.demo.play", play)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    try:
        with pytest.raises(SystemExit) as left:
            main(["demo", "--fast"])
        assert left.value.code == 0
        writers[0].wait(PATIENCE)
    finally:
        writers[0].kill()
        writers[0].wait()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_demo_completes_its_todo_list_and_says_what_a_replay_shows(place: Place) -> None:
    done = place.run("demo", "--fast", "--keep", "kept")
    assert done.returncode == 0, done.stderr
    hint = " ".join(done.stdout.partition("What to do next\n")[2].split())
    assert (
        "Clearing saves little in such a small window: replay a session of your own to see what"
        in hint
    )
    cart = str(place.project / "kept" / "cart")
    env = place.environ({"CTXAGENT_STATE_DIR": str(place.project / "kept" / "state")})
    state = place.run("--cwd", cart, "recover", "2", env=env).stdout
    assert "Intent:" in state
    assert "See the tests fail" not in state.partition("Stands:")[2].partition("Next:")[0]
    log = place.run("--cwd", cart, "log", "--entries", "--json", env=env).stdout
    lists = [line for line in log.splitlines() if " todos: " in line]
    assert "3 todos: 3 completed, 0 in progress, 0 pending" in lists[-1]


@pytest.mark.slow
def test_demo_ends_with_a_summary_and_next_steps(place: Place) -> None:
    done = place.run("demo", "--fast", "--keep", "kept here")
    assert done.returncode == 0, done.stderr
    told, _, ending = done.stdout.partition("What you saw\n")
    [log] = (place.project / "kept here").rglob("log.jsonl")
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    saved = {e.get("layer", "summary"): e["tokens_before"] - e["tokens_after"]
             for e in entries if e["kind"] in ("mask", "summary")}  # fmt: skip
    for layer, name in (("microcompact", "cleared"), ("summary", "summary")):
        assert re.search(rf"^  {name} +{saved[layer]:,} tokens less: ", ending, re.M)
    [offloaded] = (e["details"]["tokens_saved"] for e in entries if e.get("offloaded"))
    assert re.search(rf"^  moved to files +{offloaded:,} tokens less: ", ending, re.M)
    replies = [e for e in entries if e["kind"] == "assistant"]
    largest = max(e["usage"]["input"] for e in replies)
    assert re.search(rf"^  context +{largest:,} tokens in the largest request", ending, re.M)
    # Prices are those of a real model, and nobody can take them for money that was spent.
    dollars = sum(e["cost_usd"] for e in replies)
    assert f"would have cost ${dollars:.2f}, without its" in " ".join(ending.split())
    assert re.search(r"^  money +none spent: the model is scripted", ending, re.M)
    assert "nothing is spent: prices are those of claude-" in " ".join(told.split())
    assert "price not known" not in told
    assert told.count("would cost $") == told.count("$") - 1 > 4  # one is the plan of a summary
    assert {e["model"] for e in replies} == {"scripted-as-claude-sonnet-5-5"}
    for step in ("export ANTHROPIC_API_KEY", "cd PROJECT && ctxagent", "/help", "kept here"):
        assert step in ending
    assert max(len(line) for line in ending.splitlines() if str(log.parents[5]) not in line) <= 80
    command = next(line for line in ending.splitlines() if "ctxagent replay" in line)
    assert place.run(*shlex.split(command)[1:]).returncode == 0


@pytest.mark.parametrize("steps", ["a job", "nothing"])
def test_an_interrupt_after_the_result_changes_nothing(place: Place, steps: str) -> None:
    """The interrupt arrives while the process ends a job that ignores SIGTERM, or while it ends
    itself.
    """
    sleep = f"sleep 1.{secrets.randbelow(10**9)}"
    command = f"trap '' TERM; echo up; while :; do {sleep}; done"
    job = Say(tools=[("Bash", {"command": command, "run_in_background": True})])
    with (
        Server([*([job] if steps == "a job" else []), Say("Started.")]) as server,
        place.start(
            "-p", "go", "--permission-mode", "bypass", "--output-format", "json",
            env=place.server(server.url), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as run,
    ):  # fmt: skip
        assert run.stdout is not None
        first = run.stdout.readline()
        run.send_signal(signal.SIGINT)
        rest, err = run.communicate(timeout=PATIENCE)
    assert json.loads(first)["status"] == "ok"
    assert (rest, err, run.returncode) == ("", "", 0)
    assert comes(lambda: not running(sleep))


def test_closed_output_ends_the_run(place: Place) -> None:
    endless = ("Bash", {"command": "while :; do echo x; sleep 0.01; done"})
    with Server([Say(tools=[endless])]) as server:
        run = place.start(
            "-p", "go", "--permission-mode", "bypass", "--output-format", "stream-json",
            env=place.server(server.url), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert run.stdout is not None
        assert run.stderr is not None
        assert "session_opened" in run.stdout.readline()
        run.stdout.close()
        with run.stderr as stream:
            assert stream.read() == ""
        assert run.wait(PATIENCE) == 1
    (end,) = (entry for entry in place.entries() if entry["kind"] == "end")
    assert end["status"] == "interrupted"


def limited(place: Place, blocks: int, env: dict[str, str]) -> dict[str, Any]:
    """Return the result of a run whose files may have at most this many blocks of 512 bytes."""
    run = f"ulimit -f {blocks}; exec {COMMAND} -p go --permission-mode bypass --output-format json"
    done = subprocess.run(
        ["sh", "-c", run], cwd=place.project, env={**env, "POSIXLY_CORRECT": "1"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return document(done)


def test_log_cannot_be_written_at_all(place: Place) -> None:
    result = limited(place, 0, place.server("http://127.0.0.1:9"))
    assert (result["exit_code"], result["error"]["type"]) == (1, "RecordError")


def test_log_cannot_be_written_any_more(place: Place) -> None:
    def play(body: Body) -> Say:
        return Say(tools=[("Bash", {"command": f"seq {len(body['messages'])} 4000"})])

    with Server(play) as server:
        result = limited(place, 160, place.server(server.url))
    assert (result["exit_code"], result["error"]["type"]) == (1, "RecordError")
    calls = [e for e in place.entries() if e["kind"] == "assistant"]
    assert result["calls"] == len(calls) > 0
    assert result["cost_usd"] == pytest.approx(sum(e["cost_usd"] for e in calls))
    assert result["log"] == str(place.logs()[0])
    assert result["session_id"] == place.logs()[0].parent.name


@pytest.mark.variants
@pytest.mark.parametrize(
    ("encoding", "said", "printed"),
    [
        ("utf-8", "a\ud800b", "a{}b\n"),
        ("latin-1", "to \u2192 me", "to ? me\n"),
        ("no-such", "a\ud800b", "a{}b\n"),
    ],
)
def test_characters_that_the_output_cannot_encode_are_replaced(
    place: Place, encoding: str, said: str, printed: str
) -> None:
    with Server([Say(said)]) as server:
        env = {**place.server(server.url), "PYTHONIOENCODING": encoding}
        done = place.run("-p", "go", env=env)
    assert (done.returncode, done.stdout) == (0, printed.format("?")), done.stderr
    shown = place.run("sessions", "show", place.logs()[0].parent.name, env=env, text=False)
    assert printed.format("\ufffd").encode() in shown.stdout, shown.stderr


def test_input_with_invalid_encoding(place: Place) -> None:
    with Server([Say("Yes.")]) as server:
        env = {**place.server(server.url), "PYTHONIOENCODING": "utf-8:strict"}
        done = place.run("-p", env=env, stdin=b"so \xff?", text=False)
    assert (done.returncode, done.stdout) == (0, b"Yes.\n"), done.stderr
    assert "so \\ufffd?" in json.dumps(server.requests[-1]["messages"])


def test_internal_error_has_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> int:
        return int({}["nowhere"])

    with pytest.raises(SystemExit) as left:
        run_and_exit(fail)
    told = capsys.readouterr()
    assert (left.value.code, told.out) == (1, "")
    assert "KeyError: 'nowhere'" in told.err
    assert "test_command.py:" in told.err
    assert "Traceback" not in told.err


@pytest.mark.parametrize(
    ("fault", "code", "status"),
    [(ValueError("odd"), 1, "error"), (KeyboardInterrupt(), 130, "interrupted")],
)
def test_json_output_is_always_one_document(fault: BaseException, code: int, status: str) -> None:
    def fail() -> int:
        raise fault

    out = io.StringIO()
    front = Headless("json", out, io.StringIO())
    with pytest.raises(SystemExit) as left:
        run_and_exit(fail, front.fail)
    assert left.value.code == code
    result = json.loads(out.getvalue())
    assert (result["exit_code"], result["status"]) == (code, status)


@pytest.mark.variants
@over_each_wire
def test_a_copy_reads_what_the_original_offloaded(place: Place, wire: Wire) -> None:
    with wire([Say(tools=[("Bash", {"command": "seq 30000"})]), Say("Done.")]) as server:
        place.run("-p", "go", "--permission-mode", "bypass", env=place.environ(server.variables))
    (kept,) = place.state.glob("projects/*/sessions/*/offloaded/*")
    read = ("Read", {"path": str(kept), "offset": 29_000, "limit": 5})
    with wire([Say(tools=[read]), Say("Seen.")]) as server:
        env = place.environ(server.variables)
        done = place.run("--continue", "--fork", "-p", "look", env=env)
    assert (done.returncode, done.stdout) == (0, "Seen.\n"), done.stderr
    assert "29001" in json.dumps(server.requests[-1]["messages"])


def test_it_runs_inside_its_own_bash(place: Place) -> None:
    inner = ("Bash", {"command": f"{COMMAND} config"})
    with Server([Say(tools=[inner]), Say("Done.")]) as server:
        place.run("-p", "go", "--permission-mode", "bypass", env=place.server(server.url))
    (result,) = (e for e in place.entries() if e["kind"] == "tool_result")
    assert not result["is_error"], result["content"]


def test_it_works_without_git(place: Place, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    with Server([Say("Yes.")]) as server:
        done = place.run("-p", "go", env={**place.server(server.url), "PATH": str(programs)})
    assert (done.returncode, done.stdout) == (0, "Yes.\n"), done.stderr
    assert "Git: " in json.dumps(server.requests[0]["messages"])


def test_git_gets_no_key(place: Place, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    seen = tmp_path / "seen"
    real = shutil.which("git")
    script = f'#!/bin/sh\ncase "$*" in *status*) env >> {seen};; esac\nexec {real} "$@"\n'
    (programs / "git").write_text(script)
    (programs / "git").chmod(0o755)
    subprocess.run(["git", "init", "-q", place.project], check=True)
    with Server([Say("Yes.")]) as server:
        env = place.server(server.url)
        # With a sandbox none is taken from a temporary folder.
        env["PATH"] = f"{programs}:{env['PATH']}"
        place.run("-p", "go", "-c", "sandbox.mode=off", env=env)
    assert "Work tree: clean" in json.dumps(server.requests[0]["messages"])
    assert "GIT_OPTIONAL_LOCKS=0" in seen.read_text()
    assert "test-key-1" not in seen.read_text()


def test_doctor_shows_no_password(place: Place) -> None:
    done = place.run("doctor", env=place.server("http://me:s3cret@127.0.0.1:9"))
    assert "127.0.0.1:9" in done.stdout
    assert "s3cret" not in done.stdout


def test_reply_with_few_fields_can_be_recorded_and_sent_again(place: Place) -> None:
    deep: dict[str, Any] = {}
    for _ in range(480):
        deep = {"a": deep}
    lean = [
        {"type": "tool_use", "id": "same", "name": "Glob"},
        {"type": "tool_use", "id": "same", "name": "Glob", "input": {"pattern": "*"}},
        {"type": "tool_use", "id": "deep", "name": "Glob", "input": deep},
        {"type": "tool_use", "input": {}},
    ]
    with Server([Say(blocks=lean, stop_reason="tool_use"), Say("On."), Say("And on.")]) as server:
        env = place.server(server.url)
        done = place.run("-p", "go", env=env)
        again = place.run("--continue", "-p", "go on", env=env)
    assert (done.stdout, again.stdout) == ("On.\n", "And on.\n"), done.stderr + again.stderr
    assert server.rejected == []
    results = {e["tool_use_id"]: e for e in place.entries() if e["kind"] == "tool_result"}
    assert len(results) == 4
    assert "pattern" in results["same"]["content"]


@pytest.mark.parametrize("command", [["compact", "", "--dry-run"], ["doctor", ""]])
def test_an_empty_id_is_no_session(place: Place, command: list[str]) -> None:
    done = place.run(*command, env=place.server("http://127.0.0.1:9"))
    assert done.returncode == 2
    assert "no session ''" in done.stderr


def test_resumed_session_learns_what_others_changed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.project / "a.txt").write_text("one\n")
    (place.project / "b.txt").write_text("two\n")
    steps = [
        {
            "tools": [
                {"name": n, "input": {"path": f}} for n, f in (("Read", "a.txt"), ("Read", "b.txt"))
            ]
        },
        {"text": "Read."},
    ]
    script = tmp_path / "steps.json"
    script.write_text(json.dumps({"steps": steps}))
    options = ("--model", f"scripted:{script}", "--permission-mode", "bypass")
    assert place.run("-p", "read them", *options).returncode == 0
    (place.project / "b.txt").write_text("changed by somebody\n")
    script.write_text(json.dumps({"steps": [{"text": "I see."}]}))
    assert place.run("-p", "go on", "--continue", *options).returncode == 0
    told = [
        e["content"]
        for e in place.entries()
        if e["kind"] == "user" and e["source"] == "environment"
    ]
    assert "last read or wrote them: b.txt. To use" in told[-1]
    assert "a.txt" not in told[-1]


def test_a_value_of_the_preset_is_shown(place: Place) -> None:
    """`ctxagent config` shows it for every setting that can be "preset"."""
    shown = place.run("-c", "compact.preset=v5", "-c", "compact.at=0.5", "config").stdout
    rows = dict(line.split(" = ", 1) for line in shown.splitlines())
    assert rows["compact.at"] == "0.5"
    assert rows["move.above"] == "preset (40_000)"
    assert rows["truncate.at"] == 'preset ("off")'
    presets = {name for name, key in KEYS.items() if key.default == "preset"} - {"compact.at"}
    assert {name for name, value in rows.items() if value.startswith("preset (")} == presets


def test_the_new_name_of_a_section_counts(place: Place) -> None:
    file = place.root / "agentrc"
    file.write_text("[clear]\nkeep = 4\n\n[microcompact]\nkeep = 5\nabove = 6\n")
    env = {"CTXAGENT_CONFIG": str(file)}
    shown = place.run("config", env=env).stdout
    assert "clear.keep = 4\n" in shown
    assert "clear.above = 6\n" in shown
    env |= {"CTXAGENT_CLEAR_KEEP": "7", "CTXAGENT_MICROCOMPACT_KEEP": "8"}
    assert "clear.keep = 7\n" in place.run("config", env=env).stdout
