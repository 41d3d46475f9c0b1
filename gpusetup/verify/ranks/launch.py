"""This process's rank, from the variables of torchrun or srun, if all of them are set.

A single variable does not prove that there are ranks: SLURM_PROCID is also set in a batch script,
and a container may have RANK.
"""

from __future__ import annotations

import re
import socket
from typing import Mapping, NamedTuple, Optional, Tuple

from ..values import WrongQuestion

TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
SRUN = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
"""srun sets both variables; the batch script and the shell of `salloc` have only the first."""
PORTS = range(20_000, 30_000)
"""The ports for jobs that do not name one, all below Linux's ephemeral ports (32768)."""


class Rank(NamedTuple):
    """This process's place among several ranks."""

    rank: int
    world: int
    local: int
    """The rank's index among the ranks of its host."""
    address: str
    """The host of rank 0."""
    port: int
    """The port of torch's own store there; rank 0 collects reports on the next one."""
    host: str
    """The name of this host."""
    job: str
    """A name that distinguishes this launch from others on the same hosts."""

    @property
    def environment(self) -> Tuple[Tuple[str, str], ...]:
        """The environment variables that `torch.distributed` reads, which srun does not set."""
        values = (self.rank, self.world, self.local, self.address, self.port)
        return tuple(zip(TORCHRUN, map(str, values)))


def rank_in(environ: Mapping[str, str]) -> Optional[Rank]:
    """The rank that the environment variables describe; None for a single process. Raises
    WrongQuestion if they contradict each other.

    >>> slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}
    >>> slurm.update({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[3-4]", "SLURMD_NODENAME": "n4"})
    >>> rank_in(slurm) is None  # a batch script
    True
    >>> found = rank_in({**slurm, "SLURM_STEP_NUM_TASKS": "2"})
    >>> found.rank, found.world, found.address, found.port, found.host
    (1, 2, 'n3', 20014, 'n4')
    """
    # An empty variable counts as not set.
    found = {name: value for name, value in environ.items() if value}
    host = found.get("SLURMD_NODENAME") or socket.gethostname()

    def number(name: str) -> int:
        try:
            return int(found.get(name, "0"))
        except ValueError:
            problem = f"{name}={found[name]!r} is not a number"
            raise WrongQuestion(problem, "start it with torchrun or srun") from None

    # Check torchrun's variables first, because srun may have started torchrun.
    if all(name in found for name in TORCHRUN):
        rank, world, local = map(number, TORCHRUN[:3])
        address, port = found["MASTER_ADDR"], number("MASTER_PORT")
        run = found.get("TORCHELASTIC_RUN_ID", ""), found.get("TORCHELASTIC_RESTART_COUNT", "")
    elif all(name in found for name in SRUN):
        rank, world, local = map(number, (*SRUN, "SLURM_LOCALID"))
        nodes = found.get("SLURM_STEP_NODELIST") or found.get("SLURM_JOB_NODELIST") or host
        # The first host of a list such as `gpu[007-009,12],login` or `n1`.
        address = re.sub(r"\A([^\[,]*)(?:\[(\w+)[^\]]*\])?([^,\[]*).*", r"\1\2\3", nodes.strip())
        run = found.get("SLURM_JOB_ID", "0"), found.get("SLURM_STEP_ID", "0")
        step = int(run[1]) if run[1].isdigit() else 0
        # Each rank of a step computes the same port without asking the others. The prime keeps a
        # job's steps and the next jobs from sharing one; the port above is used too.
        port = PORTS[2 * (number("SLURM_JOB_ID") + 101 * step) % len(PORTS)]
    else:
        return None
    # With only one rank, this is an ordinary run.
    if world <= 1:
        return None
    if not 0 <= rank < world:
        raise WrongQuestion(f"rank {rank} of {world} ranks", "RANK and WORLD_SIZE contradict")
    # Without --rdzv-id all runs of torchrun have the same name, so add the address and the port.
    return Rank(rank, world, local, address, port, host, f"{'.'.join(run)}@{address}:{port}")
