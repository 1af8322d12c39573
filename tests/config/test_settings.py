"""The settings: declarations, the resulting policy, the example file and the documentation."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ctxagent.agent.compaction.policy import DEFAULT, PRESETS, Policy, policy_of
from ctxagent.agent.config.compaction_settings import PRESET_NAMES
from ctxagent.agent.config.keys import value_text
from ctxagent.agent.config.settings import (
    EXTENSIONS,
    KEYS,
    SECTIONS,
    Settings,
    build_settings,
    values_by_key,
)
from ctxagent.agent.errors import ConfigError
from ctxagent.tools.system.process import TREE_VARIABLE

from .conftest import Place

ROOT = Path(__file__).parents[2]
DEFAULTS = build_settings({name: key.default for name, key in KEYS.items()})


def policy(place: Place, *flags: str) -> Policy:
    return policy_of(place.load(*flags).settings)


def test_without_settings_the_policy_is_the_default(place: Place) -> None:
    assert policy(place) == DEFAULT


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_chosen_and_is_left_as_it_is(place: Place, name: str) -> None:
    assert policy(place, f"compact.preset={name}") == PRESETS[name]


def test_every_preset_that_can_be_chosen_exists() -> None:
    assert tuple(PRESETS) == PRESET_NAMES


def test_what_the_settings_say_wins_over_the_preset(place: Place) -> None:
    place.user(
        '[compact]\npreset = "ctx-001"\nmode = "remind"\nat = "90%"\nprepare_at = 0.8\n'
        'keep_tokens = 7\nkeep_messages = 6\nmodel = "m"\nsummarizer = "mechanical"\n'
        "[move]\nabove = 9\npreview_chars = 8\nline_numbers = false\n"
        '[clear]\nwhen = "off"\nfrom = "off"\nkeep = 5\nabove = 4\ntools = []\n'
        "[truncate]\nat = 100_000\n[checkpoint]\nat = '60%'\n"
    )
    assert policy(place) == Policy(
        preset="ctx-001",
        mode="remind",
        move_above=9,
        preview_chars=8,
        preview_lines=10,
        clear_when="off",
        clear_from=None,
        clear_keep=5,
        clear_above=4,
        clear_tools=(),
        outline=False,
        saves_time=False,
        while_away=False,
        truncate="persisted",
        truncate_at=100_000,
        checkpoint_at=0.6,
        fresh_at=0.85,
        prepare_at=0.8,
        summarize_at=0.9,
        keep_tokens=7,
        keep_messages=6,
        summarizer="mechanical",
        model="m",
    )
    presets = [f"{name}=preset" for name, key in KEYS.items() if key.default == "preset"]
    back = policy(place, "clear.when=auto", "compact.model=auto", *presets)
    assert back == replace(PRESETS["ctx-001"], mode="remind")


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.93", 0.93), ("93%", 0.93), ("93 %", 0.93), ("1", 1.0), ("1.0", 1.0), ("100%", 1.0),
     ("2", 2), ("150_000", 150_000), ("off", None), ("0.5%", 0.005)],
)  # fmt: skip
def test_a_threshold_is_a_share_or_tokens(
    place: Place, text: str, value: float | int | None
) -> None:
    at = policy(place, f"compact.at={text}").summarize_at
    assert (at, type(at)) == (value, type(value))


def test_the_stress_setting_of_the_documentation(place: Place) -> None:
    text = (ROOT / "docs" / "guide" / "settings.md").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("    ctxagent -c ")]
    policy = policy_of(place.load(*line.split()[2::2]).settings)
    assert policy == replace(
        DEFAULT, summarize_at=0.25, prepare_at=None, truncate_at=0.25, clear_when="from",
        clear_from=0.25,
    )  # fmt: skip


def test_the_documentation_has_the_numbers_of_the_presets(place: Place) -> None:
    text = (ROOT / "docs" / "guide" / "settings.md").read_text()
    rows = [row.strip("| ").split(" | ") for row in re.findall(r"^\| .*\|$", text, re.MULTILINE)]
    shown = {row[0].strip("`"): row[1:] for row in rows if len(row) == 1 + len(PRESETS)}
    for at, name in enumerate(PRESETS):
        flags = [
            f"{key}={value.strip('`').strip(chr(34))}"
            for key, values in shown.items()
            if key in KEYS
            for value in [values[at].partition(",")[0]]
        ]
        assert len(flags) == 16
        assert policy(place, f"compact.preset={name}", *flags) == PRESETS[name]


def test_hooks_add_up(place: Place) -> None:
    place.user('[hooks]\nbefore_compact = ["mine"]\n')
    loaded = place.load("hooks.before_compact=now", "hooks.before_compact=mine")
    assert loaded.settings.hooks.before_compact == ("mine", "now")


def test_sections_and_keys_are_those_of_settings() -> None:
    assert [*SECTIONS, EXTENSIONS] == list(Settings.__dataclass_fields__)
    assert values_by_key(DEFAULTS) == {name: key.default for name, key in KEYS.items()}
    for name, key in KEYS.items():
        section, _, leaf = name.partition(".")
        assert key.env == f"CTXAGENT_{section.upper()}_{leaf.upper()}"
        assert key.help.endswith(".")


def test_the_example_as_it_stands_changes_nothing(place: Place) -> None:
    loaded = place.load(CTXAGENT_CONFIG=str(ROOT / ".agentrc.example"))
    assert loaded.settings == DEFAULTS
    assert set(loaded.origins.values()) == {"default"}


def test_the_example_has_every_key_with_its_default_and_its_help(place: Place) -> None:
    text = (ROOT / ".agentrc.example").read_text()
    place.user(re.sub(r"^#(?=\w+ = )", "", text, flags=re.MULTILINE))
    loaded = place.load()
    assert loaded.settings == DEFAULTS
    assert "default" not in set(loaded.origins.values())
    lines = text.splitlines()
    for name, key in KEYS.items():
        source = loaded.origins[name]
        at = int(source.rpartition(":")[2]) - 1
        assert lines[at] == f"#{name.partition('.')[2]} = {value_text(key, key.default)}"
        above = lines[:at]
        comment = " ".join(above[len(above) - above[::-1].index("") :])
        assert comment.startswith(f"# {key.help}"), name
        assert ("(trust)" in comment) == (key.loosens is not KEYS["ui.theme"].loosens), name


def test_the_documentation_has_every_key_with_its_default_and_its_help() -> None:
    lines = (ROOT / "docs" / "guide" / "settings.md").read_text().splitlines()
    rows = [line for line in lines if re.fullmatch(r"\| `\w+\.\w+` (?:\|[^|]*){2}\|", line)]
    assert rows == [
        f"| `{k.name}` | `{value_text(k, k.default)}` | {k.help} |" for k in KEYS.values()
    ]


@pytest.mark.slow
def test_without_a_file_settings_load_without_a_parser(place: Place) -> None:
    code = (
        "import sys, pathlib\n"
        "from ctxagent.agent.config.load import explain_settings, load_settings\n"
        "explain_settings(load_settings(pathlib.Path.cwd(), environ={'HOME': sys.argv[1]})); "
        "print(*sorted({'tomllib', 'pydantic', 'difflib', 'tempfile', 'ctxagent.agent.models'} "
        "& set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(place.home)],
        cwd=place.project, env=dict(os.environ), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == ""


def test_the_mark_of_our_own_children_is_no_setting(place: Place) -> None:
    assert place.load(**{TREE_VARIABLE: "abc"}).settings == DEFAULTS


def test_settings_of_extensions(place: Place) -> None:
    place.user('[extensions.words]\nlimit = 5\nnames = ["a", "b"]\n')
    loaded = place.load("extensions.words.limit=7", "extensions.other.on=true")
    assert loaded.settings.extensions == {
        "words": {"limit": 7, "names": ("a", "b")}, "other": {"on": True},
    }  # fmt: skip
    place.theirs("[extensions.words]\nlimit = 9\n")
    loaded = place.load()
    assert loaded.settings.extensions["words"]["limit"] == 5
    assert "extensions.words.limit" in loaded.notices[0]


@pytest.mark.parametrize("text", ["[extensions.words]\nat = 2026-01-01\n", "[extensions]\nx = 1\n"])
def test_values_that_extensions_cannot_have(place: Place, text: str) -> None:
    place.user(text)
    with pytest.raises(ConfigError):
        place.load()
