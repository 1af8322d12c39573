"""Suggest permission rules for a call that needs approval, describe a rule, and warn about wide
rules.
"""

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...tools.system.unicode import is_one_visible_line, reveal_invisible
from ..errors import UsageError
from .approval import Approval
from .paths import UNESCAPED_WILDCARD, protected_names, unescape_path
from .rules import (
    BLANKS,
    BUILD_TOOLS,
    MCP_PREFIX,
    SCRIPT_RUNNERS,
    UNESCAPED_STAR,
    Rule,
    exact_command,
    exact_path,
    narrowest_subject,
    parse_rule,
    path_matcher,
    unescape_command,
)
from .shell.parser import Script, SimpleCommand, parse
from .shell.wrappers import name_set

if TYPE_CHECKING:
    from ...tools.base import Params, Tool

MAX_RULE_CHARS = 1_000  # of a suggested rule
EXACTLY = "exactly this command"  # the description of a rule with the exact command
_PATH_TOOL_VERBS = {
    "Read": "reading", "Grep": "searching", "Glob": "listing", "Edit": "changing",
    "Write": "writing",
}  # fmt: skip
# The next word decides what these do, and some subcommands run anything.
_SUBCOMMAND_PROGRAMS = name_set(
    "git gh npm pnpm yarn bun deno uv poetry pdm hatch conda docker podman kubectl helm terraform "
    "cargo go dotnet mix svn hg nix brew apt apt-get dnf pacman systemctl aws gcloud az"
)


def suggest(
    approval: Approval, tool: "Tool[Any]", params: "Params", narrow: str, cwd: Path
) -> tuple[str, ...]:
    """Return rules that would allow the call, the most useful first, then from narrow to wide.

    The first rule allows most of the calls that the user was recently asked about; of equals, it is
    the narrowest. For a command it is a prefix (`pytest`), not the exact text. Only the rules for a
    folder and for the whole tool, which comes last, may be wide. `narrow` is the rule in the call's
    verdict. Returns () if `narrow` is empty, no rule helps, or the call has invisible characters.
    """
    subject, whole, own = tool.subject(params), tool.name, ""
    if not narrow or reveal_invisible(subject) != subject:
        return ()
    if tool.name == "Bash":
        found = list(_command_rules(subject, narrow))
    elif tool.effect in ("read", "edit"):
        found, whole, own = list(_path_rules(parse_rule(narrow))), parse_rule(narrow).tool, narrow
    elif tool.name in ("Network", "WebFetch"):
        above = subject.partition(".")[2]
        found = [narrow, *([f"{tool.name}(*.{above})"] if "." in above else [])]
    else:
        found = [f"{tool.name}({subject})"] if re.fullmatch(r"[\w-]+", subject) else []
    fit = [
        rule
        for rule in dict.fromkeys(found)
        if is_one_visible_line(rule)
        and len(rule) <= MAX_RULE_CHARS
        and (rule == own or not why_wide(parse_rule(rule), cwd))
        and _allows(approval, rule, tool, params)
    ]
    if fit:
        exact = f"Bash({exact_command(subject)})" if tool.name == "Bash" else ""
        first = _most_useful(approval, [rule for rule in fit if rule != exact] or fit)
        fit = [first, *(rule for rule in fit if rule != first)]
    if (fit or not subject) and _allows(approval, whole, tool, params):
        fit.append(whole)
    return tuple(fit)


def _most_useful(approval: Approval, rules: Sequence[str]) -> str:
    """Return the first rule that allows most of the calls that the user was recently asked about.
    Among equals, prefer a prefix without an operand (`pytest`) to one with it (`pytest tests`).
    """

    def worth(rule: str) -> tuple[int, bool]:
        allowed = approval.with_rule(rule)
        count = sum(allowed.judge(*call).action == "allow" for call in approval.asked)
        return count, not _names_an_operand(rule, rules)

    return max(rules, key=worth)


