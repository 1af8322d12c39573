"""The comparison with other agents: what the server takes from any client, and a whole run of it
with a small agent in the place of pi, which leaves a process behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

from ..support.command import running

COMPARE = Path(__file__).parents[2] / "benchmarks" / "peers" / "compare.py"
AGENT = '''#!{python}
"""Speaks the Messages API in its plainest form. It forgets to hand in the third result."""
import json, os, pathlib, subprocess, sys, urllib.error, urllib.request

if "--version" in sys.argv:
    sys.exit("small agent 7.1")
home = pathlib.Path.home()
assert "{secret}" not in os.environ
anthropic = json.loads((home / ".pi/agent/models.json").read_text())["providers"]["anthropic"]
subprocess.Popen(["sleep", "{nap}"], start_new_session=True)
tool = {{"name": "bash", "description": "Run", "strict": False,
        "input_schema": {{"type": "object"}}}}
messages = [{{"role": "user", "content": sys.argv[-1]}}]
headers = {{"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}}
while True:
    body = {{"model": "m", "max_tokens": 9, "temperature": 1, "system": "Be brief.",
            "tools": [tool], "messages": messages}}
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
    told = subprocess.check_output(calls[0]["input"]["command"], shell=True, text=True)
    result = {{"type": "tool_result", "tool_use_id": calls[0]["id"], "content": told}}
    if len(messages) < 6:
        messages.append({{"role": "user", "content": [result]}})
    messages.append({{"role": "user", "content": "Go on."}})
'''


def test_a_comparison_counts_the_same_for_any_agent_and_leaves_nothing_running(
    tmp_path: Path,
) -> None:
    nap = str(100_000 + os.getpid())
    agent = tmp_path / "agent"
    agent.write_text(AGENT.format(python=sys.executable, nap=nap, secret="A_SECRET_OF_MINE"))
    agent.chmod(0o755)
    done = subprocess.run(
        [sys.executable, COMPARE, "--calls", "9", "--bytes", "3000",
         "--agent", "kimi=no-such-command", "--agent", f"pi={agent}"],
        text=True, capture_output=True, env={**os.environ, "A_SECRET_OF_MINE": "1"},
    )  # fmt: skip
    assert "kimi: skipped, there is no command no-such-command" in done.stderr
    assert "`tool_use` ids were found without `tool_result` blocks" in done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])["rows"]["pi"]
    counted = ("version", "exit status", "commands asked for", "outputs that came back whole")
    assert [figures[name] for name in counted] == ["7.1", "1", 3, 2]
    assert figures["requests"] == 4
    assert figures["  refused by a rule"] == 1
    assert figures["first prompt, tokens"] < 100
    assert 3 * 600 < figures["prompts in sum, tokens"] < 3 * 2000
    assert figures["cost of prompts, tokens"] == figures["prompts in sum, tokens"]  # no breakpoints
    assert figures["CPU, s"] > figures["CPU to the first request, s"] > 0
    assert running(f"sleep {nap}") == []
