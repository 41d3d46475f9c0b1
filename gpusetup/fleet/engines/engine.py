"""What `fleet run` knows of an engine: its nodes, how one is asked, and how all is ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from shlex import join
from shutil import which

from gpusetup.errors import Blocked
from gpusetup.fleet.show import NotAsked
from gpusetup.system.processes import Output, run

SHOWN = 3
"""So many nodes' commands are shown of a plan; the others differ in the name."""


def nothing(said: Output) -> str:
    """No answer means that a node was taken by others."""
    del said
    return ""


class Engine:
    """A way to ask nodes. `ask` gives what a node said and raises for nothing that it does."""

    def __init__(
        self,
        what: str,
        nodes: Sequence[str],
        ask: Callable[[str], Output],
        plan: str,
        *,
        not_asked: Sequence[NotAsked] = (),
        taken: Callable[[Output], str] = nothing,
        end: Callable[[], object] = lambda: None,
        more_seconds: float = 0.0,
    ) -> None:
        self.what, self.nodes, self.ask, self.plan = what, tuple(nodes), ask, plan
        self.taken, self.end = taken, end
        self.more_seconds = more_seconds
        """So much longer than its own limit a node is waited for: to begin, and to end."""
        self.left_alone = {one.name: one.why for one in not_asked}
        """Nodes that get no work, with the reason."""


def by_words(
    what: str,
    nodes: Sequence[str],
    words: Callable[[str], Sequence[str]],
    limit: float,
    environment: Mapping[str, str] | None = None,
    more_seconds: float = 0.0,
) -> Engine:
    """An engine that starts one program here for each node."""

    def ask(node: str) -> Output:
        return run(words(node), timeout=limit, environment=environment)

    return Engine(what, nodes, ask, plan_of(nodes, words), more_seconds=more_seconds)


def plan_of(nodes: Sequence[str], words: Callable[[str], Sequence[str]]) -> str:
    """The commands of the first nodes, and how many more there are."""
    lines = [join(words(node)) for node in nodes[:SHOWN]]
    if len(nodes) > SHOWN:
        lines.append(f"# and the same for {len(nodes) - SHOWN} more, to {nodes[-1]}")
    return "\n".join((*lines, ""))


def needed(program: str) -> None:
    """Raise Blocked where this machine lacks a program."""
    if which(program) is None:
        raise Blocked(f"{program} is not found on PATH", hint=WHERE.get(program))


WHERE = {
    "sinfo": "`--slurm` runs where Slurm's commands are, as on a login node; "
    "`--hosts FILE` needs ssh only",
    "kubectl": "`--kubernetes --print` shows the objects without it",
}
"""Program -> where to go without it."""
