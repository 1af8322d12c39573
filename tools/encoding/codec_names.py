"""Names of encodings, as people, editors and git write them."""

import codecs
from functools import cache

# All characters, and the sequences that switch or escape in encodings with a state.
_ASCII = bytes(range(0x80)) + b"\x1b$B0!\x1b(B \\n \\u0041 ~{0!~} +AGE-"


@cache
def codec_of(name: str) -> str:
    """Return Python's name of an encoding. Raises ValueError for an unknown one, and for one that
    is neither UTF-16, UTF-32 nor an extension of ASCII without a state.
    """
    plain = name.strip().lower().removesuffix("-bom")
    try:
        codec = codecs.lookup(plain).name
        wide = codec.startswith(("utf-16", "utf-32"))
        if codec == "idna" or (not wide and _ASCII.decode(codec) != _ASCII.decode()):
            raise LookupError
    except (LookupError, UnicodeError, ValueError, TypeError):
        raise ValueError(f"{name!r} is no known text encoding") from None
    return {"utf-8-sig": "utf-8", "iso8859-1": "latin-1", "big5": "cp950"}.get(codec, codec)
