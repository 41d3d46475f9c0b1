"""`gpusetup fleet check` on this node."""

from __future__ import annotations

from acceptance.work import Work


def run(work: Work) -> None:
    said = work.gpusetup("node-check", "--json", name="node-check")
    work.row("commands", command="node-check", exit=said.exit, first_seconds=round(said.seconds, 2))
    told = said.problem if said.exit else f"{said.seconds:.2f} s"
    known = said.exit is not None and not said.broken
    work.claim("node-check", said.exit == 0 if known else "open", told)
