"""The manifest: valid lines, and errors for invalid ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from ctxagent.addons.fleet.check import StartCheck
from ctxagent.addons.fleet.findings import ManifestFindings
from ctxagent.addons.fleet.manifest import MAX_LINE_BYTES, Manifest, read_line
from ctxagent.agent.errors import UsageError

GOOD = {"id": "a", "prompt": "Do it.", "dir": "repo"}


def written(tmp_path: Path, *lines: Any) -> Path:
    path = tmp_path / "tasks.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts))
    return path


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[1]", "not a JSON object. Example of a line: {"),
        ('[{"id": "b"}, {"id": "c"}]', "an array of 2 tasks. Write each object on one line"),
        ('{\n "id": "b"\n}', "an object over 3 lines. Write each object on one line, without"),
        ({**GOOD, "id": "b", "cores": "2"}, 'must be a whole number above 0. Write "cores": 2.'),
        ({**GOOD, "id": "b", "env": "A"}, 'Write "env": ["A"].'),
        ({"defaults": {"dir": "x"}}, "defaults must be on the first line. Move it there"),
        ('{"id": "a"', "invalid JSON at column 11: Expecting ',' delimiter. Example of a line: {"),
        ("[" * 100_000, "invalid JSON. Example of a line: {"),
        ({"prompt": "x", "dir": "r"}, "id is missing"),
        ({"id": "a", "dir": "r"}, "prompt is missing"),
        ({**GOOD, "promt": "x"}, "unknown key promt. Did you mean prompt?"),
        ({**GOOD, "id": "../a"}, "id must be a name"),
        ({**GOOD, "id": "a..b"}, "id must be a name"),
        ({**GOOD, "prompt": " "}, "prompt must be a text"),
        ({**GOOD, "prompt": "-"}, "prompt must be a text"),
        ({**GOOD, "prompt": "x" * 100_001}, "at most 100,000 bytes"),
        ({**GOOD, "dir": "--upload-pack=x"}, "does not begin with -"),
        ({**GOOD, "git": "u"}, "give dir or git, not both"),
        ({"id": "a", "prompt": "x"}, "no working directory"),
        ({**GOOD, "commit": "abc"}, "commit needs git"),
        ({**GOOD, "budget_usd": 0}, "budget_usd must be a number above 0"),
        ({**GOOD, "budget_usd": True}, "budget_usd must be a number"),
        ({**GOOD, "time_limit": "5"}, "time_limit must be a number"),
        ({**GOOD, "cores": 1.5}, "cores must be a whole number"),
        ({**GOOD, "env": ["A B"]}, "env must be a list"),
        ({**GOOD, "settings": []}, "settings must be an object"),
        ({**GOOD, "worktree": 1}, "worktree must be true or false"),
    ],
)  # fmt: skip
def test_a_line_that_is_wrong_is_named(tmp_path: Path, line: Any, why: str) -> None:
    with pytest.raises(UsageError) as error:
        Manifest(written(tmp_path, GOOD, "", line))
    assert "tasks.jsonl:3: " in error.value.message
    assert why in error.value.message


def test_all_lines_that_are_wrong_are_named_but_not_without_end(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as few:
        Manifest(written(tmp_path, GOOD, "{", {**GOOD, "id": "b", "cores": 0}, GOOD))
    first, *lines = few.value.message.splitlines()
    assert first == f"3 mistakes in {tmp_path / 'tasks.jsonl'}:"
    for number, line in zip((2, 3, 4), lines, strict=True):
        assert f"tasks.jsonl:{number}: " in line
    with pytest.raises(UsageError) as many:
        Manifest(written(tmp_path, *[{**GOOD, "id": f"t{n}", f"x{n}": n} for n in range(60)]))
    lines = many.value.message.splitlines()
    assert (lines[0][:11], len(lines), lines[-1][:11]) == ("60 mistakes", 52, "and 10 more")


def test_the_same_mistake_in_many_lines_is_named_once(tmp_path: Path) -> None:
    lines = [{**GOOD, "id": f"t{n}", "cores": 0} for n in range(50)]
    with pytest.raises(UsageError, match=r"tasks.jsonl:1 and 49 more: cores must be"):
        Manifest(written(tmp_path, *lines))


def test_all_mistakes_of_a_line_are_named(tmp_path: Path) -> None:
    wrong = {"id": "a/b", "commit": "c", "cores": 0, "worktre": 1}
    with pytest.raises(UsageError) as error:
        Manifest(written(tmp_path, wrong))
    for what in ("id must be", "cores must be", "unknown key worktre. Did you mean worktree?",
                 "prompt is missing", "no working directory"):  # fmt: skip
        assert what in error.value.message


def test_paths_are_relative_to_the_folder_of_the_manifest(tmp_path: Path) -> None:
    models = ["scripted:s.json", "scripted:/s.json", "claude-sonnet-5-5"]
    tasks = [{**GOOD, "id": f"t{n}", "settings": {"model.id": id}} for n, id in enumerate(models)]
    manifest = Manifest(written(tmp_path, *tasks))
    found = [manifest.task(id).settings["model.id"] for id in manifest.lines]
    assert found == [f"scripted:{tmp_path}/s.json", *models[1:]]


def test_ids_are_unique(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"tasks.jsonl:2: line 1 has the same id a"):
        Manifest(written(tmp_path, GOOD, GOOD))


def test_unreadable_manifests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no task"):
        Manifest(written(tmp_path, "", " "))
    with pytest.raises(UsageError, match="No such file"):
        Manifest(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="more than"):
        Manifest(written(tmp_path, GOOD, "x" * (MAX_LINE_BYTES + 1)))


def test_a_task_is_read_again_by_its_offset(tmp_path: Path) -> None:
    texts = [{**GOOD, "id": f"t{n}", "prompt": f"Größe {n}" * n} for n in range(1, 50)]
    path = written(tmp_path, *texts)
    manifest = Manifest(path)
    assert [manifest.task(id).prompt for id in manifest.lines] == [t["prompt"] for t in texts]
    with path.open("a") as file:
        file.write("\n" + json.dumps({**GOOD, "id": "more"}))
    assert manifest.task("t7").prompt == texts[6]["prompt"]
    path.write_text("\n" * 9 + path.read_text())
    with pytest.raises(UsageError, match=r"the line of t7 in .* has changed"):
        manifest.task("t7")


def test_prompt_and_place_identify_a_task() -> None:
    def digest(**more: Any) -> str:
        return read_line({**GOOD, **more}, {})[0].digest

    assert digest() == digest(budget_usd=3, settings={"a": 1}, time_limit=5, env=["A"], cores=2)
    others = [digest(prompt="x"), digest(dir="y"), digest(worktree=False), digest(image="i")]
    assert len({digest(), *others}) == 5


def test_wrong_defaults_are_named_once(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"defaults": {"matrix": {"model": ["scripted:good.json"]}}}\n{"id": "a"}\n')
    with pytest.raises(UsageError) as raised:
        Manifest(path)
    first, *rest = raised.value.message.splitlines()[1:]
    assert first.startswith(f"{path}:1: matrix.model: ")
    assert first.endswith('Write {"good": "scripted:good.json"}.')
    assert "matrix" not in "".join(rest)


def test_wrong_settings_of_defaults_are_named_once(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"defaults": {"settings": {"model.idd": "x"}}}\n' + line("a") + line("b"))
    findings = ManifestFindings(path)
    check = StartCheck(findings, tmp_path, {"HOME": str(tmp_path)}, ())
    Manifest(path, None, findings, check)
    with pytest.raises(UsageError) as raised:
        findings.raise_errors()
    assert raised.value.message.startswith(f"{path}:1: settings: ")
    assert raised.value.message.count("model.idd") == 1


def line(id: str) -> str:
    return json.dumps({**GOOD, "id": id}) + "\n"
