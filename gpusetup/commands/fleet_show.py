"""`gpusetup fleet show`: a folder of records, and which node is not like the others."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from gpusetup.commands.common import shared
from gpusetup.commands.question import NEEDED, CommandQuestion, Option, argument, option, switch
from gpusetup.commands.reply import Reply
from gpusetup.commands.reply import answer as reply
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


NODES: Option = option(
    "nodes that should have a record: gpu[001-016],login1", "--nodes", metavar="LIST"
)


class FleetShowQuestion(CommandQuestion):
    """Which folder is judged, and which nodes it should have records of."""

    folder: str = argument("the folder of records", default=NEEDED, metavar="DIR")
    nodes: str | None = shared(NODES)
    strict: bool = switch("exit with 1 also if a node differs or is slow")


QUESTION = FleetShowQuestion


class NodeRecords(NamedTuple):
    """A folder of records, and what is known of the nodes beside it."""

    folder: str
    nodes: tuple[str, ...] = ()
    """Nodes that should have a record."""
    not_asked: Mapping[str, str] = {}
    """Nodes that got no work, with the reason."""


def run(question: FleetShowQuestion, out: Console) -> Reply:
    from gpusetup.fleet.nodes import expanded

    nodes = expanded(question.nodes) if question.nodes else ()
    return judged(NodeRecords(question.folder, nodes), strict=question.strict)


def judged(folder: NodeRecords, *, strict: bool = False) -> Reply:
    """The nodes of a folder, the worst first; `strict`: a node that differs is no success."""
    from gpusetup.render.fleet import fleet_screen

    records = read_folder(Path(folder.folder), CLOCK.reached)
    if not records.nodes:
        first = f"; {records.left_out[0]}" if records.left_out else ""
        raise UsageError(
            f"{folder.folder} holds no record of gpusetup{first}",
            hint="on each node: `gpusetup snapshot --output FOLDER/$(hostname).json`",
        )
    now = datetime.now(timezone.utc)
    fleet = replace(answer(records, folder.nodes, now), not_asked=folder.not_asked)
    states = {node.status for node in fleet.nodes}
    bad_states = states - {"ok"} if strict else states & {"failed"}
    return reply(fleet, fleet_screen, yes=not bad_states)
