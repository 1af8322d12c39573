"""The line in the output of a failed program that says why it failed."""

from ...tools.system.unicode import clean
from ..lazy import regex

MAX_LINE_CHARS = 300
MIN_WORDS = 5  # of a sentence; shorter lines such as "error code E404" are fields of a report

_LEVEL = regex(r"(?i)\b(warn(ing)?|info|debug|notice|trace)\b")
_FAILURE = regex(
    r"(?i)\b(\w*error|\w*exception|err!|fatal|panic(ked)?|fail(ed|ure)?|cannot|can't|could not"
    r"|unable|not found|no such|denied|refused|invalid|missing|unsatisfiable|unknown)\b"
)
_DETAIL = regex(r"\w: +\S")  # "NAME: what is wrong"


def failure_reason(output: str) -> str:
    """Return the first line that names a failure in a sentence, else the last line; "" for empty
    output. Lines of a stack are indented: they count only if no other line is found.
    """
    lines = [line.rstrip() for line in clean(output).splitlines() if line.strip()]
    outer = [line for line in lines if not line[0].isspace()]
    for candidates in (outer, lines):
        found = next((line for line in candidates if _is_reason(line)), "")
        if found:
            return found.strip()[:MAX_LINE_CHARS]
    return lines[-1].strip()[:MAX_LINE_CHARS] if lines else ""


def _is_reason(line: str) -> bool:
    failure, level = _FAILURE.search(line), _LEVEL.search(line)
    if failure is None or (level is not None and level.start() < failure.start()):
        return False
    return len(line.split()) >= MIN_WORDS or _DETAIL.search(line) is not None
