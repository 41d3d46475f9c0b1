"""The interface of an engine for `fleet run`: it lists the nodes, runs work on each, and cleans up
at the end."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from shutil import which

from gpusetup.errors import Blocked, UsageError
from gpusetup.fleet.nodes import natural, slurm_list
from gpusetup.fleet.work import NodeWork, script
from gpusetup.model.frozen import Frozen
from gpusetup.system.processes import Output, end_children

MOST_CHILDREN = 32
"""Each is a process of srun, ssh or kubectl on this machine, often a login node."""
MOST_NODES_IN_HINT = 50
START_GAP_SECONDS = 0.1
"""A scheduler sees no more beginnings than one in so many seconds, and never two in step."""


class FleetRequest(Frozen):
    """The work of a `fleet run`, and the nodes that should do it."""

    work: NodeWork
    nodes: tuple[str, ...] = ()
    """Names of nodes; empty: all that are idle."""


class Engine:
    """A way to reach the nodes of a fleet. Each engine is a subclass in a separate file."""

    title = ""
    extra_seconds = 0.0
    """How much longer than its own limit a node is waited for: to begin, and to end."""

    def __init__(self, request: FleetRequest, states: Mapping[str, str], where: str) -> None:
        """`states` maps each node to the reason why it gets no work, "" if it is idle; `where`
        names the cluster in messages.

        Raises UsageError for a named node that is not there, Blocked if none is idle.
        """
        self.work = request.work
        self.run_name = f"gpusetup-{secrets.token_hex(4)}"
        unknown = [name for name in request.nodes if name not in states]
        if unknown:
            some_nodes = sorted(states, key=natural)[:MOST_NODES_IN_HINT]
            message = f"{where} has no node {slurm_list(unknown)}"
            raise UsageError(message, hint=f"it has {slurm_list(some_nodes)}")
        chosen = set(request.nodes or states)
        idle = [name for name in chosen if not states[name]]
        self.nodes = tuple(sorted(idle, key=natural))
        self.skipped: dict[str, str] = {}
        """Nodes that get no work, with the reason."""
        # In the order in which the engine lists them.
        for name, why in states.items():
            if why and name in chosen:
                self.skipped[name] = why
        if not self.nodes:
            raise self._none_is_idle(where)

    def _none_is_idle(self, where: str) -> Blocked:
        """The error if no node is idle, with some of the reasons."""
        reasons = [f"{name}: {why}" for name, why in self.skipped.items()]
        examples = "; ".join(reasons[:MOST_EXAMPLES])
        # A cluster may have no node at all.
        reason = examples or f"{where} has none"
        return Blocked(
            f"No node is idle: {reason}",
            hint="`fleet run` uses only idle nodes; `gpusetup fleet check` disturbs no running job",
        )

    def plan(self) -> str:
        """What the run would submit for the first node, followed by the list of all nodes, as
        text."""
        first_node = self.nodes[0]
        first_plan = self.plan_for(first_node)
        all_nodes = slurm_list(self.nodes)
        return f"{first_plan}\n# and the same on each of {all_nodes}\n"

    def plan_for(self, node: str) -> str:
        """What the run would submit for one node, as text."""
        commands = script(self.work)
        # A person reads it: an engine has its own form.
        return f"{node}: {commands}"

    def ask(self, node: str) -> Output:
        """Run the work on a node, wait until it ends, and return its output. Problems of the node
        are part of the output and raise no exception."""
        raise NotImplementedError

    def why_busy(self, output: Output) -> str:
        """Why the work could not start on a node because another job took the node first; "" if it
        ran."""
        del output
        return ""

    def end(self) -> None:
        """Stop everything that this run started and that still runs."""


def ask_all(engine: Engine) -> Generator[tuple[str, Output], None, None]:
    """Run the work on all nodes in parallel, and yield each node with its output when it has
    finished.

    However this ends, so do the children that were started for it, and the engine.
    """
    pool = ThreadPoolExecutor(max_workers=MOST_CHILDREN)
    start_lock = threading.Lock()

    def ask_in_turn(node: str) -> Output:
        # The lock is kept while this waits, so that the starts are spread.
        with start_lock:
            gap = START_GAP_SECONDS * random.uniform(0.5, 1.5)
            time.sleep(gap)
        return engine.ask(node)

    try:
        futures = {pool.submit(ask_in_turn, node): node for node in engine.nodes}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BaseException:
        # Ctrl-C, or a caller that reads no further: nothing that was started may stay.
        pool.shutdown(wait=False, cancel_futures=True)
        end_children()
        raise
    finally:
        engine.end()


def require_program(program: str) -> None:
    """Raise Blocked if a program is not on this machine's PATH."""
    if which(program) is None:
        raise Blocked(
            f"{program} is not found on PATH",
            hint=f"run gpusetup on a machine that has {program}, such as a login node; "
            "`--hosts FILE` needs only ssh",
        )


MOST_EXAMPLES = 3
"""Nodes that are not idle and are named with the reason."""
