"""The judgement: all findings about one machine, which is the root, and the build that fits.

`diagnose` is a pure function. A rule that breaks becomes one line of the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from gpusetup.model import (
    Finding,
    Request,
    Resolution,
    Severity,
    Snapshot,
)
from gpusetup.rules import (
    architecture,
    building,
    companions,
    container,
    driver,
    driver_age,
    gpu_maker,
    host,
    jetson,
    libraries,
    python,
    torch_build,
    torch_install,
)
from gpusetup.rules.case import (
    Case,
    Rule,
    note,
)
from gpusetup.rules.pasted import pasted
from gpusetup.rules.precedence import EXPLAINS, LOSSES, ORDER
from gpusetup.rules.proof import proof, shown_healthy
from gpusetup.rules.request import chosen_request, decision_for
from gpusetup.rules.wording import once
from gpusetup.value import Value, replace

if TYPE_CHECKING:
    from gpusetup.answers import ResolveAnswer
    from gpusetup.catalog import Catalog
    from gpusetup.resolver.least import Decision

ANYWHERE: tuple[Rule, ...] = (
    *container.RULES,
    *driver.RULES,
    *driver_age.RULES,
    *gpu_maker.RULES,
    *torch_install.RULES,
    *torch_build.RULES,
    *jetson.RULES,
    *architecture.RULES,
    *companions.RULES,
    *libraries.RULES,
    *building.RULES,
    *python.RULES,
    *host.RULES,
)
"""The rules about what any machine is, by family; the order to judge is `precedence.ORDER`."""


def of_a_driver() -> tuple[Rule, ...]:
    """The rules about a driver and its GPUs: not even loaded where nothing of NVIDIA is there."""
    from gpusetup.rules import cuda, device, driver_silent, driver_state, fault, gpu, links

    families = (driver_state, gpu, cuda, device, driver_silent, fault, links)
    return tuple(rule for family in families for rule in family.RULES)


def has_a_driver(snapshot: Snapshot) -> bool:
    """Whether any source shows a GPU of NVIDIA's, a part of its driver, or an event."""
    driver = snapshot.driver
    parts = (driver.version, driver.cuda, driver.module_version, driver.library_version)
    on_bus = any(device.vendor == "nvidia" for device in snapshot.pci_devices or ())
    asked = driver.nvml_code is not None or snapshot.cuda_api.init_code is not None
    there = snapshot.gpus or snapshot.events or snapshot.devices or driver.module_loaded
    return bool(any(parts) or driver.seconds or on_bus or asked or there)


def rules_for(snapshot: Snapshot) -> tuple[Rule, ...]:
    """Those, and where some program said something the rules about messages, in `spoken`."""
    rules = (*ANYWHERE, *(of_a_driver() if has_a_driver(snapshot) else ()))
    if not snapshot.events:
        return rules
    from gpusetup.rules import spoken

    return (*rules, *spoken.RULES)


OK = "ok"
UNKNOWN = "unknown"


class Diagnosis(Value):
    cause: str
    """The id of the root finding, `ok`, or `unknown`."""
    findings: tuple[Finding, ...]
    """The root first, then by severity; a consequence names what explains it."""
    resolution: Resolution
    decision: Decision | None = None
    """How that was decided, and the newest beside it."""
    snapshot: Snapshot
    """What was judged: the machine, completed from the catalog."""
    answer: ResolveAnswer
    """The resolution as a document, with the commands of every installer."""
    proof: str | None = None
    """What `ok` rests on: what was seen, in one line."""
    confidence: Literal["certain", "likely"] | None = None
    """`likely` where an error stands beside the root that it does not explain."""


def diagnose(
    snapshot: Snapshot,
    catalog: Catalog,
    request: Request | None = None,
    *,
    other_host: bool = False,
    rules: Iterable[Rule] | None = None,
) -> Diagnosis:
    """Judge one machine. `request` is what the person asked for; else what the machine shows."""
    case, answer = build_case(snapshot, catalog, request, other_host=other_host)
    chosen = rules_for(snapshot) if rules is None else rules
    findings = linked(unique(pasted(case, one) for one in found(chosen, case)))
    root = root_of(findings)
    marked = (replace(f, root=True) if f is root else f for f in findings)
    broken = any(finding.severity is Severity.ERROR for finding in findings)
    rootless = OK if not broken and shown_healthy(case) else UNKNOWN
    cause = root.id if root else rootless
    return Diagnosis(
        cause=cause,
        proof=proof(case) if cause == OK else None,
        findings=tuple(sorted(marked, key=_reading_order)),
        resolution=case.resolution,
        decision=case.decision,
        snapshot=case.snapshot,
        answer=answer,
        confidence=confidence_in(root, findings),
    )