def _names_an_operand(rule: str, rules: Sequence[str]) -> bool:
    """Return True if a shorter prefix of the rule is also in `rules`, unless the last word is a
    script name.
    """
    subject = parse_rule(rule).subject or ""
    if not subject.endswith(":*"):
        return False
    words = subject[:-2].split(" ")
    shorter = f"Bash({' '.join(words[:-1])}:*)" in rules
    return shorter and tuple(words[:-1]) not in SCRIPT_RUNNERS


def check_for_call(
    approval: Approval, text: str, tool: "Tool[Any]", params: "Params", cwd: Path
) -> str:
    """Return why a rule for this call is wide, "" if it is not. Raises UsageError if the text is
    not a rule, has invisible characters or does not allow the call.
    """
    rule = parse_rule(text)
    if not is_one_visible_line(str(rule)):
        raise UsageError(
            f"{reveal_invisible(str(rule))!r} contains invisible characters",
            hint="Remove them.",
        )
    verdict = approval.with_rule(str(rule)).judge(tool, params)
    if verdict.action != "allow":
        raise UsageError(f"{rule} does not allow this call", hint=verdict.reason)
    return why_wide(rule, cwd, parse_rule(approval.judge(tool, params).rule or tool.name))


def describe_rule(text: str) -> str:
    """Describe in a few words what a rule allows, "" if the text is not a rule."""
    try:
        rule = parse_rule(text)
    except UsageError:
        return ""
    if rule.tool == "Bash":
        return _describe_commands(rule)
    if rule.tool in _PATH_TOOL_VERBS:
        return f"{_PATH_TOOL_VERBS[rule.tool]} {_describe_files(rule.subject)}"
    if rule.tool == "Network":
        return f"commands reach {rule.subject}" if rule.subject else "commands reach any host"
    if rule.tool == "WebFetch":
        return f"reading pages of {rule.subject or 'any host'}"
    if rule.tool.startswith(MCP_PREFIX):
        return f"any call of {rule.tool}"
    if rule.tool == "Task":
        return f"subagents of type {rule.subject}" if rule.subject else "any subagent"
    return f"{rule.tool} with {rule.subject}" if rule.subject else f"any call of {rule.tool}"


def why_wide(rule: Rule, cwd: Path, own: Rule | None = None) -> str:
    """Return why a rule is wider than the automatic suggestions or covers paths outside the
    project; "" if it is not wide. `own` is the rule for this call only.
    """
    if rule.tool == "Bash":
        return _why_command_is_wide(rule)
    if rule.tool not in _PATH_TOOL_VERBS:
        return ""
    if rule.subject is None:
        return f"it allows {describe_rule(str(rule))}, inside and outside this project"
    is_own = own is not None and own.subject == rule.subject
    return _why_path_is_wide(rule, rule.subject, cwd, is_own)


def _allows(approval: Approval, rule: str, tool: "Tool[Any]", params: "Params") -> bool:
    return approval.with_rule(rule).judge(tool, params).action == "allow"


def _command_rules(text: str, narrow: str) -> Iterator[str]:
    yield f"Bash({exact_command(text)})"
    script = parse(text)
    for part in script.parts:
        if longer := _longer_prefix(part, script):
            yield f"Bash({longer})"
    yield narrow


def _longer_prefix(part: SimpleCommand, script: Script) -> str:
    """Return a prefix subject with one word more than the narrowest one, if the command has more
    words.
    """
    prefix = narrowest_subject(part, script)
    if part.wrapper or not prefix.endswith(":*"):
        return ""
    count = len(shlex.split(prefix[:-2])) + 1
    if len(part.words) <= count:
        return ""
    last = part.words[count - 1]
    if not last.fixed or last.glob or last.text.startswith("-"):
        return ""
    return exact_command(shlex.join(word.text for word in part.words[:count])) + ":*"


def _path_rules(rule: Rule) -> Iterator[str]:
    if rule.subject is not None:
        yield str(rule)
        if folder := rule.subject.rpartition("/")[0].strip("/"):
            root = "/" * rule.subject.startswith("/")
            yield f"{rule.tool}({root}{folder}/**)"


