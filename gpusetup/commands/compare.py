"""`gpusetup compare`: what differs between two machines, or between two dates of one."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpusetup.errors import BadInput, Unsatisfiable
from gpusetup.render.console import Console

SUMMARY = (
    "Shows what differs between two records (`gpusetup snapshot`, or the JSON of doctor, verify or "
    "node-check), the gravest first. Exit 1 where the second has a finding that the first has not, "
    "or differs in what programs depend on."
)
EXAMPLES = (
    "gpusetup compare before.json after.json",
    "gpusetup compare good-node.json bad-node.json --json",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", metavar="A", help="the record that is known, or the earlier one")
    parser.add_argument("second", metavar="B", help="the record that is compared with it")


def run(options: argparse.Namespace, out: Console) -> int:
    from gpusetup.catalog.file import load_catalog
    from gpusetup.fleet.compare import compared
    from gpusetup.fleet.folder import named_record
    from gpusetup.fleet.judge import Judge
    from gpusetup.render.fleet import compare_screen

    judge = Judge(load_catalog())
    first, second = (named_record(Path(name), judge) for name in (options.first, options.second))
    for node in (first, second):
        if node.problem:
            raise BadInput(node.problem, hint="write it again with `gpusetup snapshot --output`")
    answer = compared(first, second)
    out.answer(answer, compare_screen(answer))
    return Unsatisfiable.exit_code if answer.matters else 0
