"""The engine for Slurm: starts an exclusive job on each idle node with srun.

Sources: sinfo(1), srun(1), scancel(1) of Slurm 22.05 to 25.05.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from shlex import join
from typing import NamedTuple

from gpusetup.errors import Blocked, UsageError
from gpusetup.fleet.engines.engine import Engine, FleetRequest, require_program
from gpusetup.fleet.nodes import SAFE
from gpusetup.fleet.work import script
from gpusetup.system.processes import Output, run

SINFO = ("sinfo", "--noheader", "--Node", "--format=%N|%T|%P|%c|%G|%E")
SINFO_SECONDS = 30.0
START_SECONDS = 60.0
"""How many seconds an idle node may take from its allocation to the first output (prolog, launch,
mounts)."""
BUSY = ("Immediate execution impossible", "Requested nodes are busy")
"""What srun prints if another job took the node after we had listed it as idle."""
NO_SUCH_RESOURCES = "Requested node configuration is not available"
"""srun's message if some of the CPUs that sinfo counts are reserved for the system."""
JOB_VARIABLES = ("SLURM_", "SBATCH_", "SRUN_", "PMI", "PMIX")
CONFIG_VARIABLES = ("SLURM_CONF", "SLURM_CONF_SERVER")


class Slurm(Engine):
    """Runs the work on each node as an exclusive srun job, which starts immediately or not at
    all."""

    def __init__(
        self, request: FleetRequest, partition: str | None, srun_options: Sequence[str] = ()
    ) -> None:
        """`partition` limits the run to one partition (None means all); `srun_options` are added to
        every srun command."""
        require_program("sinfo")
        self.srun_options = tuple(srun_options)
        output = run(SINFO, timeout=SINFO_SECONDS)
        if not output.ok:
            raise no_list_of_nodes(output)
        self.resources, states = node_resources(output.stdout, partition)
        where = f"partition {partition}" if partition else "this Slurm"
        super().__init__(request, states, where)
        self.title = f"Slurm gets an exclusive job ({self.run_name}) for each of"
        self.environment = outside_a_job(os.environ)
        # If the work itself takes only a few seconds, do not wait a whole minute longer.
        self.extra_seconds = min(START_SECONDS, self.work.limit)

    def plan_for(self, node: str) -> str:
        """The srun command for one node's job."""
        resources = self.resources[node]
        words = self._srun(node, resources)
        return join(words)

    def ask(self, node: str) -> Output:
        resources = self.resources[node]
        output = self._run_slurm(self._srun(node, resources))
        asks_for_too_much = NO_SUCH_RESOURCES in output.stderr
        if output.exit and asks_for_too_much:
            # If srun does not request a number of CPUs, Slurm allocates all that are not reserved
            # for the system.
            fewer = [word for word in resources if not word.startswith("--cpus-per-task")]
            output = self._run_slurm(self._srun(node, fewer))
        if output.exit is None:
            # Cancel the job if we stopped waiting, because it may still be running.
            cancel = ("scancel", f"--name={self.run_name}", f"--nodelist={node}")
            self._run_slurm(cancel)
        return output

    def why_busy(self, output: Output) -> str:
        # If the job has printed something, it has started, so the node was not busy.
        has_begun = bool(output.stdout)
        if not output.exit or has_begun:
            return ""
        is_refused = any(words in output.stderr for words in BUSY)
        return "another job uses the node now" if is_refused else ""

    def end(self) -> None:
        # All jobs of this run have the same name.
        cancel = ("scancel", f"--name={self.run_name}")
        self._run_slurm(cancel)

    def _srun(self, node: str, resources: Sequence[str]) -> tuple[str, ...]:
        """The srun command for one node, which starts an exclusive job immediately or not at
        all."""
        seconds = self.work.limit + START_SECONDS
        minutes = math.ceil(seconds / 60)
        return (
            "srun", f"--job-name={self.run_name}", f"--nodelist={node}", *resources,
            "--nodes=1", "--ntasks=1", "--exclusive", "--mem=0", f"--time={minutes}",
            f"--immediate={START_SECONDS:.0f}", "--input=none", "--quiet", *self.srun_options,
            "sh", "-c", script(self.work),
        )  # fmt: skip

    def _run_slurm(self, words: Sequence[str]) -> Output:
        """Run a Slurm command outside the current job and return its output."""
        seconds = SINFO_SECONDS
        # srun only returns when the job has ended.
        if words[0] == "srun":
            seconds = self.work.limit + self.extra_seconds
        return run(words, timeout=seconds, environment=self.environment)


