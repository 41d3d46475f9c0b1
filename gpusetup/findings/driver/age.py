"""Driver and torch: is the driver new enough, known, and quick."""

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
    says_nothing_else,
    serving,
    value_evidence,
    whole_number,
    with_cuda,
)
from gpusetup.findings.driver.cuda_codes import CUDA_INIT_FAILED
from gpusetup.findings.driver.needs import driver_family, is_met, named_as_served, served
from gpusetup.findings.layers import NO_DEVICE, Layer
from gpusetup.findings.record import Cause
from gpusetup.fixes import drivers, paste
from gpusetup.model.finding import Alternative, Evidence, Finding, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event
from gpusetup.model.resolution import Request
from gpusetup.model.versions import parsed

DRIVER_TOO_OLD = Cause(
    id="driver-too-old",
    place=(Layer.WHEEL, 120),
    title="the driver serves less CUDA than torch needs",
    means="Each CUDA family has a least driver; within 11, 12 and 13 any minor version runs on it.",
    proven_by="The driver's version below the floor of torch's CUDA",
    not_when="A driver that says itself that it serves that CUDA",
    way_out="Update the driver, or install a torch for an older CUDA",
    source='NVIDIA, "CUDA Compatibility"',
    explains=(*NO_DEVICE, "container-hook-failed", "resolver-conflict"),
)


def driver_too_old(context: RuleContext) -> Iterator[Finding]:
    """The driver serves less CUDA than the installed torch, or any torch, needs."""
    machine = context.snapshot
    torch, driver = machine.torch, machine.driver
    messages = (
        *events(context, "driver-too-old", "image-needs-newer-driver"),
        *cuda_errors(context, INSUFFICIENT_DRIVER),
        *_of_tritons_assembler(context),
    )
    nothing = not driver.version and not driver.cuda and not messages
    if nothing or context.catalog.never_serves(gpus(context)):
        return
    unmet = tuple(event for event in messages if not is_met(context, event))
    if messages and not unmet:
        yield _refused_all_the_same(context, messages)
    messages = unmet
    needed = _needed(context, messages)
    floor = _floor(context, needed, messages)
    if any(e.values.get("needs_driver") for e in messages):
        needed = next((e.values["cuda"] for e in messages if e.values.get("cuda")), None)
    short = bool(driver.version and floor and parsed(driver.version) < parsed(floor))
    # A Jetson's driver is numbered apart: its JetPack decides.
    short = short and not _serves_anyway(context, needed) and not board_of(context.snapshot)
    if unknown := _unknown_gpu(context):
        yield _too_old_for_gpu(context, *unknown, floor if short else None)
        return
    if messages and floor and not short and driver.version:
        floor = needed = None  # they ask for more than torch does, and not for what
    if short and not messages and _is_past_its_last_driver(context, floor):
        return  # no driver for this GPU reaches it: the wheel is too new for the GPU
    if short or messages:
        what = f"torch {torch.version}" if torch.version and floor else "the program"
        yield DRIVER_TOO_OLD.found(
            f"{what} needs {f'driver {floor}' if floor else 'a newer driver'}"
            f"{f' (CUDA {needed})' if needed else ''}{_found(context)}",
            evidence=(*event_evidence(messages), *_driver_and_torch(context)),
            fix=_driver_or_image(context, messages, floor) or _driver_or_torch(context, floor),
        )
    elif _no_build_for(context):
        yield _no_torch_for_this_driver(context)


