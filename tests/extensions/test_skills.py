"""Skills: where they are found, precedence of equal names, valid contents, and trust."""

import os
from pathlib import Path

import pytest

from ctxagent.agent.config.trust import trust
from ctxagent.agent.extensions import skills as module
from ctxagent.agent.extensions.skills import (
    Skill,
    load_skills,
    own_skill_folders,
    project_files,
    project_skill_folders,
    readable_folders,
)

HEAD = "---\nname: x\ndescription: Says how.\n---\n"


class Place:
    """A home and a repository in it."""

    def __init__(self, root: Path) -> None:
        self.home, self.state = root / "home", root / "state"
        self.config, self.project = self.home / "config", self.home / "project"
        self.plugin = root / "plugin"
        (self.project / ".git").mkdir(parents=True)

    def write(self, owner: Path, name: str, text: str = f"{HEAD}Do it.") -> Path:
        path = owner / "skills" / name / "SKILL.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def ours(self, name: str, text: str = f"{HEAD}Do it.") -> Path:
        """A trusted skill of the project."""
        path = self.write(self.project / ".ctxagent", name, text)
        trust(path, self.state)
        return path

    def load(self, cwd: Path | None = None) -> tuple[dict[str, Skill], list[str]]:
        return load_skills(
            cwd or self.project, config_home=self.config, home=self.home, trust_dir=self.state,
            plugins=[self.plugin],
        )  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path.resolve())


def test_a_skill_is_what_its_file_says(place: Place) -> None:
    head = "name: other\ndescription: Says\n  how.\nallowed-tools: Bash(make:*), Read\n"
    head += "disable-model-invocation: true\nuser-invocable: False\n"
    path = place.ours("build", f"---\n{head}---\n\nRun \x1b[1mmake\x7f.\n\tNow.\n")
    found, warnings = place.load()
    assert warnings == []
    assert found == {
        "build": Skill(
            "build", "Says how.", "Run \ufffd[1mmake\ufffd.\n\tNow.", path,
            ("Bash(make:*)", "Read"), for_model=False, for_user=False,
        )
    }  # fmt: skip
    skill = found["build"]
    assert (skill.folder, skill.line) == (path.parent, "- build: Says how.")
    place.ours("plain")
    plain = place.load()[0]["plain"]
    assert (plain.for_model, plain.for_user, plain.allowed_tools) == (True, True, ())


def test_the_digest_depends_on_the_text() -> None:
    one, same, other = (Skill("x", "d", body, Path("p")) for body in ("a", "a", "b\ud800"))
    assert one.digest == same.digest != other.digest
    assert len(other.digest) == 16


def test_a_description_is_one_line_that_can_be_seen(place: Place) -> None:
    place.ours("a", '---\ndescription: "a\\e[31m b\\n c\\u200b"\n---\nx')
    place.ours("b", f"---\ndescription: {'x' * 2_000}\n---\nx")
    found, _ = place.load()
    assert "\x1b" not in found["a"].description
    assert "\u200b" not in found["a"].description
    assert "\n" not in found["a"].line
    assert found["b"].description == "x" * module.MAX_DESCRIPTION_CHARS


def test_variables_stand_for_the_folders_of_the_skill_and_of_its_owner(place: Place) -> None:
    body = "${SKILL_DIR} ${CLAUDE_SKILL_DIR} ${PLUGIN_ROOT} ${CLAUDE_PLUGIN_ROOT} ${HOME}"
    path = place.write(place.plugin, "a", f"{HEAD}{body}")
    folder = path.parent
    assert place.load()[0]["a"].body == (
        f"{folder} {folder} {place.plugin} {place.plugin} ${{HOME}}"
    )


def test_the_nearest_of_a_name_counts(place: Place) -> None:
    inner = place.project / "inner"
    owners = [
        *(base / name for base in (inner, place.project) for name in module.PROJECT_FOLDERS),
        place.config, place.home / ".agents", place.home / ".claude", place.plugin,
    ]  # fmt: skip
    paths = [place.write(owner, "x", f"{HEAD}From {owner}.") for owner in owners]
    for path in paths[:6]:
        trust(path, place.state)
    for path in paths:
        found, warnings = place.load(inner)
        assert found["x"].path == path
        assert warnings == []
        path.unlink()
    assert place.load(inner) == ({}, [])


