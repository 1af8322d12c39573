"""Tools by our names: what an agent called `exec_command` or `view` is Bash or Read here, so that
the layers of compaction and the ledger know what a recorded call did. Arguments get our names too;
a tool that we have none like keeps its own.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .recording import Call

_OURS = {
    "bash": "Bash shell shell_command exec_command exec run_shell_command execute_bash local_shell "
    "local_shell_call powershell run_in_terminal container.exec",
    "read": "Read read_file view view_file open cat ReadFile read_text_file",
    "write": "Write write_file create create_file WriteFile",
    "edit": "Edit MultiEdit replace str_replace str_replace_file StrReplaceFile insert edit_file "
    "NotebookEdit apply_patch search_replace",
    "grep": "Grep search_file_content grep_search ripgrep rg search_files search",
    "glob": "Glob find_files find file_search list_directory list ls LS",
    "todo": "Todo TodoWrite todowrite update_plan write_todos SetTodoList update_todo",
}  # fmt: skip
_NAMES = {
    other.lower(): name.capitalize()
    for name, others in _OURS.items()
    for other in (name, *others.split())
}
_EDITORS = ("str_replace_editor", "str_replace_based_edit_tool", "text_editor")
_EDITOR = {"view": "Read", "create": "Write"}  # what such a tool's `command` makes of it
_PATH = ("path", "file_path", "filePath", "filepath", "absolute_path", "target_file", "filename")
_COMMAND = ("command", "cmd", "script", "code", "input")
_OLD = ("old_string", "oldString", "old_str", "oldText", "old_text", "old", "search")
_NEW = ("new_string", "newString", "new_str", "newText", "new_text", "new", "replace")
_CONTENT = ("content", "file_text", "contents", "text")
_PATTERN = ("pattern", "query", "regex")
_PATCHED = re.compile(r'\*\*\* (Add|Update|Delete) File: ([^\s\\"]+)')
_ACTIONS = {"Add": "created", "Update": "modified", "Delete": "deleted"}
_EXIT = re.compile(  # as agents tell it, on a line of its own
    r"^\W*(?:process |command )?exit(?:ed)?(?: with)?(?: exit)? (?:code|status)[: ]+"
    r"(-?\d{1,3})\W*$",
    re.IGNORECASE,
)
_ENDS = 6  # lines at either end of an output among which such a line may stand


@dataclass(frozen=True, slots=True)
class Known:
    """A call as one of ours: `name` and `input` as the view has them, `details` as the result of
    our tool would have them, `is_error` whether it did not do its work."""

    name: str
    input: dict[str, Any]
    details: dict[str, Any] = field(default_factory=dict)
    is_error: bool = False

    @property
    def changes(self) -> tuple[str, ...]:
        """The paths that it changed."""
        listed = [str(change["path"]) for change in self.details.get("changes", ())]
        if self.name in ("Edit", "Write") and "path" in self.details:
            listed.append(str(self.details["path"]))
        return tuple(listed)

    @property
    def replaced(self) -> str:
        """The text that an Edit replaced, or that its patch builds on; "" where it is not known."""
        if self.name != "Edit":
            return ""
        patches = (v for v in self.input.values() if isinstance(v, str) and _PATCHED.search(v))
        lines = (line for patch in patches for line in patch.splitlines())
        built = "\n".join(line[1:] for line in lines if line[:1] in ("-", " "))
        return str(self.input.get("old_string") or built)


def known(call: Call) -> Known:
    """What a recorded call was, as one of our tools."""
    name, given = _name(call), dict(call.input)
    path, command = _first(given, _PATH), _command(given)
    if name == "Bash" and command:
        code = _exit_code(call)
        details: dict[str, Any] = {"command": command, "exit_code": code, **_patched(call, given)}
        return Known(name, _renamed(given, _COMMAND, "command", command), details, code != 0)
    if name in ("Read", "Write", "Edit") and path:
        return _on_file(call, name, _renamed(given, _PATH, "path", path), path)
    if name in ("Grep", "Glob") and (path or _first(given, _PATTERN)):
        if pattern := _first(given, _PATTERN):
            given = _renamed(given, _PATTERN, "pattern", pattern)
        if path:
            given = _renamed(given, _PATH, "path", path)
        return Known(name, given, {}, call.is_error)
    patched = {} if call.is_error else _patched(call, given)
    return Known("Edit" if patched else _kept(call.name), given, patched, call.is_error)


def _name(call: Call) -> str:
    low = call.name.rpartition(".")[2].lower() if "__" not in call.name else call.name.lower()
    if low in _EDITORS:
        return _EDITOR.get(str(call.input.get("command")), "Edit")
    return _NAMES.get(low, _NAMES.get(call.name.lower(), ""))


def _kept(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:60] or "_"


def _first(given: dict[str, Any], names: tuple[str, ...]) -> str:
    return next((v for n in names if isinstance(v := given.get(n), str) and v), "")


def _renamed(
    given: dict[str, Any], names: tuple[str, ...], name: str, value: object
) -> dict[str, Any]:
    """The arguments with the first of these names replaced, in its place."""
    used = next((n for n in names if n in given), None)
    return {name if key == used else key: value if key == used else v for key, v in given.items()}


def _command(given: dict[str, Any]) -> str:
    """The command as one line of a shell; some agents give it as a list of words."""
    for name in _COMMAND:
        value = given.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            return value[2] if len(value) == 3 and value[1] in ("-c", "-lc") else " ".join(value)
    return ""


def _exit_code(call: Call) -> int:
    """The exit code, as far as the recording tells: in words, or as success or not."""
    lines = call.text.strip().splitlines()
    told = (found for line in (*lines[:_ENDS], *lines[-_ENDS:]) if (found := _EXIT.match(line)))
    found = next(told, None)
    code = int(found[1]) if found else 0
    return code or 1 if call.is_error else code


def _on_file(call: Call, name: str, given: dict[str, Any], path: str) -> Known:
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
            details["seen"] = {"path": path, "sha256": _mark(call, given)}
    return Known(name, given, details, call.is_error)


def _edits(given: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Old and new text of each replacement of a call; some make several."""
    many = given.get("edits")
    for edit in [given, *(many if isinstance(many, list) else ())]:
        if isinstance(edit, dict) and (_first(edit, _OLD) or _first(edit, _NEW)):
            yield _first(edit, _OLD), _first(edit, _NEW)


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n")) if text else 0


def _mark(call: Call, given: dict[str, Any]) -> str:
    """Stands for the bytes that a call left in its file, which the recording does not have."""
    if isinstance(given.get("content"), str):
        return hashlib.sha256(given["content"].encode("utf-8", "replace")).hexdigest()
    told = json.dumps([call.id, given], default=str).encode("utf-8", "replace")
    return hashlib.sha256(told).hexdigest()


def _patched(call: Call, given: dict[str, Any]) -> dict[str, Any]:
    """The files that a patch names, as changes."""
    texts = [_command(given), *(v for v in given.values() if isinstance(v, str))]
    found = dict.fromkeys((path, act) for text in texts for act, path in _PATCHED.findall(text))
    if not found or call.is_error:
        return {}
    rows = [{"path": p, "action": _ACTIONS[act], "added": 0, "removed": 0} for p, act in found]
    return {"changes": rows}
