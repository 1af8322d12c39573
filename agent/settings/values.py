"""What the values of settings can be: the words of those that are words, and their shapes.

`scripted` and `laxer` tell when a project file needs the person's trust to set one.
"""

from pathlib import Path
from typing import Any, Literal, get_args

from ..compaction.categories import Always, Compactable, canonical
from ..shapes import including, many, matching, one_of, respelled

_VISIBLE = r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]"  # nothing that moves a cursor when it is shown


def scripted(new: Any, current: Any) -> bool:
    return str(new).startswith("scripted:")  # such a model says what the project wrote for it


def laxer(new: Any, current: Any) -> bool:
    modes = get_args(Mode)
    return modes.index(new) > modes.index(current)


def freer(new: Any, current: Any) -> bool:
    modes = get_args(Sandboxing)
    return modes.index(new) > modes.index(current)


Preset = Literal["preset"]
PresetName = Literal["default", "v5", "ctx-001", "anchored", "ledger"]
Compacting = Literal["auto", "remind", "off"]
Summarizer = Literal["model", "mechanical"]
Clearing = Literal["auto", "every-call", "from", "off"]
Threshold = int | float | Preset | None  # tokens, share of the window, off
Effort = Literal["low", "medium", "high", "xhigh", "max"]
Mode = Literal["plan", "ask", "accept-edits", "bypass"]  # from the strictest to the laxest
Theme = Literal["auto", "dark", "light", "ansi"]
Editing = Literal["emacs", "vi"]
Sandboxing = Literal["require", "auto", "off"]  # from the strictest to the laxest

MODEL_ID = matching("the id of a model", rf"(?!\s){_VISIBLE}+")
ADDRESS = matching("an http:// or https:// address", r"https?://[!-.0-~][!-~]*")
FOLDER = matching('a folder, absolute or below "~/"', rf"(?:/|~(?=/|$)){_VISIBLE}*", Path)
FOLDERS = many(FOLDER)
VARIABLES = many(matching("the name of a variable", r"[A-Za-z_][A-Za-z0-9_]*"))
RULES = many(matching('a rule such as "Bash(git status:*)"', rf"(?!\s){_VISIBLE}+"))
TOOLS = many(matching("the name of a tool", r"[A-Za-z_][A-Za-z0-9_]*"))
COMMANDS = many(matching("a shell command on one line", rf"(?!\s){_VISIBLE}+"))
INSIDE = matching("a path within the project", rf"(?![/~\s])(?!(?:.*/)?\.\.(?:/|$)){_VISIBLE}+")
KEPT = many(respelled(canonical, one_of(Always)))
TAKEN = including("thinking_blocks", many(respelled(canonical, one_of(Compactable))))
