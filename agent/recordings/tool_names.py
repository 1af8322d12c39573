"""Translate recorded calls into calls of our tools, so that the compaction layers and the ledger
understand them.

For example, another agent's `exec_command` becomes Bash and its `view` becomes Read. Arguments are
renamed too. A tool without an equivalent keeps its name.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from ..lazy import dataclass, regex
from ..session.archive import refs_in
from .recording import RecordedCall

_OURS = {
    "bash": "Bash shell shell_command exec_command exec run_shell_command execute_bash local_shell "
    "local_shell_call powershell run_in_terminal run_terminal_cmd container.exec terminal Execute",
    "read": "Read read_file view view_file open cat ReadFile read_text_file",
    "write": "Write write_file create create_file WriteFile",
    "edit": "Edit MultiEdit replace str_replace str_replace_file StrReplaceFile insert edit_file "
    "NotebookEdit apply_patch search_replace",
    "grep": "Grep search_file_content grep_search ripgrep rg search_files search",
    "glob": "Glob find_files find file_search list_directory list ls LS",
    "job": "Job write_stdin TaskOutput BashOutput read_bash",
    "todo": "Todo TodoWrite todowrite update_plan write_todos SetTodoList update_todo",
}  # fmt: skip
_NAMES = {
    other.lower(): name.capitalize()
    for name, others in _OURS.items()
    for other in (name, *others.split())
}
_ANY_ARGUMENTS = ("Job", "Todo")  # recognized whatever their arguments are
_EDITORS = ("str_replace_editor", "str_replace_based_edit_tool", "text_editor")
_EDITOR = {"view": "Read", "create": "Write"}  # by the tool's `command`; other commands edit
_PATH = ("path", "file_path", "filePath", "filepath", "absolute_path", "target_file", "filename")
_COMMAND = ("command", "cmd", "script", "code", "input")
_OLD = ("old_string", "oldString", "old_str", "oldText", "old_text", "old", "search")
_NEW = ("new_string", "newString", "new_str", "newText", "new_text", "new", "replace")
_CONTENT = ("content", "file_text", "contents", "text")
_TODO = ("content", "step", "title", "description")
_PATTERN = ("pattern", "query", "regex")
_PATCHED = regex(r'\*\*\* (Add|Update|Delete) File: ([^\s\\"]+)')
_ACTIONS = {"Add": "created", "Update": "modified", "Delete": "deleted"}
_EXIT = regex(  # a separate line with the exit code, as agents write it
    r"^\W*(?:system>\W*)?(?:error: )?(?:process |command )?(?:failed with )?exit(?:ed)?(?: with)?"
    r"(?: exit)? (?:code|status)[: ]+"
    r"(-?\d{1,3})\W*(?:system>)?$",
    re.IGNORECASE,
)
_JSON_EXIT = regex(r'"(?:exit_code|exitCode|returncode)": ?(-?\d{1,3})\b')
_EXIT_LINES = 6  # lines at both ends of an output that are searched for the exit code


@dataclass(frozen=True, slots=True)
class TranslatedCall:
    """A recorded call, translated to a call of one of our tools."""

    name: str
    input: dict[str, Any]
    details: dict[str, Any] = field(default_factory=dict)  # as in the results of our tools
    is_error: bool = False  # the call failed

    @property
    def changes(self) -> tuple[str, ...]:
        """The paths that the call changed."""
        listed = [str(change["path"]) for change in self.details.get("changes", ())]
        if self.name in ("Edit", "Write") and "path" in self.details:
            listed.append(str(self.details["path"]))
        return tuple(listed)

    @property
    def replaced(self) -> str:
        """The text that an Edit replaced, or the context lines of its patch; "" if unknown."""
        if self.name != "Edit":
            return ""
        patches = (v for v in self.input.values() if isinstance(v, str) and _PATCHED.search(v))
        lines = (line for patch in patches for line in patch.splitlines())
        base = "\n".join(line[1:] for line in lines if line[:1] in ("-", " "))
        return str(self.input.get("old_string") or base)


def translate(call: RecordedCall) -> TranslatedCall:
    """Translate a recorded call into a call of one of our tools."""
    name, given = _name(call), dict(call.input)
    path, command = _first(given, _PATH), _command(given)
    if name == "Bash" and command:
        code = _exit_code(call)
        details: dict[str, Any] = {"command": command, "exit_code": code, **_patched(call, given)}
        return TranslatedCall(
            name, _renamed(given, _COMMAND, "command", command), details, code != 0
        )
    if name in ("Read", "Write", "Edit") and path:
        return _file_call(call, name, _renamed(given, _PATH, "path", path), path)
    if name in ("Grep", "Glob") and (path or _first(given, _PATTERN)):
        if pattern := _first(given, _PATTERN):
            given = _renamed(given, _PATTERN, "pattern", pattern)
        if path:
            given = _renamed(given, _PATH, "path", path)
        return TranslatedCall(name, given, {}, call.is_error)
    patched = {} if call.is_error else _patched(call, given)
    if name == "Todo" and not call.is_error:
        return TranslatedCall(name, given, {"todos": _todos(given)})
    ours = "Edit" if patched else name if name in _ANY_ARGUMENTS else ""
    if not ours and refs_in(call.name, given):
        ours = "Recall"
    return TranslatedCall(ours or _valid_name(call.name), given, patched, call.is_error)


def _todos(given: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a todo list or plan, as in the details of our Todo tool."""
    lists = (value for value in given.values() if isinstance(value, list))
    rows = (row for value in lists for row in value if isinstance(row, dict))
    texts = ((_first(row, _TODO), row.get("status")) for row in rows)
    return [{"content": text, "status": str(status)} for text, status in texts if text]


