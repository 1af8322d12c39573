"""Loading settings: layers, files, errors and the shown rows."""

import os
from pathlib import Path

import pytest

from ctxagent.agent.config.load import (
    explain_settings,
    load_settings,
)
from ctxagent.agent.config.settings import (
    KEYS,
    build_settings,
)
from ctxagent.agent.config.trust import trust
from ctxagent.agent.errors import ConfigError, UsageError
from ctxagent.agent.models.catalog import known_models
from ctxagent.agent.permissions.rules import parse_rule

from .conftest import Place

ROOT = Path(__file__).parents[2]
DEFAULTS = build_settings({name: key.default for name, key in KEYS.items()})


def test_without_any_file_all_is_default(place: Place) -> None:
    loaded = place.load()
    assert loaded.settings == DEFAULTS
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.notices == []
    assert loaded.project is None


def test_the_default_model_is_in_the_price_table() -> None:
    assert KEYS["model.id"].default in known_models()


def test_each_layer_wins_over_the_one_before_and_is_named(place: Place) -> None:
    def now(*flags: str, **environ: str) -> tuple[str, str]:
        loaded = place.load(*flags, **environ)
        return loaded.settings.model.id, loaded.origins["model.id"]

    place.user('[model]\n\nid = "from-user"\n')
    assert now() == ("from-user", f"{place.user_file}:3")
    place.theirs('# theirs\n[model]\nid = "from-project"\n')
    trust(place.project_file, place.load().trust_dir)
    assert now() == ("from-project", f"{place.project_file}:3")
    variable = {"CTXAGENT_MODEL_ID": "from-variable"}
    assert now(**variable) == ("from-variable", "CTXAGENT_MODEL_ID")
    assert now("model.id=from-flag", **variable) == ("from-flag", "-c")
    assert now("model.id=one", "model.id=two", **variable) == ("two", "-c")


def test_permission_rules_add_up_and_other_lists_replace(place: Place) -> None:
    place.user('[permissions]\ndeny = ["Read(a)", "Read(b)"]\n[bash]\nkeep_env = ["A"]\n')
    place.theirs('[permissions]\ndeny = ["Read(b)", "Read(c)"]\n')
    loaded = place.load(
        'permissions.deny=["Read(e)", "Read(f, g)"]',
        "bash.keep_env=C",
        CTXAGENT_PERMISSIONS_DENY="Read(d, x)",
        CTXAGENT_BASH_KEEP_ENV='["B", "D"]',
    )
    assert loaded.settings.permissions.deny == (
        "Read(a)", "Read(b)", "Read(c)", "Read(d, x)", "Read(e)", "Read(f, g)",
    )  # fmt: skip
    assert loaded.settings.bash.keep_env == ("C",)
    sources = f"{place.user_file}:2, {place.project_file}:2, CTXAGENT_PERMISSIONS_DENY, -c"
    assert loaded.origins["permissions.deny"] == sources


