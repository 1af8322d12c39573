"""The clipboard of the terminal, by OSC 52: it works over ssh, because the terminal keeps it.

https://invisible-island.net/xterm/ctlseqs/ctlseqs.html
"""

from base64 import b64encode


def clipboard_sequence(text: str) -> str:
    """Return what makes a terminal put a text into its clipboard."""
    return f"\x1b]52;c;{b64encode(text.encode(errors='replace')).decode()}\a"
