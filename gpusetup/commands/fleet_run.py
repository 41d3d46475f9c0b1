"""`gpusetup fleet run`: the same proof on each node, by the engine that is there."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.commands import fleet_run_kubernetes
from gpusetup.commands.common import add_limit
from gpusetup.commands.fleet_show import add_nodes, shown
from gpusetup.errors import Blocked, UsageError
from gpusetup.render.clock import CLOCK
from gpusetup.render.console import Console
from gpusetup.render.language import plain
from gpusetup.system.refused import blocked_by_files

if TYPE_CHECKING:
    from gpusetup.fleet.engines.engine import Engine
    from gpusetup.fleet.work import Work

USUAL_FOLDER = "gpusetup-fleet"


SUMMARY = (
    "Gathers a folder of records: `fleet check`, snapshot and verify on every idle node of Slurm, "
    "Ray or Kubernetes, or on the hosts of a file, and judges it as `fleet show` does. Exit 1 "
    "where a node failed or did not answer."
)
EXAMPLES = (
    "gpusetup fleet run --slurm --partition train --print",
    "gpusetup fleet run --slurm --partition train --level standard --into records/",
)
ENGINES = {"slurm": "--slurm", "hosts": "--hosts", "ray": "--ray", "kubernetes": "--kubernetes"}
OF_ENGINE = {
    "partition": "slurm",
    "after": "slurm",
    "image": "kubernetes",
    "namespace": "kubernetes",
    "runtime_class": "kubernetes",
}
"""What one engine alone takes."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.takes_command = True  # type: ignore[attr-defined]
    add_nodes(parser)
    _add_engines(parser.add_argument_group("by which engine"))
    group = parser.add_argument_group("what each node does")
    group.add_argument(
        "--level", choices=("quick", "standard", "stress"), default="quick", help="verify's level"
    )
    group.add_argument("--device", default="auto", metavar="NAME", help="as verify takes it")
    group.add_argument(
        "--ranks",
        metavar="N|gpu",
        help="verify as torchrun's processes, one a GPU: the collectives of a node too",
    )
    group.add_argument("--python", metavar="PATH", help="the interpreter whose torch is proven")
    group.add_argument(
        "--node-python",
        metavar="PATH",
        help="the Python on the nodes that has gpusetup (this one's path; Ray: the workers' own)",
    )
    group = parser.add_argument_group("how")
    group.add_argument("--print", action="store_true", help="show what would be submitted, and end")
    group.add_argument(
        "--into", metavar="DIR", help=f"a new folder for the records ({USUAL_FOLDER}-DATE)"
    )
    group.add_argument(
        "--at-once", type=int, default=32, metavar="N", help="nodes at the same time (32)"
    )
    add_limit(group, "for each node (by level: 300, 1200, 600)")


def _add_engines(group: argparse._ArgumentGroup) -> None:
    one = group.add_mutually_exclusive_group()
    one.add_argument("--slurm", action="store_true", help="an exclusive job on each idle node")
    one.add_argument("--hosts", metavar="FILE", help="ssh to each host of a file")
    one.add_argument(
        "--ray", metavar="ADDRESS", help="an actor on each node of a Ray cluster; `auto`: this one"
    )
    one.add_argument(
        "--kubernetes",
        nargs="?",
        const="jobs",
        choices=("jobs", "daemonset"),
        help="a Job on each idle node; or print what sets a node's condition from now on",
    )
    group.add_argument("--partition", metavar="NAME", help="Slurm: of this partition only")
    fleet_run_kubernetes.add_options(group)


def run(options: argparse.Namespace, out: Console) -> int:
    """Ask every node, keep their records, and judge them."""
    engine_named = next((name for name in ENGINES if getattr(options, name)), "")
    for name, owner in OF_ENGINE.items():
        if getattr(options, name) and owner != engine_named:
            said = "what follows `--`" if name == "after" else f"`--{name.replace('_', '-')}`"
            raise UsageError(f"{said} is for `{ENGINES[owner]}`", hint="name that engine, too")
    work = _work(options)
    if options.kubernetes and fleet_run_kubernetes.printed(options, work, out):
        return 0
    into = _folder(options)
    engine = _engine(options, work)
    if options.print:
        out.text(engine.plan)
        return 0
    out.talk(_first(engine, options.at_once, work.limit, into))
    _make(into)
    with _ending(engine):
        _ask_all(engine, options.at_once, into, out)
    if len(engine.left_alone) and not any(into.iterdir()):
        raise Blocked("No node was idle when its turn came", hint="the same again, later")
    options.folder = str(into)
    return shown(options, (), engine.left_alone, out)


