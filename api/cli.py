"""Commands of the shell: their options, output, progress and exit codes."""

from typing import TYPE_CHECKING

from ..agent.lazy import names_on_demand

if TYPE_CHECKING:
    from ..agent.cli.answers import read_answers
    from ..agent.cli.options import (
        Amount,
        Group,
        WholeNumber,
        cwd_of,
        exits_with_code,
        launch_of,
        load,
        load_for_reading,
        project_of,
        say,
        say_notices,
        setting_flags,
        single_action,
        warn_of_problems,
    )
    from ..agent.cli.progress import Progress, duration_text

__all__ = [
    "Amount",
    "Group",
    "Progress",
    "WholeNumber",
    "cwd_of",
    "duration_text",
    "exits_with_code",
    "launch_of",
    "load",
    "load_for_reading",
    "project_of",
    "read_answers",
    "say",
    "say_notices",
    "setting_flags",
    "single_action",
    "warn_of_problems",
]

__getattr__ = names_on_demand(__name__, __file__)
