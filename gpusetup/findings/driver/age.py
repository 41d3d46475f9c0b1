"""Driver and torch: is the driver new enough for the GPU, for torch, for what a message asks."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.catalog.jetpack import board_of
from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    cuda_needed,
    event_evidence,
    events,
    gpus,
    is_report,
    serving,
    value_evidence,
    whole_number,
    with_cuda,
)
from gpusetup.findings.driver.cuda_codes import CUDA_INIT_FAILED
from gpusetup.findings.layers import NO_DEVICE, Layer
from gpusetup.findings.record import Cause
from gpusetup.fixes import drivers, paste
from gpusetup.model.finding import Alternative, Evidence, Finding, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event
from gpusetup.model.resolution import Request
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
)


INSUFFICIENT_DRIVER = 35
"""cudaErrorInsufficientDriver."""


def driver_too_old(context: RuleContext) -> Iterator[Finding]:
    """The driver serves less CUDA than the installed torch, or any torch, needs."""
    driver, torch = context.snapshot.driver, context.snapshot.torch
    said = (
        *events(context, "driver-too-old", "image-needs-newer-driver"),
        *cuda_errors(context, INSUFFICIENT_DRIVER),
        *_of_tritons_assembler(context),
    )
    known = driver.version or driver.cuda or said
    if not known or context.catalog.never_serves(gpus(context)):
        return
    unmet = tuple(event for event in said if not _is_met(context, event))
    if said and not unmet:
        yield _refused_all_the_same(context, said)
    needed, floor = _need(context, unmet)
    # A Jetson's driver is numbered apart: its JetPack decides.
    board, serves = board_of(context.snapshot), _serves_anyway(context, needed)
    short = not board and not serves and _is_older(driver.version, floor)
    gpu, first = _newest_of(context)
    if _is_older(driver.version, first):
        both = (first, floor) if short and floor else (first,)
        yield _too_old(context, gpu, max(both, key=parsed), ())
    elif unmet or short:
        if driver.version and not short:
            floor = needed = None  # they ask for more than torch does, and not for what
        what = f"torch {torch.version}" if torch.version and floor else "the program"
        yield _too_old(context, what, floor, unmet, needed)
    elif least := _no_torch_for_this_driver(context):
        yield _too_old(context, "every torch of the catalog", least, ())


def _is_older(version: str | None, floor: str | None) -> bool:
    return bool(version and floor and parsed(version) < parsed(floor))


def _too_old(
    context: RuleContext,
    what: str,
    floor: str | None,
    said: tuple[Event, ...],
    needed: str | None = None,
) -> Finding:
    driver = context.snapshot.driver
    least = with_cuda(f"driver {floor} or newer" if floor else "a newer driver", needed)
    found = f"; this driver serves CUDA {driver.cuda}" if driver.cuda else ""
    if driver.version:
        found = f"; found {with_cuda(f'driver {driver.version}', driver.cuda)}"
    return DRIVER_TOO_OLD.found(
        f"{what} needs {least}{found}",
        evidence=(*event_evidence(said), *_driver_read(context)),
        fix=_newer_or_another(context, said, floor, of_torch=bool(said or needed)),
    )


def _refused_all_the_same(context: RuleContext, said: tuple[Event, ...]) -> Finding:
    """CUDA's runtime calls a driver too old that is not: it meets another, older libcuda, or it is
    of another library than torch."""
    return CUDA_INIT_FAILED.found(
        f"Driver {context.snapshot.driver.version} is called too old, and is new enough",
        evidence=(*event_evidence(said), *_driver_read(context)),
        fix=Fix(
            text="Keep the driver and torch. Another libcuda may come before the driver's own (a "
            "compat or stubs folder in LD_LIBRARY_PATH, or an image's), the driver may have been "
            "updated without a reboot, or another library here may be built for a newer CUDA than "
            "torch: the traceback names it",
            looks=paste.look(
                "see which libcuda is found", *paste.posix(context, "ldconfig -p | grep libcuda")
            ),
        ),
    )


def _family(context: RuleContext) -> str:
    """Whose driver numbers count: WSL uses the driver of Windows."""
    return "windows" if context.snapshot.os.wsl else context.snapshot.os.family or "linux"


def _is_met(context: RuleContext, event: Event) -> bool:
    """Whether the driver that was read is as new as what a message asks for."""
    has, values = context.snapshot.driver.version, event.values
    needs = values.get("needs_driver") or values.get("needed")
    torchs = cuda_needed(context.snapshot.torch)
    if not needs and values.get("cuda"):
        needs = context.catalog.toolkit_driver(values["cuda"], _family(context))
    elif not needs and torchs and (event.kind == "cuda-error" or values.get("refused")):
        needs = context.catalog.driver_floor(torchs, _family(context))
    return bool(has and needs and not _is_older(has, needs))


def _need(context: RuleContext, said: tuple[Event, ...]) -> tuple[str | None, str | None]:
    """The CUDA and the driver that are needed: a message's, torch's, else the major above the
    driver's own, because the older driver serves all of a major.

    Who names a CUDA compares it with what nvidia-smi prints: minor versions do not help there.
    """
    values = [event.values for event in said]
    cuda = next((one["cuda"] for one in values if one.get("cuda")), None)
    named = (one.get("needs_driver") or one.get("needed") for one in values)
    if driver := next(filter(None, named), None):
        return cuda, driver
    by_triton = any(event.kind == "triton-image-invalid" for event in said)
    needed = cuda if by_triton else cuda_needed(context.snapshot.torch) or cuda
    has = _served(said) or ""
    if not needed and (major := whole_number(has.partition(".")[0])):
        needed = f"{major + 1}.0"
        if major < context.catalog.minors_serve_from:
            known = {".".join(row.cuda.split(".")[:2]) for row in context.catalog.toolkits}
            needed = min((one for one in known if _is_older(has, one)), key=parsed, default=needed)
    if not needed or board_of(context.snapshot):
        return needed, None
    catalog, family = context.catalog, _family(context)
    full = catalog.toolkit_driver(needed, family) if needed == cuda else None
    return needed, full or catalog.driver_floor(needed, family)


def _served(said: tuple[Event, ...]) -> str | None:
    """The CUDA that the driver serves, as a message has it: `11.4`, or the runtime's `11040`."""
    for values in (event.values for event in said):
        found = values.get("driver_cuda") or values.get("found", "")
        number = whole_number(found)
        if number and len(found) in (4, 5):
            return f"{number // 1000}.{number % 1000 // 10}"
        if found:
            return found
    return None


