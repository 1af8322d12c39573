"""A call of a tool and its result, as one piece: what was asked in a line, what came of it below,
folded where it is long."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...tools.system.shorten import cut_after
from ..session.entries import Block, Content, ToolResult, User, shell_result
from ..session.store import content_text
from .html import Html, element, folded, joined
from .page_model import Story, cut, data, lines

_SHORT = (12, 1_200)  # lines and characters of a result that is shown at once
_DIFF = 60  # lines of a diff that is
_TITLE = 200  # characters
_SUBJECTS = ("command", "pattern", "query", "path", "description", "prompt", "action", "ref")
_PICTURE = 256 * 1024  # bytes of an image that the page itself holds
_PICTURED = ("image/png", "image/jpeg", "image/gif", "image/webp")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_NAMES = re.compile(r"(?:---|\+\+\+) ")  # the lines of a diff that name its file
_CHANGES = {"+": "plus", "-": "minus", "@": "hunk"}


def call(story: Story, block: Block, answer: ToolResult | None, raw: str | None) -> Html:
    """One call with its result. `raw` are its arguments as they came when they were no JSON."""
    given = block.get("input")
    subject, said = _subject(given)
    here = subject == "ref" and isinstance(given, dict) and not given.get("session")
    shown = story.referring(said) if here else said
    parts = [element("b", str(block.get("name"))), element("code", shown) if said else ""]
    parts.append(facts(story, answer) if answer else element("span", "no result", class_="facts"))
    inside: list[str] = []
    if raw is not None:
        inside.append(folded("Arguments that are no JSON", element("pre", raw)))
    elif isinstance(given, dict) and (rest := _others(given, subject, said)):
        inside.append(folded(joined(["Arguments", _teaser(", ".join(rest))]), _arguments(rest)))
    elif given and not isinstance(given, dict):
        inside.append(folded("Arguments", data(given)))
    if answer:
        inside.append(result(story, answer))
    failed = answer is not None and answer.is_error
    return element(
        "section",
        element("div", *parts, class_="head"),
        *inside,
        class_="call failed" if failed else "call",
    )


def ran(story: Story, entry: User) -> Html:
    """A command that the person ran, what the model was told of it, and what it said."""
    answer, told = (
        shell_result(entry),
        entry.content[:-1] if isinstance(entry.content, list) else "",
    )
    said = _subject({"command": entry.details.get("command")})[1]
    head = element(
        "div",
        element("code", said),
        element("span", " · ".join(_facts(answer)), class_="facts"),
        class_="head",
    )
    before = passage(
        "As the model was told", cut(content_text(told), "the log has it"), closed=True
    )
    inside = _texts(story, answer, closed=False)
    failed = " failed" if answer.is_error else ""
    return element("section", head, before, *inside, class_=f"call{failed}")


def facts(story: Story, entry: ToolResult) -> Html:
    """How a call went, in a few words, and the ref of its result."""
    stubs = story.stubbed.get(entry.seq, [])
    stubbed = [" · stubbed by ", joined(_between(", ", map(story.link, stubs)))] if stubs else []
    told = element("span", " · ".join(_facts(entry)), *stubbed, class_="facts")
    return joined([told, story.link(entry.seq)])


def result(story: Story, entry: ToolResult) -> Html:
    """What came of a call: the change it made, and its text."""
    diff = entry.details.get("diff")
    shown = [diffed(diff)] if isinstance(diff, str) and diff else []
    inside = _texts(story, entry, closed=bool(shown))
    return element("div", *shown, *inside, class_="result", id=story.anchor(entry.seq))


def diffed(diff: str) -> Html:
    """A unified diff in colour."""
    text = cut(diff.rstrip("\n"), "the log has all of it")
    told = [
        element("span", f"{line}\n", class_=None if _NAMES.match(line) else _CHANGES.get(line[:1]))
        for line in text.split("\n")
    ]
    body = element("pre", *told, class_="diff")
    return folded(f"Change · {lines(text)}", body, open=len(told) <= _DIFF)


def passage(head: str, text: str, *, closed: bool = False) -> Html:
    """A text of a session in its own layout: open when it is short, else by its first words."""
    count, size = text.count("\n") + 1, len(text)
    brief = count <= _SHORT[0] and size <= _SHORT[1]
    first = next((line.strip() for line in text.split("\n") if line.strip()), "")
    where = f"{head} · {lines(text)}" if head else lines(text)
    head = joined([where, _teaser(first)])
    return folded(head, element("pre", text), open=brief and not closed)


def _teaser(text: str) -> Html:
    """The beginning of what is folded, gone when it is not."""
    return element("span", text[:_TITLE], class_="teaser")


def media(blocks: Content) -> Iterator[Html]:
    """The images and documents of a content: a small picture as it is, others by type and size."""
    for block in blocks if isinstance(blocks, list) else ():
        if block.get("type") == "text":
            continue
        source = block.get("source")
        source = source if isinstance(source, dict) else {}
        kind, held = str(source.get("media_type") or block.get("type")), source.get("data")
        held = held if isinstance(held, str) else ""
        size = len(held.rstrip("=")) * 3 // 4
        told = f"{kind}, {size:,} bytes" if held else kind
        if kind in _PICTURED and 0 < size <= _PICTURE and _BASE64.fullmatch(held):
            yield element("img", src=f"data:{kind};base64,{held}", alt=told, title=told)
        else:
            yield element("p", f"[{told}]", class_="quiet")


def _texts(story: Story, entry: ToolResult, closed: bool) -> Iterator[Html]:
    text = content_text([b for b in entry.content if b.get("type") == "text"]) if isinstance(
        entry.content, list
    ) else entry.content  # fmt: skip
    if not entry.offloaded:
        if text.strip():
            where = f"entry #{entry.seq} of the log has all of it"
            yield passage("", cut(text.strip("\n"), where), closed=closed)
    else:
        yield from offloaded(story, entry.offloaded, text)
    yield from media(entry.content)


def offloaded(story: Story, path: str, reference: str) -> Iterator[Html]:
    """A text that was too large to be sent: what the model got instead, and all of it."""
    yield passage("What the model got", reference, closed=True)
    text = story.whole(path)
    if text is None:
        yield element("p", f"The whole text is not in this page; its file: {path}", class_="quiet")
    else:
        whole = cut(text.strip("\n"), f"{path} has all of it")
        yield passage(f"All of it, from {path}", whole, closed=True)


def _subject(given: Any) -> tuple[str, str]:
    """The argument that a call is about, and a line of it."""
    if not isinstance(given, dict):
        return "", ""
    for name in _SUBJECTS:
        value = given.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            first, _, rest = str(value).strip().partition("\n")
            if name == "ref" and first.isdecimal():
                first = f"#{first}"
            short = cut_after(first, _TITLE)
            return name, f"{short} …" if rest else short
    return "", ""


def _others(given: Mapping[str, Any], subject: str, said: str) -> dict[str, Any]:
    """The arguments of which the headline does not say all."""
    whole = subject and str(given[subject]).strip() in (said, said.removeprefix("#"))
    return {name: value for name, value in given.items() if not (whole and name == subject)}


def _arguments(given: Mapping[str, Any]) -> Html:
    rows: list[str] = []
    for name, value in given.items():
        if isinstance(value, str):
            shown = element("pre", cut(value, "the log has all of it"))
        else:
            shown = data(value)
        rows += [element("dt", name), element("dd", shown)]
    return element("dl", *rows, class_="arguments")


def _facts(entry: ToolResult) -> Iterator[str]:
    details = entry.details
    if entry.is_error:
        yield "error"
    if entry.offloaded:
        yield "moved to a file"
    if details.get("denied") is True:
        yield "not run"
    if details.get("interrupted"):
        yield "interrupted"
    elif details.get("exit_code") is not None:
        yield f"exit {details['exit_code']}"
    if details.get("added") is not None and details.get("removed") is not None:
        yield f"+{details['added']} −{details['removed']}"
    seconds = details.get("seconds")
    if isinstance(seconds, int | float) and seconds >= 0.1:
        yield f"{seconds:.1f} s"


def _between(mark: str, parts: Iterator[Html]) -> Iterator[str]:
    for number, part in enumerate(parts):
        if number:
            yield mark
        yield part
