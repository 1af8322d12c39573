"""A session as one HTML page that needs no network: its facts, its totals, the context over time,
and every entry in order. Everything from the session is shown as text.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from markupsafe import Markup

from ...tools.system.plural import count_of
from ...tools.system.shorten import cut_after
from ..compaction.layers.known import known_layers
from ..errors import SessionError
from ..lazy import regex
from ..session import searches
from ..session.entries import Assistant, Entry, Session, SubagentRun, Summary, User, shell_result
from ..session.log import LOG_NAME, LogContents, Redact, read_log
from ..session.store import AGENTS, locate_log
from ..session.totals import Totals, count_name
from . import chart, page_entries
from .markdown_html import prose
from .page_model import PageModel
from .templates import render
from .text import clean

_MAX_TITLE_CHARS = 90
_MAX_LOG_DEPTH = 3  # logs within logs
_AGENT_ID = regex(r"[\w-]+")


def page(log: Path, contents: LogContents, scale: chart.WindowScale | None, redact: Redact) -> str:
    """Return the page of a log. `redact` is applied to the logs of its subagents."""
    entries = contents.entries
    model = PageModel(log.parent, entries, redact=redact)
    name, turns = locate_log(log)[1], list(_turns(entries))
    heading = turns[0][1] if turns else f"Session {name}"
    has_calls = any(isinstance(entry, Assistant) for entry in entries)
    html = render(
        "export/page.html.j2",
        title=f"{heading} · {name}",
        heading=heading,
        facts=_facts(name, entries),
        warnings=contents.warnings,
        chart=chart.SessionChart(entries, scale, model.find) if has_calls else None,
        turns=[(model.find(seq), line or f"#{seq}") for seq, line in turns],
        entries=_render_entries(model),
        geometry=chart,
    )
    return str(html)


def _render_entries(model: PageModel) -> Markup:
    """Render every entry of a log, including the logs of its subagents."""
    return render(
        "export/entries.html.j2",
        model=model,
        page=page_entries,
        searches=searches,
        prose=prose,
        shell_result=shell_result,
        transcript_of=_transcript_of,
    )


def _transcript_of(model: PageModel, number: int, agent: SubagentRun) -> tuple[int | None, str]:
    """Return the number of entries in a subagent's log and the rendered log, or None and the reason
    why the page does not contain it.
    """
    if model.depth >= _MAX_LOG_DEPTH or not _AGENT_ID.fullmatch(agent.id):
        return None, "Its log is not in this page"
    folder = model.folder / AGENTS / agent.id
    try:
        entries = [model.redact(entry) for entry in read_log(folder / LOG_NAME).entries]
    except SessionError:
        return None, "Its log is missing"
    prefix = f"{model.prefix}a{number}-"
    inner = PageModel(folder, entries, model.budget, prefix, model.depth + 1, model.redact)
    return len(entries), _render_entries(inner)


def _turns(entries: Sequence[Entry]) -> Iterator[tuple[int, str]]:
    """Yield each user message: the entry's seq, and its beginning on one line."""
    for entry in entries:
        if isinstance(entry, User) and entry.source == "person":
            line = " ".join(clean(page_entries.text_of(entry.content)).split())
            yield entry.seq, cut_after(line, _MAX_TITLE_CHARS)


def _facts(name: str, entries: Sequence[Entry]) -> dict[str, str]:
    totals = Totals()
    for entry in entries:
        totals.add(entry)
    opened = [entry for entry in entries if isinstance(entry, Session)]
    used = (entry.model for entry in entries if isinstance(entry, Assistant))
    models = dict.fromkeys([*used] or [entry.model for entry in opened])
    whole, agents = totals.all, len(totals.by_agent)
    usage = whole.usage
    cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
    in_subagents = whole.calls - totals.own.calls
    return {
        "Session": name,
        "Project": opened[-1].cwd if opened else "",
        "Model": ", ".join(models),
        "When": _span(entries),
        "Turns": f"{totals.turns:,}",
        "Calls": f"{whole.calls:,} to the model, {whole.tool_calls:,} to tools",
        "Tokens": f"{usage.prompt:,} in{cached}, {usage.output:,} out" if usage.total else "",
        "Cost": page_entries.dollars(whole.cost_usd) if whole.calls else "",
        "Subagents": f"{agents:,}, with {in_subagents:,} of the calls" if agents else "",
        "Compaction": _compaction(totals),
    }


def _compaction(totals: Totals) -> str:
    done = totals.all.compaction
    masks = (layer for layer in known_layers() if layer.name != Summary.kind)
    counts = ((done.get(count_name(layer.name), 0), layer.heading()) for layer in masks)
    parts = [f"{count:,} {heading}" for count, heading in counts if count]
    parts += [count_of(done["summaries"], "summary", "summaries")] if done["summaries"] else []
    return ", ".join([*parts, f"{done['tokens_saved']:,} tokens saved"]) if parts else ""


def _span(entries: Sequence[Entry]) -> str:
    times = [entry.at for entry in entries if entry.at]
    if not times:
        return ""
    first = page_entries.time(times[0])
    return Markup("{} to {} UTC").format(first, page_entries.time(times[-1], times[0]))