def _newest_of(context: RuleContext) -> tuple[str, str]:
    """Of the GPUs that no driver listed the one that needs the newest, and that driver."""
    from gpusetup.resolver.situation import first_drivers

    found = first_drivers(context.snapshot, context.catalog)
    return max(found, key=lambda row: parsed(row[1]), default=("", "0"))


TRITONS_CUDA = "12.0"
"""Triton assembles by a ptxas of CUDA 12 from 2.1 on, which came with torch 2.1."""


def _of_tritons_assembler(context: RuleContext) -> tuple[Event, ...]:
    """Kernels of Triton that a driver of CUDA 11 cannot load, whatever CUDA torch has."""
    torch, driver = context.snapshot.torch.version, context.snapshot.driver.version
    first = context.catalog.driver_floor(TRITONS_CUDA, _family(context))
    if not torch or _is_older(torch, "2.1") or not _is_older(driver, first):
        return ()
    said = events(context, "triton-image-invalid")
    return tuple(replace(one, values={**one.values, "cuda": TRITONS_CUDA}) for one in said)


def _serves_anyway(context: RuleContext, needed: str | None) -> bool:
    """The driver says itself that it serves this CUDA (WSL, cuda-compat)."""
    machine = context.snapshot
    lifted = machine.container.cuda_compat_path and machine.cuda_api.init_code == 0
    says = machine.driver.cuda and needed and not _is_older(machine.driver.cuda, needed)
    return bool(machine.torch.cuda_available or lifted or says)


