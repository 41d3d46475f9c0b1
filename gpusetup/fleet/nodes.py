"""What is kept of one node of a fleet: small, so that ten thousand fit into memory."""

from __future__ import annotations

from collections.abc import Mapping

from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen


class NodeFinding(Frozen):
    """A finding about a node."""

    id: str
    severity: Severity
    title: str = ""
    root: bool = False


class Rate(Frozen):
    """A speed that was measured on one device of a node."""

    check: str
    device: str
    """The device's own name: `cuda:3`."""
    model: str
    """The GPU's name: rates are compared among the same."""
    value: float
    unit: str


class Drift(Frozen):
    """A field in which a node is not like most nodes of its kind."""

    field: str
    value: str
    majority: str
    severity: Severity
    nodes: int
    """How many nodes have the majority's value, or how many devices were compared."""
    of: int
    """Of how many."""


class Node(Frozen):
    """One node: what its records tell, or why they tell nothing."""

    name: str = ""
    taken_at: str | None = None
    kind: tuple[str, ...] = ()
    """The models of its GPUs, each once, sorted."""
    facts: Mapping[str, str] = {}
    findings: tuple[NodeFinding, ...] = ()
    rates: tuple[Rate, ...] = ()
    problem: str | None = None
    """Why there is no record, or no whole one."""
