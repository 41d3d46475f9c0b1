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
from typing import Any

from gpusetup.errors import Blocked
from gpusetup.fleet.engines.engine import Engine, FleetRequest
from gpusetup.fleet.nodes import SAFE
from gpusetup.fleet.work import NodeWork, script
from gpusetup.model.frozen import Frozen, replace
from gpusetup.system.processes import Output, no_answer_in, run

START_SECONDS = 60.0
"""How many seconds an idle node may take to start a worker. If a node takes longer, its GPUs are in
use."""
BEHIND_SECONDS = 15.0
"""How many seconds after the work's own time limit its result may still arrive."""
BUSY = "no worker started: its GPUs are in use, or the node is stuck"
ACTOR_VARIABLES = ("CUDA_VISIBLE_DEVICES", "PYTHONBREAKPOINT")
"""Variables that Ray itself sets in a worker; their values say nothing about the node."""


class RayNode(Frozen):
    """A live node of a Ray cluster."""

    id: str
    gpus: float = 0.0


SHORT_ID = 12
"""How many characters of a node's id are enough to distinguish it."""


def ray_nodes(rows: Iterable[Mapping[str, Any]]) -> dict[str, RayNode]:
    """Maps names to the live nodes from `ray.nodes()`. A name is the node name or host name; Ray's
    id replaces a name that is not unique or not safe."""
    alive = [row for row in rows if row.get("Alive")]
    names = [_ray_name(row) for row in alive]
    name_counts = Counter(names)
    nodes: dict[str, RayNode] = {}
    for name, row in zip(names, alive, strict=True):
        node_id = row["NodeID"]
        # The name becomes part of a file name, so it must be safe.
        is_usable = name_counts[name] == 1 and SAFE.fullmatch(name)
        key = name if is_usable else node_id[:SHORT_ID]
        gpus = row["Resources"].get("GPU", 0.0)
        nodes[key] = RayNode(id=node_id, gpus=float(gpus))
    return nodes


def _ray_name(row: Mapping[str, Any]) -> str:
    """The name that was given to a Ray node, or its host name if it was given none."""
    name = row["NodeName"]
    address = row["NodeManagerAddress"]
    if name == address:
        name = row["NodeManagerHostname"]
    return str(name)


class OnNode:
    """The actor class whose methods run in a Ray worker on a node."""

    def python(self) -> str:
        return sys.executable

    def run_work(self, work: NodeWork) -> tuple[int | None, str, str, str | None, float]:
        """Run the node's work in this worker. Returns the fields of an `Output` as plain values, so
        that the worker may have another version of gpusetup."""
        environment = dict(os.environ)
        for variable in ACTOR_VARIABLES:
            environment.pop(variable, None)
        # Use the worker's Python, unless the user named one.
        python = work.python or sys.executable
        work_here = replace(work, python=python)
        command = ("sh", "-c", script(work_here))
        output = run(command, timeout=work.limit, environment=environment)
        return output.exit, output.stdout, output.stderr, output.problem, output.seconds


class Ray(Engine):
    """Runs the work in an actor on each node; the actors end with the connection to Ray."""

    title = "Ray gets an actor on each of"

    def __init__(self, request: FleetRequest, address: str) -> None:
        # Redirect stdout, which must contain only our result, because Ray prints messages about its
        # nodes there.
        with redirect_stdout(sys.stderr):
            self.ray = _connected(address)
        self.cluster_nodes = ray_nodes(self.ray.nodes())
        # Skip nodes without GPUs (such as a head node), unless no node has one: then test the CPUs.
        has_gpus = any(node.gpus for node in self.cluster_nodes.values())
        leaves_out_cpu_nodes = has_gpus and not request.nodes
        states = {}
        for name, node in self.cluster_nodes.items():
            is_left_out = leaves_out_cpu_nodes and not node.gpus
            states[name] = NO_GPU if is_left_out else ""
        self.running: dict[str, Any] = {}
        try:
            super().__init__(request, states, "this Ray")
        except BaseException:
            self.ray.shutdown()
            raise
        self.start_seconds = min(START_SECONDS, self.work.limit)
        self.extra_seconds = self.start_seconds + BEHIND_SECONDS

    def ask(self, node: str) -> Output:
        """Run the work in an actor on the node; any exception that Ray raises becomes the output's
        problem."""
        began = time.monotonic()
        output = Output(argv=("ray", node), exit=None)
        try:
            actor = self._actor(self.cluster_nodes[node])
            self.running[node] = actor
            # If a worker does not start in time, another job is using the node's GPUs.
            started, _ = self.ray.wait([actor.python.remote()], timeout=self.start_seconds)
            if not started:
                return replace(output, problem=BUSY)
            answer = actor.run_work.remote(self.work)
            limit = self.work.limit + BEHIND_SECONDS
            code, out, err, problem, seconds = self.ray.get(answer, timeout=limit)
            return replace(
                output, exit=code, stdout=out, stderr=err, problem=problem, seconds=seconds
            )
        except self.ray.exceptions.GetTimeoutError:
            problem = no_answer_in(time.monotonic() - began)
        except Exception as wrong:
            problem = _last_line(wrong)
        finally:
            if node in self.running:
                self.ray.kill(self.running.pop(node))
        seconds = time.monotonic() - began
        return replace(output, problem=problem, seconds=seconds)

    def _actor(self, node: RayNode) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        affinity = NodeAffinitySchedulingStrategy(node_id=node.id, soft=False)
        actor_class = self.ray.remote(OnNode)
        # Reserve all GPUs, so that no other job computes on them meanwhile. Request no CPUs, so
        # that the actor can also start if all CPUs are busy.
        placed = actor_class.options(num_gpus=node.gpus, num_cpus=0, scheduling_strategy=affinity)
        return placed.remote()

    def why_busy(self, output: Output) -> str:
        problem = output.problem
        # Only this problem is not a fault of the node.
        is_busy = problem == BUSY
        return BUSY if is_busy else ""

    def end(self) -> None:
        with redirect_stdout(sys.stderr):
            self.ray.shutdown()


NO_GPU = "it has no GPU in Ray"


def _connected(address: str) -> Any:
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
    stripped_lines = [line.strip() for line in str(problem).splitlines()]
    lines = [line for line in stripped_lines if line]
    if not lines:
        # An empty message leaves only the class name.
        return type(problem).__name__
    last_line = lines[-1]
    return last_line[:LONGEST_REASON]
