"""Control sequences that terminals send for keys: those that the input does not know are told in
ones that it knows, or taken out, since what it does not know it takes for Esc and typed letters.

Enter with Shift, Alt or Ctrl is a new line, however a terminal is set up to send it (`CSI 13;2u`
and `CSI 27;2;13~`). Other keys of the form `CSI code;modifiers u` are the characters they stand
for. Reports nobody asked for, such as focus, are no keys.
"""

import re

from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES

PASTE, PASTED = "\x1b[200~", "\x1b[201~"
BEGUN = r"\[[0-?]*[ -/]*"  # what may stand before the last character, behind the escape

_SEQUENCE = re.compile(r"\x1b\[([0-?]*)([ -/]*)(?!\[)([@-~])")  # the console's F1 begins "[["
_MOUSE = re.compile(r"\x1b\[(?:<?[\d;]+[mM]|M)")
_CURSOR = re.compile(r"\x1b\[\d+;\d+R")
_CODE = re.compile(r"(\d+)(?::\d*)*(?:;(\d+)(?::\d+)?)?(?:;[\d:]*)?")
_OTHER = re.compile(r"27;(\d+);(\d+)")
_SHIFT, _ALT, _CTRL = 1, 2, 4
_NEWLINE = "\x1b\r"


def translated(typed: str) -> str:
    """What was typed, outside of pastes, in sequences that are known."""
    return _SEQUENCE.sub(_known, typed)


def _known(found: re.Match[str]) -> str:
    whole, (given, between, last) = found[0], found.groups()
    if last == "~" and (other := _OTHER.fullmatch(given)) and int(other[2]) == 13:
        return _NEWLINE
    if whole in ANSI_SEQUENCES or _MOUSE.fullmatch(whole) or _CURSOR.fullmatch(whole):
        return whole
    if last == "u" and not between and (code := _CODE.fullmatch(given)):
        return _character(int(code[1]), int(code[2] or 1) - 1)
    return ""


def _character(code: int, modifiers: int) -> str:
    """The keys that a code with these modifiers stands for; "" for one that is no character."""
    if code == 13:
        return _NEWLINE if modifiers & (_SHIFT | _ALT | _CTRL) else "\r"
    if code == 9 and modifiers & _SHIFT:
        return "\x1b[Z"
    if code > 0x10FFFF or 0xD800 <= code < 0xF900:  # surrogates, and keys such as Caps Lock
        return ""
    character = chr(code)
    if modifiers & _CTRL:
        character = chr(code & 0x1F) if 0x40 <= code < 0x80 else character
    elif modifiers & _SHIFT:
        character = character.upper()
    return ("\x1b" if modifiers & _ALT else "") + character