def no_list_of_nodes(output: Output) -> Blocked:
    """The error to raise if sinfo failed, with the last line that it printed."""
    lines = output.stderr.strip().splitlines()
    last_line = lines[-1] if lines else f"exit {output.exit}"
    # If sinfo timed out, say so, because that explains more than its last line.
    reason = output.problem or last_line
    return Blocked(
        f"Slurm does not say which nodes it has: sinfo: {reason}",
        hint="`scontrol ping` shows whether slurmctld answers",
    )


COLUMNS = 6
"""The number of columns in a line of sinfo, in the order of `SinfoRow`."""


class SinfoRow(NamedTuple):
    """One line of sinfo's output: a node in one of its partitions."""

    node: str
    state: str
    starred_partition: str
    """The name of the default partition ends with a star."""
    cpus: str
    gres: str
    reason: str

    @property
    def partition(self) -> str:
        """The partition's name without the star that marks the default partition."""
        return self.starred_partition.rstrip("*")

    def why_not_idle(self) -> str:
        """Why the node is not idle, as Slurm reports it; "" if it is idle."""
        if self.state == "idle":
            return ""
        # Leave out the reason `none`, which sinfo prints if a node has no reason.
        if self.reason == "none":
            return self.state
        return f"{self.state} ({self.reason})"


def sinfo_rows(text: str) -> list[SinfoRow]:
    """The lines of sinfo, with those of the default partition (`*`) first."""
    rows = []
    for line in text.splitlines():
        # The reason is the last column, because it may contain vertical bars itself.
        columns = line.strip().split("|", COLUMNS - 1)
        # The node's name becomes part of a command, so unsafe names are skipped.
        if len(columns) == COLUMNS and SAFE.fullmatch(columns[0]):
            rows.append(SinfoRow(*columns))
    rows.sort(key=_is_of_other_partition)
    return rows


def node_resources(text: str, partition: str | None) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Two dictionaries by node: the srun options that request all of its resources, and the reason
    why it is not idle (empty if it is idle).

    `partition`: use only nodes of this partition; None means all nodes. Raises UsageError if there
    is no such partition. The srun options are needed because, although an exclusive job gets the
    whole node, its step would otherwise get only one CPU and no GPU.

    >>> rows = "n1|idle|all*|96|gpu:8(S:0-1)|none\\nn2|down|all*|96|(null)|a | b\\n"
    >>> node_resources(rows, None)[1]
    {'n1': '', 'n2': 'down (a | b)'}
    """
    resources: dict[str, list[str]] = {}
    states: dict[str, str] = {}
    rows = sinfo_rows(text)
    for row in rows:
        is_wanted = partition is None or partition == row.partition
        # A node in several partitions has several rows. `sinfo_rows` puts the default partition's
        # row first, so later rows of a node are skipped.
        if row.node in resources or not is_wanted:
            continue
        resources[row.node] = _srun_resources(row.partition, row.cpus, row.gres)
        states[row.node] = row.why_not_idle()
    if partition and not resources:
        partitions = sorted({row.partition for row in rows})
        names = ", ".join(partitions)
        raise UsageError(f"this Slurm has no partition {partition!r}", hint=f"it has {names}")
    return resources, states


def _is_of_other_partition(row: SinfoRow) -> bool:
    """A sort key that puts the rows of the default partition first."""
    is_default = row.starred_partition.endswith("*")
    # False sorts before True.
    return not is_default


def _srun_resources(partition: str, cpus: str, gres: str) -> list[str]:
    """The srun options that request all CPUs and GPUs of a node, based on the columns of sinfo."""
    words = [f"--partition={partition}"]
    if cpus.isdigit():
        words.append(f"--cpus-per-task={cpus}")
    # For example, `gpu:a100:8(S:0-1),mps:200` becomes `gpu:a100:8`: only the GPUs, without the
    # sockets.
    gpus = re.findall(r"(?:^|,)(gpu(?::[\w.-]+)?:\d+)", gres)
    if gpus:
        words.append(f"--gres={','.join(gpus)}")
    return words


def outside_a_job(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables of the current Slurm job, because they would make srun
    start a step of that job."""
    if "SLURM_JOB_ID" not in environment:
        return dict(environment)
    return {
        name: value
        for name, value in environment.items()
        if name in CONFIG_VARIABLES or not name.startswith(JOB_VARIABLES)
    }
