"""Slurm with one node on this machine, for the duration of a test. Its files and those of munge,
which authenticates its daemons, are in a temporary folder.
"""

import os
import secrets
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from .command import PATIENCE, comes
from .machine import missing

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo")
MISSING = missing(*PROGRAMS) or ("only root can start them" if os.getuid() else "")
needs_slurm = pytest.mark.skipif(bool(MISSING), reason=MISSING)
CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=test Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def slurm() -> Iterator[dict[str, str]]:
    """Run Slurm with one node; yield the variables that its commands need."""
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("state", "spool"):
            (folder / part).mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1_024))
        key.chmod(0o400)
        host = socket.gethostname().partition(".")[0]
        ports, cpus = _free_ports(2), len(os.sched_getaffinity(0))
        config = folder / "slurm.conf"
        config.write_text(CONFIG.format(folder=folder, host=host, ports=ports, cpus=cpus))
        env = {**os.environ, "SLURM_CONF": str(config)}
        files = ("key-file=munge.key", "socket=munge.socket", "pid-file=munge.pid",
                 "log-file=munge.log", "seed-file=munge.seed")  # fmt: skip
        options = (f"--{option}={folder}/{file}" for option, file in map(_split, files))
        for command in (
            ["munged", "--foreground", "--force", *options],
            ["slurmctld", "-D", "-f", str(config)],
            ["slurmd", "-D", "-f", str(config), "-N", host],
        ):
            process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.terminate)
            if command[0] == "munged":
                assert comes((folder / "munge.socket").exists, PATIENCE)
        assert comes(lambda: "idle" in _states(env), PATIENCE), _states(env)
        yield {"SLURM_CONF": str(config)}


def _split(text: str) -> tuple[str, str]:
    option, _, file = text.partition("=")
    return option, file


def _states(env: dict[str, str]) -> str:
    asked = ["sinfo", "--noheader", "--format=%T"]
    return subprocess.run(asked, env=env, capture_output=True, text=True).stdout


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    found = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return found
