"""The interface of a sandbox for commands, and the limits of one command in it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ...agent.lazy import dataclass
from .spawn import Enclosed


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """The limits of one command in the sandbox. Paths are absolute."""

    unasked: bool = False  # not approved by the user: no network, except by name
    # Read-only: it writes nothing, has no network, and reads only the project, its repository, the
    # session's readable folders and the system's.
    looks: bool = False
    offline: bool = False  # no host can be reached, not even by name
    writes_repository: bool = True  # if False, the project's repository (.git) is read-only
    hide: Sequence[str] = ()  # hidden paths
    keep: Sequence[str] = ()  # read-only paths
    opens: Sequence[str] = ()  # further readable paths


class Confinement(Protocol):
    """A sandbox for commands.

    `absent` is the reason why there is no sandbox, "" if it works; `partial` is the reason why it
    is weaker than it should be. With `required` no command may run outside it. With `by_name`,
    commands reach some hosts through a proxy, and others after the user's approval. `for_command`
    returns the sandbox of one command. `moved` maps a path that commands see to its real location,
    `named` does the reverse.
    """

    required: bool
    network: bool
    network_if_asked: bool  # `network` is off, but the user can allow it
    limits: CommandLimits

    @property
    def absent(self) -> str: ...

    @property
    def partial(self) -> str: ...

    @property
    def by_name(self) -> bool: ...

    @property
    def unasked_absent(self) -> str: ...

    @property
    def holds_looking(self) -> bool: ...

    @property
    def keeps_repository(self) -> bool: ...

    def for_command(self, limits: CommandLimits) -> "Confinement": ...

    def moved(self, path: str) -> str: ...

    def named(self, path: str) -> str: ...

    def can_read(self, path: str) -> bool: ...

    def can_write(self, path: str) -> bool: ...

    def bounds(self) -> str: ...

    def describe(self) -> str: ...

    def enclose(
        self, command: Sequence[str], *, lasting: bool = False, own: Iterable[int] = ()
    ) -> Enclosed: ...

    def environment(self, env: Mapping[str, str]) -> dict[str, str]: ...

    def set_aside(self) -> list[str]: ...

    def remove_empty(self) -> None: ...
