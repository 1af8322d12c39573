"""Reading instruction files: imports, rules, and forbidden imports."""

from contextlib import nullcontext
from pathlib import Path
from time import process_time

import pytest

from ctxagent.agent.features import instruction_places
from ctxagent.agent.features.instruction_places import (
    LINK_OUTSIDE,
    MAX_FILES,
    MAX_GLOB_CHARS,
    MAX_GLOBS,
    InstructionReader,
    imported_names,
    split_rule,
    without_braces,
)

from ..support.instruction_files import places


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@a.md", ["a.md"]),
        ("See @docs/a.md, (not x@y.md) and @./b.md.", ["docs/a.md", "./b.md"]),
        ("@a.md @a.md\n- @~/c.md", ["a.md", "~/c.md"]),
        (r"@with\ blank.md", ["with blank.md"]),
        ("`@a.md` ``b ` @b.md`` @c.md", ["c.md"]),
        ("```\n@a.md\n```\n@b.md", ["b.md"]),
        ("~~~~ text\n@a.md\n~~~\n@b.md\n~~~~\n@c.md", ["c.md"]),
        ("  - x\n    ```sh\n    @a.md\n    ```\n    @b.md", ["b.md"]),
        ("```\n@never.md", []),
        ("<!-- @a.md\n@b.md --> @c.md", ["c.md"]),
        ("a lone ` is no code @a.md", ["a.md"]),
        ("@ and @, and @@", ["@"]),
    ],
)
def test_names_that_are_imported(text: str, names: list[str]) -> None:
    assert imported_names(text) == names


@pytest.mark.parametrize(
    ("head", "globs"),
    [
        ("title: x", ()),
        ("paths: src/**", ("src/**",)),
        ("paths: **/*.{ts,tsx}", ("**/*.ts", "**/*.tsx")),
        ("paths: {src,lib}/**/*.ts, tests/**", ("src/**/*.ts", "lib/**/*.ts", "tests/**")),
        ('paths:\n  - "a/*"\n  - **/*.b\n  - {c,d}/x', ("a/*", "**/*.b", "c/x", "d/x")),
        ("paths: [a, b]", ("a", "b")),
        ("globs: '*.py'", ("*.py",)),
    ],
)
def test_the_files_that_a_rule_counts_for(head: str, globs: tuple[str, ...]) -> None:
    assert split_rule(f"---\n{head}\n---\n\nDo it.\n") == (globs, "Do it.")


def test_a_rule_without_a_head_is_as_it_is() -> None:
    assert split_rule("- *one*\n---\n- {two}") == ((), "- *one*\n---\n- {two}")
    with pytest.raises(ValueError, match="does not end"):
        split_rule("---\npaths: a")


def test_braces_in_braces_and_too_many() -> None:
    assert without_braces("{a,{b,c}}/x") == ["a/x", "b/x", "c/x"]
    assert without_braces("{a") == ["{a"]
    with pytest.raises(ValueError, match=f"more than {MAX_GLOBS}"):
        without_braces("{a,b,c,d}" * 20)
    with pytest.raises(ValueError, match=f"more than {MAX_GLOBS}"):
        without_braces("{" + "," * 20_000 + "}" + "x" * 10_000)


@pytest.mark.parametrize(
    ("patterns", "why"),
    [
        ("{a,b,c,d}" * 4, f"more than {MAX_GLOBS}"),
        (",".join(f"a{n}" for n in range(MAX_GLOBS + 1)), f"more than {MAX_GLOBS}"),
        ("x" * (MAX_GLOB_CHARS + 1), f"more than {MAX_GLOB_CHARS} characters"),
    ],
)
def test_a_rule_with_too_many_patterns_is_left_out_and_named(
    project: Path, patterns: str, why: str
) -> None:
    rule = project / ".claude/rules/r.md"
    rule.parent.mkdir(parents=True)
    rule.write_text(f"---\npaths: '{patterns}'\n---\nNever.")
    reader = read(project)
    assert names(reader) == []
    (problem,) = reader.problems
    assert "this rule is left out" in problem
    assert why in problem


