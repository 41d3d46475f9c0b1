"""Command -> the type of its answer under `--json`, or the types where it has several."""

from __future__ import annotations

from typing import Any

from gpusetup.fleet.compare import CompareAnswer
from gpusetup.fleet.node_check import NodeCheckAnswer
from gpusetup.fleet.show import FleetAnswer
from gpusetup.fleet.sweep.answer import SweepAnswer
from gpusetup.install.guard_answer import GuardAnswer
from gpusetup.model.documents import (
    DoctorAnswer,
    ErrorAnswer,
    FindingAnswer,
    FindingsAnswer,
    InstallAnswer,
    PlanAnswer,
    PlanCellsAnswer,
    ResolveAnswer,
    ServePlan,
    VerifyAnswer,
)
from gpusetup.model.machine import Snapshot
from gpusetup.monitor.values import DOCUMENTS
from gpusetup.tune.answer import TuneAnswer

ANSWERS: dict[str, Any] = {
    "compare": CompareAnswer,
    "fleet": FleetAnswer,
    "doctor": DoctorAnswer,
    "error": ErrorAnswer,
    "finding": FindingAnswer,
    "findings": FindingsAnswer,
    "guard": GuardAnswer,
    "install": InstallAnswer,
    "node-check": NodeCheckAnswer,
    "plan": PlanAnswer,
    "plan-serve": ServePlan,
    "plan-cells": PlanCellsAnswer,
    "resolve": ResolveAnswer,
    "snapshot": Snapshot,
    "sweep": SweepAnswer,
    "verify": VerifyAnswer,
    "monitor": DOCUMENTS,
    "tune": TuneAnswer,
}
