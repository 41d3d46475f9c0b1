"""`gpusetup fleet`: the same judgement on many nodes, and which of them is not like the others."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.commands import fleet_run, fleet_sweep
from gpusetup.commands.fleet_options import refuse_foreign
from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.fleet.folder import Records, read_folder
from gpusetup.fleet.judge import Judge
from gpusetup.fleet.show import FleetAnswer, NotAsked, answer
from gpusetup.model.frozen import replace
from gpusetup.render.clock import CLOCK
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from collections.abc import Mapping

SUMMARY = (
    "`fleet show FOLDER` reads a folder of records (snapshots, doctor's answers, reports of verify "
    "and node-check, a file a node) and shows one row a node, the worst first: its findings, and "
    "in what it is not like most nodes of its kind. `fleet run` gathers such a folder first: "
    "node-check, snapshot and verify on every idle node of Slurm, Ray or Kubernetes, or on the "
    "hosts of a file. "
    "`fleet sweep` is started by a launcher as every rank and names the rank, node or path that is "
    "slow, broken or silent. Exit 1 where a node failed or did not answer."
)
EXAMPLES = (
    "gpusetup fleet show records/",
    'gpusetup fleet show records/ --nodes "gpu[001-064]"',
    "gpusetup fleet run --slurm --partition train --print",
    "gpusetup fleet run --slurm --partition train --level standard --into records/",
    "srun --ntasks-per-node=8 gpusetup fleet sweep",
)
ACTIONS = ("show", "run", "sweep")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=ACTIONS,
        help="show: judge a folder of records; run: gather one from the nodes, and judge it; "
        "sweep: exchange in pairs, as a rank of srun, torchrun or Ray",
    )
    parser.add_argument("folder", metavar="DIR", nargs="?", help="show: the folder")
    parser.add_argument(
        "--nodes", metavar="LIST", help="the nodes that should have a record: gpu[001-016],login1"
    )
    parser.add_argument("--profile", metavar="FILE", help="what every node must be like, as TOML")
    parser.add_argument(
        "--strict", action="store_true", help="a node unlike the others, or slowed, counts too"
    )
    fleet_run.add_options(parser)
    fleet_sweep.add_options(parser)


def run(options: argparse.Namespace, out: Console) -> int:
    if options.action == "sweep":
        refuse_foreign(options)
        return fleet_sweep.run(options, out)
    _checked(options, out)
    left_alone: Mapping[str, str] = {}
    if options.action == "run":
        gathered = fleet_run.run(options, out)
        if gathered is None:
            return 0
        options.folder, left_alone = str(gathered.folder), gathered.left_alone
        options.nodes = None
    return _shown(options, left_alone, out)


def _checked(options: argparse.Namespace, out: Console) -> None:
    """What cannot be meant. Raises UsageError."""
    refuse_foreign(options)
    if options.after and not options.slurm:
        raise UsageError("what follows `--` goes to srun: it needs `fleet run --slurm`")
    if options.action == "run":
        if options.folder:
            raise UsageError(
                "`fleet run` takes no folder",
                hint="`fleet show DIR` for records that are there, `--into DIR` for new ones",
            )
    elif not options.folder:
        raise UsageError("`fleet show` needs the folder of records")


def _shown(options: argparse.Namespace, left_alone: Mapping[str, str], out: Console) -> int:
    found = show(options)
    rest = tuple(NotAsked(name=name, why=why) for name, why in left_alone.items())
    found = replace(found, not_asked=rest)
    from gpusetup.render.fleet import fleet_screen

    out.answer(found, fleet_screen(found))
    bad = (
        node.status != "ok" if options.strict else node.status == "failed" for node in found.nodes
    )
    return Unsatisfiable.exit_code if any(bad) else 0


def show(options: argparse.Namespace) -> FleetAnswer:
    """The folder's answer."""
    from gpusetup.catalog.file import load_catalog
    from gpusetup.commands.node_check import expected_of
    from gpusetup.fleet.names import expanded
    from gpusetup.fleet.profile import held_against

    expected = expanded(options.nodes) if options.nodes else ()
    profile = expected_of(options.profile) if options.profile else ()
    judge = Judge(load_catalog())
    records = _read(options.folder, judge)
    records = replace(records, nodes=tuple(held_against(profile, one) for one in records.nodes))
    return answer(records, expected)


def _read(folder: str, judge: Judge) -> Records:
    records = read_folder(Path(folder), judge, CLOCK.reached)
    if not records.nodes:
        first = f"; {records.left_out[0]}" if records.left_out else ""
        raise UsageError(
            f"{folder} holds no record of gpusetup{first}",
            hint="on each node: `gpusetup snapshot --output FOLDER/$(hostname).json`",
        )
    return records
