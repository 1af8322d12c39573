"""A folder with a minimal Debian, in which commands run as on a machine of its own.

It needs root, mmdebstrap and util-linux. The commands share the network with the machine, and
nothing limits them. Their mounts and processes end with them.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
CERTIFICATES = "/run/certificates.crt"
# As in Debian's slim images: packages without manuals, and no downloaded packages.
_SLIM = (
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "info", "locale")),
    '--aptopt=DPkg::Post-Invoke {"rm -f /var/cache/apt/archives/*.deb";}',
    '--aptopt=Dir::Cache { pkgcache ""; srcpkgcache ""; }',
)
# The variables that say how this machine reaches packages.
_PASSED_ON = re.compile(
    "PIP_(?:EXTRA_)?INDEX_URL|PIP_TRUSTED_HOST|(?:https?|no)_proxy", re.IGNORECASE
)
# Makes a folder the root of this process. Not by chroot: processes in one cannot make user
# namespaces.
_ENTER = """\
set -eu
PATH=$PATH:/usr/sbin:/sbin
root=$1 folder=$2; shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
[ ! -d "$root/dev/shm" ] || mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/dev/shm"
mount --rbind /sys "$root/sys"
while [ "$1" != -- ]; do
    mount --bind "$1" "$2"
    shift 2
done
shift
cd "$root"
pivot_root . .
umount -l .
cd "$folder"
setsid "$@"  # a session whose number exists in here; this shell takes in orphans
"""


class CheckFailed(Exception):
    """Something in the root is not as it should be, or no root can be made."""


@dataclass
class DebianRoot:
    """A folder with a Debian, and what holds for the next command in it."""

    root: Path
    environ: dict[str, str] = field(default_factory=lambda: {"PATH": SYSTEM_PATH})
    user: str = "root"
    folder: str = "/"
    binds: dict[Path, str] = field(default_factory=dict)  # of the machine: path -> path in the root

    def start(self, command: Sequence[str], **more: object) -> "subprocess.CompletedProcess[str]":
        """Run a command in the root, as its user, and wait for it."""
        environ = _machine_environment(os.environ) | self.environ
        words = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in environ.items())]
        if self.user != "root":
            who = (f"--reuid={self.user}", f"--regid={self.user}", "--init-groups")
            words = ["/usr/bin/setpriv", *who, "--inh-caps=-all", *words]
        enter = ["sh", "-c", _ENTER, "enter", self.root, self.folder, *self._binds(), "--"]
        spaces = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child"]
        return subprocess.run([*spaces, *enter, *words, *command], check=False, text=True, **more)

    def inside(self, path: str) -> Path:
        """Return where a path of the root is for us. Raises CheckFailed if a link leads it out."""
        place = (self.root / self.folder.lstrip("/") / path).resolve()
        if path.startswith("/"):
            place = (self.root / path.lstrip("/")).resolve()
        if not place.is_relative_to(self.root):
            raise CheckFailed(f"{path} leads out of the root")
        return place

    def _binds(self) -> Iterator[Path]:
        """Yield source and target of each mount in turn. The target exists afterwards."""
        files = {
            Path("/etc/resolv.conf"): "/etc/resolv.conf",
            _certificates_of_machine(): CERTIFICATES,
        }
        for source, name in {**files, **self.binds}.items():
            if not source.exists():
                continue
            target = self.inside(name)
            if source.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.touch()
            yield from (source, target)


def require_roots() -> None:
    """Raise CheckFailed with what to do if no root can be made here."""
    if os.geteuid() != 0:
        raise CheckFailed("a root folder can only be made by root; run the command with sudo")
    needed = {"mmdebstrap": "mmdebstrap", "unshare": "util-linux", "setpriv": "util-linux"}
    missing = sorted({package for name, package in needed.items() if not shutil.which(name)})
    if missing:
        packages = " and ".join(missing)
        raise CheckFailed(f"{packages} is missing; install it (apt-get install {packages})")
    spaces = subprocess.run(
        ["unshare", "--mount", "--pid", "--ipc", "--fork", "mount", "-t", "proc", "proc", "/proc"],
        capture_output=True,
        text=True,
    )
    if spaces.returncode:
        raise CheckFailed(
            "this system allows no mount and process namespaces; in a container, it must be "
            f"privileged ({spaces.stderr.strip()})"
        )


def make_archive(release: str, archive: Path, packages: Sequence[str] = ()) -> None:
    """Make the archive of a root with a release of Debian, its essential parts and `packages`."""
    included = [f"--include={','.join(packages)}"] if packages else []
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", *_SLIM, *included, release, archive],
        check=True,
    )


def unpack(archive: Path, root: Path) -> None:
    """Unpack the archive of a root into a new folder."""
    root.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", root], check=True)


def _certificates_of_machine() -> Path:
    """Return the file of the authorities that this machine trusts."""
    return Path(os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt")


def _machine_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a command needs to reach packages from this machine."""
    passed = {name: value for name, value in environ.items() if _PASSED_ON.fullmatch(name)}
    return passed | {"PIP_CERT": CERTIFICATES}
