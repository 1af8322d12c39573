"""The entries of a log as pieces of a page, one for each, in their order: words as articles, what
stands between them as marks. A result stands with its call."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import PurePath

from ..errors import SessionError
from ..session.entries import (
    Assistant,
    Block,
    Checkpoint,
    Content,
    End,
    Entry,
    Mask,
    Note,
    Pin,
    Revert,
    Session,
    SubagentRun,
    Summary,
    ToolResult,
    Unknown,
    Unpin,
    Usage,
    User,
)
from ..session.log import LOG_NAME, read_log
from ..session.store import AGENTS, content_text
from .html import Html, element, folded, html, joined
from .markdown_html import prose
from .page_calls import call, facts, media, offloaded, passage, ran, result
from .page_model import Story, cut, data, lines, more

_DEEPEST = 3  # logs within logs
_TITLES = {
    "environment": "Environment",
    "instructions": "Instructions",
    "notice": "Notice",
    "note": "Your note",
}
_REFERENCE = re.compile(r"## Offloaded Content Reference\n\*\*File:\*\* (.+)\n")
_ID = re.compile(r"[\w-]+")
_EXPECTED = (None, "end_turn", "tool_use", "stop_sequence")  # ways to stop that say nothing


def articles(story: Story) -> Iterator[Html]:
    """Every entry that has no place with another."""
    for place, entry in enumerate(story.entries):
        if place not in story.answering:
            yield _piece(story, entry)


def _piece(story: Story, entry: Entry) -> Html:
    if isinstance(entry, User):
        return _words(story, entry)
    if isinstance(entry, Assistant):
        return _reply(story, entry) if entry.purpose == "turn" else _aside(story, entry)
    if isinstance(entry, ToolResult):
        head = element("p", facts(story, entry), class_="quiet")
        return element("article", head, result(story, entry), class_="entry assistant")
    if isinstance(entry, SubagentRun):
        return _subagent(story, entry)
    told = _mark(story, entry)
    return _row(story, entry, *told)


def when(at: str, since: str = "") -> Html:
    """A time of a log, to the minute; its day is left out when it is that of `since`."""
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return html(at)
    day = "" if at[:10] == since[:10] else f"{moment:%Y-%m-%d} "
    return element("time", f"{day}{moment:%H:%M}", datetime=at, title=at)


def dollars(amount: float | None) -> str:
    if amount is None:
        return "price not known"
    return f"${amount:.4f}" if amount < 0.1 else f"${amount:,.2f}"


def words_of(content: Content) -> str:
    """The text of a content, without its images."""
    if isinstance(content, list):
        content = content_text([block for block in content if block.get("type") == "text"])
    return content.strip("\n")


def _article(
    story: Story, entry: Entry, title: str, kind: str, *inside: str, facts: str = ""
) -> Html:
    head = element(
        "header",
        element("h2", title),
        story.link(entry.seq),
        when(entry.at, story.began),
        element("span", facts, class_="facts") if facts else "",
    )
    return element("article", head, *inside, class_=f"entry {kind}", id=story.anchor(entry.seq))


def _row(story: Story, entry: Entry, kind: str, text: str, *inside: str) -> Html:
    """Something between the words: one line, and what can be unfolded below it."""
    line = element(
        "div", story.link(entry.seq), " ", text, " ", when(entry.at, story.began), class_="line"
    )
    return element("div", line, *inside, class_=f"entry mark {kind}", id=story.anchor(entry.seq))


def _words(story: Story, entry: User) -> Html:
    if entry.source == "shell":
        return _article(story, entry, "You ran", "user", ran(story, entry))
    text = words_of(entry.content)
    pictures = tuple(media(entry.content))
    if entry.source != "person":
        title = _TITLES.get(entry.source, entry.source)
        return _row(
            story,
            entry,
            "told",
            f"{title} for the model",
            passage("", text, closed=True),
            *pictures,
        )
    reference = _REFERENCE.match(text)
    if reference:
        path = f"offloaded/{PurePath(reference[1]).name}"
        shown = tuple(offloaded(story, path, text))
    else:
        where = f"entry #{entry.seq} of the log has all of it"
        shown = (element("div", cut(text, where), class_="words"),)
    return _article(story, entry, "You", "user", *shown, *pictures)


def _reply(story: Story, entry: Assistant) -> Html:
    parts = [part for block in entry.content for part in _block(story, entry, block)]
    if entry.stop_reason not in _EXPECTED:
        parts.append(element("p", f"stopped: {entry.stop_reason}", class_="quiet"))
    if not parts:
        parts.append(element("p", "no words", class_="quiet"))
    return _article(story, entry, "Agent", "assistant", *parts, facts=_taken(entry))


def _block(story: Story, entry: Assistant, block: Block) -> Iterator[str]:
    kind = block.get("type")
    if kind in ("text", "thinking"):
        text = str(block.get(kind) or "").strip("\n")
        text = cut(text, f"entry #{entry.seq} of the log has all of it")
        if kind == "text" and text.strip():
            yield element("div", prose(text), class_="prose")
        elif text.strip():
            head = f"Thinking · {lines(text)}"
            yield folded(head, element("div", text, class_="words"), class_="thinking")
    elif kind == "redacted_thinking":
        yield element("p", "Thinking that the provider keeps to itself", class_="quiet")
    elif kind == "tool_use":
        id = str(block.get("id"))
        raw = entry.broken.get(id)
        yield call(
            story, block, story.answers.get((entry.seq, id)), None if raw is None else str(raw)
        )
    else:
        yield folded(f"Block of kind {kind}", data(block))


def _taken(entry: Assistant) -> str:
    usage = Usage.from_json(entry.usage)
    if not usage.total:
        return ""
    cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
    cost = f" · {dollars(entry.cost_usd)}" if entry.cost_usd is not None else ""
    return f"{usage.prompt:,} in{cached} · {usage.output:,} out{cost}"


def _aside(story: Story, entry: Assistant) -> Html:
    """A call that compaction made for itself, or one that broke off."""
    texts = [str(b.get("text") or "") for b in entry.content if b.get("type") == "text"]
    text = cut("\n\n".join(texts), f"entry #{entry.seq} of the log has all of it")
    title = {
        "summary": "Call for a summary",
        "verify": "Call that checks a summary",
        "attempt": "Call that broke off",
    }
    facts = joined([title.get(entry.purpose, f"Call: {entry.purpose}"), " · ", _taken(entry)])
    said = [passage("", text, closed=True)] if text else []
    return _row(story, entry, "aside", facts, *said)


def _mark(story: Story, entry: Entry) -> tuple[str, ...]:
    """The kind of a mark, its line and what is folded below."""
    if isinstance(entry, Mask):
        return _masked(story, entry)
    if isinstance(entry, Summary):
        return _summarized(story, entry)
    if isinstance(entry, Session):
        return _opened(entry)
    if isinstance(entry, Revert):
        why = f": {entry.reason}" if entry.reason else ""
        return "act revert", joined(["Taken back: ", story.link(entry.target), why])
    if isinstance(entry, Checkpoint):
        kept = f" · {entry.path}" if entry.path else ""
        return "quiet", f"Checkpoint {entry.number} · {entry.trigger or 'by hand'}{kept}"
    if isinstance(entry, Pin):
        of = joined([" ", story.link(entry.ref)]) if entry.ref else html("")
        return "pin", joined(["Pinned", of, ": ", story.referring(entry.text)])
    if isinstance(entry, Unpin):
        return "pin", joined(["No longer pinned: ", story.link(entry.ref)])
    if isinstance(entry, Note):
        text = story.referring(cut(entry.text, "the log has all of it"))
        kind = "warning" if entry.topic in ("warning", "drift") else "note"
        line = joined([element("b", entry.topic.capitalize()), " ", text])
        return kind, line, more("Data", entry.data)
    if isinstance(entry, End):
        why = f" · {entry.reason}" if entry.reason else ""
        return "end", f"End of the turn: {entry.status}{why}"
    name = entry.name if isinstance(entry, Unknown) else entry.kind
    return "quiet", f"Entry of kind {name}", more("Data", dict(entry.extra))


def _masked(story: Story, entry: Mask) -> tuple[str, ...]:
    count = len(entry.targets)
    what = f"{entry.layer}: {count:,} stubbed ({entry.trigger})"
    rows: list[str] = []
    for target in entry.targets:
        seq, stub = target.get("seq"), target.get("stub")
        said = story.referring(stub) if isinstance(stub, str) else "arguments cut short"
        rows.append(element("li", story.link(seq) if isinstance(seq, int) else "", " ", said))
    stubs = folded("Stubs", element("ul", *rows, class_="stubs"))
    return "act mask" + _undone(story, entry), _shrunk(story, entry, what), stubs


def _summarized(story: Story, entry: Summary) -> tuple[str, ...]:
    first, last = entry.covers
    what = joined(
        ["Summary of ", story.link(first), " to ", story.link(last), f" ({entry.trigger})"]
    )
    text = element(
        "div", prose(cut(entry.text, "the log has all of it"), story.find), class_="prose"
    )
    checks = more("Checks", entry.probes)
    return (
        "act summary" + _undone(story, entry),
        _shrunk(story, entry, what),
        folded("What the model has in their place", text),
        checks,
    )


def _undone(story: Story, entry: Mask | Summary) -> str:
    return " undone" if entry.seq in story.reverts else ""


def _shrunk(story: Story, entry: Mask | Summary, what: str) -> Html:
    parts: list[str] = [what, f" · {entry.tokens_before:,} → {entry.tokens_after:,} tokens"]
    if entry.seq in story.reverts:
        parts += [" · taken back by ", story.link(story.reverts[entry.seq])]
    return joined(parts)


def _opened(entry: Session) -> tuple[str, ...]:
    parent = entry.parent or {}
    of = f" · copied from {parent.get('id')} #{parent.get('seq')}" if parent else ""
    line = f"Session opened · {entry.model} · {entry.cwd} · version {entry.version}{of}"
    parts: list[str] = []
    if entry.system:
        parts.append(passage("System prompt", cut(entry.system, "the log has it"), closed=True))
    if entry.tools:
        names = ", ".join(str(tool.get("name")) for tool in entry.tools)
        parts.append(folded(f"Tools: {names}", data(entry.tools)))
    return "quiet", line, *parts


def _subagent(story: Story, entry: SubagentRun) -> Html:
    """A subagent where it starts, with all that became of it; where it ends, a mark."""
    number, first = story.agents[entry.id]
    if first is not entry:
        line = joined(["Subagent of ", story.link(first.seq), f": {entry.status}"])
        return _row(story, entry, "quiet", line)
    newest = story.newest[entry.id]
    asked = cut(newest.prompt.strip("\n"), "its log has all of it")
    parts: list[str] = [passage("Asked", asked)]
    if newest.answer.strip():
        parts.append(
            element("div", prose(cut(newest.answer, "its log has the rest")), class_="prose")
        )
    else:
        parts.append(element("p", "no answer was recorded", class_="quiet"))
    parts.append(_transcript(story, newest, f"{story.prefix}a{number}-"))
    usage = Usage.from_json(newest.usage)
    facts = [newest.status, f"{newest.calls:,} calls", f"{usage.total:,} tokens"]
    facts += [dollars(newest.cost_usd)] if newest.calls else []
    title = " · ".join(filter(None, ("Subagent", newest.type, newest.description)))
    return _article(story, entry, title, "agent", *parts, facts=" · ".join(facts))


def _transcript(story: Story, agent: SubagentRun, prefix: str) -> Html:
    if story.depth >= _DEEPEST or not _ID.fullmatch(agent.id):
        return element("p", "Its log is not in this page", class_="quiet")
    folder = story.folder / AGENTS / agent.id
    try:
        entries = [story.redact(entry) for entry in read_log(folder / LOG_NAME).entries]
    except SessionError:
        return element("p", "Its log is gone", class_="quiet")
    within = Story(folder, entries, story.room, prefix, story.depth + 1, story.redact)
    return folded(f"All it did · {len(entries):,} entries", *articles(within), class_="within")