def _describe_commands(rule: Rule) -> str:
    subject = rule.subject or ""
    if rule.any:
        return "every command"
    if subject.endswith(":*"):
        return f"any `{_plain(subject[:-2])} …` command"
    if UNESCAPED_STAR.search(subject):
        return f"any command like `{_plain(UNESCAPED_STAR.sub('…', subject))}`"
    return EXACTLY


def _plain(subject: str) -> str:
    return " ".join(unescape_command(subject).split())


def _describe_files(subject: str | None) -> str:
    if subject is None:
        return "any file"
    shown = unescape_path(subject)
    if subject.endswith("/**") and not UNESCAPED_STAR.search(subject[:-3]):
        return f"files below {shown[:-2]}"
    if UNESCAPED_WILDCARD.search(subject):
        return f"files like {shown}"
    return shown


def _why_command_is_wide(rule: Rule) -> str:
    subject = rule.subject or ""
    if rule.any:
        return "every command will run without asking"
    if subject.endswith(":*"):
        words = subject[:-2]
    elif star := UNESCAPED_STAR.search(subject):
        head = subject[: star.start()]
        words = head if head.endswith(tuple(BLANKS)) else head.rpartition(" ")[0]
    else:
        return _why_input_decides(subject)
    words = unescape_command(words).strip(BLANKS)
    if not words:
        return "it names no program"
    script = parse(words)
    part = script.parts[0] if len(script.parts) == 1 else None
    if part is None or part.wrapper or not narrowest_subject(part, script).endswith(":*"):
        return f"the words after `{words}` can make it do anything"
    if len(part.words) == 1 and part.name.rpartition("/")[2] in _SUBCOMMAND_PROGRAMS:
        return f"the next word decides what `{words}` does"
    return ""


def _why_input_decides(command: str) -> str:
    """Return why a rule for a program without arguments is wide: the program runs its stdin."""
    script = parse(unescape_command(command))
    part = script.parts[0] if len(script.parts) == 1 else None
    if part is None or len(part.words) > 1 or narrowest_subject(part, script).endswith(":*"):
        return ""
    if part.name.rpartition("/")[2] in BUILD_TOOLS:
        return ""
    return f"its input can make `{command}` do anything"


def _why_path_is_wide(rule: Rule, subject: str, cwd: Path, own: bool) -> str:
    matcher = path_matcher(subject, str(cwd), widely=False)
    if not UNESCAPED_WILDCARD.search(subject) and not _may_be_folder(matcher.patterns, own):
        return ""
    roots = [exact_path(root).rstrip("/") for root in (str(cwd), os.path.realpath(cwd))]
    inner = []
    for pattern in matcher.patterns:
        root = next((r for r in roots if f"{pattern}/".startswith(f"{r}/")), None)
        if root is None:
            return "it covers paths outside this project"
        inner += pattern[len(root) :].split("/")
    if rule.tool not in ("Edit", "Write"):
        return ""
    hidden = next((name for name in inner if name.startswith(".")), "")
    if hidden or any(matcher.matches(path) for path in _sample_hidden_paths(cwd)):
        return f"it covers {hidden or 'hidden files'}, and programs run some hidden files"
    return ""


def _may_be_folder(paths: Sequence[str], own: bool) -> bool:
    """Return True if a rule for a single path may cover a folder. A path that does not exist yet is
    a file if the call itself creates it.
    """
    plain = [unescape_path(path) for path in paths]
    return any(os.path.isdir(path) for path in plain) or not (  # noqa: PTH112
        own or any(os.path.lexists(path) for path in plain)
    )


def _sample_hidden_paths(cwd: Path) -> Iterator[str]:
    """Yield sample hidden files at the top of a project, and files in `.git` that git runs or
    obeys.
    """
    other = "any.of.them"
    hidden = (name for name, kind in protected_names().items() if kind == "runs" and name[0] == ".")
    for name in (f".{other}", ".github", *hidden):
        yield f"{cwd}/{name}"
        yield f"{cwd}/{name}/{other}"
    for path in ("config", "info/attributes", f"hooks/{other}", "hooks/pre-commit"):
        yield f"{cwd}/.git/{path}"
