"""The wheel: everything in it stands under `ctxagent`, and works in a hostile directory."""

import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a clean export of what git tracks and what is new."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    for name in listed.stdout.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file() and not path.is_symlink():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(path.read_bytes())
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", folder, source],
        check=True, capture_output=True,
    )  # fmt: skip
    return next(folder.glob("*.whl"))


def test_packages_listed_are_the_folders_there_are() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {"ctxagent"} | {
        ".".join(("ctxagent", *path.parent.relative_to(ROOT).parts))
        for top in ("agent", "tools")
        for path in (ROOT / top).rglob("__init__.py")
    }
    assert set(listed) == found


def test_the_wheel_has_one_top_level_and_its_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"ctxagent"}
    assert {
        "ctxagent/agent/prompts/system.md",
        "ctxagent/py.typed",
        "ctxagent/agent/cli/demo.toml",
        *(
            str(Path("ctxagent") / path.relative_to(ROOT))
            for folder in ("agent/export", "agent/replay/report")
            for path in (ROOT / folder).iterdir()
            if path.suffix in (".css", ".js", ".j2")
        ),
    } <= {*names}
    assert not [name for name in names if "/tests/" in name]


def test_the_command_works_among_a_strangers_agent_and_tools(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, symlinks=True, with_pip=False)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python]
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", wheel], check=True)
    ours = next(p for p in map(Path, sys.path) if (p / "click").is_dir())
    target = next((home / "lib").glob("python*/site-packages"))
    (target / "dependencies.pth").write_text(f"{ours}\n")
    hostile = tmp_path / "project"
    for name in ("agent", "tools", "ctxagent_tools"):
        (hostile / name).mkdir(parents=True)
        (hostile / name / "__init__.py").write_text("raise SystemExit('the stranger ran')\n")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": ".", "HOME": str(tmp_path)}
    script = '{"steps": [{"text": "hello from the script"}]}'
    (tmp_path / "script.json").write_text(script)
    for arguments in (["--version"], ["-p", "hi", "--model", f"scripted:{tmp_path}/script.json"]):
        done = subprocess.run(
            [home / "bin" / "ctxagent", *arguments],
            cwd=hostile, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "stranger" not in done.stdout + done.stderr
    assert "hello from the script" in done.stdout
