"""The container of a task: how a command is run in it, and how it is removed."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from ..models.factory import is_of_provider
from .orders import AttemptOrder
from .places import PlaceError

ENGINES = ("docker", "podman")
MAX_ANSWER_S = 10.0  # that an engine takes to say whether it works


def in_container(
    order: AttemptOrder, place: Path, env: Mapping[str, str], more: Iterable[str] = ()
) -> list[str]:
    """Return the command that runs another in a container, which sees the task's folder and its
    place where they are here, and variables with the names `more`. A container that was left by a
    kill is removed. Raises PlaceError."""
    engine, task, home = remove_container(order), order.task, order.folder.path / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    order.fleet.wait_file.touch(mode=0o600)
    given = [name for name in env if is_of_provider(name)]
    is_mapped = Path(engine).name == "podman" and os.getuid() != 0  # by a namespace of users
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
    """End and remove the container of a session, if there is one, and return the program that runs
    containers. Raises PlaceError without one."""
    engine = _engine()
    command = [engine, "rm", "--force", _container_name(order)]
    subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)
    return engine


@cache
def _engine() -> str:
    """Return the first program for containers that works, or else the first one. Raises
    PlaceError without one."""
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
