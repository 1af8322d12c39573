"""Commands that start other commands: `sudo rm x`, `find -exec`, `sh -c "…"`, `eval`.

`inside` says where in a command's words the inner command stands, or which text it hands to a
shell, so that permission rules see through it. Only a few wrappers (`timeout 5 pytest`) are as
good as what they start; with all others nobody but a person can tell.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Variables that change how a program shows things, and not what runs.
HARMLESS_VARIABLE = re.compile(
    r"LANG|LC_[A-Z]+|TZ|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR|CI|NODE_ENV|DEBUG"
    r"|RUST_BACKTRACE|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONWARNINGS"
)


def names(text: str) -> frozenset[str]:
    """The words of a table."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Inner:
    """`spans` are the places of inner commands among the words (start, stop); `script` is a text
    that a shell will run. `transparent`: nothing but the inner command matters."""

    doubt: str = ""
    spans: tuple[tuple[int, int], ...] = ()
    script: str = ""
    transparent: bool = False


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """`valued`: options whose value is the next word; `operands`: words before the command."""

    valued: frozenset[str] = frozenset()
    operands: int = 0
    transparent: bool = False


def _wrapper(valued: str = "", operands: int = 0, *, transparent: bool = False) -> _Wrapper:
    return _Wrapper(names(valued), operands, transparent)


_WRAPPERS = {
    "timeout": _wrapper("-k -s --kill-after --signal", 1, transparent=True),
    "nice": _wrapper("-n --adjustment", transparent=True),
    "nohup": _wrapper(transparent=True),
    "time": _wrapper("-f -o --format --output", transparent=True),
    "command": _wrapper(transparent=True),
    "env": _wrapper("-u -C -S --unset --chdir --split-string", transparent=True),
    "builtin": _wrapper(),
    "exec": _wrapper("-a"),
    "sudo": _wrapper("-u -g -h -p -C -D -R -T -r -t -U --user --group --host --prompt --chdir"),
    "doas": _wrapper("-u -C"),
    "xargs": _wrapper("-I -n -P -L -d -E -s -a --arg-file --delimiter --max-args --max-procs"),
    "setsid": _wrapper(),
    "stdbuf": _wrapper("-i -o -e"),
    "ionice": _wrapper("-c -n"),
    "chrt": _wrapper(operands=1),
    "taskset": _wrapper(operands=1),
    "flock": _wrapper("-w -E --timeout", 1),
    "chroot": _wrapper(operands=1),
    "strace": _wrapper("-e -o -p -s -u"),
    "unshare": _wrapper(),
    "busybox": _wrapper(),
    "toybox": _wrapper(),
    "parallel": _wrapper("-j -I --jobs"),
    "ltrace": _wrapper("-e -o -p -s -u -n -l -a -A"),
    "nsenter": _wrapper("-t -S -G --target --setuid --setgid"),
    "prlimit": _wrapper("-p --pid"),
    "setpriv": _wrapper("--reuid --regid --groups"),
    "runuser": _wrapper("-u --user -g --group"),
    "systemd-run": _wrapper("-p -u -E -M -H --property --unit --slice"),
    "numactl": _wrapper("-C -m -N -i -p"),
    "valgrind": _wrapper(),
    "unbuffer": _wrapper(),
    "rlwrap": _wrapper(),
    "fakeroot": _wrapper(),
    "proxychains": _wrapper("-f"),
    "torsocks": _wrapper(),
    "dbus-run-session": _wrapper(),
    "xvfb-run": _wrapper("-e -f -n -p -s -w"),
    "caffeinate": _wrapper("-t -w"),
    "gosu": _wrapper(operands=1),
}
_TAKES_ASSIGNMENTS = ("env", "sudo", "doas", "time")
# Own words of a transparent wrapper that do no more than set a limit or a priority.
_HARMLESS_OWN = re.compile(
    r"-[knps]\w*|-\d+|--(?:signal|kill-after|adjustment|preserve-status|foreground)(?:=\w+)?"
    r"|[A-Z\d][\w.]*"
)
_ASSIGNMENT = re.compile(r"(\w+)=")
_SHELLS = names("sh bash dash zsh ksh ash fish su script")
_CHANGES_THE_SHELL = names(
    ". source alias unalias hash enable bind complete compgen declare typeset export readonly "
    "local unset read mapfile readarray getopts let shopt pushd popd coproc eval exec trap"
)
# What these are given behind their options and operands, a shell runs.
_ALL_WORDS = {
    "watch": (names("-n --interval"), 0),
    "ssh": (names("-B -b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w"), 1),
    "hyperfine": (names("-w -r -m -M -p -c -n -N --warmup --runs"), 0),
}
# Options whose value they have a shell run.
_TEXTS = {
    "env": ("-S", "--split-string="),
    "flock": ("-c", "--command"),
    "runuser": ("-c", "--command="),
    "rsync": ("-e", "--rsh="),
    "tar": ("-I", "--to-command=", "--checkpoint-action=exec=", "--use-compress-program="),
    "git": ("-x", "--exec", "--exec=", "--extcmd=", "--upload-pack=", "--receive-pack="),
}
_FIND_RUNS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))


