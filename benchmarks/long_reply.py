"""Measure streamed Markdown: CPU seconds to show 250 kB, 500 kB and 1 MB that arrive in pieces of
20 characters, as a typical mixture and as one single fence, list, paragraph, line, table or quote.

All output is rendered as text for a terminal of 100 columns; the live region is rendered as often
as on a screen at 200 pieces per second. `ratio` is the time ratio of the last doubling: 2 is
linear.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import measure

from ctxagent.agent.events import CallStarted, TextDelta, UserSaid
from ctxagent.agent.ui.render import render
from ctxagent.agent.ui.transcript import Transcript

SIZES: dict[str, dict[str, Any]] = {
    "full": {"lengths": (250_000, 500_000, 1_000_000)},
    "quick": {"lengths": (25_000, 50_000, 100_000)},
    "tiny": {"lengths": (500, 1_000)},
}
PIECE = 20  # characters
PAINT = 8  # pieces between two paints
WORDS = "Some **words** with `code` and a [link](https://example.com/a) in them. "
MIXTURE = f"""\
## A heading

{WORDS * 5}

1. {WORDS}
   - {WORDS}

   ```python
   def total(prices: list[float]) -> float:
       \"\"\"The sum.\"\"\"
       return sum(prices)
   ```
2. {WORDS}

| name | value | what |
|:-----|------:|------|
| one  | 1 | {WORDS} |
| two  | 22 | {WORDS} |

> {WORDS}
"""
SHAPES = {
    "mixture": ("", MIXTURE),
    "fence": ("```python\n", "    for n in range(10):  # a comment\n        print(n, 'text')\n\n"),
    "list": ("", f"- {WORDS}\n"),
    "paragraph": ("", f"{WORDS}\n"),
    "one line": ("", WORDS),
    "one word": ("", "word"),
    "table": ("| a | b | c |\n|---|---|---|\n", "| one | two words | `three` |\n"),
    "quote": ("", f"> {WORDS}\n>\n"),
}


def shown(text: str) -> float:
    """Return the CPU seconds to show the text as it streams in."""
    printed: list[object] = []
    transcript = Transcript(printed.append)
    started = time.process_time()
    transcript.show(UserSaid("go"))
    transcript.show(CallStarted(1, 1))
    for number, start in enumerate(range(0, len(text), PIECE)):
        transcript.show(TextDelta(text[start : start + PIECE]))
        if number % PAINT == 0:
            _ink(printed)
            printed.clear()
            _ink(transcript.live())
    return time.process_time() - started


def _ink(renderables: object) -> None:
    render.render_text(renderables, width=100, depth="color")  # type: ignore[arg-type]


def main(lengths: Sequence[int]) -> Iterator[measure.Table]:
    rows = {}
    for name, (head, body) in SHAPES.items():
        text = head + body * (lengths[-1] // len(body) + 1)
        times = [shown(text[:length]) for length in lengths]
        rows[name] = {
            f"{length / 1000:g} kB": seconds for length, seconds in zip(lengths, times, strict=True)
        }
        rows[name]["ratio"] = times[-1] / times[-2]
    yield measure.Table("streamed Markdown", rows)


if __name__ == "__main__":
    sys.exit(measure.run(main, SIZES))
