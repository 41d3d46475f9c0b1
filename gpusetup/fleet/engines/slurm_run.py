"""Slurm: which nodes are idle, and the words that put one exclusive job on each of them.

Sources: sinfo(1), srun(1), sbatch(1), scancel(1) of Slurm 22.05 to 25.05.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from gpusetup.errors import Blocked, UsageError
from gpusetup.fleet.folder import natural
from gpusetup.fleet.names import SAFE, slurm_list
from gpusetup.fleet.show import NotAsked
from gpusetup.model.frozen import Frozen

SINFO = ("sinfo", "--noheader", "--Node", "--format=%N|%T|%P|%c|%G|%E")
SINFO_SECONDS = 30.0
START_SECONDS = 60.0
"""So long may an idle node take from the allocation to the first word: prolog, launch, mounts."""
BUSY = ("Immediate execution impossible", "Requested nodes are busy")
"""What srun says where a node was taken between the question and the job."""
NO_SUCH_ROOM = "Requested node configuration is not available"
"""What srun says where CPUs that sinfo counts are kept for the system."""
OF_A_JOB = ("SLURM_", "SBATCH_", "SRUN_", "PMI", "PMIX")
KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER")


class Room(Frozen):
    """What a node has, as a job asks for all of it.

    An exclusive job has the whole node; its step, without these words, one CPU and no GPU.
    """

    partition: str = ""
    cpus: str = ""
    gpus: str = ""
    """As `--gres` takes them: `gpu:a100:8`; empty where Slurm knows of none."""


class Slot(Frozen):
    """A node in a partition."""

    node: str
    state: str
    """`idle`, `mixed`, `drained*`, …"""
    partition: str
    default: bool = False
    reason: str = ""
    room: Room = Room()


class Chosen(Frozen):
    """The nodes that get a job, each with its partition, and those that do not."""

    idle: Mapping[str, Room]
    not_asked: tuple[NotAsked, ...] = ()


def slots(text: str) -> tuple[Slot, ...]:
    """What sinfo printed.

    >>> found = slots("n1|idle|all*|96|gpu:a100:8(S:0-1)|gpusetup: ecc | twice")[0]
    >>> found.reason, found.room.gpus
    ('gpusetup: ecc | twice', 'gpu:a100:8')
    """
    found = []
    for line in text.splitlines():
        parts = line.strip().split("|", 5)
        if len(parts) == 6 and SAFE.fullmatch(parts[0]):
            node, state, partition, cpus, gres, reason = parts
            found.append(_slot(node, state, partition, _room(partition, cpus, gres), reason))
    return tuple(found)


def _slot(node: str, state: str, partition: str, room: Room, reason: str) -> Slot:
    return Slot(
        node=node,
        state=state,
        partition=room.partition,
        default=partition.endswith("*"),
        reason="" if reason == "none" else reason,
        room=room,
    )


def _room(partition: str, cpus: str, gres: str) -> Room:
    gpus = re.findall(r"(?:^|,)(gpu(?::[\w.-]+)?:\d+)", gres)
    return Room(
        partition=partition.rstrip("*"),
        cpus=cpus if cpus.isdigit() else "",
        gpus=",".join(gpus),
    )


def chosen(rows: Sequence[Slot], partition: str | None, nodes: Sequence[str]) -> Chosen:
    """The idle nodes of a partition, or those of them that are named.

    Raises UsageError for a partition or a node that does not exist, Blocked where none is idle.
    """
    here = [row for row in rows if partition is None or row.partition == partition]
    if partition and not here:
        raise _no_partition(partition, sorted({row.partition for row in rows}))
    absent = [name for name in nodes if name not in {row.node for row in here}]
    if absent:
        where = f"partition {partition}" if partition else "this Slurm"
        raise UsageError(
            f"{where} has no node {slurm_list(absent)}",
            hint="`sinfo -N` lists those there are",
        )
    by_node: dict[str, Slot] = {}
    for row in sorted(here, key=lambda row: (not row.default, row.partition)):
        if not nodes or row.node in nodes:
            by_node.setdefault(row.node, row)
    rest = [row for row in by_node.values() if row.state != "idle"]
    found = Chosen(
        idle={row.node: row.room for row in _ordered(by_node) if row.state == "idle"},
        not_asked=tuple(NotAsked(name=row.node, why=_state(row)) for row in rest),
    )
    if not found.idle:
        raise _none_idle(found.not_asked)
    return found


def _ordered(by_node: Mapping[str, Slot]) -> list[Slot]:
    return [by_node[name] for name in sorted(by_node, key=natural)]


def _state(row: Slot) -> str:
    return f"{row.state} ({row.reason})" if row.reason else row.state


def _no_partition(name: str, there: Sequence[str]) -> UsageError:
    near = get_close_matches(name, there, 1)
    meant = f"did you mean `--partition {near[0]}`? " if near else ""
    return UsageError(
        f"this Slurm has no partition {name!r}", hint=f"{meant}its partitions: {', '.join(there)}"
    )


def _none_idle(rest: Sequence[NotAsked]) -> Blocked:
    first = "; ".join(f"{one.name} is {one.why}" for one in rest[:3])
    return Blocked(
        f"No node is idle: {first}{', …' if len(rest) > 3 else ''}",
        hint="`fleet run` waits for no job; `gpusetup fleet check` disturbs none",
    )


# --- the words


class Job(Frozen):
    """What all jobs of a run share."""

    name: str
    """The jobs' name, this run's own: what is left over is cancelled by it."""
    script: str
    limit: float
    """Seconds."""
    more: tuple[str, ...] = ()
    """Options of the caller's for srun."""


def srun_words(job: Job, node: str, room: Room) -> tuple[str, ...]:
    """A job that starts at once or not at all, and says what it has to say through srun.

    >>> job = Job(name="gpusetup-1", script="true", limit=90)
    >>> " ".join(srun_words(job, "n1", Room(partition="all"))[:6])
    'srun --job-name=gpusetup-1 --partition=all --nodelist=n1 --nodes=1 --ntasks=1'
    """
    start = f"--immediate={START_SECONDS:.0f}"
    cpus = (f"--cpus-per-task={room.cpus}",) if room.cpus else ()
    words = ("srun", *_common(job, node, room), *cpus, start, "--input=none", "--quiet")
    return (*words, *job.more, "sh", "-c", job.script)


def _common(job: Job, node: str, room: Room) -> tuple[str, ...]:
    minutes = math.ceil((job.limit + START_SECONDS) / 60)
    return (
        f"--job-name={job.name}", f"--partition={room.partition}", f"--nodelist={node}",
        "--nodes=1", "--ntasks=1", "--exclusive", "--mem=0", f"--time={minutes}",
        *((f"--gres={room.gpus}",) if room.gpus else ()),
    )  # fmt: skip


def scancel_words(job: Job, node: str | None = None) -> tuple[str, ...]:
    """Ends what is left of a run, or of one node of it."""
    return ("scancel", f"--name={job.name}", *((f"--nodelist={node}",) if node else ()))


def outside_a_job(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the job that this runs in: srun would start a step of it."""
    if "SLURM_JOB_ID" not in environment:
        return dict(environment)
    return {
        name: value
        for name, value in environment.items()
        if name in KEPT or not name.startswith(OF_A_JOB)
    }
