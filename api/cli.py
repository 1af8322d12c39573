"""Commands of the shell: their options, output, progress and exit codes."""

from typing import TYPE_CHECKING

from ..agent.lazy import names_on_demand

if TYPE_CHECKING:
    from ..agent.cli.answers import read_answers
    from ..agent.cli.group import Group
    from ..agent.cli.options import (
        Amount,
        WholeNumber,
        can_ask,
        cwd_of,
        exits_with_code,
        is_confirmed,
        launch_of,
        load,
        load_for_reading,
        project_of,
        say,
        say_lines,
        say_notices,
        setting_flags,
        single_action,
        warn_of_problems,
    )
    from ..agent.cli.progress import Progress, duration_text
else:
    __getattr__ = names_on_demand(__name__, __file__)

__all__ = [
    "Amount",
    "Group",
    "Progress",
    "WholeNumber",
    "can_ask",
    "cwd_of",
    "duration_text",
    "exits_with_code",
    "is_confirmed",
    "launch_of",
    "load",
    "load_for_reading",
    "project_of",
    "read_answers",
    "say",
    "say_lines",
    "say_notices",
    "setting_flags",
    "single_action",
    "warn_of_problems",
]