def _refused_all_the_same(context: RuleContext, messages: tuple[Event, ...]) -> Finding:
    """CUDA's runtime calls a driver too old that is not: it meets another, older libcuda, or it is
    of another library than torch."""
    torch = context.snapshot.torch.version
    what = f"torch {torch}" if torch else "what this text asks for"
    return CUDA_INIT_FAILED.found(
        f"The driver is called too old, and driver {context.snapshot.driver.version} serves {what}",
        evidence=(*event_evidence(messages), *_driver_and_torch(context)),
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


def _unknown_gpu(context: RuleContext) -> tuple[str, str] | None:
    """The GPU that came after this driver, and the first driver that knows it."""
    version = context.snapshot.driver.version
    newest = _newest_of(context)
    return newest if version and parsed(version) < parsed(newest[1]) else None


def _newest_of(context: RuleContext) -> tuple[str, str]:
    """Of the GPUs that no driver listed the one that needs the newest, and that driver."""
    from gpusetup.resolver.situation import first_drivers

    found = first_drivers(context.snapshot, context.catalog)
    return max(found, key=lambda row: parsed(row[1]), default=("", "0"))


def _too_old_for_gpu(context: RuleContext, gpu: str, first: str, floor: str | None) -> Finding:
    """The driver does not know the GPU; `floor` is what the installed torch needs besides."""
    torch = context.snapshot.torch
    needed = max((first, floor or first), key=parsed)
    also = f"torch {torch.version} needs driver {floor} or newer." if floor else ""
    return DRIVER_TOO_OLD.found(
        f"{gpu} needs NVIDIA driver {first} or newer{_found(context)}",
        detail=f"A driver of an older branch does not start this GPU. {also}".strip(),
        evidence=_driver_and_torch(context),
        fix=drivers.driver(context, f"Update the driver to {needed} or newer", needed),
    )


def _found(context: RuleContext) -> str:
    """The driver that is there, as far as it is known."""
    driver = context.snapshot.driver
    if driver.version:
        return f", found driver {driver.version}{f' (CUDA {driver.cuda})' if driver.cuda else ''}"
    return f"; this driver serves CUDA {driver.cuda}" if driver.cuda else ""


def _floor(context: RuleContext, needed: str | None, messages: tuple[Event, ...]) -> str | None:
    """The least driver: a message names it, or a CUDA that the driver must serve fully.

    Who names a CUDA compares it with what nvidia-smi prints: minor versions do not help there.
    """
    named = next(
        filter(None, (e.values.get("needs_driver") or e.values.get("needed") for e in messages)),
        None,
    )
    if named or not needed:
        return named
    family = driver_family(context)
    own = any(e.values.get("cuda") == needed for e in messages)
    full = context.catalog.toolkit_driver(needed, family) if own else None
    if board_of(context.snapshot):
        return None
    return full or context.catalog.driver_floor(needed, family)


def _is_past_its_last_driver(context: RuleContext, floor: str | None) -> bool:
    """Whether a GPU that torch has no kernel for ends with a driver below the floor."""
    known = context.snapshot.torch.kernels is not None
    lacking = (gpu for gpu in gpus(context) if known and serving(context, gpu) is None)
    return any(context.catalog.ends_before((gpu,), floor) for gpu in lacking)


TRITONS_CUDA = "12.0"
"""Triton assembles by a ptxas of CUDA 12 from 2.1 on, which came with torch 2.1."""


def _of_tritons_assembler(context: RuleContext) -> tuple[Event, ...]:
    """Kernels of Triton that a driver of CUDA 11 cannot load, whatever CUDA torch has."""
    invalid = events(context, "triton-image-invalid")
    torch, driver = context.snapshot.torch.version, context.snapshot.driver.version
    if not (invalid and torch and driver) or parsed(torch) < parsed("2.1"):
        return ()
    first = context.catalog.driver_floor(TRITONS_CUDA, driver_family(context))
    if not first or parsed(driver) >= parsed(first):
        return ()
    return tuple(replace(one, values={**one.values, "cuda": TRITONS_CUDA}) for one in invalid)


INSUFFICIENT_DRIVER = 35
"""cudaErrorInsufficientDriver."""


def _needed(context: RuleContext, messages: tuple[Event, ...]) -> str | None:
    """The CUDA that is needed: torch's, the message's, else the major above the driver's own.

    From CUDA 11 on the older driver serves all of a major (minor-version compatibility), so that a
    refusal means a later major; before, it means a later release.
    """
    named = next((e.values["cuda"] for e in messages if e.values.get("cuda")), None)
    triton = any(e.kind == "triton-image-invalid" for e in messages)
    own = named if triton else cuda_needed(context.snapshot.torch) or named
    has = named_as_served(messages)
    if own or not messages or not has:
        return own
    major = whole_number(has.partition(".")[0])
    if major is None or major >= context.catalog.minors_serve_from:
        return None if major is None else f"{major + 1}.0"
    releases = {".".join(row.cuda.split(".")[:2]) for row in context.catalog.toolkits}
    return min((r for r in releases if parsed(r) > parsed(has)), key=parsed, default=None)


def _serves_anyway(context: RuleContext, needed: str | None) -> bool:
    """The driver says itself that it serves this CUDA (WSL, cuda-compat)."""
    says = context.snapshot.driver.cuda
    if context.snapshot.torch.cuda_available:
        return True
    lifted = (
        context.snapshot.container.cuda_compat_path and context.snapshot.cuda_api.init_code == 0
    )
    return bool(lifted or (says and needed and parsed(says) >= parsed(needed)))


def _driver_and_torch(context: RuleContext) -> tuple[Evidence, ...]:
    driver, torch = context.snapshot.driver, context.snapshot.torch
    lines = (
        (driver.version, "driver.version", f"driver {driver.version}"),
        (
            torch.version,
            "torch.version",
            with_cuda(f"torch {torch.version}", cuda_needed(torch)),
        ),
    )
    return tuple(value_evidence(context, subject, text) for known, subject, text in lines if known)


def _driver_or_image(
    context: RuleContext, messages: tuple[Event, ...], floor: str | None
) -> Fix | None:
    """A container image that asks for more than the host's driver serves: an older one does too."""
    if all(event.kind != "image-needs-newer-driver" for event in messages):
        return None
    has = served(context, messages)
    newer = drivers.driver(
        context,
        f"update the host's driver to {f'{floor} or newer' if floor else 'the newest'}",
        floor,
    )
    older = f"for CUDA {has} or older" if has else "for an older CUDA"
    return Fix(text=f"Use an image {older}; or {newer.text}", min_driver=floor)


def _driver_or_torch(context: RuleContext, floor: str | None) -> Fix:
    newer = drivers.driver(
        context, f"Update the driver to {f'{floor} or newer' if floor else 'the newest'}", floor
    )
    build, driver = context.resolution.build, context.snapshot.driver
    known = driver.version or driver.cuda
    stays = context.decision is not None and context.decision.how == "kept"
    if build is None or build.backend == "cpu" or not known or stays:
        return newer
    other = f"torch {build.torch} from {build.backend}"
    if not _is_about_torch(context):
        return _driver_or_program(context, newer, other)
    update = Alternative(title=_lowered(newer.text), commands=newer.commands)
    return Fix(
        text=f"Keep the driver and install {other}, which it serves",
        commands=paste.install_commands(context),
        alternatives=(*paste.by_hand(context), *((update,) if _would_serve(context) else ())),
        min_driver=floor,
    )


def _would_serve(context: RuleContext) -> bool:
    """Whether the installed torch has kernels for the GPUs, so that a newer driver is enough."""
    return all(
        context.snapshot.torch.kernels is None or serving(context, gpu) is not None
        for gpu in gpus(context)
    )


def _driver_or_program(context: RuleContext, newer: Fix, other: str) -> Fix:
    """A program that is no torch has builds of its own for an older CUDA."""
    keep = Alternative(
        title=f"where the program uses torch, install {other}",
        commands=paste.install_commands(context),
    )
    update = Alternative(title=_lowered(newer.text), commands=newer.commands)
    cuda = context.snapshot.driver.cuda
    return Fix(
        text="Keep the driver and take the program's build for an older CUDA"
        f"{f' ({cuda} at most)' if cuda else ''}"
        + ("" if newer.commands else f". Or {_lowered(newer.text)}"),
        alternatives=(keep, *((update,) if update.commands else ())),
        min_driver=newer.min_driver,
    )


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _is_about_torch(context: RuleContext) -> bool:
    """Whether a torch was read, or named: a text may be of any program that uses CUDA."""
    torch = context.snapshot.torch
    read = torch.version or torch.installed or torch.cuda_available is not None
    torch_said = any(event.values.get("found") for event in events(context, "driver-too-old"))
    return bool(read or torch_said or context.request != Request() or not is_report(context))


def _no_build_for(context: RuleContext) -> bool:
    advice = context.resolution.advice
    chosen = context.resolution.build
    nothing = chosen is None or chosen.backend == "cpu"
    here = bool(gpus(context)) and not context.snapshot.os.jetson
    # No order: a text that shows a driver and no torch asks for none, unless it knows no such GPU.
    if is_report(context) and not (
        says_nothing_else(context) and _lists_what_it_knows_not(context)
    ):
        return False
    return nothing and here and advice is not None and advice.change == "driver"


def _lists_what_it_knows_not(context: RuleContext) -> bool:
    """A driver and a GPU that came after it, in one text: of two times, or of two machines."""
    version, family = context.snapshot.driver.version, driver_family(context)
    first = (context.catalog.first_driver(gpu, family) for gpu in gpus(context))
    return bool(version) and any(parsed(one) > parsed(version or "0") for one in first if one)


def _no_torch_for_this_driver(context: RuleContext) -> Finding:
    advice = context.resolution.advice
    assert advice is not None
    driver = context.snapshot.driver
    return DRIVER_TOO_OLD.found(
        f"No torch build of this catalog runs on driver {driver.version}; "
        f"{advice.to} gives {advice.gives}",
        evidence=_driver_and_torch(context),
        fix=drivers.driver(context, f"Update the driver to {advice.to} or newer", advice.to),
    )


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
    needed = cuda_needed(context.snapshot.torch)
    if not context.other_host or context.snapshot.driver.version or not needed:
        return
    floor = context.catalog.driver_floor(needed, context.snapshot.os.family or "linux")
    if floor:
        gpu, first = _newest_of(context)
        later = parsed(first) > parsed(floor)
        who = gpu if later else f"torch {context.snapshot.torch.version}"
        floor = first if later else floor
        yield DRIVER_TO_EXPECT.found(
            f"{who} needs driver {floor} or newer on that host",
            fix=Fix(text="Check it with `--for-driver VERSION`", min_driver=floor),
        )


RULES = (
    driver_too_old,
    floor_for_the_other_host,
)
