"""The pictures in docs/pictures: charts of replays of our own sessions. One session is the demo,
actually played and recorded; the other, `workday`, is synthetic. Two pictures show the cost
accounts behind the engine's decisions (`accounts.py`), one shows the need chances it uses. `make
pictures` writes them; `test_pictures.py` checks that they are up to date.

Parts that differ between runs or machines are replaced in the recording before its replay; a replay
always uses a folder of the same name.
"""

import asyncio
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from markupsafe import Markup, escape

from ctxagent.addons.replay.formats import load_recording
from ctxagent.addons.replay.player import Player, Terms
from ctxagent.addons.replay.report import drawings, measures
from ctxagent.addons.replay.results import ReplayAct, ReplayRun
from ctxagent.agent.cli.demo import CONTEXT_WINDOW
from ctxagent.agent.compaction.layers.later_calls import CURVES, NeedClass
from ctxagent.agent.compaction.policy import DEFAULT, PRESETS, Policy
from ctxagent.agent.features.environment import system_prompt
from ctxagent.agent.pages import charts
from ctxagent.agent.pages.templates import render, short_tokens
from ctxagent.agent.recordings.recording import (
    RecordedMessage,
    RecordedReply,
    RecordedStep,
    Recording,
)
from ctxagent.agent.session.log import LOG_NAME

from ..sessions.setup import every_tool
from ..sessions.workday import workday
from . import film, scenes
from .accounts import first_that_pays, noted
from .plain_svg import plain

MODEL = "claude-sonnet-5-5"
WIDTH = 520  # units; letters are 13 of them high, 17 on a phone
LEFT, RIGHT, EDGE = 62, 16, 14
ROW = 24
ALONE = replace(DEFAULT, clear_when="off", move_above=None, line_numbers=True, truncate_at=None)
SUMMARIES, OURS = "summaries only", "ctxagent"
AGES = range(1, 101)  # replies
LEAST_CHANCE = 0.0005  # lowest value in the picture of the chances
KINDS: dict[NeedClass, str] = {
    "read": "a file that was read",
    "changed once": "one that was changed since",
    "changed often": "one that was changed more often",
    "shown": "a file that a command showed",
    "command": "what another command printed",
    "search": "what a search or a page gave",
    "input": "what a Write or an Edit wrote",
}
SAME = (
    (r"Platform: .*", "Platform: Linux, shell bash"),
    (r"Date: .*", "Date: 2026-11-20"),
    (r"(?<=in )\d+\.\d+s", "0.001s"),  # duration of tests
    (r"\n[ ~^]*\^[ ~^]*(?=\n)", ""),  # position marks in Python tracebacks
    (r"offloaded/\w+", "offloaded/20261120_120000_Bash_27"),
    (r"\n\[It ran in the sandbox: [^\]]*\]", ""),  # depends on the sandbox of the machine
)
DEMO = """
import sys, pathlib
from ctxagent.agent.cli.demo import play
sys.exit(play(pathlib.Path(sys.argv[1]), fast=True))
"""
# Viewers may lack web fonts: generic system names first, then widespread fonts.
FONTS = (
    'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", '
    '"Liberation Sans", "DejaVu Sans", Arial, sans-serif'
)
PAGE = """
.chart { font: 13px FONTS; }
.whole { overflow: visible; }
.paper { fill: var(--paper); }
.chart svg text { font-size: 12px; }
.chart text.title { fill: var(--ink); font-weight: 600; font-size: 14px; }
.chart text.said { fill: var(--ink); }
.chart text.value { fill: var(--ink); font-weight: 600; text-anchor: end; }
@media (max-width: 480px) {
  .chart text, .chart svg text { font-size: 16px; }
  .chart text.title { font-size: 17px; }
}
""".replace("FONTS", FONTS)


Points = Sequence[charts.CallValue]


@dataclass(frozen=True, slots=True)
class Key:
    """A line of a legend: a swatch, its meaning, and a value."""

    swatch: Markup
    said: str
    value: str = ""


class ChanceFrame(charts.Frame):
    """Frame with a logarithmic vertical scale."""

    def grid(self) -> Sequence[int]:
        return [_chance_height(share) for share in (0.001, 0.01, 0.1)]


def _chance_height(chance: float) -> int:
    return round(1_000 * math.log10(chance / LEAST_CHANCE))


def _write_chance(height: float) -> str:
    return f"{round(100 * LEAST_CHANCE * 10 ** (height / 1_000), 1):g}%"


