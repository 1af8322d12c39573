"""The chance that a cleared text is needed again, by kind and age.

The curves were fitted on 2026-11-24 by `benchmarks/need_chances.py` on 53 recorded sessions of five
public repositories and rounded to two digits. 34 sessions of four other repositories were used for
checking only. All 87 sessions, of six agents, have 7,305 results and 5,783 replies. A text counts
as needed if a later call makes the same request and gets the same result, or edits a line that only
this text showed. `docs/guide/context.md` compares the curves with both groups.

`REPEATED`, `MISS_TOKENS` and `PRIOR_RESULTS` were chosen, not fitted. `REPEATED` is low because a
repeated text is still in the context. The other two were chosen after looking at all sessions;
`PRIOR_RESULTS` from 10 to 40 gave the same result.

Limits: a model may miss a text without a trace in the recording, so the chances are lower bounds.
Few sessions used web searches, MCP servers (both use the chances of a search) or commands that show
files. Other users' sessions may differ: run the script on yours.
"""

import math
from typing import Literal

from ...lazy import dataclass

NeedClass = Literal[
    "read",
    "changed once",
    "changed often",
    "shown",
    "command",
    "search",
    "input",
    "argument",
]


@dataclass(frozen=True, slots=True)
class NeedCurve:
    """A chance that falls with the number of replies since a text was added or last worked on."""

    first: float
    half_life: float  # replies in which the part above `rest` halves
    rest: float

    def at(self, age: int) -> float:
        """Return the chance after `age` replies."""
        return self.rest + (self.first - self.rest) * math.exp2(-age / self.half_life)


CURVES: dict[NeedClass, NeedCurve] = {
    "read": NeedCurve(0.34, 5, 0.085),  # a file that was not changed since
    "changed once": NeedCurve(0.039, 5, 0.0094),  # a file that this session changed since
    "changed often": NeedCurve(0.0057, 10, 0.0),
    "shown": NeedCurve(0.041, 5, 0.0),  # a file, by a command such as cat or sed
    "command": NeedCurve(0.052, 8, 0.0026),
    "search": NeedCurve(0.041, 5, 0.013),
    "input": NeedCurve(0.16, 8, 0.015),  # the text of a Write or an Edit
    "argument": NeedCurve(0.052, 8, 0.0026),  # the arguments of any other call
}
REPEATED = 0.0005  # for a result that a later call repeated or included
# The chances are adjusted to how often the session needs each kind again. The curve counts as this
# many cleared results, with the chance at this age. The adjustment is limited to these factors.
PRIOR_RESULTS = 20
PRIOR_AGE = 5  # replies
MIN_SEEN_FACTOR, MAX_SEEN_FACTOR = 0.1, 3.0
# Extra cost of a miss, in input tokens: the output of one more call and the user's waiting time.
# Reading the context again and restoring the text are counted separately. Not measured: chosen so
# that about one result in a hundred is missed. In a small window the cost is limited to a share of
# the window, since keeping a result brings the next summary nearer.
MISS_TOKENS = 32_000
MAX_MISS_SHARE = 0.16
