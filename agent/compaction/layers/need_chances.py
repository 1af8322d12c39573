"""The chance that a text which leaves the context will be needed again, by what it is and its age.

Numbers of 2026-11-24, set by hand beside what `benchmarks/need_chances.py` shows of 87 recorded
sessions of six agents in nine public repositories: 7,305 results, 5,783 replies. "Needed" is what a
recording can show: a later call asks for the same and gets the same, or edits a line that stood
only there. Of files that were read, one in four is needed again soon; of what commands print, one
in two hundred.

Limits: what a model would merely have liked to see again leaves no trace, so the chances are lower
bounds. Few sessions searched the web or called MCP servers; those have the chances of a search.
Curves that were fitted on five of the repositories alone, held against all, cost the same to one in
a hundred, and 1.18 % of the results were needed when gone instead of 1.08 %. Sessions of others
differ: run the script on your own.
"""

import math
from dataclasses import dataclass
from typing import Literal

NeedClass = Literal["read", "changed once", "changed often", "shown", "command", "search", "input"]


@dataclass(frozen=True, slots=True)
class NeedCurve:
    """A chance that falls with the replies since a text came into the context or was worked on."""

    first: float
    half_life: float  # replies in which what is above `rest` halves
    rest: float

    def at(self, age: int) -> float:
        """Return the chance after so many replies."""
        return self.rest + (self.first - self.rest) * math.exp2(-age / self.half_life)


CURVES: dict[NeedClass, NeedCurve] = {
    "read": NeedCurve(0.24, 15, 0.04),  # a file that nobody changed since
    "changed once": NeedCurve(0.05, 40, 0.01),  # by this session, since it was read
    "changed often": NeedCurve(0.016, 60, 0.01),
    "shown": NeedCurve(0.05, 15, 0.002),  # a file, by a command such as cat or sed
    "command": NeedCurve(0.005, 8, 0.0005),
    "search": NeedCurve(0.02, 25, 0.001),
    "input": NeedCurve(0.26, 20, 0.11),  # what a Write or an Edit wrote
}
REPEATED = 0.0005  # of a result that a later call repeated or showed as part of more
# What a miss costs besides reading the context once more and writing what was missed: the output of
# one more call and the time that somebody waits, in tokens at the price of input. Not measured:
# chosen so that about one result in a hundred is missed.
MISS_TOKENS = 25_000
