"""The guide's text about the scripted model, checked with the real command."""

import json
import re
from pathlib import Path

import pytest

from ..support.command import Place

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "install.md"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_script_of_the_guide_plays(place: Place) -> None:
    found = re.search(
        r"<<'END'\n(.*?)\n    END\n    ctxagent ([^\n]*)\n", GUIDE.read_text(), re.DOTALL
    )
    assert found is not None
    (place.project / "hello.json").write_text(found[1])
    assert found[2] == '--model scripted:hello.json -p "what is here?" --verbose'
    done = place.run("--model", "scripted:hello.json", "-p", "what is here?", "--verbose")
    assert (done.returncode, done.stdout) == (0, "These are the files.\n"), done.stderr
    assert "● Bash ls" in done.stderr
    assert "· scripted ·" in done.stderr  # it says what it is
    (result,) = [entry for entry in place.entries() if entry["kind"] == "tool_result"]
    assert "hello.json" in result["content"]


def test_every_key_that_the_guide_names(place: Place) -> None:
    named = re.findall(r"^\| (`.*?) \|", GUIDE.read_text().split("## Completion")[0], re.MULTILINE)
    keys = re.findall(r"`(\w+)`", " ".join(named))
    values = {"text": "Yes.", "thinking": "Hm.", "tools": [], "stop_reason": None, "delay": 0}
    assert sorted(keys) == sorted(values)
    (place.project / "a.json").write_text(json.dumps({"steps": [values]}))
    done = place.run("--model", "scripted:a.json", "-p", "hello")
    assert (done.returncode, done.stdout) == (0, "Yes.\n"), done.stderr


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("{", "the script is not JSON"),
        ("[]", "a script is an object with a list of `steps`"),
        ('{"steps": ["hi"]}', "step 1 is not an object"),
        ('{"steps": [{"text": 3}]}', "step 1: `text` is not a text"),
        ('{"steps": [{}, {"delay": "1"}]}', "step 2: `delay` is not a number"),
        ('{"steps": [{"tools": {}}]}', "step 1: `tools` is not a list"),
        ('{"steps": [{"tools": ["Bash"]}]}', "step 1: a tool is "),
    ],
)
def test_invalid_script_error_shows_a_valid_one(place: Place, script: str, told: str) -> None:
    (place.project / "bad.json").write_text(script)
    done = place.run("--model", "scripted:bad.json", "-p", "hello")
    assert done.returncode == 2
    assert told in done.stderr
    example = done.stderr.partition("Example: ")[2]
    (place.project / "good.json").write_text(example)
    allowed = ("--permission-mode", "bypass")
    done = place.run("--model", "scripted:good.json", *allowed, "-p", "hello")
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr


def test_a_script_that_is_at_its_end(place: Place) -> None:
    (place.project / "one.json").write_text(
        '{"steps": [{"tools": [{"name": "Read", "input": {"path": "one.json"}}]}]}'
    )
    done = place.run("--model", "scripted:one.json", "-p", "hello")
    assert done.returncode == 5
    assert "The script has 1 step and this is call 2." in done.stderr
