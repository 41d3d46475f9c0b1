"""The driver that a machine's GPUs ask for, and the fix that installs it where it lives."""

from __future__ import annotations

from gpusetup.catalog.facts import driver_branch, generation_of
from gpusetup.catalog.gpus import rows_or_none
from gpusetup.evidence.context import RuleContext, gpus, in_container, nvidia_on_pci, on
from gpusetup.fixes import which
from gpusetup.fixes.driver_packages import LEGACY, WAYS, asks_for_a_key, nixos_line
from gpusetup.fixes.packages import distribution, is_past
from gpusetup.fixes.wanted_driver import ONLY_OPEN_FROM, OPEN_FROM, Wanted, at_least, last_closed
from gpusetup.model.finding import Alternative, Fix
from gpusetup.model.machine import Gpu, PciDevice
from gpusetup.model.shell import Line, lines
from gpusetup.model.versions import Capability

DRIVER_SITE = "https://www.nvidia.com/drivers"


def gpus_of(context: RuleContext) -> tuple[Gpu, ...]:
    """The GPUs of this machine whose generation is known: by their driver, or by the PCI bus.

    A driver lists none that it does not drive, so the bus counts where it has more.
    """
    from gpusetup.resolver.situation import gpus_to_serve

    listed = gpus(context) or gpus_to_serve(context.snapshot, context.catalog)
    known = tuple(gpu for gpu in listed if gpu.compute_capability)
    on_bus = nvidia_on_pci(context)
    if len(known) >= len(on_bus):
        return known
    return (*known, *(gpu for device in on_bus if (gpu := _by_id(context, device))))


def _by_id(context: RuleContext, device: PciDevice) -> Gpu | None:
    """A GPU by its board, else the oldest that its PCI id may mean: enough for a driver."""
    name = which.on_the_bus(device)
    boards = rows_or_none(name, context.catalog.gpus)
    exact = {row.capability for row in boards} if boards else set()
    found = exact.pop() if len(exact) == 1 else generation_of(device.device_id)
    return Gpu(name=name, compute_capability=found) if found else None


def _capabilities(found: tuple[Gpu, ...]) -> tuple[Capability, ...]:
    return tuple(gpu.compute_capability for gpu in found if gpu.compute_capability)


def _last_branch(context: RuleContext, found: tuple[Gpu, ...]) -> int | None:
    """The last branch that drives all of these; None while drivers still support them."""
    ends = (context.catalog.last_branch(one) for one in _capabilities(found))
    return min((last for last in ends if last), default=None)


def _first_branch(context: RuleContext, found: tuple[Gpu, ...]) -> int:
    """The first branch that drives all of these."""
    return max((at_least(context.catalog.first_driver(gpu)) for gpu in found), default=0)


def branch(context: RuleContext, found: tuple[Gpu, ...], floor: str | None) -> int:
    """The driver branch to install: a long-lived one that serves the GPUs and reaches the floor."""
    wanted = max(driver_branch("good"), at_least(floor))
    last = _last_branch(context, found)
    return min(wanted, last) if last else wanted


def wanted_driver(
    context: RuleContext, floor: str | None = None, found: tuple[Gpu, ...] | None = None
) -> Wanted:
    """The driver that these GPUs (all of this machine's) and the floor ask for."""
    os = context.snapshot.os
    found = gpus_of(context) if found is None else found
    return Wanted(
        branch=branch(context, found, floor),
        at_least=max(at_least(floor), _first_branch(context, found)),
        capability=min(_capabilities(found), default=None),
        newest=max(_capabilities(found), default=None),
        id=(os.id or "").lower(),
        version=os.version or "",
        machine=os.machine or "x86_64",
        kernel=os.kernel or "",
        secure_boot=bool(os.secure_boot),
        is_image=os.id == "fedora" and any(one in (os.name or "").lower() for one in IMAGES),
    )


IMAGES = ("silverblue", "kinoite", "sericea", "onyx", "atomic", "coreos", "iot")
"""Words in the names of Fedora's systems that are images."""


def apart(context: RuleContext) -> tuple[tuple[Gpu, ...], tuple[Gpu, ...]] | None:
    """The older and the newer GPUs of a machine that no driver drives together.

    The older end with a branch before the first of the newer; or the newer need the open kernel
    modules, which do not drive GPUs before Turing.
    """
    found = gpus_of(context)
    last = _last_branch(context, found)
    if last is None:
        return None
    older = tuple(g for g in found if _last_branch(context, (g,)) == last)
    newer = tuple(g for g in found if g not in older and not _together(context, (*older, g)))
    return (older, newer) if newer else None


def _together(context: RuleContext, found: tuple[Gpu, ...]) -> bool:
    last = _last_branch(context, found)
    too_late = last is not None and last < _first_branch(context, found)
    seen = _capabilities(found)
    return not (too_late or (min(seen) < OPEN_FROM and max(seen) >= ONLY_OPEN_FROM))


def driver_commands(
    context: RuleContext, floor: str | None = None, want: Wanted | None = None
) -> tuple[Line, ...]:
    """How this distribution installs a driver; () where only a download page does it, and where
    the driver lives elsewhere: the distribution of a container is not its host's."""
    if elsewhere(context) or is_past(context):
        return ()
    want = want or wanted_driver(context, floor)
    ways = LEGACY if want.branch < last_closed() else WAYS
    way = ways.get(distribution(context) or "")
    return way(want) if way else ()