def inside(words: Sequence[str]) -> Inner:
    """What a simple command starts; `words` are its words, quotes taken away."""
    name = words[0].rpartition("/")[2]
    if name in _SHELLS:
        return _shell(words)
    if name == "find":
        return _find(words)
    if name in ("eval", "trap"):
        text = words[1] if name == "trap" and len(words) > 1 else " ".join(words[1:])
        return Inner(f"{name} runs a text as a command", script=text)
    if text := _handed_on(words, name):
        return Inner(f"{name} runs a text as a command", script=text)
    if name == "coproc":
        start = words.index("{") + 1 if "{" in words else 1
        return Inner("coproc runs another command", ((start, len(words)),))
    if name in _WRAPPERS:
        return _wrapped(words, name, _WRAPPERS[name])
    return Inner(f"{name} changes the shell itself" if name in _CHANGES_THE_SHELL else "")


def is_shell(name: str) -> bool:
    """Whether a command runs what it is fed."""
    return name.rpartition("/")[2] in _SHELLS or name in (".", "source", "eval")


def _handed_on(words: Sequence[str], name: str) -> str:
    """The text among its words that a command has a shell run; "" for none."""
    if name in _ALL_WORDS:
        valued, operands = _ALL_WORDS[name]
        return " ".join(words[_command_place(words, name, valued, operands) :])
    texts = []
    for place, word in enumerate(words):
        for option in _TEXTS.get(name, ()):
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


def _shell(words: Sequence[str]) -> Inner:
    for place, word in enumerate(words):
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*|--command", word):
            text = next((w for w in words[place + 1 :] if w[:1] not in ("-", "+")), "")
            return Inner(f"{words[0]} runs a text as a command", script=text)
    return Inner()


def _find(words: Sequence[str]) -> Inner:
    spans = []
    for place, word in enumerate(words):
        if word in _FIND_RUNS:
            ends = (i for i in range(place + 1, len(words)) if words[i] in (";", "+"))
            spans.append((place + 1, next(ends, len(words))))
    if spans:
        return Inner("find runs another command", tuple(spans))
    if any(re.match(r"-.*[*?\[]", word) for word in words):
        return Inner("find may be told by a file's name what to do")
    return Inner("find deletes what it finds" if "-delete" in words else "")


def _wrapped(words: Sequence[str], name: str, wrapper: _Wrapper) -> Inner:
    place = _command_place(words, name, wrapper.valued, wrapper.operands)
    own = words[1:place]
    if name == "command" and any(re.fullmatch(r"-[pvV]*[vV][pvV]*", word) for word in own):
        return Inner()
    spans = ((place, len(words)),) if place < len(words) else ()
    if wrapper.transparent and all(_harmless(word) for word in own):
        return Inner(spans=spans, transparent=bool(spans))
    return Inner(f"{name} runs another command", spans)


def _command_place(words: Sequence[str], name: str, valued: frozenset[str], operands: int) -> int:
    """Where the inner command begins, behind options, operands and assignments."""
    place = 1
    while place < len(words):
        word = words[place]
        if word in valued:
            place += 2
        elif word.startswith("-") or (name in _TAKES_ASSIGNMENTS and _ASSIGNMENT.match(word)):
            place += 1
        elif operands:
            operands -= 1
            place += 1
        else:
            break
    return place


def _harmless(word: str) -> bool:
    variable = _ASSIGNMENT.match(word)
    if variable:
        return bool(HARMLESS_VARIABLE.fullmatch(variable[1]))
    return bool(_HARMLESS_OWN.fullmatch(word))
