"""Command files: where they are found, precedence of equal names, and the resulting prompts."""

import os
from pathlib import Path

import pytest

from ctxagent.agent.config.trust import trust
from ctxagent.agent.extensions import command_files as module
from ctxagent.agent.extensions.command_files import (
    CommandFile,
    commands_of,
    load_command_files,
    project_command_folders,
    project_files,
    split_arguments,
)
from ctxagent.agent.extensions.plugins import Plugin


class Place:
    """A home and a repository in it."""

    def __init__(self, root: Path) -> None:
        self.home, self.state = root / "home", root / "state"
        self.config = self.home / ".config" / "ctxagent"
        self.project = self.home / "project"
        (self.project / ".git").mkdir(parents=True)

    def write(self, folder: Path, name: str, text: str = "Do it.") -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def ours(self, name: str, text: str = "Do it.") -> Path:
        return self.write(self.project / ".ctxagent" / "commands", name, text)

    def load(
        self, cwd: Path | None = None, plugins: tuple[Plugin, ...] = ()
    ) -> tuple[dict[str, CommandFile], list[str]]:
        return load_command_files(
            cwd or self.project, config_home=self.config, home=self.home, trust_dir=self.state,
            plugins=plugins,
        )  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path.resolve())


def told(body: str, arguments: str) -> str:
    """The prompt of a command, with shell commands in brackets."""
    command = CommandFile("x", body, Path("x.md"), "x.md")
    return "".join(f"<{text}>" if is_shell else text for text, is_shell in command.parts(arguments))


@pytest.mark.parametrize(
    ("body", "arguments", "text"),
    [
        ("Review $1, then $2.", 'a.py "b c"', "Review a.py, then b c."),
        ("Review $ARGUMENTS.", 'a.py "b c"', 'Review a.py "b c".'),
        ("All of $9, $1.", "a", "All of , a."),
        ("It costs $10, $0, $ARGUMENTSX.", "", "It costs $10, $0, $ARGUMENTSX."),
        ("Go on.", "now please", "Go on.\n\nArguments: now please"),
        ("Go on.", "", "Go on."),
        ("$1", "$2 $ARGUMENTS", "$2"),
        ("!`git log $1`: $1", "'a; b'", "<git log 'a; b'>: a; b"),
        ("!`echo $ARGUMENTS`", 'x "y z"', "<echo x 'y z'>"),
        ("!`ls $2`.", "x", "<ls ''>."),
        ("A !`b` c !`d`", "", "A <b> c <d>"),
        ("No !`command\n`.", "", "No !`command\n`."),
        ("A\n```!\nls $1\ndate\n```\nB !`d`", "'x y'", "A\n<ls 'x y'\ndate>\nB <d>"),
        ("A\n```sh\nls\n```\n", "", "A\n```sh\nls\n```\n"),
        ("!`date`", "!`rm x`", "<date>\n\nArguments: !`rm x`"),
    ],
)
def test_placeholders_are_replaced_once(body: str, arguments: str, text: str) -> None:
    assert told(body, arguments) == text


def test_unmatched_quotes_are_ordinary_characters() -> None:
    assert split_arguments("it's a 'b c'") == ["it's", "a", "'b", "c'"]
    assert split_arguments("a 'b c'") == ["a", "b c"]
    assert split_arguments("") == []


def test_a_file_says_what_it_is(place: Place) -> None:
    head = "---\ndescription: Look\n  at it\nargument-hint: [file]\nmodel: haiku\n"
    path = place.ours(
        "sub/review.md", f"{head}allowed-tools: Bash(git diff:*), Read\n---\nReview $1."
    )
    found, warnings = place.load()
    assert warnings == []
    assert found == {
        "review": CommandFile(
            name="review",
            body="Review $1.",
            path=path,
            shown_path=".ctxagent/commands/sub/review.md",
            description="Look at it (sub)",
            argument_hint="[file]",
            allowed_tools=("Bash(git diff:*)", "Read"),
            model="haiku",
            is_trusted=False,
        )
    }


def test_a_description_is_the_first_line_unless_it_is_written(place: Place) -> None:
    place.ours("a.md", "# Check it\nwell.")
    place.ours("b.md", f"---\ndescription: {'x' * 900}\n---\nDo it.")
    found, _ = place.load()
    assert found["a"].description == "Check it"
    assert found["b"].description == "x" * module.MAX_DESCRIPTION_CHARS


def test_a_projects_file_is_trusted_only_with_the_accepted_content(place: Place) -> None:
    path = place.ours("a.md")
    place.write(place.config / "commands", "b.md")
    assert [each.is_trusted for each in place.load()[0].values()] == [True, False]
    trust(path, place.state)
    assert place.load()[0]["a"].is_trusted
    path.write_text("Do it now.")
    assert not place.load()[0]["a"].is_trusted