def driver(context: RuleContext, text: str, floor: str | None = None) -> Fix:
    """Install or update the driver where this machine's driver lives: on the host of a container,
    in Windows for WSL, with JetPack on a Jetson."""
    place = elsewhere(context)
    if place:
        return Fix(text=f"{text}. {place}", min_driver=floor, needs_root=True, needs_reboot=True)
    if (sides := apart(context)) and on(context, "linux"):
        return _one_or_the_other(context, text, *sides)
    if context.catalog.ends_before(found := gpus_of(context), floor):
        return Fix(
            text=f"No driver from {floor} on knows this GPU ({_last_branch(context, found)} is its "
            "last branch): take a build for an older CUDA, the CPU, or a newer GPU"
        )
    want = wanted_driver(context, floor)
    commands = driver_commands(context, floor) if on(context, "linux") else ()
    if not commands:
        text = f"{text}. Download it from {DRIVER_SITE}"
    family = distribution(context) or ""
    if family == "nixos":
        return _by_configuration(context, text, want, commands)
    key = bool(commands) and asks_for_a_key(family, want)
    loaded = starts_anew(context, want)
    return Fix(
        text=f"{text}, then {_and_then(context, loaded, key)}",
        commands=(*commands, *_start(loaded)) if commands else (),
        min_driver=floor,
        needs_root=True,
        needs_reboot=loaded,
    )


def _start(anew: bool) -> tuple[Line, ...]:
    return lines("sudo reboot") if anew else lines("sudo modprobe nvidia", "nvidia-smi")


def starts_anew(context: RuleContext, want: Wanted) -> bool:
    """Whether only a start of the machine loads what was installed.

    A distribution whose update brings another kernel has no module for the one that runs.
    """
    family = distribution(context) or ""
    rolls = family in ("nixos", "arch") or want.is_image
    return must_reboot(context) or asks_for_a_key(family, want) or rolls


def _one_or_the_other(
    context: RuleContext, text: str, older: tuple[Gpu, ...], newer: tuple[Gpu, ...]
) -> Fix:
    """Two ways of which one is to be chosen: each leaves some GPUs without a driver."""
    sides = (older, newer)
    names = [which.counted([gpu.name for gpu in side]) for side in sides]
    ways = zip(names, (_for_these(context, side) for side in sides), strict=True)
    return Fix(
        text=f"{text}: no driver drives both {names[0]} (closed modules, up to branch "
        f"{_last_branch(context, older)}) and {names[1]}. Choose which are to be used, and take "
        "the driver for these; the others stay without one (or go to another machine)",
        alternatives=tuple(
            Alternative(title=f"the driver for {name}", commands=commands)
            for name, commands in ways
            if commands
        ),
        needs_root=True,
        needs_reboot=must_reboot(context),
    )


def _for_these(context: RuleContext, found: tuple[Gpu, ...]) -> tuple[Line, ...]:
    want = wanted_driver(context, found=found)
    commands = driver_commands(context, want=want)
    return (*commands, *_start(starts_anew(context, want))) if commands else ()


def _by_configuration(
    context: RuleContext, text: str, want: Wanted, commands: tuple[Line, ...]
) -> Fix:
    """NixOS installs what its configuration says: the line comes first, and is typed by hand."""
    return Fix(
        text=f"{text}: add `{nixos_line(want.is_open)}` to /etc/nixos/configuration.nix, then "
        f"{_and_then(context, loaded=True, key=False)}",
        alternatives=(
            Alternative(
                title="when the line stands there", commands=(*commands, *lines("sudo reboot"))
            ),
        ),
        needs_root=True,
        needs_reboot=True,
    )


def _and_then(context: RuleContext, loaded: bool, key: bool) -> str:
    """What follows the packages, and how one sees that it worked."""
    if on(context, "windows"):
        return "restart where its installer asks for that"
    if key:
        whose = "of root" if distribution(context) == "suse" else "that `mokutil` asked for"
        return (
            f"reboot: the firmware asks for the new key (Enroll MOK) with the password {whose}. "
            "Afterwards `nvidia-smi` lists the GPU"
        )
    if loaded:
        return "reboot; afterwards `nvidia-smi` lists the GPU"
    return "load it (or reboot); `nvidia-smi` lists the GPU"


def must_reboot(context: RuleContext) -> bool:
    """Whether a module that is loaded now stands in the way of a new driver."""
    driver = context.snapshot.driver
    held = any(device.driver for device in nvidia_on_pci(context))
    return bool(driver.module_loaded or driver.nouveau_loaded or held)


def elsewhere(context: RuleContext) -> str | None:
    if context.snapshot.os.wsl:
        return (
            f"Do it in Windows (from {DRIVER_SITE}), then `wsl --shutdown`; install no "
            "Linux driver "
            "inside WSL"
        )
    if context.snapshot.os.jetson:
        return "On a Jetson the driver comes with JetPack: flash a newer JetPack with SDK Manager"
    if in_container(context):
        return "Do it on the host, not in this container, and start the container again"
    return None
