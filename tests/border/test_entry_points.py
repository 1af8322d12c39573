"""Entry points of installed packages, read from their files."""

from pathlib import Path
from subprocess import STDOUT

import pytest

from ctxagent.agent.border.entry_points import SERVICES, EntryPoint, entry_points, service
from ctxagent.agent.errors import UsageError
from ctxagent.tests.support.command import AS_MODULE, PIPE, Place

TEXT = """
[console_scripts]
other = no.module:f

[ctxagent.commands]
# a comment
hello = mine.hello:command
sessions count = mine.count:command
extra = mine.extra:command [cli]
not a line
[ctxagent.services]
hello = mine.hello:service
"""


def package(folder: Path, name: str, text: str | bytes) -> Path:
    about = folder / f"{name}.dist-info"
    about.mkdir(parents=True)
    (about / "entry_points.txt").write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def test_names_of_a_group(tmp_path: Path) -> None:
    place = package(tmp_path, "my_pack-1.2", TEXT)
    metadata = "Metadata-Version: 2.1\nName: My-Pack\nVersion: 1.2\n\nName: in the text\n"
    (place / "my_pack-1.2.dist-info" / "METADATA").write_text(metadata)
    found = entry_points("ctxagent.commands", [str(place)])
    assert list(found) == ["hello", "sessions count", "extra"]
    assert found["hello"] == EntryPoint("hello", "mine.hello:command", "My-Pack 1.2")
    assert found["extra"].value == "mine.extra:command"


def test_the_first_package_has_the_name(tmp_path: Path) -> None:
    first, second = package(tmp_path / "a", "one-1", TEXT), package(tmp_path / "b", "two-1", TEXT)
    found = entry_points(SERVICES, [str(first), str(tmp_path / "missing"), str(second)])
    assert found["hello"].package == "one-1"


def test_a_damaged_package_declares_nothing(tmp_path: Path) -> None:
    package(tmp_path, "bad-1", b"[ctxagent.services]\n\xff = x\n")
    (tmp_path / "empty-1.dist-info").mkdir()
    assert entry_points(SERVICES, [str(tmp_path)]) == {}


def test_a_point_is_an_object_in_a_module() -> None:
    assert EntryPoint("join", "os.path:join", "").load() is __import__("os").path.join
    with pytest.raises(AttributeError):
        EntryPoint("none", "os.path:nothing", "").load()


def test_a_missing_service_names_the_add_on() -> None:
    with pytest.raises(UsageError, match="needs the add-on 'nothing'"):
        service("nothing")


def test_a_broken_service_names_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "broken_pack-1.0", f"[{SERVICES}]\nbroken-service = no_such_module:f\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        UsageError, match=r"'broken-service' of broken_pack-1\.0 cannot be loaded: "
    ):
        service("broken-service")


@pytest.mark.slow
def test_a_package_of_someone_adds_commands(tmp_path: Path) -> None:
    """A stranger's package has a command of its own, and one of a group."""
    place, packages = Place(tmp_path / "place"), tmp_path / "packages"
    points = "[ctxagent.commands]\nhello = hello_pack:hello\nsessions count = hello_pack:count\n"
    package(packages, "hello_pack-1.0", points)
    (packages / "hello_pack.py").write_text(
        "import click\n\n"
        "@click.command()\ndef hello():\n    '''Say hello.'''\n    click.echo('Hello.')\n\n"
        "@click.command()\n@click.argument('id')\ndef count(id):\n    click.echo(f'count {id}')\n"
    )
    env = place.environ({"PYTHONPATH": str(packages)})
    for words, said in ((["hello"], "Hello.\n"), (["sessions", "count", "7"], "count 7\n")):
        with place.start(*words, command=AS_MODULE, env=env, stdout=PIPE) as process:
            assert process.communicate(timeout=60)[0] == said


@pytest.mark.slow
def test_a_project_adds_no_commands(tmp_path: Path) -> None:
    place = Place(tmp_path)
    package(place.project, "evil-1", "[ctxagent.commands]\nsessions evil = evil:command\n")
    (place.project / "evil.py").write_text("print('it runs')\n")
    with place.start(
        "sessions", "--help", command=AS_MODULE, env=place.environ(), stdout=PIPE
    ) as process:
        out = process.communicate(timeout=60)[0]
    assert "evil" not in out
    assert "it runs" not in out


@pytest.mark.slow
@pytest.mark.parametrize("source", ["1 / 0", "command = 5", "import no_such_module"])
def test_a_broken_package_breaks_only_its_command(tmp_path: Path, source: str) -> None:
    place, packages = Place(tmp_path / "place"), tmp_path / "packages"
    package(packages, "bad_pack-1.0", "[ctxagent.commands]\nbroken = bad_pack:command\n")
    (packages / "bad_pack.py").write_text(f"{source}\n")
    env = place.environ({"PYTHONPATH": str(packages)})

    def ended(*words: str) -> tuple[int, str]:
        with place.start(*words, command=AS_MODULE, env=env, stdout=PIPE, stderr=STDOUT) as process:
            out = process.communicate(timeout=60)[0]
        return process.returncode, out

    code, said = ended("broken", "--option", "word")
    assert code == 2
    assert "the command 'broken' of bad_pack-1.0 cannot be loaded: " in said
    code, said = ended("--help")
    assert code == 0
    assert "Not usable: " in said
    assert "sessions" in said
