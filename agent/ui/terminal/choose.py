"""The choice of the screen: the inline terminal with its colours, or plain lines."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from prompt_toolkit.input import Input, create_input
from prompt_toolkit.output import ColorDepth

from ..capabilities import Colours, TerminalBackground, detect_for_process
from ..screen import Screen, ScreenHost
from .input_filter import BACKGROUND_QUERY, KEYBOARD_QUERY, LAST_QUERY, FilteredInput
from .notices import notice_style
from .output import BatchedOutput, output_for
from .plain import PlainScreen
from .terminal import Terminal
from .window import TerminalWindow

if TYPE_CHECKING:
    from ...config.keyboard import KeyboardSettings
    from ...config.settings import UiSettings

_COLOURS: dict[ColorDepth, Colours] = {ColorDepth.DEPTH_1_BIT: 0, ColorDepth.DEPTH_4_BIT: 16}


def screen_for(
    host: ScreenHost,
    *,
    cwd: Path,
    ui: "UiSettings",
    keys: "KeyboardSettings",
    history: Path | None,
    input: Input | TextIO | None,
    output: BatchedOutput | TextIO | None,
) -> Screen:
    """Return the screen that suits the terminal. None means the process's own stream."""
    source = sys.stdin if input is None else input
    target = sys.stdout if output is None else output
    background: TerminalBackground = ""
    titled = False
    if not isinstance(target, BatchedOutput):
        if isinstance(source, Input):
            raise TypeError("keys need a BatchedOutput")
        can = detect_for_process(ui, source, target)
        if can.plain:
            return PlainScreen(host, source=source.fileno(), stream=target, unicode=can.unicode)
        asks = ui.theme in ("auto", "high-contrast")
        queries = (BACKGROUND_QUERY if asks else "") + KEYBOARD_QUERY + LAST_QUERY
        source = FilteredInput(source, queries=queries if can.can_query else "")
        target, background = output_for(target, can=can), can.background
        titled = ui.title and can.window_title
    colours = _COLOURS.get(target.get_default_color_depth(), 256)
    return Terminal(
        host,
        input=source if isinstance(source, Input) else create_input(source),
        output=target,
        cwd=cwd,
        history=history,
        keys=keys,
        vi=ui.editing_mode == "vi",
        window=TerminalWindow(
            target,
            project=cwd.name or str(cwd),
            titled=titled,
            reports=isinstance(source, FilteredInput),
        ),
        theme=ui.theme,
        colours=colours,
        background=background,
        notify=notice_style(ui.notify, os.environ),
        notify_after_s=ui.notify_after,
    )
