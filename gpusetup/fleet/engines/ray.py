"""The engine for Ray: runs one task on each node (by node affinity) that reserves all of the node's
GPUs. This is the only module that imports `ray`, when it is used, because it is an optional extra.

Sources: ray.nodes(), NodeAffinitySchedulingStrategy and ray.cancel of Ray 2.9 to 2.60.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from typing import Any

from gpusetup.errors import Blocked
from gpusetup.fleet.engines.engine import Engine
from gpusetup.fleet.names import SAFE
from gpusetup.fleet.work import NodeWork, script
from gpusetup.model.frozen import replace
from gpusetup.system.processes import Output, run

START_SECONDS = 60.0
"""How many seconds an idle node may take to start a worker."""
BEHIND_SECONDS = 15.0
"""How many seconds after the work's own time limit its result may still arrive."""
SHORT_ID = 12
"""How many characters of a node's id are enough to distinguish it."""
BUSY = "no worker started: its GPUs are in use, or the node is stuck"
WORKER_VARIABLES = ("CUDA_VISIBLE_DEVICES", "PYTHONBREAKPOINT")
"""Variables that Ray itself sets in a worker; their values say nothing about the node."""


def ray_nodes(rows: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Maps names to the live nodes from `ray.nodes()`. A name is the node name or host name; Ray's
    id replaces a name that is not unique or not safe."""
    nodes: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if not row.get("Alive"):
            continue
        # Without a name, `NodeName` is the node's address.
        is_named = row["NodeName"] != row["NodeManagerAddress"]
        name = str(row["NodeName" if is_named else "NodeManagerHostname"])
        # The name becomes part of a file name, so it must be safe.
        is_usable = name not in nodes and SAFE.fullmatch(name)
        nodes[name if is_usable else row["NodeID"][:SHORT_ID]] = row
    return nodes


def gpus_of(row: Mapping[str, Any]) -> float:
    return float(row["Resources"].get("GPU", 0.0))


def run_work(work: NodeWork) -> dict[str, Any]:
    """Run the node's work in a Ray worker on it. Returns the fields of an `Output` as plain values,
    so that the worker may have another version of gpusetup."""
    environment = {k: v for k, v in os.environ.items() if k not in WORKER_VARIABLES}
    # The worker's Python, unless the user named one.
    work = replace(work, python=work.python or sys.executable)
    output = run(("sh", "-c", script(work)), timeout=work.limit, environment=environment)
    return {name: getattr(output, name) for name in FIELDS}


FIELDS = ("exit", "stdout", "stderr", "problem", "seconds")


class Ray(Engine):
    """Runs the work in a task on each node; the tasks end with the connection to Ray."""

    title = "Starting a Ray task on each of"

    def __init__(self, work: NodeWork, address: str) -> None:
        # Redirect stdout, which must contain only our result, because Ray prints messages about its
        # nodes there.
        with redirect_stdout(sys.stderr):
            self.ray = _connected(address)
        self.cluster_nodes = ray_nodes(self.ray.nodes())
        # Nodes without GPUs, such as a head node, get work only if the user named them.
        states = {
            name: "" if gpus_of(row) or work.nodes else "it has no GPU in Ray"
            for name, row in self.cluster_nodes.items()
        }
        try:
            super().__init__(work, states, "this Ray")
        except BaseException:
            self.ray.shutdown()
            raise
        # With a short limit, a node whose GPUs are in use is skipped sooner, too.
        self.extra_seconds = min(START_SECONDS, self.work.limit) + BEHIND_SECONDS

    def ask(self, node: str) -> Output:
        """Run the work in a task on the node; any exception that Ray raises becomes the output's
        problem."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        began, row = time.monotonic(), self.cluster_nodes[node]
        affinity = NodeAffinitySchedulingStrategy(node_id=row["NodeID"], soft=False)
        # All GPUs, so that no other job computes on them meanwhile. No CPUs, so that the task can
        # also start if all CPUs are busy.
        task = self.ray.remote(run_work).options(
            num_gpus=gpus_of(row), num_cpus=0, max_retries=0, scheduling_strategy=affinity
        )
        result = task.remote(self.work)
        try:
            fields = self.ray.get(result, timeout=self.work.limit + self.extra_seconds)
            return Output(argv=("ray", node), **fields)
        except self.ray.exceptions.GetTimeoutError:
            # A task that had started would have ended at its own limit.
            problem = BUSY
            self.ray.cancel(result, force=True)
        except Exception as wrong:
            problem = _last_line(wrong)
        seconds = time.monotonic() - began
        return Output(argv=("ray", node), exit=None, problem=problem, seconds=seconds)

    def why_busy(self, output: Output) -> str:
        # Only this problem is not a fault of the node.
        return BUSY if output.problem == BUSY else ""

    def end(self) -> None:
        with redirect_stdout(sys.stderr):
            self.ray.shutdown()


def _connected(address: str) -> Any:
    """The module ray, connected to the cluster. Raises Blocked if it is missing or refuses."""
    try:
        import ray
    except ImportError as problem:
        raise Blocked(
            f"Ray is not installed in this Python ({sys.executable}): {problem}",
            hint='install the cluster\'s own version: `pip install "gpusetup[ray]"`',
        ) from problem
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as problem:
        raise Blocked(
            f"Ray at {address} does not respond: {_last_line(problem)}",
            hint="`ray status` shows whether a cluster runs; `auto` means the one on this machine",
        ) from problem
    return ray


LONGEST_REASON = 300
"""How many characters of Ray's message are shown."""


def _last_line(problem: BaseException) -> str:
    """The last line of an exception's message, without the tracebacks of other processes; the class
    name if there is no message."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return lines[-1][:LONGEST_REASON] if lines else type(problem).__name__
