"""What a machine asks for and the build that fits it, with the commands of every installer.

Of a text the answer is kept by what it depends on: thousands of texts show a few hundred machines.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gpusetup.catalog.builds import Same
from gpusetup.diagnosis.request import REFUSALS, chosen_request, decision_for
from gpusetup.evidence.context import RuleContext
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Snapshot
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
        shown = tuple(getattr(machine, name) for name in DEPENDS_ON)
        return _of_a_text(shown, _refusals(machine), Same(catalog))
    return _with_answer(machine, *chosen_request(machine, catalog))


DEPENDS_ON = (
    *("os", "python", "driver", "gpus", "pci_devices", "torch", "packages", "container", "wanted"),
)
"""All of a text that the decision depends on, beside what an index or a platform refused."""
Refusals = tuple[tuple[str, bool], ...]
"""The events of refusals, and whether each names the versions that there are."""


def _refusals(machine: Snapshot) -> Refusals:
    return tuple(
        (event.kind, bool(event.values.get("versions")))
        for event in machine.events
        if event.kind in REFUSALS
    )


@lru_cache(maxsize=1024)
def _of_a_text(shown: tuple[Any, ...], refusals: Refusals, known: Same) -> Decided:
    events = tuple(
        Event(kind=kind, values={"versions": "some"} if versions else {})
        for kind, versions in refusals
    )
    parts = dict(zip(DEPENDS_ON, shown, strict=True))
    machine = replace(Snapshot(origin="report", events=events), **parts)
    return _with_answer(machine, *chosen_request(machine, known.catalog))


def _with_answer(machine: Snapshot, request: Request, decision: Decision) -> Decided:
    from gpusetup.resolver import to_answer
    from gpusetup.resolver.companions import moved_with

    resolution = decision.resolution
    answer = to_answer(resolution, machine, moved_with(machine, resolution.build))
    return request, decision, answer


def build_case(
    snapshot: Snapshot, catalog: Catalog, request: Request | None, *, other_host: bool = False
) -> tuple[RuleContext, ResolveAnswer]:
    """What the rules are given, and the resolution as a document."""
    from gpusetup.catalog.builds import with_catalog

    machine = with_catalog(snapshot, catalog)
    asked, decision, answer = decided(machine, catalog, request)
    context = RuleContext(
        snapshot=machine,
        catalog=catalog,
        resolution=decision.resolution,
        decision=decision,
        commands=answer.commands,
        installer=installer_of(machine),
        request=asked,
        other_host=other_host,
    )
    return context, answer


def installer_of(machine: Snapshot) -> str:
    """Who changes this environment: what installed torch, else what made it, else what is there."""
    installed = (machine.torch.installer or "").lower()
    if machine.python.manager == "uv project" and installed != "conda":
        return "uv"
    if installed in ("uv", "pip", "conda"):
        return installed
    # No order: a text shows who was at work; a wheel's label is of no conda package.
    if machine.origin == "report" and machine.failing.program == "uv":
        return "uv"
    # conda's torch has no label: over pip's, and over what no text shows, it would be a mixture.
    unlabelled = machine.torch.version and "+" not in machine.torch.version
    if machine.origin == "report" and machine.python.manager == "conda" and not unlabelled:
        return "pip"
    if machine.python.manager in ("uv", "conda"):
        return machine.python.manager
    return "uv" if machine.python.has_pip is False else "pip"
