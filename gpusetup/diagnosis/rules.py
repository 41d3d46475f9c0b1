"""Which rules are asked about a machine: what cannot find anything there is not even loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from gpusetup.accelerators.makers import judged_on
from gpusetup.evidence.context import Rule, RuleContext
from gpusetup.findings.container import boundary
from gpusetup.findings.driver import presence
from gpusetup.findings.host import resources, settings
from gpusetup.findings.installing import environment, python
from gpusetup.findings.libraries import building, loading, numeric
from gpusetup.findings.makers import gpu_maker
from gpusetup.findings.record import Cause
from gpusetup.findings.torch import build, companions, guarded_set, installed, pairs
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.machine import Snapshot

ANYWHERE: tuple[Rule, ...] = (
    *boundary.RULES,
    *presence.RULES,
    *gpu_maker.RULES,
    *installed.RULES,
    *build.RULES,
    *companions.RULES,
    *pairs.RULES,
    *guarded_set.RULES,
    *loading.RULES,
    *numeric.RULES,
    *building.RULES,
    *python.RULES,
    *environment.RULES,
    *resources.RULES,
    *settings.RULES,
)
"""The rules about what any machine is, by family; which finding is the root says `precedence`."""


@cache
def of_wsl() -> tuple[Rule, ...]:
    """The rules about Linux inside Windows."""
    from gpusetup.findings.container import wsl

    return wsl.RULES


@cache
def of_a_driver() -> tuple[Rule, ...]:
    """The rules about a driver and its GPUs: not even loaded where nothing of NVIDIA is there."""
    from gpusetup.findings.device import (
        access,
        faults,
        limits,
        links,
        performance,
        sharing,
    )
    from gpusetup.findings.driver import (
        age,
        cuda_api,
        kernel_module,
        silent,
        state,
    )
    from gpusetup.findings.jetson import jetpack
    from gpusetup.findings.torch import kernels

    # The first finding of an id gives its title: what reads the nodes goes before NVML's codes.
    there = (kernel_module, age, jetpack, kernels)
    ready = (state, performance, limits, cuda_api, access, sharing)
    families = (*there, *ready, silent, faults, links)
    return tuple(rule for family in families for rule in family.RULES)


def has_a_driver(snapshot: Snapshot) -> bool:
    """Whether any source shows a GPU of NVIDIA's, a part of its driver, or an event."""
    driver = snapshot.driver
    parts = (driver.version, driver.cuda, driver.module_version, driver.library_version)
    on_bus = bool(judged_on(snapshot.pci_devices))
    asked = driver.nvml_code is not None or snapshot.cuda_api.init_code is not None
    there = snapshot.gpus or snapshot.events or snapshot.devices or driver.module_loaded
    board = snapshot.os.jetson or driver.library_found
    return bool(any(parts) or driver.seconds or on_bus or asked or there or board)


@cache
def of_messages() -> tuple[Rule, ...]:
    """The rules about messages of programs: loaded where some program said something."""
    from gpusetup.findings.container import engines
    from gpusetup.findings.installing import installers, wheels
    from gpusetup.findings.libraries import compiled, dlls, extensions, toolkit
    from gpusetup.findings.running import parallel, program_failures, program_messages, programs

    building = (dlls, extensions, toolkit, compiled)
    running = (program_messages, programs, parallel, program_failures)
    families = (engines, *building, *running, installers, wheels)
    return tuple(rule for family in families for rule in family.RULES)


def rules_for(snapshot: Snapshot) -> tuple[Rule, ...]:
    """The rules that can find something on this machine."""
    wsl = of_wsl() if snapshot.os.wsl or snapshot.events else ()
    driver = of_a_driver() if has_a_driver(snapshot) else ()
    return (*wsl, *ANYWHERE, *driver, *(of_messages() if snapshot.events else ()))


def all_rules() -> tuple[Rule, ...]:
    """Every rule; with them every record of a cause is loaded."""
    return (*of_wsl(), *ANYWHERE, *of_a_driver(), *of_messages())


def found(context: RuleContext, rules: Iterable[Rule]) -> Iterator[Finding]:
    """What the rules find. One that breaks must not take the report with it: it becomes a line."""
    for rule in rules:
        try:
            yield from tuple(rule(context))
        except Exception as problem:
            said = f"The rule {rule.__name__} broke: {type(problem).__name__}: {problem}"
            yield RULE_BROKEN.found(said, detail=RULE_BROKEN.means)


RULE_BROKEN = Cause(
    id="rule-broken",
    severity=Severity.NOTE,
    title="a rule of gpusetup broke",
    means="This is a fault of gpusetup. The other findings stand; please report it.",
    proven_by="An exception in a rule",
    way_out="Report it",
    source="gpusetup",
)
