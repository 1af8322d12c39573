"""Builds what the Dockerfile says, starts `ctxagent` in it as its user, and plays the demo.

    make container-check                  # step by step in a fresh root, without an engine
    make container-check ENGINE=docker    # by an engine: docker or podman

Step by step it needs root, util-linux and mmdebstrap, and takes some minutes. The fresh root has
the packages of the release that the image is named for, not that image's own bytes. It shares the
network with the machine, and nothing limits it: this tries the steps, not a container.
"""

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ctxagent import __version__
from ctxagent.tests.install.debian_root import (
    CheckFailed,
    DebianRoot,
    make_archive,
    require_roots,
    unpack,
)
from ctxagent.tests.install.dockerfile import (
    NAME,
    Context,
    Copy,
    DockerfileError,
    EntryPoint,
    Env,
    From,
    Run,
    Step,
    User,
    WorkDir,
    expand,
    read_steps,
)

ROOT = Path(__file__).parents[2]
IMAGE = re.compile(r"debian:([a-z]+)-slim")
Start = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


@dataclass
class Stage(DebianRoot):
    """A stage of the build: its root, and what holds for the next step in it."""

    entry_point: tuple[str, ...] = ()


def build(steps: list[Step], context: Context, folder: Path) -> Stage:
    """Take every step of a Dockerfile in fresh roots below `folder`; return the last stage."""
    base: dict[str, Path] = {}
    stages: dict[str, Stage] = {}
    stage = Stage(folder)
    for step in steps:
        print(f"--- {step}", flush=True)
        if isinstance(step, From):
            archive = base.get(step.image) or make_base(step.image, folder)
            base[step.image] = archive
            stage = Stage(folder / f"stage-{len(stages)}")
            stages[step.name or str(len(stages))] = stage
            unpack(archive, stage.root)
        elif isinstance(step, Copy):
            copy(step, stage, context, stages)
        else:
            take(step, stage)
    return stage


def make_base(image: str, folder: Path) -> Path:
    """Make the archive of a root that stands in for an image of Debian, of the same release."""
    named = IMAGE.fullmatch(image)
    if named is None:
        raise CheckFailed(f"there is no stand-in for {image}")
    archive = folder / f"{named[1]}.tar"
    make_archive(named[1], archive)
    return archive


def take(step: Step, stage: Stage) -> None:
    """Take a step that needs its own stage alone. Raises CheckFailed if a command fails."""
    match step:
        case Run(command):
            done = stage.start(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL)
            if done.returncode:
                raise CheckFailed(f"exit code {done.returncode}: {command}")
        case Env(values):
            before = dict(stage.environ)
            stage.environ |= {name: expand(value, before) for name, value in values}
        case User(name):
            stage.user = name
        case WorkDir(path):
            place = stage.inside(path)
            place.mkdir(parents=True, exist_ok=True)
            stage.folder = f"/{place.relative_to(stage.root)}"
        case EntryPoint(words):
            stage.entry_point = words
        case _:
            raise CheckFailed(f"nobody takes {step}")


def copy(step: Copy, stage: Stage, context: Context, stages: dict[str, Stage]) -> None:
    """Copy what a step names, as root, from the project or from a stage before."""
    target = stage.inside(step.target)
    for source in step.sources:
        if step.stage is not None:
            target.mkdir(parents=True, exist_ok=True)
            place = stages[step.stage].inside(source)
            subprocess.run(["cp", "-a", f"{place}/.", target], check=True)
            continue
        if source != ".":
            raise CheckFailed(f"only all of the project is copied, not {source}")
        for name in context.files():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(context.root / name, target / name, follow_symlinks=False)


def check(start: Start, user_id: str) -> None:
    """Try the program in the container. Raises CheckFailed for what is not as it should be.

    `start` runs the entry point with the words that it is given.
    """
    if user_id.strip() in ("", "0"):
        raise CheckFailed(f"the user of the container is {user_id.strip() or 'not there'}")
    version = output(start(["--version"]))
    if not re.fullmatch(rf"ctxagent {re.escape(__version__)} \(.*Python 3\.\d+\.\d+\)\n", version):
        raise CheckFailed(f"--version says {version!r}")
    findings = json.loads(start(["doctor", "--json"]).stdout)["findings"]
    for finding in findings:
        print(f"{'ok' if finding['ok'] else 'FAIL':<4}  {finding['what']}: {finding['found']}")
    wrong = [finding["what"] for finding in findings if not finding["ok"]]
    if wrong != ["credentials"]:  # there are none in the image
        raise CheckFailed(
            f"doctor finds wrong: {', '.join(wrong) or 'not even that there is no key'}"
        )
    demo = output(start(["demo", "--fast"]))
    if not demo.rstrip().endswith("The project and the session of this demo are deleted."):
        raise CheckFailed("the demo did not come to its end")


def output(done: "subprocess.CompletedProcess[str]") -> str:
    """Return what a command printed, and print it. Raises CheckFailed if the command failed."""
    print(done.stdout, flush=True)
    if done.returncode:
        raise CheckFailed(f"exit code {done.returncode}: {shlex.join(map(str, done.args))}")
    return done.stdout


def check_by_steps() -> None:
    """Take the steps of the Dockerfile in a fresh root, and try the program there."""
    require_roots()
    with tempfile.TemporaryDirectory(prefix="ctxagent-container-") as folder:
        Path(folder).chmod(0o755)
        stage = build(read_steps((ROOT / NAME).read_text()), Context(ROOT), Path(folder))
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        check(
            lambda words: stage.start([*stage.entry_point, *words], **quiet),
            stage.start(["id", "-u"], **quiet).stdout,
        )
        size = subprocess.run(["du", "-sm", stage.root], capture_output=True, text=True, check=True)
        print(f"The root takes {size.stdout.split()[0]} MB.")


def check_by_engine(engine: str) -> None:
    """Build the image by an engine, and try the program in containers without a network."""
    image = "ctxagent-check"
    subprocess.run([engine, "build", "--network=host", f"--tag={image}", ROOT], check=True)

    def start(words: Sequence[str], *options: str) -> "subprocess.CompletedProcess[str]":
        run = [engine, "run", "--rm", "--network=none", *options, image, *words]
        return subprocess.run(run, check=False, text=True, stdout=subprocess.PIPE)

    check(start, start(["-u"], "--entrypoint=id").stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", help="build by docker or podman instead of step by step")
    engine = parser.parse_args().engine
    try:
        check_by_engine(engine) if engine else check_by_steps()
    except (CheckFailed, DockerfileError, subprocess.CalledProcessError) as error:
        sys.exit(f"FAILED: {error}")
    print(f"{NAME}: {'the container' if engine else 'every step'} was tried, and all is well.")
