"""The rules that are applied to a machine."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module

from gpusetup.causes.record import Cause
from gpusetup.evidence.context import Rule, RuleContext
from gpusetup.model.finding import Findings, Severity

# The modules with the rules, by subject. `precedence` decides which finding is the root. If two
# rules make a finding with the same id, the first one's title is kept, so rules that read device
# nodes come before those that read NVML's codes.
DRIVER_FILES = ("driver", "kernels", "cuda", "gpu_faults")
"""Rules about a driver and its GPUs."""
RULE_FILES = (
    *("message_rules", "container", "other_makers", "environment"),
    *DRIVER_FILES,
    *("running", "wheels"),
)


@cache
def rules_of(files: tuple[str, ...]) -> tuple[Rule, ...]:
    """The rules in these files, in order."""
    modules = [import_module(f"gpusetup.findings.{file}") for file in files]
    return tuple(rule for module in modules for rule in module.RULES)


def findings_of(context: RuleContext, rules: Iterable[Rule]) -> Findings:
    """The findings of the rules. If a rule crashes, the others still run, and the crash becomes a
    finding."""
    for rule in rules:
        try:
            yield from tuple(rule(context))
        except Exception as problem:
            title = f"The rule {rule.__name__} broke: {type(problem).__name__}: {problem}"
            yield RULE_BROKEN.found(title, detail=RULE_BROKEN.means)


RULE_BROKEN = Cause(
    id="rule-broken",
    severity=Severity.NOTE,
    title="a rule of gpusetup broke",
    means="This is a bug in gpusetup. The other findings are still valid.",
    text="Open an issue with the output of `gpusetup snapshot`",
)
