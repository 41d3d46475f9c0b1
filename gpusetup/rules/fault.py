"""Faults that the hardware reports: Xids, lost GPUs, memory errors."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Evidence, Finding, Fix, Gpu
from gpusetup.rules import ways
from gpusetup.rules.case import (
    Case,
    cuda_errors,
    error,
    events,
    gpus,
    note,
    on,
    one_of,
    shown,
    told,
)

XIDS: dict[str, tuple[str, ...]] = {
    "gpu-fell-off-bus": ("79",),
    "gsp-timeout": ("119", "120"),
    "ecc-error": ("48", "63", "64", "94", "95", "140"),
    "hardware-fault": (
        *("54", "56", "57", "58", "62", "74", "80", "81", "92", "110", "122", "123"),
        *("144", "145", "146", "147", "148", "149", "150", "154"),
    ),
}
"""Finding -> Xid numbers (NVIDIA's guide "Xid Errors")."""

PROGRAM_XIDS = ("13", "31", "43", "45", "69")
"""Those that a program causes itself."""


def _xids(case: Case, id: str) -> tuple[Evidence, ...]:
    return told(tuple(e for e in events(case, "xid") if e.values.get("number") in XIDS[id]))


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
                *(shown(case, "gpus", f"GPU {gpu.nvml_index} is lost") for gpu in lost[:2]),
            ),
            fix=Fix(
                text="Reboot (a full power-off is better); if it comes back: power cables and "
                "supply, heat, "
                "seating or riser, `pcie_aspm=off` on the kernel command line",
                commands=("sudo reboot",) if on(case, "linux") else (),
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
                text="Reboot and update the driver; if it comes back on a closed-module driver, "
                "switch the "
                "GSP firmware off",
                commands=(
                    "echo 'options nvidia NVreg_EnableGpuFirmware=0' | sudo tee "
                    "/etc/modprobe.d/nvidia-gsp.conf",
                    "sudo reboot",
                ),
                needs_root=True,
                needs_reboot=True,
            ),
        )


def hardware_fault(case: Case) -> Iterator[Finding]:
    other = events(case, "hardware-error", "gpu-requires-reset")
    said = (*_xids(case, "hardware-fault"), *told(other))
    if said:
        numbers = {e.values.get("number", "") for e in events(case, "xid")} & set(
            XIDS["hardware-fault"]
        )
        what = f"Xid {', '.join(sorted(numbers))}" if numbers else "it must be reset"
        yield error(
            "hardware-fault",
            f"The GPU reported a hardware fault: {what}",
            evidence=said,
            fix=Fix(
                text="Reboot; if it comes back, run NVIDIA's field diagnostic and have the GPU "
                "replaced",
                commands=("nvidia-bug-report.sh",),
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
            commands=(
                "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT",
                *(f"sudo nvidia-smi --gpu-reset -i {gpu.nvml_index or 0}" for gpu in bad[:1]),
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
    return f"GPU {gpu.nvml_index}: " + ", ".join(part for part in parts if part)


def program_xid(case: Case) -> Iterator[Finding]:
    said = tuple(e for e in events(case, "xid") if e.values.get("number") in PROGRAM_XIDS)
    if said:
        yield note(
            "xid-of-a-program",
            "The kernel log holds Xids that a program's own fault causes (a bad address, a kill)",
            evidence=told(said),
        )


RULES = (
    gpu_fell_off_bus,
    gsp_timeout,
    hardware_fault,
    ecc_error,
    program_xid,
)
