"""The types of the JSON documents that each command prints, and their JSON schema."""

from __future__ import annotations

from typing import Any

from gpusetup.fleet.node_check import NodeCheckAnswer
from gpusetup.fleet.show import FleetAnswer
from gpusetup.model import documents as of
from gpusetup.model.codec import json_schema
from gpusetup.model.machine import Snapshot
from gpusetup.monitor.documents import DOCUMENTS
from gpusetup.tune.answer import TuneAnswer

ANSWERS: dict[str, tuple[Any, ...]] = {
    "doctor": (of.DoctorAnswer, of.FindingAnswer),
    "resolve": (of.ResolveAnswer,),
    "install": (of.InstallAnswer,),
    "verify": (of.VerifyAnswer,),
    "plan": (of.PlanAnswer, of.PlanCellsAnswer),
    "tune": (TuneAnswer,),
    "monitor": DOCUMENTS,
    "fleet show": (FleetAnswer,),
    "fleet run": (FleetAnswer,),
    "fleet check": (NodeCheckAnswer,),
    "snapshot": (Snapshot,),
}


def schema_of(command: str) -> dict[str, Any]:
    """The JSON schema of the documents that a command prints with `--json`, including errors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"gpusetup {command}",
        **json_schema((*ANSWERS[command], of.ErrorAnswer)),
    }
