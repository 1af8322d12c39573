"""Protection: trust in files, start of programs, sandboxes, and redaction of secrets."""

from typing import TYPE_CHECKING

from ..agent.lazy import names_on_demand

if TYPE_CHECKING:
    from ..agent.config.start_gate import (
        ClearedStart,
        Enclose,
        ProgramStart,
        StartGate,
        StartRefused,
    )
    from ..agent.config.trust import (
        LINK_LEAVES_PROJECT,
        PinnedFiles,
        folders_within_project,
        is_file_trusted,
        read_untrusted,
    )
    from ..agent.permissions.rules import convert_rule
    from ..agent.security import landlock, seatbelt
    from ..agent.security.bubblewrap import find_bubblewrap
    from ..agent.security.program_starts import gate_of
    from ..agent.security.redaction import redaction_for
    from ..agent.security.sandbox import Sandbox, make_sandbox
    from ..agent.security.sandbox_paths import (
        contains_home,
        distrust_writable_folders,
        home_folders,
    )
else:
    __getattr__ = names_on_demand(__name__, __file__)

__all__ = [
    "LINK_LEAVES_PROJECT",
    "ClearedStart",
    "Enclose",
    "PinnedFiles",
    "ProgramStart",
    "Sandbox",
    "StartGate",
    "StartRefused",
    "contains_home",
    "convert_rule",
    "distrust_writable_folders",
    "find_bubblewrap",
    "folders_within_project",
    "gate_of",
    "home_folders",
    "is_file_trusted",
    "landlock",
    "make_sandbox",
    "read_untrusted",
    "redaction_for",
    "seatbelt",
]
