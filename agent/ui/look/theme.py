"""The themes: every style that the program uses, by the role of what it marks, for rich and for
prompt_toolkit alike. A role is attributes and a hue; a palette says what the hues are. Hues of
`dark` and `light` are colours of the 256 that hold on any usual background of that kind; `ansi` has
the terminal's own, which the person has chosen to be read. Light, because the first paint needs it.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal

from ..screen.capabilities import Background, Colours

if TYPE_CHECKING:
    from rich.theme import Theme

    from ...settings.values import Theme as Setting

Palette = Literal["ansi", "dark", "light"]

HUES: dict[Palette, dict[str, str]] = {
    "ansi": {
        "quiet": "dim", "red": "red", "green": "green", "yellow": "yellow", "cyan": "cyan",
        "violet": "magenta",
    },
    "dark": {
        "quiet": "#8a8a8a", "red": "#ff8787", "green": "#87d787", "yellow": "#d7af5f",
        "cyan": "#5fd7d7", "violet": "#d7afff",
    },
    "light": {
        "quiet": "#767676", "red": "#af0000", "green": "#005f00", "yellow": "#875f00",
        "cyan": "#005f87", "violet": "#8700af",
    },
}  # fmt: skip

ROLES = {
    # What is said and done.
    "dim": "quiet",
    "words": "bold",
    "prompt": "cyan bold",
    "thought": "quiet italic",
    "running": "cyan",
    "done": "green",
    "warning": "yellow",
    "error": "red",
    "compaction": "cyan",
    "question": "yellow bold",
    "allowed": "green",
    "declined": "red",
    "added": "green",
    "removed": "red",
    "hunk": "cyan",
    # What stands at the bottom.
    "status": "quiet",
    "choices": "bold",
    "chosen": "reverse",
    "match": "cyan bold",
    "mode.plan": "cyan",
    "mode.accept-edits": "yellow",
    "mode.bypass": "red bold",
    "level.green": "green",
    "level.yellow": "yellow",
    "level.orange": "yellow bold",
    "level.red": "red",
    "level.critical": "red bold",
    # What fills the window, by whose it is.
    "filling.fixed": "violet",
    "filling.again": "violet bold",
    "filling.person": "cyan bold",
    "filling.agent": "green",
    "filling.tools": "yellow",
    # Markdown, by the names that rich has for it.
    "markdown.code": "cyan",
    "markdown.code_block": "cyan",
    "markdown.h1": "bold underline",
    "markdown.h2": "bold",
    "markdown.h3": "bold",
    "markdown.h4": "bold",
    "markdown.h5": "bold",
    "markdown.h6": "bold",
    "markdown.h7": "bold",
    "markdown.hr": "quiet",
    "markdown.link": "cyan underline",
    "markdown.link_url": "cyan underline",
    "markdown.list": "",
    "markdown.item.number": "bold",
    "markdown.block_quote": "quiet",
    "markdown.table.border": "quiet",
    "markdown.table.header": "bold",
    "markdown.kbd": "bold",
    # Code, by kinds of token.
    "code.attribute": "yellow",
    "code.class": "cyan",
    "code.comment": "quiet italic",
    "code.constant": "yellow",
    "code.decorator": "violet",
    "code.deleted": "red",
    "code.error": "red",
    "code.function": "cyan",
    "code.heading": "bold",
    "code.inserted": "green",
    "code.keyword": "violet",
    "code.number": "yellow",
    "code.string": "green",
    "code.tag": "violet",
    "code.variable": "cyan",
}

# From the outside in, as pygments names them; what has no row looks like text.
_TOKENS = {
    ("Comment",): "code.comment",
    ("Error",): "code.error",
    ("Generic", "Deleted"): "code.deleted",
    ("Generic", "Error"): "code.error",
    ("Generic", "Heading"): "code.heading",
    ("Generic", "Inserted"): "code.inserted",
    ("Generic", "Prompt"): "code.heading",
    ("Generic", "Subheading"): "code.heading",
    ("Keyword",): "code.keyword",
    ("Keyword", "Constant"): "code.constant",
    ("Keyword", "Type"): "code.class",
    ("Literal", "Number"): "code.number",
    ("Literal", "String"): "code.string",
    ("Name", "Attribute"): "code.attribute",
    ("Name", "Builtin"): "code.function",
    ("Name", "Class"): "code.class",
    ("Name", "Constant"): "code.constant",
    ("Name", "Decorator"): "code.decorator",
    ("Name", "Exception"): "code.class",
    ("Name", "Function"): "code.function",
    ("Name", "Tag"): "code.tag",
    ("Name", "Variable"): "code.variable",
    ("Operator", "Word"): "code.keyword",
}


def choose(setting: "Setting", colours: Colours, background: Background) -> Palette:
    """The palette for a terminal. Without the 256 there is but one, and so where nothing is known
    of the background."""
    if colours < 256:
        return "ansi"
    return (background or "ansi") if setting == "auto" else setting


@cache
def for_rich(palette: Palette) -> "Theme":
    """Each role as a style that rich finds by its name."""
    from rich.theme import Theme

    return Theme({role: _style(role, palette) for role in ROLES})


def classes(palette: Palette) -> dict[str, str]:
    """Each role as a class of prompt_toolkit. What has a hue is not dim within what is."""
    found = {role: _style(role, palette, "ansi") for role in ROLES}
    quiet = {role for role in ROLES if "quiet" in ROLES[role] or not ROLES[role]}
    return {role: style if role in quiet else f"{style} nodim" for role, style in found.items()}


@cache
def token(kind: Sequence[str]) -> str:
    """The role of a token of code, from the type that pygments gives it; "" for mere text."""
    names = tuple(kind)
    for length in range(len(names), 0, -1):
        if role := _TOKENS.get(names[:length]):
            return role
    return ""


def _style(role: str, palette: Palette, prefix: str = "") -> str:
    hues = HUES[palette]
    words = []
    for word in ROLES[role].split():
        hue = hues.get(word, word)
        ours = word in hues and hue != "dim" and not hue.startswith("#")
        words.append(f"{prefix}{hue}" if ours else hue)
    return " ".join(words)
