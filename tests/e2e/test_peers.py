"""The comparison with other agents: what the server accepts from any client, whole runs with a
small agent in place of pi that leaves a process behind, and a recorded session.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ..support.command import running

COMPARE = Path(__file__).parents[2] / "benchmarks" / "peers" / "compare.py"
AGENT = '''#!{python}
"""Speaks the Messages API in its plainest form. It can forget to hand in the third result, clear
all results but the newest, or offer only a shell."""
import json, os, pathlib, subprocess, sys, urllib.error, urllib.request

if "--version" in sys.argv:
    sys.exit("small agent 7.1")
home = pathlib.Path.home()
assert "{secret}" not in os.environ
anthropic = json.loads((home / ".pi/agent/models.json").read_text())["providers"]["anthropic"]
subprocess.Popen(["sleep", "{nap}"], start_new_session=True)
tools = [{{"name": name, "description": "Do", "strict": False,
          "input_schema": {{"type": "object", "properties": dict.fromkeys(given, {{}})}}}}
         for name, *given in (("bash", "command"), ("read", "path", "offset"),
                              ("write", "path", "content"))
         if name == "bash" or not {shell_only}]
messages = [{{"role": "user", "content": sys.argv[-1]}}]
headers = {{"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}}
while True:
    body = {{"model": "m", "max_tokens": 9, "temperature": 1, "system": "Be brief.",
            "tools": tools, "messages": messages}}
    asked = urllib.request.Request(
        anthropic["baseUrl"] + "/v1/messages", json.dumps(body).encode(), headers)
    try:
        reply = json.load(urllib.request.urlopen(asked))
    except urllib.error.HTTPError as error:
        sys.exit(error.read().decode())
    messages.append({{"role": "assistant", "content": reply["content"]}})
    calls = [block for block in reply["content"] if block["type"] == "tool_use"]
    if not calls:
        sys.exit()
    results = []
    for call in calls:
        given = call["input"]
        command = given.get("command") or "nl -ba " + given["path"]
        if "content" in given:
            pathlib.Path(given["path"]).open("x").write(given["content"])
        ran = subprocess.run(command, shell=True, text=True, stdout=subprocess.PIPE)
        print(json.dumps([call["name"], given, ran.returncode]), file=open("{log}", "a"))
        results.append(
            {{"type": "tool_result", "tool_use_id": call["id"], "content": ran.stdout}})
    for old in messages[2:] if {clears} else ():
        for block in old["content"]:
            if "content" in block:
                block["content"] = "[cleared]"
    if len(messages) < {kept}:
        messages.append({{"role": "user", "content": results}})
    messages.append({{"role": "user", "content": "Go on."}})
'''


RECORDED = [
    [("text", "I look.")],
    [("Read", {"file_path": "/p/a.py"}, "8\tx = 1\n9\ty = 2", False),
     ("Bash", {"command": "sed -n 1p a.py"}, "x = 1", False)],
    [("Edit", {"file_path": "/p/a.py", "old_string": "x", "new_string": "z"}, "Done.", False)],
    [("Bash", {"command": "pytest 'a'"}, "1 failed in test_a", True)],
]  # fmt: skip


NEEDS_AGAIN = [
    [("Bash", {"command": "grep -rn limit"}, "src/app/limits.py:41: MAX_UPLOAD_BYTES = 4", False)],
    [("Bash", {"command": "date"}, "Thu", False)],
    [("Bash", {"command": "grep MAX_UPLOAD_BYTES src/app/limits.py"}, "4", False)],
]  # fmt: skip


def small_agent(
    folder: Path,
    nap: str = "0",
    *,
    forgets: bool = False,
    clears: bool = False,
    shell_only: bool = False,
) -> Path:
    agent = folder / "agent"
    names = {"secret": "A_SECRET_OF_MINE", "nap": nap, "log": folder / "log", "clears": clears}
    names["shell_only"] = shell_only
    kept = 6 if forgets else 1_000
    agent.write_text(AGENT.format(python=sys.executable, kept=kept, **names))
    agent.chmod(0o755)
    return agent


def recording(path: Path, replies: Sequence[Sequence[Any]] = RECORDED) -> Path:
    """Write replies in the format of Claude Code."""
    rows: list[dict[str, object]] = []
    for number, reply in enumerate(replies):
        blocks, results = [], []
        for place, (name, given, *result) in enumerate(reply):
            if not result:
                blocks.append({"type": name, "text": given})
                continue
            id, (text, failed) = f"toolu_{number}_{place}", result
            blocks.append({"type": "tool_use", "id": id, "name": name, "input": given})
            results.append(
                {"type": "tool_result", "tool_use_id": id, "content": text, "is_error": failed}
            )
        said = {"id": f"msg_{number}", "role": "assistant", "content": blocks}
        rows.append({"type": "assistant", "uuid": f"a{number}", "message": said})
        heard = {"role": "user", "content": results}
        rows.append({"type": "user", "uuid": f"u{number}", "message": heard})
    path.write_text("".join(json.dumps({"sessionId": "s", **row}) + "\n" for row in rows))
    return path


def test_a_comparison_counts_the_same_for_any_agent_and_leaves_nothing_running(
    tmp_path: Path,
) -> None:
    nap = str(100_000 + os.getpid())
    agent = small_agent(tmp_path, nap, forgets=True)
    done = subprocess.run(
        [sys.executable, COMPARE, "--calls", "9", "--bytes", "3000",
         "--agent", "kimi=no-such-command", "--agent", f"pi={agent}"],
        text=True, capture_output=True, env={**os.environ, "A_SECRET_OF_MINE": "1"},
    )  # fmt: skip
    assert "kimi: skipped, there is no command no-such-command" in done.stderr
    assert "`tool_use` ids were found without `tool_result` blocks" in done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])["rows"]["pi"]
    counted = ("version", "exit status", "calls asked for", "outputs that came back whole")
    assert [figures[name] for name in counted] == ["7.1", "1", 3, 2]
    assert figures["requests"] == 4
    assert figures["  refused by a rule"] == 1
    assert figures["first prompt, tokens"] < 150
    assert 3 * 600 < figures["prompts in sum, tokens"] < 3 * 2000
    assert figures["cost of prompts, tokens"] == figures["prompts in sum, tokens"]  # no breakpoints
    assert figures["CPU, s"] > figures["CPU to the first request, s"] > 0
    assert running(f"sleep {nap}") == []


def test_a_recorded_session_is_played_by_the_tools_that_every_agent_has(tmp_path: Path) -> None:
    agent, session = small_agent(tmp_path), recording(tmp_path / "s.jsonl")
    done = subprocess.run(
        [sys.executable, COMPARE, "--agent", f"pi={agent}",
         "--recording", session, "--recording", session],
        text=True, capture_output=True,
    )  # fmt: skip
    assert done.stderr == ""
    tables = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [table["benchmark"].split(", in a")[0] for table in tables] == [
        "s.jsonl, 4 calls in 4 replies"
    ] * 2
    counted = ("exit status", "calls asked for", "outputs that came back whole", "requests")
    figures = [table["rows"]["pi"] for table in tables]
    assert [[one[name] for name in counted] for one in figures] == [["0", 4, 4, 4]] * 2
    cost = sum(one["cost of prompts, tokens"] for one in figures)
    assert done.stdout.splitlines()[-1].endswith(f"of all recordings: pi {cost:,.0f}")
    calls = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()][-4:]
    file = calls[0][1]["path"]
    folder, end = str(Path(file).parent), "END_OF_RECORDED_ARGUMENTS"
    shown = f"cat {folder}/2 <<'{end}'\nsed -n 1p a.py\n{end}"
    printed = f"{folder}/run 4 1 <<'{end}'\npytest 'a'\n{end}"
    assert calls == [
        ["read", {"path": file, "offset": 8}, 0],
        ["bash", {"command": shown}, 0],
        ["write", {"path": file, "content": "x\nz"}, 0],
        ["bash", {"command": printed}, 1],
    ]


def test_an_agent_with_only_a_shell_reads_and_writes_files_with_it(tmp_path: Path) -> None:
    agent, session = small_agent(tmp_path, shell_only=True), recording(tmp_path / "s.jsonl")
    done = subprocess.run(
        [sys.executable, COMPARE, "--agent", f"pi={agent}", "--recording", session],
        text=True, capture_output=True,
    )  # fmt: skip
    assert done.stderr == ""
    (table,) = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert table["rows"]["pi"]["outputs that came back whole"] == 4
    calls = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()][-4:]
    assert {name for name, _, _ in calls} == {"bash"}
    read, _, write, _ = (given["command"].split(" ") for _, given, _ in calls)
    assert read[:3] == ["sed", "-n", "8,9p"]
    assert write[:2] == ["cat", ">"]
    assert write[2] == read[3]


@pytest.mark.variants
@pytest.mark.parametrize("clears", [False, True])
def test_cleared_results_are_requested_again_when_needed(tmp_path: Path, clears: bool) -> None:
    agent = small_agent(tmp_path, clears=clears)
    session = recording(tmp_path / "s.jsonl", NEEDS_AGAIN)
    done = subprocess.run(
        [sys.executable, COMPARE, "--agent", f"pi={agent}", "--recording", session],
        text=True, capture_output=True,
    )  # fmt: skip
    assert done.stderr == ""
    (figures,) = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    found = figures["rows"]["pi"]
    assert found["calls asked for"] == 3
    assert found["calls for what was needed again"] == int(clears)
    assert found["requests"] == 4 + clears
    assert (found["  of it for what was needed again"] > 0) == clears
    calls = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()][
        -3 - clears :
    ]
    assert [given["command"].splitlines()[1] for _, given, _ in calls] == [
        "grep -rn limit", "date", *["grep -rn limit"] * clears,
        "grep MAX_UPLOAD_BYTES src/app/limits.py",
    ]  # fmt: skip
