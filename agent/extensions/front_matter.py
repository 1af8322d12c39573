"""Front matter: YAML between two lines of `---` at the start of a Markdown file.

Files for other agents are parsed as leniently as by those agents: an unquoted value may contain a
colon, although YAML requires quotes. See https://agentskills.io/specification and
https://yaml.org/spec/1.2.2/.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..lazy import regex

MAX_HEAD_CHARS = 20_000  # longer front matter is an error
MAX_NESTING = 50  # levels of lists and mappings; PyYAML takes seconds for some thousands

_MARK = "---"
_PLAIN_VALUE = regex(r"^([A-Za-z][\w-]*):[ \t]+([^\s\"'\[{>|&*!].*)$", re.MULTILINE)

# Keys in files for other agents. Text such as "Context:" in a description is not a key.
_KNOWN_KEY = regex(
    r"^(name|description|tools|disallowedTools|model|color|effort|maxTurns|permissionMode|skills"
    r"|memory|background|isolation|mode|temperature|allowed-tools|argument-hint|group|license"
    r"|compatibility|metadata|version|when_to_use|user-invocable|disable-model-invocation):",
    re.MULTILINE,
)


def split_front_matter(text: str, *, lenient: bool = False) -> tuple[Mapping[str, Any], str]:
    """Return the front matter as a mapping, and the text below without surrounding blank lines. The
    mapping is empty if the file has no front matter. With `lenient`, read front matter that is not
    YAML line by line. Raises ValueError with the reason if the front matter is invalid.
    """
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != _MARK:
        return {}, "\n".join(lines).strip()
    end = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() == _MARK), 0)
    if not end:
        raise ValueError("its front matter does not end with a line of ---")
    head = "\n".join(lines[1:end])
    if len(head) > MAX_HEAD_CHARS:
        raise ValueError(f"its front matter has more than {MAX_HEAD_CHARS:,} characters")
    return _values(head, lenient=lenient), "\n".join(lines[end + 1 :]).strip()


def text_value(values: Mapping[str, Any], key: str) -> str:
    """Return a value as one line of text, "" if it is missing. Return a list in the form
    `[a, b]`.
    """
    value = values.get(key)
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return "" if value is None else " ".join(str(value).split())


def list_value(values: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return a value as a tuple. A text value is split at the commas outside of parentheses."""
    value = values.get(key)
    if isinstance(value, list):
        parts = [str(part) for part in value]
    else:
        parts = re.split(r",(?![^(]*\))", text_value(values, key))
    return tuple(part.strip() for part in parts if part.strip())


def _values(head: str, *, lenient: bool) -> dict[str, Any]:
    import yaml  # 20 ms, needed only for files with front matter

    try:
        values = _parse_yaml(head)
    except yaml.YAMLError as error:
        try:
            values = _parse_yaml(_PLAIN_VALUE.sub(_quoted, head))
        except yaml.YAMLError:
            if lenient and (found := _lines_of(head)):
                return found
            raise ValueError(f"its front matter is not YAML: {_first_line(error)}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ValueError("its front matter is not a list of keys and values")
    return {str(key): value for key, value in values.items()}


def _lines_of(head: str) -> dict[str, Any]:
    """Return the values of front matter that is not YAML. A line with a known key begins a value;
    other lines continue the value. The first value of a key wins.
    """
    import yaml

    found, parts = dict[str, Any](), _KNOWN_KEY.split(head)
    for key, text in zip(parts[1::2], parts[2::2], strict=True):
        value: Any = " ".join(text.split())
        if value.startswith(("[", '"', "'")):
            with suppress(yaml.YAMLError, ValueError):
                value = _parse_yaml(text)
        found.setdefault(key, value)
    return found


def _parse_yaml(text: str) -> Any:
    """Parse YAML. Raises YAMLError for invalid YAML, and for aliases, because a few aliases can
    expand to any size. Raises ValueError for duplicate keys, which `yaml.safe_load` would accept
    silently, and for values that are nested too deeply.
    """
    import yaml

    nesting = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("a value refers to another one (`*name`): write it out")
        nesting += isinstance(event, yaml.CollectionStartEvent)
        nesting -= isinstance(event, yaml.CollectionEndEvent)
        if nesting > MAX_NESTING:
            raise ValueError("its values are nested too deeply")
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if isinstance(node, yaml.MappingNode):
            keys = [str(key.value) for key, _ in node.value]
            if twice := [key for key in keys if keys.count(key) > 1]:
                raise ValueError(f"{twice[0]} is given twice")
        return None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def _quoted(found: re.Match[str]) -> str:
    value = found[2].rstrip().replace("'", "''")
    return f"{found[1]}: '{value}'"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