def our_name(tool: str) -> str:
    """Return the name of our tool that does the same as another agent's, "" if there is none. An
    editor of files also reads.
    """
    low = tool.rpartition(".")[2].lower() if "__" not in tool else tool.lower()
    if low in _EDITORS:
        return "Read"
    return _NAMES.get(low, _NAMES.get(tool.lower(), ""))


def _name(call: RecordedCall) -> str:
    if call.name.rpartition(".")[2].lower() in _EDITORS:
        return _EDITOR.get(str(call.input.get("command")), "Edit")
    return our_name(call.name)


def _valid_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:60] or "_"


def _first(given: dict[str, Any], names: tuple[str, ...]) -> str:
    return next((v for n in names if isinstance(v := given.get(n), str) and v), "")


def _renamed(
    given: dict[str, Any], names: tuple[str, ...], name: str, value: object
) -> dict[str, Any]:
    """Return the arguments with the first of `names` renamed to `name` and set to `value`."""
    used = next((n for n in names if n in given), None)
    return {name if key == used else key: value if key == used else v for key, v in given.items()}


def _command(given: dict[str, Any]) -> str:
    """Return the command as one shell line; some agents record it as a list of arguments."""
    for name in _COMMAND:
        value = given.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            return value[2] if len(value) == 3 and value[1] in ("-c", "-lc") else " ".join(value)
    return ""


def _exit_code(call: RecordedCall) -> int:
    """Return the exit code in the result text. If there is none, return 1 for an error, else 0."""
    lines = call.text.strip().splitlines()
    matches = map(_EXIT.match, (*lines[:_EXIT_LINES], *lines[-_EXIT_LINES:]))
    found = next(filter(None, matches), None)
    if found is None and call.text.startswith("{"):
        found = _JSON_EXIT.search(call.text)
    code = int(found[1]) if found else 0
    return code or 1 if call.is_error else code


def _file_call(call: RecordedCall, name: str, given: dict[str, Any], path: str) -> TranslatedCall:
    details: dict[str, Any] = {"path": path}
    for names, ours in ((_OLD, "old_string"), (_NEW, "new_string"), (_CONTENT, "content")):
        if name != "Read" and (text := _first(given, names)):
            given = _renamed(given, names, ours, text)
    if name != "Read":
        edits = list(_edits(given))
        old, new = "\n".join(o for o, _ in edits), "\n".join(n for _, n in edits)
        if old and "old_string" not in given and name == "Edit":
            given = {**given, "old_string": old}
        new = str(given.get("content") or new)
        details |= {"created": name == "Write", "added": _lines(new), "removed": _lines(old)}
        if not call.is_error:
            details["seen"] = {"path": path, "sha256": _file_digest(call, given)}
    return TranslatedCall(name, given, details, call.is_error)


def _edits(given: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the old and the new text of each replacement; some calls make several."""
    many = given.get("edits")
    for edit in [given, *(many if isinstance(many, list) else ())]:
        if isinstance(edit, dict) and (_first(edit, _OLD) or _first(edit, _NEW)):
            yield _first(edit, _OLD), _first(edit, _NEW)


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def _file_digest(call: RecordedCall, given: dict[str, Any]) -> str:
    """Return a substitute for the digest of the file's bytes, which a recording does not have."""
    if isinstance(given.get("content"), str):
        return hashlib.sha256(given["content"].encode("utf-8", "replace")).hexdigest()
    encoded = json.dumps([call.id, given], default=str).encode("utf-8", "replace")
    return hashlib.sha256(encoded).hexdigest()


def _patched(call: RecordedCall, given: dict[str, Any]) -> dict[str, Any]:
    """Return the files named in a patch, in the form of `changes` in the details of our results."""
    texts = [_command(given), *(v for v in given.values() if isinstance(v, str))]
    found = dict.fromkeys((path, act) for text in texts for act, path in _PATCHED.findall(text))
    if not found or call.is_error:
        return {}
    rows = [{"path": p, "action": _ACTIONS[act], "added": 0, "removed": 0} for p, act in found]
    return {"changes": rows}