def test_every_key_can_be_set_by_its_variable(place: Place) -> None:
    texts = {
        "model.context_window": "100_000", "model.effort": "xhigh", "ui.plain": "True",
        "model.base_url": "http://127.0.0.1:1", "move.above": "off", "state.dir": "/var/s",
        "state.max_gb": "1.5", "state.max_age_days": "90",
        "permissions.mode": "plan", "permissions.sandboxed": "allow",
        "permissions.allow": "Read", "permissions.ask": "Bash", "permissions.deny": "Edit",
        "bash.keep_env": "X", "model.id": "m", "model.small": "m", "model.fallback": "m",
        "model.plan": "m", "ui.theme": "dark",
        "model.max_tokens": "7", "model.images": "off",
        "model.overload_wait": "0", "model.wait_file": "/tmp/wait",
        "move.preview_chars": "0", "move.reads_above": "9", "move.line_numbers": "1",
        "ui.editing_mode": "vi",
        "ui.enter_while_working": "after-turn",
        "compact.preset": "v5", "compact.mode": "remind", "compact.at": "150_000",
        "compact.prepare_at": "off", "compact.keep_tokens": "0", "compact.keep_messages": "9",
        "compact.while_away": "false",
        "compact.model": "m", "compact.summarizer": "mechanical", "clear.when": "off",
        "clear.from": "0.25", "clear.keep": "0", "clear.above": "0",
        "clear.outline": "true", "clear.tools": "Bash", "truncate.at": "25%",
        "checkpoint.at": "60%",
        "preserve.always": "run_state", "preserve.compactable": "thinking-blocks",
        "preserve.strict": "1", "preserve.notes": "docs/STATE.md", "preserve.run_state": "run.json",
        "programs.network": "true", "programs.write": "/srv", "programs.outside": "1",
        "hooks.before_compact": "true | false",
        "hooks.after_compact": '["a b", "c"]', "hooks.before_tool": "a", "hooks.after_tool": "b",
        "hooks.session_start": "c", "hooks.session_end": "d", "sandbox.mode": "require",
        "mcp.load_at_start": "memory", "mcp.needed": "github",
        "mcp.start_timeout": "9", "mcp.call_timeout": "9", "web.search": "on",
            "memory.path": ".ctxagent/memory", "memory.offer": "always",
        "lsp.enabled": "on", "lsp.servers": ".zig: zls",
        "features.off": "drift", "hooks.context_reached": "e", "context.tell_model": "[0.4]",
        "context.notify": "[0.5]", "context.tool": "true", "compact.instructions": "Keep names.",
        "sandbox.network": "false", "sandbox.write": "/srv/cache", "sandbox.read": "~/notes",
        "permissions.directories": "~/library",
        "state.redact": "true", "ui.title": "false", "tools.max_output_bytes": "1_000_000",
        "ui.notify": "osc9", "ui.notify_after": "0",
        "ui.notify_command": "a", "statusline.command": "b",
        "telemetry.on": "1", "telemetry.contents": "1",
            "keys.send": "alt-enter", "keys.send_other": "f2", "keys.newline": "enter",
            "keys.interrupt": "ctrl-g", "keys.background": "f3", "keys.unfold": "f4",
            "keys.cycle_mode": "f5", "keys.editor": "f6", "keys.history_search": "f7",
            "keys.paste_image": "f8", "keys.redraw": "f9",
    }  # fmt: skip
    assert texts.keys() == KEYS.keys()
    loaded = place.load(**{KEYS[name].env: text for name, text in texts.items()})
    assert loaded.settings.model.context_window == 100_000
    assert loaded.settings.move.above is None
    assert loaded.settings.compact.at == 150_000
    assert loaded.settings.clear.from_ == loaded.settings.truncate.at == 0.25
    assert loaded.settings.clear.tools == ("Bash",)
    assert loaded.settings.hooks.before_compact == ("true | false",)
    assert loaded.settings.hooks.after_compact == ("a b", "c")
    assert loaded.settings.ui.plain is True
    assert loaded.settings.state.dir == Path("/var/s")
    changed = [row.key for row in explain_settings(loaded) if row.origin == KEYS[row.key].env]
    assert changed == list(KEYS)
    assert loaded.settings == place.load(*(f"{n}={text}" for n, text in texts.items())).settings


def test_an_empty_variable_is_not_set(place: Place) -> None:
    loaded = place.load(CTXAGENT_MODEL_ID="", CTXAGENT_CONFIG="")
    assert loaded.settings == DEFAULTS


def test_a_setting_that_was_replaced_names_what_came_for_it(place: Place) -> None:
    error = place.fails("model.server=ollama")
    assert "--model ollama/NAME" in error.hint


def test_an_address_counts_for_the_provider_that_it_was_written_for(place: Place) -> None:
    place.user('[model]\nid = "corp/x"\nbase_url = "http://x.example"\ncontext_window = 9_000\n')
    same, other = place.load("model.id=corp/y"), place.load("model.id=openai/y")
    assert (same.settings.model.base_url, same.settings.model.context_window) == (
        "http://x.example",
        9_000,
    )
    assert (other.settings.model.base_url, other.settings.model.context_window) == (None, None)
    assert other.origins["model.base_url"] == "default"
    place.user('[model]\nbase_url = "http://x.example"\n')
    assert place.load("model.id=openai/y").settings.model.base_url == "http://x.example"


