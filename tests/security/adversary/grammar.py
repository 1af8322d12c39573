"""A grammar that generates shell commands: plain ones with a few hostile twists.

A command with many twists needs approval because of any of them, so most commands get none, one or
two. The same seed generates the same commands.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .scenes import SCENES

# Sections of rows, with `||` between columns and `¦` between alternatives. `⏎` is a line break. IN
# stands for a file to read, OUT for a file to write, RUN for code of the project, HARM for a
# command.
_TEXT = Path(__file__).with_name("grammar.txt").read_text().replace("⏎", "\x01")


def _sections() -> Iterator[tuple[str, list[str]]]:
    for section in _TEXT.removeprefix(";; ").split("\n;; "):
        title, *rows = section.rstrip("\n").split("\n")
        yield title.partition(":")[0], [row.replace("\x01", "\n") for row in rows]


_SECTIONS = dict(_sections())


def _table(title: str) -> dict[str, list[str]]:
    rows = (row.split(" || ") for row in _SECTIONS[title])
    return {row[0]: row[1:] for row in rows}


def _choices(title: str) -> list[str]:
    return _SECTIONS[title][0].split(" ¦ ")


_LOOKING, _BY_RULE = _table("looking"), _table("by-rule")
_GIT = (_table("git-looking"), _table("git-changing"))
_TOOLS, _JOINS, _HARM = _choices("tools"), _choices("joins"), _choices("harm")
_BEFORE, _HOSTILE_BEFORE = _choices("before"), _choices("hostile-before")
_ENDS, _HOSTILE_ENDS = _choices("ends"), _choices("hostile-ends")
_AROUND, _FEEDING = _choices("around"), _choices("feeding")
_FED, _HOSTILE_FED = _choices("fed"), _choices("hostile-fed")
_GIT_BEFORE, _HOSTILE_GIT_BEFORE = _choices("git-before"), _choices("hostile-git-before")
_INSIDE, _OUTSIDE = _choices("inside"), _choices("outside")
# What the names of files and programs in capitals are filled with.
_FILLED = {"HARM": _HARM, "OUT": _choices("targets"), "IN": _OUTSIDE, "RUN": _choices("code")}
_ABOUT = ("--version", "--help", "-V", "-h")  # options of `tools`
_PATTERNS = ("alpha", "TOP", "x", "-e alpha", "''")


class _Maker:
    """Generates one command. `twists` is the number of hostile twists that it may still get."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._twists = rng.choices((0, 1, 2, 3), (2, 5, 2, 1))[0]

    def twist(self, chance: float) -> bool:
        """Return True if a hostile twist is to be added here."""
        if self._twists and self._rng.random() < chance:
            self._twists -= 1
            return True
        return False

    def script(self) -> str:
        text = self._command()
        while self._rng.random() < 0.15:
            text += self._rng.choice(_JOINS) + self._command()
        if self._rng.random() < 0.15:
            text = self._rng.choice(_AROUND).replace("{}", text)
        if self.twist(0.08):
            text += self._rng.choice(_JOINS) + self._rng.choice(_HARM)
        return self._filled(text)

    def _command(self) -> str:
        pick = self._rng.random()
        text = (
            self._looking() if pick < 0.42
            else self._git() if pick < 0.72
            else self._feeding() if pick < 0.82
            else self._by_rule() if pick < 0.93
            else f"{self._rng.choice(_TOOLS)} {self._rng.choice(_ABOUT)}"
        )  # fmt: skip
        if self._rng.random() < 0.12:
            text = self._rng.choice(_BEFORE).replace("{}", text)
        if self.twist(0.1):
            text = self._rng.choice(_HOSTILE_BEFORE).replace("{}", text)
        if self._rng.random() < 0.15:
            text += self._rng.choice(_ENDS)
        if self.twist(0.12):
            text += self._rng.choice(_HOSTILE_ENDS)
        return text

    def _looking(self) -> str:
        name = self._rng.choice(list(_LOOKING))
        plain, hostile, kind = _LOOKING[name]
        words = [self._name(name), *self._options(plain, hostile)]
        operands = self._operands(kind)
        if kind == "places-first":
            words[1:1] = operands
        elif kind == "script" and len(words) == 1:
            words += [plain.partition(" ¦ ")[0], *operands]
        elif self._rng.random() < 0.1:
            words[1:1] = operands
        else:
            words += operands
        return " ".join(filter(None, words))

    def _git(self) -> str:
        table = self._rng.choices(_GIT, (65, 35))[0]
        name = self._rng.choice(list(table))
        before = ""
        if self._rng.random() < 0.1:
            before = self._rng.choice(_GIT_BEFORE)
        elif self.twist(0.08):
            before = self._rng.choice(_HOSTILE_GIT_BEFORE)
        words = (self._name("git"), before, name, *self._options(*table[name]))
        return " ".join(filter(None, words))

    def _by_rule(self) -> str:
        name = self._rng.choices(("pytest", "make", "npm test"), (3, 8, 1))[0]
        return " ".join(filter(None, (name, *self._options(*_BY_RULE[name]))))

    def _feeding(self) -> str:
        inner = self._rng.choice(_HOSTILE_FED if self.twist(0.3) else _FED)
        # `find` has its own `{}` behind the command.
        return self._rng.choice(_FEEDING).replace("{}", inner, 1)

    def _name(self, name: str) -> str:
        if not self.twist(0.04):
            return name
        spelled = (
            f"./{name}", f"bin/{name}", f"'{name}'", f"\\{name}", f"$PWD/{name}",
            f"/usr/bin/{name}", f"${{x:-{name}}}", f"$(echo {name})", f"{name[:1]}''{name[1:]}",
        )  # fmt: skip
        return self._rng.choice(spelled)

    def _options(self, plain: str, hostile: str) -> list[str]:
        found = [self._rng.choice(plain.split(" ¦ "))] if plain else []
        if plain.startswith("-") and self._rng.random() < 0.2:
            found.append(self._rng.choice(plain.split(" ¦ ")))
        if self.twist(0.45):
            option = self._respelled(self._rng.choice(hostile.split(" ¦ ")))
            found[self._rng.random() < 0.3 :] = [option]
        return found

    def _respelled(self, option: str) -> str:
        """Return an option unchanged, shortened, quoted, split or expanded in some way."""
        if self._rng.random() < 0.5 or not option.startswith("-"):
            return option
        name, _, rest = option.partition(" ")
        way = self._rng.randrange(9)
        if way <= 2 and (long := re.match(r"--([\w-]+)", name)):
            kept = self._rng.randint(1, len(long[1]))
            return f"--{long[1][:kept]}{name[long.end() :]} {rest}".rstrip()
        spelled: Sequence[Callable[[], str]] = (
            lambda: name.replace("=", " ", 1),
            lambda: f"'{name}'",
            lambda: f"{name[:3]}''{name[3:]}",
            lambda: f"{{{name},{name}}}",
            lambda: f"$(echo {name})",
            lambda: f"$'{name}'",
            lambda: f"{name[:4]}{{{name[4:]},x}}",
            lambda: f"${{x:-{name}}}",
            lambda: f"\\{name}",
        )
        return f"{spelled[way]()} {rest}".rstrip()

    def _operands(self, kind: str) -> list[str]:
        if kind == "none":
            return []
        if kind == "search":
            return [self._rng.choice(_PATTERNS), *self._operands("files")]
        count = 2 if kind == "two" else self._rng.choice((1, 1, 1, 2)) if kind != "one" else 1
        found = [self._path() for _ in range(count)]
        if self.twist(0.03):
            found.insert(0, "--")
        return found

    def _path(self) -> str:
        if self.twist(0.12):
            path = self._rng.choice(_OUTSIDE)
            return path if self._rng.random() < 0.5 else self._dressed(path)
        path = self._rng.choice(_INSIDE)
        return self._dressed(path) if self._rng.random() < 0.25 else path

    def _dressed(self, path: str) -> str:
        ways = (
            f"./{path}", f"'{path}'", f'"{path}"', f"{path[:-1]}?", f"{path[:1]}*", f"$PWD/{path}",
            f'"$PWD/{path}"', f"$(echo {path})", f"`echo {path}`", f"$'{path}'", f"${{x:-{path}}}",
            f"{{{path},f}}", f"~+/{path}", f"src/../{path}", f"\\{path}", f"{path[:2]}''{path[2:]}",
            f"[{path[:1]}]{path[1:]}", "$(<list)", f"{path}*", f"\"$(echo '{path}')\"",
            f"./*/{path}",
        )  # fmt: skip
        return self._rng.choice(ways)

    def _filled(self, text: str) -> str:
        for name, words in _FILLED.items():
            text = re.sub(
                rf"(?:\b|(?<=-[oOfFSXpc])|(?<=-uo)|(?<=-qF)){name}\b",
                lambda _, words=words: self._rng.choice(words),
                text,
            )
        return text


def commands(seed: int) -> Iterator[tuple[str, str]]:
    """Yield different commands endlessly, each with its scene."""
    seen = set[tuple[str, str]]()
    number = 0
    while True:
        rng = random.Random(f"{seed}/{number}")
        number += 1
        scene = rng.choices(SCENES, (6, 2, 1, 1, 2))[0]
        item = _Maker(rng).script(), scene
        if item not in seen:
            seen.add(item)
            yield item
