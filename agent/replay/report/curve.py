"""The context over the calls of one recording as curves for a terminal, one row for each setting,
all to the same scale; beneath each, a letter for what happened there.
"""

import textwrap
from collections.abc import Iterator, Sequence

from ..outcome import Run
from .measures import counted, tokens
from .table import fitted, line

HEIGHT = 3  # lines of a curve
_BLOCKS = " ▁▂▃▄▅▆▇█"
_PLAIN = " .:#"
_LETTERS = {"demote": "d", "microcompact": "m", "truncate": "t", "summary": "S"}
_NEEDED = "!"
_RANK = "dmt!S"  # of several at one place the last is shown
_LABEL = 16  # cells at most


def curve(runs: Sequence[Run], width: int, *, ascii: bool = False) -> str:
    """The curves of a recording's runs, in lines of at most `width` cells (40 or more). `ascii` is
    for a terminal that has few characters."""
    most = max((call.number for run in runs for call in run.priced), default=0)
    if not most:
        return ""
    top = max(call.prompt for run in runs for call in run.priced) or 1
    scale, upright, corner, flat = ("|", "|", "+", "-") if ascii else ("┤", "│", "└", "─")
    label = min(max(len(line(run.label)) for run in runs), _LABEL, width // 4)
    gutter = label + 1 + max(5, len(tokens(top))) + 1
    room = width - gutter - 1
    lines = [f"{line(runs[0].name)}: context over {counted(most, 'call')}"]
    for run in runs:
        drawn = _drawn(_columns(run, most, room), top, _PLAIN if ascii else _BLOCKS)
        heads = [fitted(line(run.label), label), *[" " * label] * (HEIGHT - 1)]
        marks = [tokens(top), *[""] * (HEIGHT - 1)]
        for head, mark, row in zip(heads, marks, drawn, strict=True):
            edge = scale if mark else upright
            lines.append(f"{head} {mark:>{gutter - label - 2}} {edge}{row}".rstrip())
        lines.append(f"{'0':>{gutter - 1}} {corner}{_marks(run, most, room, flat)}")
    last = f"call {most:,}"
    lines.append(f"{'':>{gutter + 1}}1{last:>{room - 1}}")
    return "\n".join([fitted(lines[0], width).rstrip(), *lines[1:], *_legend(runs, width)])


def _columns(run: Run, most: int, room: int) -> list[int]:
    """The largest prompt that each column stands for; 0 where the run has no call."""
    prompts: dict[int, int] = {}
    for call in run.priced:
        prompts[call.number] = max(prompts.get(call.number, 0), call.prompt)
    columns = []
    for column in range(room):
        first = column * most // room
        behind = max(first + 1, (column + 1) * most // room)
        columns.append(max(prompts.get(number + 1, 0) for number in range(first, behind)))
    return columns


def _drawn(columns: Sequence[int], top: int, steps: str) -> Iterator[str]:
    """Lines from the top one down."""
    most = len(steps) - 1
    heights = [-(-size * HEIGHT * most // top) for size in columns]  # what is there, shows
    for row in reversed(range(HEIGHT)):
        yield "".join(steps[min(max(height - row * most, 0), most)] for height in heights)


def _marks(run: Run, most: int, room: int, flat: str) -> str:
    happened = [(act.number, _LETTERS[act.layer]) for act in run.acts]
    happened += [(need.number, _NEEDED) for need in run.needs]
    shown = [flat] * room
    for number, letter in happened:
        column = min(max(number - 1, 0) * room // most, room - 1)
        if shown[column] == flat or _RANK.index(letter) > _RANK.index(shown[column]):
            shown[column] = letter
    return "".join(shown)


def _legend(runs: Sequence[Run], width: int) -> list[str]:
    had = {act.layer for run in runs for act in run.acts}
    parts = [f"{letter} {layer}" for layer, letter in _LETTERS.items() if layer in had]
    parts += [f"{_NEEDED} needed when gone"] if any(run.needs for run in runs) else []
    return textwrap.wrap("   ".join(parts), width)