def _work(options: argparse.Namespace) -> Work:
    from gpusetup.fleet.work import LIMIT_SECONDS, Work

    if options.at_once < 1:
        raise UsageError(f"`--at-once` is {options.at_once}", hint="1 or more")
    if options.ranks and options.ranks != "gpu" and not options.ranks.isdigit():
        raise UsageError(f"`--ranks` is {options.ranks!r}", hint="write `gpu` or a number")
    return Work(
        python=options.node_python or ("" if options.ray else sys.executable),
        target=options.python,
        level=options.level,
        device=options.device,
        ranks=options.ranks,
        limit=options.limit or LIMIT_SECONDS[options.level],
    )


def _folder(options: argparse.Namespace) -> Path:
    """A new folder: records of another run would be taken for this one's."""
    from datetime import datetime

    now = f"{datetime.now():%Y%m%d-%H%M%S}"
    folder = Path(options.into or f"{USUAL_FOLDER}-{now}").absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} is not empty, and the records need a new folder",
            hint="name another `--into`",
        )
    return folder


def _make(folder: Path) -> None:
    with blocked_by_files(f"Cannot make {folder}", "name another `--into`"):
        folder.mkdir(parents=True, exist_ok=True)


def _engine(options: argparse.Namespace, work: Work) -> Engine:
    if options.slurm:
        from gpusetup.commands.fleet_run_slurm import slurm_engine

        return slurm_engine(options, work)
    if options.hosts:
        return _hosts(options, work)
    if options.kubernetes:
        return fleet_run_kubernetes.kubernetes_engine(options, work)
    if options.ray:
        from gpusetup.fleet.engines.ray_run import ray_engine
        from gpusetup.fleet.names import expanded

        named = expanded(options.nodes) if options.nodes else ()
        return ray_engine(options.ray, named, work, only_plan=options.print)
    raise UsageError(
        "`fleet run` asks by an engine, and none is named",
        hint="one of `--slurm`, `--ray ADDRESS`, `--kubernetes`, `--hosts FILE`",
    )


def _hosts(options: argparse.Namespace, work: Work) -> Engine:
    from gpusetup.fleet.engines.engine import by_words, needed
    from gpusetup.fleet.engines.hosts import END_SECONDS, MOST_BYTES, hosts_in, ssh_words
    from gpusetup.fleet.work import shell
    from gpusetup.named_file import read_text

    text = read_text(options.hosts, MOST_BYTES)
    names, command = _named(hosts_in(text, options.hosts), options), shell(work)
    needed("ssh")

    def words(host: str) -> tuple[str, ...]:
        return ssh_words(host, command)

    limit = work.limit + END_SECONDS
    return by_words("hosts", names, words, limit, more_seconds=END_SECONDS)


def _named(hosts: tuple[str, ...], options: argparse.Namespace) -> tuple[str, ...]:
    """All hosts of the file, or those of them that `--nodes` names."""
    from gpusetup.fleet.names import expanded, slurm_list

    wanted = expanded(options.nodes) if options.nodes else hosts
    absent = [name for name in wanted if name not in hosts]
    if absent:
        raise UsageError(f"{options.hosts} has no host {slurm_list(absent)}")
    return wanted


def _first(engine: Engine, at_once: int, limit: float, into: Path) -> str:
    """What is going to happen, in one line."""
    count = len(engine.nodes)
    together = f", {min(at_once, count)} at once" if count > 1 else ""
    each = f"{count} node{'s' * (count != 1)}{together}, each for {limit:g} s at most"
    if engine.more_seconds:
        each += f", and {engine.more_seconds:g} s more to begin and to end"
    return f"{engine.what} {each}; records go to {plain(str(into))}"


def _ask_all(engine: Engine, at_once: int, into: Path, out: Console) -> None:
    from gpusetup.fleet.conductor import conducted
    from gpusetup.fleet.work import keep

    began = time.monotonic()
    asked = conducted(engine.nodes, engine.ask, at_once)
    for done, (node, said) in enumerate(asked, 1):
        if why := engine.taken(said):
            engine.left_alone[node] = why
            out.talk(f"{node}: left alone, {plain(why)}")
        else:
            problem = keep(into, node, said)
            out.talk(f"{node}: {plain(problem or 'answered')} ({said.seconds:.0f} s)")
        CLOCK.reached(done, len(engine.nodes), "nodes", began)


@contextmanager
def _ending(engine: Engine) -> Iterator[None]:
    """Nothing that was submitted stays behind, however this ends: a logout is like a Ctrl-C."""
    import signal

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {
        name: signal.signal(getattr(signal, name), signal.default_int_handler) for name in names
    }
    try:
        yield
    finally:
        engine.end()
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)
