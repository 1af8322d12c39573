"""The parts of a command that need approval: all are listed, dangerous ones first."""

from pathlib import Path

import pytest

from ctxagent.agent.permissions.approval import Approval

BODY = "\n".join(f"print({n})" for n in range(58))
DELETES = "rm -rf $HOME/.cache/thing"


@pytest.mark.parametrize(
    ("command", "first", "others"),
    [
        ("npm test", "npm test", []),
        (f"python3 - <<'E'\n{BODY}\nE\n{DELETES}", DELETES, ["python3"]),
        (f"python3 - <<'E'\n{BODY}\n{DELETES}\nE", DELETES, ["python3"]),
        (f"bash <<E\n{BODY}\n{DELETES}\nE", DELETES, ["bash"]),
        ("make && git push --force", "git push --force", ["make"]),
        ("make; git reset --hard; npm ci", "git reset --hard", ["make", "npm ci"]),
        ("make && sudo rm -rf /x", "sudo rm -rf /x", ["rm -rf /x", "make"]),
        ("make && sh -c 'cd x; rm -rf y'", "rm -rf y", ["make"]),
        ("make > out", "make", ["out"]),
        ("for i in a b; do rm -f $i; done", "rm -f $i", []),
        ("git commit -m 'no rm -rf x'", "git commit -m 'no rm -rf x'", []),
        ("node -e 'fs.rmSync(\"x\")'", 'rmSync("x")\'', ["node"]),
        ("python3 - <<E\nimport os\nos.system('x')\nE", "os.system('x')", ["python3"]),
    ],
)
def test_the_dangerous_part_comes_first(
    tmp_path: Path, command: str, first: str, others: list[str]
) -> None:
    causes = Approval(cwd=tmp_path).causes(command)
    assert causes[0][0] == first
    assert f"`{first}`" in causes[0][1]
    named = [text for text, _ in causes[1:]]
    assert all(any(text.startswith(other) for text in named) for other in others), named


def test_what_is_allowed_is_no_cause(tmp_path: Path) -> None:
    approval = Approval(cwd=tmp_path, allow=["Bash(make:*)"])
    assert approval.causes("ls && make") == []
    assert [text for text, _ in approval.causes("ls && make && npm ci")] == ["npm ci"]


def test_a_long_script_names_a_bounded_number_of_lines(tmp_path: Path) -> None:
    script = "python3 - <<'E'\n" + "os.system('x')\n" * 5_000 + "E"
    assert len(Approval(cwd=tmp_path).causes(script)) < 30
