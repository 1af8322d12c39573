"""Texts and facts of entries for the template `entries.html.j2`."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import PurePath
from typing import Any

from markupsafe import Markup, escape

from ...api.base import regex
from ...api.pages import clean_text as clean
from ...api.pages import cut_middle
from ...api.record import (
    Assistant,
    Content,
    Entry,
    Session,
    SubagentRun,
    ToolResult,
    Usage,
    User,
    content_text,
)
from ...api.text import count_of, cut_after

_MAX_OPEN_LINES, _MAX_OPEN_CHARS = 12, 1_200  # of a text that is shown unfolded
_MAX_OPEN_MESSAGE_LINES, _MAX_OPEN_MESSAGE_CHARS = 30, 3_000  # the same for a user message
_OPENING_LINES, _OPENING_CHARS = 8, 600  # always shown, of a longer message
MAX_OPEN_DIFF_LINES = 60
_MAX_PREVIEW_CHARS = 200
_MAX_IMAGE_BYTES = 256 * 1024  # of an image embedded in the page
_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_SUBJECTS = ("command", "pattern", "query", "path", "description", "prompt", "action", "ref")
_BASE64 = regex(r"[A-Za-z0-9+/]+={0,2}")
_OFFLOADED_MESSAGE = regex(r"## Offloaded Content Reference\n\*\*File:\*\* (.+)\n")
_DIFF_FILE_LINE = regex(r"(?:---|\+\+\+) ")
_DIFF_CLASSES = {"+": "plus", "-": "minus", "@": "hunk"}
SOURCE_TITLES = {
    "environment": "Environment",
    "instructions": "Instructions",
    "notice": "Notice",
    "note": "Your note",
    "hook": "Message of a hook",
    "attachment": "Your attachment",
    "skill": "Skill",
    "plan": "Plan",
    "loaded tools": "Tools that were loaded",  # only in older logs
    "skill list": "List of skills",
}
SIDE_CALL_TITLES = {
    "summary": "Call for a summary",
    "verify": "Call that checks a summary",
    "attempt": "Interrupted call",
    "warm": "Request that kept the cache warm",  # only in older logs
}
EXPECTED_STOPS = (None, "end_turn", "tool_use", "stop_sequence")  # not shown


def time(at: str, since: str = "") -> str:
    """Return a log time with minute precision, without the date if it is the date of `since`."""
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return at
    short = f"{moment:%H:%M}" if at[:10] == since[:10] else f"{moment:%Y-%m-%d %H:%M}"
    at = escape(at)  # the separator of date and time may be any character
    return Markup(f'<time datetime="{at}" title="{at}">{short}</time>')


def dollars(amount: float | None) -> str:
    if amount is None:
        return "price not known"
    return f"${amount:.4f}" if amount < 0.1 else f"${amount:,.2f}"


def text_of(content: Content) -> str:
    """Return the text of a content, without its images."""
    if isinstance(content, str):
        return content
    return content_text([block for block in content if block.get("type") == "text"])


def shell_command_text(entry: User) -> str:
    """Return the model's information about a command that the user ran, without its output."""
    return content_text(entry.content[:-1] if isinstance(entry.content, list) else "")


def reply_text(entry: Assistant) -> str:
    texts = [str(b.get("text") or "") for b in entry.content if b.get("type") == "text"]
    return "\n\n".join(texts)


def offloaded_path(text: str) -> str | None:
    """Return the file named by the reference that replaces a long user message, or None for other
    text.
    """
    reference = _OFFLOADED_MESSAGE.match(text)
    return f"offloaded/{PurePath(reference[1]).name}" if reference else None


def usage_text(entry: Assistant) -> str:
    usage = Usage.from_json(entry.usage)
    if not usage.total:
        return ""
    cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
    cost = f" · {dollars(entry.cost_usd)}" if entry.cost_usd is not None else ""
    return f"{usage.prompt:,} in{cached} · {usage.output:,} out{cost}"


def subagent_facts(agent: SubagentRun) -> str:
    facts = [agent.status, count_of(agent.calls, "call")]
    facts.append(f"{Usage.from_json(agent.usage).total:,} tokens")
    return " · ".join([*facts, dollars(agent.cost_usd)] if agent.calls else facts)


