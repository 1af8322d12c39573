"""Curves for a terminal: the context over the calls of one recording, one curve for each setting,
all to the same scale. Letters beneath a curve mark what happened there."""

import textwrap
from collections.abc import Iterator, Sequence

from ....tools.system.plural import count_of
from ...session.layer_words import LAYER_NAMES
from ..results import ReplayRun
from .measures import format_tokens
from .table import fit_cells, one_line

CURVE_LINES = 3  # the height of a curve
_BLOCKS = " ▁▂▃▄▅▆▇█"
_PLAIN = " .:#"
_LETTERS = {"demote": "d", "microcompact": "m", "truncate": "t", "summary": "S"}
_NEEDED = "!"
_RANK = "dmt!S"  # of several marks at one place the last in this order is shown
_MAX_LABEL_CELLS = 16


def draw_curves(runs: Sequence[ReplayRun], width: int, *, ascii: bool = False) -> str:
    """Draw the runs of a recording, in lines of at most `width` cells (40 or more). `ascii` is for
    a terminal without block characters."""
    calls = max((call.number for run in runs for call in run.priced), default=0)
    if not calls:
        return ""
    top = max(call.prompt for run in runs for call in run.priced) or 1
    scale, upright, corner, flat = ("|", "|", "+", "-") if ascii else ("┤", "│", "└", "─")
    label = min(max(len(one_line(run.label)) for run in runs), _MAX_LABEL_CELLS, width // 4)
    gutter = label + 1 + max(5, len(format_tokens(top))) + 1
    room = width - gutter - 1
    lines = [f"{one_line(runs[0].name)}: context over {count_of(calls, 'call')}"]
    for run in runs:
        drawn = _drawn(_columns(run, calls, room), top, _PLAIN if ascii else _BLOCKS)
        heads = [fit_cells(one_line(run.label), label), *[" " * label] * (CURVE_LINES - 1)]
        marks = [format_tokens(top), *[""] * (CURVE_LINES - 1)]
        for head, mark, row in zip(heads, marks, drawn, strict=True):
            edge = scale if mark else upright
            lines.append(f"{head} {mark:>{gutter - label - 2}} {edge}{row}".rstrip())
        lines.append(f"{'0':>{gutter - 1}} {corner}{_marks(run, calls, room, flat)}")
    last = f"call {calls:,}"
    lines.append(f"{'':>{gutter + 1}}1{last:>{room - 1}}")
    return "\n".join([fit_cells(lines[0], width).rstrip(), *lines[1:], *_legend(runs, width)])


def _columns(run: ReplayRun, calls: int, room: int) -> list[int]:
    """Return the largest prompt that each column stands for; 0 where the run has no call."""
    prompts: dict[int, int] = {}
    for call in run.priced:
        prompts[call.number] = max(prompts.get(call.number, 0), call.prompt)
    columns = []
    for column in range(room):
        first = column * calls // room
        behind = max(first + 1, (column + 1) * calls // room)
        columns.append(max(prompts.get(number + 1, 0) for number in range(first, behind)))
    return columns


def _drawn(columns: Sequence[int], top: int, steps: str) -> Iterator[str]:
    """Yield the lines of a curve from the top down."""
    full = len(steps) - 1
    heights = [-(-size * CURVE_LINES * full // top) for size in columns]  # rounded up: all is seen
    for row in reversed(range(CURVE_LINES)):
        yield "".join(steps[min(max(height - row * full, 0), full)] for height in heights)


def _marks(run: ReplayRun, calls: int, room: int, flat: str) -> str:
    happened = [(act.number, _LETTERS[act.layer]) for act in run.acts]
    happened += [(need.number, _NEEDED) for need in run.needs]
    shown = [flat] * room
    for number, letter in happened:
        column = min(max(number - 1, 0) * room // calls, room - 1)
        if shown[column] == flat or _RANK.index(letter) > _RANK.index(shown[column]):
            shown[column] = letter
    return "".join(shown)


def _legend(runs: Sequence[ReplayRun], width: int) -> list[str]:
    layers = {act.layer for run in runs for act in run.acts}
    shown = [layer for layer in _LETTERS if layer in layers]
    parts = [f"{_LETTERS[layer]} {LAYER_NAMES[layer]}" for layer in shown]
    parts += [f"{_NEEDED} needed when gone"] if any(run.needs for run in runs) else []
    return textwrap.wrap("   ".join(parts), width)
