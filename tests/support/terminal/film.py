"""The film at the top of README: a window fills, old results are cleared, and one is read back.

It is an SVG of 20 seconds without a script: frames of the real command in a terminal, and next to
them what its session costs. A style sheet shows the frames in turn. Viewers without style sheets,
and readers who prefer no motion, see the frame in which the window was cleared.

The model is scripted and has no prices. The bill is a replay of the recorded session.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ctxagent.agent.recordings.recording import RecordedMessage, Recording

from .picture import DARK, EDGE, FONTS, HEIGHT, WIDTH, Frame, Ink
from .scenes import NO_SANDBOX, Filmed, Stage

SECONDS = 20
COLUMNS, ROWS = 76, 22
WINDOW = 60_000  # tokens
DAYS, LINES = 10, 330  # logs, and lines of each
FIRST_RESULT = 5  # its ref
PANEL = 232  # pixels to the right of the terminal
CLEARED, READ_BACK = "old results cleared", "Recall"
ASKED = "How long did the checkout of order 4321 take?"
FOUND = "11 ms, on day 1."
SAME = (
    (r"\d+\.\d s(?= · price)", "1.2 s"),
    (r"(\d+),\d{3}(?= → )", r"\1,800"),  # it counts the path of the project
)
SANS = 'system-ui, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", "DejaVu Sans", sans-serif'
STORY = ("the window fills", "old results are cleared", "one is read back")
OURS, OTHERS = "ctxagent", "summaries only"
NOTES = ("The model is scripted, the rest is real.", "Bill: a replay of this session at", "")


@dataclass(frozen=True, slots=True)
class Cut:
    """A frame of the film, with what is known at its end."""

    frame: Frame
    seconds: float
    turns: int  # that have ended

    @property
    def percent(self) -> int:
        """How full the window is, as the terminal says."""
        found = re.findall(r"(\d+)% full", self.frame.text())
        return int(found[-1])

    @property
    def step(self) -> int:
        """The newest step of the story that the terminal shows."""
        text = self.frame.text()
        return 2 if f"● {READ_BACK}" in text else 1 if CLEARED in text else 0


def words() -> list[str]:
    """Return what the user says."""
    days = [f"{day} and {day + 1}" for day in range(1, DAYS, 2)]
    first = f"A checkout failed this month. Read the logs of day {days[0]}."
    return [first, *(f"Go on with day {each}." for each in days[1:]), ASKED]


def script() -> dict[str, object]:
    steps: list[dict[str, object]] = []
    for day in range(1, DAYS + 1):
        steps.append({"tools": [{"name": "Read", "input": {"path": f"logs/{day:02}.log"}}]})
        if day % 2 == 0:
            said = "Day 9, 01:40: the discount of order 6800 is 1.5, not a share."
            steps.append({"text": said if day == 10 else "No error on these days."})
    given = {"ref": FIRST_RESULT, "query": "order 4321"}
    return {"steps": [*steps, {"tools": [{"name": READ_BACK, "input": given}]}, {"text": FOUND}]}


def log_of(day: int) -> str:
    rows = [
        f"{n // 60:02}:{n % 60:02} checkout of order {4_000 + 300 * day + n} took {11 + n % 7} ms"
        for n in range(LINES)
    ]
    if day == 9:
        rows[100] = "01:40 ERROR checkout of order 6800: discount 1.5 is not a share"
    return "\n".join(f"2026-11-{day:02} {row}" for row in rows) + "\n"


def played(it: Stage) -> list[Cut]:
    """Play the session in a terminal; return the cuts."""
    (it.cwd / "logs").mkdir()
    for day in range(1, DAYS + 1):
        (it.cwd / "logs" / f"{day:02}.log").write_text(log_of(day))
    file = it.place.root / "script.json"
    file.write_text(json.dumps(script()))
    terminal = Filmed(
        "--model", f"scripted:{file}", "--context-window", str(WINDOW), *NO_SANDBOX,
        cwd=it.cwd, env={**it.place.environ(), "TIKTOKEN_CACHE_DIR": ""}, columns=COLUMNS,
        rows=ROWS,
    )  # fmt: skip
    terminal.see("% full")
    cuts = [*_cuts(terminal)]
    terminal.press("ctrl-d")
    assert terminal.leave() == 0
    return cuts


def _cuts(terminal: Filmed) -> Iterator[Cut]:
    said = words()
    for turn, text in enumerate(said):
        terminal.type(text)
        terminal.see(text)
        yield Cut(_still(terminal), 1.0 if turn else 1.4, turn)
        terminal.type("\r")
        terminal.see(lambda shown, turn=turn: shown.count("price not known") > turn)
        frame = _still(terminal)
        is_told = CLEARED in frame.text() or READ_BACK in frame.text()
        yield Cut(frame, 3.6 if is_told else 1.6, turn + 1)


def _still(terminal: Filmed) -> Frame:
    """Return the frame without blank rows at the top: how far the screen has scrolled depends on
    the moment at which a line for a wait has gone.
    """
    frame = terminal.settle().replaced(SAME)
    first = next(n for n, row in enumerate(frame.rows) if any(cell != Ink() for cell in row))
    cursor = frame.cursor and (frame.cursor[0], frame.cursor[1] - first)
    return replace(frame, rows=frame.rows[first:], cursor=cursor)


def up_to(recording: Recording, turns: int) -> Recording:
    """Return the beginning of a recording, with so many messages of the user."""
    told = [n for n, step in enumerate(recording.steps) if isinstance(step, RecordedMessage)]
    said = told[-len(words()) :]  # not the description of the environment
    end = [*said, len(recording.steps)][turns]
    return replace(recording, steps=recording.steps[:end])


def drawn(cuts: Sequence[Cut], bills: Sequence[tuple[float, float]], priced_as: str) -> str:
    """Return the film. `bills` has what the session costs after each number of turns: with
    ctxagent, and with summaries only.
    """
    total = sum(cut.seconds for cut in cuts)
    across = COLUMNS * WIDTH + 3 * EDGE
    width, height = across + PANEL, ROWS * HEIGHT + 2 * EDGE
    poster = next(n for n, cut in enumerate(cuts) if cut.step == 1)
    title = "ctxagent at work: a window fills, old results are cleared, one is read back"
    rules, groups, at = [], [], 0.0
    for number, cut in enumerate(cuts):
        start, at = at, at + cut.seconds
        rules.append(_rule(number, 100 * start / total, 100 * at / total))
        hidden = "" if number == poster else ' visibility="hidden"'
        shown = "\n".join([*cut.frame.elements(DARK), *_panel(cut, bills, across - EDGE)])
        groups.append(f'<g class="cut c{number}"{hidden}>\n{shown}\n</g>')
    notes = [*NOTES[:-1], f"the prices of {priced_as}."]
    low = height - 2 * EDGE - 18 * (len(notes) - 1)
    told = "\n".join(
        _text(across, low + 18 * n, note, DARK.bright[0], size=11.5) for n, note in enumerate(notes)
    )
    motion = f"""\