@pytest.mark.parametrize(
    ("head", "is_read"),
    [
        ("\n" * 100_000 + "x: 1", False),
        ("-\n" * 50_000 + "x: 1", False),
        ("\n" * 19_000 + "x: 1", True),
        ("x: '" + "," * 19_000 + "'", True),
        ("paths: '" + "{" * 900 + "'", True),
        ("paths: '" + "," * 19_000 + "'", True),
    ],
)
def test_a_hostile_head_takes_little_time(head: str, is_read: bool) -> None:
    before = process_time()
    with nullcontext() if is_read else pytest.raises(ValueError, match="more than"):
        assert split_rule(f"---\n{head}\n---\nbody")[1] == "body"
    assert process_time() - before < 2


def read(project: Path, **more: object) -> InstructionReader:
    where = places(project, project.parent / "config", project.parent, project.parent / "home")
    reader = InstructionReader(where, **more)  # type: ignore[arg-type]
    reader.read(where.for_all_work())
    reader.files = [file for file in reader.files if file.path.is_relative_to(project)]
    return reader


def names(reader: InstructionReader) -> list[str]:
    return [file.path.name for file in reader.files]


def test_an_import_is_read_once_and_before_its_file(project: Path) -> None:
    (project / "b.md").write_text("b @c.md")
    (project / "c.md").write_text("c @b.md")
    (project / "AGENTS.md").write_text("one @b.md @c.md")
    (project / "CLAUDE.md").write_text("@AGENTS.md @b.md")
    reader = read(project)
    assert names(reader) == ["c.md", "b.md", "AGENTS.md", "CLAUDE.md"]
    assert [file.by.name if file.by else "" for file in reader.files] == [
        "b.md",
        "AGENTS.md",
        "",
        "",
    ]
    (problem,) = reader.problems
    assert problem.endswith("which imports it: given once")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none.md", "there is no such file"),
        ("./none", "there is no such file"),
        ("../out.md", "it is outside of the project"),
        ("data.bin", "it is not text"),
        ("denied.txt", "a rule denies reading it"),
        ("none", ""),
        ("folder", ""),
        ("a\0b", ""),
    ],
)
def test_why_a_file_is_not_imported(project: Path, name: str, why: str) -> None:
    (project / "folder").mkdir()
    (project.parent / "out.md").write_text("out")
    (project / "data.bin").write_bytes(b"a\0b")
    (project / "denied.txt").write_text("hidden")
    (project / "AGENTS.md").write_text(f"Obey. @{name}")
    reader = read(project, denies=lambda path: path.endswith("denied.txt"))
    (file,) = reader.files
    note = f"[@{name} is not imported: {why}]"
    assert file.text == (f"Obey. @{name}\n\n{note}" if why else f"Obey. @{name}")
    assert len(reader.problems) == bool(why)


def test_many_imports_end(project: Path) -> None:
    for number in range(MAX_FILES + 10):
        (project / f"n{number}.md").write_text(f"{number}")
    (project / "AGENTS.md").write_text("\n".join(f"@n{n}.md" for n in range(MAX_FILES + 10)))
    reader = read(project)
    assert len(reader.files) < MAX_FILES
    assert f"there are more than {MAX_FILES} files" in reader.files[-1].text


def test_a_rule_waits_for_its_files(project: Path) -> None:
    rules = project / ".claude" / "rules"
    rules.mkdir(parents=True)
    (rules / "web.md").write_text("---\npaths: web/**/*.ts\n---\nSingle quotes. @../../more.md")
    (rules / "bad.md").write_text("---\npaths: [\n---\nNever.")
    (project / "more.md").write_text("more")
    reader = read(project)
    assert names(reader) == []
    assert [file.globs for file in reader.waiting] == [("web/**/*.ts",)]
    assert "this rule is left out" in reader.problems[0]
    touched = read(project, touched=[project / "web" / "in" / "a.ts"])
    assert names(touched) == ["more.md", "web.md"]
    assert names(read(project, touched=[project / "a.ts"])) == []
    assert names(read(project, in_context={str(rules / "web.md")})) == ["more.md", "web.md"]


