"""Check the bytes written to a terminal against the promise that finished text is never changed."""

import re

FORBIDDEN = {
    b"\x1b[2J": "clears the screen",
    b"\x1b[3J": "clears the scrollback",
    b"\x1bc": "resets the terminal",
    b"\x1b[?1049h": "uses the alternate screen",
    b"\x1b[?1047h": "uses the alternate screen",
    b"\x1b[?47h": "uses the alternate screen",
    b"\x1b[H": "goes to the top",
}
_TOKEN = re.compile(rb"\n|\x1b\[(\??)([\d;]*)([A-Za-z])")


def faults(raw: bytes) -> list[str]:
    """Return every control sequence that clears the screen or moves above the first row painted
    since the last finished text.

    A paint disables wrapping (from `?7l` to `?7h`). Its first row is the top of the live region,
    until the region is erased completely from that row, outside a paint.
    """
    found = [what for bytes_, what in FORBIDDEN.items() if bytes_ in raw]
    row, first, painting = 0, None, False
    for token in _TOKEN.finditer(raw):
        private, numbers, final = token[1], token[2], token[3]
        if final is None:
            row += 1
        elif private and numbers == b"7":
            painting = final == b"l"
            if painting and first is None:
                first = row
        elif final == b"A":
            row -= int(numbers or 1)
            if first is None or row < first:
                found.append(f"goes up above what is live at byte {token.start()}")
        elif final == b"J" and not painting:
            if first not in (row, None):
                found.append(f"erases from within at byte {token.start()}")
            first = None
        elif final in b"dfHST":
            found.append(f"goes to a place of the screen at byte {token.start()}")
    return found
