"""A session as one HTML page that needs no network.

The page has the facts of the session, its totals, the context over time, and every entry in order.
Everything from the session is shown as text. The relations between the entries are found before
rendering: the result of each call, reverted entries, the address of each entry, and the budget for
texts.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path

from markupsafe import Markup, escape

from ...api.base import SessionError, dataclass, regex
from ...api.context import known_layers
from ...api.pages import MAX_TEXT_CHARS, cut_middle, join_ends, render
from ...api.pages import clean_text as clean
from ...api.record import (
    AGENTS,
    LOG_NAME,
    Assistant,
    Entry,
    LogContents,
    Mask,
    Redact,
    Revert,
    Session,
    SubagentRun,
    Summary,
    ToolResult,
    Totals,
    User,
    count_name,
    kept_text,
    locate_log,
    read_log,
    reverted_seqs,
    searches,
    shell_result,
    without_redaction,
)
from ...api.text import count_of, cut_after
from . import chart, page_entries
from .markdown import REF, prose

MAX_SECRET_CHARS = 8_192  # extra text, because a secret cut in two would not be recognised
_OFFLOADED = regex(r"offloaded/[^/]+")  # a damaged log may contain any path


@dataclass(slots=True)
class TextBudget:
    """The remaining characters of offloaded texts for the page. After that, the page shows only the
    text sent to the model and the name of the file.
    """

    left: int = 32 * 1024 * 1024


@dataclass(slots=True)
class PageModel:
    """The entries of one log in order, and the relations between them."""

    folder: Path
    entries: Sequence[Entry]
    budget: TextBudget = field(default_factory=TextBudget)
    prefix: str = ""  # of the anchors
    depth: int = 0  # number of parent logs in the page
    redact: Redact = without_redaction  # for texts in files and the logs of subagents
    answers: dict[tuple[int, str], ToolResult] = field(default_factory=dict)  # by reply and call
    agents: dict[str, tuple[int, SubagentRun]] = field(default_factory=dict)  # number and start
    newest: dict[str, SubagentRun] = field(default_factory=dict)  # the newest state of each agent
    stubbed: dict[int, list[int]] = field(default_factory=dict)  # masks in force, by entry
    reverts: dict[int, int] = field(default_factory=dict)  # by the entry that was reverted
    _answering: set[int] = field(default_factory=set)  # indexes of results shown with their call
    _seqs: set[int] = field(default_factory=set)
    _anchors: Counter[int] = field(default_factory=Counter)  # number of anchors made, by seq

    def __post_init__(self) -> None:
        asked: dict[str, int] = {}
        gone = reverted_seqs(self.entries)
        for place, entry in enumerate(self.entries):
            self._seqs.add(entry.seq)
            if isinstance(entry, Assistant) and entry.purpose == "turn":
                used = (b for b in entry.content if b.get("type") == "tool_use")
                asked.update((str(block.get("id")), entry.seq) for block in used)
            elif isinstance(entry, ToolResult) and entry.tool_use_id in asked:
                self.answers[asked.pop(entry.tool_use_id), entry.tool_use_id] = entry
                self._answering.add(place)
            elif isinstance(entry, SubagentRun):
                self.agents.setdefault(entry.id, (len(self.agents) + 1, entry))
                self.newest[entry.id] = entry
            elif isinstance(entry, Mask) and entry.seq not in gone:
                for target in entry.targets:
                    for seq in (target.get("seq"), target.get("reply")):
                        if isinstance(seq, int) and entry.seq not in self.stubbed.get(seq, ()):
                            self.stubbed.setdefault(seq, []).append(entry.seq)
            elif isinstance(entry, Revert) and entry.target in gone and entry.seq not in gone:
                self.reverts[entry.target] = entry.seq

    @property
    def start_time(self) -> str:
        """The time of the first entry, or "" if there is none."""
        return self.entries[0].at if self.entries else ""

    def shown_entries(self) -> Iterator[Entry]:
        """Yield every entry except results, which are shown with their call."""
        for place, entry in enumerate(self.entries):
            if place not in self._answering:
                yield entry

    def find(self, seq: int) -> str | None:
        """Return the address of an entry in the page, or None if it is not there."""
        return f"#{self.prefix}e{seq}" if seq in self._seqs else None

    def new_anchor(self, seq: int) -> str:
        """Return the HTML ID for the next entry with this seq. Duplicate seqs in a damaged log get
        different IDs.
        """
        self._anchors[seq] += 1
        again = f"-{self._anchors[seq]}" if self._anchors[seq] > 1 else ""
        return f"{self.prefix}e{seq}{again}"

    def link(self, seq: int) -> Markup:
        """Return a link to an entry, or only its number if it is not in the page."""
        address, name = self.find(seq), escape(f"#{seq}")
        return Markup(f'<a href="{address}" class="ref">{name}</a>') if address else name

    def with_links(self, text: str) -> Markup:
        """Return a text in which refs such as `#42` are links to their entries."""
        parts = REF.split(text)  # every second part is the number of a ref
        parts[1::2] = (self.link(int(seq)) for seq in parts[1::2])
        return Markup("").join(part if isinstance(part, Markup) else clean(part) for part in parts)

    def offloaded_text(self, path: str) -> str | None:
        """Return the text of an offloaded file, or None if it is missing or exceeds the remaining
        budget.
        """
        kept = kept_text(self.folder, path) if _OFFLOADED.fullmatch(path) else None
        if kept is None:
            return None
        text, total = kept.part(0, MAX_TEXT_CHARS + MAX_SECRET_CHARS)
        if min(total, MAX_TEXT_CHARS) > self.budget.left:
            return None
        self.budget.left -= min(total, MAX_TEXT_CHARS)
        where, begin = f"{path} has all of it", self._redacted(text)
        if total == len(text):
            return cut_middle(begin, where)
        end, _ = kept.part(total - MAX_TEXT_CHARS, MAX_TEXT_CHARS)
        return join_ends(begin, self._redacted(end), total, where)

    def _redacted(self, text: str) -> str:
        return str(self.redact(ToolResult(tool_use_id="", content=text)).content)


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
        "addons/export/page.html.j2",
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
        "addons/export/entries.html.j2",
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
