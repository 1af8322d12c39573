"""Conversion of a prompt's content blocks to a message and its attachments."""

import binascii
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
)

from ...api.base import UsageError, dataclass, regex
from ...api.session import AttachedData

PromptBlock = (
    TextContentBlock
    | ImageContentBlock
    | AudioContentBlock
    | ResourceContentBlock
    | EmbeddedResourceContentBlock
)

_LINES = regex(r"L?(\d{1,9})(?:[-:]L?(\d{1,9}))?")
_BARE = regex(r"""[^\s"]+""")


@dataclass(frozen=True, slots=True)
class EditorPrompt:
    """A user message from an editor, with its attachments."""

    text: str
    attached: Sequence[AttachedData] = ()


def read_prompt_blocks(blocks: Sequence[PromptBlock], cwd: Path) -> EditorPrompt:
    """Return the message in a prompt. A link to a file becomes an `@path` mention, as if typed. A
    resource with its content and an image become attachments. Raises UsageError for an unsupported
    block and for an empty prompt.
    """
    words, attached, images = list[str](), list[AttachedData](), 0
    for place, block in enumerate(blocks):
        if isinstance(block, TextContentBlock):
            words.append(block.text)
        elif isinstance(block, ImageContentBlock):
            images += 1
            data = _decoded(block.data, f"prompt[{place}].data")
            attached.append(AttachedData(data, title="an image", name="Image"))
        elif isinstance(block, ResourceContentBlock):
            words.append(_mention(block.uri, block.name, cwd))
        elif isinstance(block, EmbeddedResourceContentBlock):
            resource = block.resource
            name = _path_of(resource.uri) or resource.uri
            if isinstance(resource, BlobResourceContents):
                data = _decoded(resource.blob, f"prompt[{place}].resource.blob")
            else:
                data = resource.text.encode("utf-8", "replace")
            words.append(f"[{_shown(name, cwd)}]")
            attached.append(AttachedData(data, title=name, name="Resource"))
        else:
            raise UsageError(
                f"prompt[{place}]: audio is not supported", hint="Send it as text, or as a file."
            )
    text = "".join(words)
    if not text.strip() and not attached:
        raise UsageError("the prompt is empty", hint="Send a text block, or an image.")
    if not text.strip():
        text = "[an image]" if images == 1 else f"[{images} images]"
    return EditorPrompt(text, attached)


def _mention(uri: str, name: str, cwd: Path) -> str:
    """Return a link as text: an `@path` mention of its file, else a Markdown link."""
    path = _path_of(uri)
    if not path:
        return f"[{name}]({uri})"
    shown = _shown(path, cwd)
    if lines := _LINES.fullmatch(urlsplit(uri).fragment):
        shown += f":{lines[1]}" + (f"-{lines[2]}" if lines[2] else "")
    if _BARE.fullmatch(shown):
        return f"@{shown}"
    quoted = shown.replace("\\", "\\\\").replace('"', '\\"')
    return f'@"{quoted}"'


def _path_of(uri: str) -> str:
    """Return the path in a `file:` URI or a plain path, "" for any other URI."""
    if uri.startswith("/"):
        return uri
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else ""


def _shown(path: str, cwd: Path) -> str:
    try:
        return str(Path(path).relative_to(cwd))
    except ValueError:
        return path


def _decoded(data: str, where: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"{where} is not base64: {error}") from None
