"""The search engine in Python, for a machine without a trusted ripgrep.

It gives the hits that ripgrep would give, in the same order. It runs in a separate process, because
a pattern can take any time. No code of this process comes from a file that commands can write to:
the modules of `tools/search/python` are read when the agent starts, before the first command, and
the process gets them through its stdin. They import only the standard library of the interpreter
that the environment of the agent is based on.
"""

import marshal
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from .request import Refused, Search, SearchCommand

_ROOT = Path(__file__).parents[2]
_PACKAGE = __name__.split(".")[0]
# In the order of their imports.
_MODULES = (
    "tools.system.glob_patterns",
    "tools.system.ignore_rules",
    "tools.search.python.char_sets",
    "tools.search.python.pattern_parts",
    "tools.search.python.properties",
    "tools.search.python.pattern_parser",
    "tools.search.python.rust_syntax",
    "tools.search.python.pcre_syntax",
    "tools.search.python.expression",
    "tools.search.python.file_search",
    "tools.search.python.file_walk",
    "tools.search.python.main",
)
_SOURCES = {name: (_ROOT / f"{name.replace('.', '/')}.py").read_bytes() for name in _MODULES}
_START = """
import marshal, sys
modules, job = marshal.load(sys.stdin.buffer)
for name, code in modules:
    module = sys.modules[name] = type(sys)(name)
    module.__package__ = name.rpartition(".")[0]
    exec(code, module.__dict__)
sys.exit(module.main(sys.stdout.buffer, **job))
"""
_INTERPRETER = os.path.realpath(sys._base_executable)  # type: ignore[attr-defined]
_LIBRARY = str(Path(os.path.realpath(os.__file__)).parents[1])
_TYPES = Path(__file__).with_name("file_types.txt")
_SETS = Path(__file__).with_name("unicode_sets.txt")


class PythonEngine:
    """The search in a process of the interpreter that runs the agent."""

    name = "Python"

    def __init__(self) -> None:
        self.program = _INTERPRETER
        self.files: Sequence[str] = (_INTERPRETER, _LIBRARY)

    def command(self, search: Search) -> SearchCommand:
        return self._job(search, search.pattern, search.mode)

    def encoding_command(self, search: Search) -> SearchCommand:
        return self._job(search, "", "encodings")

    def _job(self, search: Search, pattern: str, mode: str) -> SearchCommand:
        return self._command(
            pattern=pattern,
            mode=mode,
            decoded=[(file.path, file.encoding, file.bom_bytes) for file in search.decoded],
            only=search.only or "",
            glob=search.glob or "",
            types=_globs_of(search.type) if search.type else [],
            ignore_case=search.ignore_case,
            multiline=search.multiline,
            before=search.before,
            after=search.after,
        )

    def text_command(self, pattern: str, text: bytes) -> SearchCommand:
        return self._command(pattern=pattern, text=text, ignore_case=False, multiline=False)

    def _command(self, *, pattern: str, **job: Any) -> SearchCommand:
        named = "\\p" in pattern or "\\P" in pattern
        table = _SETS.read_text() if named else ""
        given = marshal.dumps((_compiled(), {**job, "pattern": pattern, "table": table}))
        return SearchCommand([self.program, "-I", "-S", "-X", "utf8", "-c", _START], given)


@cache
def _compiled() -> list[tuple[str, Any]]:
    """Return the modules of the search program. Its interpreter has the same byte code."""
    return [
        (f"{_PACKAGE}.{name}", compile(source, f"<{name}>", "exec", dont_inherit=True))
        for name, source in _SOURCES.items()
    ]


def _globs_of(kind: str) -> list[str]:
    """Return the names of files of a type, as wildcards. Raises Refused."""
    for line in _TYPES.read_text().splitlines():
        name, _, globs = line.partition(": ")
        if name == kind:
            return globs.split(", ")
    raise Refused(f"unrecognized file type: {kind}")