@media (prefers-reduced-motion: no-preference) {{
.cut {{ visibility: hidden; animation: {SECONDS}s step-end infinite; }}
{"".join(rules)}}}"""
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" \
width="{width}" height="{height}" role="img">
<title>{title}. The model is scripted.</title>
<style>{motion}</style>
<rect width="{width}" height="{height}" rx="8" fill="{DARK.background}"/>
<path d="M{across - EDGE} {EDGE}V{height - EDGE}" stroke="#333842"/>
<g transform="translate({EDGE} {EDGE})" fill="{DARK.foreground}" \
font-family="{FONTS}" font-size="15">
{chr(10).join(groups)}
</g>
{told}
</svg>
"""


def _rule(number: int, start: float, end: float) -> str:
    first = "" if start == 0 else "0% { visibility: hidden } "
    last = "" if end > 99.9 else f" {end:.2f}% {{ visibility: hidden }}"
    return (
        f".c{number} {{ animation-name: c{number} }}\n"
        f"@keyframes c{number} {{ {first}{start:.2f}% {{ visibility: visible }}{last} }}\n"
    )


def _panel(cut: Cut, bills: Sequence[tuple[float, float]], left: int) -> Iterator[str]:
    """Yield the elements next to a frame: how full the window is, the bill, and the story."""
    across, faint = PANEL - EDGE - 10, DARK.bright[0]
    yield _text(left, 14, f"the window of {WINDOW:,} tokens", faint)
    yield _text(left, 42, f"{cut.percent}%", DARK.foreground, size=22)
    yield from _bar(left, 52, across, cut.percent / 100, DARK.dull[4])
    yield _text(left, 98, "the bill so far", faint)
    most = max(bills[-1])
    for row, (name, color) in enumerate(((OURS, DARK.dull[2]), (OTHERS, DARK.dull[3]))):
        top, spent = 124 + 44 * row, bills[cut.turns][row]
        yield _text(left, top, name, DARK.foreground)
        yield _text(left + across, top, f"${spent:.2f}", DARK.foreground, anchor="end")
        yield from _bar(left, top + 8, across, spent / most, color)
    for row, line in enumerate(STORY):
        color = DARK.foreground if row == cut.step else faint
        yield _text(left, 240 + 24 * row, f"{row + 1}  {line}", color)


def _bar(x: int, y: int, across: int, share: float, color: str) -> Iterator[str]:
    yield f'<rect x="{x}" y="{y}" width="{across}" height="10" rx="3" fill="#2a2e36"/>'
    filled = f"{across * share:.1f}"
    yield f'<rect x="{x}" y="{y}" width="{filled}" height="10" rx="3" fill="{color}"/>'


def _text(
    x: int, y: int, text: str, color: str, *, size: float = 13.5, anchor: str = "start"
) -> str:
    return (
        f'<text x="{x}" y="{y}" fill="{color}" font-family=\'{SANS}\' font-size="{size}" '
        f'text-anchor="{anchor}">{text}</text>'
    )
