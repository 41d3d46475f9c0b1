"""Driver and torch: is the driver new enough, known, and quick."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.jetpack import board_of
from gpusetup.model import Alternative, Event, Evidence, Finding, Fix, Request, parsed
from gpusetup.rules import drivers, ways
from gpusetup.rules.case import (
    Case,
    cuda_errors,
    cuda_needed,
    error,
    events,
    gpus,
    is_report,
    note,
    on,
    says_nothing_else,
    serving,
    shown,
    told,
    warning,
    whole_number,
    with_cuda,
)
from gpusetup.shell import lines

SLOW_SECONDS = 5.0


def driver_too_old(case: Case) -> Iterator[Finding]:
    """The driver serves less CUDA than the installed torch, or any torch, needs."""
    machine = case.snapshot
    torch, driver = machine.torch, machine.driver
    said = (
        *events(case, "driver-too-old", "image-needs-newer-driver"),
        *cuda_errors(case, INSUFFICIENT_DRIVER),
    )
    if not driver.version and not driver.cuda and not said:
        return
    needed = _needed(case, said)
    floor = _floor(case, needed, said)
    if any(e.values.get("needs_driver") for e in said):
        needed = next((e.values["cuda"] for e in said if e.values.get("cuda")), None)
    short = bool(driver.version and floor and parsed(driver.version) < parsed(floor))
    # A Jetson's driver is numbered apart: its JetPack decides.
    short = short and not _serves_anyway(case, needed) and not board_of(case.snapshot)
    if unknown := _unknown_gpu(case):
        yield _too_old_for_gpu(case, *unknown, floor if short else None)
        return
    if short and not said and _is_past_its_last_driver(case, floor):
        return  # no driver for this GPU reaches it: the wheel is too new for the GPU
    if short or said:
        what = f"torch {torch.version}" if torch.version else "the program"
        yield error(
            "driver-too-old",
            f"{what} needs {f'driver {floor}' if floor else 'a newer driver'}"
            f"{f' (CUDA {needed})' if needed else ''}{_found(case)}",
            evidence=(*told(said), *_driver_and_torch(case)),
            fix=_driver_or_image(case, said, floor) or _driver_or_torch(case, floor),
        )
    elif _no_build_for(case):
        yield _no_torch_for_this_driver(case)


def _unknown_gpu(case: Case) -> tuple[str, str] | None:
    """The GPU that came after this driver, and the first driver that knows it."""
    version = case.snapshot.driver.version
    newest = _newest_of(case)
    return newest if version and parsed(version) < parsed(newest[1]) else None


def _newest_of(case: Case) -> tuple[str, str]:
    """Of the GPUs that no driver listed the one that needs the newest, and that driver."""
    from gpusetup.resolver.situation import first_drivers

    found = first_drivers(case.snapshot, case.catalog)
    return max(found, key=lambda row: parsed(row[1]), default=("", "0"))


def _too_old_for_gpu(case: Case, gpu: str, first: str, floor: str | None) -> Finding:
    """The driver does not know the GPU; `floor` is what the installed torch needs besides."""
    torch = case.snapshot.torch
    needed = max((first, floor or first), key=parsed)
    also = f"torch {torch.version} needs driver {floor} or newer." if floor else ""
    return error(
        "driver-too-old",
        f"{gpu} needs NVIDIA driver {first} or newer{_found(case)}",
        detail=f"A driver of an older branch does not start this GPU. {also}".strip(),
        evidence=_driver_and_torch(case),
        fix=drivers.driver(case, f"Update the driver to {needed} or newer", needed),
    )


def _found(case: Case) -> str:
    """The driver that is there, as far as it is known."""
    driver = case.snapshot.driver
    if driver.version:
        return f", found driver {driver.version}{f' (CUDA {driver.cuda})' if driver.cuda else ''}"
    return f"; this driver serves CUDA {driver.cuda}" if driver.cuda else ""


def _floor(case: Case, needed: str | None, said: tuple[Event, ...]) -> str | None:
    """The least driver: an image names it, or a CUDA that the driver must serve fully.

    nvidia-container-cli compares with what nvidia-smi prints; minor versions do not help there.
    """
    images = tuple(e for e in said if e.kind == "image-needs-newer-driver")
    named = next((e.values["needs_driver"] for e in images if e.values.get("needs_driver")), None)
    if named or not needed:
        return named
    family = _driver_family(case)
    full = case.catalog.toolkit_driver(needed, family) if images else None
    if board_of(case.snapshot):
        return None
    return full or case.catalog.driver_floor(needed, family)


def _is_past_its_last_driver(case: Case, floor: str | None) -> bool:
    """Whether a GPU that torch has no kernel for ends with a driver below the floor."""
    for gpu in gpus(case):
        last = case.catalog.last_branch(gpu.compute_capability) if gpu.compute_capability else None
        if last is not None and floor and last < parsed(floor).major:
            return case.snapshot.torch.kernels is not None and serving(case, gpu) is None
    return False


INSUFFICIENT_DRIVER = 35
"""cudaErrorInsufficientDriver."""


def _driver_family(case: Case) -> str:
    """Whose driver numbers count: WSL uses the driver of Windows."""
    return "windows" if case.snapshot.os.wsl else case.snapshot.os.family or "linux"


def _needed(case: Case, said: tuple[Event, ...]) -> str | None:
    """The CUDA that is needed: torch's, the message's, else the major above the driver's own.

    From CUDA 11 on the older driver serves all of a major (minor-version compatibility), so that a
    refusal means a later major; before, it means a later release.
    """
    named = next((e.values["cuda"] for e in said if e.values.get("cuda")), None)
    own = cuda_needed(case.snapshot.torch) or named
    has = _served(case, said)
    if own or not said or not has:
        return own
    major = whole_number(has.partition(".")[0])
    if major is None or major >= MINORS_SERVE_FROM:
        return None if major is None else f"{major + 1}.0"
    releases = {".".join(row.cuda.split(".")[:2]) for row in case.catalog.toolkits}
    return min((r for r in releases if parsed(r) > parsed(has)), key=parsed, default=None)


MINORS_SERVE_FROM = 11
"""The first CUDA whose minor versions run on the driver of any of them (CUDA Compatibility)."""


def _served(case: Case, said: tuple[Event, ...]) -> str | None:
    """The CUDA that the driver serves, as read or as the message has it."""
    found = (e.values.get("driver_cuda") or _as_release(e.values.get("found", "")) for e in said)
    return case.snapshot.driver.cuda or next(filter(None, found), None)


def _as_release(number: str) -> str:
    """The runtime's number for a CUDA release.

    >>> _as_release("11040"), _as_release("11.4")
    ('11.4', '11.4')
    """
    if not (number.isascii() and number.isdigit() and len(number) in (4, 5)):
        return number
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"


def _serves_anyway(case: Case, needed: str | None) -> bool:
    """The driver says itself that it serves this CUDA (WSL, cuda-compat)."""
    says = case.snapshot.driver.cuda
    if case.snapshot.torch.cuda_available:
        return True
    lifted = case.snapshot.container.cuda_compat_path and case.snapshot.cuda_api.init_code == 0
    return bool(lifted or (says and needed and parsed(says) >= parsed(needed)))


def _driver_and_torch(case: Case) -> tuple[Evidence, ...]:
    driver, torch = case.snapshot.driver, case.snapshot.torch
    lines = (
        (driver.version, "driver.version", f"driver {driver.version}"),
        (
            torch.version,
            "torch.version",
            with_cuda(f"torch {torch.version}", cuda_needed(torch)),
        ),
    )
    return tuple(shown(case, subject, text) for known, subject, text in lines if known)


def _driver_or_image(case: Case, said: tuple[Event, ...], floor: str | None) -> Fix | None:
    """A container image that asks for more than the host's driver serves: an older one does too."""
    if all(event.kind != "image-needs-newer-driver" for event in said):
        return None
    has = _served(case, said)
    newer = drivers.driver(
        case, f"update the host's driver to {f'{floor} or newer' if floor else 'the newest'}", floor
    )
    older = f"for CUDA {has} or older" if has else "for an older CUDA"
    return Fix(text=f"Use an image {older}; or {newer.text}", min_driver=floor)


