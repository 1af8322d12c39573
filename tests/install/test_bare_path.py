"""The folder of programs for `make test BARE=1`, and the list of optional programs."""

import subprocess
import sys
from pathlib import Path

import pytest

from ctxagent.tests.install.bare_path import make_links

ROOT = Path(__file__).parents[2]
DPKG = """\
#!/bin/sh
case $* in
"--show "*) printf '%s\\n' 'yes coreutils' 'no curl' ' tmux' 'yes tar' ;;
"--listfiles coreutils tar") printf '%s\\n' /. /bin /bin/ls /usr/sbin/chroot /usr/share/doc/tar ;;
*) exit 1 ;;
esac
"""


def add(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(DPKG if name == "dpkg-query" else "#!/bin/sh\n")
        (folder / name).chmod(0o755)


def test_links_to_needed_and_essential_programs_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("dpkg-query", "git", "make", "awk", "ls", "chroot", "tar", "curl", "tmux")
    add(tmp_path / "system", *given)
    monkeypatch.setenv("PATH", str(tmp_path / "system"))
    folder = tmp_path / "links"
    for _ in range(2):  # also over an older folder
        make_links(folder)
        made = sorted(path.name for path in folder.iterdir())
        assert made == ["awk", "chroot", "git", "ls", "make", "python3"]
        (folder / "old").touch()
    asked = [folder / "python3", "-c", "import sys; print(sys.base_prefix)"]
    told = subprocess.run(asked, env={}, capture_output=True, text=True, check=True).stdout
    assert told.strip() == sys.base_prefix
    add(tmp_path / "other", "dpkg-query")
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    with pytest.raises(OSError, match="git is not in"):
        make_links(folder)


def test_optional_programs_are_pairs() -> None:
    rows = [line.split() for line in (ROOT / "tests/install/programs.txt").open()]
    assert all(len(row) == 2 for row in rows)
    assert sorted(rows) == rows
