"""`conversation.md` and the context during compactions, undos and copies by the real command: the
file has the conversation once and in order, the context has one summary, and ranges are ascending.
"""

import json
from pathlib import Path

from ctxagent.agent.context.view import fold
from ctxagent.agent.session.conversation import conversation_text
from ctxagent.agent.session.log import Entries

from ..support.command import Place
from ..support.server.loopback import Body, Say, Server, Step

RECORD = (
    "## Session Intent\nRead all the parts.\n\n## Key Decisions\n1. One by one.\n\n"
    "## Current State\nPhase: reading {n}\n\n## Next Steps\n1. Read part {n}.\n"
)


def check(log: Path, *requests: str) -> None:
    """Check that `conversation.md` equals the conversation in the log, and that the view has at
    most one summary.
    """
    told = log.with_name("conversation.md").read_bytes()
    assert told == b"".join(map(conversation_text, Entries(log)))
    text = told.decode()
    assert "[Conversation compressed]" not in text
    places = [text.index(f"## User · #{number}\n\n{words}\n") for number, words in said(log)]
    assert places == sorted(places)
    assert [words for _, words in said(log)] == list(requests)
    assert all(text.count(words) == 1 for words in requests)
    assert sum(item.source == "summary" for item in fold(Entries(log)).items) <= 1


def said(log: Path) -> list[tuple[int, str]]:
    entries = map(json.loads, log.read_text().splitlines())
    return [(e["seq"], e["content"]) for e in entries if e.get("source") == "person"]


def test_conversation_file_after_compactions_and_undos(tmp_path: Path) -> None:
    records = parts = 0

    def step(body: Body) -> Step:
        nonlocal records, parts
        if "about to be compressed" in str(body["messages"][-1]["content"][-1].get("text")):
            records += 1
            return Say(RECORD.format(n=records))
        parts += 1
        if parts % 7 == 0:
            return Say("All read.")
        return Say(f"Part {parts}. {'word ' * 600}", tools=[("Bash", {"command": f"echo {parts}"})])

    place = Place(tmp_path)
    with Server(step) as server:
        env = place.server(server.url)

        def run(*arguments: str) -> str:
            mode = ("--permission-mode", "bypass", "-c", "sandbox.mode=off", "--preset", "v5")
            done = place.run(*mode, *arguments, env=env)
            assert done.returncode == 0, done.stderr
            return done.stdout

        run("-p", "Read the parts, please.")
        (log,) = place.logs()
        check(log, "Read the parts, please.")
        for kept in (9, 5):  # the second cut falls among what the first one had kept
            keep = ("-c", f"compact.keep_messages={kept}", "-c", "compact.keep_tokens=0")
            assert "context compacted" in run(*keep, "compact", "--apply")
            check(log, "Read the parts, please.")
        run("compact", "--undo")
        copy = run("sessions", "fork", log.parent.name).strip()
        check(log.parents[1] / copy / "log.jsonl", "Read the parts, please.")
        run("--continue", "-p", "And once more.")
        run("-c", "compact.keep_messages=1", "compact", log.parent.name, "--apply")
        copies = [path for path in place.logs() if len(said(path)) == 2]
        check(copies[0], "Read the parts, please.", "And once more.")
    assert server.rejected == []
