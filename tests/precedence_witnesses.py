"""Machines on which the order of causes decides: `tests/precedence/*.json`.

A row says a machine in one place: on what it is built (`healthy`, or `nothing` where nothing is
known), what is `changed` there (a path of fields and its value), and the `events` that programs
said. Then what is expected: the `root`, and all that is `wrong`, each with what explains it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from judging import HEALTHY

from gpusetup.diagnosis.diagnose import linked, root_of
from gpusetup.diagnosis.rules import all_rules
from gpusetup.model.codec import from_plain, to_plain
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Event, Snapshot

FOLDER = Path(__file__).resolve().parent / "precedence"
BASES = {"healthy": HEALTHY, "nothing": Snapshot()}
Answer = tuple[str | None, dict[str, str | None]]
"""The root, and all that is wrong with what explains it."""

all_rules()  # with the rules, their records


class Witness(Frozen):
    on: str
    changed: dict[str, Any] = {}
    events: tuple[Event, ...] = ()
    root: str | None
    wrong: dict[str, str | None]

    @property
    def machine(self) -> Snapshot:
        plain = json.loads(json.dumps(to_plain(BASES[self.on])))
        for path, value in self.changed.items():
            *parents, last = path.split(".")
            part = plain
            for name in parents:
                part = part[name]
            part[last] = value
        return replace(from_plain(plain, Snapshot, what="a witness"), events=self.events)


@cache
def witnesses() -> tuple[tuple[str, Witness], ...]:
    """Every row, by its file and number."""
    rows = ((file.stem, json.loads(file.read_text())) for file in sorted(FOLDER.glob("*.json")))
    return tuple(
        (f"{stem}-{number}", from_plain(row, Witness, what=stem))
        for stem, several in rows
        for number, row in enumerate(several)
    )


def answer(findings: tuple[Finding, ...]) -> Answer:
    """What the order makes of the findings of a machine."""
    ready = linked(tuple(replace(f, explained_by=None, root=False) for f in findings))
    root = root_of(ready)
    grave = (f for f in ready if f.severity is Severity.ERROR or f.explained_by)
    return root.id if root else None, {f.id: f.explained_by for f in grave}


# --- mutants ------------------------------------------------------------------------------------
