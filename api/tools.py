"""Tools: their interface, and parts of the built-in ones."""

from typing import TYPE_CHECKING

from ..agent.lazy import names_on_demand

if TYPE_CHECKING:
    from ..tools.ask_user import AskUserTool
    from ..tools.base import Context, Output, Params, Tool
    from ..tools.plan import PlanTool, steps_of
    from ..tools.recall import (
        MAX_CHARS,
        full_ref,
        images_of_entry,
        nothing_found,
        part_of_text,
        passages_text,
    )
    from ..tools.search.engine import search_text
    from ..tools.search.installed import find_ripgrep, missing_ripgrep
    from ..tools.search.request import Refused
    from ..tools.system.confinement import CommandLimits
else:
    __getattr__ = names_on_demand(__name__, __file__)

__all__ = [
    "MAX_CHARS",
    "AskUserTool",
    "CommandLimits",
    "Context",
    "Output",
    "Params",
    "PlanTool",
    "Refused",
    "Tool",
    "find_ripgrep",
    "full_ref",
    "images_of_entry",
    "missing_ripgrep",
    "nothing_found",
    "part_of_text",
    "passages_text",
    "search_text",
    "steps_of",
]
