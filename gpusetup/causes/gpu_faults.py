"""GPUs at fault: lost, hanging, with memory errors."""

from __future__ import annotations

from gpusetup.causes import alike
from gpusetup.causes.record import Cause, Message
from gpusetup.evidence.context import says_nothing_else
from gpusetup.messages.fragments import BUS
from gpusetup.messages.row import Row, says
from gpusetup.model.finding import Severity

BUG_REPORT = ("sudo nvidia-bug-report.sh",)


def _status(number: str, name: str) -> Row:
    """The last digits of a status with which a call to the GPU's firmware failed."""
    pattern = rf"NVRM: .{{0,40}}(?:rpcSendMessage|rpcRecvPoll|_issueRpc\w{{0,30}}|GspRm\w{{2,20}}|rpcRm\w{{2,30}}).{{0,160}}?\bstatus[ =]0x0{{0,6}}{number}\b"
    return says(pattern, status=name)


ECC_OF_A_GPU = r"(?:\bGPUs?\b|\bcards?\b|nvidia|\b[ABHVLT]\d{1,3}\b|VRAM|显存)"

NO_ECC_FAILURE = (
    r"(?<!un)correct(?:able|ed)\b|single[- ]bit|\b(?:no|without|zero|0|never|disabl\w+|enabl\w+|turn\w*|support\w*) (?:\S{1,16} ){0,3}?ECC"
    r"|ECC(?: errors?| mode)?(?: is| are| was|:)? ?(?:off\b|disabled|enabled|0\b|none)|ECC is on\b|\b(?:if|when|unless|in case|may|might|could)\b[^.\n]{0,40}ECC|没有"
)

GPU = r"GPU (?P<gpu>\d{1,3})"


