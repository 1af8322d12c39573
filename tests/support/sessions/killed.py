"""Leave the files of a session as a kill does."""

import json
from collections.abc import Sequence
from pathlib import Path

from ctxagent.agent.session.conversation import CONVERSATION_NAME
from ctxagent.agent.session.conversation import write_conversation as write
from ctxagent.agent.session.log import Entries


def write_killed(log: Path, lines: Sequence[bytes]) -> None:
    """Write a log that ends with `lines`. No copy has more than the log."""
    log.write_bytes(b"".join(lines))
    newest = max((entry.seq for entry in Entries(log)), default=0)
    for path in log.parent.glob("checkpoints/*.json"):
        if json.loads(path.read_bytes())["seq"] > newest:
            path.unlink()
    log.with_name(CONVERSATION_NAME).unlink()
    write(log.parent, Entries(log))