def test_a_projects_skill_is_used_only_with_the_accepted_content(place: Place) -> None:
    place.ours("good")
    paths = [place.ours("b"), place.write(place.project / ".ctxagent", "c")]
    paths[0].write_text(f"{HEAD}Do it now.")
    found, (warning,) = place.load()
    assert list(found) == ["good"]
    folder = place.project / ".ctxagent" / "skills"
    assert warning.startswith(f"{folder}: 2 skills not trusted, so left out.")
    assert "ctxagent config --trust" in warning


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("two words", f"{HEAD}x", "the name of its folder must be up to 80 letters"),
        ("x" * 81, f"{HEAD}x", "the name of its folder must be up to 80 letters"),
        ("a", "Do it.", "its front matter has no description"),
        ("a", "---\ndescription:\n---\nDo it.", "its front matter has no description"),
        ("a", HEAD, "there is no text below its front matter"),
        ("a", "---\ndescription: x\n", "its front matter does not end"),
        ("a", "x" * (module.MAX_SKILL_BYTES + 1), "it is larger than 1,000,000 bytes"),
    ],
)
def test_a_skipped_skill_is_reported_with_the_reason(
    place: Place, name: str, text: str, why: str
) -> None:
    path = place.write(place.config, name, text)
    place.write(place.config, "good")
    found, (warning,) = place.load()
    assert list(found) == ["good"]
    assert warning.startswith(f"{path}: this skill is left out: {why}")


def test_a_projects_link_may_not_lead_out_of_it(place: Place) -> None:
    outside = place.write(place.home / "other", "out")
    inside = place.write(place.project / "lib", "in")
    skills = place.project / ".ctxagent" / "skills"
    skills.mkdir(parents=True)
    (skills / "out").symlink_to(outside.parent)
    (skills / "in").symlink_to(inside.parent)
    trust(skills / "in" / "SKILL.md", place.state)
    found, (warning,) = place.load()
    assert list(found) == ["in"]
    assert warning == (
        f"{skills / 'out' / 'SKILL.md'}: this skill is left out: it is a link that leads out of "
        "the project"
    )
    assert project_files(place.project, place.home) == [skills / "in" / "SKILL.md"]


def test_the_users_own_links_may_lead_anywhere_and_can_be_read(place: Place) -> None:
    elsewhere = place.write(place.home.parent / "elsewhere", "far").parent
    skills = place.config / "skills"
    skills.mkdir(parents=True)
    (skills / "far").symlink_to(elsewhere)
    (skills / "home").symlink_to(place.home)
    (place.home / "SKILL.md").write_text(f"{HEAD}x")
    place.write(place.config, "near")
    assert sorted(place.load()[0]) == ["far", "home", "near"]
    own = own_skill_folders(place.config, place.home)
    assert own == [skills, place.home / ".agents" / "skills", place.home / ".claude" / "skills"]
    # Never the whole home, which a link could name.
    assert readable_folders(place.config, place.home) == [*own, elsewhere]


def test_folders_without_a_skill_are_ignored(place: Place) -> None:
    skills = place.config / "skills"
    place.write(place.config, "good")
    place.write(place.config, ".hidden")
    (skills / "file").touch()
    (skills / "empty").mkdir()
    (skills / "folder" / "SKILL.md").mkdir(parents=True)
    (skills / "pipe").mkdir()
    os.mkfifo(skills / "pipe" / "SKILL.md")
    found, warnings = place.load()
    assert list(found) == ["good"]
    assert warnings == []


def test_the_users_folders_do_not_belong_to_a_project(place: Place) -> None:
    place.write(place.home / ".claude", "a")
    outside = place.home / "notes"
    outside.mkdir()
    assert project_skill_folders(outside, place.home) == []
    assert project_skill_folders(place.home, place.home) == []
    assert list(place.load(place.home)[0]) == ["a"]
    place.ours("b")
    assert project_skill_folders(place.project, place.home) == [
        (place.project / ".ctxagent" / "skills", place.project)
    ]


def test_the_skills_of_a_folder_are_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SKILLS", 2)
    for name in "cab":
        place.write(place.config, name)
    assert list(place.load()[0]) == ["a", "b"]
