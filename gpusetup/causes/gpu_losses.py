"""GPUs that lose speed or memory, and the links between them."""

from __future__ import annotations

from gpusetup.causes.record import Cause
from gpusetup.evidence.context import says_nothing_else
from gpusetup.messages.row import says
from gpusetup.model.finding import Severity

CAUSES = (
    Cause(
        "power-thermal-throttle",
        severity=Severity.WARNING,
        title="{who}: throttled by heat or power",
        plain="Heat or power throttles the GPU",
        means="The hardware lowers its clocks to protect itself.",
        text="Check cooling, dust and power cables; on a laptop use its own mains adapter (not "
        "USB-C) and the performance mode. At its power limit (sw_power_cap) a GPU works as "
        "designed: raise the limit if card and power supply allow it, with `sudo nvidia-smi -pl` "
        "and the watts",
        proven_by="The GPU names a slowdown by heat or by hardware, or has 90 °C or more",
        not_when="sw_power_cap under load is normal",
        source="nvidia-smi's manual page",
        by_check=True,
        look=('nvidia-smi -q -d "PERFORMANCE,TEMPERATURE,POWER"',),
        see="show heat, power and the throttle reasons",
        says=(
            says(
                ": active",
                r"(?P<reason>SW Power Cap|HW Slowdown|HW Thermal Slowdown|SW Thermal Slowdown|HW Power Brake Slowdown) ?: Active",
            ),
        ),
        examples=("Clocks Throttle Reasons\n        SW Power Cap : Active",),
    ),
    Cause(
        "pcie-degraded",
        severity=Severity.WARNING,
        title="{who} {have} a slow PCIe link",
        plain="The GPU's PCIe link is slow, or reports errors",
        means="An idle GPU lowers its link by itself: that is normal. A few corrected errors "
        "are harmless; a log full of them means a slower link, and uncorrected ones a GPU that may "
        "fall off the bus.",
        text="Reseat the card, without a riser, in the slot with all lanes; check the slot's "
        "setting in the firmware (against errors one generation lower; against the flood of lines "
        "alone the kernel's option `pcie_aspm=off` often helps)",
        proven_by="The link has half of its lanes or fewer (and fewer than 8)",
        not_when="The generation is lower at rest: that saves power",
        source="nvidia-smi's manual page",
        events=("pcie-slow", "pcie-errors"),
        where=(lambda context: says_nothing_else(context, "pcie-slow", "pcie-errors"),),
        look=(
            'nvidia-smi "--query-gpu=pcie.link.gen.current,pcie.link.width.current" --format=csv',
        ),
        see="show the link's state",
        says=(
            says(
                "lnksta:",
                r"Width x(?P<width_max>16)\b.{0,150}?LnkSta:\s{0,4}Speed [\d.]+GT/s(?: \(\w+\))?, Width x(?P<width>\d{1,2}) \(downgraded\)",
            ),
        ),
        examples=(
            "41:00.0 3D controller: NVIDIA Corporation GA100\n\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported\n\tLnkSta:\tSpeed 8GT/s (downgraded), Width x1 (downgraded)",
        ),
    ),
    Cause(
        "gpu-memory-taken",
        severity=Severity.WARNING,
        title="Most of the memory of {who} is taken already",
        plain="Another process holds most of the GPU's memory",
        means="What is left may be too little.",
        text="End the process that holds it",
        proven_by="More than 85 % of the memory is used",
        source="nvidia-smi's manual page",
        by_check=True,
        look=("nvidia-smi",),
        see="find the process",
    ),
    Cause(
        "nvlink-degraded",
        title="{who}: NVLinks are inactive, or had many errors since the driver's start",
        plain="NVLinks are inactive, or were retrained",
        means="Traffic between these GPUs is slower, or goes over PCIe; NCCL may hang. "
        "A few errors are corrected and harmless; counts that grow mean a bad link.",
        text="Reboot, so that the links are retrained (with NVSwitch after Fabric Manager has "
        "started); if they stay inactive or errors grow: the bridge between the cards, their "
        "seating, the board",
        proven_by="Fewer links are active than on a GPU of the same kind, or links had errors and recoveries",
        not_when="A bridge between two cards uses only a part of their links",
        source="nvidia-smi's manual page (nvlink); NVML API reference, NvLink methods",
        by_check=True,
        commands=("sudo reboot",),
        look=("nvidia-smi nvlink -s", "nvidia-smi nvlink -e"),
        see="show the links",
        needs_root=True,
        needs_reboot=True,
    ),
    Cause(
        "fabric-unhealthy",
        title="The NVSwitch fabric is not healthy at {who}",
        plain="The NVSwitch fabric works, but with faults",
        means="A route, its bandwidth or its configuration has a fault.",
        text="Read Fabric Manager's log and restart it with no program on the GPUs; if the "
        "fault comes back, reset all GPUs of the board or reboot; then have the board examined",
        proven_by="NVML reports a fault of the fabric, or the registration ended with an error",
        not_when="system-not-ready-fabric-manager: the fabric is not set up at all",
        source='NVML API reference, nvmlGpuFabricInfoV; NVIDIA, "Fabric Manager User Guide"',
        kind_of="system-not-ready-fabric-manager",
        explains=(
            "nvlink-degraded",
            "nccl-error",
            "nccl-timeout",
        ),
        by_check=True,
        commands=("sudo systemctl restart nvidia-fabricmanager",),
        look=(
            "nvidia-smi -q | grep -A 12 Fabric",
            "sudo journalctl -u nvidia-fabricmanager -b",
        ),
        see="show the fabric's state and the log first",
        needs_root=True,
    ),
)
