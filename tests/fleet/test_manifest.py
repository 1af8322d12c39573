"""The manifest: what a line may say, and what is said of a line that is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.errors import UsageError
from ctxagent.agent.fleet.checks import StartCheck
from ctxagent.agent.fleet.manifest import MAX_LINE_BYTES, Manifest, parse_task

GOOD = {"id": "a", "prompt": "Do it.", "dir": "repo"}


def written(tmp_path: Path, *lines: Any) -> Path:
    path = tmp_path / "tasks.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts))
    return path


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[1]", "no JSON object. A line is such as {"),
        ('{"id": "a"', "no JSON at column 11: Expecting ',' delimiter. A line is such as {"),
        ("[" * 100_000, "no JSON that can be read. A line is such as {"),
        ({"prompt": "x", "dir": "r"}, "id is missing"),
        ({"id": "a", "dir": "r"}, "prompt is missing"),
        ({**GOOD, "promt": "x"}, "promt is no key of a task"),
        ({**GOOD, "id": "../a"}, "id is to be a name"),
        ({**GOOD, "id": "a..b"}, "id is to be a name"),
        ({**GOOD, "prompt": " "}, "prompt is to be a text"),
        ({**GOOD, "prompt": "-"}, "prompt is to be a text"),
        ({**GOOD, "prompt": "x" * 100_001}, "at most 100,000 bytes"),
        ({**GOOD, "dir": "--upload-pack=x"}, "does not begin with -"),
        ({**GOOD, "git": "u"}, "dir and git are two places"),
        ({"id": "a", "prompt": "x"}, "no place"),
        ({**GOOD, "commit": "abc"}, "commit needs git"),
        ({**GOOD, "budget_usd": 0}, "budget_usd is to be a number above 0"),
        ({**GOOD, "budget_usd": True}, "budget_usd is to be a number"),
        ({**GOOD, "time_limit": "5"}, "time_limit is to be a number"),
        ({**GOOD, "cores": 1.5}, "cores is to be a whole number"),
        ({**GOOD, "env": ["A B"]}, "env is to be a list"),
        ({**GOOD, "settings": []}, "settings is to be an object"),
        ({**GOOD, "worktree": 1}, "worktree is to be true or false"),
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
    assert first == "3 lines cannot be run:"
    for number, line in zip((2, 3, 4), lines, strict=True):
        assert f"tasks.jsonl:{number}: " in line
    with pytest.raises(UsageError) as many:
        Manifest(written(tmp_path, *["{"] * 50))
    lines = many.value.message.splitlines()
    assert (lines[0], len(lines), lines[-1]) == ("50 lines cannot be run:", 22, "and 30 more")


def test_what_is_relative_is_so_to_the_folder_of_the_manifest(tmp_path: Path) -> None:
    models = ["scripted:s.json", "scripted:/s.json", "claude-sonnet-5-5"]
    tasks = [{**GOOD, "id": f"t{n}", "settings": {"model.id": id}} for n, id in enumerate(models)]
    manifest = Manifest(written(tmp_path, *tasks))
    found = [manifest.task(id).settings["model.id"] for id in manifest.lines]
    assert found == [f"scripted:{tmp_path}/s.json", *models[1:]]


def test_ids_are_those_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"tasks.jsonl:2: the id a is that of another line"):
        Manifest(written(tmp_path, GOOD, GOOD))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no task"):
        Manifest(written(tmp_path, "", " "))
    with pytest.raises(UsageError, match="No such file"):
        Manifest(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="more than"):
        Manifest(written(tmp_path, GOOD, "x" * (MAX_LINE_BYTES + 1)))


def test_a_task_is_read_again_from_where_it_stands(tmp_path: Path) -> None:
    texts = [{**GOOD, "id": f"t{n}", "prompt": f"Größe {n}" * n} for n in range(1, 50)]
    path = written(tmp_path, *texts)
    manifest = Manifest(path)
    assert [manifest.task(id).prompt for id in manifest.lines] == [t["prompt"] for t in texts]
    with path.open("a") as file:
        file.write("\n" + json.dumps({**GOOD, "id": "more"}))
    assert manifest.task("t7").prompt == texts[6]["prompt"]
    path.write_text("\n" * 9 + path.read_text())
    with pytest.raises(UsageError, match="was changed where t7 stood"):
        manifest.task("t7")


def test_what_makes_it_another_task() -> None:
    def digest(**more: Any) -> str:
        return parse_task(json.dumps({**GOOD, **more}).encode()).digest

    assert digest() == digest(budget_usd=3, settings={"a": 1}, time_limit=5, env=["A"], cores=2)
    others = [digest(prompt="x"), digest(dir="y"), digest(worktree=False), digest(image="i")]
    assert len({digest(), *others}) == 5


def test_wrong_defaults_are_named_once(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"defaults": {"matrix": {"model": ["scripted:good.json"]}}}\n{"id": "a"}\n')
    with pytest.raises(UsageError) as raised:
        Manifest(path)
    assert raised.value.message.startswith(f"{path}:1: matrix.model: ")
    assert raised.value.message.endswith('write {"good": "scripted:good.json"}')


def test_wrong_settings_of_defaults_are_named_once(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"defaults": {"settings": {"model.idd": "x"}}}\n' + line("a") + line("b"))
    check = StartCheck(tmp_path, {"HOME": str(tmp_path)}, (), None, {})
    with pytest.raises(UsageError) as raised:
        Manifest(path, check.check_task, check_settings=check.check_settings)
    assert raised.value.message.startswith(f"{path}:1: settings: ")
    assert raised.value.message.count("model.idd") == 1


def line(id: str) -> str:
    return json.dumps({**GOOD, "id": id}) + "\n"