def test_a_word_takes_a_value_back(place: Place) -> None:
    place.user('[model]\neffort = "high"\nbase_url = "http://x.example"\n[move]\nabove = "off"\n')
    loaded = place.load("model.effort=auto", "move.above=5", CTXAGENT_MODEL_BASE_URL="auto")
    assert (loaded.settings.model.effort, loaded.settings.model.base_url) == (None, None)
    assert loaded.settings.move.above == 5


# Finding the files


def test_the_user_file_follows_xdg_and_the_variable(place: Place) -> None:
    elsewhere = place.root / "elsewhere"
    (elsewhere / "ctxagent").mkdir(parents=True)
    (elsewhere / "ctxagent" / "agentrc").write_text('[ui]\ntheme = "dark"\n')
    named = place.root / "named"
    named.write_text('[ui]\ntheme = "light"\n')
    xdg = {"XDG_CONFIG_HOME": str(elsewhere)}
    assert place.load(**xdg).settings.ui.theme == "dark"
    assert place.load(**xdg, CTXAGENT_CONFIG=str(named)).settings.ui.theme == "light"
    assert place.load(**xdg, CTXAGENT_CONFIG="/dev/null").settings == DEFAULTS


def test_a_named_user_file_must_exist(place: Place) -> None:
    error = place.fails(CTXAGENT_CONFIG=str(place.root / "missing"))
    assert error.where == str(place.root / "missing")
    assert "No such file" in error.message


def test_the_nearest_project_file_up_to_the_root_of_the_repository(place: Place) -> None:
    deep = place.project / "a" / "b"
    deep.mkdir(parents=True)
    (place.home / ".agentrc").write_text('[ui]\ntheme = "light"\n')
    assert place.load(cwd=deep).project is None
    place.theirs('[ui]\ntheme = "dark"\n')
    assert place.load(cwd=deep).project == place.project_file
    (place.project / "a" / ".agentrc").write_text("")
    assert place.load(cwd=deep).settings.ui.theme == "auto"


def test_the_search_for_a_project_file_ends_at_home(place: Place) -> None:
    notes = place.home / "notes"
    notes.mkdir()
    (place.root / ".agentrc").write_text('[ui]\ntheme = "light"\n')
    assert place.load(cwd=notes).project is None
    (place.home / ".agentrc").write_text('[ui]\ntheme = "dark"\n')
    assert place.load(cwd=notes).settings.ui.theme == "dark"


