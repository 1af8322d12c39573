"""Hostile commands, each with a similar harmless one: the first needs approval, the second does
not.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxagent.agent.permissions.approval import Approval
from ctxagent.tools.bash import BashParams, BashTool

RULES = ("Bash(git:*)", "Bash(pytest:*)", "Bash(python3 -m pytest:*)", "Bash(tox:*)",
         "Bash(npx jest:*)", "Bash(cargo test:*)", "Bash(go test:*)", "Bash(uv run pytest:*)",
         "Bash(make:*)")  # fmt: skip

# Each line is a family: the words for %, the hostile command, and its twin.
FAMILIES = (Path(__file__).parent / "twins.txt").read_text()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("twins") / "project"
    for folder in ("src", "tests", "out"):
        (root / folder).mkdir(parents=True)
    for file in ("a.py", "src/b.py", "tests/test_a.py", "f"):
        (root / file).write_text("x\n")
    (root.parent / "secret").write_text("x\n")
    subprocess.run(["git", "init", "-q", "-b", "main", root], check=True)
    return root


def words_of(text: str) -> list[str]:
    return [word.replace("\0", " ") for word in text.replace("\\ ", "\0").split()]


def pairs() -> Iterator[tuple[str, str]]:
    """Yield the hostile command and its twin. In a family of four columns, % is replaced by its
    words, and @ by the second column in the hostile command and by the third in the twin.
    """
    for line in FAMILIES.strip().replace("\\|", "\1").split("\n"):
        instances, first, second, *rest = (part.replace("\1", "|") for part in line.split(" || "))
        for instance in words_of(instances):
            if not rest:
                yield first.replace("%", instance), second.replace("%", instance)
                continue
            for hostile, twin in zip(words_of(first), words_of(second), strict=True):
                template = rest[0].replace("%", instance)
                yield template.replace("@", hostile), template.replace("@", twin)


def judged(project: Path, command: str) -> str:
    """The verdict, in a project with a link that leads out if the command names it."""
    link = project / "link"
    link.unlink(missing_ok=True)
    if "link/" in command:
        link.symlink_to(project.parent)
    params = BashParams.model_validate({"command": command})
    approval = Approval(cwd=project, allow=RULES)
    approval.kernel_confines_read_only = lambda: True
    return approval.judge(BashTool(), params).action


def test_every_pair_is_told_apart(project: Path) -> None:
    found = list(dict.fromkeys(pairs()))
    assert [hostile for hostile, _ in found if judged(project, hostile) != "ask"] == []
    twins = dict.fromkeys(twin for _, twin in found)
    refused = [twin for twin in twins if judged(project, twin) != "allow"]
    assert refused == [], "\n".join(refused)


def test_there_are_many() -> None:
    hostile, harmless = zip(*pairs(), strict=True)
    assert len(set(hostile)) > 450
    assert len(set(harmless)) >= 300