def log_place(entry: Entry) -> str:
    return f"entry #{entry.seq} of the log has all of it"


def tool_names(entry: Session) -> str:
    return ", ".join(str(tool.get("name")) for tool in entry.tools or ())


def is_short(text: str) -> bool:
    return text.count("\n") < _MAX_OPEN_LINES and len(text) <= _MAX_OPEN_CHARS


def opening(text: str) -> tuple[str, str]:
    """Return the beginning of a message and the rest, which is folded ("" for a short message)."""
    text = clean(text)
    if text.count("\n") < _MAX_OPEN_MESSAGE_LINES and len(text) <= _MAX_OPEN_MESSAGE_CHARS:
        return text, ""
    first = "\n".join(text.split("\n", _OPENING_LINES)[:_OPENING_LINES])
    if len(first) > _OPENING_CHARS:
        cut = first[:_OPENING_CHARS]
        first = cut[: max(cut.rfind(" "), cut.rfind("\n"))] or cut
    return first, text[len(first) :].removeprefix("\n")


def preview(text: str) -> str:
    return text[:_MAX_PREVIEW_CHARS]


def first_line(text: str) -> str:
    return preview(next((line.strip() for line in text.split("\n") if line.strip()), ""))


def json_text(value: Any) -> str:
    """Return any value of a log as JSON."""
    try:
        text = json.dumps(value, ensure_ascii=False, indent=1)
    except RecursionError:  # with `indent`, json is in Python and limited in depth
        text = json.dumps(value, ensure_ascii=False)
    return cut_middle(text, "the log has all of it")


def diff_class(line: str) -> str:
    return "" if _DIFF_FILE_LINE.match(line) else _DIFF_CLASSES.get(line[:1], "")


def subject(given: Any) -> tuple[str, str]:
    """Return the name and the value of a call's main argument, on one line."""
    if not isinstance(given, dict):
        return "", ""
    for name in _SUBJECTS:
        value = given.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            first, _, rest = str(value).strip().partition("\n")
            if name == "ref" and first.isdecimal():
                first = f"#{first}"
            short = cut_after(first, _MAX_PREVIEW_CHARS)
            return name, f"{short} …" if rest else short
    return "", ""


def other_arguments(given: Mapping[str, Any], name: str, line: str) -> dict[str, Any]:
    """Return the arguments that the subject line does not show in full."""
    in_full = name and str(given[name]).strip() in (line, line.removeprefix("#"))
    return {key: value for key, value in given.items() if not (in_full and key == name)}


def outcome(result: ToolResult) -> str:
    """Summarize the outcome of a call in a few words."""
    return " · ".join(_outcome(result))


def _outcome(result: ToolResult) -> Iterator[str]:
    details = result.details
    if result.is_error:
        yield "error"
    if result.offloaded:
        yield "moved to a file"
    if details.get("denied") is True or details.get("not_run"):
        yield "not run"
    if details.get("interrupted") and not details.get("not_run"):
        yield "interrupted"
    elif details.get("exit_code") is not None:
        yield f"exit {details['exit_code']}"
    if details.get("added") is not None and details.get("removed") is not None:
        yield f"+{details['added']} −{details['removed']}"
    seconds = details.get("seconds")
    if isinstance(seconds, int | float) and seconds >= 0.1:
        yield f"{seconds:.1f} s"


def attachments(content: Content) -> Iterator[tuple[str, str]]:
    """Yield (type and size, `data:` address) for each image or document of a content. The address
    is "" except for small images.
    """
    for block in content if isinstance(content, list) else ():
        if block.get("type") == "text":
            continue
        source = block.get("source")
        source = source if isinstance(source, dict) else {}
        kind, data = str(source.get("media_type") or block.get("type")), source.get("data")
        data = data if isinstance(data, str) else ""
        size = len(data.rstrip("=")) * 3 // 4
        label = f"{kind}, {count_of(size, 'byte')}" if data else kind
        shown = kind in _IMAGE_TYPES and 0 < size <= _MAX_IMAGE_BYTES and _BASE64.fullmatch(data)
        yield label, f"data:{kind};base64,{data}" if shown else ""
