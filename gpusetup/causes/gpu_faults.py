"""GPUs that are faulty, of another maker, or too old for a feature.

Sources, where a record names no other: NVIDIA, "Xid Errors"; nvidia-smi's manual page.
"""

from __future__ import annotations

from gpusetup.causes.record import Cause, CheckCommand
from gpusetup.evidence import checks, proofs
from gpusetup.evidence.context import shows_no_other_failure
from gpusetup.messages.fragments import BUS, CAPABILITY
from gpusetup.messages.row import says
from gpusetup.model.finding import Severity

FIRMWARE_STATUS = (
    r"NVRM: .{0,40}(?:rpcSendMessage|rpcRecvPoll|_issueRpc\w{0,30}|GspRm\w{2,20}|rpcRm\w{2,30}).{0,160}?"
    r"\bstatus[ =]0x0{0,6}"
)
"""A failed call to the GPU's firmware, up to the last digits of its status code."""

GPU = r"GPU (?P<gpu>\d{1,3})"

CAUSES = (
    Cause(
        "gpu-fell-off-bus",
        by_check=True,
        certain_if=proofs.message_states_it,
        title="{who} has fallen off the PCI bus",
        means="Possible reasons are power faults, heat, a loose card or PCIe power saving (ASPM).",
        text="Reboot, or better, power the machine off completely. If the fault comes back, check "
        "the power supply, cooling, seating and riser, and add `pcie_aspm.policy=performance` to "
        "the kernel's command line",
        explains=("driver-not-loaded",),
        commands=("sudo reboot",),
        asks=(checks.KERNEL_LOG,),
        says=(
            says(rf"{FIRMWARE_STATUS}0f\b", status="NV_ERR_GPU_IS_LOST", example="NVRM: GPU0 _issueRpcAndWait: rpcSendMessage failed with status 0x0000000f for fn 76!"),
            says(rf"(?:GPU ?(?:\d+: )?{BUS}: )?(?:\bthe )?GPU is lost|nvml_error_gpu_is_lost"),
            says(rf"Unable to determine the device handle for (?:GPU ?)(?:\d+: )?{BUS}: (?:Not Found|GPU is lost)", example="Unable to determine the device handle for GPU 0000:41:00.0: GPU is lost"),
            says(rf"Unable to determine the device handle for (?:GPU ?)(?:\d+: )?{BUS}: Unknown Error", reason="unknown error", example="Unable to determine the device handle for GPU0000:41:00.0: Unknown Error"),
        ),
    ),
    Cause(
        "gsp-timeout",
        by_check=True,
        title="The system processor (GSP) of {who} does not respond",
        means="The GPU's firmware or hardware stopped working.",
        text="Reboot. If the fault comes back, update the driver. With the proprietary kernel "
        "modules, you can also set `NVreg_EnableGpuFirmware=0` for the nvidia module to turn the "
        "GSP off",
        commands=("sudo reboot",),
        says=(says(rf"{FIRMWARE_STATUS}65\b", status="NV_ERR_TIMEOUT", example="NVRM: GPU0 rpcRecvPoll: failed with status 0x00000065 for fn 76!"),),
    ),
    Cause(
        "ecc-error",
        by_check=True,
        certain_if=proofs.message_states_it,
        title="Uncorrectable ECC memory errors on {who}",
        plain="The GPU has memory errors that ECC cannot correct",
        means="Part of the GPU's memory is bad. After a reset, the GPU no longer uses that part: "
        "Ampere and newer GPUs replace the row with a spare one, and older GPUs retire the page.",
        text="Reset the GPU or reboot. If the error comes back, if a row could not be remapped, or "
        "if 60 or more pages are retired, have the GPU replaced",
        # Source: NVIDIA, "Xid Errors", "GPU Memory Error Management", "Dynamic Page
        # Retirement".
        look=('nvidia-smi -q -d "ECC,ROW_REMAPPER,PAGE_RETIREMENT"',),
        needs_root=True,
        needs_reboot=True,
        says=(
            r"(?:uncorrectable (?:DRAM )?|double.bit )ECC error(?!s?\s{0,9}[:=] ?0\b)|cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE",
            says(r"\buncorrected (?:volatile |aggregate )?ECC errors?\b(?!s?\s{0,9}[:=] ?0\b)", unless=r"\bno (?:\w+ )?uncorrected|\buncorrected ECC errors?\s{0,9}[:=] ?(?:0|N/A)", example="uncorrected ECC error on device 4"),
        ),
    ),
    Cause(
        "hardware-fault",
        by_check=True,
        title="{who} reported a fault: {what}",
        means="Part of the GPU failed (for example a controller, a link or a power connector), or "
        "a CUDA kernel did not finish.",
        text="Save the driver's bug report. Then stop the programs that use the GPU and reset the "
        "GPU, or reboot. If the fault comes back, install another driver branch, remove any "
        "overclocking, and check cooling, power and seating. If that does not help, run NVIDIA's "
        "field diagnostic and have the GPU replaced",
        events=("hardware-fault", "sxid"),
        # A reset or a reboot clears what the report shows.
        commands=("sudo nvidia-bug-report.sh", "sudo reboot"),
        says=(
            says(rf"{FIRMWARE_STATUS}62\b", status="NV_ERR_RESET_REQUIRED", example="NVRM: GPU0 _issueRpcAndWait: rpcSendMessage failed with status 0x00000062 for fn 76!"),
            says(r"uncorrectable nvlink|cuda_error_nvlink_uncorrectable", what="nvlink"),
            "gpu requires reset",
            says(r"\|\s?ERR!\s+\S{1,6}\s+\S{1,8}\s+ERR!", what="nvidia-smi cannot read it (ERR!)", example="| ERR!  ERR! ERR!    ERR! / ERR! |      1MiB / 24564MiB |"),
            says(rf"{GPU}: FAULTY", what="test", example="Tested 2 GPUs:\n GPU 0: OK\n GPU 1: FAULTY"),
            says(r"proc'd: \d{1,12}.{0,60}?errors: (?P<errors>[1-9]\d*) {1,3}\(WARNING!\)", what="test", example="10.0%  proc'd: 5122 (13012 Gflop/s)   errors: 382711  (WARNING!)  temps: 71 C"),
            says(r"(?:(?:Diagnostic|Memory|Memtest|Targeted Stress|Targeted Power|SM Stress|PCIe|Pulse Test|NVBandwidth|Hardware) ?\| Fail)\b(?! - (?:All|)? ?\| (?:Error|Warning) ?\| .{0,80}(?:fabric|permission|root))", what="test", example="| Memory            | Fail - GPU: 3"),
        ),
        formerly=("gpu-hang", "nvlink-degraded", "fabric-unhealthy"),
    ),
    Cause(
        "power-thermal-throttle",
        severity=Severity.WARNING,
        title="{who}: throttled because of heat or power",
        plain="The GPU is throttled because of heat or power",
        text="Check cooling, dust and power cables. On a laptop, use its own power adapter (not "
        "USB-C) and the performance mode. A GPU at its power limit (sw_power_cap) works as "
        "designed. If the card and the power supply allow more, raise the limit with `sudo "
        "nvidia-smi -pl WATTS`",
        look=('nvidia-smi -q -d "PERFORMANCE,TEMPERATURE,POWER"',),
    ),
    Cause(
        "pcie-degraded",
        check=CheckCommand("nvidia-smi --query-gpu=pcie.link.width.current,pcie.link.width.max --format=csv", "pcie.link.width.current, pcie.link.width.max\n1, 16"),
        severity=Severity.WARNING,
        title="{who} has a slow PCIe link",
        means="A few corrected PCIe errors are harmless, but many of them slow the link down.",
        text="Reseat the card in a slot with all lanes, without a riser, and check the slot's "
        "setting in the firmware. If the kernel log shows PCIe errors, set the slot one PCIe "
        "generation lower. If these errors fill the log, the kernel option "
        "`pcie_aspm.policy=performance` often helps",
        events=("pcie-slow", "pcie-errors"),
        where=(lambda context: shows_no_other_failure(context, "pcie-slow", "pcie-errors"),),
        says=(says(r"Width x(?P<width_max>16)\b.{0,150}?LnkSta:\s{0,4}Speed [\d.]+GT/s(?: \(\w+\))?, Width x(?P<width>\d{1,2}) \(downgraded\)", example="41:00.0 3D controller: NVIDIA Corporation GA100\n\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported\n\tLnkSta:\tSpeed 8GT/s (downgraded), Width x1 (downgraded)"),),
    ),
    Cause(
        "gpu-memory-taken",
        severity=Severity.WARNING,
        title="Other programs already use most of the memory of {who}",
        means="If nvidia-smi shows used memory but no process, a leftover process may hold it.",
        text="Stop the process that uses the memory",
        look=("nvidia-smi",),
    ),
    Cause(
        "bf16-unsupported",
        certain_if=proofs.capability_is_read,
        check=CheckCommand("nvidia-smi --query-gpu=name,compute_cap --format=csv", "name, compute_cap\nTesla T4, 7.5"),
        title="{gpus} does not support bfloat16, which needs compute capability 8.0",
        text="Use float16 instead: pass `--dtype half` to your server (for example vLLM), or set "
        "`fp16=True` in your training arguments",
        # Source: CUDA C++ Programming Guide, compute capabilities.
        says=(
            says(rf"Bfloat16 is only supported on GPUs with compute capability of at least 8\.0\. Your (?P<gpu>.{{3,60}}?) GPU has compute capability {CAPABILITY}", example="ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your NVIDIA GeForce RTX 2080 Ti GPU has compute capability 7.5. You can use float16 instead"),
            r"setup doesn't support bf16/gpu|bf16 mixed precision requires|bf16 is only supported on A100\+ GPUs",
            says(r"(?:CUDA Device|GPU|device|setup|machine) (?:does not|doesn't|do not) support (?:torch\.)?bfloat16", example="RuntimeError: Current CUDA Device does not support bfloat16. Please switch dtype to float16."),
            says(r"bf16 requested, but AMP is not supported|Type bf16 is not supported|bf16 is not supported (?:on|by) (?:this|your)|Feature '[\w .]{0,20}\.?bf16\S{0,6}' requires \.target sm_80", "bf16"),
        ),
    ),
    Cause(
        "gpu-too-old-for-triton",
        certain_if=proofs.message_states_it,
        title="{gpus} is too old for torch.compile: Triton needs compute capability 7.0 or higher",
        text='Run your program without compilation: remove torch.compile, or use backend="eager"',
        commands=("export TORCHDYNAMO_DISABLE=1",),
        says=(
            rf"Found (?P<gpu>[^{{}}]{{3,60}}?) which is too old to be supported by the triton.{{0,200}}?device is of CUDA capability {CAPABILITY}",
            "gputoooldfortriton",
        ),
    ),
    Cause(
        "jetson-wrong-wheel",
        title="The torch on this Jetson was built for servers",
        means="With a CUDA version older than 13.2, a Jetson needs the wheels that NVIDIA "
        "publishes for its JetPack.",
        text="Install NVIDIA's wheel for this JetPack",
        # Source: NVIDIA, "Installing PyTorch for Jetson Platform".
        explains=(
            "torch-cpu-build",
            "arch-too-old-for-wheel",
            "arch-too-new-for-wheel",
            "no-kernel-image",
        ),
    ),
    Cause(
        "no-nvidia-gpu",
        by_check=True,
        check=CheckCommand("lspci | grep -iE 'vga|3d|display'", "00:02.0 VGA compatible controller: Intel Corporation UHD Graphics 630 (Desktop)"),
        title="This machine has no NVIDIA GPU",
        text="Use torch's CPU build here, or use a machine with an NVIDIA GPU",
        # Source: PCI ids: vendor 10de.
        lacks="gpu",
        explains=("container-toolkit-missing",),
        asks=(checks.PCI_GPUS,),
        says=(
            says(r"(?<!NVRM: )No NVIDIA (?:GPU|graphics|VGA|device)s?[\w ]{0,20}(?:detected|found|available|present)(?! by library|\?)", example="setup: No NVIDIA GPU detected"),
        ),
    ),
)  # fmt: skip
