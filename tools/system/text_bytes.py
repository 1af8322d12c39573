"""UTF-8 text that was cut at any byte: find the nearest whole character."""

import codecs


def whole(data: bytes | bytearray) -> int:
    """Return how many bytes of `data` remain without a UTF-8 character cut off at its end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(bytes(data[-4:]))
    return len(data) - len(decoder.getstate()[0])


def from_whole(data: bytes) -> bytes:
    """Return `data` without the end of a character that began before it."""
    return data[:3].lstrip(bytes(range(0x80, 0xC0))) + data[3:]
