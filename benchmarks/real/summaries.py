"""Let a small real model write summaries of ten recorded sessions, with the text request and with a
schema.

Each session is the beginning of a recording, compacted by the real command. The schema is added to
the same request on its way to the server. The facts of a summary are checked exactly: a path, a
number, an identifier or a quotation that occurs nowhere in the session is invented. Facts that are
lost are those of the program's own probes. Both are counted as the model wrote the summary, and as
the program recorded it.
"""

import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from relay import Body, Relay, relayed
from results import Clock, Results, Row

from ctxagent.agent.compaction.document import (
    REQUIRED_SECTIONS,
    SummaryDocument,
    missing_titles,
    parse,
    render,
)
from ctxagent.agent.compaction.sections import STATE_LABELS, TITLES
from ctxagent.agent.compaction.summary.request import QUESTION_START, why_unusable
from ctxagent.agent.context.window import Window
from ctxagent.agent.recordings.recording import RecordedReply, Recording
from ctxagent.tests.real.model import QWEN, served
from ctxagent.tests.real.recorded import beginning, make_session, recordings
from ctxagent.tests.support.command import Place
from ctxagent.tests.support.sessions.workday import workday

WINDOW = 16_384
SESSIONS = 10
TOKENS = (5_000, 5_500, 6_000)  # of the sessions, in turn, without prompt and tools
MIN_STEPS = 8  # messages and replies of a session
RUN_S = 1_200.0  # bound of one summary
VARIANTS = ("text", "schema")
TOOLS = Path(__file__).parents[2] / "tests/e2e/snapshots/tools-brief.json"
MAX_INVENTED_CHARS = 1_200  # of a result or an argument
MAX_ITEMS = 8  # of a section, in the schema
SCHEMA_NOTE = "\n\nAnswer in JSON: an object with one field for each section."

# Sessions


def sessions(folder: Path | None) -> Iterator[Recording]:
    """Yield the sessions to summarise: the beginnings of recordings, of each project in turn, or
    parts of an invented session.
    """
    found = _invented() if folder is None else _by_project(recordings(folder))
    sizes = (TOKENS[number % len(TOKENS)] for number in range(sys.maxsize))
    begun = (beginning(each, size) for each, size in zip(found, sizes, strict=False))
    yield from islice((each for each in begun if len(each.steps) >= MIN_STEPS), SESSIONS)


def _by_project(found: Iterable[Recording]) -> Iterator[Recording]:
    projects: dict[str, list[Recording]] = {}
    for each in found:
        projects.setdefault(each.name.partition("__")[0], []).append(each)
    for turn in zip_longest(*projects.values()):
        yield from filter(None, turn)


def _invented() -> Iterator[Recording]:
    """Yield sessions from different points of an invented one, each with its first message. Long
    texts are cut.
    """
    whole = workday()
    asked, *later = whole.steps
    work = [_with_short_texts(step) for step in later if isinstance(step, RecordedReply)]
    for number in range(SESSIONS):
        steps = (asked, *work[13 * number :])
        yield replace(whole, name=f"invented {number + 1}", steps=steps)


def _with_short_texts(reply: RecordedReply) -> RecordedReply:
    calls = (
        replace(
            call,
            text=call.text[-MAX_INVENTED_CHARS:],
            input={name: str(text)[:MAX_INVENTED_CHARS] for name, text in call.input.items()},
        )
        for call in reply.calls
    )
    return replace(reply, calls=tuple(calls))


# Facts

_PATH = re.compile(r"(?:[\w.@~+-]*/)+[\w.@+-]*\w|\b\w[\w-]*\.[a-z]{1,5}\b(?!\()")
_NUMBER = re.compile(r"(?<![\w#./:-])\d+(?:[.,:]\d+)*(?![\w/])")
_IDENTIFIER = re.compile(r"\b(?:[A-Za-z]\w*_\w+|[a-z]+[A-Z]\w+|[A-Z]+[a-z]+[A-Z]\w+)\b")
_QUOTATION = re.compile(r"`([^`\n]{4,})`|\"([^\"\n]{8,})\"|“([^”\n]{8,})”")
_REF = re.compile(r"#(\d{1,6})\b")
_LIST_NUMBER = re.compile(r"^\s*(?:[-*]\s+)?\d{1,3}[.)]\s", re.MULTILINE)

Fact = tuple[str, str]  # kind and text


