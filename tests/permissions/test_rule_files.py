"""Rules in settings files: adding and removing them keeps the rest, and only the user's own edit
makes a file trusted.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxagent.agent.config.load import LoadedSettings, keys_needing_trust, load_settings
from ctxagent.agent.config.trust import trust
from ctxagent.agent.errors import ConfigError
from ctxagent.agent.permissions.rule_set import RuleFiles, RulesFile
from ctxagent.agent.permissions.rules import parse_rule

RULE = "Bash(npm test:*)"


@dataclass
class Place:
    """A home with a project, and the files with the rules."""

    root: Path

    def __post_init__(self) -> None:
        self.project.mkdir(parents=True)
        self.environ = {"HOME": str(self.root / "home")}

    @property
    def project(self) -> Path:
        return self.root / "home" / "work"

    @property
    def ours(self) -> Path:
        return self.project / ".agentrc"

    @property
    def mine(self) -> Path:
        return self.root / "home" / ".config" / "ctxagent" / "agentrc"

    def load(self, **environ: str) -> LoadedSettings:
        return load_settings(
            self.project, environ={**self.environ, **environ}, check_rule=parse_rule
        )

    def files(self, **environ: str) -> RuleFiles:
        environ = {**self.environ, **environ}
        return RuleFiles(self.load(**environ), cwd=self.project, environ=environ)

    def trusted(self) -> None:
        trust(self.ours, self.load().trust_dir)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


SHAPES = {
    "": '[permissions]\nallow = ["Bash(npm test:*)"]\n',
    "# mine\n": '# mine\n\n[permissions]\nallow = ["Bash(npm test:*)"]\n',
    '[ui]\ntheme = "dark"': '[ui]\ntheme = "dark"\n\n[permissions]\nallow = ["Bash(npm test:*)"]\n',
    '[permissions]\nask = [ "Read" ]  # why\n\n[ui]\n': (
        '[permissions]\nask = [ "Read" ]  # why\nallow = ["Bash(npm test:*)"]\n\n[ui]\n'
    ),
    '[permissions]\nallow = ["Read"]  # all\n': (
        '[permissions]\nallow = ["Read", "Bash(npm test:*)"]  # all\n'
    ),
    '[permissions]\nallow = [\n  "Read",  # one\n  # two\n  "Grep",\n]\n': (
        '[permissions]\nallow = [\n  "Read",  # one\n  # two\n  "Grep",\n  "Bash(npm test:*)",\n]\n'
    ),
    'permissions.allow = ["Read"]\nui.plain = true\n': (
        'permissions.allow = ["Read", "Bash(npm test:*)"]\nui.plain = true\n'
    ),
    '[ui]\r\nplain = true\r\n': (
        '[ui]\r\nplain = true\r\n\r\n[permissions]\r\nallow = ["Bash(npm test:*)"]\r\n'
    ),
    '\ufeff[permissions]\nallow = ["Read"]\n': (
        '\ufeff[permissions]\nallow = ["Read", "Bash(npm test:*)"]\n'
    ),
}  # fmt: skip


@pytest.mark.parametrize("before", SHAPES)
def test_adding_a_rule_keeps_the_rest_of_the_file(place: Place, before: str) -> None:
    place.mine.parent.mkdir(parents=True)
    place.mine.write_bytes(before.encode())
    files = place.files()
    assert files.add(RULE, "user") == str(place.mine)
    assert place.mine.read_bytes().decode() == SHAPES[before]
    files.add(RULE, "user")
    assert place.mine.read_bytes().decode() == SHAPES[before], "twice is once"
    assert RULE in place.load().settings.permissions.allow


def test_files_are_made_where_there_are_none(place: Place) -> None:
    files = place.files()
    files.add(RULE, "user")
    files.add("Edit(src/**)", "project")
    assert stat.S_IMODE(place.mine.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.mine.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(place.ours.stat().st_mode) == 0o644
    loaded = place.load()
    assert loaded.settings.permissions.allow == (RULE, "Edit(src/**)") == files.allow
    assert loaded.notices == [], "what the person wrote is trusted"
    assert list(place.project.iterdir()) == [place.ours], "no file is left beside it"


def test_a_link_and_a_mode_stay(place: Place, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles"
    real.write_text("[ui]\nplain = true\n")
    real.chmod(0o640)
    place.mine.parent.mkdir(parents=True)
    place.mine.symlink_to(real)
    place.files().add(RULE, "user")
    assert place.mine.is_symlink()
    assert RULE in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_what_is_trusted_stays_so(place: Place) -> None:
    place.ours.write_text('[permissions]\nallow = ["Read"]\n')
    place.trusted()
    place.files().add(RULE, "project")
    assert place.load().settings.permissions.allow == ("Read", RULE)


def test_settings_that_need_no_trust_do_not_prevent_an_edit(place: Place) -> None:
    place.ours.write_text('# ours\n[permissions]\ndeny = ["Read(.env)"]\n')
    place.files().add(RULE, "project")
    assert place.ours.read_text().startswith('# ours\n[permissions]\ndeny = ["Read(.env)"]\n')
    assert place.load().settings.permissions.allow == (RULE,)


@pytest.mark.parametrize(
    ("theirs", "key"),
    [
        ('[permissions]\nallow = ["Bash"]\n', "permissions.allow"),
        ('[permissions]\nmode = "bypass"\n', "permissions.mode"),
        ('[hooks]\nbefore_compact = ["true"]\n', "hooks.before_compact"),
    ],
)
def test_untrusted_settings_are_not_trusted_by_an_edit(place: Place, theirs: str, key: str) -> None:
    place.ours.write_text(theirs)
    with pytest.raises(ConfigError, match=key) as caught:
        place.files().add(RULE, "project")
    assert "config --trust" in caught.value.hint
    assert place.ours.read_text() == theirs
    assert place.load().settings.permissions.allow == ()


def test_a_mode_that_only_the_persons_own_file_makes_harmless_needs_trust(place: Place) -> None:
    place.mine.parent.mkdir(parents=True)
    place.mine.write_text('[permissions]\nmode = "bypass"\n')
    text = '[permissions]\nmode = "accept-edits"\n'
    place.ours.write_text(text)
    assert place.load().notices == []
    assert keys_needing_trust(place.ours, text.encode()) == ["permissions.mode"]
    with pytest.raises(ConfigError):
        place.files().add(RULE, "project")


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ('[permissions]\nmode = "ask"\n', ["permissions.mode"]),
        ('[permissions]\nmode = "plan"\nallow = []\nask = ["Bash"]\n', []),
        ("[preserve]\nstrict = false\n", ["preserve.strict"]),
        ("[preserve]\nstrict = true\n", []),
        ("[preserve]\nalways = []\n", ["preserve.always"]),
        ('[model]\nbase_url = "auto"\n', ["model.base_url"]),
        ('[model]\nid = "scripted:x"\n', ["model.id"]),
        ('[model]\nid = "claude-x"\n', ["model.id"]),
        ('[ui]\ntheme = "dark"\n', []),
    ],
)
def test_settings_that_may_loosen_need_trust(place: Place, text: str, keys: list[str]) -> None:
    place.ours.write_text(text)
    assert keys_needing_trust(place.ours, text.encode()) == keys
    if not keys:
        place.files().add(RULE, "project")
        return
    with pytest.raises(ConfigError, match=keys[0]):
        place.files().add(RULE, "project")
    assert place.ours.read_text() == text


def test_a_mode_is_not_trusted_before_a_stricter_one_is_chosen(place: Place) -> None:
    place.ours.write_text('[permissions]\nmode = "ask"\n')
    with pytest.raises(ConfigError):
        place.files().add(RULE, "project")
    place.mine.parent.mkdir(parents=True)
    place.mine.write_text('[permissions]\nmode = "plan"\n')
    loaded = place.load()
    assert loaded.settings.permissions.mode == "plan"
    assert len(loaded.notices) == 1


def test_relative_rules_are_not_saved_where_they_match_other_files(place: Place) -> None:
    (place.project / ".git").mkdir()
    inner = place.project / "inner"
    inner.mkdir()
    place.ours.write_text("")
    loaded = load_settings(inner, environ=place.environ)
    files = RuleFiles(loaded, cwd=inner, environ=place.environ)
    assert files.paths["project"] == place.ours
    for rule in ("Edit(Makefile)", "Read(../x)", "Grep(./~a)"):
        with pytest.raises(ConfigError, match="would match other files"):
            files.add(rule, "project")
    assert place.ours.read_text() == ""
    kept = (RULE, "Edit(/opt/x)", "Read(~/x)", "Task(explore)")
    for rule in kept:
        files.add(rule, "project")
    files.add("Edit(Makefile)", "user")
    assert place.load().settings.permissions.allow == ("Edit(Makefile)", *kept)


def test_where_a_link_leads_is_said(place: Place, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere"
    real.write_text("")
    place.ours.symlink_to(real)
    files = place.files()
    assert files.describe_file("project") == f".agentrc, a link to {real}"
    assert files.describe_file("user") == "~/.config/ctxagent/agentrc"


def test_a_file_changed_since_it_was_trusted_is_checked_again(place: Place) -> None:
    place.ours.write_text('[permissions]\nallow = ["Read"]\n')
    place.trusted()
    files = place.files()
    changed = '[permissions]\nallow = ["Read", "Bash"]\n'  # by the model, say
    place.ours.write_text(changed)
    with pytest.raises(ConfigError, match="has untrusted settings: "):
        files.add(RULE, "project")
    assert place.ours.read_text() == changed
    assert files.allow == ("Read",)


@pytest.mark.parametrize("text", ["[permissions\n", "nonsense = 1\n", "[permissions]\nallow = 3\n"])
def test_what_is_no_settings_file_is_not_touched(place: Place, text: str) -> None:
    files = place.files()
    place.ours.write_text(text)
    with pytest.raises(ConfigError):
        files.add(RULE, "project")
    assert place.ours.read_text() == text


def test_what_is_no_file_is_not_touched(place: Place, tmp_path: Path) -> None:
    files = place.files()
    os.mkfifo(place.ours)
    with pytest.raises(ConfigError, match="not a regular file"):
        files.add(RULE, "project")
    place.ours.unlink()
    place.ours.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is a broken symlink"):
        files.add(RULE, "project")
    assert not (tmp_path / "nowhere").exists()


def test_the_persons_own_file_in_the_project_is_theirs_alone(place: Place) -> None:
    place.ours.write_text("")
    files = place.files(CTXAGENT_CONFIG=str(place.ours))
    assert list(files.paths) == ["user"]


@pytest.mark.parametrize("where", ["user", "project"])
def test_a_rule_is_forgotten(place: Place, where: RulesFile) -> None:
    files = place.files()
    files.add("Read(/opt/**)", where)
    files.add(RULE, where)
    assert files.remove(RULE) == [str(files.paths[where])]
    assert files.remove(RULE) == []
    loaded = place.load()
    assert loaded.settings.permissions.allow == ("Read(/opt/**)",) == files.allow
    assert loaded.notices == [], "what is left is trusted still"


def test_where_rules_come_from(place: Place) -> None:
    place.mine.parent.mkdir(parents=True)
    place.mine.write_text('[permissions]\ndeny = [\n  "Read(.env)",\n]\n')
    place.ours.write_text('[permissions]\nask = ["Bash(git push:*)"]\n')
    environ = {**place.environ, "CTXAGENT_PERMISSIONS_ALLOW": "Grep"}
    loaded = load_settings(place.project, environ=environ, flags=["permissions.deny=Write"])
    files = RuleFiles(loaded, cwd=place.project, environ=environ)
    files.add(RULE, "project")
    assert files.origin("deny", "Read(.env)") == "~/.config/ctxagent/agentrc:3"
    assert files.origin("deny", "Write") == "the command line"
    assert files.origin("ask", "Bash(git push:*)") == ".agentrc:2"
    assert files.origin("allow", "Grep") == "CTXAGENT_PERMISSIONS_ALLOW"
    assert files.origin("session", RULE) == ".agentrc:3"
    assert files.origin("session", "Edit(x)") == "this session"


VISIBLE = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20)


@pytest.mark.slow
@given(rules=st.lists(VISIBLE, max_size=4), rule=VISIBLE)
def test_any_rule_can_be_added_and_removed(
    tmp_path_factory: pytest.TempPathFactory, rules: list[str], rule: str
) -> None:
    place = Place(tmp_path_factory.mktemp("kept"))
    files = place.files()
    for each in [*rules, rule]:
        files.add(f"Bash(x {each.strip()}y)", "user")
    before = place.mine.read_text()
    wanted = list(dict.fromkeys(f"Bash(x {each.strip()}y)" for each in [*rules, rule]))
    assert list(place.load().settings.permissions.allow) == wanted
    files.remove(wanted[-1])
    assert list(place.load().settings.permissions.allow) == wanted[:-1]
    files.add(wanted[-1], "user")
    assert place.mine.read_text() == before
