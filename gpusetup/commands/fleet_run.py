"""`gpusetup fleet run`: runs the same tests on every node by Slurm, Ray, Kubernetes or ssh."""

from __future__ import annotations

import sys
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.commands.common import DAY_SECONDS, PYTHON, seconds_from
from gpusetup.commands.fleet_show import NODES, judged
from gpusetup.commands.question import (
    CommandQuestion,
    HelpGroup,
    command_after_dashes,
    option,
    switch,
)
from gpusetup.commands.reply import Reply
from gpusetup.errors import Blocked, UsageError
from gpusetup.render.console import Console
from gpusetup.render.screen import plural
from gpusetup.system.refusals import blocked_by_files
from gpusetup.system.signals import interruptible

if TYPE_CHECKING:
    from gpusetup.fleet.engines.engine import Engine

USUAL_FOLDER = "gpusetup-fleet"

SUMMARY = """Runs `fleet check`, `snapshot` and `verify` on every idle node of Slurm, Ray or
Kubernetes, or on the hosts listed in a file. It saves the records in a folder, and shows them as
`fleet show` does. The exit code is 1 if a node failed or did not respond."""
EXAMPLES = (
    "gpusetup fleet run --slurm --partition train --print",
    "gpusetup fleet run --slurm --partition train --level standard --into records/",
)


class Question(CommandQuestion):
    nodes: str | None = NODES

    _by_engine = HelpGroup("how to reach the nodes")
    slurm: bool = switch(
        "submit an exclusive Slurm job to each idle node", one_of="engine", is_needed=True
    )
    hosts: str | None = option(
        "connect over ssh to each host listed in FILE", metavar="FILE", one_of="engine"
    )
    ray: str | None = option(
        "start a task on each node of this Ray cluster; `auto` uses the running cluster",
        metavar="ADDRESS",
        one_of="engine",
    )
    kubernetes: str | None = option(
        "start a Job on each idle node, with this image (it must contain gpusetup and your torch)",
        metavar="IMAGE",
        one_of="engine",
    )
    partition: str | None = option("with Slurm: use only this partition", metavar="NAME")
    runtime_class: str | None = option(
        "with Kubernetes: the runtime class, if needed, e.g. nvidia", metavar="NAME"
    )

    _each_node = HelpGroup("what to run on each node")
    level: str = option(
        "the level of `gpusetup verify`", default="quick", choices=("quick", "standard", "stress")
    )
    python: str | None = PYTHON
    node_python: str | None = option(
        "path of the Python with gpusetup on the nodes (default: the same path as here; Ray: the "
        "workers' Python)",
        metavar="PATH",
    )
    limit: float | None = option(
        "time limit for each node (default: 300, 1200 or 600, depending on the level)",
        metavar="SECONDS",
        parse=seconds_from(5, 7 * DAY_SECONDS),
    )

    _how = HelpGroup("submission and records")
    print: bool = switch("only show what would be submitted")
    into: str | None = option(
        f"write the records into this new folder (default: {USUAL_FOLDER}-DATE)", metavar="DIR"
    )
    after: tuple[str, ...] = command_after_dashes()


def run(question: Question, out: Console) -> Reply:
    """Run the work on every node, save the records and evaluate them. With `--print`, only show
    what would be submitted."""
    of_one_engine = (
        (question.partition, "--partition", question.slurm, "--slurm"),
        (question.after, "--", question.slurm, "--slurm"),
        (question.runtime_class, "--runtime-class", question.kubernetes, "--kubernetes"),
    )
    for value, flag, is_chosen, engine_flag in of_one_engine:
        if value and not is_chosen:
            raise UsageError(f"`{flag}` needs `{engine_flag}`", hint="add that option, too")
    into = _folder(question)
    engine = _engine(question)
    if question.print:
        return Reply(screen=engine.plan())
    limit = engine.work.limit + engine.extra_seconds
    nodes = plural(len(engine.nodes), "node")
    out.talk(f"{engine.title} {nodes} (time limit: {limit:g} s each); records go to {into}")
    with blocked_by_files(f"Cannot create {into}", "name another `--into`"):
        into.mkdir(parents=True, exist_ok=True)
    # Ctrl-C also ends the jobs that were submitted.
    with interruptible():
        _collect(engine, into, out)
    # If every node was busy when its turn came, there is no record to show.
    if engine.skipped and not any(into.iterdir()):
        raise Blocked("All nodes were busy", hint="run it again later")
    return judged(str(into), not_asked=engine.skipped)


def _engine(question: Question) -> Engine:
    """The engine that reaches the nodes, with the work of each."""
    from gpusetup.fleet.names import expanded
    from gpusetup.fleet.work import LIMIT_SECONDS, NodeWork

    usual_python = sys.executable
    if question.ray:  # the workers' own Python
        usual_python = ""
    elif question.kubernetes:  # the path of our Python does not exist in the image
        usual_python = "python"
    work = NodeWork(
        python=question.node_python or usual_python,
        target=question.python,
        level=question.level,
        limit=question.limit or LIMIT_SECONDS[question.level],
        nodes=expanded(question.nodes) if question.nodes else (),
    )
    if question.slurm:
        from gpusetup.fleet.engines.slurm import Slurm

        return Slurm(work, question.partition, question.after)
    if question.hosts:
        from gpusetup.fleet.engines.hosts import Hosts

        return Hosts(work, question.hosts)
    if question.ray:
        from gpusetup.fleet.engines.ray import Ray

        return Ray(work, question.ray)
    from gpusetup.fleet.engines.kubernetes import Kubernetes

    assert question.kubernetes is not None, "the parser requires one of the four engines"
    return Kubernetes(work, question.kubernetes, question.runtime_class)


def _folder(question: Question) -> Path:
    """The path of the folder for the records. Raises UsageError if it exists and is not empty, so
    that records of two runs never mix."""
    folder = Path(question.into or f"{USUAL_FOLDER}-{datetime.now():%Y%m%d-%H%M%S}").absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        problem = f"{folder} already exists and is not empty"
        raise UsageError(problem, hint="name another `--into`")
    return folder


def _collect(engine: Engine, into: Path, out: Console) -> None:
    """Run the work on each node, and save its records as soon as they come. A node that turns out
    to be busy is noted in `engine.skipped`."""
    from gpusetup.fleet.engines.engine import ask_all
    from gpusetup.fleet.work import write_records

    with closing(ask_all(engine)) as answers:
        for node, output in answers:
            if why := engine.why_busy(output):
                engine.skipped[node] = why
                out.talk(f"{node}: skipped, {why}")
            else:
                problem = write_records(into, node, output)
                out.talk(f"{node}: {problem or 'answered'} ({output.seconds:.0f} s)")
