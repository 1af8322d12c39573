"""What a permission rule grants: the rules to offer for a call that is asked about, what a rule
means in words, and whether it is so wide that it needs a second thought."""

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .approval import Approval
from .errors import UsageError
from .places import PROTECTED
from .rules import (
    BLANKS,
    BUILDERS,
    Rule,
    exact_command,
    exact_path,
    make_place,
    narrowest,
    parse_rule,
)
from .shell.syntax import Part, Script, parse
from .shell.wrappers import names
from .unseen import in_a_line, revealed

if TYPE_CHECKING:
    from ..tools.base import Params, Tool

LONGEST = 1_000  # characters of a rule that is offered
_VERBS = {
    "Read": "reading", "Grep": "searching", "Glob": "listing", "Edit": "changing",
    "Write": "writing",
}  # fmt: skip
_STAR = re.compile(r"(?<!\\)\*")
_WILD = re.compile(r"(?<!\\)[*?]")
# What these do, the next word says; some of those words run anything.
_MANIFOLD = names(
    "git gh npm pnpm yarn bun deno uv poetry pdm hatch conda docker podman kubectl helm terraform "
    "cargo go dotnet mix svn hg nix brew apt apt-get dnf pacman systemctl aws gcloud az"
)


def offers(
    approval: Approval, tool: "Tool[Any]", params: "Params", narrow: str, cwd: Path
) -> tuple[str, ...]:
    """Rules that allow the call, from the one for it alone to the one for the tool. Wide are that
    last one alone, and the first for a folder. `narrow` is the rule that the call's verdict names.
    None when no rule helps, or when the call holds what cannot be seen."""
    subject, whole, own = tool.subject(params), tool.name, ""
    if revealed(subject) != subject:
        return ()
    if tool.name == "Bash":
        found = list(_for_command(subject, narrow))
    elif tool.effect in ("read", "edit"):
        found, whole, own = list(_for_path(parse_rule(narrow))), parse_rule(narrow).tool, narrow
    else:
        found = [f"{tool.name}({subject})"] if re.fullmatch(r"[\w-]+", subject) else []
    fit = [
        rule
        for rule in dict.fromkeys(found)
        if in_a_line(rule)
        and len(rule) <= LONGEST
        and (rule == own or not wide(parse_rule(rule), cwd))
        and _allows(approval, rule, tool, params)
    ]
    if (fit or not subject) and _allows(approval, whole, tool, params):
        fit.append(whole)
    return tuple(fit)


def check(approval: Approval, text: str, tool: "Tool[Any]", params: "Params", cwd: Path) -> str:
    """What speaks against keeping a rule, "" for nothing. Raises UsageError when it is none, when
    it cannot be seen in a line, and when it does not allow this call."""
    rule = parse_rule(text)
    if not in_a_line(str(rule)):
        raise UsageError(
            f"{revealed(str(rule))!r} holds characters that cannot be seen",
            hint="Write it without them.",
        )
    verdict = approval.with_rule(str(rule)).judge(tool, params)
    if verdict.action != "allow":
        raise UsageError(f"{rule} does not allow this call", hint=verdict.reason)
    return wide(rule, cwd, parse_rule(approval.judge(tool, params).rule or tool.name))


def meaning(text: str) -> str:
    """What a rule allows, in a few words; "" for what is no rule."""
    try:
        rule = parse_rule(text)
    except UsageError:
        return ""
    if rule.tool == "Bash":
        return _commands(rule)
    if rule.tool in _VERBS:
        return f"{_VERBS[rule.tool]} {_files(rule.subject)}"
    if rule.tool == "Task":
        return f"subagents of type {rule.subject}" if rule.subject else "any subagent"
    return f"{rule.tool} with {rule.subject}" if rule.subject else f"any call of {rule.tool}"


def wide(rule: Rule, cwd: Path, own: Rule | None = None) -> str:
    """Why a rule is wider than the measure: more than the rules that are offered by themselves,
    or beyond what a project is made of. "" when it is not. `own` is the rule for the call alone."""
    if rule.tool == "Bash":
        return _wide_command(rule)
    if rule.tool not in _VERBS:
        return ""
    if rule.subject is None:
        return f"that is {meaning(str(rule))}, in this project and outside of it"
    return _wide_path(rule, rule.subject, cwd, own is not None and own.subject == rule.subject)


def _allows(approval: Approval, rule: str, tool: "Tool[Any]", params: "Params") -> bool:
    return approval.with_rule(rule).judge(tool, params).action == "allow"


def _for_command(text: str, narrow: str) -> Iterator[str]:
    yield f"Bash({exact_command(text)})"
    script = parse(text)
    for part in script.parts:
        if longer := _longer(part, script):
            yield f"Bash({longer})"
    yield narrow


