"""`gpusetup fleet show`: evaluates a folder of records and finds the nodes that differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusetup.commands.question import NEEDED, CommandQuestion, argument, option, switch
from gpusetup.commands.reply import Reply
from gpusetup.errors import UsageError
from gpusetup.fleet.records import read_folder
from gpusetup.fleet.show import answer
from gpusetup.model.frozen import replace
from gpusetup.render.console import Console

SUMMARY = """Reads a folder of records (snapshots, doctor's JSON, reports of verify and `fleet
check`, one file for each node) and lists the nodes, those with the worst problems first. For each
node it shows the findings, and how the node differs from most nodes of its kind. The exit
code is 1 if a node failed or sent no record."""
EXAMPLES = (
    "gpusetup fleet show records/",
    'gpusetup fleet show records/ --nodes "gpu[001-064]"',
)

NODES: Any = option(
    "the nodes that you expect, e.g. gpu[001-016],login1; a node without a record counts as failed",
    "--nodes",
    metavar="LIST",
)


class Question(CommandQuestion):
    folder: str = argument("the folder that contains the records", default=NEEDED, metavar="DIR")
    nodes: str | None = NODES
    strict: bool = switch("also exit with 1 if a node has a warning or differs from the others")


def run(question: Question, out: Console) -> Reply:
    from gpusetup.fleet.names import expanded

    nodes = expanded(question.nodes) if question.nodes else ()
    return judged(question.folder, nodes, strict=question.strict)


def judged(
    folder: str,
    nodes: tuple[str, ...] = (),
    not_asked: Mapping[str, str] = {},
    *,
    strict: bool = False,
) -> Reply:
    """The reply with the state of every node, worst first. With `strict`, the exit code is 1 even
    if a node only differs. `nodes` should have a record; `not_asked` maps each node that was
    skipped to the reason."""
    from gpusetup.render.fleet import fleet_screen

    records = read_folder(Path(folder))
    if not records.nodes:
        example = f"; {records.left_out[0]}" if records.left_out else ""
        raise UsageError(
            f"{folder} contains no gpusetup record{example}",
            hint="on each node: `gpusetup snapshot --output FOLDER/$(hostname).json`",
        )
    fleet = replace(answer(records, nodes), not_asked=not_asked)
    states = {node.status for node in fleet.nodes}
    bad_states = states - {"ok"} if strict else states & {"failed"}
    return Reply(fleet, fleet_screen, 1 if bad_states else 0)
