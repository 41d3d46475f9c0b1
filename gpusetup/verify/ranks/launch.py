"""Which rank of how many this process is: by what torchrun, srun or mpirun set, all of it.

One stray variable makes no rank: a batch script has SLURM_PROCID too, a container may have RANK.
"""

from __future__ import annotations

import os
import re
import socket
import zlib
from typing import Mapping, NamedTuple, Optional, Tuple

from ..values import WrongQuestion

TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
SRUN = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
"""srun sets both; the batch script, and the shell of `salloc`, have the first alone."""
MPIRUN: Tuple[Tuple[str, str, str, str], ...] = (
    (
        *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    (
        *("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),
        "MV2_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
"""Rank, number, place on the host and number there: Open MPI, MVAPICH, MPICH and Intel MPI."""
FIRST_PORT, PORTS = 20_000, 10_000
"""Where the ports of a Slurm job lie: below the ephemeral ones, told apart by the job's number."""


class Rank(NamedTuple):
    """One process of several."""

    rank: int
    world: int
    local: int
    """Its place among the ranks of its host."""
    address: str
    """The host of rank 0."""
    port: int
    """Where torch's own store listens on that host; the report goes to the port above."""
    host: str
    """This host."""
    job: str
    """What tells this launch from another one on the same hosts."""

    @property
    def environment(self) -> Tuple[Tuple[str, str], ...]:
        """What `torch.distributed` reads, also where srun did not set it."""
        return (
            ("RANK", str(self.rank)),
            ("WORLD_SIZE", str(self.world)),
            ("LOCAL_RANK", str(self.local)),
            ("MASTER_ADDR", self.address),
            ("MASTER_PORT", str(self.port)),
        )


def rank_in(environ: Mapping[str, str], parent: Optional[int] = None) -> Optional[Rank]:
    """The rank that the environment describes; None for a process on its own.

    >>> rank_in({}) is None
    True
    >>> slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}
    >>> slurm.update({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[3-4]", "SLURMD_NODENAME": "n4"})
    >>> rank_in(slurm) is None  # a batch script
    True
    >>> found = rank_in({**slurm, "SLURM_STEP_NUM_TASKS": "2"})
    >>> found.rank, found.world, found.address, found.port, found.host
    (1, 2, 'n3', 20014, 'n4')
    """
    host = environ.get("SLURMD_NODENAME") or socket.gethostname()
    found: Optional[Rank]
    if all(environ.get(name) for name in TORCHRUN):
        found = _by_torchrun(environ, host)
    elif all(environ.get(name) for name in SRUN):
        found = _by_srun(environ, host)
    else:
        found = _by_mpirun(environ, host, os.getppid() if parent is None else parent)
    if found is None or found.world < 2:
        return None
    if not 0 <= found.rank < found.world:
        raise WrongQuestion(
            f"rank {found.rank} of {found.world} ranks", "RANK and WORLD_SIZE contradict"
        )
    return found


def _by_torchrun(environ: Mapping[str, str], host: str) -> Rank:
    rank, world, local = (_number(environ, name) for name in TORCHRUN[:3])
    address, port = environ["MASTER_ADDR"], _number(environ, "MASTER_PORT")
    run, again = (environ.get(f"TORCHELASTIC_{n}", "") for n in ("RUN_ID", "RESTART_COUNT"))
    # Without --rdzv-id every run has the same name; no two have the same place to meet.
    return Rank(rank, world, local, address, port, host, f"{run}.{again}@{address}:{port}")


def _by_srun(environ: Mapping[str, str], host: str) -> Rank:
    rank, world = _number(environ, SRUN[0]), _number(environ, SRUN[1])
    local = _number(environ, "SLURM_LOCALID") if environ.get("SLURM_LOCALID") else 0
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or host
    job = f"{environ.get('SLURM_JOB_ID', '0')}.{environ.get('SLURM_STEP_ID', '0')}"
    return Rank(rank, world, local, first_host(nodes), port_of(environ), host, job)


def _by_mpirun(environ: Mapping[str, str], host: str, parent: int) -> Optional[Rank]:
    """On one host its ranks have one parent, which tells this run from others; across hosts
    MASTER_ADDR and MASTER_PORT must be given, because MPI names no host.

    >>> names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    >>> two = {f"OMPI_COMM_WORLD_{name}": "2" for name in names}
    >>> _by_mpirun({**two, "OMPI_COMM_WORLD_RANK": "1"}, "n1", 77).address
    '127.0.0.1'
    """
    names = next((each for each in MPIRUN if all(environ.get(name) for name in each)), None)
    if names is None:
        return None
    rank, world, local, here = (_number(environ, name) for name in names)
    address, port = environ.get("MASTER_ADDR", "127.0.0.1"), environ.get("MASTER_PORT", "")
    if world > here and not (environ.get("MASTER_ADDR") and port):
        raise WrongQuestion(
            f"{world} ranks on several hosts, and MPI does not say where rank 0 is",
            "`mpirun -x MASTER_ADDR=HOST_OF_RANK_0 -x MASTER_PORT=29500 ...`",
        )
    number = _number(environ, "MASTER_PORT") if port else FIRST_PORT + 2 * (parent % (PORTS // 2))
    job = f"mpi.{zlib.crc32(environ.get('PMIX_NAMESPACE', '').encode())}@{address}:{number}"
    return Rank(rank, world, local, address, number, host, job)


def port_of(environ: Mapping[str, str]) -> int:
    """A port that all ranks of a Slurm job step work out alike (two are used)."""
    job = _number(environ, "SLURM_JOB_ID") if environ.get("SLURM_JOB_ID") else 0
    step = environ.get("SLURM_STEP_ID", "")
    steps = int(step) if step.isdigit() else 0
    return FIRST_PORT + 2 * ((job + 101 * steps) % (PORTS // 2))


def first_host(nodes: str) -> str:
    """The first name of a Slurm host list.

    >>> first_host("gpu[007-009,12],login"), first_host("n1"), first_host("a-b[1-2]c")
    ('gpu007', 'n1', 'a-b1c')
    """
    found = re.match(r"([^\[,]*)(?:\[(\w+)[^\]]*\])?([^,\[]*)", nodes.strip())
    return "".join(part or "" for part in found.groups()) if found else nodes


def device_of(rank: Rank, wanted: str, seen: Tuple[str, ...]) -> Tuple[str, ...]:
    """The one device that a rank proves; where Slurm shows each task one GPU, that one.

    >>> rank = Rank(5, 8, 1, "n1", 20000, "n2", "")
    >>> device_of(rank, "auto", ("cuda:0", "cuda:1")), device_of(rank, "auto", ("cuda:0",))
    (('cuda:1',), ('cuda:0',))
    >>> device_of(rank, "cpu", ())
    ('cpu',)
    """
    if wanted in ("auto", "cuda"):
        return (seen[rank.local % len(seen)],) if seen else ()
    return () if wanted == "none" else (wanted,)


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ[name])
    except (KeyError, ValueError):
        raise WrongQuestion(
            f"{name}={environ.get(name)!r} is no number", "start it with torchrun, srun or mpirun"
        ) from None
