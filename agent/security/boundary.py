"""What commands find at each path: one description, by which bubblewrap and Landlock confine them
and the file tools are judged.
"""

import os
from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from ...tools.system.programs import within
from ..lazy import dataclass

# "hidden" is an empty folder or file that nothing can be written to, "empty" one that takes what
# the command writes and is gone with it.
RegionAccess = Literal["write", "read", "hidden", "empty"]

# What commands have of their own there is not what others find.
_OTHERS_FIND_ELSE = ("/proc", "/dev")


@dataclass(frozen=True, slots=True)
class Region:
    """What commands find at a path and all that lies in it."""

    access: RegionAccess
    source: str = ""  # what lies there instead of the path itself


@dataclass(frozen=True, slots=True)
class Boundary:
    """The regions of commands by the absolute path where each begins; inner ones win, and all else
    can be read only."""

    regions: Mapping[str, Region] = field(default_factory=dict)

    def at(self, path: str) -> tuple[str, Region]:
        """Return the innermost region that a path is in, and where that begins."""
        while path not in self.regions and path != "/":
            path = os.path.dirname(path)  # noqa: PTH120
        return path, self.regions.get(path, Region("read"))

    def moved(self, path: str) -> str:
        """Return where that lies which commands find at an absolute path with links followed."""
        top, region = self.at(path)
        return region.source + path[len(top) :] if region.source else path

    def can_read(self, path: str) -> bool:
        """Return True if commands may read what lies at an absolute path with links followed: what
        they find there is the same."""
        region = self.at(path)[1]
        same = region.access == "read" or (region.access == "write" and not region.source)
        return same and not within(path, _OTHERS_FIND_ELSE)

    def can_write(self, path: str) -> bool:
        """Return True if commands may write to what lies at an absolute path with links
        followed."""
        region = self.at(path)[1]
        return region.access == "write" and not region.source

    def mounted(self) -> dict[str, Region]:
        """Return the regions that differ from what lies around them."""
        return {path: region for path, region in self.regions.items() if self._differs(path)}

    def _differs(self, path: str) -> bool:
        region, outer = self.regions[path], self.at(os.path.dirname(path))[1]  # noqa: PTH120
        if region.access == "hidden":  # nothing of the user's is seen where commands have their own
            return outer.access != "hidden" and not outer.source
        # What can be written is mounted in any case: nothing that is mounted can be renamed.
        return region != outer or region.access == "write" or bool(region.source)
