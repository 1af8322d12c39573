"""Convert the answers of servers from the SDK's types to parts of text or bytes. Notes on wrong
parts of an answer come last.
"""

import base64
import binascii
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ....tools.mcp import McpAnswer, Part, shown_text
from .shapes import notes_in

if TYPE_CHECKING:
    import mcp_types as types

TEXT_TYPES = ("application/json", "application/xml", "application/javascript", "application/toml")
MAX_PROMPT_CHARS = 200_000
_STANDARD_LETTERS = str.maketrans("-_", "+/")


def parts_of(result: "types.CallToolResult") -> McpAnswer:
    """Return the answer to a call."""
    parts = [part for block in result.content for part in _block(block)]
    return McpAnswer([*parts, *_notes(result)], bool(result.is_error))


def resource_answer(result: Any) -> McpAnswer:
    """Return the content of a resource."""
    parts = [part for each in result.contents for part in _resource(each)]
    return McpAnswer([*parts, *_notes(result)])


def prompt_text(result: Any) -> str:
    """Return the messages of a prompt as one text. Other content is replaced by its media type."""
    lines = list[str]()
    for message in result.messages:
        for part in _block(message.content):
            text = part.text if part.data is None else f"[{part.media_type}, left out]"
            lines.append(text if message.role == "user" else f"[{message.role}:] {text}")
    lines += [note.text for note in _notes(result)]
    return "\n\n".join(lines)[:MAX_PROMPT_CHARS]


def _notes(result: Any) -> list[Part]:
    return [Part(f"[About this answer: {shown_text(note)}]") for note in notes_in(result)]


def _block(block: Any) -> Iterable[Part]:
    """Yield the parts of one block of content."""
    if block.type == "text":
        yield Part(block.text)
    elif block.type in ("image", "audio"):
        yield _bytes(block.data, block.mime_type)
    elif block.type == "resource":
        yield from _resource(block.resource)
    elif block.type == "resource_link":
        about = f"{shown_text(block.name)[:200]} ({shown_text(block.mime_type or '')[:100]})"
        yield Part(f"[resource {shown_text(str(block.uri))[:2_000]}: {about}]")


def _resource(contents: Any) -> Iterable[Part]:
    media_type = contents.mime_type or ""
    text = getattr(contents, "text", None)
    if text is not None and "svg" not in media_type:
        yield Part(text)
    elif text is not None:
        yield Part(data=text.encode("utf-8", "replace"), media_type=media_type)
    else:
        yield _bytes(contents.blob, media_type)


def _bytes(encoded: str, media_type: str) -> Part:
    """Decode base64 content: as text if its media type is textual, else as bytes. The letters of
    URLs, a data URL, line ends and missing padding are accepted.
    """
    if encoded.startswith("data:"):
        encoded = encoded.partition(",")[2]
    plain = "".join(encoded.split()).translate(_STANDARD_LETTERS).rstrip("=")
    try:
        data = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return Part(f"[{shown_text(media_type)[:100]}: not valid base64, left out]")
    media_type = media_type.partition(";")[0].strip().lower()
    if media_type.startswith("text/") or media_type in TEXT_TYPES:
        return Part(data.decode("utf-8", "replace"))
    return Part(data=data, media_type=media_type)
