"""How a driver answers: slowly, or newer than the catalog."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    on,
    value_evidence,
)
from gpusetup.findings.record import Cause
from gpusetup.fixes import paste
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.shell import lines

SLOW_SECONDS = 5.0


DRIVER_NEWER_THAN_CATALOG = Cause(
    id="driver-newer-than-catalog",
    severity=Severity.NOTE,
    title="the driver is newer than the catalog",
    means="It counts as the newest row: drivers serve older CUDA.",
    proven_by="A driver branch above every row",
    way_out="Nothing",
    source='NVIDIA, "CUDA Compatibility"',
)


def driver_newer_than_catalog(context: RuleContext) -> Iterator[Finding]:
    """The driver is newer than every row: it counts as the newest row."""
    version = context.snapshot.driver.version
    if version and context.catalog.driver_is_newer(version):
        yield DRIVER_NEWER_THAN_CATALOG.found(
            f"Driver {version} is newer than the catalog of {context.catalog.as_of}: it counts as "
            "its newest row",
            evidence=(value_evidence(context, "driver.version", f"driver {version}"),),
        )


LOOK_WHY = Fix(
    text="Look what the kernel says of the GPU, and whether the machine is busy",
    looks=paste.look("see the kernel's log", *lines("sudo dmesg | grep -iE 'nvrm|xid'")),
)


DRIVER_SLOW = Cause(
    id="driver-slow",
    severity=Severity.WARNING,
    title="the driver took long to answer",
    means="Without persistence mode the driver starts every GPU anew for each program: 10"
    " to 30 s on a big node.",
    proven_by="An answer after more than 5 s",
    way_out="Enable nvidia-persistenced",
    source='NVIDIA, "Driver Persistence"',
)


def driver_slow(context: RuleContext) -> Iterator[Finding]:
    """The driver took long to answer."""
    seconds = context.snapshot.driver.seconds
    if seconds is not None and seconds > SLOW_SECONDS:
        yield DRIVER_SLOW.found(
            f"The driver took {seconds:.0f} s to answer",
            detail="Persistence mode is on: look at the machine's load and at the kernel's log."
            if context.snapshot.driver.persistence
            else "Without persistence mode it starts every GPU anew for each program.",
            evidence=(value_evidence(context, "driver.seconds", f"{seconds:.1f} s"),),
            fix=LOOK_WHY
            if context.snapshot.driver.persistence
            else Fix(
                text="Keep the driver loaded between programs",
                commands=lines("sudo systemctl enable --now nvidia-persistenced")
                if on(context, "linux")
                else (),
                needs_root=True,
            ),
        )


RULES = (
    driver_newer_than_catalog,
    driver_slow,
)
