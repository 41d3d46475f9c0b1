"""`gpusetup fleet run`: the same proof on each node, by the engine that is there."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.commands.common import add_shared
from gpusetup.commands.fleet_show import add_nodes, shown
from gpusetup.errors import Blocked, UsageError
from gpusetup.render.clock import CLOCK
from gpusetup.render.console import Console
from gpusetup.render.screen import plural
from gpusetup.system.refusals import blocked_by_files
from gpusetup.system.signals import interruptible

if TYPE_CHECKING:
    from gpusetup.fleet.engines.engine import Engine, FleetRequest

USUAL_FOLDER = "gpusetup-fleet"


SUMMARY = (
    "Runs `fleet check`, snapshot and verify on every idle node of Slurm, Ray or Kubernetes, or on "
    "the hosts of a file, keeps the records in a folder, and shows them as `fleet show` does. Exit "
    "1 if a node failed or did not answer."
)
EXAMPLES = (
    "gpusetup fleet run --slurm --partition train --print",
    "gpusetup fleet run --slurm --partition train --level standard --into records/",
)
ENGINE_OPTIONS = {
    "partition": "slurm",
    "after": "slurm",
    "runtime_class": "kubernetes",
}
"""What one engine alone takes; `after` is what follows `--`, options of srun."""


def configure(parser: ArgumentParser) -> None:
    parser.takes_command = True  # type: ignore[attr-defined]
    add_nodes(parser)
    group = parser.add_argument_group("by which engine")
    add, one = group.add_argument, group.add_mutually_exclusive_group(required=True).add_argument
    one("--slurm", action="store_true", help="an exclusive job on each idle node")
    one("--hosts", metavar="FILE", help="ssh to each host of a file")
    ray = "an actor on each node of a Ray cluster; `auto`: the running one"
    one("--ray", metavar="ADDRESS", help=ray)
    job = "a Job on each idle node, of an image with gpusetup and your torch"
    one("--kubernetes", metavar="IMAGE", help=job)
    add("--partition", metavar="NAME", help="Slurm: only this partition")
    add("--runtime-class", metavar="NAME", help="Kubernetes: nvidia, if needed")
    group = parser.add_argument_group("what each node does")
    add = group.add_argument
    levels = ("quick", "standard", "stress")
    add("--level", choices=levels, default="quick", help="verify's level")
    add_shared(group, "--device", "--python")
    own = (
        "the Python on the nodes that has gpusetup (default: the same path as here; Ray: the "
        "workers' own)"
    )
    add("--node-python", metavar="PATH", help=own)
    add_shared(group, "--limit", help="time for each node (default by level: 300, 1200, 600)")
    group = parser.add_argument_group("how")
    group.add_argument("--print", action="store_true", help="only show what would be submitted")
    folder = f"a new folder for the records (default: {USUAL_FOLDER}-DATE)"
    group.add_argument("--into", metavar="DIR", help=folder)


def run(options: Namespace, out: Console) -> int:
    """Ask every node, keep their records, and judge them."""
    _check_engine_options(options)
    request = _request(options)
    into = _folder(options)
    engine = _engine(options, request)
    if options.print:
        out.text(engine.plan())
        return 0
    most = engine.work.limit + engine.extra_seconds
    each = f"{plural(len(engine.nodes), 'node')}, each for {most:g} s at most"
    out.talk(f"{engine.title} {each}; records go to {into}")
    with blocked_by_files(f"Cannot make {into}", "name another `--into`"):
        into.mkdir(parents=True, exist_ok=True)
    with interruptible():  # so that nothing that was submitted stays behind
        _ask_all(engine, into, out)
    if len(engine.skipped) and not any(into.iterdir()):
        raise Blocked("No node was idle when its turn came", hint="the same again, later")
    options.folder = str(into)
    return shown(options, (), engine.skipped, out)


def _check_engine_options(options: Namespace) -> None:
    for name, owner in ENGINE_OPTIONS.items():
        if getattr(options, name) and not getattr(options, owner):
            flag = f"--{name.replace('_', '-')}" if name != "after" else "--"
            raise UsageError(f"`{flag}` is for `--{owner}`", hint="name that engine, too")


def _request(options: Namespace) -> FleetRequest:
    from gpusetup.fleet.engines.engine import FleetRequest
    from gpusetup.fleet.nodes import expanded
    from gpusetup.fleet.work import LIMIT_SECONDS, NodeWork

    usual = "" if options.ray else "python" if options.kubernetes else sys.executable
    work = NodeWork(
        python=options.node_python or usual,
        target=options.python,
        level=options.level,
        device=options.device,
        limit=options.limit or LIMIT_SECONDS[options.level],
    )
    return FleetRequest(work=work, nodes=expanded(options.nodes) if options.nodes else ())


def _engine(options: Namespace, request: FleetRequest) -> Engine:
    if options.slurm:
        from gpusetup.fleet.engines.slurm import Slurm

        return Slurm(request, options.partition, options.after)
    if options.hosts:
        from gpusetup.fleet.engines.hosts import Hosts

        return Hosts(request, options.hosts)
    if options.ray:
        from gpusetup.fleet.engines.ray import Ray

        return Ray(request, options.ray)
    from gpusetup.fleet.engines.kubernetes import Kubernetes, Setting

    setting = Setting(
        image=options.kubernetes,
        runtime_class=options.runtime_class,
    )
    return Kubernetes(request, setting)


def _folder(options: Namespace) -> Path:
    """A new folder: records of another run would be taken for this one's."""
    from datetime import datetime

    now = f"{datetime.now():%Y%m%d-%H%M%S}"
    folder = Path(options.into or f"{USUAL_FOLDER}-{now}").absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} is not empty: name a new folder for the records",
            hint="name another `--into`",
        )
    return folder


def _ask_all(engine: Engine, into: Path, out: Console) -> None:
    from gpusetup.fleet.engines.engine import ask_all
    from gpusetup.fleet.work import write_records

    began = time.monotonic()
    with closing(ask_all(engine)) as answers:
        for done, (node, output) in enumerate(answers, 1):
            if why := engine.why_busy(output):
                engine.skipped[node] = why
                out.talk(f"{node}: left alone, {why}")
            else:
                problem = write_records(into, node, output)
                out.talk(f"{node}: {problem or 'answered'} ({output.seconds:.0f} s)")
            CLOCK.reached(done, len(engine.nodes), "nodes", began)