def confidence_in(
    root: Finding | None, findings: tuple[Finding, ...]
) -> Literal["certain", "likely"] | None:
    """How sure the root is: nothing else that is wrong stands beside it unexplained."""
    if root is None:
        return None
    others = (f for f in findings if f is not root and f.severity is Severity.ERROR)
    alone = all(other.explained_by is not None for other in others)
    return "certain" if alone else "likely"


def build_case(
    snapshot: Snapshot, catalog: Catalog, request: Request | None, *, other_host: bool = False
) -> tuple[Case, ResolveAnswer]:
    """What the rules are given, and the resolution as a document."""
    from gpusetup.catalog import with_catalog
    from gpusetup.resolver import to_answer
    from gpusetup.resolver.companions import moved_with

    machine = with_catalog(snapshot, catalog)
    if request is None:
        asked, decision = chosen_request(machine, catalog)
    else:
        asked, decision = request, decision_for(machine, catalog, request)
    resolution = decision.resolution
    answer = to_answer(resolution, machine, moved_with(machine, resolution.build))
    case = Case(
        snapshot=machine,
        catalog=catalog,
        resolution=resolution,
        decision=decision,
        commands=answer.commands,
        installer=installer_of(machine),
        request=asked,
        other_host=other_host,
    )
    return case, answer


# --- the findings -------------------------------------------------------------------------------


def found(rules: Iterable[Rule], case: Case) -> Iterator[Finding]:
    for rule in rules:
        yield from _kept(rule, case)


def _kept(rule: Rule, case: Case) -> tuple[Finding, ...]:
    # A rule that breaks must not take the report with it: whatever it raised becomes a line.
    try:
        return tuple(rule(case))
    except Exception as problem:
        title = f"The rule {rule.__name__} broke: {type(problem).__name__}: {problem}"
        detail = "This is a fault of gpusetup. The other findings stand; please report it."
        return (note("rule-broken", title, detail=detail),)


def unique(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """One finding an id, the gravest first seen; the evidence of the others is kept with it."""
    kept: dict[str, Finding] = {}
    for finding in sorted(findings, key=lambda f: _GRAVITY[f.severity]):
        first = kept.get(finding.id)
        if first is None:
            kept[finding.id] = finding
            continue
        kept[finding.id] = replace(first, evidence=once((*first.evidence, *finding.evidence)))
    return tuple(kept.values())


def linked(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Each finding with the first other one, in the order of precedence, that explains it."""
    errors = {finding.id for finding in findings if finding.severity is Severity.ERROR}
    return tuple(
        replace(finding, explained_by=explanation(finding.id, errors)) for finding in findings
    )


def explanation(id: str, present: set[str]) -> str | None:
    """
    >>> explanation("torch-sees-no-gpu", {"torch-cpu-build", "torch-sees-no-gpu"})
    'torch-cpu-build'
    """
    return next((one for one in ORDER if one in present and id in EXPLAINS.get(one, ())), None)


def root_of(findings: tuple[Finding, ...]) -> Finding | None:
    """The first unexplained error in the order of precedence, else the first loss of speed."""
    errors = [f for f in findings if f.severity is Severity.ERROR and f.explained_by is None]
    losses = [f for f in findings if f.severity is Severity.WARNING and f.id in LOSSES]
    return min(errors or losses, key=lambda finding: _rank(finding.id), default=None)


def _rank(id: str) -> int:
    return ORDER.index(id) if id in ORDER else len(ORDER)


_GRAVITY = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def _reading_order(finding: Finding) -> tuple[bool, int, int, str]:
    return (not finding.root, _GRAVITY[finding.severity], _rank(finding.id), finding.id)


def installer_of(machine: Snapshot) -> str:
    """Who changes this environment: what installed torch, else what made it, else what is there."""
    installed = (machine.torch.installer or "").lower()
    if installed in ("uv", "pip", "conda"):
        return installed
    if machine.python.manager in ("uv", "conda"):
        return machine.python.manager
    return "uv" if machine.python.has_pip is False else "pip"
