"""Commands about settings: effort, permissions, extensions, tools, theme and vim keys.

/settings, /theme and /vim change the user's file. /settings also shows the origin of each value.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, get_args

from ...config.keys import SWITCH, Setting
from ...config.load import SettingRow
from ...config.settings import KEYS, Theme, current_name
from ...errors import ConfigError, UsageError
from ...extensions.command import command
from ..conversation.open_session import MODES
from ..screen import BACK, Menu, Option, Styled
from ..status import short_path
from . import completions
from .command_context import CommandContext

if TYPE_CHECKING:
    from ...config.user_settings import UserSettings

EFFORTS = ("low", "medium", "high", "xhigh", "max")
HOW_TO_ADD_A_RULE = (
    "To add a rule: answer a question with always, start with --allow 'Bash(npm test:*)', or add "
    "it to permissions.allow in your settings. `ctxagent guide permissions` describes rules."
)
BYPASS_CHOICES = "[y]es, ask nothing from now on · [n]o · Enter: no"


@command(
    "show or set how hard the model thinks",
    argument="[LEVEL]",
    complete=completions.fixed(EFFORTS),
    group="model and cost",
)
async def _effort(repl: CommandContext, argument: str) -> None:
    if argument and argument not in EFFORTS:
        raise UsageError(f"there is no effort {argument!r}", hint=f"One of {', '.join(EFFORTS)}.")
    if argument:
        repl.agent.model.effort = argument
    repl.say(f"effort: {repl.agent.model.effort or 'model default'}")


@command(
    "show the rules, or set the mode",
    argument="[MODE | forget RULE]",
    anytime=True,
    complete=completions.fixed(MODES, also=completions.allow_rules),
    group="setup",
)
async def _permissions(repl: CommandContext, argument: str) -> None:
    approval = repl.agent.approval
    word, _, rule = argument.partition(" ")
    if word == "forget":
        await _forget(repl, rule.strip())
        return
    if argument:
        mode = next((mode for mode in MODES if mode == argument), None)
        if mode is None:
            raise UsageError(f"there is no mode {argument!r}", hint=f"One of {', '.join(MODES)}.")
        if mode == "bypass" and not await _confirm_bypass(repl):
            repl.say(f"the mode stays {approval.mode}")
            return
        repl.conversation.set_mode(mode)
    sandbox = repl.agent.context.sandbox
    confined = ("sandbox", sandbox.describe() if sandbox else "off", "")
    rows = [("mode", approval.mode, ""), confined]
    if approval.sandboxed:
        why = f"you are asked anyway: {approval.unconfined}" if approval.unconfined else ""
        rows.append(("confined", why or "sandboxed commands run without a question", ""))
    repl.show_table([*rows, *_rules(repl)])
    if not argument:
        repl.say(HOW_TO_ADD_A_RULE)


async def _confirm_bypass(repl: CommandContext) -> bool:
    """Ask whether to enter bypass, unless the session began with it. Raises UsageError while
    another question is open.
    """
    if "bypass" in repl.conversation.modes:
        return True
    if repl.questions.is_asking:
        raise UsageError("bypass needs a confirmation", hint="Answer the open question first.")
    answer = await repl.questions.choose(BYPASS_CHOICES, "yn")
    return answer.strip().lower() in ("y", "yes")


def _rules(repl: CommandContext) -> list[tuple[str, str, str]]:
    """Return rows of (effect, rule, origin)."""
    return [
        (
            "allow" if kind == "session" else kind,
            rule,
            repl.services.rules.origin(kind, rule) if repl.services.rules else "",
        )
        for kind, rules in repl.agent.approval.rules().items()
        for rule in rules
    ]


async def _forget(repl: CommandContext, text: str) -> None:
    """Remove an allow rule from the session and from the settings files.

    Without a rule, list the rules that can be removed.
    """
    from ...permissions.rules import parse_rule
    from ...session.entries import Note

    if not text:
        found = [(rule, origin) for kind, rule, origin in _rules(repl) if kind == "allow"]
        if not found:
            raise UsageError("there is no rule to forget", hint="There are no allow rules.")
        repl.say("/permissions forget RULE, one of these:")
        repl.show_table(found)
        return
    rule = str(parse_rule(text))
    known = repl.agent.approval.revoke(rule)
    files = await asyncio.to_thread(repl.services.rules.remove, rule) if repl.services.rules else []
    if not (known or files):
        raise UsageError(f"there is no rule {rule}", hint="/permissions lists the rules.")
    if repl.agent.log.last_seq:
        data = {"answer": "forgotten", "rule": rule, "where": ", ".join(files)}
        repl.agent.record(Note(topic="permission", text=f"forgotten: {rule}", data=data))
    where = f" · removed from {', '.join(files)}" if files else ""
    repl.say(f"forgotten: {rule}{where}")


@command("load the extensions again", group="setup")
async def _reload(repl: CommandContext, argument: str) -> None:
    if repl.services.reload_extensions is None:
        raise UsageError("extensions cannot be loaded here", hint="Start ctxagent again.")
    names, warnings = await repl.services.reload_extensions(repl.agent)
    for warning in warnings:
        repl.notify("warning", warning)
    repl.say(f"loaded: {', '.join(names) or 'no extension'}")


@command("the tools the model has", anytime=True, group="model and cost")
async def _tools(repl: CommandContext, argument: str) -> None:
    rows = [(t.name, t.effect, t.description.strip().split("\n")[0]) for t in repl.agent.tools]
    repl.show_table(rows)


ALL, CHANGED = "all", "not the default"
UNSET = "--unset"  # removes a value
NAME_CELLS = 20  # width of a key in the menu
NOT_IN_FORCE = "not in force"
THEMES: dict[Theme, str] = {
    "auto": "chosen by the terminal's background",
    "dark": "for a dark background",
    "light": "for a light background",
    "high-contrast": "the strongest contrast with the background",
    "ansi": "the sixteen colours of the terminal",
    "none": "no colours; bold and underlined text stays",
}
_SAMPLE: tuple[Styled, ...] = (
    ("message", "❯ rename parse() to read()"),
    ("running", "● Edit src/parser.py"),
    ("removed", "- def parse(text):"),
    ("added", "+ def read(text):"),
    ("error", "✗ 1 failed"),
    ("warning", "the context is 80 % full"),
    ("dim", "12,000 tokens · 0.04 $ · 8 s"),
)


@command(
    "every setting, its value and origin; change one",
    argument="[NAME [VALUE]]",
    group="setup",
    complete=completions.settings,
)
async def _settings(repl: CommandContext, argument: str) -> None:
    typed, _, text = argument.partition(" ")
    name, settings = current_name(typed), user_settings(repl)
    if text:
        change(repl, name, "" if text.strip() == UNSET else text.strip())
    elif repl.screen.paints and (not name or name in KEYS):
        await _edit(repl, name) if name else await _browse(repl)
    else:
        rows = [row for row in _rows(settings) if name in row.key]
        if not rows:
            raise UsageError(f"there is no setting {name!r}", hint="/settings lists them all.")
        repl.show_table([_shown(row) for row in rows])


@command("change the colours", argument="[NAME]", group="setup", complete=completions.fixed(THEMES))
async def _theme(repl: CommandContext, argument: str) -> None:
    settings = user_settings(repl)
    name, now = argument, settings.loaded.settings.ui.theme
    if not name:
        chosen = await repl.screen.pick(_theme_menu(repl, now))
        name = chosen.key if chosen else ""
    try:
        if name:
            change(repl, "ui.theme", name)
    finally:
        repl.screen.use_theme(settings.loaded.settings.ui.theme)


@command("vim keys in the input: on or off", group="setup", anytime=True)
async def _vim(repl: CommandContext, argument: str) -> None:
    now = user_settings(repl).loaded.settings.ui.editing_mode
    change(repl, "ui.editing_mode", "emacs" if now == "vi" else "vi")


def user_settings(repl: CommandContext) -> "UserSettings":
    """Return the settings. Raises UsageError if they cannot be changed."""
    if repl.services.settings is None:
        raise UsageError("there are no settings here", hint="Start ctxagent in a terminal.")
    return repl.services.settings


def _rows(settings: "UserSettings") -> list[SettingRow]:
    """Return all settings, with the values that the preset gives."""
    from ...compaction.policy import with_preset_value

    return [with_preset_value(row, settings.loaded.settings) for row in settings.rows()]


def change(repl: CommandContext, name: str, text: str) -> None:
    """Set a key in the user's file ("" removes it there), apply it if possible, and print the value
    in force. Raises ConfigError.
    """
    settings = user_settings(repl)
    row = settings.set(name, text)
    saved = f"saved in {short_path(settings.path)}" if text else "removed from your file"
    if text and row.origin.rpartition(":")[0] != str(settings.path) and "," not in row.origin:
        repl.say(f"{saved} · {name} is still {row.value}")
        repl.notify("warning", f"{row.origin} also sets {name}, and overrides your file")
    else:
        repl.say(f"{name} = {row.value} · {saved} · {_when(repl, name)}")


def _when(repl: CommandContext, name: str) -> str:
    """Apply a setting to this session, and return when it takes effect."""
    now = user_settings(repl).loaded.settings
    if name == "ui.theme":
        repl.screen.use_theme(now.ui.theme)
    elif name == "ui.editing_mode":
        repl.screen.use_editing_mode(now.ui.editing_mode)
    elif name == "model.effort" and now.model.effort and repl.session:
        repl.agent.model.effort = now.model.effort
    else:
        return "takes effect at the next start"
    return "in effect now"


async def _browse(repl: CommandContext) -> None:
    """Show the settings and change the chosen ones until the user leaves."""
    while chosen := await repl.screen.pick(_menu(user_settings(repl))):
        await _edit(repl, chosen.key)


def _menu(settings: "UserSettings") -> Menu:
    rows = {row.key: row for row in _rows(settings)}

    def load(scope: int) -> Iterator[Sequence[Option]]:
        changed = [row for row in rows.values() if row.origin != "default" or row.untrusted]
        yield [_option(row) for row in (changed if scope else rows.values())]

    def preview(name: str) -> Sequence[Styled]:
        row = rows[name]
        more = [("warning", f"{NOT_IN_FORCE}: {row.untrusted} (`ctxagent config --trust`)")]
        return [
            ("", f"{row.value} · {row.origin}"),
            *(more if row.untrusted else []),
            ("", row.help),
        ]

    return Menu(
        title="Settings",
        load=load,
        action="change it",
        empty_text="every setting has its default",
        scopes=(ALL, CHANGED),
        preview=preview,
        preview_rows=6,
    )


def _option(row: SettingRow) -> Option:
    kind = NOT_IN_FORCE if row.untrusted else _kind(row.origin)
    title = f"{row.key:<{NAME_CELLS}}  {row.value}"
    return Option(row.key, title, (kind,), words=f"{row.help} {row.origin}")


def _kind(origin: str) -> str:
    """Return a one-word origin of a value."""
    if "," in origin:
        return "several"
    return origin.rpartition(":")[0].rpartition("/")[2] if "/" in origin else origin


def _shown(row: SettingRow) -> tuple[str, str, str]:
    more = f" · {NOT_IN_FORCE}: {row.untrusted}" if row.untrusted else ""
    return row.key, row.value, f"{row.origin}{more}"


async def _edit(repl: CommandContext, name: str) -> None:
    """Ask for a value of a setting until it is valid or the user goes back."""
    while (text := await _ask(repl, name)) != BACK:
        try:
            change(repl, name, "" if text == UNSET else text.strip())
            return
        except ConfigError as error:
            repl.notify("warning", f"{error.message}. {error.hint}".rstrip())


async def _ask(repl: CommandContext, name: str) -> str:
    """Return the value that the user chooses or types for a setting, BACK for none."""
    key, settings = KEYS.get(name), user_settings(repl)
    if key and (words := _words(key)):
        chosen = await repl.screen.pick(_values_menu(settings.row(name), words))
        return chosen.key if chosen else BACK
    wanted = key.value_type.wanted if key else "a value"
    asked, own = f"{name}: {wanted}. Leave empty for the default.", settings.own_text(name)
    return await repl.screen.answer(lambda typed: asked, BACK, [own] if own else ())


def _words(key: Setting) -> Sequence[str]:
    """Return the allowed values of a setting if they are words, else ()."""
    kind = key.value_type
    if kind is SWITCH:
        return ("true", "false")
    if isinstance(key.default, tuple) or not kind.words:
        return ()
    return tuple(dict.fromkeys([*kind.words, *filter(None, [kind.none])]))


def _values_menu(row: SettingRow, words: Sequence[str]) -> Menu:
    def load(scope: int) -> Iterator[Sequence[Option]]:
        now = row.value.strip('"')
        yield [Option(word, word, ("now" if word == now else "",)) for word in words]
        yield [Option(UNSET, f"remove it from your file (the default is {_default(row.key)})")]

    return Menu(title=row.key, load=load, action="use this value", empty_text="")


def _default(name: str) -> str:
    key = KEYS[name]
    found = key.value_type.none if key.default is None else key.default
    return str(found).lower() if isinstance(found, bool) else str(found)


def _theme_menu(repl: CommandContext, now: Theme) -> Menu:
    """Return a menu that previews the selected theme, with the current one first."""
    names = sorted(get_args(Theme), key=lambda name: name != now)

    def load(scope: int) -> Iterator[Sequence[Option]]:
        yield [
            Option(name, f"{name:<14} {THEMES[name]}", ("now" if name == now else "",))
            for name in names
        ]

    return Menu(
        title="Theme",
        load=load,
        action="use it",
        empty_text="",
        preview=lambda name: _SAMPLE,
        moved=lambda name: repl.screen.use_theme(next(each for each in names if each == name)),
    )
