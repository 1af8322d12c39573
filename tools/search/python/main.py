"""The search program that is used without ripgrep.

It runs in a separate process, so that a search can be stopped at any point. Its modules come from
the memory of the agent (`python_engine.py`) and import only the standard library. It prints the
hits as ripgrep does, and exits with 2 if it refuses the pattern.
"""

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from ...system.glob_patterns import compile_wildcard
from ...system.ignore_rules import rules_above
from .expression import Expression
from .file_search import FileSearch, LineSearch, matches_in_line
from .file_search import decoded as decoded_text
from .file_walk import FileWalk, named_files, open_file, report
from .pattern_parts import PatternError


def main(
    out: io.BufferedIOBase,
    *,
    pattern: str,
    ignore_case: bool,
    multiline: bool,
    table: str,
    text: bytes | None = None,
    mode: str = "files",
    only: str = "",
    decoded: Sequence[tuple[str, str, int]] = (),
    glob: str = "",
    types: Sequence[str] = (),
    before: int = 0,
    after: int = 0,
) -> int:
    """Search a text, or the files in the working directory, or `only` one of them. With `decoded`,
    search the files with these paths, encodings and lengths of byte order marks. Write the hits.
    Return the exit code.

    `table` has the properties of characters that Python lacks. `types` are wildcards of names.
    """
    try:
        search = LineSearch(
            Expression(pattern, by_line=not multiline, ignore_case=ignore_case, table=table)
        )
    except PatternError as error:
        print(error, file=sys.stderr)
        return 2
    except RecursionError:
        print("the pattern is nested too deeply", file=sys.stderr)
        return 2
    if text is not None:
        _search_text(search, text, out)
        return 0
    files = FileSearch(search, out, mode=mode, counts_matches=multiline, before=before, after=after)
    encodings = {path: (encoding, bom) for path, encoding, bom in decoded}
    found = named_files(encodings) if decoded else _files(only, _chooser(glob, types))
    for path, descriptor in found:
        named = bool(only or decoded)
        try:
            files.search(os.fsencode(path), descriptor, is_named=named, form=encodings.get(path))
        except OSError as error:
            report(path, error)
        out.flush()
    return 0


def _files(only: str, chosen: Callable[[str, bool], bool]) -> Iterator[tuple[str, int]]:
    """Yield the path and a descriptor of each file to search."""
    if not only:
        rules, _ = rules_above(os.getcwd(), os.environ)  # noqa: PTH109 - pathlib is slow
        yield from FileWalk(rules, chosen).files()
    elif (descriptor := open_file(only, only)) is not None:
        yield only, descriptor


def _chooser(glob: str, types: Sequence[str]) -> Callable[[str, bool], bool]:
    """Return a function that tests whether the glob and the types include a path."""
    wanted = None if not glob or glob.startswith("!") else compile_wildcard(glob)
    unwanted = compile_wildcard(glob[1:]) if glob.startswith("!") else None
    names = [compile_wildcard(each) for each in types]

    def chosen(path: str, is_folder: bool) -> bool:
        if unwanted and unwanted.fullmatch(path):
            return False
        if is_folder:
            return True
        if wanted and not wanted.fullmatch(path):
            return False
        name = path.rpartition("/")[2]
        return not names or any(each.fullmatch(name) for each in names)

    return chosen


def _search_text(search: LineSearch, data: bytes, out: io.BufferedIOBase) -> None:
    """Write the offset of each match in a text, in bytes. A match never spans lines."""
    text = decoded_text(data)
    pattern = search.expression.for_text(text)
    place = offset = 0
    for start, end, _ in search.lines(text):
        for found in matches_in_line(pattern, text.text[start:end]):
            at = start + found.start()
            offset += len(text.text[place:at].encode("utf-8", "surrogateescape"))
            place = at
            out.write(b"%d:\n" % offset)