def _driver_read(context: RuleContext) -> tuple[Evidence, ...]:
    version = context.snapshot.driver.version
    return (value_evidence(context, "driver.version", f"driver {version}"),) if version else ()


def _newer_or_another(
    context: RuleContext, said: tuple[Event, ...], floor: str | None, *, of_torch: bool
) -> Fix:
    """A newer driver; or what this one serves: an image, a torch, a program's build."""
    to = f"{floor} or newer" if floor else "the newest"
    newer = drivers.driver(context, f"Update the driver to {to}", floor)
    or_newer = newer.text[:1].lower() + newer.text[1:]
    build, driver = context.resolution.build, context.snapshot.driver
    has = driver.cuda or _served(said)
    if any(event.kind == "image-needs-newer-driver" for event in said):
        older = f"for CUDA {has} or older" if has else "for an older CUDA"
        return Fix(text=f"Use an image {older}; or {or_newer}", min_driver=floor)
    known = of_torch and (driver.version or driver.cuda)
    stays = context.decision is not None and context.decision.how == "kept"
    if build is None or build.backend == "cpu" or not known or stays:
        return newer
    torch = f"torch {build.torch} from {build.backend}"
    update = paste.other(or_newer, *newer.commands)
    if not _is_about_torch(context):
        keep = Alternative(
            title=f"where the program uses torch, install {torch}",
            commands=paste.install_commands(context),
        )
        return Fix(
            text="Keep the driver and take the program's build for an older CUDA"
            + (f" ({driver.cuda} at most)" if driver.cuda else "")
            + ("" if newer.commands else f". Or {or_newer}"),
            alternatives=(keep, *update),
            min_driver=newer.min_driver,
        )
    kernels = context.snapshot.torch.kernels
    serves = kernels is None or all(serving(context, gpu) for gpu in gpus(context))
    update = (Alternative(title=or_newer, commands=newer.commands),) if serves else ()
    return Fix(
        text=f"Keep the driver and install {torch}, which it serves",
        commands=paste.install_commands(context),
        alternatives=(*paste.by_hand(context), *update),
        min_driver=floor,
    )


def _is_about_torch(context: RuleContext) -> bool:
    """Whether a torch was read, or named: a text may be of any program that uses CUDA."""
    torch = context.snapshot.torch
    read = torch.version or torch.installed or torch.cuda_available is not None
    torch_said = any(event.values.get("found") for event in events(context, "driver-too-old"))
    return bool(read or torch_said or context.request != Request() or not is_report(context))


def _no_torch_for_this_driver(context: RuleContext) -> str | None:
    """The driver that would give a torch, where this one serves no build of the catalog."""
    advice, chosen = context.resolution.advice, context.resolution.build
    # No order: a text that shows a driver and no torch asks for none.
    asked = gpus(context) and not context.snapshot.os.jetson and not is_report(context)
    served = chosen is not None and chosen.backend != "cpu"
    return advice.to if advice and advice.change == "driver" and asked and not served else None


DRIVER_TO_EXPECT = Cause(
    id="driver-to-expect",
    severity=Severity.NOTE,
    title="which driver this torch needs on the other host",
    means="With --for-gpu and no --for-driver the driver is not judged.",
    proven_by="A CUDA build and a named GPU",
    way_out="Name the driver",
    source='NVIDIA, "CUDA Compatibility"',
)


def floor_for_the_other_host(context: RuleContext) -> Iterator[Finding]:
    """A GPU was named, no driver: what driver this torch needs there."""
    torch = context.snapshot.torch
    needed = cuda_needed(torch)
    if context.other_host and needed and not context.snapshot.driver.version:
        floor = context.catalog.driver_floor(needed, context.snapshot.os.family or "linux")
        least = max(floor or "0", _newest_of(context)[1], key=parsed)
        yield DRIVER_TO_EXPECT.found(
            f"torch {torch.version} on this GPU needs driver {least} or newer on that host",
            fix=Fix(text="Check it with `--for-driver VERSION`", min_driver=least),
        )


RULES = (
    driver_too_old,
    floor_for_the_other_host,
)
