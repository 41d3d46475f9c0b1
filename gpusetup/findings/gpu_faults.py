"""GPUs at fault, and the links between them: what the log, the driver or CUDA say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpusetup.catalog.facts import nvlinks_of
from gpusetup.causes.record import RECORDS
from gpusetup.evidence.context import RuleContext, cuda_errors, events, gpus, on, one_of
from gpusetup.findings.message_rules import (
    case_of,
    finding,
    fix_of,
    marked,
    of_gpus,
    shown,
)
from gpusetup.fixes import which
from gpusetup.messages.recovery import recovery_action
from gpusetup.model.finding import Finding, Findings, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Events, Gpu
from gpusetup.model.shell import Lines, filled, lines

FAULTS = (
    ("gpu-fell-off-bus", "79", ("lost",)),
    ("gsp-timeout", "119 120", ()),
    (
        "ecc-error",
        "48 63 64 94 95 140 156 157 160 161 171 172",
        (
            *("ecc_uncorrected", "retired_pending", "remap_failed", "sram_threshold_exceeded"),
            "retired_pages",
        ),
    ),
    ("gpu-hang", "8 38 44 46 109", ()),
    (
        "hardware-fault",
        "54 56 57 58 59 61 62 74 80 81 92 110 122 123 136 143 144 145 146 147 148 149 150 154 155 "
        "158 167 168 169",
        ("recovery_action",),
    ),
    (
        "xid-of-a-program",
        "11 13 25 31 32 37 39 40 41 43 45 60 66 67 68 69 70 71 72 75 76 77 82 83 84 85 86 88 89 "
        "137 141",
        (),
    ),
)
"""A cause, its Xids (NVIDIA's guide and catalog), and the fields that mark a GPU."""


FOLLOWS = "154"
"""Says what another Xid asks for; a fault of its own only where nothing else is shown."""


UNCORRECTABLE = 214
"""cudaErrorECCUncorrectable."""


RETIRED_PAGES_MOST = 60
"""From so many retired pages on the GPU is to be replaced (NVIDIA, "Dynamic Page Retirement")."""


ACTIONS = {
    "gpu_reset": "reset the GPU",
    "drain_and_reset": "start nothing new on the GPU, and reset it after its programs end",
    "drain_p2p": "end all traffic between GPUs, so that their links can be reset",
    "recover_imex_domain": "recover the IMEX domain",
    "bus_reset": "reset the GPU's PCI bus (a reboot does it)",
    "node_reboot": "reboot the machine",
    "system_reboot": "reboot the whole system",
}
"""NVML's recovery actions in words (nvml.h, nvmlDeviceGpuRecoveryAction_t)."""


RESETS = {"gpu_reset", "drain_and_reset"}


def device_faults(context: RuleContext) -> Findings:
    """A fault of the hardware, or a program's; what the driver recommends alone is one too."""
    recommended = _recommended(context)
    xids, found = events(context, "xid"), False
    for cause, numbers, fields in FAULTS:
        said = [e for e in xids if e.values.get("number", "") in numbers.split()]
        # A recommendation of the driver belongs to the fault before it, or is past.
        said = [
            e for e in said if e.values["number"] != FOLLOWS or not (found or _past(e, recommended))
        ]
        # In WSL somebody's "fell off the bus" is no word of a kernel.
        wsl = context.os.wsl
        said += [
            e for e in events(context, *RECORDS[cause].kinds) if not (wsl and e.values.get("said"))
        ]
        said += cuda_errors(context, UNCORRECTABLE) if cause == "ecc-error" else ()
        bad = [gpu for gpu in gpus(context) if any(_marks(gpu, name) for name in fields)]
        if said or (bad and not (found and cause == "hardware-fault")):
            found = True
            evidence = (*said, *marked(context, bad, *fields), *recommended.values())
            yield _fault(context, cause, evidence, concerned_gpus(context, bad, said), recommended)


def _past(event: Event, recommended: Mapping[str, Event]) -> bool:
    return "recovery" in event.values and not recommended


def _marks(gpu: Gpu, field: str) -> bool:
    value = getattr(gpu, field)
    if field == "recovery_action":
        return value in ACTIONS
    return bool(value) and (field != "retired_pages" or value >= RETIRED_PAGES_MOST)


def _recommended(context: RuleContext) -> dict[str, Event]:
    """What the driver recommends: NVML's answer, else the kernel's last word."""
    told = [(gpu.recovery_action, gpu.name) for gpu in gpus(context) if gpu.recovery_action]
    by_kernel = [
        (recovery_action(event.values.get("recovery")), event.text or "the kernel")
        for event in events(context, "xid")
    ]
    return {
        action: shown(context, "gpus", f"{of}: the driver recommends to {ACTIONS[action]}")
        for action, of in told or by_kernel
        if action in ACTIONS
    }


def _fault(
    context: RuleContext,
    cause: str,
    said: Events,
    concerned: Sequence[Gpu],
    recommended: Mapping[str, Event],
) -> Finding:
    numbers = [f"{e.kind.replace('xid', 'Xid')} {n}" for e in said if (n := e.values.get("number"))]
    named = concerned or len(gpus(context)) < 2
    record = RECORDS[cause]
    message, _ = case_of(context, record, said)
    fix = replace(fix_of(context, record, said), text=message.text)
    by_reset = cause == "hardware-fault" and recommended and recommended.keys() <= RESETS
    if by_reset or cause in ("ecc-error", "gpu-hang"):
        fix = replace(fix, commands=_reset(context, concerned))
    return finding(
        context,
        cause,
        said,
        fix=fix,
        who=which.titled(context, concerned) if named else "The GPU",
        have=which.have(concerned),
        what=one_of(tuple(numbers)) or "the driver recommends a reset",
    )


def concerned_gpus(
    context: RuleContext, marked: Sequence[Gpu], said: Sequence[Event]
) -> tuple[Gpu, ...]:
    """The GPUs that a source marks, and those whose slots events name, each once."""
    both = (*marked, *which.at_slots(context, said))
    return tuple({which.short(gpu.pci_bus_id): gpu for gpu in both}.values())


def _reset(context: RuleContext, concerned: Sequence[Gpu]) -> Lines:
    """The command that resets these GPUs; all of them where none can be named."""
    if on(context, "windows"):
        return ()
    if not (chosen := which.selected(concerned)):
        return lines("sudo nvidia-smi --gpu-reset")
    return (filled("sudo nvidia-smi --gpu-reset -i {gpus}", gpus=chosen),)


def nvlink_degraded(context: RuleContext) -> Findings:
    """Links that carry nothing although their like do, or that had to be trained anew."""
    silent = [gpu for gpu in gpus(context) if _lacks_links(context, gpu)]
    trained = [
        gpu
        for gpu in gpus(context)
        if gpu.nvlink_recoveries or (gpu.nvlink_errors or 0) >= MANY_ERRORS
    ]
    if ill := silent or trained:
        fields = ("nvlinks_active", "nvlinks_inactive", "nvlink_recoveries", "nvlink_errors")
        only = None if silent else Severity.NOTE
        works = any(gpu.nvlinks_active for gpu in gpus(context))
        yield of_gpus(context, "nvlink-degraded", ill, *fields, severity=only, weak=works)


NVSWITCH_GPUS = 4
"""Boards with NVSwitch have more GPUs (HGX: 4 without, 8 with; DGX 16)."""


MANY_ERRORS = 1000
"""Below that, errors that the links corrected by themselves are no word worth."""


def _lacks_links(context: RuleContext, gpu: Gpu) -> bool:
    """Whether fewer links are active than on a GPU of its kind, or, on a board with switches, than
    its model has."""
    alike = [g.nvlinks_active or 0 for g in gpus(context) if g.name == gpu.name]
    active = gpu.nvlinks_active
    if active is None or gpu.mig_enabled:
        return False
    told = len(alike) > NVSWITCH_GPUS and (gpu.nvlinks_inactive or not active)
    most = nvlinks_of(gpu.name) if told else 0
    return active < max(*alike, most)


def fabric_unhealthy(context: RuleContext) -> Findings:
    """The GPU is registered with the NVSwitch fabric, and the fabric does not work as it should."""
    registered = [gpu for gpu in gpus(context) if gpu.fabric_state == "completed"]
    failed = [gpu for gpu in registered if gpu.fabric_status not in (None, "success")]
    if ill := failed or [gpu for gpu in gpus(context) if gpu.fabric_faults]:
        fields = ("fabric_faults", "fabric_status")
        yield of_gpus(context, "fabric-unhealthy", ill, *fields, weak=not failed)


RULES = (
    device_faults,
    nvlink_degraded,
    fabric_unhealthy,
)