def _longer(part: Part, script: Script) -> str:
    """A prefix of one word more than the narrowest one has, where more words follow."""
    prefix = narrowest(part, script)
    if part.wrapper or not prefix.endswith(":*"):
        return ""
    count = len(shlex.split(prefix[:-2])) + 1
    if len(part.words) <= count:
        return ""
    last = part.words[count - 1]
    if not last.fixed or last.glob or last.text.startswith("-"):
        return ""
    return exact_command(shlex.join(word.text for word in part.words[:count])) + ":*"


def _for_path(rule: Rule) -> Iterator[str]:
    if rule.subject is not None:
        yield str(rule)
        if folder := rule.subject.rpartition("/")[0].strip("/"):
            root = "/" * rule.subject.startswith("/")
            yield f"{rule.tool}({root}{folder}/**)"


def _commands(rule: Rule) -> str:
    subject = rule.subject or ""
    if rule.any:
        return "every command"
    if subject.endswith(":*"):
        return f"any `{_plain(subject[:-2])} …` command"
    if _STAR.search(subject):
        return f"any command like `{_plain(_STAR.sub('…', subject))}`"
    return "this very command, word for word"


def _plain(subject: str) -> str:
    return " ".join(subject.replace("\\*", "*").split())


def _files(subject: str | None) -> str:
    if subject is None:
        return "any file"
    shown = re.sub(r"\\([*?])", r"\1", subject)
    if subject.endswith("/**") and not _STAR.search(subject[:-3]):
        return f"files below {shown[:-2]}"
    if _WILD.search(subject):
        return f"files like {shown}"
    return shown


def _wide_command(rule: Rule) -> str:
    subject = rule.subject or ""
    if rule.any:
        return "no command is asked about any more, whatever it does"
    if subject.endswith(":*"):
        words = subject[:-2]
    elif star := _STAR.search(subject):
        head = subject[: star.start()]
        words = head if head.endswith(tuple(BLANKS)) else head.rpartition(" ")[0]
    else:
        return _fed(subject)
    words = words.replace("\\*", "*").strip(BLANKS)
    if not words:
        return "it does not say which program"
    script = parse(words)
    part = script.parts[0] if len(script.parts) == 1 else None
    if part is None or part.wrapper or not narrowest(part, script).endswith(":*"):
        return f"what comes after `{words}` decides what it does, and may be anything"
    if len(part.words) == 1 and part.name.rpartition("/")[2] in _MANIFOLD:
        return f"`{words}` does very different things by its next word"
    return ""


def _fed(command: str) -> str:
    """What a program that is given no word is fed through a pipe."""
    script = parse(command.replace("\\*", "*"))
    part = script.parts[0] if len(script.parts) == 1 else None
    if part is None or len(part.words) > 1 or narrowest(part, script).endswith(":*"):
        return ""
    if part.name.rpartition("/")[2] in BUILDERS:
        return ""
    return f"what `{command}` is fed decides what it does, and may be anything"


def _wide_path(rule: Rule, subject: str, cwd: Path, own: bool) -> str:
    place = make_place(subject, str(cwd), widely=False)
    if not _WILD.search(subject) and not _is_folder(place.patterns, own):
        return ""
    roots = [exact_path(root).rstrip("/") for root in (str(cwd), os.path.realpath(cwd))]
    inner = []
    for pattern in place.patterns:
        root = next((r for r in roots if f"{pattern}/".startswith(f"{r}/")), None)
        if root is None:
            return "it reaches beyond this project"
        inner += pattern[len(root) :].split("/")
    if rule.tool not in ("Edit", "Write"):
        return ""
    hidden = next((name for name in inner if name.startswith(".")), "")
    if hidden or any(place.matches(path) for path in _hidden(cwd)):
        return f"it reaches {hidden or 'hidden files'}, and some hidden files run by themselves"
    return ""


def _is_folder(paths: Sequence[str], own: bool) -> bool:
    """Whether a rule that names one path is for all below it. What is not there yet is a file when
    a call is about to make it."""
    plain = [re.sub(r"\\([*?])", r"\1", path) for path in paths]
    return any(os.path.isdir(path) for path in plain) or not (  # noqa: PTH112
        own or any(os.path.lexists(path) for path in plain)
    )


def _hidden(cwd: Path) -> Iterator[str]:
    """Hidden files at the top of a project, and what git runs by itself."""
    other = "any.of.them"
    for name in (f".{other}", ".github", ".husky", ".vscode", ".idea", *sorted(PROTECTED)):
        yield f"{cwd}/{name}"
        yield f"{cwd}/{name}/{other}"
    for path in ("config", "info/attributes", f"hooks/{other}", "hooks/pre-commit"):
        yield f"{cwd}/.git/{path}"
