"""A real Slurm on this machine: one slurmctld, some slurmd, munge; ended with the test.

Needs Debian's `slurm-wlm` and `munge`, and root. Nothing of the machine's own Slurm is touched:
configuration, state and logs lie in a folder of the test.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

PROGRAMS = ("slurmctld", "slurmd", "scontrol", "sinfo", "srun", "munged", "munge")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
WAIT_SECONDS = 90.0

CONF = """\
ClusterName=gpusetup
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/ctl
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/ctl.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/ctl.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=0
MessageTimeout=60
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] \\
  CPUs={cpus} {gres} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
{more}
"""


def missing() -> str:
    """Why this machine cannot run the cluster; empty where it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "Slurm's daemons need Linux and root"
    absent = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


class Cluster:
    """A running cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": PATH}

    def run(self, *words: str, timeout: float = WAIT_SECONDS) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            env=self.environment,
            text=True,
            capture_output=True,
            timeout=timeout,
            check=False,
        )

    def node(self, name: str) -> str:
        return self.run("scontrol", "show", "node", name).stdout

    def reasons(self) -> str:
        """`sinfo -R`: the nodes that are down or drained, and why."""
        return self.run("sinfo", "-R", "-o", "%N %E").stdout

    def until(self, holds: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                logs = "\n".join(p.read_text()[-1500:] for p in sorted(self.folder.glob("*.log")))
                raise AssertionError(f"{what} within {seconds:.0f} s:\n{self.reasons()}\n{logs}")
            time.sleep(0.3)


def free_ports(count: int) -> list[int]:
    """Ports in a row that nobody listens on."""
    for first in range(26900 + os.getpid() % 2000, 32000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", port))
        except OSError:
            continue
        return list(range(first, first + count))
    raise AssertionError("no free ports")


@contextmanager
def cluster(
    folder: Path, nodes: int = 3, conf: Mapping[str, object] | None = None, gpus: int = 0
) -> Iterator[Cluster]:
    """Start it, wait until all nodes are idle, and end it.

    `gpus`: so many for each node, device nodes that are all /dev/null, where root may make some.
    """
    if why := missing():
        pytest.skip(why)
    ports = free_ports(nodes + 1)
    more = "\n".join(f"{name}={value}" for name, value in (conf or {}).items())
    text = CONF.format(
        host=socket.gethostname().partition(".")[0], folder=folder, nodes=nodes, more=more,
        port=ports[0], first=ports[1], last=ports[-1], cpus=2 if gpus else 1,
        gres=_gres(folder, gpus),
    )  # fmt: skip
    for name in ("ctl", *(f"spool/n{number}" for number in range(1, nodes + 1))):
        (folder / name).mkdir(parents=True)
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    running, it = [], Cluster(folder)
    daemons = [
        ("slurmctld", "-D", "-f", str(folder / "slurm.conf")),
        *(
            ("slurmd", "-D", "-f", str(folder / "slurm.conf"), "-N", f"n{number}")
            for number in range(1, nodes + 1)
        ),
    ]
    try:
        running.append(_munge(folder, it.environment))
        for words in daemons:
            running.append(_started(words, it.environment))
        idle = ("sinfo", "-h", "-N", "-t", "idle", "-o", "%N")
        it.until(lambda: len(it.run(*idle).stdout.split()) == nodes, "no idle nodes")
        yield it
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _gres(folder: Path, gpus: int) -> str:
    """Writes gres.conf; what a node's line says of its GPUs."""
    folder.mkdir(parents=True, exist_ok=True)
    if not gpus:
        return ""
    try:
        for place in range(gpus):
            os.mknod(folder / f"gpu{place}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except OSError:
        return ""
    line = f"Name=gpu Type=a100 File={folder}/gpu[0-{gpus - 1}]\n"
    (folder / "gres.conf").write_text(line, encoding="utf-8")
    return f"Gres=gpu:a100:{gpus}"


def _started(words: tuple[str, ...], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(words, env=environment, stdin=quiet, stdout=quiet, stderr=quiet)


def _munge(folder: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A munge daemon of our own: its key, its socket."""
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    words = (
        "munged", "--foreground", "--force", f"--key-file={key}",
        f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid",
        f"--log-file={folder}/munge.txt", f"--seed-file={folder}/munge.seed",
    )  # fmt: skip
    process = _started(words, environment)
    end = time.monotonic() + WAIT_SECONDS
    while not (folder / "munge.socket").exists():
        assert process.poll() is None and time.monotonic() < end, "munged did not start"
        time.sleep(0.1)
    return process
