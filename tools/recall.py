"""Recall: get back text that left the context, by a query or by ref."""

import asyncio
import string
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from ..agent.errors import ToolError
from .base import Brief, Context, Findings, Output, Params, Passage, TextPart, Tool, unstated
from .read import image_output
from .system.kept_text import KeptText

MAX_CHARS = 30_000  # characters per answer
MAX_SHORT_WORD_CHARS = 3  # of a word that a part need not have
MAX_QUERY_CHARS_SHOWN = 200  # characters of a query quoted in a message
# A text with fewer lines is only the caption of its images.
MAX_CAPTION_LINES, MAX_CAPTION_CHARS = 3, 1_000
CHARS_BEFORE_EXCERPT = 500  # characters shown before an excerpt when reading on


class RecallParams(Params):
    query: str | None = Field(
        None,
        description="Exact names, paths, numbers or words of an error",
    )
    ref: Annotated[int | str | None, WithJsonSchema({"type": "string"})] = None
    offset: int = Field(0, ge=0)
    limit: int = Field(MAX_CHARS, ge=1, le=MAX_CHARS, json_schema_extra=unstated)
    scope: Literal["session", "project"] = Field("session", json_schema_extra=unstated)
    session: str | None = None


class RecallTool(Tool[RecallParams]):
    name = "Recall"
    description = (
        "Returns earlier content, also what a summary or stub replaced. Use it before you ask or "
        "guess. `query` lists passages; the `ref` of a passage, stub or summary returns the whole "
        "text."
    )
    brief = Brief(
        "Returns earlier text of this conversation: the text with the number `ref` in a short "
        "line, or texts with the words of `query`.",
        ("query", "ref"),
    )
    effect = "none"
    Params = RecallParams

    def title(self, params: RecallParams) -> str:
        words = " ".join((params.query or "").split())
        return " in ".join(filter(None, [words, _ref(params) if params.ref is not None else ""]))

    async def run(self, params: RecallParams, context: Context) -> Output:
        if params.ref is not None:
            return await asyncio.to_thread(_recalled, params, context)
        if not params.query:
            raise ToolError("Give a query or a ref.")
        return await asyncio.to_thread(_found, params.query, params, context)


def _found(query: str, params: RecallParams, context: Context) -> Output:
    """Return the passages of the conversations that match a query."""
    findings = context.search(query, params.session or params.scope)
    refs = [passage.ref for passage in findings.passages]
    return Output(_listed(query, findings, context), {"recalled": refs})


def _recalled(params: RecallParams, context: Context) -> Output:
    ref = _ref(params)
    text, images = context.recall(ref), context.recall_images(ref)
    if params.query and (text is not None or not images):
        return _parts(ref, text, params.query, params, context)
    if shown := images_of_entry(ref, images, text, params.offset, params.limit):
        return shown
    if text is None:
        raise ToolError(f"There is no {ref} with text. A query finds what there is.")
    return part_of_text(ref, text, params.offset, params.limit)


def _parts(
    ref: str, text: KeptText | None, query: str, params: RecallParams, context: Context
) -> Output:
    """Return the parts of a text that match the query, with their offsets. If it does not have all
    words, return the passages of the conversations, because models confuse and invent refs.
    """
    parts = context.find_parts(text, query) if text else ()
    if not _has_all(query, parts):
        found = _found(query, params, context)
        if found.details["recalled"] or not parts:
            why = f"{ref} does not have all these words" if text else f"There is no {ref} with text"
            return replace(found, text=f"[{why}; searched everything.]\n{found.text}")
    total = text.part(0, 0)[1] if text else 0
    shown_query = repr(query[:MAX_QUERY_CHARS_SHOWN])
    head = f"[the parts of {ref} that match {shown_query} best; it has {total:,} characters]"
    shown = [f"[from offset={part.offset}]\n{part.text}" for part in parts]
    details = {"recalled": [ref], "characters": total}
    return Output("\n".join([head, *shown])[:MAX_CHARS], details)


