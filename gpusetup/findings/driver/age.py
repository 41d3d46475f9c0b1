"""Driver and torch: is the driver new enough for the GPU, for torch, for what a message asks."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.catalog.jetpack import board_of
from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    cuda_needed,
    events,
    gpus,
    is_report,
    serving,
    whole_number,
)
from gpusetup.evidence.plausible import is_a_version
from gpusetup.findings.driver.cuda_codes import CUDA_INIT_FAILED
from gpusetup.findings.layers import NO_DEVICE, Layer
from gpusetup.findings.message_rules import finding, from_message, shown
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import drivers, paste
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Torch
from gpusetup.model.versions import parsed


def serves_every_torch(context: RuleContext) -> bool:
    """Whether the driver starts the CUDA of every build."""
    newest = max(parsed(build.cuda or "0").major for build in context.catalog.builds)
    return parsed(context.snapshot.driver.cuda or "0").major >= newest


DRIVER_TOO_OLD = Cause(
    id="driver-too-old",
    lacks="driver",
    impossible=(serves_every_torch,),
    place=(Layer.WHEEL, 120),
    title="the driver serves less CUDA than torch needs",
    means="Each CUDA family has a least driver; within 11, 12 and 13 any minor version runs on it.",
    proven_by="The driver's version below the floor of torch's CUDA",
    not_when="A driver that says itself that it serves that CUDA",
    way_out="Update the driver, or install a torch for an older CUDA",
    source='NVIDIA, "CUDA Compatibility"',
    explains=(*NO_DEVICE, "container-hook-failed", "resolver-conflict"),
    message=Message(
        title="{who} needs {needs}; found driver {driver}",
        plain="The program or torch needs a newer driver",
    ),
)


CALLED_TOO_OLD = Message(
    title="Driver {driver} is called too old, and is new enough",
    text="Keep the driver and torch. Another libcuda may come before the driver's own (a compat or "
    "stubs folder in LD_LIBRARY_PATH, or an image's), the driver may have been updated without a "
    "reboot, or another library here may be built for a newer CUDA than torch: the traceback names "
    "it",
    look=("ldconfig -p | grep libcuda",),
    see="see which libcuda is found",
)
INSUFFICIENT_DRIVER = 35
"""cudaErrorInsufficientDriver."""


def driver_too_old(context: RuleContext) -> Iterator[Finding]:
    """The driver serves less CUDA than the installed torch, or any torch, needs."""
    driver = context.snapshot.driver
    said = (
        *events(context, "driver-too-old", "image-needs-newer-driver"),
        *cuda_errors(context, INSUFFICIENT_DRIVER),
        *_of_tritons_assembler(context),
    )
    if context.catalog.never_serves(gpus(context)):
        return
    unmet = tuple(event for event in said if not _is_met(context, event))
    if said and not unmet:
        yield from_message(context, CUDA_INIT_FAILED, CALLED_TOO_OLD, said)
    needed, floor = _need(context, unmet)
    # A Jetson's driver is numbered apart: its JetPack decides; in WSL and with cuda-compat the
    # driver says itself that it serves this CUDA.
    serves = context.snapshot.torch.cuda_available or (
        needed and driver.cuda and not _is_older(driver.cuda, needed)
    )
    short = not serves and not board_of(context.snapshot) and _is_older(driver.version, floor)
    gpu, first = _newest_of(context)
    if _is_older(driver.version, first):
        floor = max(first, floor if short and floor else first, key=parsed)
        yield _too_old(context, gpu, floor, ())
    elif unmet or short:
        # They may ask for more than torch does, and not for what.
        asked = floor if short or not driver.version else None
        yield _too_old(context, "torch or the program", asked, unmet)


def _is_older(version: str | None, floor: str | None) -> bool:
    return bool(version and floor and parsed(version) < parsed(floor))


def _too_old(context: RuleContext, who: str, floor: str | None, said: tuple[Event, ...]) -> Finding:
    has = context.snapshot.driver.version
    read = (shown(context, "driver.version", f"driver {has}"),) if has else ()
    fix = _newer_or_another(context, said, floor)
    needs = f"driver {floor}" if floor else "a newer driver"
    evidence = (*said, *read)
    return finding(context, DRIVER_TOO_OLD, evidence, fix=fix, who=who, needs=needs)


def _family(context: RuleContext) -> str:
    """Whose driver numbers count: WSL uses the driver of Windows."""
    return "windows" if context.snapshot.os.wsl else context.snapshot.os.family or "linux"


def _is_met(context: RuleContext, event: Event) -> bool:
    """Whether the driver that was read is as new as what a message asks for."""
    has, values = context.snapshot.driver.version, event.values
    needs = values.get("needs_driver") or values.get("needed")
    cuda = cuda_needed(context.snapshot.torch)
    if not needs and "cuda" in values:
        needs = context.catalog.toolkit_driver(values["cuda"], _family(context))
    elif not needs and cuda and (event.kind == "cuda-error" or values.get("refused")):
        needs = context.catalog.driver_floor(cuda, _family(context))
    return bool(has and needs and not _is_older(has, needs))


def _need(context: RuleContext, said: tuple[Event, ...]) -> tuple[str | None, str | None]:
    """The CUDA and the driver that are needed: a message's, torch's, else what is above the
    driver's own.

    Who names a CUDA compares it with what nvidia-smi prints: minor versions do not help there.
    """
    catalog, family = context.catalog, _family(context)
    for values in (event.values for event in said):
        if driver := values.get("needs_driver") or values.get("needed"):
            return values.get("cuda"), driver
    cuda = next((one.values["cuda"] for one in said if one.values.get("cuda")), None)
    by_triton = any(event.kind == "triton-image-invalid" for event in said)
    needed = cuda if by_triton else cuda_needed(context.snapshot.torch) or cuda
    needed = needed or _above(context, said)
    if not needed or board_of(context.snapshot):
        return needed, None
    full = catalog.toolkit_driver(needed, family) if needed == cuda else None
    return needed, full or catalog.driver_floor(needed, family)


def _above(context: RuleContext, said: tuple[Event, ...]) -> str | None:
    """The first CUDA that a driver does not serve, which serves `11.4`, in the runtime's number
    `11040`; from 11 on the older driver serves all of a major."""
    told = [e.values.get("driver_cuda") or e.values.get("found", "") for e in said]
    has = next(filter(is_a_version, told), "99.0")
    if number := whole_number(has):
        has = f"{number // 1000}.{number % 1000 // 10}"
    whole = int(parsed(has).major >= context.catalog.minors_serve_from)
    rows = (".".join(row.cuda.split(".")[:2]) for row in context.catalog.toolkits)
    newer = (one for one in rows if parsed(one).release[: 2 - whole] > parsed(has).release)
    return min(newer, key=parsed, default=None)


def _newest_of(context: RuleContext) -> tuple[str, str]:
    """Of the GPUs that no driver listed the one that needs the newest, and that driver."""
    from gpusetup.resolver.situation import first_drivers

    found = first_drivers(context.snapshot, context.catalog)
    return max(found, key=lambda row: parsed(row[1]), default=("", "0"))


TRITONS_CUDA = "12.0"
"""Triton assembles by a ptxas of CUDA 12 from 2.1 on, which came with torch 2.1."""


def _of_tritons_assembler(context: RuleContext) -> tuple[Event, ...]:
    """Kernels of Triton that a driver of CUDA 11 cannot load, whatever CUDA torch has."""
    first = context.catalog.driver_floor(TRITONS_CUDA, _family(context))
    older = _is_older(context.snapshot.torch.version or "0", "2.1")
    if older or not _is_older(context.snapshot.driver.version, first):
        return ()
    said = events(context, "triton-image-invalid")
    return tuple(replace(one, values={**one.values, "cuda": TRITONS_CUDA}) for one in said)


def _newer_or_another(context: RuleContext, said: tuple[Event, ...], floor: str | None) -> Fix:
    """A newer driver; or what this one serves: an image, a torch, a program's build."""
    newer = drivers.driver(context, f"Update the driver to {floor or 'the newest'}", floor)
    build, driver = context.resolution.build, context.snapshot.driver
    if any(event.kind == "image-needs-newer-driver" for event in said):
        text = f"Use an image for an older CUDA; or on the host: {newer.text}"
        return Fix(text=text, min_driver=floor)
    stays = context.decision is not None and context.decision.how == "kept"
    if build is None or build.backend == "cpu" or stays or not (driver.version or driver.cuda):
        return newer
    torch = f"torch {build.torch} from {build.backend}"
    # Where torch has no kernel for the GPU, a newer driver is not enough.
    kernels = context.snapshot.torch.kernels
    serves = kernels is None or all(serving(context, gpu) for gpu in gpus(context))
    or_newer = newer.text[:1].lower() + newer.text[1:]
    update = paste.other(or_newer, *newer.commands) if serves else ()
    torchs = any("found" in event.values for event in said)
    if context.snapshot.torch == Torch() and is_report(context) and not torchs:
        other = paste.other(f"for torch: {torch}", *paste.install_commands(context))
        text = f"Take the program's build for an older CUDA; or else: {newer.text}"
        return Fix(text=text, alternatives=(*other, *update), min_driver=newer.min_driver)
    return Fix(
        text=f"Keep the driver and install {torch}, which it serves",
        commands=paste.install_commands(context),
        alternatives=(*paste.by_hand(context), *update),
        min_driver=floor,
    )


DRIVER_TO_EXPECT = Cause(
    id="driver-to-expect",
    severity=Severity.NOTE,
    title="which driver this torch needs on the other host",
    means="With --for-gpu and no --for-driver the driver is not judged.",
    proven_by="A CUDA build and a named GPU",
    way_out="Name the driver",
    source='NVIDIA, "CUDA Compatibility"',
    message=Message(
        title="torch {torch} on this GPU needs driver {least} or newer on that host",
    ),
)


def floor_for_the_other_host(context: RuleContext) -> Iterator[Finding]:
    """A GPU was named, no driver: what driver this torch needs there."""
    needed = cuda_needed(context.snapshot.torch)
    if context.other_host and needed and not context.snapshot.driver.version:
        least = context.catalog.driver_floor(needed, _family(context)) or _newest_of(context)[1]
        fix = Fix(text="Check it with `--for-driver VERSION`", min_driver=least)
        said = (shown(context, "gpus", f"CUDA {needed}"),)
        yield finding(context, DRIVER_TO_EXPECT, said, fix=fix, least=least)


RULES = (
    driver_too_old,
    floor_for_the_other_host,
)
