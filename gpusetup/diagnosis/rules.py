"""Which rules are asked about a machine: what cannot find anything there is not even loaded."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module

from gpusetup.accelerators.makers import judged_on
from gpusetup.causes.record import Cause
from gpusetup.evidence.context import Rule, RuleContext
from gpusetup.model.finding import Findings, Severity
from gpusetup.model.machine import Snapshot

# The files of the findings by what they are about; which finding is the root says `precedence`.
ANYWHERE = ("container", "presence", "torch", "companions", "host")
# The first finding of an id gives its title: what reads the nodes goes before NVML's codes.
OF_A_DRIVER = ("driver", "kernels", "gpu_losses", "gpu_access", "cuda", "gpu_faults")
"""A driver and its GPUs."""
OF_MESSAGES = ("running", "installers")
"""What programs said."""


@cache
def rules_of(files: tuple[str, ...]) -> tuple[Rule, ...]:
    modules = (import_module(f"gpusetup.findings.{file}") for file in files)
    return tuple(rule for module in modules for rule in module.RULES)


def rules_for(snapshot: Snapshot) -> tuple[Rule, ...]:
    """The rules that can find something on this machine."""
    said = bool(snapshot.events)
    asked = (
        (("said",), said),
        (ANYWHERE, True),
        (OF_A_DRIVER, said or has_a_driver(snapshot)),
        (OF_MESSAGES, said),
    )
    return tuple(rule for files, wanted in asked if wanted for rule in rules_of(files))


def has_a_driver(snapshot: Snapshot) -> bool:
    """Whether any source shows a GPU of NVIDIA's, or a part of its driver."""
    driver = snapshot.driver
    parts = (driver.version, driver.cuda, driver.module_version, driver.library_version)
    loaded = (driver.module_loaded, driver.library_found, driver.seconds, snapshot.os.jetson)
    asked = driver.nvml_code is not None or snapshot.cuda_api.init_code is not None
    there = snapshot.gpus or snapshot.devices or judged_on(snapshot.pci_devices)
    return bool(any(parts) or any(loaded) or asked or there)


def found(context: RuleContext, rules: Iterable[Rule]) -> Findings:
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
    means="This is a fault of gpusetup. The other findings are still valid; please report it.",
    proven_by="An exception in a rule",
    way_out="Report it",
    source="gpusetup",
)