def _driver_or_torch(case: Case, floor: str | None) -> Fix:
    newer = drivers.driver(
        case, f"Update the driver to {f'{floor} or newer' if floor else 'the newest'}", floor
    )
    build, driver = case.resolution.build, case.snapshot.driver
    known = driver.version or driver.cuda
    if build is None or build.backend == "cpu" or not known:
        return newer
    other = f"torch {build.torch} from {build.backend}"
    if not _is_about_torch(case):
        return _driver_or_program(case, newer, other)
    update = Alternative(title=_lowered(newer.text), commands=newer.commands)
    return Fix(
        text=f"Keep the driver and install {other}, which it serves",
        commands=ways.install_commands(case),
        alternatives=(*ways.by_hand(case), *((update,) if _would_serve(case) else ())),
        min_driver=floor,
    )


def _would_serve(case: Case) -> bool:
    """Whether the installed torch has kernels for the GPUs, so that a newer driver is enough."""
    return all(
        case.snapshot.torch.kernels is None or serving(case, gpu) is not None for gpu in gpus(case)
    )


def _driver_or_program(case: Case, newer: Fix, other: str) -> Fix:
    """A program that is no torch has builds of its own for an older CUDA."""
    keep = Alternative(
        title=f"where the program uses torch, install {other}",
        commands=ways.install_commands(case),
    )
    update = Alternative(title=_lowered(newer.text), commands=newer.commands)
    cuda = case.snapshot.driver.cuda
    return Fix(
        text="Keep the driver and take the program's build for an older CUDA"
        f"{f' ({cuda} at most)' if cuda else ''}"
        + ("" if newer.commands else f". Or {_lowered(newer.text)}"),
        alternatives=(keep, *((update,) if update.commands else ())),
        min_driver=newer.min_driver,
    )


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _is_about_torch(case: Case) -> bool:
    """Whether a torch was read, or named: a text may be of any program that uses CUDA."""
    torch = case.snapshot.torch
    read = torch.version or torch.installed or torch.cuda_available is not None
    torch_said = any(event.values.get("found") for event in events(case, "driver-too-old"))
    return bool(read or torch_said or case.request != Request() or not is_report(case))


