"""Read: show a file as numbered lines, as an image, or by its pages or cells.

Memory is bounded for files of any size. Up to `file_access.MAX_FILE_BYTES` are read whole. A larger
file is streamed up to the end of the wanted page. A cut page tells the model how to see the rest.
"""

import base64
import codecs
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, BinaryIO

from pydantic import Field

from ..agent.errors import ToolError
from ..agent.lazy import dataclass
from . import image as images
from . import notebook, pdf
from . import text as texts
from .base import Brief, Context, Output, Params, Tool, unstated
from .file_access import MAX_FILE_BYTES, Place, binary, form_of, locate, opened
from .offered import EVERY, Offered
from .system.phrasing import count_of, one_line
from .system.take_turn import in_thread
from .system.unicode import clean
from .text import CHUNK_BYTES, Form, NotText

MAX_LINES = 2_000
MAX_WHY_CHARS = 200  # of the reason why an image cannot be shown
MAX_PAGE_CHARS = 100_000  # per answer
MAX_LINE_CHARS = 2_000  # longer lines are cut in the middle
LONG_LINE_START_CHARS = 1_500
LONG_LINE_END_CHARS = 400
_REST_OF_LINE = (
    "; {Grep} -o or {Bash} `sed -n {number}p FILE | cut -c {first}-{last}` can show the rest",
    "; {Bash} `sed -n {number}p FILE | cut -c {first}-{last}` can show the rest",
)
_ENCODINGS = ("; {Edit} and {Write} keep it", "; {Edit or Write} keeps it")
_UNKNOWN_ENCODING = (
    ". {Edit} and {Write} accept only ASCII for this file, unless you state its encoding",
    ". {Edit or Write} accepts only ASCII for this file, unless you state its encoding",
)


class ReadParams(Params):
    path: str
    offset: int = Field(1, ge=0, description="First line, page or cell", json_schema_extra=unstated)
    limit: int = Field(MAX_LINES, ge=1, json_schema_extra=unstated)
    encoding: str | None = None


class ReadTool(Tool[ReadParams]):
    name = "Read"
    description = "Reads a file, also an image, PDF or notebook."
    brief = Brief("Reads a file.", ("path", "offset"))
    effect = "read"
    Params = ReadParams

    def subject(self, params: ReadParams) -> str:
        return params.path

    def title(self, params: ReadParams) -> str:
        return params.path if params.offset <= 1 else f"{params.path}:{params.offset}"

    async def run(self, params: ReadParams, context: Context) -> Output:
        stop = threading.Event()  # stops the scan of a huge file if the call is cancelled
        try:
            return await in_thread(_read, params, context, stop)
        finally:
            stop.set()


def _read(params: ReadParams, context: Context, stop: threading.Event) -> Output:
    place = locate(context, params.path)
    with opened(place) as file:
        data = file.read(MAX_FILE_BYTES + 1)
        if data is None:  # a kernel file that would block
            way = context.offered.say(" {Read} it with timeout in {Bash}.")
            raise ToolError(f"{place.name} has no data now.{way}")
        size = len(data) if len(data) <= MAX_FILE_BYTES else os.fstat(file.fileno()).st_size
        if output := image_output(place.name, data, size, context.offered):
            return replace(output, details={"path": str(place.path), **output.details})
        if data.startswith(pdf.MAGIC):
            return _pdf(place, file, params)
        try:
            if size <= MAX_FILE_BYTES:
                form = form_of(place, data, params.encoding)
                text = texts.decode_as(data, form)
            else:
                form = form_of(place, data[:CHUNK_BYTES], params.encoding, whole=False)
                output = _stream(place, file, form, params, stop)
                is_notebook = place.path.suffix == notebook.SUFFIX
                return _as_text(output, "it is too large") if is_notebook else output
        except NotText:
            raise ToolError(
                binary(place, data, size)
                + place.offered.say(" Look into it with {Bash} (file, strings, xxd, tar -t).")
            ) from None
    seen = context.seen.note(place.path, data)
    if place.path.suffix != notebook.SUFFIX:
        return _text(place, text, form, params, seen)
    try:
        return _notebook(place, text, params, seen)
    except ValueError as error:
        return _as_text(_text(place, text, form, params, seen), error)


