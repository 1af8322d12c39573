"""The access that commands have to each path. Bubblewrap, Landlock and the file tools share this
one description.
"""

import os
from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from ...tools.system.programs import within
from ..lazy import dataclass

# "hidden" shows an empty read-only folder or file. "empty" starts as an empty writable folder that
# is deleted when the command ends.
RegionAccess = Literal["write", "read", "hidden", "empty"]

# Folders of which commands have private versions.
_PRIVATE_FOLDERS = ("/proc", "/dev")


@dataclass(frozen=True, slots=True)
class Region:
    """The access that commands have to a path and everything below it."""

    access: RegionAccess
    source: str = ""  # the real location, if it is not the path itself


@dataclass(frozen=True, slots=True)
class Boundary:
    """Regions by their absolute path. Inner regions override outer ones; paths outside all regions
    are read-only.
    """

    regions: Mapping[str, Region] = field(default_factory=dict)

    def at(self, path: str) -> tuple[str, Region]:
        """Return the innermost region that contains a path, and the region's top path."""
        while path not in self.regions and path != "/":
            path = os.path.dirname(path)  # noqa: PTH120
        return path, self.regions.get(path, Region("read"))

    def moved(self, path: str) -> str:
        """Map a path that commands see to its real location. `path` is absolute with links
        resolved.
        """
        top, region = self.at(path)
        return region.source + path[len(top) :] if region.source else path

    def can_read(self, path: str) -> bool:
        """Return True if commands may read a path and see the same content there as other programs.
        `path` is absolute with links resolved.
        """
        region = self.at(path)[1]
        same = region.access == "read" or (region.access == "write" and not region.source)
        return same and not within(path, _PRIVATE_FOLDERS)

    def can_write(self, path: str) -> bool:
        """Return True if commands may write to a path. `path` is absolute with links resolved."""
        region = self.at(path)[1]
        return region.access == "write" and not region.source

    def mounted(self) -> dict[str, Region]:
        """Return the regions that need a mount since they differ from the region around them."""
        return {path: region for path, region in self.regions.items() if self._differs(path)}

    def _differs(self, path: str) -> bool:
        region, outer = self.regions[path], self.at(os.path.dirname(path))[1]  # noqa: PTH120
        if region.access == "hidden":  # no need to hide parts of a private folder
            return outer.access != "hidden" and not outer.source
        # Always mount a writable path: a mount point cannot be renamed.
        return region != outer or region.access == "write" or bool(region.source)
