"""Names behind an @ in a message: files that exist, files that are missing, and text."""

from pathlib import Path

import pytest

from ctxagent.agent.features.mentions import file_names, find_mentions, missing_names


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "app.py").write_text("one = 1\ntwo = 2\nthree = 3\n")
    (folder / "my notes (old).txt").write_text("a note\n")
    (folder / "odd:3").write_text("odd\n")
    return folder


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("look at @src/app.py", ["src/app.py"]),
        ("@src/app.py, then (@src/app.py) and '@src/app.py'.", ["src/app.py"]),
        ("is @src/app.py? … @src/app.py: yes", ["src/app.py"]),
        ("see @src/app.py:2-3 and @src/app.py:1.", ["src/app.py:2-3", "src/app.py:1-1"]),
        ("lines @src/app.py:0", ["src/app.py:1-1"]),
        ("a file of that name: @odd:3", ["odd:3"]),
        ("all of @src/ and @./src", ["src/", "./src"]),
        ('the @"my notes (old).txt"!', ["my notes (old).txt"]),
        ('a quote: @"src\\/app.py"', ["src/app.py"]),
        ("ask a@src/app.py or me@example.com", []),
        ("@pytest.mark.slow\n@dataclass\nnpm i @types/node @", []),
        ("@~nobody-of-that-name/x @" + "x" * 5_000 + " @a\0b", []),
    ],
)
def test_mentions_in_a_message(project: Path, words: str, named: list[str]) -> None:
    assert [mention.as_written for mention in find_mentions(words, project)] == named


@pytest.mark.parametrize(
    ("words", "files"),
    [
        ("explain @app.py, @main.go and @plan.md", ["app.py", "main.go", "plan.md"]),
        ("see @src/missing.txt and @nosrc/app.ts:3-4.", ["src/missing.txt", "nosrc/app.ts"]),
        ("see @src/missing, @src/a/b and @src/a/", ["src/missing", "src/a/b", "src/a/"]),
        ("see @./missing, @../missing and @~/missing", ["./missing", "../missing", "~/missing"]),
        ("see @.env, @.gitignore and @/etc/nosuch", [".env", ".gitignore", "/etc/nosuch"]),
        ("@app.py\nexplain it", ["app.py"]),
        ('the @"my notes.txt"', ["my notes.txt"]),
        ("the @picture.png of @prof.CSV", ["picture.png", "prof.CSV"]),
        ("ask @someone, @john.doe or @team", []),
        ("mail user@example.com, @example.com, @example.io, @me@host.social and @a.dev", []),
        ("add @types/node, @angular/common/http, @babel/core@7.0 and @types/socket.io", []),
        ("move @/components/Button and @/utils", []),
        ("@param name of @see and {@link Foo.java}", []),
        ("use @mock.patch, @app.get and @celery.task here", []),
        ("what is '@app.py', `see @a/b/c.py` or “@b.py”?", []),
        ("```\n@app.py\n@./x\n```", []),
        ("@app.get('/')\n@pytest.mark.parametrize(\"n\", [1])\n@dataclass(frozen=True)", []),
        ('@@ -1,2 +1,2 @@\n@media (width: 1px) {\n@import "a.css"', []),
        ("git show HEAD@{1} @{u} @~1 @", []),
    ],
)
def test_missing_files_and_text(project: Path, words: str, files: list[str]) -> None:
    assert [name for name, is_file in missing_names(words, project).items() if is_file] == files


def test_the_place_decides_about_unusual_names() -> None:
    names = ["made.org", "a.zzz", "types/node", "types/x/y", "other/node"]
    assert file_names(names, ["notes.org", "src/b.ZZZ"]) == ["made.org", "a.zzz"]
    assert file_names(names, ["types/a.ts"]) == ["types/node", "types/x/y"]
    assert file_names(names, ["types/a.ts", "package.json"]) == ["types/x/y"]


def test_a_folder_that_vanished_has_no_names(tmp_path: Path) -> None:
    assert missing_names("see @a.py", tmp_path / "gone") == {"a.py": True}
