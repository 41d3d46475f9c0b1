"""Faults that the hardware reports: Xids, lost GPUs, memory errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpusetup.messages.recovery import recovery_action
from gpusetup.model import Alternative, Event, Evidence, Finding, Fix, Gpu
from gpusetup.rules import ways, which
from gpusetup.rules.case import (
    Case,
    cuda_errors,
    error,
    events,
    gpus,
    note,
    numbered,
    on,
    shown,
    told,
)
from gpusetup.shell import Line, filled, lines

XIDS: dict[str, tuple[str, ...]] = {
    "gpu-fell-off-bus": ("79",),
    "gsp-timeout": ("119", "120"),
    "ecc-error": ("48", "63", "64", "94", "95", "140", "156", "157", "160", "161", "171", "172"),
    "hardware-fault": (
        *("54", "56", "57", "58", "59", "61", "62", "74", "80", "81", "92", "110", "122", "123"),
        *("136", "143", "144", "145", "146", "147", "148", "149", "150", "154", "155", "158"),
        *("167", "168", "169"),
    ),
    "gpu-hang": ("8", "38", "44", "46", "109"),
}
"""Finding -> Xid numbers (NVIDIA's guide "Xid Errors" and its catalog)."""

HANGS = {
    "8": "it stopped processing",
    "38": "the context switch firmware waited in vain",
    "44": "a fault while it switched contexts",
    "46": "it stopped processing",
    "109": "a context switch timed out",
}

PROGRAM_XIDS = (
    *("11", "13", "25", "31", "32", "37", "39", "40", "41", "43", "45", "60", "66", "67", "68"),
    *("69", "70", "71", "72", "75", "76", "77", "82", "83", "84", "85", "86", "88", "89", "137"),
    *("141",),
)
"""Those that a program causes itself, and that end with it (the catalog: restart it, ignore)."""


FOLLOWS = "154"
"""Says what another Xid asks for; a fault of its own only where that one is not shown."""


def _numbered(case: Case, id: str) -> tuple[Event, ...]:
    """The Xids of one finding; what the driver recommended then and no longer does is past."""
    shown_xids = events(case, "xid")
    known = {number for group in XIDS.values() for number in group} - {FOLLOWS}
    alone = not any(e.values.get("number") in known for e in shown_xids)
    since = bool(gpus(case)) and all(gpu.recovery_action == "none" for gpu in gpus(case))
    wanted = set(XIDS[id]) - (set() if alone and not since else {FOLLOWS})
    return tuple(e for e in shown_xids if e.values.get("number") in wanted)


def gpu_fell_off_bus(case: Case) -> Iterator[Finding]:
    """The GPU no longer answers on the bus."""
    fallen = (*_numbered(case, "gpu-fell-off-bus"), *events(case, "gpu-fell-off-bus"))
    lost = _with(case, [gpu for gpu in gpus(case) if gpu.lost], fallen)
    if lost or fallen:
        yield error(
            "gpu-fell-off-bus",
            f"{which.titled(case, lost)} {which.have(lost)} fallen off the PCI bus",
            evidence=(
                *told(fallen),
                *(shown(case, "gpus", f"{numbered(gpu)} is lost") for gpu in lost if gpu.lost),
                *_recommended_lines(case),
            ),
            fix=Fix(
                text="Reboot (a full power-off is better); if it comes back: power cables and "
                "supply, heat, "
                "seating or riser, `pcie_aspm=off` on the kernel command line",
                commands=lines("sudo reboot") if on(case, "linux") else (),
                needs_root=True,
                needs_reboot=True,
            ),
        )


def _with(case: Case, listed: list[Gpu], heard: tuple[Event, ...]) -> tuple[Gpu, ...]:
    """The GPUs that a source marks, and those whose slots events name, each once.

    Where one GPU is listed, an event that names a slot means that one.
    """
    named = which.at_slots(case, heard) if len(gpus(case)) > 1 or not gpus(case) else ()
    slots = {which.short(gpu.pci_bus_id) for gpu in listed if gpu.pci_bus_id}
    return (*listed, *(gpu for gpu in named if which.short(gpu.pci_bus_id) not in slots))


def gsp_timeout(case: Case) -> Iterator[Finding]:
    xids = _numbered(case, "gsp-timeout")
    said = (*told(xids), *told(events(case, "gsp-timeout")))
    if said:
        concerned = _with(case, [], xids)
        who = f" of {which.titled(case, concerned)}" if concerned else ""
        yield error(
            "gsp-timeout",
            f"The GPU's system processor (GSP){who} does not answer",
            evidence=(*said, *_recommended_lines(case)),
            fix=Fix(
                text="Reboot; if it comes back, update the driver",
                commands=ways.posix(case, "sudo reboot"),
                alternatives=ways.other(
                    "switch the GSP firmware off, where it comes back and the kernel modules are "
                    "the closed ones",
                    *ways.posix(case, GSP_OFF, "sudo reboot"),
                ),
                needs_root=True,
                needs_reboot=True,
            ),
        )


GSP_OFF = (
    "echo 'options nvidia NVreg_EnableGpuFirmware=0' | sudo tee /etc/modprobe.d/nvidia-gsp.conf"
)


def hardware_fault(case: Case) -> Iterator[Finding]:
    """What the hardware or its driver reports, beyond a lost GPU and bad memory."""
    heard = events(case, "hardware-error", "gpu-requires-reset", "sxid")
    xids = _numbered(case, "hardware-fault")
    asked = [] if _is_explained(case) else [gpu for gpu in gpus(case) if _action(gpu)]
    if not (xids or heard or asked):
        return
    concerned = _with(case, asked, xids)
    yield error(
        "hardware-fault",
        f"{which.titled(case, concerned) if concerned else 'The GPU'} reported a hardware fault: "
        f"{_what_is_wrong(case, xids, asked)}",
        evidence=(*told(xids), *told(heard), *_recommended_lines(case)),
        fix=_fault_fix(case),
    )


def _what_is_wrong(case: Case, xids: tuple[Event, ...], asked: list[Gpu]) -> str:
    numbers = {event.values["number"] for event in xids}
    switch = {event.values.get("number", "") for event in events(case, "sxid")}
    named = [f"Xid {number}" for number in sorted(numbers)]
    named += [f"SXid {number} of an NVSwitch" for number in sorted(switch)]
    if asked:
        actions = dict.fromkeys(ACTIONS[str(gpu.recovery_action)] for gpu in asked)
        named.append(f"the driver recommends to {' and to '.join(actions)}")
    return ", ".join(named) or "it must be reset"


ACTIONS = {
    "gpu_reset": "reset the GPU",
    "node_reboot": "reboot the machine",
    "drain_p2p": "end what goes between GPUs, so that their links can be reset",
    "drain_and_reset": "start nothing new on the GPU, and reset it when its programs have ended",
    "recover_imex_domain": "recover the IMEX domain",
    "bus_reset": "reset the GPU's PCI bus (a reboot does it)",
    "system_reboot": "reboot the whole system",
}
"""NVML's recovery actions in words (nvml.h, nvmlDeviceGpuRecoveryAction_t)."""
RESETS = ("gpu_reset", "drain_and_reset")


def _action(gpu: Gpu) -> str | None:
    return gpu.recovery_action if gpu.recovery_action in ACTIONS else None


def _is_explained(case: Case) -> bool:
    """Another finding says why the driver recommends something, and quotes it."""
    known = {number for group in XIDS.values() for number in group} - {FOLLOWS}
    xids = any(event.values.get("number") in known for event in events(case, "xid"))
    return xids or any(gpu.lost or _is_bad(gpu) for gpu in gpus(case))


def _recommended(case: Case) -> dict[str, list[Gpu]]:
    """The driver's own recommendation -> the GPUs: NVML's answer, else the last Xid 154."""
    found: dict[str, list[Gpu]] = {}
    for gpu in gpus(case):
        if action := _action(gpu):
            found.setdefault(action, []).append(gpu)
    if any(gpu.recovery_action for gpu in gpus(case)):
        return found
    for event in events(case, "xid"):
        action = recovery_action(event.values.get("recovery"))
        if action in ACTIONS:
            found.setdefault(str(action), []).extend(which.at_slots(case, (event,)))
    return found


def _recommended_lines(case: Case) -> tuple[Evidence, ...]:
    return tuple(
        shown(case, "gpus", f"{which.titled(case, found)}: the driver recommends to {ACTIONS[one]}")
        for one, found in _recommended(case).items()
    )


def _fault_fix(case: Case) -> Fix:
    """What the driver recommends, else a reboot."""
    actions = _recommended(case)
    after = "if it comes back, run NVIDIA's field diagnostic and have the GPU replaced"
    if actions and all(action in RESETS for action in actions):
        resettable = [gpu for found in actions.values() for gpu in found]
        return Fix(
            text=f"End the programs on the GPU and reset it, as its driver recommends; {after}",
            commands=reset(case, resettable),
            looks=_bug_report(case),
            needs_root=True,
        )
    if tuple(actions) == ("drain_p2p",):
        return Fix(
            text="End the programs that use several GPUs together, as the driver recommends; the "
            f"links are then reset; {after}",
            looks=(
                *ways.look("see the links", *lines("nvidia-smi nvlink -s")),
                *_bug_report(case),
            ),
        )
    return Fix(
        text=f"Reboot; {after}",
        commands=ways.posix(case, "sudo reboot"),
        looks=_bug_report(case),
        needs_root=True,
        needs_reboot=True,
    )


UNCORRECTABLE = 214
"""cudaErrorECCUncorrectable."""


RETIRED_PAGES_MOST = 60
"""From so many retired pages on the GPU is to be replaced (NVIDIA, "Dynamic Page Retirement")."""


def _is_worn(gpu: Gpu) -> bool:
    """What no reset mends."""
    worn = (gpu.retired_pages or 0) >= RETIRED_PAGES_MOST
    return bool(gpu.remap_failed or gpu.sram_threshold_exceeded or worn)


def _is_bad(gpu: Gpu) -> bool:
    return bool(gpu.ecc_uncorrected or gpu.retired_pending or _is_worn(gpu))


def ecc_error(case: Case) -> Iterator[Finding]:
    """Memory errors that ECC could not correct."""
    xids = _numbered(case, "ecc-error")
    heard = (*events(case, "ecc-error"), *cuda_errors(case, UNCORRECTABLE))
    bad = _with(case, [gpu for gpu in gpus(case) if _is_bad(gpu)], xids)
    if not (bad or xids or heard):
        return
    marked = [gpu for gpu in bad if _is_bad(gpu)]
    yield error(
        "ecc-error",
        f"{which.titled(case, bad)}: memory errors that ECC cannot correct",
        evidence=(
            *told(xids),
            *told(heard),
            *(shown(case, "gpus", _ecc_line(gpu)) for gpu in marked[:8]),
            *_recommended_lines(case),
        ),
        fix=_ecc_fix(case, bad),
    )


def _ecc_fix(case: Case, bad: Sequence[Gpu]) -> Fix:
    worn = [gpu for gpu in bad if _is_worn(gpu)]
    must = "a GPU whose remapping failed must be replaced"
    if worn and len(gpus(case)) > 1:
        must = f"{which.titled(case, worn)} must be replaced"
    return Fix(
        text=f"Reset the GPU or reboot, so that bad rows are remapped; {must}",
        commands=reset(case, bad) if bad else (),
        looks=ways.look(
            "see the counters", *lines('nvidia-smi -q -d "ECC,ROW_REMAPPER,PAGE_RETIREMENT"')
        ),
        needs_root=True,
        needs_reboot=True,
    )


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _ecc_line(gpu: Gpu) -> str:
    parts = (
        f"{gpu.ecc_uncorrected} uncorrectable error{_s(gpu.ecc_uncorrected)}"
        if gpu.ecc_uncorrected
        else None,
        "row remapping failed" if gpu.remap_failed else None,
        "pages wait for a reset" if gpu.retired_pending else None,
        "more errors in SRAM than a GPU may have" if gpu.sram_threshold_exceeded else None,
        f"{gpu.retired_pages} retired pages" if gpu.retired_pages else None,
        f"{gpu.remapped_rows} remapped rows" if gpu.remapped_rows else None,
    )
    return f"{numbered(gpu)}: " + ", ".join(part for part in parts if part)


def gpu_hang(case: Case) -> Iterator[Finding]:
    """The GPU, or one channel of it, went no further."""
    said = tuple(e for e in events(case, "xid") if e.values.get("number") in HANGS)
    if said:
        number = said[0].values["number"]
        concerned = _with(case, [], said)
        who = which.titled(case, concerned) if len(gpus(case)) > 1 and concerned else "The GPU"
        yield error(
            "gpu-hang",
            f"{who} hung: {HANGS[number]} (Xid {number})",
            detail="A kernel that does not end, a fault of the driver, or a GPU that is not stable "
            "(overclocking, power, heat).",
            evidence=(*told(said), *_recommended_lines(case)),
            fix=Fix(
                text="End the program and reset the GPU, or reboot (a GPU that drives a display "
                "cannot be reset); update the driver. If other programs hang it too: take back "
                "overclocking, look at power and heat, and have the GPU examined",
                commands=reset(case, which.at_slots(case, said)),
                looks=_bug_report(case),
                needs_root=True,
                needs_reboot=True,
            ),
        )


def _bug_report(case: Case) -> tuple[Alternative, ...]:
    """The driver's script that gathers what its makers ask for; only the Linux driver has it."""
    if case.snapshot.os.wsl:
        return ()
    title = "gather first what NVIDIA asks for, where it comes back"
    return ways.look(title, *ways.posix(case, "sudo nvidia-bug-report.sh"))


def reset(case: Case, concerned: Sequence[Gpu]) -> tuple[Line, ...]:
    """The command that resets these GPUs; all of them where none can be named."""
    chosen = which.selected(concerned)
    if not chosen:
        return lines("sudo nvidia-smi --gpu-reset")
    return (filled("sudo nvidia-smi --gpu-reset -i {gpus}", gpus=chosen),)


def program_xid(case: Case) -> Iterator[Finding]:
    said = tuple(e for e in events(case, "xid") if e.values.get("number") in PROGRAM_XIDS)
    if said:
        numbers = sorted({e.values["number"] for e in said}, key=int)
        yield note(
            "xid-of-a-program",
            f"The kernel log holds Xids that a program's own fault causes: {', '.join(numbers)}",
            detail="A bad address, an illegal instruction, a kill; the GPU works on.",
            evidence=told(said),
            fix=Fix(
                text="Start the program again; if it comes back, find the kernel that fails: with "
                "this setting the traceback names it, and so does `compute-sanitizer`, slowly",
                commands=(ways.setting(case, "CUDA_LAUNCH_BLOCKING", "1"),),
            ),
        )


RULES = (
    gpu_fell_off_bus,
    gsp_timeout,
    hardware_fault,
    ecc_error,
    gpu_hang,
    program_xid,
)
