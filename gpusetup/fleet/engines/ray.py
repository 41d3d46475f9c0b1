"""The engine for Ray: runs one actor on each node (by node affinity) that reserves all of the
node's GPUs. This is the only module that imports `ray`.

Sources: ray.nodes(), NodeAffinitySchedulingStrategy and ray.kill of Ray 2.9 to 2.60.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from typing import Any, NamedTuple

from gpusetup.errors import Blocked
from gpusetup.fleet.engines.engine import Engine
from gpusetup.fleet.names import SAFE
from gpusetup.fleet.work import NodeWork, script
from gpusetup.model.frozen import replace
from gpusetup.system.processes import Output, no_answer_in, run

START_SECONDS = 60.0
"""How many seconds an idle node may take to start a worker. If a node takes longer, its GPUs are in
use."""
BEHIND_SECONDS = 15.0
"""How many seconds after the work's own time limit its result may still arrive."""
BUSY = "no worker started: its GPUs are in use, or the node is stuck"
ACTOR_VARIABLES = ("CUDA_VISIBLE_DEVICES", "PYTHONBREAKPOINT")
"""Variables that Ray itself sets in a worker; their values say nothing about the node."""


class RayNode(NamedTuple):
    """A live node of a Ray cluster."""

    id: str
    gpus: float


SHORT_ID = 12
"""How many characters of a node's id are enough to distinguish it."""


def ray_nodes(rows: Iterable[Mapping[str, Any]]) -> dict[str, RayNode]:
    """Maps names to the live nodes from `ray.nodes()`. A name is the node name or host name; Ray's
    id replaces a name that is not unique or not safe."""
    alive = [row for row in rows if row.get("Alive")]
    # A node without a name of its own has its address there.
    names = [
        str(row["NodeName"])
        if row["NodeName"] != row["NodeManagerAddress"]
        else str(row["NodeManagerHostname"])
        for row in alive
    ]
    counts = Counter(names)
    nodes = {}
    for name, row in zip(names, alive, strict=True):
        # The name becomes part of a file name, so it must be safe.
        is_usable = counts[name] == 1 and SAFE.fullmatch(name)
        gpus = float(row["Resources"].get("GPU", 0.0))
        nodes[name if is_usable else row["NodeID"][:SHORT_ID]] = RayNode(row["NodeID"], gpus)
    return nodes


class OnNode:
    """The actor class whose methods run in a Ray worker on a node."""

    def ready(self) -> bool:
        return True

    def run_work(self, work: NodeWork) -> dict[str, Any]:
        """Run the node's work in this worker. Returns the fields of an `Output` as plain values, so
        that the worker may have another version of gpusetup."""
        environment = {k: v for k, v in os.environ.items() if k not in ACTOR_VARIABLES}
        # The worker's Python, unless the user named one.
        here = replace(work, python=work.python or sys.executable)
        output = run(("sh", "-c", script(here)), timeout=work.limit, environment=environment)
        return {name: getattr(output, name) for name in FIELDS}


FIELDS = ("exit", "stdout", "stderr", "problem", "seconds")


class Ray(Engine):
    """Runs the work in an actor on each node; the actors end with the connection to Ray."""

    title = "Ray gets an actor on each of"

    def __init__(self, work: NodeWork, address: str) -> None:
        # Redirect stdout, which must contain only our result, because Ray prints messages about its
        # nodes there.
        with redirect_stdout(sys.stderr):
            self.ray = _connected(address)
        self.cluster_nodes = ray_nodes(self.ray.nodes())
        # Nodes without GPUs, such as a head node, get work only if the user named them.
        states = {
            name: "" if node.gpus or work.nodes else NO_GPU
            for name, node in self.cluster_nodes.items()
        }
        try:
            super().__init__(work, states, "this Ray")
        except BaseException:
            self.ray.shutdown()
            raise
        self.start_seconds = min(START_SECONDS, self.work.limit)
        self.extra_seconds = self.start_seconds + BEHIND_SECONDS

    def ask(self, node: str) -> Output:
        """Run the work in an actor on the node; any exception that Ray raises becomes the output's
        problem."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        began = time.monotonic()
        argv, actor, place = ("ray", node), None, self.cluster_nodes[node]
        try:
            affinity = NodeAffinitySchedulingStrategy(node_id=place.id, soft=False)
            # All GPUs, so that no other job computes on them meanwhile. No CPUs, so that the actor
            # can also start if all CPUs are busy.
            options = {"num_gpus": place.gpus, "num_cpus": 0, "scheduling_strategy": affinity}
            actor = self.ray.remote(OnNode).options(**options).remote()
            # If a worker does not start in time, another job is using the node's GPUs.
            started, _ = self.ray.wait([actor.ready.remote()], timeout=self.start_seconds)
            if not started:
                return Output(argv=argv, exit=None, problem=BUSY)
            limit = self.work.limit + BEHIND_SECONDS
            return Output(
                argv=argv, **self.ray.get(actor.run_work.remote(self.work), timeout=limit)
            )
        except self.ray.exceptions.GetTimeoutError:
            problem = no_answer_in(time.monotonic() - began)
        except Exception as wrong:
            problem = _last_line(wrong)
        finally:
            if actor is not None:
                self.ray.kill(actor)
        return Output(argv=argv, exit=None, problem=problem, seconds=time.monotonic() - began)

    def why_busy(self, output: Output) -> str:
        # Only this problem is not a fault of the node.
        return BUSY if output.problem == BUSY else ""

    def end(self) -> None:
        with redirect_stdout(sys.stderr):
            self.ray.shutdown()


NO_GPU = "it has no GPU in Ray"


def _connected(address: str) -> Any:
    """The module ray, connected to the cluster. Raises Blocked if it is missing or refuses."""
    try:
        import ray
    except ImportError as problem:
        raise Blocked(
            f"Ray is not in this Python ({sys.executable}): {problem}",
            hint='with the cluster\'s own version: `pip install "gpusetup[ray]"`',
        ) from problem
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as problem:
        raise Blocked(
            f"Ray at {address} does not answer: {_last_line(problem)}",
            hint="`ray status` shows whether a cluster runs; `auto` is the one of this machine",
        ) from problem
    return ray


LONGEST_REASON = 300
"""How many characters of Ray's message are shown."""


def _last_line(problem: BaseException) -> str:
    """The last line of an exception's message, without the tracebacks of other processes; the class
    name if there is no message."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return lines[-1][:LONGEST_REASON] if lines else type(problem).__name__
