"""Messages of what sees, draws, encodes and serves beside torch: NVENC, OptiX, TensorRT, Paddle, dlib, onnxruntime, vLLM's port.

Sources, as of November 2026: FFmpeg's nvenc.c, Blender's Cycles, TensorRT's error texts, Paddle's
place.cc, dlib's Python module, onnxruntime's bfc_arena.cc, asyncio, kubelet's node status.
"""

from __future__ import annotations

from gpusetup.messages.row import row

ROWS = (
    row(
        "driver-too-old",
        "nvenc api version",
        r"Driver does not support the required nvenc API version",
    ),
    row(
        "driver-too-old",
        "nvidia driver for nvenc",
        r"minimum required Nvidia driver for nvenc is (?P<needed>\d{3}(?:\.\d{1,3})?)",
    ),
    row(
        "out-of-memory",
        "out of memory in cu",
        r"Out of memory in cu(?:Mem|Ctx|Module|Launch|Graph|Array|Tex|Stream)\w{0,40}",
    ),
    row(
        "out-of-memory",
        "for requested buffer of size",
        r"Failed to allocate memory for requested buffer of size \d{3,15}",
        unless=r"\['CPUExecutionProvider'\]|ortvalue.{0,20}cpu",
    ),
    row(
        "program-without-gpu-support",
        "installed cpu version paddlepaddle",
        program="PaddlePaddle",
    ),
    row(
        "program-without-gpu-support",
        "dlib_use_cuda",
        r"DLIB_USE_CUDA\b\W{0,12}(?:is |== ?|returns )?False\b",
        program="dlib",
    ),
    row(
        "program-release-too-old",
        "engine plan file is not compatible",
        r"engine plan file is not compatible with this version of TensorRT",
        program="TensorRT",
        beside="TensorRT that built the engine: build it anew with the one that runs it",
    ),
    row(
        "port-in-use",
        "address already in use",
        r"OSError: \[Errno (?:98|48)\] (?:error while attempting to bind on address \(.{1,40}?(?P<port>\d{2,5})\): )?Address already in use",
    ),
    row(
        "k8s-gpu-not-allocatable",
        "nvidia.com/gpu",
        r"\b(?:does not|doesn't|do not|not|no longer|never) (?:advertis|list|expos|report|regist|show)\w{0,5} (?:any |the )?(?:resource )?`?nvidia\.com/gpu\b",
        unless=r"\b(?:if|when|whether|until)\b",
    ),
)
