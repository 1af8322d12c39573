"""Images, as far as the Messages API needs them known: media type, width and height, whole or cut.

Read from the bytes themselves, without decoding. An image that the API would refuse would make
every later request of the session fail, so another process decodes each, and makes it smaller or
converts it where it has to be.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from . import scale_image

MAX_IMAGE_BYTES = 5 * 1024 * 1024 * 3 // 4  # the API takes 5 MB of base64
MAX_SIDE_PIXELS = 2_000  # of width or height, where a request has more than 20 images

_DECODERS = threading.BoundedSemaphore(4)  # each may take gigabytes for a moment
_JPEG_ALONE = {0x01, *range(0xD0, 0xD9)}  # markers without a length
_JPEG_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}


Order = Literal["big", "little"]


@dataclass(frozen=True, slots=True)
class Image:
    """`width` and `height` in pixels; both 0 when the file is cut off or broken."""

    media_type: str
    width: int
    height: int

    @property
    def broken(self) -> bool:
        return not (self.width and self.height)


def recognise(data: bytes) -> Image | None:
    """Return what image this is; None when it is none that the API takes."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        whole = data[12:16] == b"IHDR" and b"IEND" in data
        return Image("image/png", *(_pair(data, 16, 20, 4, "big") if whole else (0, 0)))
    if data.startswith((b"GIF87a", b"GIF89a")):
        whole = data.rstrip(b"\0").endswith(b";")
        return Image("image/gif", *(_pair(data, 6, 8, 2, "little") if whole else (0, 0)))
    if data.startswith(b"\xff\xd8\xff"):
        return Image("image/jpeg", *_jpeg(data))
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        whole = int.from_bytes(data[4:8], "little") <= len(data) - 8
        return Image("image/webp", *(_webp(data) if whole else (0, 0)))
    return None


def fits(image: Image, size: int) -> bool:
    """Tell whether the API takes an image of so many bytes, whatever others a request has."""
    return size <= MAX_IMAGE_BYTES and max(image.width, image.height) <= MAX_SIDE_PIXELS


def format_of(data: bytes) -> str:
    """Return the format of an image that can be shown, as Pillow names it; "" for any other data.
    Those that the API does not take are converted."""
    if found := recognise(data):
        return found.media_type.partition("/")[2].upper()
    if data[:2] == b"BM" and data[6:10] == b"\0\0\0\0":
        return "BMP"
    if data.startswith((b"II*\0", b"MM\0*")):
        return "TIFF"
    if data.startswith(b"\0\0\1\0") and data[4:6] != b"\0\0":
        return "ICO"
    return "AVIF" if data[4:12] in (b"ftypavif", b"ftypavis") else ""


def shown(data: bytes, format: str) -> tuple[bytes, Image]:
    """Return an image as the API takes it: as it is where it can be decoded and fits, else made
    smaller, turned as its camera says, or converted; blocking. Raises ValueError, saying why it
    cannot be."""
    bounds = (str(MAX_SIDE_PIXELS), str(MAX_IMAGE_BYTES))
    command = [sys.executable, "-I", scale_image.__file__, format, *bounds]
    try:
        with _DECODERS:
            done = subprocess.run(
                command,
                input=data,
                capture_output=True,
                timeout=scale_image.MAX_SECONDS,
                env={"PATH": os.environ.get("PATH", "")},
            )
    except subprocess.TimeoutExpired:
        raise ValueError(f"that takes more than {scale_image.MAX_SECONDS} s") from None
    sent = done.stdout or data
    found = recognise(sent)
    if done.returncode or found is None or found.broken or not fits(found, len(sent)):
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise ValueError(said[0][:200] if said else f"it ended with {done.returncode}")
    return sent, found


def image_size(details: Mapping[str, Any]) -> str:
    """Return the size of an image for people, from the details of a result with it."""
    shown = details.get("shown")
    size = f"{details.get('width')} x {details.get('height')} pixels"
    return f"{size}, shown at {shown}" if shown else size


def _pair(data: bytes, x: int, y: int, size: int, order: Order) -> tuple[int, int]:
    return int.from_bytes(data[x : x + size], order), int.from_bytes(data[y : y + size], order)


def _jpeg(data: bytes) -> tuple[int, int]:
    place = 2
    while place + 9 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker in _JPEG_FRAMES:
            height, width = _pair(data, place + 5, place + 7, 2, "big")
            return (width, height) if b"\xff\xd9" in data[place:] else (0, 0)
        if marker == 0xFF:  # a fill byte
            place += 1
        elif marker in _JPEG_ALONE:
            place += 2
        else:
            place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return 0, 0


def _webp(data: bytes) -> tuple[int, int]:
    chunk = data[12:16]
    if chunk == b"VP8X":
        width, height = _pair(data, 24, 27, 3, "little")
        return width + 1, height + 1
    if chunk == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8 ":
        width, height = _pair(data, 26, 28, 2, "little")
        return width & 0x3FFF, height & 0x3FFF
    return 0, 0
