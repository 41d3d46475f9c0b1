"""The engine for Slurm: starts an exclusive job on each idle node with srun.

Sources: sinfo(1), srun(1), scancel(1) of Slurm 22.05 to 25.05.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence

from gpusetup.errors import Blocked
from gpusetup.fleet.engines.engine import Engine, require_program
from gpusetup.fleet.names import SAFE
from gpusetup.fleet.work import NodeWork, script
from gpusetup.system.processes import Output, run

SINFO = ("sinfo", "--noheader", "--Node", "--format=%N|%T|%P|%c|%G|%E")
"""Prints each node's name, state, partition, CPUs, generic resources (GPUs) and reason."""
COLUMNS = 6
SINFO_SECONDS = 30.0
START_SECONDS = 60.0
"""How many seconds an idle node may take from its allocation to the first output (prolog, launch,
mounts)."""
BUSY = ("Immediate execution impossible", "Requested nodes are busy")
"""What srun prints if another job took the node after we had listed it as idle."""


class Slurm(Engine):
    """Runs the work on each node as an exclusive srun job, which starts immediately or not at
    all."""

    def __init__(
        self, work: NodeWork, partition: str | None, srun_options: Sequence[str] = ()
    ) -> None:
        """`partition` limits the run to one partition (None means all); `srun_options` are added to
        every srun command."""
        if "SLURM_JOB_ID" in os.environ:
            # srun would start a step of that job, on its own nodes only.
            raise Blocked("This is already a Slurm job", hint="run it on a login node")
        require_program("sinfo")
        self.srun_options = tuple(srun_options)
        output = run(SINFO, timeout=SINFO_SECONDS)
        if not output.ok:
            lines = output.stderr.strip().splitlines() or [f"exit {output.exit}"]
            raise Blocked(
                f"Cannot list the nodes of Slurm: sinfo: {output.problem or lines[-1]}",
                hint="`scontrol ping` shows whether slurmctld responds",
            )
        self.resources, states = node_resources(output.stdout, partition)
        where = f"partition {partition}" if partition else "this Slurm"
        super().__init__(work, states, where)
        self.title = f"Submitting an exclusive Slurm job ({self.run_name}) to each of"
        self.extra_seconds = START_SECONDS

    def command(self, node: str) -> tuple[str, ...]:
        """The srun command for one node, which starts an exclusive job immediately or not at all.
        `--mem=0` requests all of the node's memory."""
        minutes = math.ceil((self.work.limit + START_SECONDS) / 60)
        return (
            "srun", f"--job-name={self.run_name}", f"--nodelist={node}", *self.resources[node],
            "--nodes=1", "--ntasks=1", "--exclusive", "--mem=0", f"--time={minutes}",
            f"--immediate={START_SECONDS:.0f}", "--input=none", "--quiet", *self.srun_options,
            "sh", "-c", script(self.work),
        )  # fmt: skip

    def ask(self, node: str) -> Output:
        # srun only returns when the job has ended.
        output = super().ask(node)
        if output.exit is None:
            # We stopped waiting, but the job may still be running.
            self.cancel(f"--nodelist={node}")
        return output

    def why_busy(self, output: Output) -> str:
        is_refused = any(words in output.stderr for words in BUSY)
        # A job that succeeded (0), did not end in time (None) or printed something has started.
        has_begun = output.exit in (0, None) or bool(output.stdout)
        return "another job uses the node now" if is_refused and not has_begun else ""

    def end(self) -> None:
        self.cancel()

    def cancel(self, *which: str) -> None:
        run(("scancel", f"--name={self.run_name}", *which), timeout=SINFO_SECONDS)


def node_resources(text: str, partition: str | None) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Two dictionaries by node, from sinfo's lines: the srun options that request all of its
    resources, and the reason why it is not idle (empty if it is idle).

    `partition`: use only nodes of this partition; None means all nodes. The srun options are needed
    because, although an exclusive job gets the whole node, its step would otherwise get only one
    CPU and no GPU.

    >>> rows = "n1|idle|all*|96|gpu:8(S:0-1)|none\\nn2|down|all*|96|(null)|a | b\\n"
    >>> node_resources(rows, None)[1]
    {'n1': '', 'n2': 'down (a | b)'}
    """
    resources: dict[str, list[str]] = {}
    states: dict[str, str] = {}
    # The reason is the last column, because it may contain vertical bars itself.
    rows = [line.strip().split("|", COLUMNS - 1) for line in text.splitlines()]
    # The node's name becomes part of a command, so unsafe names are skipped.
    rows = [row for row in rows if len(row) == COLUMNS and SAFE.fullmatch(row[0])]
    # The rows of the default partition, whose name ends with a star, come first.
    rows.sort(key=lambda row: not row[2].endswith("*"))
    for node, state, starred_partition, cpus, gres, reason in rows:
        its_partition = starred_partition.rstrip("*")
        # A node in several partitions has several rows, of which the first counts.
        if node in resources or partition not in (None, its_partition):
            continue
        # For example, `gpu:a100:8(S:0-1),mps:200` becomes `gpu:a100:8`: only the GPUs, without the
        # sockets.
        gpus = re.findall(r"(?:^|,)(gpu(?::[\w.-]+)?:\d+)", gres)
        resources[node] = [
            f"--partition={its_partition}",
            *([f"--cpus-per-task={cpus}"] if cpus.isdigit() else []),
            *([f"--gres={','.join(gpus)}"] if gpus else []),
        ]
        # sinfo prints `none` if a node has no reason.
        why = state if reason == "none" else f"{state} ({reason})"
        states[node] = "" if state == "idle" else why
    return resources, states
