"""The interface of an engine for `fleet run`. An engine lists the nodes, runs work on each of them,
and cleans up at the end."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from shutil import which

from gpusetup.errors import Blocked, UsageError
from gpusetup.fleet.names import natural, slurm_list
from gpusetup.fleet.work import NodeWork, script
from gpusetup.system.processes import Output, end_children, run

MOST_CHILDREN = 32
"""How many nodes are contacted at the same time. Each needs an srun, ssh or kubectl process on this
machine, which is often a login node."""


class Engine:
    """A way to reach the nodes of a fleet. Each engine is a subclass in a separate file."""

    title = ""
    """The beginning of the line that says what the run does, before `4 nodes`: `Starting a Ray task
    on each of`."""
    extra_seconds = 0.0
    """How many seconds longer than the work's own limit we wait for a node, so that it can start
    and finish."""

    def __init__(self, work: NodeWork, states: Mapping[str, str], where: str) -> None:
        """`states` maps each node to the reason why it gets no work ("" if it is idle); `where`
        names the cluster in messages.

        Raises UsageError if a named node does not exist, and Blocked if no node is idle.
        """
        self.work = work
        self.run_name = f"gpusetup-{secrets.token_hex(4)}"
        unknown = [name for name in work.nodes if name not in states]
        if unknown:
            message = f"{where} has no node {slurm_list(unknown)}"
            raise UsageError(message, hint=f"it has {slurm_list(states)}")
        chosen = set(work.nodes or states)
        self.nodes = tuple(sorted((name for name in chosen if not states[name]), key=natural))
        # Nodes that get no work, each with the reason, in the engine's order.
        self.skipped = {name: why for name, why in states.items() if why and name in chosen}
        if not self.nodes:
            # The first node's reason is enough. A cluster may have no nodes at all.
            reasons = [f"{name}: {why}" for name, why in self.skipped.items()]
            reason = reasons[0] if reasons else f"{where} has no nodes"
            raise Blocked(
                f"No node is idle: {reason}",
                hint="`fleet run` uses only idle nodes; `gpusetup fleet check` also works on busy "
                "ones",
            )

    def command(self, node: str) -> tuple[str, ...]:
        """The command that does the work on a node; for an engine that runs no command on this
        machine, the work itself, for `plan` to show."""
        return (f"{node}:", script(self.work))

    def plan(self) -> str:
        """A text that shows what the run would submit for the first node, followed by the list of
        all nodes."""
        first = shlex.join(self.command(self.nodes[0]))
        return f"{first}\n# and the same on each of these nodes: {slurm_list(self.nodes)}\n"

    def ask(self, node: str) -> Output:
        """Run the work on a node, wait until it ends, and return its output. A problem with the
        node is reported in the output and raises no exception."""
        return run(self.command(node), timeout=self.work.limit + self.extra_seconds)

    def why_busy(self, output: Output) -> str:
        """Why the work could not start on a node, for example because another job took the node
        first; "" if the work ran."""
        return ""

    def end(self) -> None:
        """Stop everything that this run started and that still runs."""


def ask_all(engine: Engine) -> Generator[tuple[str, Output], None, None]:
    """Run the work on all nodes in parallel, and yield each node with its output when it has
    finished.

    However this ends, it also stops all child processes and calls the engine's `end`.
    """
    pool = ThreadPoolExecutor(max_workers=MOST_CHILDREN)
    try:
        futures = {pool.submit(engine.ask, node): node for node in engine.nodes}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BaseException:
        # After Ctrl-C, or if the caller stops iterating, nothing that was started may keep running.
        pool.shutdown(wait=False, cancel_futures=True)
        end_children()
        raise
    finally:
        engine.end()


def require_program(program: str) -> None:
    """Raise Blocked if a program is not on this machine's PATH."""
    if which(program) is None:
        raise Blocked(
            f"{program} was not found on PATH",
            hint=f"run gpusetup on a machine that has {program}, such as a login node; "
            "`--hosts FILE` needs only ssh",
        )
