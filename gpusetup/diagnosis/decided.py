"""What a machine asks for and the build that fits it, with the commands of every installer.

Of a text the answer is kept by what it depends on: thousands of texts show a few hundred machines.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from gpusetup.catalog.builds import Same
from gpusetup.diagnosis.request import REFUSALS, chosen_request, decision_for
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import (
    Container,
    Driver,
    Event,
    Gpu,
    Os,
    Package,
    PciDevice,
    Python,
    Snapshot,
    Torch,
    Wanted,
)
from gpusetup.model.resolution import Request

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog
    from gpusetup.model.documents import ResolveAnswer
    from gpusetup.resolver.least import Decision

    Decided = tuple[Request, Decision, ResolveAnswer]


def decided(machine: Snapshot, catalog: Catalog, request: Request | None) -> Decided:
    """What is asked for, what `install` would do for it, and that as a document."""
    if request is not None:
        return _with_answer(machine, request, decision_for(machine, catalog, request))
    if machine.origin == "report":
        return _of_a_text(_shown(machine), Same(catalog))
    return _with_answer(machine, *chosen_request(machine, catalog))


class Shown(Frozen):
    """All of a text that the decision depends on."""

    os: Os
    python: Python
    driver: Driver
    gpus: tuple[Gpu, ...] | None
    pci_devices: tuple[PciDevice, ...] | None
    torch: Torch
    packages: tuple[Package, ...] | None
    container: Container
    wanted: Wanted
    refusals: tuple[tuple[str, bool], ...]
    """Which index or platform has nothing, and whether the versions that it has are named."""


def _shown(machine: Snapshot) -> Shown:
    return Shown(
        os=machine.os,
        python=machine.python,
        driver=machine.driver,
        gpus=machine.gpus,
        pci_devices=machine.pci_devices,
        torch=machine.torch,
        packages=machine.packages,
        container=machine.container,
        wanted=machine.wanted,
        refusals=tuple(
            (event.kind, bool(event.values.get("versions")))
            for event in machine.events
            if event.kind in REFUSALS
        ),
    )


@lru_cache(maxsize=1024)
def _of_a_text(shown: Shown, known: Same) -> Decided:
    machine = Snapshot(
        origin="report",
        os=shown.os,
        python=shown.python,
        driver=shown.driver,
        gpus=shown.gpus,
        pci_devices=shown.pci_devices,
        torch=shown.torch,
        packages=shown.packages,
        container=shown.container,
        wanted=shown.wanted,
        events=tuple(
            Event(kind=kind, values={"versions": "some"} if versions else {})
            for kind, versions in shown.refusals
        ),
    )
    return _with_answer(machine, *chosen_request(machine, known.catalog))


def _with_answer(machine: Snapshot, request: Request, decision: Decision) -> Decided:
    from gpusetup.resolver import to_answer
    from gpusetup.resolver.companions import moved_with

    resolution = decision.resolution
    answer = to_answer(resolution, machine, moved_with(machine, resolution.build))
    return request, decision, answer
