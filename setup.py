"""What the build adds to pyproject.toml: the packages; in sdist and wheel also the commit."""

import runpy
import shutil
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

if sys.version_info < (3, 11):  # noqa: UP036 (pip would blame a package that needs a newer Python)
    sys.exit(
        f"ctxagent needs Python 3.11 or newer. This is Python {sys.version.split()[0]}.\n"
        "Install a newer Python, and run: python3.11 -m pip install ."
    )

ROOT = Path(__file__).resolve().parent
ROOMS = ("addons*", "agent*", "api*", "tools*")
COMMIT = runpy.run_path(str(ROOT / "agent" / "cli" / "commit.py"))


def record_commit(tree: Path) -> None:
    """Write the commit into the record of a copy of the project, where there is one to write."""
    commit = COMMIT["find_commit"](ROOT)
    if commit:
        record = tree / COMMIT["RECORD"]
        record.unlink(missing_ok=True)  # it may be a hard link to the project's own
        record.write_text(f"{commit}\n")


class BuildWithCommit(build_py):
    """Copies the modules into the wheel, and the commit. The wheel of an editable install gets a
    path file instead: type checkers do not see the import hook of setuptools."""

    def run(self) -> None:
        package = Path(self.build_lib, "ctxagent")
        shutil.rmtree(package, ignore_errors=True)  # modules of an earlier build
        super().run()
        if self.editable_mode:
            wheel = Path(self.get_finalized_command("install").install_lib)
            (wheel / "ctxagent.pth").write_text(f"{ROOT / '.typing'}\n")
        else:
            record_commit(package)


class SdistWithCommit(sdist):
    """Copies the sources into the sdist, and the commit."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        record_commit(Path(base_dir))


setup(
    script_name="setup.py",  # is no module of the package
    packages=["ctxagent", *(f"ctxagent.{name}" for name in find_packages(ROOT, include=ROOMS))],
    cmdclass={"build_py": BuildWithCommit, "sdist": SdistWithCommit},
)
