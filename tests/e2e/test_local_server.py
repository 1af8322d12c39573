"""A server on this machine that reports timings, with the real command."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ctxagent.agent.session.entries import Assistant, ToolResult
from ctxagent.agent.session.log import read_log

from ..support.command import Place
from ..support.server.chat import ChatServer
from ..support.server.loopback import Body, Say

READ_S, WRITTEN_S = 0.02, 0.1  # per token


class TimedServer(ChatServer):
    """A server like llama.cpp; it may forget its cache."""

    model, address_variable, key_variable = "llamacpp/m", "LLAMACPP_BASE_URL", "LLAMA_API_KEY"
    forgets = False

    def events(self, say: Say, whole: Body) -> Iterator[Body]:
        for event in super().events(say, whole):
            if usage := event.get("usage"):
                prompt, written = usage["prompt_tokens"], usage["completion_tokens"]
                cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
                cached = 0 if self.forgets else cached
                event["usage"] = {"prompt_tokens": prompt, "completion_tokens": written}
                event["timings"] = {
                    "cache_n": cached, "prompt_n": prompt - cached, "predicted_n": written,
                    "prompt_ms": 1_000 * READ_S * (prompt - cached),
                    "predicted_ms": 1_000 * WRITTEN_S * written,
                }  # fmt: skip
            yield event


def run(tmp_path: Path, *, forgets: bool) -> tuple[list[Any], str]:
    """Run three calls, the second with a result of 2,000 tokens; return the log and the errors."""
    place = Place(tmp_path)
    (place.project / "long.txt").write_text("".join(f"line {n} walrus\n" for n in range(600)))
    steps = [
        Say("First the folder.", tools=[("Bash", {"command": "ls"})]),
        Say("Now the file.", tools=[("Bash", {"command": "cat long.txt"})]),
        Say("Done."),
    ]
    with TimedServer(steps) as server:
        server.forgets = forgets
        done = place.run(
            "-p", "read it", "--context-window", "16384", "--output-format", "json",
            env=place.environ(server.variables),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [*read_log(Path(json.loads(done.stdout)["log"])).entries], done.stderr


def test_timings_are_recorded_and_a_large_result_is_not_read(tmp_path: Path) -> None:
    entries, errors = run(tmp_path, forgets=False)
    replies = [each for each in entries if isinstance(each, Assistant)]
    assert all(each.timings["by"] == "server" for each in replies)
    assert replies[1].timings["cached"] == replies[1].usage["cache_read"] > 0
    small, large = [each for each in entries if isinstance(each, ToolResult)]
    assert small.offloaded is None
    assert large.offloaded is not None, "it would take 40 seconds to read"
    assert "reuse no prefix" not in errors


def test_a_server_without_reuse_is_reported_once(tmp_path: Path) -> None:
    _, errors = run(tmp_path, forgets=True)
    assert errors.count("it seems to reuse no prefix") == 1