def _no_build_for(case: Case) -> bool:
    advice = case.resolution.advice
    chosen = case.resolution.build
    nothing = chosen is None or chosen.backend == "cpu"
    here = bool(gpus(case)) and not case.snapshot.os.jetson
    works = case.snapshot.torch.version is not None or not says_nothing_else(case)
    if is_report(case) and works:
        return False
    return nothing and here and advice is not None and advice.change == "driver"


def _no_torch_for_this_driver(case: Case) -> Finding:
    advice = case.resolution.advice
    assert advice is not None
    driver = case.snapshot.driver
    return error(
        "driver-too-old",
        f"No torch build of this catalog runs on driver {driver.version}; "
        f"{advice.to} gives {advice.gives}",
        evidence=_driver_and_torch(case),
        fix=drivers.driver(case, f"Update the driver to {advice.to} or newer", advice.to),
    )


def driver_newer_than_catalog(case: Case) -> Iterator[Finding]:
    """The driver is newer than every row: it counts as the newest row."""
    version = case.snapshot.driver.version
    if version and case.catalog.driver_is_newer(version):
        yield note(
            "driver-newer-than-catalog",
            f"Driver {version} is newer than the catalog of {case.catalog.as_of}: it counts as its "
            "newest row",
            evidence=(shown(case, "driver.version", f"driver {version}"),),
        )


LOOK_WHY = Fix(
    text="Look what the kernel says of the GPU, and whether the machine is busy",
    looks=ways.look("see the kernel's log", *lines("sudo dmesg | grep -iE 'nvrm|xid'")),
)


def driver_slow(case: Case) -> Iterator[Finding]:
    """The driver took long to answer."""
    seconds = case.snapshot.driver.seconds
    if seconds is not None and seconds > SLOW_SECONDS:
        yield warning(
            "driver-slow",
            f"The driver took {seconds:.0f} s to answer",
            detail="Persistence mode is on: look at the machine's load and at the kernel's log."
            if case.snapshot.driver.persistence
            else "Without persistence mode it starts every GPU anew for each program.",
            evidence=(shown(case, "driver.seconds", f"{seconds:.1f} s"),),
            fix=LOOK_WHY
            if case.snapshot.driver.persistence
            else Fix(
                text="Keep the driver loaded between programs",
                commands=lines("sudo systemctl enable --now nvidia-persistenced")
                if on(case, "linux")
                else (),
                needs_root=True,
            ),
        )


def floor_for_the_other_host(case: Case) -> Iterator[Finding]:
    """A GPU was named, no driver: what driver this torch needs there."""
    needed = cuda_needed(case.snapshot.torch)
    if not case.other_host or case.snapshot.driver.version or not needed:
        return
    floor = case.catalog.driver_floor(needed, case.snapshot.os.family or "linux")
    if floor:
        gpu, first = _newest_of(case)
        later = parsed(first) > parsed(floor)
        who = gpu if later else f"torch {case.snapshot.torch.version}"
        floor = first if later else floor
        yield note(
            "driver-to-expect",
            f"{who} needs driver {floor} or newer on that host",
            fix=Fix(text="Check it with `--for-driver VERSION`", min_driver=floor),
        )


RULES = (
    driver_too_old,
    driver_newer_than_catalog,
    driver_slow,
    floor_for_the_other_host,
)
