"""The real command with the preset for small models."""

from pathlib import Path

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server
from .test_skills import own, write

TOOLS = ["Bash", "Read", "Grep", "Edit", "Recall"]
ARGUMENTS = ("--preset", "small", "--permission-mode", "bypass", "--model", "some-model")


def names(request: Body) -> list[str]:
    return [tool["name"] for tool in request["tools"]]


def test_the_preset_has_few_tools_and_short_texts(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.project / "a.txt").write_text("alpha\n")
    write(own(place), "walrus", "Feed it.")
    calls = [("Read", {"file_path": "a.txt", "limit": "1"}), ("Write", {"path": "b"})]
    with Server([Say(tools=calls), Say("Alpha.")]) as server:
        env = place.server(server.url)
        run = place.run(*ARGUMENTS, "-p", "What does a.txt say?", env=env)
    assert run.returncode == 0, run.stderr
    first, second = server.requests
    assert names(first) == TOOLS
    bash = first["tools"][0]["input_schema"]["properties"]
    assert list(bash) == ["command"]
    assert "walrus" not in str(first)
    read, write_ = second["messages"][-1]["content"]
    assert read["content"] == "1\talpha"  # with a parameter that the model was not told of
    assert write_["content"] == f"There is no tool 'Write'. The tools: {', '.join(TOOLS)}."
    with Server([Say("Yes.")]) as server:
        more = place.run("--continue", *ARGUMENTS[2:], "-p", "Sure?", env=place.server(server.url))
    assert more.returncode == 0, more.stderr
    assert "Write" in names(server.requests[0]), "without the preset all tools are there again"


def test_a_compaction_asks_no_model(tmp_path: Path) -> None:
    place = Place(tmp_path)
    calls = [("Bash", {"command": f"seq {n} 400"}) for n in range(12)]
    steps = [*(Say(tools=[call]) for call in calls), Say("Done.")]
    with Server(steps) as server:
        run = place.run(
            *ARGUMENTS, "-c", "model.context_window=8_000", "-c", "clear.when=off",
            "-p", "Count.", env=place.server(server.url),
        )  # fmt: skip
    assert run.returncode == 0, run.stderr
    entries = place.entries()
    summaries = [entry for entry in entries if entry["kind"] == "summary"]
    assert summaries
    assert {e["purpose"] for e in entries if e["kind"] == "assistant"} == {"turn"}
    assert all(len(body["tools"]) == len(TOOLS) for body in server.requests)
    planned = place.run("--context-window", "8000", *ARGUMENTS, "compact", "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert "no call to the model" in planned.stdout
