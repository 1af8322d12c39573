"""Convert images for the Messages API. Each image is decoded in another process, since an invalid
image would make every later request of the session fail. That process also shrinks and converts it
as needed.
"""

import json
import threading
from collections.abc import Mapping
from typing import Any

from ..agent.lazy import dataclass
from . import scale_image
from .system.isolated import run_isolated

MAX_IMAGE_BYTES = 5 * 1024 * 1024 * 3 // 4  # the API takes 5 MB of base64
MAX_SIDE_PIXELS = 2_000  # limit of width and height for a request with more than 20 images

_DECODERS = threading.BoundedSemaphore(4)  # each may use gigabytes for a moment
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "PNG"), (b"\xff\xd8\xff", "JPEG"), (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"), (b"II*\0", "TIFF"), (b"MM\0*", "TIFF"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Image:
    """An image as it is sent. Sizes are width and height in pixels."""

    data: bytes
    media_type: str
    size: tuple[int, int]
    original_size: tuple[int, int]


def format_of(data: bytes) -> str:
    """Return Pillow's name for the format of an image, "" for other data. Formats that the API does
    not accept are converted later.
    """
    if data.startswith(b"RIFF"):
        return "WEBP" if data[8:12] == b"WEBP" else ""
    if data[:2] == b"BM" and data[6:10] == b"\0\0\0\0":
        return "BMP"
    if data.startswith(b"\0\0\1\0") and data[4:6] != b"\0\0":
        return "ICO"
    if data[4:12] in (b"ftypavif", b"ftypavis"):
        return "AVIF"
    return next((format for magic, format in _MAGIC if data.startswith(magic)), "")


def shown(data: bytes, format: str) -> Image:
    """Return an image for the API: unchanged if it decodes and fits, else shrunk, rotated by its
    EXIF data or converted. Blocks. Raises ValueError with the reason.
    """
    wanted = (format, str(MAX_SIDE_PIXELS), str(MAX_IMAGE_BYTES))
    with _DECODERS:
        written, why = run_isolated(scale_image.__file__, wanted, data, scale_image.MAX_SECONDS)
    if why:
        raise ValueError(why[:200])
    head, _, made = written.partition(b"\n")
    told = json.loads(head)
    media_type = f"image/{told['format'].lower()}"
    return Image(made or data, media_type, tuple(told["size"]), tuple(told["original_size"]))


def image_size(details: Mapping[str, Any]) -> str:
    """Return the size of an image for the user, from the details of a result."""
    shown = details.get("shown")
    size = f"{details.get('width')} x {details.get('height')} pixels"
    return f"{size}, shown at {shown}" if shown else size
