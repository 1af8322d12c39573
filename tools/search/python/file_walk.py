"""Walk the files of a search in ripgrep's order, without following a link.

Each folder and file is opened from its folder's descriptor. So the walk stays below its root even
if a folder is replaced by a link meanwhile.
"""

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator

from ...system.ignore_rules import IgnoreRules, read_ignore_file

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class FileWalk:
    """Opens the files below the working directory. `rules` are those of the folders above it.
    `chosen` is called with the path of a folder or file, and with whether it is a folder.
    """

    def __init__(self, rules: IgnoreRules, chosen: Callable[[str, bool], bool]) -> None:
        self._rules = rules
        self._chosen = chosen

    def files(self) -> Iterator[tuple[str, int]]:
        """Yield the path and a descriptor of each file. The descriptor is closed afterwards."""
        stack: list[tuple[str, int, IgnoreRules, list[tuple[str, bool]]]] = []
        self._enter(".", "", None, self._rules, stack)
        while stack:
            prefix, descriptor, rules, waiting = stack[-1]
            if not waiting:
                stack.pop()
                os.close(descriptor)
                continue
            name, is_folder = waiting.pop()
            path = prefix + name
            if rules.ignores(path, is_folder) or not self._chosen(path, is_folder):
                continue
            if is_folder:
                self._enter(name, f"{path}/", descriptor, rules, stack)
            elif (file := open_file(name, path, descriptor)) is not None:
                try:
                    yield path, file
                finally:
                    os.close(file)

    def _enter(
        self,
        name: str,
        prefix: str,
        above: int | None,
        rules: IgnoreRules,
        stack: list[tuple[str, int, IgnoreRules, list[tuple[str, bool]]]],
    ) -> None:
        """Open a folder and put its entries on the stack, the last one first."""
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=above)
        except OSError as error:
            report(prefix, error)
            return
        try:
            with os.scandir(descriptor) as entries:
                found = {each.name: each for each in entries}
        except OSError as error:
            report(prefix, error)
            os.close(descriptor)
            return
        below = rules.below(prefix, found, lambda file: read_ignore_file(file, descriptor))
        found.pop(".git", None)
        names = sorted(found, key=os.fsencode, reverse=True)
        kinds = [(each, found[each].is_dir(follow_symlinks=False)) for each in names]
        waiting = [
            (each, is_folder)
            for each, is_folder in kinds
            if is_folder or found[each].is_file(follow_symlinks=False)
        ]
        stack.append((prefix, descriptor, below, waiting))


def named_files(paths: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield each path below the working directory with a descriptor, which is closed afterwards."""
    for path in paths:
        *folders, name = path.split("/")
        opened: list[int] = []
        try:
            for folder in folders:
                opened.append(os.open(folder, _FOLDER, dir_fd=opened[-1] if opened else None))
            file = open_file(name, path, opened[-1] if opened else None)
            if file is not None:
                opened.append(file)
                yield path, file
        except OSError as error:
            report(path, error)
        finally:
            for each in opened:
                os.close(each)


def open_file(name: str, path: str, folder: int | None = None) -> int | None:
    """Open a regular file. Return None for anything else, and if it cannot be read."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        report(path, error)
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def report(path: str, error: OSError) -> None:
    """Report a file or folder that cannot be read, as ripgrep does. A new link is left out."""
    if error.errno not in (errno.ELOOP, errno.ENOTDIR):
        print(f"./{path}: {error.strerror} (os error {error.errno})", file=sys.stderr)
