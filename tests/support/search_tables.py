"""Write the tables of the search in Python, from what ripgrep knows. Run it when ripgrep changes:

.venv/bin/python -m ctxagent.tests.support.search_tables
"""

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from ctxagent.tools.search import python_engine

from .search_engines import engine_named

PROPERTIES = {
    "alphabetic": "alphabetic alpha",
    "emoji": "emoji",
    "emoji_presentation": "emojipresentation epres",
    "extended_pictographic": "extendedpictographic extpict",
    "ideographic": "ideographic ideo",
}
# \n and \r end a line; surrogates are no characters. All are in the scripts or properties of none.
CODES = [code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF and code not in (10, 13)]


def file_types() -> str:
    """Return ripgrep's table of file types."""
    program = engine_named("ripgrep").program
    return subprocess.run(
        [program, "--type-list"], capture_output=True, text=True, check=True
    ).stdout


def members(pattern: str, folder: Path, codes: Sequence[int] = CODES) -> list[int]:
    """Return the codes of the characters that match a pattern, as ripgrep says."""
    file = folder / f"{len(codes)} characters"
    if not file.exists():
        file.write_text("".join(f"{chr(code)}\n" for code in codes), newline="")
    options = ["--no-config", "--text", "--line-number", "--color=never", "--engine=auto"]
    command = [engine_named("ripgrep").program, *options, f"--regexp=^{pattern}$", str(file)]
    done = subprocess.run(command, capture_output=True)
    if done.returncode == 2:
        raise LookupError(done.stderr.decode())
    lines = done.stdout.split(b"\n")[:-1]
    return [codes[int(line.partition(b":")[0]) - 1] for line in lines]


def ranges(codes: list[int]) -> str:
    """Write codes as hexadecimal ranges."""
    out: list[list[int]] = []
    for code in codes:
        if out and out[-1][1] == code - 1:
            out[-1][1] = code
        else:
            out.append([code, code])
    return " ".join(f"{a:x}-{b:x}" if b > a else f"{a:x}" for a, b in out)


def unicode_sets() -> Iterator[str]:
    """Yield the lines of the table of characters."""
    from regex._regex_core import PROPERTIES as KNOWN  # it has the names of all scripts

    names: dict[int, list[str]] = {}
    for name, number in KNOWN["SCRIPT"][1].items():
        names.setdefault(number, []).append(name.lower().replace("_", ""))
    with tempfile.TemporaryDirectory() as folder:
        for name, written in PROPERTIES.items():
            found = members(rf"\p{{{name}}}", Path(folder))
            yield f"{written}: {ranges(found)}\n"
        for group in sorted(names.values()):
            try:
                found = members(rf"\p{{script={group[0]}}}", Path(folder))
            except LookupError:  # regex knows a newer Unicode
                continue
            yield f"{' '.join(group)}: {ranges(found)}\n"


if __name__ == "__main__":
    python_engine._TYPES.write_text(file_types())
    python_engine._SETS.write_text("".join(unicode_sets()))
