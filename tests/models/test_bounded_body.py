"""Bodies are read up to a limit, also after decompression."""

import gzip
import tracemalloc
import zlib

import pytest

from ctxagent.agent.models.http_client import MAX_UNPACKED_BYTES, unpacked


def bomb(megabytes: int) -> bytes:
    """Blanks, packed to a thousandth."""
    pack = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    blanks = b" " * (1 << 20)
    return b"".join(pack.compress(blanks) for _ in range(megabytes)) + pack.flush()


@pytest.mark.parametrize("packing", ["", "identity", "gzip", "X-GZIP ", "deflate"])
def test_a_body_is_unpacked(packing: str) -> None:
    pack = {"": bytes, "identity": bytes, "deflate": zlib.compress}.get(packing, gzip.compress)
    text = b"some words " * 200_000
    assert unpacked(pack(text), packing) == text


def test_what_follows_the_packed_text_is_left_out() -> None:
    assert unpacked(gzip.compress(b"text") + b"more", "gzip") == b"text"


def test_a_body_that_becomes_too_large_is_refused_with_little_memory() -> None:
    data = bomb(1_000)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="more than 24 MB"):
            unpacked(data, "gzip")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * MAX_UNPACKED_BYTES


@pytest.mark.parametrize(("packing", "words"), [("br", "encoding 'br'"), ("gzip", "not valid")])
def test_a_body_that_cannot_be_unpacked_is_refused(packing: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        unpacked(b"no such data", packing)
