"""Check an image and shrink it. This is a separate script, so that a malicious image that attacks
the decoder or uses all memory only ends this process.

`python scale_image.py FORMAT SIDE BYTES` reads an image of that format on stdin. It writes a line
of JSON with the sizes and the format of the result. If the image has to change, the new image
follows, with at most SIDE pixels per side and BYTES bytes: a PNG, or a JPEG if the PNG is too
large. It imports no module of ctxagent.
"""

import io
import json
import os
import resource
import sys

MAX_SECONDS = 30  # of computing
MAX_MEMORY_BYTES = 2 << 30
MAX_PIXELS = 200_000_000  # limit of decoded pixels
PLAIN_FORMATS = ("PNG", "JPEG", "GIF", "WEBP")  # accepted by the API
PLAIN_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA")
ORIENTATION, UPRIGHT = 0x0112, 1  # an EXIF tag, and its value for an upright image
ENDS = {"PNG": b"IEND", "GIF": b";", "JPEG": b"\xff\xd9"}  # Pillow does not require them
QUALITIES = (90, 75, 50, 25)  # JPEG qualities; the first that is small enough is used


def scaled(data: bytes, format: str, side: int, most: int) -> bytes:
    """Return the JSON line, followed by the new image within these bounds unless the original fits.
    Raises ValueError and Pillow's exceptions.
    """
    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    if ENDS.get(format, b"") not in data:
        raise ValueError("it is cut off")
    with Image.open(io.BytesIO(data), formats=[format]) as opened:
        size = opened.size
        upright = opened.getexif().get(ORIENTATION, UPRIGHT) == UPRIGHT
        fits = format in PLAIN_FORMATS and max(size) <= side and len(data) <= most
        if fits and upright and opened.mode in PLAIN_MODES:
            opened.load()
            return _line(format, size, size)
        opened.draft("RGB", (side, side))  # decodes a JPEG at about that size
        picture = ImageOps.exif_transpose(opened)
    if picture.mode not in ("L", "RGB", "RGBA"):
        picture = picture.convert("RGBA" if "transparency" in picture.info else "RGB")
    picture.thumbnail((side, side))
    found = _saved(picture, "PNG")
    if format != "JPEG" and len(found) <= most:
        return _line("PNG", picture.size, size) + found
    if picture.mode == "RGBA":
        paper = Image.new("RGB", picture.size, "white")
        paper.paste(picture, mask=picture.getchannel("A"))
        picture = paper
    for quality in QUALITIES:
        found = _saved(picture, "JPEG", quality=quality)
        if len(found) <= most:
            return _line("JPEG", picture.size, size) + found
    raise ValueError("it stays too large")


def _line(format: str, size: tuple[int, int], original_size: tuple[int, int]) -> bytes:
    told = {"format": format, "size": size, "original_size": original_size}
    return json.dumps(told).encode() + b"\n"


def _saved(picture: object, format: str, **options: int) -> bytes:
    target = io.BytesIO()
    picture.save(target, format, **options)  # type: ignore[attr-defined]
    return target.getvalue()


if __name__ == "__main__":
    limit = int(os.environ["CPU_SECONDS"])
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    if sys.platform.startswith("linux"):  # macOS refuses this limit
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    given = sys.stdin.buffer.read()
    sys.stdout.buffer.write(scaled(given, sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
