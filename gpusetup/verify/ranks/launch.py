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
FIRST_PORT = 20_000
"""The lowest port for jobs that do not name one."""
PORTS = 10_000
"""The number of ports for such jobs, all below Linux's ephemeral ports (32768)."""


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
        return (
            ("RANK", str(self.rank)),
            ("WORLD_SIZE", str(self.world)),
            ("LOCAL_RANK", str(self.local)),
            ("MASTER_ADDR", self.address),
            ("MASTER_PORT", str(self.port)),
        )


def rank_in(environ: Mapping[str, str]) -> Optional[Rank]:
    """The rank that the environment variables describe; None for a single process.

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
    # An empty variable counts as not set.
    found = {name: value for name, value in environ.items() if value}
    # Check torchrun's variables first, because srun may have started torchrun.
    if all(name in found for name in TORCHRUN):
        rank_name, world_name, local_name = TORCHRUN[:3]
        address, port = found["MASTER_ADDR"], number_in(found, "MASTER_PORT")
        run, part = (
            found.get("TORCHELASTIC_RUN_ID", ""),
            found.get("TORCHELASTIC_RESTART_COUNT", ""),
        )
    elif all(name in found for name in SRUN):
        rank_name, world_name, local_name = (*SRUN, "SLURM_LOCALID")
        nodes = found.get("SLURM_STEP_NODELIST") or found.get("SLURM_JOB_NODELIST") or host
        run, part = found.get("SLURM_JOB_ID", "0"), found.get("SLURM_STEP_ID", "0")
        step = int(part) if part.isdigit() else 0
        # Each rank of a step computes the same port without asking the others. The prime keeps a
        # job's steps and the next jobs from sharing one; the port above is used too.
        pair = (number_in(found, "SLURM_JOB_ID", 0) + 101 * step) % (PORTS // 2)
        address, port = first_host(nodes), FIRST_PORT + 2 * pair
    else:
        return None
    rank, world = number_in(found, rank_name), number_in(found, world_name)
    if not 0 <= rank < max(2, world):
        raise WrongQuestion(f"rank {rank} of {world} ranks", "RANK and WORLD_SIZE contradict")
    local = number_in(found, local_name, 0)
    # With only one rank, this is an ordinary run.
    if world <= 1:
        return None
    # Without --rdzv-id all runs of torchrun have the same name, so add the address and the port.
    return Rank(rank, world, local, address, port, host, f"{run}.{part}@{address}:{port}")


def first_host(nodes: str) -> str:
    """The first host name in a Slurm host list.

    >>> first_host("gpu[007-009,12],login"), first_host("n1"), first_host("a-b[1-2]c")
    ('gpu007', 'n1', 'a-b1c')
    """
    match = re.match(r"([^\[,]*)(?:\[(\w+)[^\]]*\])?([^,\[]*)", nodes.strip())
    if match is None:
        return nodes
    before_brackets, first_number, after_brackets = match.groups("")
    return f"{before_brackets}{first_number}{after_brackets}"


def device_of(rank: Rank, wanted_device: str, seen: Tuple[str, ...]) -> Tuple[str, ...]:
    """The device that a rank tests: the GPU with its local index or, if Slurm shows each task a
    single GPU, that one.

    >>> rank = Rank(5, 8, 1, "n1", 20000, "n2", "")
    >>> device_of(rank, "auto", ("cuda:0", "cuda:1")), device_of(rank, "auto", ("cuda:0",))
    (('cuda:1',), ('cuda:0',))
    >>> device_of(rank, "cpu", ())
    ('cpu',)
    """
    if wanted_device == "none":
        return ()
    if wanted_device not in ("auto", "cuda"):
        return (wanted_device,)
    if not seen:
        return ()
    return (seen[rank.local % len(seen)],)


def number_in(environ: Mapping[str, str], name: str, default: Optional[int] = None) -> int:
    """The number in a variable. Raises WrongQuestion if there is none and no default."""
    value = environ.get(name)
    if not value and default is not None:
        return default
    try:
        return int(environ[name])
    except (KeyError, ValueError):
        raise WrongQuestion(
            f"{name}={value!r} is not a number", "start it with torchrun or srun"
        ) from None
