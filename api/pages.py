"""Pages for browsers: templates, drawings, figures, and text made safe to show."""

from typing import TYPE_CHECKING

from ..agent.lazy import names_on_demand

if TYPE_CHECKING:
    from ..agent.pages import charts, templates
    from ..agent.pages.charts import (
        CallValue,
        Frame,
        area_path,
        draw,
        drawn_lane,
        drawn_lines,
        lanes_height,
        mark_name,
        thinned,
    )
    from ..agent.pages.export import ExportFormat, export
    from ..agent.pages.live_page import CONNECT, LivePage
    from ..agent.pages.templates import (
        MAX_TEXT_CHARS,
        NO_FIGURE,
        cut_middle,
        format_dollars,
        format_percent,
        format_ratio,
        format_tokens,
        join_ends,
        page_headers,
        render,
        round_up,
        short_tokens,
    )
    from ..agent.pages.templates import clean as clean_text
else:
    __getattr__ = names_on_demand(__name__, __file__)

__all__ = [
    "CONNECT",
    "MAX_TEXT_CHARS",
    "NO_FIGURE",
    "CallValue",
    "ExportFormat",
    "Frame",
    "LivePage",
    "area_path",
    "charts",
    "clean_text",
    "cut_middle",
    "draw",
    "drawn_lane",
    "drawn_lines",
    "export",
    "format_dollars",
    "format_percent",
    "format_ratio",
    "format_tokens",
    "join_ends",
    "lanes_height",
    "mark_name",
    "page_headers",
    "render",
    "round_up",
    "short_tokens",
    "templates",
    "thinned",
]
