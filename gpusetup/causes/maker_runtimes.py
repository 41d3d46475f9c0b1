"""Causes in the software of AMD and Intel that the message of a program states.

A program that prints such a message has reached the GPU, or failed before it looked for one. So the
kernel driver and its device nodes are not at fault.
"""

from __future__ import annotations

from gpusetup.causes.record import Cause
from gpusetup.evidence import proofs
from gpusetup.fixes import xpu
from gpusetup.messages.row import says

# `float64`, `double precision`, `FP64 data type`.
DOUBLE = r"(?:fp64|float64|doubles?|double[- ]precision)(?: \(double\))?(?: (?:data ?)?types?)?"
NOT_SUPPORTED = r"(?:(?:is |are )?not (?:natively )?supported|(?:is |are )?unsupported)"
A_DEVICE = r"(?:the |this |your |current |target |selected |sycl |xpu |gpu )+(?:device|platform|gpu|hardware|card)"
OTHERS_WITHOUT_IT = (
    r"\b(?:MPS|Metal|Apple|CUDA|NVIDIA|GeForce|OpenGL)\b|\b(?:if|whether|when) (?:the |this |your )"
)
"""Devices of other makers that refuse float64 too, and words of a condition."""

CAUSES = (
    Cause(
        "xpu-no-float64",
        certain_if=proofs.message_states_it,
        title="This Intel GPU does not compute float64, and the program uses it",
        means="torch reached the GPU, so its driver and torch's build work. Arc A cards and Iris "
        "Xe graphics have no float64 in hardware.",
        text="Use float32, or move the operation to the CPU",
        proven_by="SYCL or Intel's compiler refuses float64 (the aspect fp64) on the device",
        not_when="If torch does not find the device xpu at all, the cause is intel-gpu",
        # Source: SYCL 2020, "Device aspects" (fp64); torch-xpu-ops of torch 2.5; Intel's oneAPI
        # documentation and compute-runtime's FAQ on the emulation of double precision.
        stage="first-kernel",
        way=xpu.without_float64,
        beside_torch="Use the program's newest release or its Vulkan build. Or let Intel's driver "
        "emulate float64, which is slow: set OverrideDefaultFP64Settings=1 and "
        "IGC_EnableDPEmulation=1",
        explains=("intel-gpu", "no-nvidia-gpu"),
        says=(
            r"Required aspect fp64 is not supported",
            says(
                rf"\b{DOUBLE} {NOT_SUPPORTED} (?:on|by) {A_DEVICE}\b",
                "fp64",
                "float64",
                "double",
                unless=OTHERS_WITHOUT_IT,
            ),
            says(
                rf"\b{A_DEVICE} (?:does not|doesn't|has no|lacks) (?:natively |native )?(?:support(?:s|ing)? )?(?:for )?{DOUBLE}",
                "fp64",
                "float64",
                "double",
                unless=OTHERS_WITHOUT_IT,
            ),
        ),
        examples=(
            "terminate: Double type is not supported on this platform",
            "RuntimeError: The device does not support double precision",
        ),
        not_examples=(
            "whether the device does not support double precision",
            "Metal: this GPU does not support double precision",
        ),
    ),
)
