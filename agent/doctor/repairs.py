"""Count the repaired calls in logs by model, to show which repair helps which model."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from ...tools.system.plural import count_of
from ..lazy import dataclass
from ..loop.repairs import TEXT, TOOL_NAME, named_repair
from ..session.entries import Assistant, Entry, ToolResult
from ..session.log import try_parse_entry
from .finding import Finding, listed

MAX_LOGS = 50  # that are read, newest first
MAX_BYTES = 64 << 20  # of all logs that are read
MAX_NAMES = 10  # repairs of one model in a finding
_MARKS = (b'"dialect": {"', b'"repairs": ["')


@dataclass(frozen=True, slots=True)
class _Use:
    model: str
    repair: str
    has_failed: bool


def repair_findings(logs: Iterable[Path]) -> list[Finding]:
    """Return a finding for each model with repaired calls in these logs, newest log first."""
    uses = [use for log in _first(logs) for use in _uses(log)]
    total = Counter((use.model, use.repair) for use in uses)
    failed = Counter((use.model, use.repair) for use in uses if use.has_failed)
    findings = []
    for model in dict.fromkeys(use.model for use in uses):
        rows = [
            f"{repair} ({count_of(count, 'call')}, {failed[model, repair]:,} failed)"
            for (name, repair), count in total.most_common()
            if name == model
        ]
        findings.append(Finding("repaired calls", f"{model}: {listed(rows, MAX_NAMES)}"))
    return findings


def _first(logs: Iterable[Path]) -> Iterator[Path]:
    left = MAX_BYTES
    for log, _ in zip(logs, range(MAX_LOGS), strict=False):
        try:
            left -= log.stat().st_size
        except OSError:
            continue
        if left < 0:
            return
        yield log


def _uses(log: Path) -> Iterator[_Use]:
    """Yield the repairs in a log. Only replies and the lines with a mark are parsed."""
    named, reply = dict[str, tuple[str, str]](), b""
    try:
        lines = log.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        if b'"kind": "assistant"' in line:
            reply = line
        is_result = b'"kind": "tool_result"' in line
        if not (any(mark in line for mark in _MARKS) or (named and is_result)):
            continue
        entry = try_parse_entry(line)
        if isinstance(entry, Assistant):
            named |= {id: (entry.model, repair) for id, repair in _of_reply(entry)}
        elif isinstance(entry, ToolResult):
            model = _model(try_parse_entry(reply))
            if use := named.pop(entry.tool_use_id, None):
                yield _Use(*use, entry.is_error)
            for repair in entry.details.get("repairs", ()):
                yield _Use(model, str(repair), entry.is_error)


def _of_reply(reply: Assistant) -> Iterator[tuple[str, str]]:
    """Yield the ID of each call that the reply has in another form, and the name of its repair."""
    names, form = reply.dialect.get("names"), reply.dialect.get("form")
    for id, name in (names if isinstance(names, dict) else {}).items():
        yield id, named_repair(TOOL_NAME, str(name))
    for block in reply.content if form else ():
        if block.get("type") == "tool_use":
            yield str(block.get("id")), named_repair(TEXT, str(form))


def _model(reply: Entry | None) -> str:
    return reply.model if isinstance(reply, Assistant) else "unknown model"