def _as_text(output: Output, why: object) -> Output:
    return replace(output, text=f"{output.text}\n[not shown as a notebook: {why}]")


def _pdf(place: Place, file: BinaryIO, params: ReadParams) -> Output:
    first = max(1, params.offset)
    try:
        found = pdf.read_pdf(file, first, params.limit, MAX_PAGE_CHARS)
    except ValueError as error:
        why = str(error).rstrip(".")
        raise ToolError(
            f"{place.name}, a PDF, cannot be read: {why}."
            + place.offered.say(" Look into it with {Bash} (pdfinfo, pdftotext, strings).")
        ) from None
    if first > found.total:
        raise _past_end(place, found.total, "page", first)
    text = pdf.shown(place.name, found, place.offered)
    return Output(text, {"path": str(place.path), "pages": found.total})


def _notebook(place: Place, text: str, params: ReadParams, seen: dict[str, str]) -> Output:
    """Return the cells of a notebook, with the images after the text. Raises ValueError for a text
    that is not a notebook.
    """
    first = max(1, params.offset)
    page = notebook.read_cells(text, first, params.limit, place.offered)
    if first > max(1, page.total):
        raise _past_end(place, page.total, "cell", first)
    shown, blocks = page.shown(place.name), list[dict[str, Any]]()
    for number, data in enumerate(page.images, 1):
        try:
            image = image_output(f"image {number}", data, len(data), place.offered)
            blocks += (image and image.blocks) or ()
            problem = "" if image else f"image {number} is of no known format"
        except ToolError as error:
            problem = str(error)
        shown += f"\n\n[{problem}]" if problem else ""
    details = {"path": str(place.path), "seen": seen, "cells": page.total}
    text_block = {"type": "text", "text": shown}
    return Output(shown, details, blocks=[text_block, *blocks] if blocks else None)


def _past_end(place: Place, total: int, unit: str, first: int) -> ToolError:
    return ToolError(f"{place.name} has {count_of(total, unit)}; offset={first} is past its end.")


def _text(place: Place, text: str, form: Form, params: ReadParams, seen: dict[str, str]) -> Output:
    total = texts.count_lines(text)
    details: dict[str, Any] = {"seen": seen, "total": total}
    if not text:
        details.update(path=str(place.path), encoding=form.encoding)
        return Output("[empty file]", details)
    chunks = (text[i : i + CHUNK_BYTES] for i in range(0, len(text), CHUNK_BYTES))
    page = _page(place, chunks, params)
    footer = f" of {total:,}" if page.more else ""
    return _output(place, page, form, footer, details)


def _stream(
    place: Place, file: BinaryIO, form: Form, params: ReadParams, stop: threading.Event
) -> Output:
    """Return a page of a file that is too large for memory. Its lines are not counted."""
    file.seek(len(form.bom))
    page = _page(place, _decoded(file, form, stop), params)
    return _output(place, page, form, " of a file too large to count", {})


def _decoded(file: BinaryIO, form: Form, stop: threading.Event) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(form.encoding)("replace")
    while not stop.is_set() and (data := file.read(CHUNK_BYTES)):
        yield decoder.decode(data)
    yield decoder.decode(b"", final=True)


@dataclass(frozen=True, slots=True)
class _Page:
    lines: list[str]
    first: int
    more: bool

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


def _page(place: Place, chunks: Iterator[str], params: ReadParams) -> _Page:
    first = max(1, params.offset)
    rest, before = _skip(chunks, first - 1)
    lines: list[str] = []
    size, more = 0, False
    for n, line in enumerate(_lines(rest), first):
        shown = f"{n}\t{line.shown(n, place.offered)}"
        size += len(shown) + 1
        if len(lines) == params.limit or (lines and size > MAX_PAGE_CHARS):
            more = True
            break
        lines.append(shown)
    if not lines:
        raise ToolError(
            f"{place.name} has {before:,} lines; offset={first} is past its end. "
            f"Its last page starts at offset={max(1, before - MAX_LINES + 1)}."
        )
    return _Page(lines, first, more)


