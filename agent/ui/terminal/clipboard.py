"""The terminal's clipboard, set by OSC 52. It works over ssh, because the local
terminal sets it.

https://invisible-island.net/xterm/ctlseqs/ctlseqs.html
"""

from base64 import b64encode


def clipboard_sequence(text: str) -> str:
    """Return the escape sequence that copies a text to the terminal's clipboard."""
    return f"\x1b]52;c;{b64encode(text.encode(errors='replace')).decode()}\a"
