"""Text for readers, and values from documents of others."""

from typing import TYPE_CHECKING

from ..agent.lazy import names_on_demand

if TYPE_CHECKING:
    from ..agent.border.values import (
        Drops,
        Given,
        JsonObject,
        as_arguments,
        as_count,
        as_list,
        as_object,
        as_seconds,
        as_text,
        parse_json,
        plain_text,
        read_object,
        without_surrogates,
    )
    from ..tools.project_encodings import text_of as text_of_file
    from ..tools.system.phrasing import (
        as_sentences,
        count_of,
        cut_after,
        cut_at_word,
        format_size,
        one_line,
        shorten,
    )
    from ..tools.system.unicode import clean, reveal_invisible
    from ..tools.text import NotText, strings_in
else:
    __getattr__ = names_on_demand(__name__, __file__)

__all__ = [
    "Drops",
    "Given",
    "JsonObject",
    "NotText",
    "as_arguments",
    "as_count",
    "as_list",
    "as_object",
    "as_seconds",
    "as_sentences",
    "as_text",
    "clean",
    "count_of",
    "cut_after",
    "cut_at_word",
    "format_size",
    "one_line",
    "parse_json",
    "plain_text",
    "read_object",
    "reveal_invisible",
    "shorten",
    "strings_in",
    "text_of_file",
    "without_surrogates",
]
