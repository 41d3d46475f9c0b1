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
"""The number of ports for such jobs. All are below Linux's ephemeral ports, which start at 32768.
"""


class Rank(NamedTuple):
    """This process's place among several ranks."""

    rank: int
    world: int
    local: int
    """The rank's index among the ranks of its host."""
    address: str
    """The host of rank 0."""
    port: int
    """The port on which torch's own store listens on that host; rank 0 collects the reports on one
    of the ports above it."""
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


class Launch(NamedTuple):
    """What the launcher set for all ranks."""

    names: Tuple[str, str, str]
    """The variables that contain the rank, the number of ranks, and the index on the host."""
    address: str
    port: int
    job: str


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
    variables = {name: value for name, value in environ.items() if value}
    # Check torchrun's variables first, because srun may have started torchrun.
    if all(name in variables for name in TORCHRUN):
        launch = by_torchrun(variables)
    elif all(name in variables for name in SRUN):
        launch = by_srun(variables, host)
    else:
        return None
    rank_name, world_name, local_name = launch.names
    rank, world = number_in(variables, rank_name), number_in(variables, world_name)
    # A rank that is not below the number of ranks belongs to another launch.
    if not 0 <= rank < max(2, world):
        raise WrongQuestion(f"rank {rank} of {world} ranks", "RANK and WORLD_SIZE contradict")
    local = number_in(variables, local_name, 0)
    # With only one rank, this is an ordinary run.
    if world <= 1:
        return None
    job = f"{launch.job}@{launch.address}:{launch.port}"
    return Rank(
        rank=rank,
        world=world,
        local=local,
        address=launch.address,
        port=launch.port,
        host=host,
        job=job,
    )


def by_torchrun(variables: Mapping[str, str]) -> Launch:
    """The launch, as described by torchrun's variables."""
    run_id = variables.get("TORCHELASTIC_RUN_ID", "")
    restarts = variables.get("TORCHELASTIC_RESTART_COUNT", "")
    return Launch(
        names=("RANK", "WORLD_SIZE", "LOCAL_RANK"),
        address=variables["MASTER_ADDR"],
        port=number_in(variables, "MASTER_PORT"),
        # Without --rdzv-id all runs have the same name, so `rank_in` adds the address and the port.
        job=f"{run_id}.{restarts}",
    )


def by_srun(variables: Mapping[str, str], host: str) -> Launch:
    """The launch, as described by srun's variables; address and port are derived from the job."""
    nodes = variables.get("SLURM_STEP_NODELIST") or variables.get("SLURM_JOB_NODELIST") or host
    job_id = variables.get("SLURM_JOB_ID", "0")
    step_id = variables.get("SLURM_STEP_ID", "0")
    return Launch(
        names=("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
        address=first_host(nodes),
        port=port_of(variables),
        job=f"{job_id}.{step_id}",
    )


def port_of(environ: Mapping[str, str]) -> int:
    """The port for a Slurm job step. Each rank of the step computes the same port without asking
    the others. The next port is used too."""
    step_id = environ.get("SLURM_STEP_ID", "")
    step = int(step_id) if step_id.isdigit() else 0
    job = number_in(environ, "SLURM_JOB_ID", 0)
    # Multiply the step by a prime, so that a job's steps and the next jobs rarely share a port.
    pair = (job + 101 * step) % (PORTS // 2)
    return FIRST_PORT + 2 * pair


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
    """The number in an environment variable. Raises WrongQuestion if the variable does not contain
    a number, or if it is not set and has no default."""
    value = environ.get(name)
    if not value and default is not None:
        return default
    try:
        return int(environ[name])
    except (KeyError, ValueError):
        raise WrongQuestion(
            f"{name}={value!r} is not a number", "start it with torchrun or srun"
        ) from None
