"""A session as one page of HTML that needs no network: what it was and what it took, the context
over time, and every entry in its order. Everything that came from the session is text; the page's
own style and script are named by their hashes, and nothing else may load or run."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ...tools.system.shorten import cut_after
from ..session.entries import Assistant, Entry, Session, User
from ..session.log import LogContents, Redact
from ..session.store import locate_log
from ..session.totals import Totals
from .chart import Scale, chart
from .html import Html, clean, element, folded, joined, part, sealed
from .page_entries import articles, dollars, when, words_of
from .page_model import Story

_TITLE = 90  # characters
_LISTED = 2  # turns from which on they are listed


def page(log: Path, reading: LogContents, scale: Scale | None, redact: Redact) -> str:
    """The page of a log that has been read; `redact` is for those of its subagents."""
    entries = reading.entries
    story = Story(log.parent, entries, redact=redact)
    name, turns = locate_log(log)[1], list(_turns(entries))
    title = turns[0][1] if turns else f"Session {name}"
    bad = [element("li", warning) for warning in reading.warnings]
    opening = element(
        "header",
        element("h1", title),
        element("dl", *_facts(name, entries), class_="facts"),
        folded(f"{len(bad):,} lines of the log are no entries", element("ul", *bad)) if bad else "",
        chart(entries, scale, story.find),
        _contents(story, turns),
        class_="opening",
    )
    told = list(articles(story)) or [element("p", "Nothing is recorded yet.", class_="quiet")]
    body = [_tools(), opening, element("main", *told)]
    return sealed(
        f"{title} · {name}", body, part(__package__, "page.css"), part(__package__, "page.js")
    )


def _turns(entries: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    """What the person said: the entry's number, and the beginning in one line."""
    for entry in entries:
        if isinstance(entry, User) and entry.source == "person":
            line = " ".join(clean(words_of(entry.content)).split())
            yield entry.seq, cut_after(line, _TITLE)


def _contents(story: Story, turns: Sequence[tuple[int, str]]) -> Html:
    if len(turns) < _LISTED:
        return Html("")
    rows = [
        element("li", element("a", line or f"#{seq}", href=story.find(seq))) for seq, line in turns
    ]
    return folded(f"{len(rows):,} turns", element("ol", *rows), class_="contents")


def _tools() -> Html:
    """What the script serves; without it there is nothing to press."""
    return element(
        "nav",
        element(
            "input", type="search", id="search", placeholder="Search",
            aria_label="Search this session", autocomplete="off",
        ),
        element("output", id="found", for_="search"),
        element("button", "Unfold", type="button", id="unfold", title="Unfold everything"),
        element("button", "Fold", type="button", id="fold", title="Fold everything"),
        element("button", "Theme", type="button", id="theme", title="Light, dark, as the system"),
        class_="tools",
        hidden=True,
    )  # fmt: skip


def _facts(name: str, entries: Sequence[Entry]) -> Iterator[Html]:
    totals = Totals()
    for entry in entries:
        totals.add(entry)
    opened = [entry for entry in entries if isinstance(entry, Session)]
    used = (entry.model for entry in entries if isinstance(entry, Assistant))
    models = dict.fromkeys([*used] or [entry.model for entry in opened])
    usage, own, agents = totals.all.usage, totals.own, len(totals.by_agent)
    cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
    rows: dict[str, str] = {
        "Session": name,
        "Project": opened[-1].cwd if opened else "",
        "Model": ", ".join(models),
        "When": _span(entries),
        "Turns": f"{totals.turns:,}",
        "Calls": f"{totals.all.calls:,} of the model, {totals.all.tool_calls:,} of tools",
        "Tokens": f"{usage.prompt:,} in{cached}, {usage.output:,} out" if usage.total else "",
        "Cost": dollars(totals.all.cost_usd) if totals.all.calls else "",
        "Subagents": f"{agents:,}, with {totals.all.calls - own.calls:,} of the calls"
        if agents
        else "",
        "Compaction": _compaction(totals),
    }
    for label, value in rows.items():
        if value:
            yield element("div", element("dt", label), element("dd", value))


def _compaction(totals: Totals) -> str:
    done = totals.all.compaction
    layers = {
        "demoted": "moved to files",
        "microcompacted": "stubbed",
        "truncated": "cut short",
        "summaries": "summed up",
    }
    parts = [f"{done[name]:,} {told}" for name, told in layers.items() if done[name]]
    return ", ".join([*parts, f"{done['tokens_saved']:,} tokens saved"]) if parts else ""


def _span(entries: Sequence[Entry]) -> str:
    times = [entry.at for entry in entries if entry.at]
    return joined([when(times[0]), " to ", when(times[-1], times[0]), " UTC"]) if times else ""
