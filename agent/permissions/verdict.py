"""The verdict on a call: allow, ask or deny, with the reason."""

from typing import Literal

from ...tools.system.shorten import shorten
from ..lazy import dataclass

VerdictAction = Literal["allow", "ask", "deny"]

MAX_QUOTED_COMMAND_CHARS = 80  # of a command in a reason
PLAN_MODE_REFUSAL = (
    "plan mode is on: nothing may be edited, and only commands that look may run. Finish the plan "
    "and propose it with Plan"
)
READ_ONLY_REFUSAL = (
    "this subagent only looks: it edits nothing and runs only commands that plainly read"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one call."""

    action: VerdictAction
    reason: str  # for the user and the model
    # The rule that decided. If the call needs approval, is confined, or is denied by plan mode: the
    # narrowest rule that would allow it.
    rule: str = ""
    # The call is allowed without asking only because it runs in the sandbox.
    confined: bool = False
    # A read-only command. If the kernel supports it, the command runs without network, writes
    # nothing, and reads only the project and the system folders.
    read_only: bool = False
    # The command may write to the project's repository (.git): it is a plain git command, or the
    # user was shown that it writes there.
    writes_repository: bool = False
    path: str = ""  # the resolved path of the call, if it has one
    opens: tuple[str, ...] = ()  # files outside the sandbox that the command visibly reads


def quoted_command(source: str) -> str:
    """Return a command as one quoted and shortened line for a reason."""
    return f"`{shorten(' '.join(source.split()), MAX_QUOTED_COMMAND_CHARS)}`"
