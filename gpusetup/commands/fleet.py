"""`gpusetup fleet`: the same judgement on many nodes, and which of them is not like the others."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.fleet.folder import Records, read_folder
from gpusetup.fleet.judge import Judge
from gpusetup.fleet.show import FleetAnswer, answer
from gpusetup.render.console import Console

SUMMARY = (
    "`fleet show FOLDER` reads a folder of records (snapshots, doctor's answers, reports of verify "
    "and node-check, a file a node) and shows one row a node, the worst first: its findings, and "
    "in what it is not like most nodes of its kind. Exit 1 where a node failed."
)
EXAMPLES = (
    "gpusetup fleet show records/",
    "gpusetup fleet show records/ --since last-week/ --nodes 'gpu[001-064]'",
    "gpusetup fleet show records/ --format openmetrics --output gpusetup.prom",
)
ACTIONS = ("show",)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, help="show: judge a folder of records")
    parser.add_argument("folder", metavar="DIR", help="the folder")
    parser.add_argument(
        "--since",
        metavar="DIR",
        action="append",
        default=[],
        help="an earlier folder of the same nodes: since when, and what changed; repeatable",
    )
    parser.add_argument(
        "--nodes", metavar="LIST", help="the nodes that should have a record: gpu[001-016],login1"
    )
    parser.add_argument("--strict", action="store_true", help="a node unlike the others counts too")
    parser.add_argument("--format", choices=("text", "html", "openmetrics"), default="text")


def run(options: argparse.Namespace, out: Console) -> int:
    found = show(options, out)
    if out.json or options.format == "text":
        from gpusetup.render.fleet import fleet_screen

        out.answer(found, fleet_screen(found))
    elif options.format == "html":
        from gpusetup.render.fleet_html import fleet_page

        out.script(fleet_page(found))
    else:
        from gpusetup.render.openmetrics import fleet_metrics

        out.script(fleet_metrics(found))
    bad = ("failed", "differs") if options.strict else ("failed",)
    return Unsatisfiable.exit_code if any(node.status in bad for node in found.nodes) else 0


def show(options: argparse.Namespace, out: Console) -> FleetAnswer:
    """The folder's answer."""
    from gpusetup.catalog.file import load_catalog
    from gpusetup.fleet.names import expanded

    if out.json and options.format != "text":
        raise UsageError(f"`--json` and `--format {options.format}` exclude each other")
    expected = expanded(options.nodes) if options.nodes else ()
    judge = Judge(load_catalog())
    records = _read(options.folder, judge)
    past = [_read(folder, judge) for folder in options.since]
    past.sort(key=lambda one: max((node.taken_at or "" for node in one.nodes), default=""))
    earlier = [{node.name: node for node in one.nodes} for one in past]
    return answer(records, earlier, expected)


def _read(folder: str, judge: Judge) -> Records:
    records = read_folder(Path(folder), judge)
    if not records.nodes:
        first = f"; {records.left_out[0]}" if records.left_out else ""
        raise UsageError(
            f"{folder} holds no record of gpusetup{first}",
            hint="on each node: `gpusetup snapshot --output FOLDER/$(hostname).json`",
        )
    return records
