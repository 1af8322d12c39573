"""Agents of others: the script gets back what the proxy has removed, and the guide's table."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .test_peers import small_agent

CLIENTS = Path(__file__).parents[2] / "benchmarks" / "clients"


@pytest.mark.full
def test_what_the_proxy_has_removed_comes_back_and_is_paid(tmp_path: Path) -> None:
    agent = small_agent(tmp_path)
    done = subprocess.run(
        [sys.executable, CLIENTS / "run.py", "--client", f"pi={agent}", "--scenario", "long",
         "--calls", "60", "--needs", "12", "--proxy"],
        text=True, capture_output=True, env=os.environ,
    )  # fmt: skip
    figures = json.loads(done.stdout.splitlines()[-1])["rows"]["pi"]
    assert figures["calls asked for"] == 60
    assert figures["older outputs asked for"] > 1
    came, asked = figures["  file, came back"].split("/")
    assert int(came) == int(asked) > 1
    assert figures["  refused by a rule"] == figures["  that failed"] == 0


def test_the_table_has_a_column_for_each_client_and_a_reason_for_each_dash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = CLIENTS.parent / "peers"
    monkeypatch.setattr(sys, "path", [str(CLIENTS), str(peers), *sys.path])
    monkeypatch.delitem(sys.modules, "agents", raising=False)  # another benchmark has this name too
    newest = importlib.import_module("newest")
    page = tmp_path / "page.md"
    page.write_text(f"Before.\n\n{newest.BEGIN}\n\na former table\n\n{newest.END}\n\nAfter.\n")
    monkeypatch.setattr(newest, "PAGE", page)
    cells = {"task": "yes", "file": "4 of 4", "refused": "0", "relative": "0.50"}
    good = {"version": "1.6.0", "date": "2026-01-02", "cells": cells, "why": {"bound": "no such"}}
    none = {"date": "2026-01-02", "cells": {}, "why": {"task": "no program"}}
    newest.write({"pi": good, "codex": none})
    text = page.read_text()
    assert text.startswith(f"Before.\n\n{newest.BEGIN}\n\n| | pi 1.6.0 |\n| --- | ---: |\n")
    assert text.endswith(f"{newest.END}\n\nAfter.\n")
    assert "| a task | yes |" in text
    assert "| bound thinking | – |" in text
    assert "- pi (bound thinking): no such.\n- codex: no program.\n" in text
    assert "a former table" not in text
    assert not newest._is_bad(good)
    assert not newest._is_bad(none)
    for changed in (
        {"refused": "1"}, {"file": "3 of 4"}, {"task": newest.NOT_PROXIED}, {"relative": "0.70"},
    ):  # fmt: skip
        assert newest._is_bad({**good, "cells": {**cells, **changed}})
