"""Ray: one actor on each node, by node affinity, that has all of the node's GPUs. Home of `ray`.

Sources: ray.nodes(), NodeAffinitySchedulingStrategy and ray.cancel of Ray 2.9 to 2.60.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from typing import Any

from gpusetup.errors import Blocked, UsageError
from gpusetup.fleet.engines.engine import Engine
from gpusetup.fleet.folder import natural
from gpusetup.fleet.names import SAFE
from gpusetup.fleet.show import NotAsked
from gpusetup.fleet.work import Work, script
from gpusetup.model.frozen import Frozen, replace
from gpusetup.system.processes import Output, no_answer_in, run

START_SECONDS = 60.0
"""So long may an idle node take to start a worker; one whose GPUs are in use takes longer."""
ALIVE_SECONDS = 20.0
"""So long may a node that answers take to start a worker without a GPU."""
BEHIND_SECONDS = 15.0
"""So much later than the work's own limit its answer may come."""
TAKEN = "its GPUs are in use"
OF_THE_ACTOR = ("CUDA_VISIBLE_DEVICES", "PYTHONBREAKPOINT")
"""Variables that Ray sets in a worker and that say nothing of the node."""


class RayNode(Frozen):
    """A node of the cluster that is alive."""

    name: str
    id: str
    gpus: float = 0.0


class Chosen(Frozen):
    nodes: tuple[RayNode, ...]
    not_asked: tuple[NotAsked, ...] = ()


def ray_nodes(rows: Iterable[Mapping[str, Any]]) -> tuple[RayNode, ...]:
    """The nodes that are alive, as `ray.nodes()` tells them, by names that differ.

    A node's own name counts (`ray start --node-name`), else its host's; where two have the same,
    the beginning of Ray's id is added.
    """
    alive = [row for row in rows if row.get("Alive")]
    names = [_name(row) for row in alive]
    counts = Counter(names)
    found = (
        RayNode(
            name=name if counts[name] == 1 else f"{name}-{row['NodeID'][:6]}",
            id=str(row["NodeID"]),
            gpus=float(row.get("Resources", {}).get("GPU", 0.0)),
        )
        for name, row in zip(names, alive, strict=True)
    )
    return tuple(sorted(found, key=lambda node: natural(node.name)))


def _name(row: Mapping[str, Any]) -> str:
    address, own = str(row.get("NodeManagerAddress")), str(row.get("NodeName", ""))
    host = str(row.get("NodeManagerHostname", "")).partition(".")[0]
    name = own if own and own != address else host or address
    return name if SAFE.fullmatch(name) else str(row["NodeID"])[:12]


def chosen(nodes: Sequence[RayNode], named: Sequence[str]) -> Chosen:
    """The named nodes, else those with GPUs, else all."""
    absent = [name for name in named if name not in {node.name for node in nodes}]
    if absent:
        there = ", ".join(node.name for node in nodes[:20])
        raise UsageError(f"this Ray has no node {', '.join(absent)}", hint=f"it has {there}")
    if named:
        return Chosen(nodes=tuple(node for node in nodes if node.name in named))
    with_gpus = tuple(node for node in nodes if node.gpus)
    rest = (node for node in nodes if with_gpus and not node.gpus)
    return Chosen(
        nodes=with_gpus or tuple(nodes),
        not_asked=tuple(NotAsked(name=node.name, why="it has no GPU in Ray") for node in rest),
    )


class OnNode:
    """What runs in a worker of Ray on a node."""

    def here(self) -> str:
        return sys.executable

    def done(self, work: Work) -> tuple[int | None, str, str, str | None, float]:
        """The node's work; an `Output` as plain values, whatever version of ours the caller has."""
        work = replace(work, python=work.python or sys.executable)
        environment = {name: v for name, v in os.environ.items() if name not in OF_THE_ACTOR}
        said = run(("sh", "-c", script(work)), timeout=work.limit, environment=environment)
        return said.exit, said.stdout, said.stderr, said.problem, said.seconds


