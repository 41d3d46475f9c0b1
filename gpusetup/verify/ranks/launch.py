"""Which rank of how many this process is: by what torchrun or srun set, all of it.

One stray variable makes no rank: a batch script has SLURM_PROCID too, a container may have RANK.
"""

from __future__ import annotations

import re
import socket
from typing import Mapping, NamedTuple, Optional, Tuple

from ..values import WrongQuestion

TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
SRUN = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
"""srun sets both; the batch script, and the shell of `salloc`, have the first alone."""
FIRST_PORT, PORTS = 20_000, 10_000
"""Where the ports of a job lie that names none: below the ephemeral ones, by the job's number."""


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
        return tuple(zip(TORCHRUN, map(str, self)))


def rank_in(environ: Mapping[str, str]) -> Optional[Rank]:
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
    given = {name: value for name, value in environ.items() if value}
    if all(name in given for name in TORCHRUN):
        names: Tuple[str, ...] = TORCHRUN
        address, port = given["MASTER_ADDR"], _number(given, "MASTER_PORT")
        run, again = (given.get(f"TORCHELASTIC_{n}", "") for n in ("RUN_ID", "RESTART_COUNT"))
        # Without --rdzv-id every run has the same name; no two have the same place to meet.
        job = f"{run}.{again}"
    elif all(name in given for name in SRUN):
        names = (*SRUN, "SLURM_LOCALID")
        nodes = given.get("SLURM_STEP_NODELIST") or given.get("SLURM_JOB_NODELIST") or host
        address, port = first_host(nodes), port_of(environ)
        job = f"{given.get('SLURM_JOB_ID', '0')}.{given.get('SLURM_STEP_ID', '0')}"
    else:
        return None
    rank, world = (_number(given, name) for name in names[:2])
    if not 0 <= rank < max(2, world):
        raise WrongQuestion(f"rank {rank} of {world} ranks", "RANK and WORLD_SIZE contradict")
    local = _number(given, names[2], 0)
    found = Rank(rank, world, local, address, port, host, f"{job}@{address}:{port}")
    return found if world > 1 else None


def port_of(environ: Mapping[str, str]) -> int:
    """A port that all ranks of a Slurm job step work out alike (two are used)."""
    step = environ.get("SLURM_STEP_ID", "")
    steps = int(step) if step.isdigit() else 0
    return FIRST_PORT + 2 * ((_number(environ, "SLURM_JOB_ID", 0) + 101 * steps) % (PORTS // 2))


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


def _number(environ: Mapping[str, str], name: str, usual: Optional[int] = None) -> int:
    try:
        return int(environ.get(name) or (environ[name] if usual is None else usual))
    except (KeyError, ValueError):
        raise WrongQuestion(
            f"{name}={environ.get(name)!r} is no number", "start it with torchrun or srun"
        ) from None
