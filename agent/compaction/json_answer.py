"""Read a record that a model wrote as JSON: turn it into the Markdown that `sections` splits.

Keys are titles. So both forms of an answer have one parser. Keys with other names become sections
of their own, like other titles.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..lazy import regex

_FENCED = regex(r"\s*```(?:json)?[ \t]*\n(.*)\n?[ \t]*```\s*", re.DOTALL | re.I)
_STATE = "current_state"
_LABELS = ("phase", "done", "in_progress", "blocked")  # may stand outside of the state
_QUOTED = ("quote", "quotation")
_NAMES = ("path", "file", "name")


def as_markdown(text: str) -> str:
    """Return the Markdown of an answer that is a JSON object. Return any other text unchanged."""
    fenced = _FENCED.fullmatch(text)
    inner = (fenced[1] if fenced else text).strip()
    if not (inner.startswith("{") and inner.endswith("}")):
        return text
    try:
        record = json.loads(inner, strict=False)
    except (ValueError, RecursionError):
        return text
    state = {key: record.pop(key) for key in _LABELS if key in record}
    if state:
        given = record.get(_STATE)
        record[_STATE] = {**(given if isinstance(given, dict) else {"in_progress": given}), **state}
    return "\n\n".join(
        "\n".join([f"## {_title(key)}", *_lines(value)]) for key, value in record.items()
    )


def _title(key: str) -> str:
    return " ".join(key.replace("_", " ").split())


def _lines(value: Any) -> Iterator[str]:
    """Yield the lines of a section. An empty value means that there is nothing."""
    if value in (None, "", [], {}):
        yield "None."
    elif isinstance(value, dict):
        for key, part in value.items():
            is_list = isinstance(part, list)
            yield f"- {_title(key)}:{'' if is_list else f' {_item(part)}'}"
            yield from (f"  - {_item(each)}" for each in (part if is_list else ()))
    elif isinstance(value, list):
        yield from (f"- {_item(each)}" for each in value)
    else:
        yield _item(value)


def _item(value: Any) -> str:
    """Return an item in one line: a text, or the row of a rule, a fact or a file."""
    if not isinstance(value, Mapping):
        return " ".join(str("" if value is None else value).split())
    row = {str(key).lower(): _item(part) for key, part in value.items()}
    ref = row.pop("ref", "").removeprefix("#")
    ref = f"#{ref}" if ref.strip("0") else ""
    quoted = next((f'"{row.pop(key)}"' for key in _QUOTED if row.get(key)), "")
    path = next((f"`{row.pop(key)}`" for key in _NAMES if key in row), "")
    rest = " ".join(filter(None, row.values()))
    if path:
        return " — ".join(filter(None, (path, rest)))
    if ref and not quoted:  # a rule
        return f'{ref}: "{rest}"'
    return " — ".join(filter(None, (rest, f"{ref} {quoted}".strip())))