CAUSES = (
    Cause(
        "gpu-fell-off-bus",
        title="{who} {have} fallen off the PCI bus",
        plain="The GPU no longer answers on the bus",
        means="Power, heat, a loose card or power saving of the link can cut it off.",
        text="Reboot (a full power-off is better); if it comes back: power cables and supply, "
        "heat, seating or riser, `pcie_aspm=off` on the kernel command line",
        proven_by="The kernel logs Xid 79, or the driver says `GPU is lost`",
        # Source: NVIDIA, "Xid Errors".
        explains=(
            "driver-not-loaded",
            "pcie-degraded",
            "nvlink-degraded",
            "fabric-unhealthy",
        ),
        by_check=True,
        commands=("sudo reboot",),
        alike={
            alike.KERNEL_LOG: (
                "hardware-fault",
                "gpu-does-not-answer",
            )
        },
        says=(
            _status("0f", "NV_ERR_GPU_IS_LOST"),
            rf"(?:GPU ?(?:\d+: )?{BUS}: )?(?:\bthe )?GPU is lost",
            "nvml_error_gpu_is_lost",
            rf"Unable to determine the device handle for (?:GPU ?)(?:\d+: )?{BUS}: (?:Not Found|GPU is lost)",
            says(
                r"\b(?:crash\w*|launch failure|fr(?:eez|oz)\w+|failure state)\b.{0,300}?\b(?:driver|nvidia-smi|system) (?:can|could) no longer (?:access|see|find|reach|detect|talk to|communicate with) (?:the |my )?GPUs?\b",
                said="unknown error",
                unless=r"\b(?:updat|upgrad|install|remov)(?:e|ed|ing)\b",
            ),
            says(
                rf"Unable to determine the device handle for (?:GPU ?)(?:\d+: )?{BUS}: Unknown Error",
                said="unknown error",
            ),
        ),
        examples=(
            "my GPU has fallen off of the bus",
            "Unable to determine the device handle for GPU 0000:41:00.0: GPU is lost",
            "Unable to determine the device handle for GPU0000:41:00.0: Unknown Error",
            "NVRM: GPU0 _issueRpcAndWait: rpcSendMessage failed with status 0x0000000f for fn 76!",
            "the GPU enters a failure state, after which the driver can no longer access the GPU",
        ),
        not_examples=(
            "Unable to determine the device handle for gpu 0000:02:00.0: Insufficient Size",
            "NVRM: GPU0 _issueRpcAndWait: rpcSendMessage failed with status 0x00000000",
            "after I updated it crashes, and nvidia-smi can no longer see the GPU",
        ),
    ),
    Cause(
        "gsp-timeout",
        title="The system processor (GSP) of {who} does not answer",
        plain="The GPU's system processor does not answer",
        means="The GPU's firmware or its hardware stopped.",
        text="Reboot; if it comes back, update the driver. With NVIDIA's proprietary "
        "kernel modules you can also switch the GSP off: set `NVreg_EnableGpuFirmware=0` for the "
        "module nvidia",
        proven_by="The kernel logs Xid 119 or 120",
        # Source: NVIDIA, "Xid Errors".
        explains=("driver-slow",),
        by_check=True,
        commands=("sudo reboot",),
        says=(_status("65", "NV_ERR_TIMEOUT"),),
        examples=("NVRM: GPU0 rpcRecvPoll: failed with status 0x00000065 for fn 76!",),
        not_examples=("NVRM: GspRmAlloc failed: status=0x00000064",),
    ),
    Cause(
        "ecc-error",
        title="{who}: memory errors that ECC cannot correct",
        plain="Memory errors that ECC cannot correct",
        means="A memory row is bad; a reset remaps it as long as spare rows are left.",
        text="Reset the GPU or reboot, so that bad rows are remapped; a GPU whose remapping failed "
        "must be replaced",
        proven_by="The GPU counts uncorrected errors, a remapping failed or is pending, 60 pages are retired, SRAM errors passed the threshold, CUDA answers code 214, or the kernel logs Xid 48, 63, 64, 94, 95, 140, 156, 157, 160, 161, 171 or 172",
        not_when="ECC corrected the errors: they are harmless",
        # Source: NVIDIA, "Xid Errors", "GPU Memory Error Management", "Dynamic Page
        # Retirement".
        by_check=True,
        look=('nvidia-smi -q -d "ECC,ROW_REMAPPER,PAGE_RETIREMENT"',),
        needs_root=True,
        needs_reboot=True,
        says=(
            r"(?:uncorrectable (?:DRAM )?|double.bit )ECC error(?!s?\s{0,9}[:=] ?0\b)|cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE",
            says(
                rf"{ECC_OF_A_GPU}.{{0,120}}?\bECC (?:memory )?(?:errors?|faults?|failures?)\b|\bECC (?:memory )?(?:errors?|faults?|failures?)\b.{{0,120}}?{ECC_OF_A_GPU}|ECC ?(?:错误|报错|异常)",
                "ecc error",
                "ecc fault",
                "ecc failure",
                "ecc memory ",
                "错误",
                "报错",
                "异常",
                unless=NO_ECC_FAILURE,
            ),
            says(
                r"\buncorrected (?:volatile |aggregate )?ECC errors?\b(?!s?\s{0,9}[:=] ?0\b)",
                unless=r"\bno (?:\w+ )?uncorrected|\buncorrected ECC errors?\s{0,9}[:=] ?(?:0|N/A)",
            ),
            says(
                r"\brow[- ]remap(?:ping|per)?s?\b[^.\n]{0,30}?\b(?:failed|failure occurred: ?yes|pending: ?yes|is pending)",
                unless=r"\bif\b[^.\n]{0,40}row[- ]remap",
            ),
        ),
        examples=(
            "GPU 3 shows an ECC error",
            "uncorrected ECC error on device 4",
            "row remapping failed on GPU 1",
        ),
        not_examples=(
            "GPU 没有错误，程序正常",
            "一切正常，没有异常",
        ),
    ),
    Cause(
        "gpu-hang",
        title="{who} hung ({what})",
        plain="The GPU hung",
        means="A kernel does not end, the driver has a fault, or the GPU is not stable (overclocking, power, heat).",
        text="End the program and reset the GPU, or reboot (a GPU that drives a display cannot be "
        "reset); update the driver. If other programs hang it too: remove overclocking, check "
        "power and heat, and have the GPU examined",
        proven_by="The kernel logs Xid 8, 38, 44, 46 or 109",
        not_when="gpu-fell-off-bus, gsp-timeout, hardware-fault and ecc-error come first: then that is the cause",
        # Source: NVIDIA, "Xid Errors", catalog.
        kind_of="hardware-fault",
        look=BUG_REPORT,
        needs_root=True,
        needs_reboot=True,
    ),
    Cause(
        "hardware-fault",
        title="{who} reported a fault: {what}",
        plain="The GPU reported a hardware fault",
        means="A micro-controller, a link or a power connector of the GPU failed.",
        text="Reset the GPU or reboot: the driver or the GPU's firmware may have stopped. If it "
        "comes back, install another branch of the driver; if it comes back with that too, "
        "check heat and power and run NVIDIA's field diagnostic",
        proven_by="The driver recommends a reset or a reboot (NVML, Xid 154), or the kernel logs one of the Xids 54, 56 to 59, 61, 62, 74, 80, 81, 92, 110, 122, 123, 136, 143 to 150, 154, 155, 158, 167 to 169, or an SXid that is fatal",
        not_when="Xid 13, 31, 43 and 45 are a program's own fault; Xid 8 and 109 are gpu-hang",
        # Source: NVIDIA, "Xid Errors".
        explains=(
            "compute-mode-exclusive",
            "nvlink-degraded",
            "fabric-unhealthy",
        ),
        events=("hardware-fault", "sxid"),
        by_check=True,
        commands=("sudo reboot",),
        look=BUG_REPORT,
        # Memory, links, power, display; the others are the driver's or the firmware's as well.
        cases=(
            Message(
                having={"number": "^(?:54|56|57|58|74|80|81|92|136|14[3-9]|150|167)$"},
                title="{who} reported a hardware fault: {what}",
                text="Reboot; if it comes back, run NVIDIA's field diagnostic and have the GPU "
                "replaced",
            ),
        ),
        says=(
            _status("62", "NV_ERR_RESET_REQUIRED"),
            says("uncorrectable nvlink", what="nvlink"),
            says("cuda_error_nvlink_uncorrectable", what="nvlink"),
            "gpu requires reset",
            says(r"\|\s?ERR!\s+\S{1,6}\s+\S{1,8}\s+ERR!", what="nvidia-smi cannot read it (ERR!)"),
            says(rf"{GPU}: FAULTY", what="test"),
            says(
                r"proc'd: \d{1,12}.{0,60}?errors: (?P<errors>[1-9]\d*) {1,3}\(WARNING!\)",
                what="test",
            ),
            says(
                r"(?:(?:Diagnostic|Memory|Memtest|Targeted Stress|Targeted Power|SM Stress|PCIe|Pulse Test|NVBandwidth|Hardware) ?\| Fail)\b(?! - (?:All|)? ?\| (?:Error|Warning) ?\| .{0,80}(?:fabric|permission|root))",
                what="test",
            ),
            says(
                r"There was a miscompare",
                what="test",
            ),
        ),
        examples=(
            "NVRM: GPU0 _issueRpcAndWait: rpcSendMessage failed with status 0x00000062 for fn 76!",
            "| ERR!  ERR! ERR!    ERR! / ERR! |      1MiB / 24564MiB |",
            "Tested 2 GPUs:\n GPU 0: OK\n GPU 1: FAULTY",
            "10.0%  proc'd: 5122 (13012 Gflop/s)   errors: 382711  (WARNING!)  temps: 71 C",
            "| Memory            | Fail - GPU: 3",
        ),
        not_examples=(
            "NVRM: GspRmControl failed: status=0x00000061",
            "the GPU: faulty or not",
            "proc'd: 99 (1 Gflop/s)   errors: 0  temps: 71 C (WARNING!)",
        ),
    ),
    Cause(
        "xid-of-a-program",
        severity=Severity.NOTE,
        title="The kernel log holds Xids that a program's own fault causes: {what}",
        plain="The kernel log holds Xids that a program's own fault causes",
        means="A bad address, an illegal instruction or a kill causes them; the GPU still works.",
        text="Start the program again; if it comes back, find the kernel that fails: with this "
        "setting the traceback names it (`compute-sanitizer` too, slowly)",
        proven_by="The kernel logs Xid 11, 13, 31, 32, 43, 45, 68, 69 or one of the copy and video engines",
        not_when="hardware-fault: the GPU is the reason",
        # Source: NVIDIA, "Xid Errors".
        kind_of="cuda-program-error",
        failure=6,
        commands=("export CUDA_LAUNCH_BLOCKING=1",),
    ),
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
        # Source: nvidia-smi's manual page.
        by_check=True,
        look=('nvidia-smi -q -d "PERFORMANCE,TEMPERATURE,POWER"',),
        says=(
            r"(?P<reason>SW Power Cap|HW Slowdown|HW Thermal Slowdown|SW Thermal Slowdown|HW Power Brake Slowdown) ?: Active",
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
        # Source: nvidia-smi's manual page.
        events=("pcie-slow", "pcie-errors"),
        where=(lambda context: says_nothing_else(context, "pcie-slow", "pcie-errors"),),
        look=(
            'nvidia-smi "--query-gpu=pcie.link.gen.current,pcie.link.width.current" --format=csv',
        ),
        says=(
            r"Width x(?P<width_max>16)\b.{0,150}?LnkSta:\s{0,4}Speed [\d.]+GT/s(?: \(\w+\))?, Width x(?P<width>\d{1,2}) \(downgraded\)",
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
        # Source: nvidia-smi's manual page.
        look=("nvidia-smi",),
    ),
    Cause(
        "nvlink-degraded",
        title="{who}: NVLinks are inactive",
        plain="NVLinks are inactive",
        means="Traffic between these GPUs is slower, or goes over PCIe; NCCL may hang",
        text="Reboot, so that the links are retrained (with NVSwitch after Fabric Manager has "
        "started); if they stay inactive: the bridge between the cards, their "
        "seating, the board",
        proven_by="Fewer links are active than on a GPU of the same kind",
        not_when="A bridge between two cards uses only a part of their links",
        # Source: nvidia-smi's manual page (nvlink); NVML API reference, NvLink methods.
        commands=("sudo reboot",),
        look=("nvidia-smi nvlink -s", "nvidia-smi nvlink -e"),
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
        # Source: NVML API reference, nvmlGpuFabricInfoV; NVIDIA, "Fabric Manager User Guide".
        kind_of="system-not-ready-fabric-manager",
        explains=(
            "nvlink-degraded",
            "nccl-error",
            "nccl-timeout",
        ),
        commands=("sudo systemctl restart nvidia-fabricmanager",),
        look=(
            "nvidia-smi -q | grep -A 12 Fabric",
            "sudo journalctl -u nvidia-fabricmanager -b",
        ),
    ),
)
