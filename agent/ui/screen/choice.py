"""Which screen there is: that of a real terminal, in the colours it has, or lines."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from prompt_toolkit.input import Input, create_input
from prompt_toolkit.output import ColorDepth

from ..look.theme import choose
from .background import SiftedInput
from .base import Host, Screen
from .capabilities import Background, Colours, of_process
from .output import SteadyOutput, steady
from .plain import Plain
from .terminal import Terminal

if TYPE_CHECKING:
    from ...settings import UiSettings

_COLOURS: dict[ColorDepth, Colours] = {ColorDepth.DEPTH_1_BIT: 0, ColorDepth.DEPTH_4_BIT: 16}


def screen_for(
    host: Host,
    *,
    cwd: Path,
    ui: "UiSettings",
    history: Path | None,
    input: Input | TextIO | None,
    output: SteadyOutput | TextIO | None,
) -> Screen:
    """The screen that the terminal can carry. None stands for the process's own streams."""
    source = sys.stdin if input is None else input
    target = sys.stdout if output is None else output
    background: Background = ""
    if not isinstance(target, SteadyOutput):
        if isinstance(source, Input):
            raise TypeError("keys need a SteadyOutput")
        can = of_process(ui, source, target)
        if can.plain:
            return Plain(host, source=source.fileno(), stream=target, unicode=can.unicode)
        asks = can.answers and ui.theme == "auto"
        source = SiftedInput(source) if asks else create_input(source)
        target, background = steady(target, can=can), can.background
    colours = _COLOURS.get(target.get_default_color_depth(), 256)
    return Terminal(
        host,
        input=source if isinstance(source, Input) else create_input(source),
        output=target,
        cwd=cwd,
        history=history,
        vi=ui.editing_mode == "vi",
        palette=choose(ui.theme, colours, background),
    )