def ray_engine(
    address: str, named: Sequence[str], work: Work, *, only_plan: bool = False
) -> Engine:
    """Ray as `fleet run` asks it. Raises Blocked where it cannot be reached."""
    asking = _Asking(address, work)
    try:
        found = chosen(asking.nodes(), named)
    except BaseException:
        asking.end()
        raise
    if only_plan:
        asking.end()
    asking.found = {node.name: node for node in found.nodes}
    return Engine(
        "Ray gets an actor on each of",
        tuple(asking.found),
        asking.ask,
        _plan(found.nodes, work),
        not_asked=found.not_asked,
        taken=lambda said: TAKEN if said.problem == TAKEN else "",
        end=asking.end,
        more_seconds=min(START_SECONDS, work.limit) + BEHIND_SECONDS,
    )


def _plan(nodes: Sequence[RayNode], work: Work) -> str:
    lines = (f"{node.name}: num_gpus={node.gpus:g}, NodeAffinity({node.id})" for node in nodes)
    said = script(replace(work, python=work.python or "python"))
    return "\n".join((*lines, f"each: {said}", ""))


class _Asking:
    """A connection to a cluster; the actors that run are ended with it."""

    def __init__(self, address: str, work: Work) -> None:
        with ExitStack() as stack:
            # Ray prints what it hears of nodes on stdout, where the answer belongs.
            stack.enter_context(redirect_stdout(sys.stderr))
            self.ray, self.work = _connected(address), work
            stack.callback(self.ray.shutdown)
            self._while_connected = stack.pop_all()
        self.found: dict[str, RayNode] = {}
        self._running: dict[str, Any] = {}
        self._lock = threading.Lock()

    def nodes(self) -> tuple[RayNode, ...]:
        return ray_nodes(self.ray.nodes())

    def ask(self, name: str) -> Output:
        """One node's work; whatever Ray raises of it is said as the node's problem."""
        began = time.monotonic()
        try:
            return self._asked(self.found[name])
        except self.ray.exceptions.GetTimeoutError:
            problem = no_answer_in(time.monotonic() - began)
        except Exception as wrong:
            problem = _in_short(wrong)
        finally:
            self._kill(name)
        return Output(
            argv=("ray", name), exit=None, problem=problem, seconds=time.monotonic() - began
        )

    def _asked(self, node: RayNode) -> Output:
        words, began = ("ray", node.name), time.monotonic()
        actor = self._started(node, node.gpus)
        if not self._here(actor, min(START_SECONDS, self.work.limit)):
            self._kill(node.name)
            if self._here(idle := self._started(node, 0), ALIVE_SECONDS):
                self.ray.get(idle.here.remote(), timeout=ALIVE_SECONDS)
                return Output(argv=words, exit=None, problem=TAKEN)
            return Output(argv=words, exit=None, problem=no_answer_in(time.monotonic() - began))
        answer = actor.done.remote(self.work)
        code, out, err, problem, seconds = self.ray.get(
            answer, timeout=self.work.limit + BEHIND_SECONDS
        )
        return Output(
            argv=words, exit=code, stdout=out, stderr=err, problem=problem, seconds=seconds
        )

    def _here(self, actor: Any, seconds: float) -> bool:
        """Whether an actor has begun, or failed to, within so many seconds."""
        return bool(self.ray.wait([actor.here.remote()], timeout=seconds)[0])

    def _started(self, node: RayNode, gpus: float) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options = {
            "num_gpus": gpus,
            "num_cpus": 0,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=node.id, soft=False),
        }
        actor = self.ray.remote(OnNode).options(**options).remote()
        with self._lock:
            self._running[node.name] = actor
        return actor

    def _kill(self, name: str) -> None:
        with self._lock:
            actor = self._running.pop(name, None)
        if actor is not None:
            self.ray.kill(actor)

    def end(self) -> None:
        for name in tuple(self._running):
            self._kill(name)
        self._while_connected.close()


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
            f"Ray at {address} does not answer: {_in_short(problem)}",
            hint="`ray status` shows whether a cluster runs; `auto` is the one of this machine",
        ) from problem
    return ray


def _in_short(problem: BaseException) -> str:
    """The last line that says something of a problem with the traces of other processes in it."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return (lines[-1] if lines else type(problem).__name__)[:300]
