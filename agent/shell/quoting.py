"""What stands in `$'…'`, the one kind of quotes in which bash reads escapes."""

import re

_ESCAPE = re.compile(
    r"\\(?:x(?P<hex>[\da-fA-F]{1,2})|u(?P<short>[\da-fA-F]{1,4})|U(?P<long>[\da-fA-F]{1,8})"
    r"|(?P<octal>[0-7]{1,3})|(?P<plain>.))",
    re.DOTALL,
)
_PLAIN = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
    "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


def decode(body: str) -> str | None:
    """The text that bash makes of it; None where that depends on more than the text."""
    pieces, end = [], 0
    for match in _ESCAPE.finditer(body):
        pieces.append(body[end : match.start()])
        end = match.end()
        code = match["hex"] or match["short"] or match["long"]
        number = int(code, 16) if code else int(match["octal"], 8) if match["octal"] else None
        if number is None:
            meant = _PLAIN.get(match["plain"])
        else:
            meant = chr(number) if 0 < number < 128 else None
        if meant is None:
            return None
        pieces.append(meant)
    return "".join([*pieces, body[end:]])
