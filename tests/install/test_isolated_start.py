"""Whatever the environment says: a start imports nothing from the project it works in."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ..support.command import AS_MODULE, COMMAND, PATIENCE, Place, comes

ROOT = Path(__file__).parents[2]
LAUNCHER = ROOT / "share" / "bin" / "ctxagent"
# What Python imports by itself, what the agent imports first, and what only commands need.
MODULES = ("encodings", "sitecustomize", "usercustomize", "typing", "click", "tiktoken", "ctxagent")
HOSTILE = {
    "a dot": {"PYTHONPATH": "."},
    "an empty entry": {"PYTHONPATH": "src:"},
    "a relative entry": {"PYTHONPATH": "src"},
    "the project": {"PYTHONPATH": "{project}"},
    "a folder in it": {"PYTHONPATH": "/nowhere:{project}/src"},
    "the home of Python": {"PYTHONHOME": "."},
    "a warning's class": {"PYTHONWARNINGS": "error::click.Warned"},
    "nothing": {},
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A project whose modules leave a mark when they are imported."""
    place = Place(tmp_path)
    for folder in (place.project, place.project / "src"):
        folder.mkdir(exist_ok=True)
        for name in MODULES:
            mark = f"open({str(tmp_path / 'mark')!r}, 'a').write(__name__)"
            (folder / f"{name}.py").write_text(mark)
    return place


def sprung(place: Place) -> str:
    """The modules of the project that were imported since the last call."""
    mark = place.root / "mark"
    found = mark.read_text() if mark.exists() else ""
    mark.unlink(missing_ok=True)
    return found


def environ(place: Place, variables: Mapping[str, str]) -> dict[str, str]:
    return place.environ({k: v.format(project=place.project) for k, v in variables.items()})


@pytest.mark.variants
@pytest.mark.slow
@pytest.mark.parametrize("variables", HOSTILE.values(), ids=list(HOSTILE))
def test_the_command_imports_nothing_of_the_project(
    place: Place, variables: Mapping[str, str]
) -> None:
    for arguments in (("--version",), ("sessions",), ("doctor", "--fetch-tokenizer")):
        env = environ(place, {**variables, "https_proxy": "http://127.0.0.1:9"})
        done = place.run(*arguments, env=env)
        assert "Traceback" not in done.stderr
        assert sprung(place) == "", arguments


def test_the_trap_works(place: Place) -> None:
    for name in ("encodings", "typing"):
        (place.project / f"{name}.py").unlink()
    plain = [sys.executable, "-c", "import click"]
    subprocess.run(plain, cwd=place.project, env=environ(place, HOSTILE["a dot"]), check=True)
    assert sprung(place) == "sitecustomizeclick"


@pytest.mark.slow
@pytest.mark.parametrize("given", [".", "src:", "{project}/src"])
def test_as_a_module_the_agent_imports_none_of_its_libraries_from_there(
    place: Place, given: str
) -> None:
    """Python itself has imported some before the agent begins."""
    for folder in (place.project, place.project / "src"):
        for name in ("ctxagent", "encodings", "typing", "sitecustomize"):
            (folder / f"{name}.py").unlink()
    env = environ(place, {"PYTHONPATH": given})
    done = place.run("--help", env=env, command=AS_MODULE)
    assert done.stdout.startswith("Usage: ctxagent "), done.stderr
    assert sprung(place) == ""


@pytest.mark.slow
def test_a_command_of_the_model_has_the_variables_of_the_person(place: Place) -> None:
    calls = [{"name": "Bash", "input": {"command": "printenv PYTHONPATH PYTHONSTARTUP > seen"}}]
    steps = {"steps": [{"tools": calls}, {"text": "Done."}]}
    (place.root / "steps.json").write_text(json.dumps(steps))
    env = place.environ({"PYTHONPATH": "src:.", "PYTHONSTARTUP": "x.py"})
    task = ("-p", "go", "--model", f"scripted:{place.root / 'steps.json'}")
    done = place.run(*task, "--permission-mode", "bypass", env=env)
    assert done.returncode == 0, done.stderr
    assert (place.project / "seen").read_text() == "src:.\nx.py\n"
    assert sprung(place) == ""


def fake_python(folder: Path) -> Path:
    """A program in the place of Python that says how it was started."""
    folder.mkdir(parents=True)
    (folder / "python").write_text('#!/bin/sh\necho "$0" "$@"\n')
    (folder / "python").chmod(0o755)
    return folder / "python"


FORMS = {
    "pip": "#!{python}\n",
    "pipx": "#!{python} -E\n",
    "uv": "#!/bin/sh\n'''exec' '{python}' \"$0\" \"$@\"\n' '''\n",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
@pytest.mark.parametrize("folder", ["bin", "with a space -E/and 'quotes'"])
def test_the_python_of_the_installer_is_started(tmp_path: Path, form: str, folder: str) -> None:
    if "quotes" in folder and "exec" in form:
        folder = "with a space -E"  # uv quotes a quote in a way of its own
    python = fake_python(tmp_path / folder)
    launcher = Path(shutil.copy(LAUNCHER, python.parent))
    (python.parent / "ctxagent-python").write_text(form.format(python=python) + '"""Doc"""\n')
    (tmp_path / "link").symlink_to(launcher)
    for name in (launcher, tmp_path / "link"):
        words = ["-p", "a b", "*", ""]
        done = subprocess.run([name, *words], capture_output=True, text=True, check=True)
        assert done.stdout == f"{python} -EP -m ctxagent -p a b * \n"


@pytest.mark.parametrize(("utf8", "options"), [("1", "-EP -Xutf8=1"), ("", "-EP")])
def test_the_encoding_of_the_person_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, utf8: str, options: str
) -> None:
    monkeypatch.setenv("PYTHONUTF8", utf8)
    python = fake_python(tmp_path / "bin")
    launcher = Path(shutil.copy(LAUNCHER, python.parent))
    (python.parent / "ctxagent-python").write_text(f'#!{python}\n"""Doc"""\n')
    done = subprocess.run([launcher, "-p"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{python} {options} -m ctxagent -p\n"


def test_without_the_name_of_a_python_the_launcher_fails(tmp_path: Path) -> None:
    launcher = Path(shutil.copy(LAUNCHER, tmp_path))
    done = subprocess.run([launcher], capture_output=True, text=True)
    assert done.returncode != 0
    assert "ctxagent-python" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_process_has_the_name_of_the_command(place: Place) -> None:
    with subprocess.Popen(
        [COMMAND, "acp"], cwd=place.project, env=place.environ(), stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert comes(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "ctxagent\n")
        process.communicate(timeout=PATIENCE)
