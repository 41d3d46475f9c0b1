"""Which rank of how many this process is: by torchrun's variables, else by those of srun."""

from __future__ import annotations

import re
import socket
from typing import Mapping, NamedTuple, Optional, Tuple

from ..values import WrongQuestion

TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
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


def rank_in(environ: Mapping[str, str]) -> Optional[Rank]:
    """The rank that the environment describes; None for a process on its own.

    >>> rank_in({}) is None
    True
    >>> slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}
    >>> slurm.update({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[3-4]", "SLURMD_NODENAME": "n4"})
    >>> found = rank_in(slurm)
    >>> found.rank, found.world, found.address, found.port, found.host
    (1, 2, 'n3', 20014, 'n4')
    """
    host = environ.get("SLURMD_NODENAME") or socket.gethostname()
    if all(environ.get(name) for name in TORCHRUN):
        rank, world, local = (_number(environ, name) for name in TORCHRUN[:3])
        port = _number(environ, "MASTER_PORT")
        job = environ.get("TORCHELASTIC_RUN_ID", "") + environ.get("TORCHELASTIC_RESTART_COUNT", "")
        address = environ["MASTER_ADDR"]
    elif environ.get("SLURM_PROCID") and environ.get("SLURM_NTASKS"):
        rank, world = _number(environ, "SLURM_PROCID"), _number(environ, "SLURM_NTASKS")
        local = _number(environ, "SLURM_LOCALID") if environ.get("SLURM_LOCALID") else 0
        nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or host
        job = f"{environ.get('SLURM_JOB_ID', '0')}.{environ.get('SLURM_STEP_ID', '0')}"
        address, port = first_host(nodes), port_of(environ)
    else:
        return None
    if world < 2:
        return None
    if not 0 <= rank < world:
        raise WrongQuestion(f"rank {rank} of {world} ranks", "RANK and WORLD_SIZE contradict")
    return Rank(rank, world, local, address, port, host, job)


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
            f"{name}={environ.get(name)!r} is no number", "start it with torchrun or srun"
        ) from None