def made_odd(path: Path, kind: str) -> None:
    """Create something at a path that is not a regular file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"broken symlink": "nowhere", "loop": path.name}[kind])


@pytest.mark.parametrize("whose", ["mine", "ours"])
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("folder", "not a regular file"),
        ("pipe", "not a regular file"),
        ("broken symlink", "a broken symlink"),
        ("loop", "symbolic links"),
    ],
)
def test_a_file_that_is_there_and_cannot_be_read_is_not_left_out(
    place: Place, whose: str, kind: str, why: str
) -> None:
    file = {"mine": place.user_file, "ours": place.project_file}[whose]
    made_odd(file, kind)
    error = place.fails()
    assert error.where == str(file)
    assert why in error.message
    assert error.exit_code == 2


def test_a_file_that_is_masked_is_none(place: Place) -> None:
    place.project_file.symlink_to(os.devnull)
    assert place.load().project is None


def test_outside_of_home_and_repositories_only_the_directory_itself_counts(place: Place) -> None:
    shared = place.root / "shared"
    (shared / "mine").mkdir(parents=True)
    (shared / ".agentrc").write_text('[ui]\ntheme = "dark"\n')
    assert place.load(cwd=shared / "mine").project is None
    assert place.load(cwd=shared).project == shared / ".agentrc"


def test_a_project_file_that_is_the_users_own_needs_no_trust(place: Place) -> None:
    place.theirs('[permissions]\nallow = ["Bash"]\n')
    loaded = place.load(CTXAGENT_CONFIG=str(place.project_file))
    assert loaded.settings.permissions.allow == ("Bash",)
    assert loaded.origins["permissions.allow"] == f"{place.project_file}:2"
    assert loaded.notices == []


# Errors


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[model]\n\ncontxt_window = 3\n", 3, ("'model.contxt_window'", "model.context_window?")),
        ('[model]\neffort = "huge"\n', 2, ("model.effort is 'huge'", '"xhigh"')),
        ('[move]\nabove = "10k"\n', 2, ("move.above is '10k'", "number of tokens", '"off"')),
        ("[move]\nabove = true\n", 2, ("move.above is True",)),
        ("[move]\nabove = 0\n", 2, ("move.above is 0", "1 to 1_000_000_000")),
        ("[move]\nabove = 1.5\n", 2, ("move.above is 1.5", '"off", or "preset"')),
        ("[compact]\nat = 0\n", 2, ("compact.at is 0", '"93%"', "tokens above 1", '"off"')),
        ("[compact]\nat = 1.5\n", 2, ("compact.at is 1.5",)),
        ("[compact]\nat = true\n", 2, ("compact.at is True",)),
        ("[compact]\nat = nan\n", 2, ("compact.at is nan",)),
        ("[compact]\nat = -3\n", 2, ("compact.at is -3",)),
        ("[compact]\nat = '101%'\n", 2, ("compact.at is '101%'",)),
        ("[compact]\nat = '0%'\n", 2, ("compact.at is '0%'",)),
        ("[compact]\nat = '93'\n", 2, ("compact.at is '93'",)),
        ("[compact]\npreset = 'v6'\n", 2, ("compact.preset is 'v6'", '"ctx-001"')),
        ("[clear]\nfrom_ = 0.5\n", 2, ("'clear.from_'", "clear.from?")),
        ("[clear]\ntools = ['Bash', 'a b']\n", 2, ("name of a tool",)),
        ("[hooks]\nbefore_compact = 'ls'\n", 2, ("expected a list, each item a shell",)),
        ('[hooks]\nbefore_compact = ["a\\nb"]\n', 2, ("on one line",)),
        ("[modle]\nid = 'x'\n", 1, ("'modle'", "Did you mean model?")),
        ("\nid = 'x'\n", 2, ("'id'", "Did you mean model.id?")),
        ("[model]\nabove = 3\n", 2, ("'model.above'", "Did you mean move.above?")),
        ("# c\nmodel = 3\n", 2, ("model is a section", "[model]")),
        ("[[model]]\nid = 'x'\n", 1, ("model is a section",)),
        ("ui.plain = false\nmodel.id = 7\n", 2, ("model.id is 7",)),
        ("[ui]\n[model.id]\nx = 1\n", 2, ("model.id is {'x': 1}",)),
        ('model = { id = "x", efort = "low" }\n', 1, ("'model.efort'", "model.effort?")),
        ('permissions = { deny = [\n"Read"\n], mod = "ask" }\n', 3, ("permissions.mode?",)),
        ("[permissions]\n'm\\u006fde' = 'ask'\n", 2, ("no setting is called",)),
        ("[permissions]\ndeny = 'Read'\n", 2, ("expected a list, each item a rule",)),
        ("[permissions]\ndeny = ['Read', 5]\n", 2, ("permissions.deny is ['Read', 5]",)),
        ("[[permissions.deny]]\nx = 1\n", 1, ("permissions.deny is",)),
        ("[bash]\nkeep_env = ['A B']\n", 2, ("name of a variable",)),
        ("[state]\ndir = 'relative'\n", 2, ("state.dir is 'relative'", "~/")),
        ("[state]\ndir = '~other/x'\n", 2, ("state.dir",)),
        ("[model]\nbase_url = 'ftp://x'\n", 2, ("http:// or https://",)),
        ("[ui]\nplain = 'yes'\n", 2, ("true or false",)),
        ("[ui]\n\nplain = yes\n", 3, ("not TOML: Invalid value",)),
        ("[model]\nid = 'a'\nid = 'b'\n", 3, ("not TOML",)),
        ("[model]\n[ui\n", 2, ("not TOML",)),
        ("[ui]\n\nx = [1,\n", 3, ("not TOML",)),
        ("a = " + "[" * 5000, 1, ("nested too deeply",)),
        ("[model]\nmax_tokens = 0x" + "f" * 9000, 2, ("a number that is too large",)),
        ("[model]\nmax_tokens = " + "9" * 9000, 2, ("not TOML",)),
        ('[cache]\nkeep_warm = "30m"\n', 1, ("no setting is called 'cache'",)),
        ("[zzzz]\n", 1, ("'zzzz'", "config --explain")),
        ("[model]\n'\x7f'=1", 2, ("not TOML",)),
        ('[model]\n"\\u001b[2J" = 1\n', 2, ("\\x1b[2J",)),
    ],
)
def test_a_bad_file_is_reported_with_its_line(
    place: Place, text: str, line: int, words: tuple[str, ...]
) -> None:
    place.user(text)
    error = place.fails()
    assert error.where == f"{place.user_file}:{line}"
    for word in words:
        assert word in str(error)
    assert "\x1b" not in str(error)
    assert error.hint or "nested" in error.message


def test_a_file_that_is_not_utf8_is_reported_with_its_line(place: Place) -> None:
    place.user_file.write_bytes(b"[model]\n# ok\nid = '\xff'\n")
    assert place.fails().where == f"{place.user_file}:3"


def test_a_byte_order_mark_and_windows_lines_do_no_harm(place: Place) -> None:
    place.user_file.write_bytes(b"\xef\xbb\xbf[model]\r\n\r\nid = 'x'\r\n")
    loaded = place.load()
    assert loaded.settings.model.id == "x"
    assert loaded.origins["model.id"] == f"{place.user_file}:3"


@pytest.mark.parametrize(
    ("flags", "environ", "where", "words"),
    [
        (["move.above=many"], {}, "-c", "move.above is 'many'"),
        (["move.abov=3"], {}, "-c", "Did you mean move.above?"),
        (["move.above"], {}, "-c", "not KEY=VALUE"),
        (["model.id="], {}, "-c", "model.id is ''"),
        (["permissions.deny=[oops"], {}, "-c", "permissions.deny is '[oops'"),
        (["compact.at=soon"], {}, "-c", "compact.at is 'soon'"),
        (["compact.at=9e9"], {}, "-c", "compact.at is 9000000000.0"),
        ([], {"CTXAGENT_MOVE_ABOVE": "x"}, "CTXAGENT_MOVE_ABOVE", "move.above is 'x'"),
        ([], {"CTXAGENT_MODEL_IDD": "x"}, "CTXAGENT_MODEL_IDD", "CTXAGENT_MODEL_ID?"),
        ([], {"CTXAGENT_UI_PLAIN": "maybe"}, "CTXAGENT_UI_PLAIN", "true or false"),
        ([], {"CTXAGENT_MODEL_BASE_URL": "h:80"}, "CTXAGENT_MODEL_BASE_URL", "http:// or https://"),
    ],
)
def test_a_bad_flag_or_variable_is_named(
    place: Place, flags: list[str], environ: dict[str, str], where: str, words: str
) -> None:
    error = place.fails(*flags, **environ)
    assert error.where == where
    assert words in str(error)


def test_a_malformed_rule_is_reported_with_its_line(place: Place) -> None:
    place.user('[permissions]\ndeny = [\n  "Read(a)",  # "not" [this]\n\n  "Rad(b)",\n]\n')
    seen: list[str] = []

    def check(rule: str) -> None:
        seen.append(rule)
        if rule.startswith("Rad"):
            raise UsageError(f"no tool is called {rule!r}", hint="Did you mean Read?")

    environ = {"HOME": str(place.home)}
    with pytest.raises(ConfigError) as caught:
        load_settings(place.project, environ=environ, check_rule=check)
    assert caught.value.where == f"{place.user_file}:5"
    assert "permissions.deny: no tool is called 'Rad(b)'" in caught.value.message
    assert caught.value.hint == "Did you mean Read?"
    assert seen == ["Read(a)", "Rad(b)"]

    place.user("")
    with pytest.raises(ConfigError) as caught:
        load_settings(
            place.project, environ=environ, flags=["permissions.ask=Rad"], check_rule=check
        )
    assert caught.value.where == "-c"


# What is shown


def test_explain_has_a_row_for_every_key(place: Place) -> None:
    place.user('[permissions]\ndeny = ["Read(\\"ä\\")"]\n[move]\nabove = "off"\n')
    rows = {row.key: row for row in explain_settings(place.load("ui.plain=true"))}
    assert list(rows) == list(KEYS)
    assert rows["permissions.deny"].value == '["Read(\\"ä\\")"]'
    assert rows["move.above"].value == '"off"'
    assert rows["move.above"].origin == f"{place.user_file}:4"
    assert (rows["ui.plain"].value, rows["ui.plain"].origin) == ("true", "-c")
    assert rows["move.preview_chars"].value == '"preset"'
    assert all(row.help for row in rows.values())


def test_values_shown_by_explain_can_be_read_back(place: Place) -> None:
    place.user('[model]\nid = "m"\neffort = "low"\n[permissions]\nask = ["Bash", "Edit(a b)"]\n')
    loaded = place.load(
        *("state.dir=~/x", "model.context_window=9", "compact.at=92.9%", "truncate.at=30_000"),
        *("clear.from=0.00001", "clear.tools=Read", "hooks.after_compact=a 'b'"),
    )
    text = "\n".join(f"{row.key} = {row.value}" for row in explain_settings(loaded))
    place.user(text)
    assert place.load().settings == loaded.settings


def test_credentials_in_an_address_are_not_shown(place: Place) -> None:
    loaded = place.load("model.base_url=https://me:secret@proxy.example/v1")
    assert loaded.settings.model.base_url == "https://me:secret@proxy.example/v1"
    shown = {row.key: row.value for row in explain_settings(loaded)}["model.base_url"]
    assert shown == '"https://…@proxy.example/v1"'
    assert "secret" not in str(place.fails("model.base_url=ftp://me:secret@proxy.example"))


def test_invalid_values_of_a_project_can_be_skipped(tmp_path: Path) -> None:
    """The other values of the file stay in force."""
    project = tmp_path / ".agentrc"
    project.write_text(
        'oops = 1\n[ui]\nplain = true\ntheme = "no such theme"\n[model]\nwindow = 3\n'
        '[permissions]\ndeny = ["Bash(((", "Read"]\n'
    )
    with pytest.raises(ConfigError):
        load_settings(tmp_path, environ={}, check_rule=parse_rule)
    loaded = load_settings(tmp_path, environ={}, check_rule=parse_rule, skip_invalid=True)
    assert loaded.settings.ui.plain
    assert loaded.settings.ui.theme == DEFAULTS.ui.theme
    told = "\n".join(loaded.problems)
    for line in (1, 4, 6):
        assert f"{project}:{line}" in told
    project.write_text("[ui\n")
    loaded = load_settings(tmp_path, environ={}, skip_invalid=True)
    assert [f"{project}" in each for each in loaded.problems] == [True]


def test_old_names_of_sections_still_work(place: Place) -> None:
    place.user("[demote]\nabove = 7\n\n[microcompact]\nkeep = 9\n")
    loaded = place.load("microcompact.from=0.3", CTXAGENT_MICROCOMPACT_OUTLINE="false")
    move, clear = loaded.settings.move, loaded.settings.clear
    assert (move.above, clear.keep, clear.from_, clear.outline) == (7, 9, 0.3, False)
    assert loaded.origins["move.above"] == f"{place.user_file}:2"
    assert loaded.origins["clear.outline"] == "CTXAGENT_MICROCOMPACT_OUTLINE"
    assert place.load("demote.above=8", "move.above=9").settings.move.above == 9


@pytest.mark.parametrize(
    ("flag", "hint"),
    [("demote.abov=3", "Did you mean move.above?"), ("microcompact=3", "Did you mean")],
)
def test_an_unknown_key_below_an_old_name_is_an_error(place: Place, flag: str, hint: str) -> None:
    error = place.fails(flag)
    assert flag.partition("=")[0] in str(error)
    assert hint in error.hint