def test_a_home_that_is_a_repository_opens_none_of_its_files(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "home/dl/untarred"
    project.mkdir(parents=True)
    (home / ".git").mkdir()
    (home / "config").write_text("Host s3cret")
    (project / "AGENTS.md").write_text("Obey. @~/config")
    (project / "CLAUDE.md").symlink_to(home / "config")
    where = places(project, tmp_path / "config", tmp_path, home)
    reader = InstructionReader(where)
    texts = [file.text for file in reader.read(where.for_all_work())]
    assert texts == [
        "Obey. @~/config\n\n[@~/config is not imported: it is outside of the project]",
        LINK_OUTSIDE,
    ]


def test_what_a_project_imports_from_the_home_imports_nothing_outside_of_the_project(
    project: Path,
) -> None:
    home = project.parent / "home"
    (home / ".claude/plugins/m").mkdir(parents=True)
    (home / ".claude/rules").mkdir()
    for name in ("plugins/m/README.md", "own.md", "rules/r.md", "CLAUDE.md"):
        (home / ".claude" / name).write_text(f"{name} @~/.netrc @{project}/in.md")
    (home / ".netrc").write_text("s3cret")
    (project / "in.md").write_text("in")
    named = ("plugins/m/README.md", "own.md", "rules/r.md", "CLAUDE.md")
    (project / "AGENTS.md").write_text(" ".join(f"@~/.claude/{name}" for name in named))
    where = places(project, project.parent / "config", project.parent, home)
    reader = InstructionReader(where)
    files = reader.read(each for each in where.in_folders([project]) if not each.is_rule)
    assert [file.path.name for file in files] == ["in.md", "own.md", "AGENTS.md"]
    assert "[@~/.netrc is not imported: it is outside of the project]" in files[1].text
    assert files[2].text.count("is not imported") == 1
    assert "README.md is not imported: it is outside" in files[2].text


def test_rules_behind_a_link_out_of_the_project_are_left_out(project: Path) -> None:
    outside = project.parent / "outside"
    outside.mkdir()
    (outside / "a.md").write_text("a")
    (project / ".claude").mkdir()
    (project / ".claude/rules").symlink_to(outside)
    reader = read(project)
    assert names(reader) == []
    assert reader.problems == [
        f"{project}/.claude/rules is a link that leaves the project: its rules are left out"
    ]


def test_too_many_rules_are_named_and_the_first_ones_count(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("z.md", "a.md", "in/b.md", "in/c.md", "in/d/e/f/g.md"):
        path = project / ".claude/rules" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    assert read(project).problems == []
    monkeypatch.setattr(instruction_places, "MAX_RULES", 3)
    reader = read(project)
    assert names(reader) == ["a.md", "b.md", "z.md"]
    (problem,) = reader.problems
    assert "has more than 3 rules" in problem
    monkeypatch.undo()
    monkeypatch.setattr(instruction_places, "MAX_RULE_FOLDERS", 2)
    reader = read(project)
    assert names(reader) == ["a.md", "b.md", "c.md", "z.md"]
    assert "or 2 folders" in reader.problems[0]


def test_what_others_may_write_is_not_imported_into_the_users_own_files(project: Path) -> None:
    shared = project.parent / "shared.md"
    shared.write_text("Obey a stranger.")
    shared.chmod(0o666)
    own = project.parent / "home/.claude/CLAUDE.md"
    own.parent.mkdir(parents=True)
    own.write_text(f"Mine. @{shared}")
    where = places(project, project.parent / "config", project.parent, project.parent / "home")
    reader = InstructionReader(where)
    texts = [file.text for file in reader.read(where.for_all_work())]
    assert texts[-1] == "Mine. @" + str(shared)
    assert texts[0].startswith("[not taken in: everyone may write to")
    assert reader.doubtful.keys() == {shared}
    assert reader.problems[0].startswith(f"{shared} is ignored")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig", "cp1251"])
def test_a_file_in_another_encoding_is_read(project: Path, encoding: str) -> None:
    text = "Правило: все функции должны иметь тесты."
    (project / "AGENTS.md").write_bytes(text.encode(encoding))
    (file,) = read(project).files
    assert file.text == text


def test_a_file_that_is_no_text_is_named(project: Path) -> None:
    (project / "AGENTS.md").write_bytes(b"\x89PNG\r\n\x1a\n\0\xff" * 9)
    reader = read(project)
    assert not reader.files
    assert reader.problems == [
        f"{project / 'AGENTS.md'}: this file is left out: it is not text in a known encoding"
    ]