def facts_in(text: str) -> set[Fact]:
    """Return the facts of a summary that can be checked exactly."""
    text = _LIST_NUMBER.sub("", text)
    bare = _PATH.sub(" ", text)
    found = {
        "quotation": (next(filter(None, each)) for each in _QUOTATION.findall(text)),
        "number": (each for each in _NUMBER.findall(bare) if len(each) > 1),
        "identifier": _IDENTIFIER.findall(bare),
        "path": _PATH.findall(text),
    }
    kinds = {_plain(each): kind for kind, texts in found.items() for each in texts}
    facts = {(kind, each) for each, kind in kinds.items()}
    return facts | {("ref", each) for each in _REF.findall(text)}


def invented(facts: Iterable[Fact], source: str, refs: Iterable[int]) -> set[Fact]:
    """Return the facts that occur nowhere in a session: in its texts or among its refs."""
    plain, known = _plain(source), set(map(str, refs))
    return {
        (kind, text)
        for kind, text in facts
        if (text not in known if kind == "ref" else not _occurs(text, plain))
    }


def _occurs(text: str, source: str) -> bool:
    """Return True if a text occurs as whole words; parts around an ellipsis may stand apart."""
    parts = [part.strip() for part in re.split(r"\.\.\.|…", text) if part.strip(" .,:;")]
    return all(
        re.search(rf"(?<!\w){re.escape(part.strip(' .,:;'))}(?!\w)", source) for part in parts
    )


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def source_of(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return all texts of a session."""
    return "\n".join(text for entry in entries for text in _strings(entry))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _strings(inner)
    elif isinstance(value, int | float):
        yield str(value)


# Summaries


def with_schema(body: Body) -> Body:
    """Return a summary request that asks for JSON with the sections that its question names.
    Messages are only added to, so that the server's cache serves them.
    """
    *earlier, last = body["messages"]
    _, start, question = str(last["content"]).rpartition(QUESTION_START)
    if not start:
        return body
    titles = re.findall(r"^## (.+)$", question, re.MULTILINE)
    schema = {
        "type": "object",
        "properties": {title: _section_schema(title) for title in titles},
        "required": titles,
        "additionalProperties": False,
    }
    return {
        **body,
        "messages": [*earlier, {**last, "content": last["content"] + SCHEMA_NOTE}],
        "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
    }


def _section_schema(title: str) -> Body:
    text: Body = {"type": "string"}
    texts = {"type": "array", "items": text, "maxItems": MAX_ITEMS}
    if title == TITLES["intent"]:
        return text
    if title != TITLES["state"]:
        return texts
    phase, *lists = STATE_LABELS.values()
    fields = {phase: text, **dict.fromkeys(lists, texts)}
    return {"type": "object", "properties": fields, "required": list(fields)}


def problem_of(text: str, finish: str) -> str:
    """Return why the program cannot use a first answer, or ""."""
    stop = {"length": "max_tokens", "stop": "end_turn"}.get(finish, finish)
    return why_unusable(text, stop, Window(0, WINDOW))


@dataclass(frozen=True)
class Compacted:
    """What the command left."""

    code: int | None
    err: str
    entries: Sequence[Mapping[str, Any]]  # of the whole log


def grade(session: Sequence[Mapping[str, Any]], left: Compacted, first: str, finish: str) -> Row:
    """Return the figures of a summary. `session` has the entries before it, `first` is the model's
    first answer.
    """
    added = left.entries[len(session) :]
    summary = next((entry for entry in added if entry["kind"] == "summary"), None)
    source, refs = source_of(session), [entry["seq"] for entry in session]
    written = parse(first)
    facts = facts_in(first)
    wrong = invented(facts, source, refs)
    problem = problem_of(first, finish)
    row: Row = {
        "problem": problem,
        "facts": len(facts),
        "invented": sorted(map(list, wrong)),
        "decisions": len(written.decisions),
        "next steps": len(written.next_steps),
        "sections": len(REQUIRED_SECTIONS) - len(missing_titles(first)),
        "outcome": "failed" if summary is None else "summary",
    }
    if summary is None:
        return {**row, "outcome": left.err.strip()[-300:] or f"exit code {left.code}"}
    by_ledger = bool(summary["probes"].get("unusable"))
    recorded = render(SummaryDocument.from_json(summary["document"]))
    kept = {fact for fact in facts_in(recorded) if fact in wrong}
    tally = summary["probes"]["tally"]
    return {
        **row,
        "outcome": "ledger" if by_ledger else "model",
        "invented after": sorted(map(list, kept)),
        "probes": tally,
        "before": summary["tokens_before"],
        "after": summary["tokens_after"],
    }


def compact(place: Place, relay: Relay, log: Path) -> Compacted:
    """Compact a session with the real command; the model is asked."""
    arguments = [
        "--model", f"llamacpp/{QWEN.name}", "--preset", "small", "--context-window", str(WINDOW),
        "-c", "compact.summarizer=model", "compact", log.parent.name, "--apply", "--all",
    ]  # fmt: skip
    env = place.environ({"LLAMACPP_BASE_URL": f"{relay.url}/v1"})
    try:
        done = place.run(*arguments, env=env, patience=RUN_S)
    except subprocess.TimeoutExpired:
        return Compacted(None, f"not done after {RUN_S:.0f} s", _entries(log))
    return Compacted(done.returncode, done.stderr, _entries(log))


def _entries(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text("utf-8").splitlines()]


def measure_session(place: Place, relay: Relay, recording: Recording) -> Iterator[Row]:
    """Yield a row for each variant. The session is put back in between, so that the requests begin
    alike and the server reads it once.
    """
    tools = json.loads(TOOLS.read_text("utf-8"))
    log = make_session(place, recording, brief=True, tools=tools)
    session, copy = _entries(log), place.root / "copy"
    shutil.copytree(log.parent, copy)
    for variant in VARIANTS:
        relay.change = with_schema if variant == "schema" else lambda body: body
        began = time.monotonic()
        left = compact(place, relay, log)
        calls = relay.take()
        first = calls[0] if calls else None
        yield {
            "variant": variant,
            "session": recording.name,
            "steps": len(recording.steps),
            "seconds": round(time.monotonic() - began, 1),
            "calls": [asdict(call) for call in calls],
            **grade(session, left, first.text if first else "", first.finish if first else ""),
        }
        shutil.rmtree(log.parent)
        shutil.copytree(copy, log.parent)
    shutil.rmtree(copy)


def measure(results: Results, clock: Clock, folder: Path | None, threads: int) -> None:
    """Ask for the summaries that are not in the results yet."""
    missing = [
        each
        for each in sessions(folder)
        if not all(results.has(variant=v, session=each.name) for v in VARIANTS)
    ]
    if not missing or not clock.has_time():
        return
    with (
        tempfile.TemporaryDirectory(prefix="ctxagent-real-") as root,
        served(QWEN, WINDOW, threads) as url,
        relayed(url) as relay,
    ):
        place = Place(Path(root))
        for recording in missing:
            if not clock.has_time():
                break
            for row in measure_session(place, relay, recording):
                if not results.has(variant=row["variant"], session=row["session"]):
                    results.add(row)
                    _print(row)


def _print(row: Row) -> None:
    words = row["problem"] or "usable"
    line = f"{row['variant']} {row['session']}: {words}, {row['outcome']}, {row['seconds']:.0f} s"
    print(line, file=sys.stderr, flush=True)


def report(results: Results) -> Iterator[Row]:
    """Yield a row of figures for each variant, as means of its summaries."""
    for variant in VARIANTS:
        rows = results.select(variant=variant)
        if not rows:
            continue
        calls = [call for row in rows for call in row["calls"]]
        probes = [row["probes"] for row in rows if "probes" in row]
        asked, before, after = (_count(probes, name) for name in ("asked", "before", "after"))
        facts, wrong = (sum(count) for count in zip(*map(_checked, rows), strict=True))
        yield {
            "request": variant,
            "sessions": len(rows),
            "usable at once": f"{sum(not row['problem'] for row in rows)}/{len(rows)}",
            "by the model": f"{sum(row['outcome'] == 'model' for row in rows)}/{len(rows)}",
            "calls": len(calls) / len(rows),
            "read": _mean(call["prefilled"] for call in calls),
            "from cache": _mean(call["cached"] for call in calls),
            "written": _mean(call["written"] for call in calls),
            "seconds": _mean(row["seconds"] for row in rows),
            "facts right": f"{facts - wrong}/{facts}",
            "invented, kept": f"{wrong}, {sum(len(row.get('invented after', ())) for row in rows)}",
            "lost": f"{asked - before}/{asked}",
            "lost after repair": f"{asked - after}/{asked}",
            "decisions, steps": " ".join(
                f"{_mean(row[name] for row in rows):.1f}" for name in ("decisions", "next steps")
            ),
            "problems": ", ".join(
                f"{text} {n}" for text, n in Counter(r["problem"] for r in rows).items() if text
            ),
        }


def _checked(row: Row) -> tuple[int, int]:
    return row["facts"], len(row["invented"])


def _count(probes: Iterable[Mapping[str, Mapping[str, int]]], column: str) -> int:
    return sum(kind[column] for tally in probes for kind in tally.values())


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values or [0.0])
