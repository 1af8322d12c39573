"""The value types of the settings."""

from pathlib import Path

from .keys import (
    POSITIVE_NUMBER,
    THRESHOLD,
    list_including,
    list_of,
    one_of,
    or_none,
    switch_or,
    text_matching,
    whole_number,
    with_spelling,
)
from .preservation import ALWAYS, COMPACTABLE, canonical_category

_VISIBLE = r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]"  # no control characters
_VISIBLE_TEXT = rf"(?!\s){_VISIBLE}+"
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"

MODEL_ID = text_matching("the id of a model", _VISIBLE_TEXT)
ADDRESS = text_matching("an http:// or https:// address", r"https?://[!-.0-~][!-~]*")
HOSTS = switch_or(
    list_of(text_matching('a name such as "pypi.org" or "*.npmjs.org"', r"[\w*.:-]+", str.lower))
)
FILE = text_matching("a file, absolute", rf"/{_VISIBLE}+", Path)
FOLDER = text_matching('a folder, absolute or below "~/"', rf"(?:/|~(?=/|$)){_VISIBLE}*", Path)
PROJECT_PATH = text_matching(
    "a path within the project", rf"(?![/~\s])(?!(?:.*/)?\.\.(?:/|$)){_VISIBLE}+"
)
VARIABLE_NAMES = list_of(text_matching("the name of a variable", _IDENTIFIER))
TOOL_NAME_LIST = list_of(text_matching("the name of a tool", _IDENTIFIER))
RULES = list_of(text_matching('a rule such as "Bash(git status:*)"', _VISIBLE_TEXT))
COMMAND = text_matching("a shell command on one line", rf"(?:{_VISIBLE_TEXT})?")
COMMANDS = list_of(text_matching("a shell command on one line", _VISIBLE_TEXT))
THRESHOLD_OR_OFF = or_none("off", THRESHOLD)
TOKENS = whole_number("tokens", 0)
GIGABYTES_OR_OFF = or_none("off", POSITIVE_NUMBER)
DAYS_OR_OFF = or_none("off", whole_number("days", 1))
SERVER_NAMES = list_of(text_matching("the name of an MCP server", r"[A-Za-z0-9_-]{1,64}"))
LANGUAGE_SERVERS = list_of(
    text_matching(
        'suffixes and a command, such as ".zig: zls"', rf"\.\S+(?: \.\S+)*: ?{_VISIBLE_TEXT}"
    )
)
SECONDS = whole_number("seconds", 1)
SECONDS_OR_AUTO = or_none("auto", whole_number("seconds", 0))
TOKENS_OR_AUTO = or_none("auto", whole_number("tokens", 1))
KEPT_CATEGORIES = list_of(with_spelling(canonical_category, one_of(ALWAYS)))
COMPACTABLE_CATEGORIES = list_including(
    "thinking_blocks", list_of(with_spelling(canonical_category, one_of(COMPACTABLE)))
)
