"""Slurm: an exclusive job on each idle node.

Sources: sinfo(1), srun(1), scancel(1) of Slurm 22.05 to 25.05.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from shlex import join

from gpusetup.errors import Blocked, UsageError
from gpusetup.fleet.engines.engine import Engine, FleetRequest, require_program
from gpusetup.fleet.nodes import SAFE
from gpusetup.fleet.work import script
from gpusetup.system.processes import Output, run

SINFO = ("sinfo", "--noheader", "--Node", "--format=%N|%T|%P|%c|%G|%E")
SINFO_SECONDS = 30.0
START_SECONDS = 60.0
"""How long an idle node may take from the allocation to the first output: prolog, launch,
mounts."""
BUSY = ("Immediate execution impossible", "Requested nodes are busy")
"""What srun says if a node was taken between the question and the job."""
NO_SUCH_RESOURCES = "Requested node configuration is not available"
"""What srun says if CPUs that sinfo counts are kept for the system."""
JOB_VARIABLES = ("SLURM_", "SBATCH_", "SRUN_", "PMI", "PMIX")
CONFIG_VARIABLES = ("SLURM_CONF", "SLURM_CONF_SERVER")


class Slurm(Engine):
    """A job that starts at once or not at all, and says what it has to say through srun."""

    def __init__(
        self, request: FleetRequest, partition: str | None, srun_options: Sequence[str] = ()
    ) -> None:
        """`srun_options`: srun's options of the caller's own."""
        require_program("sinfo")
        self.srun_options = tuple(srun_options)
        output = run(SINFO, timeout=SINFO_SECONDS)
        if not output.ok:
            lines = output.stderr.strip().splitlines() or [f"exit {output.exit}"]
            raise Blocked(
                f"Slurm does not say which nodes it has: sinfo: {output.problem or lines[-1]}",
                hint="`scontrol ping` shows whether slurmctld answers",
            )
        self.resources, states = node_resources(output.stdout, partition)
        super().__init__(request, states, f"partition {partition}" if partition else "this Slurm")
        self.title = f"Slurm gets an exclusive job ({self.run_name}) for each of"
        self.environment = outside_a_job(os.environ)
        self.extra_seconds = min(START_SECONDS, self.work.limit)

    def plan_for(self, node: str) -> str:
        return join(self._srun(node, self.resources[node]))

    def ask(self, node: str) -> Output:
        resources = self.resources[node]
        output = self._run_slurm(self._srun(node, resources))
        if output.exit and NO_SUCH_RESOURCES in output.stderr:
            fewer = [word for word in resources if not word.startswith("--cpus-per-task")]
            output = self._run_slurm(self._srun(node, fewer))
        if output.exit is None:
            self._run_slurm(("scancel", f"--name={self.run_name}", f"--nodelist={node}"))
        return output

    def why_busy(self, output: Output) -> str:
        busy = output.exit and not output.stdout and any(words in output.stderr for words in BUSY)
        return "another job uses the node now" if busy else ""

    def end(self) -> None:
        self._run_slurm(("scancel", f"--name={self.run_name}"))

    def _srun(self, node: str, resources: Sequence[str]) -> tuple[str, ...]:
        minutes = math.ceil((self.work.limit + START_SECONDS) / 60)
        return (
            "srun", f"--job-name={self.run_name}", f"--nodelist={node}", *resources,
            "--nodes=1", "--ntasks=1", "--exclusive", "--mem=0", f"--time={minutes}",
            f"--immediate={START_SECONDS:.0f}", "--input=none", "--quiet", *self.srun_options,
            "sh", "-c", script(self.work),
        )  # fmt: skip

    def _run_slurm(self, words: Sequence[str]) -> Output:
        seconds = self.work.limit + self.extra_seconds if words[0] == "srun" else SINFO_SECONDS
        return run(words, timeout=seconds, environment=self.environment)


def node_resources(text: str, partition: str | None) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Node -> srun's words for all that it has; and node -> why it is not idle, empty if it is.

    An exclusive job has the whole node; its step, without these words, one CPU and no GPU.

    >>> rows = "n1|idle|all*|96|gpu:8(S:0-1)|none\\nn2|down|all*|96|(null)|a | b\\n"
    >>> node_resources(rows, None)[1]
    {'n1': '', 'n2': 'down (a | b)'}
    """
    resources: dict[str, list[str]] = {}
    states: dict[str, str] = {}
    rows = [line.strip().split("|", 5) for line in text.splitlines()]
    rows = [row for row in rows if len(row) == 6 and SAFE.fullmatch(row[0])]
    rows.sort(key=lambda row: not row[2].endswith("*"))  # the default partition first
    for node, state, starred_name, cpus, gres, reason in rows:
        name = starred_name.rstrip("*")
        if node in resources or partition not in (None, name):
            continue
        gpus = re.findall(r"(?:^|,)(gpu(?::[\w.-]+)?:\d+)", gres)
        resources[node] = [
            f"--partition={name}",
            *((f"--cpus-per-task={cpus}",) if cpus.isdigit() else ()),
            *((f"--gres={','.join(gpus)}",) if gpus else ()),
        ]
        why = f" ({reason})" if reason != "none" else ""
        states[node] = "" if state == "idle" else f"{state}{why}"
    if partition and not resources:
        partitions = ", ".join(sorted({row[2].rstrip("*") for row in rows}))
        raise UsageError(f"this Slurm has no partition {partition!r}", hint=f"it has {partitions}")
    return resources, states


def outside_a_job(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the job that this runs in: srun would start a step of it."""
    inside = "SLURM_JOB_ID" in environment
    return {
        name: value
        for name, value in environment.items()
        if not inside or name in CONFIG_VARIABLES or not name.startswith(JOB_VARIABLES)
    }
