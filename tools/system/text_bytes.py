"""Find whole characters in UTF-8 text that was cut at any byte."""

import codecs


def whole_length(data: bytes | bytearray) -> int:
    """Return the length of `data` without an incomplete UTF-8 character at its end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(bytes(data[-4:]))
    return len(data) - len(decoder.getstate()[0])


def drop_partial_start(data: bytes) -> bytes:
    """Return `data` without an incomplete character at its beginning."""
    return data[:3].lstrip(bytes(range(0x80, 0xC0))) + data[3:]