def test_the_nearest_of_a_name_counts(place: Place) -> None:
    inner = place.project / "inner"
    plugin = Plugin("p", place.home / "plugin", "/src", "0" * 64)
    folders = [
        inner / ".ctxagent" / "commands",
        inner / ".claude" / "commands",
        place.project / ".ctxagent" / "commands",
        place.project / ".claude" / "commands",
        place.config / "commands",
        place.home / ".claude" / "commands",
        plugin.folder / "commands",
    ]
    paths = [place.write(folder, "x.md", f"From {folder}.") for folder in folders]
    for path in paths:
        found, warnings = place.load(inner, (plugin,))
        assert found["x"].path == path
        assert warnings == []
        path.unlink()
    assert place.load(inner, (plugin,)) == ({}, [])


def test_where_a_file_is_shown(place: Place) -> None:
    place.ours("a.md")
    place.write(place.config / "commands", "b.md")
    plugin = Plugin("p", place.home.parent / "plugin", "/src", "0" * 64)
    path = place.write(plugin.folder / "commands", "c.md")
    found, _ = place.load(plugins=(plugin,))
    assert [found[name].shown_path for name in "abc"] == [
        ".ctxagent/commands/a.md", "~/.config/ctxagent/commands/b.md", str(path),
    ]  # fmt: skip


def test_a_plugins_folder_is_filled_in(place: Place) -> None:
    plugin = Plugin("p", place.home / "plugin", "/src", "0" * 64)
    place.write(
        plugin.folder / "commands", "a.md",
        "---\nallowed-tools: Bash(${CLAUDE_PLUGIN_ROOT}/run:*)\n---\nRead ${CLAUDE_PLUGIN_ROOT}/x.",
    )  # fmt: skip
    found, warnings = commands_of(plugin, place.project, place.home)
    assert found["a"].allowed_tools == (f"Bash({plugin.folder}/run:*)",)
    assert (found["a"].body, found["a"].is_trusted) == (f"Read {plugin.folder}/x.", True)
    assert warnings == []


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("two words.md", "Do it.", "its name must be up to 80 letters, digits, - and _"),
        ("-x.md", "Do it.", "its name must be up to 80"),
        (f"{'x' * 81}.md", "Do it.", "its name must be up to 80"),
        ("é.md", "Do it.", "its name must be up to 80"),
        ("empty.md", "---\nmodel: x\n---\n\n", "the file has no text"),
        ("open.md", "---\nmodel: x\n", "its front matter does not end"),
        ("large.md", "x" * 100_001, "it is larger than 100,000 bytes"),
    ],
)
def test_a_skipped_file_is_reported_with_the_reason(
    place: Place, name: str, text: str, why: str
) -> None:
    path = place.ours(name, text)
    place.ours("good.md")
    found, warnings = place.load()
    assert list(found) == ["good"]
    (warning,) = warnings
    assert warning.startswith(f"{path}: this command is left out: {why}")


def test_of_two_files_in_one_folder_the_less_deep_one_wins(place: Place) -> None:
    place.ours("x.md")
    deeper = place.ours("a/x.md")
    found, warnings = place.load()
    assert found["x"].shown_path == ".ctxagent/commands/x.md"
    assert warnings == [f"{deeper}: left out: .ctxagent/commands/x.md is /x"]


def test_no_link_leads_out_of_the_folder(place: Place) -> None:
    outside = place.write(place.home, "secret.md", "hidden")
    inside = place.ours("real.md")
    (inside.parent / "link.md").symlink_to(outside)
    (inside.parent / "same.md").symlink_to(inside)
    (inside.parent / "folder.md").mkdir()
    os.mkfifo(inside.parent / "pipe.md")
    found, warnings = place.load()
    assert sorted(found) == ["real", "same"]
    assert warnings == []
    assert [path.name for path in project_files(place.project, place.home)] == [
        "real.md", "same.md",
    ]  # fmt: skip


def test_the_users_folder_does_not_belong_to_a_project(place: Place) -> None:
    place.write(place.home / ".claude" / "commands", "a.md")
    place.write(place.home / ".ctxagent" / "commands", "b.md")
    outside = place.home / "notes"
    outside.mkdir()
    assert project_command_folders(outside, place.home) == []
    assert project_command_folders(place.home, place.home) == [
        place.home / ".ctxagent" / "commands"
    ]
    found, _ = place.load(place.home)
    assert {name: each.is_trusted for name, each in found.items()} == {"a": True, "b": False}


def test_the_files_of_a_folder_are_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 2)
    for name in "cab":
        place.ours(f"{name}.md")
    assert list(place.load()[0]) == ["a", "b"]
