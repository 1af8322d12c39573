"""Size limits for the bodies of HTTP messages, also after decompression: a few megabytes can
decompress to gigabytes.
"""

import zlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2

MAX_BODY_BYTES = 1 << 18  # of an error after decompression; the rest is cut off
MAX_ANSWER_BYTES = 1 << 23  # of a non-streamed reply or a list of models
MAX_UNPACKED_BYTES = 24 << 20  # of a recorded reply after decompression
_UNPACK_STEP_BYTES = 1 << 20
_PACKED = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


async def bound_body(response: "httpx2.Response") -> None:
    """Limit the body of a response that is not an event stream. A response hook of httpx2's client,
    called before the body is read.
    """
    import httpx2

    kind = response.headers.get("content-type", "")
    if "event-stream" in kind and response.status_code < 300:
        return
    packing = response.headers.pop("content-encoding", "").strip().lower()
    response.headers.pop("content-length", None)
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    whole: httpx2.AsyncByteStream = stream
    limit = MAX_ANSWER_BYTES if response.status_code < 300 else MAX_BODY_BYTES

    class Bounded(httpx2.AsyncByteStream):
        def __aiter__(self) -> AsyncIterator[bytes]:
            return _bounded(whole.__aiter__(), packing, limit)

        async def aclose(self) -> None:
            await whole.aclose()

    response.stream = Bounded()


async def _bounded(chunks: AsyncIterator[bytes], packing: str, left: int) -> AsyncIterator[bytes]:
    """Yield the decompressed chunks, at most `left` bytes. Yield nothing for an unknown
    compression.
    """
    if packing not in ("", "identity", *_PACKED):
        return
    unpack = zlib.decompressobj(_PACKED[packing]) if packing in _PACKED else None
    async for chunk in chunks:
        try:
            part = unpack.decompress(chunk, left) if unpack else chunk[:left]
        except zlib.error:
            return
        yield part
        left -= len(part)
        if left <= 0:
            return


def unpacked(data: bytes, packing: str, limit: int = MAX_UNPACKED_BYTES) -> bytes:
    """Return a decompressed body. Raises ValueError for an unknown compression, invalid data, or
    more than `limit` bytes.
    """
    packing = packing.strip().lower()
    if packing in ("", "identity"):
        return data
    if packing not in _PACKED:
        raise ValueError(f"an answer in the encoding {packing!r}")
    unpack = zlib.decompressobj(_PACKED[packing])
    found = bytearray()
    try:
        while data and not unpack.eof:
            found += unpack.decompress(data, _UNPACK_STEP_BYTES)
            data = unpack.unconsumed_tail
            if len(found) > limit:
                raise ValueError(f"an answer of more than {limit >> 20} MB")
    except zlib.error as error:
        raise ValueError(f"an answer that is not valid {packing}: {error}") from error
    return bytes(found)