def _has_all(query: str, parts: Sequence[TextPart]) -> bool:
    """Return True if the parts have all words of a query that are not short."""
    text = "\n".join(part.text for part in parts).lower()
    words = (word.strip(string.punctuation).lower() for word in query.split())
    return bool(parts) and all(word in text for word in words if len(word) > MAX_SHORT_WORD_CHARS)


def _ref(params: RecallParams) -> str:
    return full_ref(str(params.ref), params.session)


def full_ref(ref: str, session: str | None) -> str:
    """Prefix a ref of an entry with its session, unless the ref names a session or no entry."""
    ref = ref.strip()
    ref = f"#{ref}" if ref.isdecimal() else ref
    return f"{session}{ref}" if session and ref.startswith("#") else ref


def images_of_entry(
    ref: str, images: Sequence[bytes], text: KeptText | None, offset: int, limit: int
) -> Output | None:
    """Return the images of a ref, after the beginning of the text that they illustrate. Return None
    if no image can be shown or `offset` skips the beginning. Blocks.
    """
    said = text.part(0, MAX_CAPTION_CHARS)[0] if images and text else ""
    is_illustrated = said.count("\n") >= MAX_CAPTION_LINES
    if is_illustrated and offset:
        return None
    outputs = list[Output]()
    for number, data in enumerate(images, 1):
        name = f"image {number} of {ref}" if is_illustrated else f"the image of {ref}"
        with suppress(ToolError):
            outputs += filter(None, [image_output(name, data, len(data))])
    if not outputs or not (is_illustrated and text):
        first = next(iter(outputs), None)
        return first and replace(first, details={"recalled": [ref], **first.details})
    whole = part_of_text(ref, text, 0, limit)
    blocks = [block for each in outputs for block in each.blocks or ()]
    return replace(whole, blocks=[{"type": "text", "text": whole.text}, *blocks])


def part_of_text(ref: str, text: KeptText, offset: int, limit: int) -> Output:
    """Return `limit` characters of a text from `offset` on, and how to continue. Raises ToolError
    for an offset beyond the end.
    """
    part, total = text.part(offset, limit)
    if offset >= total > 0:
        raise ToolError(f"{ref} has {total:,} characters; the offset is past them.")
    end = offset + limit
    if end < total:
        part += f"\n[{end:,} of {total:,} characters; go on with offset={end}]"
    return Output(part or "[empty]", {"recalled": [ref], "characters": total})


def _listed(query: str, findings: Findings, context: Context) -> str:
    if findings.passages:
        return passages_text(findings)
    return nothing_found(query, findings) + context.offered.say(
        " Try other words or scope=project",
        (
            ", or {Grep} {archive} for a part of a word",
            ", or search {archive} for a part of a word with grep in {Bash}",
        ),
        ".",
        archive=_archive(context),
    )


def nothing_found(query: str, findings: Findings) -> str:
    return f"Nothing found for {query[:MAX_QUERY_CHARS_SHOWN]!r}. Searched: {findings.searched}."


def passages_text(findings: Findings) -> str:
    """Return the passages of a search with their refs, in at most MAX_CHARS."""
    head = f"The best of what was found, in order. Searched: {findings.searched}."
    return "\n\n".join([head, *map(_shown, findings.passages)])[:MAX_CHARS]


def _shown(passage: Passage) -> str:
    offset = max(0, passage.offset - CHARS_BEFORE_EXCERPT)
    more = f', "offset": {offset}' if offset else ""
    head = f"{passage.ref} · {passage.what} · {passage.at}"
    results = "".join(f"result {ref}:\n{text}\n" for ref, text in passage.results)
    return f'{head}\n{passage.excerpt}\n{results}(whole: {{"ref": "{passage.ref}"{more}}})'


def _archive(context: Context) -> str:
    """Return the file to Grep: conversation.md, or the log if conversation.md does not exist."""
    folder = context.session_dir
    if folder is None:
        return "conversation.md"
    path = folder / "conversation.md"
    return str(path if path.exists() else folder / "log.jsonl")
