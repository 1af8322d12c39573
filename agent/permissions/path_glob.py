r"""Path patterns: `?`, `*` (within one component), `**` (spans folders), and `\*` for a literal
star.

Matching tracks all positions in the pattern that the text so far can reach, as the bits of one
integer. There is no backtracking: the time is linear in the length of the text for any pattern.
"""

import re
from itertools import groupby

from ..lazy import dataclass, regex

UNESCAPED_WILDCARD = regex(r"(?<!\\)[*?]")
_TOKEN = regex(r"\\[*?]|(?<![^/])(?:\*\*/)+|\*\*+|.", re.DOTALL)


def unescape_path(pattern: str) -> str:
    return re.sub(r"\\([*?])", r"\1", pattern)


@dataclass(frozen=True, slots=True)
class PathGlob:
    """A compiled pattern. Bit N is the position before token N after `start`."""

    start: str  # the text before the first wildcard
    needed: str  # a text that every match contains after `start`
    steps: dict[str, int]  # by character: the positions that it advances
    others: int  # the positions that any other character except `/` advances
    stars: int  # `*`: any character except `/` may follow, or the next token
    spans: int  # `**`: any character may follow, or the next token
    folders: int  # `**/`: any character may follow; after `/` also the next token
    ends: int  # the positions at which a match may end

    def matches(self, path: str) -> bool:
        if not path.startswith(self.start) or path.find(self.needed, len(self.start)) < 0:
            return False
        optional = self.stars | self.spans
        now = 1 | (self.folders & 1) << 1  # `**/` matches at the start of a component only
        now |= (now & optional) << 1
        for char in path[len(self.start) :]:
            is_slash = char == "/"
            stay = self.spans | self.folders if is_slash else optional | self.folders
            now = (now & self.steps.get(char, self.others)) << 1 | now & stay
            if is_slash:
                now |= (now & self.folders) << 1
            now |= (now & optional) << 1
            if not now:
                return False
        return bool(now & self.ends)


def path_glob(pattern: str) -> PathGlob:
    """Compile a pattern. A pattern that ends in a plain name also matches everything below it."""
    is_plain = not UNESCAPED_WILDCARD.search(pattern.rpartition("/")[2])
    tokens = _TOKEN.findall(pattern)
    if is_plain and tokens[-1:] == ["/"]:
        del tokens[-1]
    runs = [(wild, [*run]) for wild, run in groupby(tokens, lambda each: each[0] in "*?")]
    start = runs.pop(0)[1] if runs and not runs[0][0] else []
    texts = (unescape_path("".join(run)) for is_wild, run in runs if not is_wild)
    tokens = tokens[len(start) :]
    ends = 1 << len(tokens)
    if is_plain:
        tokens += ["/", "**"]
        ends |= 1 << len(tokens)
    wild, steps = dict.fromkeys(("?", "*", "**", "**/"), 0), {"/": 0}
    for place, token in enumerate(tokens):
        kind = token if len(token) < 2 or token[0] == "\\" else "**/" if token[-1] == "/" else "**"
        group = wild if kind in wild else steps
        group[kind] = group.get(kind, 0) | 1 << place
    single = wild["?"]
    return PathGlob(
        start=unescape_path("".join(start)),
        needed=max(texts, key=len, default=""),
        steps={unescape_path(c): bits | single * (c != "/") for c, bits in steps.items()},
        others=single,
        stars=wild["*"],
        spans=wild["**"],
        folders=wild["**/"],
        ends=ends,
    )
