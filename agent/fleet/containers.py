"""Run a command in the container of a task, and remove the container."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from ..models.factory import is_provider_variable
from .orders import AttemptOrder
from .places import PlaceError

ENGINES = ("docker", "podman")
MAX_ANSWER_S = 10.0  # timeout of `info`, which checks that an engine works


def in_container(
    order: AttemptOrder, place: Path, env: Mapping[str, str], more: Iterable[str] = ()
) -> list[str]:
    """Return the command that runs another command in a container. The container has the task's
    folder and working directory at the same paths, and the variables named in `more`. A container
    left by a killed run is removed. Raises PlaceError.
    """
    engine, task, home = remove_container(order), order.task, order.folder.path / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    order.fleet.wait_file.touch(mode=0o600)
    given = [name for name in env if is_provider_variable(name)]
    is_mapped = Path(engine).name == "podman" and os.getuid() != 0  # rootless Podman maps user IDs
    user = "--userns=keep-id" if is_mapped else f"--user={os.getuid()}:{os.getgid()}"
    seen = dict.fromkeys([order.folder.path, place, order.fleet.wait_file])
    return [
        engine, "run", "--rm", "--init", "--name", _container_name(order), user,
        "--workdir", str(place),
        *(f"--mount=type=bind,source={path},target={path}" for path in seen),
        *(f"--env={name}" for name in dict.fromkeys([*given, *task.env, *more])),
        f"--env=HOME={home}",
        *([f"--cpus={task.cores}"] if task.cores > 1 else []),
        *([f"--memory={task.memory_mb}m"] if task.memory_mb else []),
        task.image or "",
    ]  # fmt: skip


def _container_name(order: AttemptOrder) -> str:
    return f"ctxagent-{order.session}"


def remove_container(order: AttemptOrder) -> str:
    """Stop and remove the container of a session, if it exists; return the container engine. Raises
    PlaceError without an engine.
    """
    engine = _engine()
    command = [engine, "rm", "--force", _container_name(order)]
    subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)
    return engine


@cache
def _engine() -> str:
    """Return the first working container engine, or the first installed one if none works. Raises
    PlaceError without an engine.
    """
    found = [*filter(None, map(shutil.which, ENGINES))]
    if not found:
        hint = f"Install one of {', '.join(ENGINES)}, or leave image out."
        raise PlaceError("there is no container engine", hint=hint)
    if len(found) == 1:
        return found[0]
    return next(filter(_works, found), found[0])


def _works(engine: str) -> bool:
    try:
        asked = subprocess.run([engine, "info"], capture_output=True, timeout=MAX_ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0
