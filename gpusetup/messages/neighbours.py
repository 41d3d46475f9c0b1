"""Messages of what sees, draws, encodes and serves beside torch: NVENC, OptiX, TensorRT, Paddle, dlib, onnxruntime, vLLM's port.

Sources, as of November 2026: FFmpeg's nvenc.c, Blender's Cycles, TensorRT's error texts, Paddle's
place.cc, dlib's Python module, onnxruntime's bfc_arena.cc, asyncio, kubelet's node status.
"""

from __future__ import annotations

from gpusetup.messages.row import row

IF_ONLY = r"\b(?:if|when|in case|whether|make sure|until|unless)\b"
BESIDE = r"llama[-_]cpp[-_]python|onnxruntime|tensorflow|jaxlib|jax|ctranslate2|lightgbm|xgboost"

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
    row(
        "container-no-gpu",
        "--gpu",
        r"\b(?:forgot|forgotten|omitted|missing|left out)(?: to \w+)?(?: the)? `?--gpus?\b",
        unless=IF_ONLY,
    ),
    row(
        "container-no-gpu",
        "nvidia-smi",
        r"nvidia-smi\b[^.\n]{0,20} (?:works?|runs?|is)\b[^.\n]{0,20}?\bon the host\b.{0,50}?\b(?:in(?:side)?|within) (?:the |a |my )?(?:docker )?container\b.{0,60}?(?:not found|no such file)",
        unless=IF_ONLY,
    ),
    row(
        "container-toolkit-missing",
        "could not select device driver",
        r"could not select device driver(?=$|[.,;)]|(?: \W{1,3}(?!cdi)\w{0,20}\W{0,3})?$)",
        runtime="nvidia",
    ),
    row(
        "driver-too-old",
        "driver is too old ",
        r"\b(?:my|your|the|NVIDIA|graphics|GPU) (?:\w+ )?driver is too old (?:for|to)\b",
        unless=IF_ONLY,
    ),
    row(
        "out-of-memory",
        "would exceed allowed memory",
        r"Allocation on device \d? ?would exceed allowed memory",
    ),
    row(
        "cuda-lib-missing",
        "could not load library",
        r"Could not load library (?P<library>libcudnn_\w{2,12}_(?:infer|train)\.so\.8)(?!\. Error)",
    ),
    row(
        "program-without-gpu-support",
        "blas = 0",
        r"llama.{0,80}?\b(?:shows?|says?|still|see|get|prints?|with) `?BLAS = 0\b",
        program="llama.cpp",
        unless=r"Metal|OpenBLAS only",
    ),
    row(
        "program-without-gpu-support",
        " cpu",
        rf"(?:{BESIDE})\b[^.\n]{{0,40}}?\b(?:installs?|installed|gives?|gave|get|got|brings?|brought) (?:me )?(?:only |just )?(?:the |a )?CPU(?:[- ]only)? (?:version|build|wheel)\b",
        unless=rf"{IF_ONLY}|\b(?:want|need|no) ",
    ),
    row(
        "program-without-gpu-support",
        "is_built_with_cuda",
        r"is_built_with_cuda\(\)(?: is| ==| returns|:)? False\b",
        program="TensorFlow",
    ),
    row(
        "hybrid-gpu-off",
        "supergfxctl",
        r"supergfxctl\b[^.\n]{0,12} (?:is|was|says?|shows?|set) (?:in |to )?(?P<mode>Integrated)\b",
        tool="supergfxctl",
        unless=IF_ONLY,
    ),
)
