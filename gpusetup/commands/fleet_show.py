"""`gpusetup fleet show`: a folder of records, and which node is not like the others."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path

from gpusetup.errors import UsageError
from gpusetup.fleet.folder import read_folder
from gpusetup.fleet.show import answer
from gpusetup.model.frozen import replace
from gpusetup.render.clock import CLOCK
from gpusetup.render.console import Console

SUMMARY = (
    "Reads a folder of records (snapshots, doctor's answers, reports of verify and `fleet check`, "
    "one file for each node) and lists the nodes, the worst first: the findings of each, and how "
    "it differs from most nodes of its kind. Exit 1 if a node failed or did not answer."
)
EXAMPLES = (
    "gpusetup fleet show records/",
    'gpusetup fleet show records/ --nodes "gpu[001-064]"',
)


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="the folder of records")
    add_nodes(parser)
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 also if a node differs or is slow"
    )


def add_nodes(parser: ArgumentParser) -> None:
    """What `show` takes, and `run`, which shows its records."""
    parser.add_argument(
        "--nodes", metavar="LIST", help="nodes that should have a record: gpu[001-016],login1"
    )
    parser.set_defaults(strict=False)


def run(options: Namespace, out: Console) -> int:
    from gpusetup.fleet.nodes import expanded

    return shown(options, expanded(options.nodes) if options.nodes else (), {}, out)


def shown(
    options: Namespace, nodes: tuple[str, ...], not_asked: Mapping[str, str], out: Console
) -> int:
    """Judge the folder; `nodes` should have a record, `not_asked` got no work, with the reason."""
    from gpusetup.render.fleet import fleet_screen

    records = read_folder(Path(options.folder), CLOCK.reached)
    if not records.nodes:
        first = f"; {records.left_out[0]}" if records.left_out else ""
        raise UsageError(
            f"{options.folder} holds no record of gpusetup{first}",
            hint="on each node: `gpusetup snapshot --output FOLDER/$(hostname).json`",
        )
    found = replace(answer(records, nodes), not_asked=not_asked)
    states = {node.status for node in found.nodes}
    bad = states - {"ok"} if options.strict else states & {"failed"}
    return out.answer(found, fleet_screen, yes=not bad)