def _output(place: Place, page: _Page, form: Form, of: str, details: dict[str, Any]) -> Output:
    text = texts.printable("\n".join(page.lines))
    if page.more:
        shown = f"{page.first:,}-{page.last:,}" if len(page.lines) > 1 else f"{page.first:,}"
        word = "lines" if len(page.lines) > 1 else "line"
        text += f"\n[{word} {shown}{of}; go on with offset={page.last + 1}]"
    if form.errors != "strict":
        text += "\n[some bytes are not valid UTF-8 and are shown as \ufffd"
        text += place.offered.say("; {Edit} keeps them", "]")
    elif not form.is_certain:
        text += (
            f"\n[the encoding is unknown: shown as {form.encoding}, which may be wrong"
            f"{place.offered.say(_UNKNOWN_ENCODING)}]"
        )
    elif form.encoding != "utf-8":
        text += f"\n[the file's encoding is {form.encoding}{place.offered.say(_ENCODINGS)}]"
    details |= {
        "path": str(place.path),
        "encoding": form.encoding,
        "lines": [page.first, page.last],
    }
    return Output(text, details)


def _skip(chunks: Iterator[str], count: int) -> tuple[Iterator[str], int]:
    """Skip `count` lines. Return the rest and the number of skipped lines."""
    passed, ended = 0, True
    for chunk in chunks:
        here = chunk.count("\n")
        if passed + here >= count:
            return chain([chunk.split("\n", count - passed)[-1]], chunks), count
        passed += here
        ended = chunk.endswith("\n") if chunk else ended
    return iter(()), passed + (not ended)


@dataclass(slots=True)
class _Line:
    """A line of any length; only its start and end are stored."""

    start: str = ""
    end: str = ""
    length: int = 0

    def add(self, part: str) -> None:
        self.length += len(part)
        self.start += part[: MAX_LINE_CHARS - len(self.start)]
        self.end = (self.end + part)[-LONG_LINE_END_CHARS:]

    def shown(self, number: int, offered: Offered) -> str:
        if self.length <= MAX_LINE_CHARS:
            return self.start.removesuffix("\r")
        first, last = LONG_LINE_START_CHARS + 1, LONG_LINE_START_CHARS + MAX_LINE_CHARS
        way = offered.say(_REST_OF_LINE, number=number, first=first, last=last)
        note = f"[line {number} has {self.length:,} characters{way}]"
        return f"{self.start[:LONG_LINE_START_CHARS]} … {note} … {self.end.removesuffix(chr(13))}"


def _lines(chunks: Iterator[str]) -> Iterator[_Line]:
    line = _Line()
    for chunk in chunks:
        *ended, rest = chunk.split("\n")
        for part in ended:
            line.add(part)
            yield line
            line = _Line()
        line.add(rest)
    if line.length:
        yield line


def image_output(name: str, data: bytes, size: int, offered: Offered = EVERY) -> Output | None:
    """Return an image with its original, shrunk or converted as needed; None if the data is not an
    image. Blocks. Raises ToolError if the image cannot be shown.
    """
    format = images.format_of(data)
    if not format:
        return None
    if size > len(data):
        raise ToolError(f"{name} is too large an image to be shown: {size:,} bytes.")
    try:
        image = images.shown(data, format)
    except ValueError as error:
        why = one_line(clean(str(error)), MAX_WHY_CHARS)
        raise ToolError(
            f"{name}, an image ({format}, {size:,} bytes), cannot be shown: {why}."
            + offered.say(
                " Make another copy with {Bash}, e.g. convert FILE -resize 1500x1500 COPY.png."
            )
        ) from None
    width, height = image.original_size
    text = f"{name}: {format}, {width} x {height} pixels, {size:,} bytes"
    details: dict[str, Any] = {"width": width, "height": height, "bytes": size}
    if image.data is not data:
        details["shown"] = f"{image.size[0]} x {image.size[1]}"
        text += f", shown at {details['shown']}"
    encoded = base64.b64encode(image.data).decode("ascii")
    source = {"type": "base64", "media_type": image.media_type, "data": encoded}
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": f"[{text}]"},
        {"type": "image", "source": source},
    ]
    return Output(f"[{text}]", details, blocks=blocks, original=data)