def recorded(folder: Path) -> Recording:
    """Play the demo in a folder; return the recording of its log.

    Its tests run under this Python, its tokens are estimates, and its current directory is not the
    checkout, so that the programs of the checkout's environment are trusted.
    """
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {"PATH": programs, "HOME": str(folder), "LANG": "C.UTF-8", "TIKTOKEN_CACHE_DIR": ""}
    demo = [sys.executable, "-c", DEMO, str(folder)]
    subprocess.run(
        demo, cwd=folder, env=env, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    [log] = (folder / "state").rglob(LOG_NAME)
    recording = load_recording(log)
    steps = tuple(_same(step, str(folder)) for step in recording.steps)
    return replace(recording, steps=steps, system=_always(recording.system, str(folder)))


def _same(step: RecordedStep, folder: str) -> RecordedStep:
    """Return a step without its time and machine-specific parts."""
    if isinstance(step, RecordedMessage):
        return RecordedMessage(_always(step.text, folder))
    if isinstance(step, RecordedReply):
        calls = (replace(c, text=_always(c.text, folder), at=None) for c in step.calls)
        return RecordedReply(step.text, tuple(calls))
    return step


def _always(text: str, folder: str) -> str:
    text = text.replace(folder, "/home/you")
    for pattern, instead in SAME:
        text = re.sub(pattern, instead, text)
    return text


def played(
    recording: Recording, policies: dict[str, Policy], window: int, *, fills: int = 0
) -> list[ReplayRun]:
    """Play the recording under each policy; return the runs."""
    runs = []
    for label, policy in policies.items():
        terms = _terms(label, policy, window, fills)
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            runs.append(asyncio.run(Player(recording, terms, Path("replay")).run()))
    return runs


def _terms(label: str, policy: Policy, window: int, fills: int = 0) -> Terms:
    tools = tuple(tool.schema() for tool in every_tool())
    return Terms(label, policy, MODEL, window, system_prompt(), tools, fills=fills)


def context(title: str, runs: Sequence[ReplayRun], values: Iterable[str] = ()) -> str:
    """Draw the context over the calls, with the compactions."""
    told = list(values) or [f"{measures.format_tokens(run.sums.peak)} at most" for run in runs]
    drawing = drawings.context_drawing(runs, _places(runs))
    shapes = [Key(_mark(kind), said) for kind, said in drawings.mark_names(runs)]
    return picture(title, drawing, _lines(runs, told), shapes)


def cost(title: str, runs: Sequence[ReplayRun]) -> str:
    told = [f"${measures.format_dollars(run.sums.dollars)}" for run in runs]
    return picture(title, drawings.cost_drawing(runs, _places(runs)), _lines(runs, told))


def filling(title: str, runs: Sequence[ReplayRun], which: int) -> str:
    """Draw the contents of the window under one policy, at the scale of all."""
    drawing = drawings.fill_drawings(runs)[which]
    boxes = [Key(_box(group), group) for group in drawings.filled_groups([runs[which]])]
    return picture(title, drawing, [], boxes)


def picture(
    title: str, drawing: Markup, lines: Sequence[Key], shapes: Sequence[Key] = (), across: int = 3
) -> str:
    """Return a drawing with its title and legend as a self-contained SVG. Lines have one legend row
    each; shapes share rows.
    """
    high = _height(drawing)
    top = 3 * EDGE
    below = top + high + ROW // 2
    rows = [*_rows(lines, below), *_cells(shapes, below + ROW * len(lines), across)]
    height = below + ROW * (len(lines) + -(-len(shapes) // across)) + EDGE // 2
    return plain(f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" \
width="{WIDTH * 5 // 4}" height="{height * 5 // 4}" role="img">
<g class="chart">
<title>{escape(title)}</title>
<style>{_style()}</style>
<rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>
{render("agent/pages/symbols.svg.j2")}
<text class="title" x="{EDGE}" y="{2 * EDGE}">{escape(title)}</text>
<svg x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" class="whole">
{drawing}
</svg>
{"".join(rows)}</g>
</svg>
""")


def _height(drawing: Markup) -> int:
    found = re.search(r' height="(\d+)" width="100%" class="whole"', drawing)
    assert found
    return int(found[1])


def _rows(keys: Sequence[Key], top: int) -> Iterator[str]:
    for number, key in enumerate(keys):
        y = top + ROW * number
        yield f"""\
<svg x="{EDGE}" y="{y}" width="28" height="12">{key.swatch}</svg>
<text class="said" x="{EDGE + 36}" y="{y + 11}">{escape(key.said)}</text>
<text class="value" x="{WIDTH - RIGHT}" y="{y + 11}">{escape(key.value)}</text>
"""


def _cells(keys: Sequence[Key], top: int, across: int) -> Iterator[str]:
    for number, key in enumerate(keys):
        x = EDGE + number % across * ((WIDTH - 2 * EDGE) // across)
        y = top + ROW * (number // across)
        yield f"""\
<svg x="{x}" y="{y - 2}" width="16" height="16">{key.swatch}</svg>
<text class="said" x="{x + 22}" y="{y + 11}">{escape(key.said)}</text>
"""


def _lines(runs: Sequence[ReplayRun], values: Iterable[str]) -> list[Key]:
    places = _places(runs)
    pairs = zip(runs, values, strict=True)
    return [Key(charts.swatch(places[run.label]), run.label, value) for run, value in pairs]


def _places(runs: Sequence[ReplayRun]) -> dict[str, int]:
    return {run.label: place for place, run in enumerate(runs)}


def _tokens(count: float) -> str:
    return measures.format_tokens(round(count))


def _mark(kind: str) -> Markup:
    return Markup(f'<use href="#m-{kind}" x="8" y="8"/>')


def _box(group: str) -> Markup:
    return Markup(f'<rect class="area {group}" x="2" y="2" width="12" height="12" rx="2"/>')


def _style() -> str:
    """Return the style of the report's charts, with colours that follow the reader's theme in any
    viewer.
    """
    base = resources.files("ctxagent.agent.pages").joinpath("base.css").read_text()
    own = resources.files("ctxagent.agent.pages").joinpath("charts.css").read_text()
    frame = "\n".join(line for line in base.splitlines() if line.startswith(".chart "))
    blocks = [re.search(r":root \{.*?\n\}", text, re.DOTALL) for text in (base, own)]
    roots = "\n".join(block[0] for block in blocks if block)
    shades = re.findall(r"(--[\w-]+): light-dark\((\S+), (\S+)\);", roots)
    light = " ".join(f"{name}: {day};" for name, day, _ in shades)
    dark = " ".join(f"{name}: {night};" for name, _, night in shades)
    rules = own[own.index("/* settings") :]
    return (
        f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        f"{frame}\n{rules}{PAGE}"
    )


def of_the_demo(demo: Recording) -> Iterator[tuple[str, str]]:
    runs = played(demo, {OURS: DEFAULT}, CONTEXT_WINDOW, fills=len(demo.steps))
    yield "filling", filling("What fills the window in the demo", runs, 0)


def of_a_day() -> Iterator[tuple[str, str]]:
    runs = played(workday(), {SUMMARIES: ALONE, OURS: DEFAULT}, 200_000)
    told = [f"${measures.format_dollars(run.sums.dollars)}" for run in runs]
    yield "day", context("The context over a day of work", runs, told)
    yield "cost", cost("What that day costs", runs)


def of_each_layer() -> Iterator[tuple[str, str]]:
    """Draw each layer alone, over a morning of the workday in a smaller window."""
    nothing = replace(ALONE, mode="off")
    layers = {
        "move": replace(nothing, move_above=DEFAULT.move_above),
        "clear": replace(nothing, mode="auto", clear_when="pays", summarize_at=None),
        "truncate": replace(nothing, mode="auto", truncate_at=0.5, summarize_at=None),
        "summarise": replace(ALONE, truncate_at=None),
    }
    titles = {
        "move": "Large results go to files",
        "clear": "Old results are cleared",
        "truncate": "Old inputs are truncated",
        "summarise": "A summary takes the place of the oldest part",
    }
    morning = workday(4)
    [bare] = played(morning, {"nothing": nothing}, 130_000)
    for name, policy in layers.items():
        [run] = played(morning, {name: policy}, 130_000)
        yield name, context(titles[name], [bare, run])


def of_the_chances() -> Iterator[tuple[str, str]]:
    frame = ChanceFrame(AGES[-1], _chance_height(0.5), _write_chance)
    lines, keys = [], []
    for place, (kind, said) in enumerate(KINDS.items()):
        curve = CURVES[kind]
        shares = [(age, curve.at(age)) for age in AGES]
        points = [(age, _chance_height(share)) for age, share in shares if share >= LEAST_CHANCE]
        lines.append({"place": place, "data": charts.line_path(points)})
        value = f"{100 * curve.first:.2g} to {100 * curve.rest:.2g} %"
        keys.append(Key(charts.swatch(place), said, value))
    drawing = charts.draw(
        frame,
        "The chance of being needed, by age",
        across="replies of the model since",
        lines=lines,
    )
    yield "chances", picture("How likely a text is needed again, by its age", drawing, keys)


def of_an_edit() -> Iterator[tuple[str, str]]:
    """Draw the account of the first edit that pays in the workday."""
    player, run = noted(workday(), _terms("default", DEFAULT, 200_000))
    edit, accounts = first_that_pays(player)
    last = accounts[-1]
    act = next(act for act in run.acts if act.number == last.number)
    reading = [(each.number, round(each.reading)) for each in accounts]
    rewrite = [(each.number, round(each.rewrite)) for each in accounts]
    price = [(each.number, round(each.rewrite + each.misses)) for each in accounts]
    rows = [
        Key(charts.swatch(1), "reading them until now", _tokens(last.reading)),
        Key(_box("results"), "price: the expected misses", _tokens(last.misses)),
        Key(_box("stubs"), "price: twice the rewrite of what follows", _tokens(last.rewrite)),
    ]
    title = f"Keep or clear {len(edit.due)} texts: what each costs"
    areas = {"results": price, "stubs": rewrite}
    yield "edit", account(title, act, {1: reading}, rows, areas)


def of_a_summary() -> Iterator[tuple[str, str]]:
    """Draw the account of the first summary of the workday, without clearing."""
    player, run = noted(workday(), _terms("append", PRESETS["append"], 200_000))
    act = next(act for act in run.acts if act.layer == "summary")
    states = [each for each in player.summaries if each.number <= act.number]
    reading = [(each.number, round(each.reading)) for each in states]
    price = [(each.number, round(each.price)) for each in states]
    rows = [
        Key(charts.swatch(1), "reading the old part, so far", _tokens(states[-1].reading)),
        Key(charts.swatch(2), "price of a summary", _tokens(states[-1].price)),
    ]
    title = "Keep or summarise: what each costs"
    yield "summary", account(title, act, {2: price, 1: reading}, rows)


def account(
    title: str,
    act: ReplayAct,
    lines: Mapping[int, Points],
    rows: Sequence[Key],
    areas: Mapping[str, Points] = MappingProxyType({}),
) -> str:
    """Draw the costs so far and the price of an act, over the calls up to it: lines by their place,
    and areas from back to front.
    """
    top = max(value for points in (*areas.values(), *lines.values()) for _, value in points)
    mark = {"kind": act.layer, "number": act.number, "title": f"call {act.number}: {act.trigger}"}
    lane = {"place": 1, "y": charts.BOTTOM + charts.AXIS_HEIGHT + ROW // 2, "marks": [mark]}
    drawing = charts.draw(
        charts.Frame(act.number + 4, top, short_tokens),
        title,
        areas=[{"group": group, "data": charts.area_path(each)} for group, each in areas.items()],
        lines=[{"place": place, "data": charts.line_path(each)} for place, each in lines.items()],
        lanes=[lane],
        below=ROW,
    )
    done = Key(_mark(act.layer), f"{charts.mark_name(act.layer)}, before call {act.number}")
    return picture(title, drawing, rows, [done], across=1)


def of_a_recording(path: Path) -> tuple[str, str]:
    """Draw the context over the calls of a session recorded by another agent, with its cost."""
    recording = load_recording(path)
    runs = played(recording, {SUMMARIES: ALONE, OURS: DEFAULT}, 200_000)
    told = [f"${measures.format_dollars(run.sums.dollars)}" for run in runs]
    title = f"A session recorded by {recording.format}, {recording.replies:,} replies"
    return recording.format.lower().replace(" ", "-"), context(title, runs, told)


def of_the_film() -> Iterator[tuple[str, str]]:
    """Play the film's session, and draw it with its bill."""
    with scenes.stage() as it:
        cuts = film.played(it)
        [log] = it.place.logs()
        recording = load_recording(log)
        steps = tuple(_same(step, str(it.cwd)) for step in recording.steps)
        recording = replace(recording, steps=steps, system=_always(recording.system, str(it.cwd)))
    bills = [(0.0, 0.0)]
    for turns in range(1, len(film.words()) + 1):
        part = film.up_to(recording, turns)
        runs = played(part, {OURS: DEFAULT, SUMMARIES: ALONE}, film.WINDOW)
        bills.append((runs[0].sums.dollars, runs[1].sums.dollars))
    yield "film", film.drawn(cuts, bills, MODEL)


def draw(folder: Path) -> None:
    """Write all pictures to a folder."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        demo = recorded(Path(place).resolve())
    parts: tuple[Callable[[], Iterator[tuple[str, str]]], ...] = (
        lambda: of_the_demo(demo), of_a_day, of_each_layer, of_the_chances, of_an_edit,
        of_a_summary, of_the_film,
    )  # fmt: skip
    for part in parts:
        for name, text in part():
            (folder / f"{name}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if recordings := [Path(each) for each in sys.argv[2:]]:
        for name, text in map(of_a_recording, recordings):
            Path(sys.argv[1], "recorded", f"{name}.svg").write_text(text, encoding="utf-8")
    else:
        draw(Path(sys.argv[1]))
