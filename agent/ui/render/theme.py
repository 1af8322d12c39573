"""The themes: all styles of the program by role, for rich and prompt_toolkit.

A role has attributes and a hue; a palette defines the hues. `dark` and `light` use colours of the
256-colour set that are readable on any usual background of that kind; the contrast palettes use
stronger ones. `ansi` uses the terminal's own colours, `none` no colours.

The module imports little, because the first paint waits for it.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal

from ..capabilities import Colours, TerminalBackground

if TYPE_CHECKING:
    from prompt_toolkit.styles import Style
    from rich.theme import Theme

    from ...config.settings import Theme as Setting

Palette = Literal["ansi", "dark", "light", "contrast-dark", "contrast-light", "none"]

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
    "contrast-dark": {
        "quiet": "#d7d7ff", "red": "#ffafaf", "green": "#afffaf", "yellow": "#ffffaf",
        "cyan": "#afffff", "violet": "#ffd7ff",
    },
    "contrast-light": {
        "quiet": "#303030", "red": "#870000", "green": "#005f00", "yellow": "#000087",
        "cyan": "#005f5f", "violet": "#5f005f",
    },
    "none": {"quiet": "dim", "red": "", "green": "", "yellow": "", "cyan": "", "violet": ""},
}  # fmt: skip

ROLES = {
    # Messages and tool calls.
    "dim": "quiet",
    "message": "bold",
    "prompt": "cyan bold",
    "thought": "quiet italic",
    "running": "cyan",
    "done": "green",
    "warning": "yellow",
    "error": "red",
    "compaction": "cyan",
    "question": "yellow bold",
    "cause": "red bold underline",
    "allowed": "green",
    "declined": "red",
    "added": "green",
    "removed": "red",
    "hunk": "cyan",
    # The input, questions, menus and the status line.
    "status": "quiet",
    "choices": "bold",
    "chosen": "reverse",
    "match": "cyan bold",
    "mode.plan": "cyan",
    "mode.accept-edits": "yellow",
    "mode.sandboxed": "green",
    "mode.bypass": "red bold",
    "level.red": "red",
    # Content of the context, by origin.
    "context.fixed": "violet",
    "context.reinserted": "violet bold",
    "context.user": "cyan bold",
    "context.agent": "green",
    "context.tools": "yellow",
    # Markdown, by rich's names.
    "markdown.code": "cyan",
    "markdown.code_block": "cyan",
    "markdown.h1": "bold underline",
    **{f"markdown.h{level}": "bold" for level in range(2, 8)},
    "markdown.hr": "quiet",
    "markdown.link": "cyan underline",
    "markdown.link_url": "cyan underline",
    "markdown.list": "",
    "markdown.item.number": "bold",
    "markdown.block_quote": "quiet",
    "markdown.table.border": "quiet",
    "markdown.table.header": "bold",
    "markdown.kbd": "bold",
    # Code, by pygments' token types; other types look like text.
    "code.comment": "quiet italic",
    "code.error": "red",
    "code.generic.deleted": "red",
    "code.generic.error": "red",
    "code.generic.heading": "bold",
    "code.generic.inserted": "green",
    "code.generic.prompt": "bold",
    "code.generic.subheading": "bold",
    "code.keyword": "violet",
    "code.keyword.constant": "yellow",
    "code.keyword.type": "cyan",
    "code.literal.number": "yellow",
    "code.literal.string": "green",
    "code.name.attribute": "yellow",
    "code.name.builtin": "cyan",
    "code.name.class": "cyan",
    "code.name.constant": "yellow",
    "code.name.decorator": "violet",
    "code.name.exception": "cyan",
    "code.name.function": "cyan",
    "code.name.tag": "violet",
    "code.name.variable": "cyan",
    "code.operator.word": "violet",
}


def choose_palette(setting: "Setting", colours: Colours, background: TerminalBackground) -> Palette:
    """Return the palette for a terminal: `ansi` without 256 colours, or for `auto` without a known
    background. For high contrast, use no colours then, because the terminal's own text has the best
    contrast.
    """
    if setting == "none":
        return "none"
    if setting == "high-contrast":
        contrast: dict[str, Palette] = {"dark": "contrast-dark", "light": "contrast-light"}
        return contrast.get(background, "none") if colours == 256 else "none"
    if colours < 256:
        return "ansi"
    return (background or "ansi") if setting == "auto" else setting


@cache
def rich_theme(palette: Palette) -> "Theme":
    """Return the roles as a rich theme."""
    from rich.theme import Theme

    return Theme({role: _style(role, palette) for role in ROLES})


@cache
def prompt_toolkit_style(palette: Palette) -> "Style":
    """Return the roles as prompt_toolkit classes. A class with a hue does not inherit dim."""
    from prompt_toolkit.styles import Style

    styles = {role: _style(role, palette, "ansi") for role in ROLES}
    colourless = {role for role in ROLES if "quiet" in ROLES[role] or not ROLES[role]}
    roles = {name: s if name in colourless else f"{s} nodim" for name, s in styles.items()}
    return Style.from_dict(
        {
            **roles,
            # prompt_toolkit's own classes, made readable on any background.
            "completion-menu": "noinherit",
            "completion-menu.completion": "noinherit",
            "completion-menu.completion.current": "reverse",
            "completion-menu.meta.completion": f"noinherit {roles['dim']}",
            "completion-menu.meta.completion.current": f"noinherit {roles['dim']}",
            "scrollbar.background": "noinherit",
            "scrollbar.button": "reverse",
        }
    )


@cache
def token_role(kind: Sequence[str]) -> str:
    """Return the role for a pygments token type; "" for plain text."""
    for length in range(len(kind), 0, -1):
        role = ".".join(["code", *kind[:length]]).lower()
        if role in ROLES:
            return role
    return ""


def _style(role: str, palette: Palette, prefix: str = "") -> str:
    hues = HUES[palette]
    words = []
    for word in ROLES[role].split():
        hue = hues.get(word, word)
        ours = word in hues and hue not in ("", "dim") and not hue.startswith("#")
        words.append(f"{prefix}{hue}" if ours else hue)
    return " ".join(words)
