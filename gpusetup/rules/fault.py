"""Faults that the hardware reports: Xids, lost GPUs, memory errors."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Alternative, Event, Evidence, Finding, Fix, Gpu
from gpusetup.rules import ways
from gpusetup.rules.case import (
    Case,
    cuda_errors,
    error,
    events,
    gpus,
    note,
    numbered,
    on,
    one_of,
    shown,
    told,
)
from gpusetup.rules.plausible import is_an_identifier
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
    """The Xids of one finding."""
    shown_xids = events(case, "xid")
    known = {number for group in XIDS.values() for number in group} - {FOLLOWS}
    alone = not any(e.values.get("number") in known for e in shown_xids)
    wanted = set(XIDS[id]) - (set() if alone else {FOLLOWS})
    return tuple(e for e in shown_xids if e.values.get("number") in wanted)


def _xids(case: Case, id: str) -> tuple[Evidence, ...]:
    return told(_numbered(case, id))


def gpu_fell_off_bus(case: Case) -> Iterator[Finding]:
    """The GPU no longer answers on the bus."""
    lost = [gpu for gpu in gpus(case) if gpu.lost]
    said = (*told(events(case, "gpu-fell-off-bus")), *_xids(case, "gpu-fell-off-bus"))
    if lost or said:
        yield error(
            "gpu-fell-off-bus",
            f"{lost[0].name if lost else ways.names(case)} has fallen off the PCI bus",
            evidence=(
                *said,
                *(shown(case, "gpus", f"{numbered(gpu)} is lost") for gpu in lost[:2]),
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


def gsp_timeout(case: Case) -> Iterator[Finding]:
    said = _xids(case, "gsp-timeout") + told(events(case, "gsp-timeout"))
    if said:
        yield error(
            "gsp-timeout",
            "The GPU's system processor (GSP) does not answer",
            evidence=said,
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
    other = events(case, "hardware-error", "gpu-requires-reset", "sxid")
    said = (*_xids(case, "hardware-fault"), *told(other))
    if said:
        numbers = {e.values["number"] for e in _numbered(case, "hardware-fault")}
        switch = {e.values.get("number", "") for e in events(case, "sxid")}
        named = [f"Xid {number}" for number in sorted(numbers)]
        named += [f"SXid {number} of an NVSwitch" for number in sorted(switch)]
        what = ", ".join(named) or "it must be reset"
        yield error(
            "hardware-fault",
            f"The GPU reported a hardware fault: {what}",
            evidence=said,
            fix=Fix(
                text="Reboot; if it comes back, run NVIDIA's field diagnostic and have the GPU "
                "replaced",
                commands=ways.posix(case, "sudo reboot"),
                looks=_bug_report(case),
                needs_root=True,
                needs_reboot=True,
            ),
        )


UNCORRECTABLE = 214
"""cudaErrorECCUncorrectable."""


def ecc_error(case: Case) -> Iterator[Finding]:
    """Memory errors that ECC could not correct."""
    bad = [
        gpu for gpu in gpus(case) if gpu.ecc_uncorrected or gpu.remap_failed or gpu.retired_pending
    ]
    heard = (*events(case, "ecc-error"), *cuda_errors(case, UNCORRECTABLE))
    said = (*_xids(case, "ecc-error"), *told(heard))
    if not bad and not said:
        return
    yield error(
        "ecc-error",
        f"{one_of(tuple(gpu.name for gpu in bad)) or ways.names(case)}: memory errors that ECC "
        "cannot correct",
        evidence=(*said, *(shown(case, "gpus", _ecc_line(gpu)) for gpu in bad[:3])),
        fix=Fix(
            text="Reset the GPU or reboot, so that bad rows are remapped; a GPU whose "
            "remapping failed "
            "must be replaced",
            commands=_reset(tuple(map(ways.gpu_named, bad))) if bad else (),
            looks=ways.look(
                "see the counters", *lines("nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT")
            ),
            needs_root=True,
            needs_reboot=True,
        ),
    )


def _ecc_line(gpu: Gpu) -> str:
    parts = (
        f"{gpu.ecc_uncorrected} uncorrectable errors" if gpu.ecc_uncorrected else None,
        "row remapping failed" if gpu.remap_failed else None,
        "pages wait for a reset" if gpu.retired_pending else None,
    )
    return f"{numbered(gpu)}: " + ", ".join(part for part in parts if part)


def gpu_hang(case: Case) -> Iterator[Finding]:
    """The GPU, or one channel of it, went no further."""
    said = tuple(e for e in events(case, "xid") if e.values.get("number") in HANGS)
    if said:
        number = said[0].values["number"]
        yield error(
            "gpu-hang",
            f"The GPU hung: {HANGS[number]} (Xid {number})",
            detail="A kernel that does not end, a fault of the driver, or a GPU that is not stable "
            "(overclocking, power, heat).",
            evidence=told(said),
            fix=Fix(
                text="End the program and reset the GPU, or reboot (a GPU that drives a display "
                "cannot be reset); update the driver. If other programs hang it too: take back "
                "overclocking, look at power and heat, and have the GPU examined",
                commands=_reset(_addresses(said)),
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


def _addresses(said: tuple[Event, ...]) -> tuple[str, ...]:
    """The GPUs that events name by their bus addresses, each once."""
    named = (e.values.get("bus_id", "") for e in said)
    whole = (bus if "." in bus else f"{bus}.0" for bus in named if is_an_identifier(bus))
    return tuple(dict.fromkeys(whole))


def _reset(named: tuple[str, ...]) -> tuple[Line, ...]:
    """The command that resets GPUs, named as nvidia-smi names them; all where none is named.

    >>> _reset(("0000:0b:00.0",))
    ('sudo nvidia-smi --gpu-reset -i 0000:0b:00.0',)
    """
    if not named:
        return lines("sudo nvidia-smi --gpu-reset")
    return (filled("sudo nvidia-smi --gpu-reset -i {gpus}", gpus=",".join(named)),)


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
