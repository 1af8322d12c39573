"""Commands that start other commands: `sudo rm x`, `find -exec`, `sh -c "…"`, `eval`.

`find_inner_commands` returns the position of the inner command, or the script passed to a shell, so
that permission rules also apply to it. A few wrappers (`timeout 5 pytest`) are as harmless as their
inner command. All others need the user's approval.
"""

import re
from collections.abc import Sequence

from ...lazy import dataclass, regex

MAX_SHELL_TEXTS = 20  # scripts of one command that are parsed one by one

# Variables that change only how a program displays its output.
HARMLESS_VARIABLE = regex(
    r"LANG|LC_[A-Z]+|TZ|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR|CI|NODE_ENV|DEBUG"
    r"|RUST_BACKTRACE|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONWARNINGS"
)


def name_set(text: str) -> frozenset[str]:
    """Return the set of blank-separated names in a text."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class InnerCommands:
    """The commands that a simple command starts."""

    doubt: str = ""  # why the command needs approval
    spans: tuple[tuple[int, int], ...] = ()  # (start, stop) of inner commands among the words
    script: str = ""  # a script that a shell will run
    transparent: bool = False  # as harmless as the inner command
    # As harmless as the inner command with the file names that are passed to it.
    passes_names: bool = False


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """The syntax of a wrapper before its inner command."""

    valued: str = ""  # options whose value is the next word
    operands: int = 0  # words before the command
    transparent: bool = False


_WRAPPERS = {
    **dict.fromkeys(
        name_set(
            "builtin setsid unshare busybox toybox valgrind unbuffer rlwrap fakeroot torsocks "
            "dbus-run-session"
        ),
        _Wrapper(),
    ),
    **dict.fromkeys(name_set("chrt taskset chroot gosu"), _Wrapper(operands=1)),
    "timeout": _Wrapper("-k -s --kill-after --signal", 1, transparent=True),
    "nice": _Wrapper("-n --adjustment", transparent=True),
    "nohup": _Wrapper(transparent=True),
    "time": _Wrapper("-f -o --format --output", transparent=True),
    "command": _Wrapper(transparent=True),
    "env": _Wrapper("-u -C -S --unset --chdir --split-string", transparent=True),
    "exec": _Wrapper("-a"),
    "sudo": _Wrapper("-u -g -h -p -C -D -R -T -r -t -U --user --group --host --prompt --chdir"),
    "doas": _Wrapper("-u -C"),
    "xargs": _Wrapper("-I -n -P -L -d -E -s -a --arg-file --delimiter --max-args --max-procs"),
    "stdbuf": _Wrapper("-i -o -e"),
    "ionice": _Wrapper("-c -n"),
    "flock": _Wrapper("-w -E --timeout", 1),
    "strace": _Wrapper("-e -o -p -s -u"),
    "parallel": _Wrapper("-j -I --jobs"),
    "ltrace": _Wrapper("-e -o -p -s -u -n -l -a -A"),
    "nsenter": _Wrapper("-t -S -G --target --setuid --setgid"),
    "prlimit": _Wrapper("-p --pid"),
    "setpriv": _Wrapper("--reuid --regid --groups"),
    "runuser": _Wrapper("-u --user -g --group"),
    "systemd-run": _Wrapper("-p -u -E -M -H --property --unit --slice"),
    "numactl": _Wrapper("-C -m -N -i -p"),
    "proxychains": _Wrapper("-f"),
    "xvfb-run": _Wrapper("-e -f -n -p -s -w"),
    "caffeinate": _Wrapper("-t -w"),
}
_HANDING_OVER = regex(
    r"(?:(?:-[0rtx]+|-[nPL] ?\d+|-d ?(?:\\[n0]|\n)|--null|--no-run-if-empty"
    r"|--max-(?:args|procs)=\d+) )*"
)
_ASSIGNMENT_TAKERS = ("env", "sudo", "doas", "time")
# Words of a transparent wrapper that only set a limit or a priority.
_HARMLESS_OPERAND = regex(
    r"-[knps]\w*|-\d+|--(?:signal|kill-after|adjustment|preserve-status|foreground)(?:=\w+)?"
    r"|[A-Z\d][\w.]*"
)
_ASSIGNMENT = regex(r"(\w+)=")
_SHELLS = name_set("sh bash dash zsh ksh ash fish su script")
_SHELL_CHANGING_BUILTINS = name_set(
    ". source alias unalias hash enable bind complete compgen declare typeset export readonly "
    "local unset read mapfile readarray getopts let shopt pushd popd coproc eval exec trap"
)
# Commands that pass all words after these options and operands to a shell.
_SHELL_RUNNERS = {
    "watch": _Wrapper("-n --interval"),
    "ssh": _Wrapper("-B -b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w", 1),
    "hyperfine": _Wrapper("-w -r -m -M -p -c -n -N --warmup --runs"),
}
# Options whose value a command passes to a shell.
_SHELL_OPTIONS = {
    "env": ("-S", "--split-string="),
    "flock": ("-c", "--command"),
    "runuser": ("-c", "--command="),
    "rsync": ("-e", "--rsh="),
    "tar": ("-I", "--to-command=", "--checkpoint-action=exec=", "--use-compress-program="),
    "git": ("-x", "--exec", "--exec=", "--extcmd=", "--upload-pack=", "--receive-pack="),
}
_FIND_EXEC_OPTIONS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))


def find_inner_commands(words: Sequence[str]) -> InnerCommands:
    """Return the commands that a simple command starts. `words` are its words without quotes."""
    name = words[0].rpartition("/")[2]
    if name in _SHELLS:
        return _find_shell_script(words)
    if name == "find":
        return _find_exec_commands(words)
    if name in ("eval", "trap"):
        text = words[1] if name == "trap" and len(words) > 1 else " ".join(words[1:])
        return InnerCommands(f"{name} runs a text as a command", script=text)
    if text := _shell_text(words, name):
        return InnerCommands(f"{name} runs a text as a command", script=text)
    if name == "coproc":
        start = words.index("{") + 1 if "{" in words else 1
        return InnerCommands("coproc runs another command", ((start, len(words)),))
    if name in _WRAPPERS:
        return _find_wrapped_command(words, name, _WRAPPERS[name])
    if name in _SHELL_CHANGING_BUILTINS:
        return InnerCommands(f"{name} changes the shell itself")
    return InnerCommands()


def is_shell(name: str) -> bool:
    """Return True if a command runs its input as a script."""
    return name.rpartition("/")[2] in _SHELLS or name in (".", "source", "eval")


def _shell_text(words: Sequence[str], name: str) -> str:
    """Return the arguments that a command passes to a shell as a script, "" if there are none."""
    if name in _SHELL_RUNNERS:
        return " ".join(words[_command_start(words, name, _SHELL_RUNNERS[name]) :])
    texts = list[str]()
    for place, word in enumerate(words):
        for option in _SHELL_OPTIONS.get(name, ()):
            if len(texts) == MAX_SHELL_TEXTS and name == "env":  # it has all later words
                break
            if word == option:
                texts.append(" ".join(words[place + 1 :][: None if name == "env" else 1]))
            elif word.startswith(option) and (option[-1] == "=" or option[:2] != "--"):
                rest = words[place + 1 :] if name == "env" else []
                texts.append(" ".join([word[len(option) :].lstrip("="), *rest]))
    if name == "git" and "submodule" in words and "foreach" in words:
        texts.append(" ".join(words[words.index("foreach") + 1 :]))
    if name == "git" and "bisect" in words and "run" in words:
        texts.append(" ".join(words[words.index("run") + 1 :]))
    return "\n".join(texts)


def _find_shell_script(words: Sequence[str]) -> InnerCommands:
    for place, word in enumerate(words):
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*|--command", word):
            text = next((w for w in words[place + 1 :] if w[:1] not in ("-", "+")), "")
            return InnerCommands(f"{words[0]} runs a text as a command", script=text)
    return InnerCommands()


def _find_exec_commands(words: Sequence[str]) -> InnerCommands:
    spans, end = list[tuple[int, int]](), len(words)
    for place in reversed(range(len(words))):
        if words[place] in (";", "+"):
            end = place
        elif words[place] in _FIND_EXEC_OPTIONS:
            spans.append((place + 1, end))
    spans.reverse()
    if spans:
        # -execdir runs in each file's folder, where git reads the local configuration.
        plain = not any(re.match("-(?:delete|f|ok|execdir)", word) for word in words)
        plain = plain and all(words[start] != "git" for start, _ in spans if start < len(words))
        return InnerCommands("find runs another command", tuple(spans), passes_names=plain)
    if any(re.match(r"-.*[*?\[]", word) for word in words):
        return InnerCommands("find may read a file name as an option")
    return InnerCommands("find deletes what it finds" if "-delete" in words else "")


def _find_wrapped_command(words: Sequence[str], name: str, wrapper: _Wrapper) -> InnerCommands:
    place = _command_start(words, name, wrapper)
    own = words[1:place]
    if name == "command" and any(re.fullmatch(r"-[pvV]*[vV][pvV]*", word) for word in own):
        return InnerCommands()
    spans = ((place, len(words)),) if place < len(words) else ()
    if wrapper.transparent and all(_is_harmless(word) for word in own):
        return InnerCommands(spans=spans, transparent=bool(spans))
    passes_names = name == "xargs" and bool(spans) and _only_passes_names(own)
    return InnerCommands(f"{name} runs another command", spans, passes_names=passes_names)


def _only_passes_names(options: Sequence[str]) -> bool:
    """Return True if options of xargs only control how names, separated by newlines or NUL bytes,
    are split and passed on.
    """
    return bool(_HANDING_OVER.fullmatch("".join(f"{option} " for option in options)))


def _command_start(words: Sequence[str], name: str, wrapper: _Wrapper) -> int:
    """Return the index of the inner command, after options, operands and assignments."""
    valued, operands, place = name_set(wrapper.valued), wrapper.operands, 1
    while place < len(words):
        word = words[place]
        if word in valued:
            place += 2
        elif word.startswith("-") or (name in _ASSIGNMENT_TAKERS and _ASSIGNMENT.match(word)):
            place += 1
        elif operands:
            operands -= 1
            place += 1
        else:
            break
    return place


def _is_harmless(word: str) -> bool:
    variable = _ASSIGNMENT.match(word)
    if variable:
        return bool(HARMLESS_VARIABLE.fullmatch(variable[1]))
    return bool(_HARMLESS_OPERAND.fullmatch(word))
