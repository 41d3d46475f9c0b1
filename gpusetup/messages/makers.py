"""Messages about GPUs of other makers: AMD's ROCm and HIP, Intel's Level Zero and SYCL, Apple's MPS.

Sources: torch's c10/hip, c10/xpu and aten/mps, rocminfo, HIP's and Level Zero's error names, SYCL's
device selection, Metal's assertions.
"""

from __future__ import annotations

from gpusetup.messages.row import row

AMD = (
    row(
        "no-hip-gpus",
        "/dev/kfd",
        r"(?:open|access) '?/dev/kfd'?(?: read-write)?\W{1,3}(?:Permission denied|Operation not permitted)",
        why="groups",
    ),
    row(
        "no-hip-gpus",
        "group",
        r"not (?:a )?member of \W?(?:render|video)\W? group",
        why="groups",
    ),
    row("no-hip-gpus", "hiperrornodevice", why="devices"),
    row("no-hip-gpus", "no rocm-capable device is detected", why="devices"),
    row(
        "no-hip-gpus",
        "initialize tensile host",
        r"rocBLAS error: Could not initialize Tensile host:.{0,20}?No devices found",
        why="devices",
    ),
    row("no-hip-gpus", "rock module is not loaded", why="driver"),
    row("no-hip-gpus", "amdhip64", r"amdhip64(?:_\d)?\.dll", why="driver"),
    row(
        "hip-kernel-missing",
        "hip error: invalid device function",
        r"HIP error: invalid device function(?:.{0,600}?\b(?P<gfx>gfx\d{3,4}[a-f]?)\b)?",
        by="what",
        what="kernel",
    ),
    row(
        "hip-kernel-missing",
        "tensilelibrary",
        r"Cannot read \S{1,200}TensileLibrary.{0,120}?(?P<gfx>gfx\d{3,4}[a-f]?)\b",
        by="what",
        what="kernel",
    ),
    row("hip-kernel-missing", "hiperrornobinaryforgpu", by="what", what="kernel"),
    row("hip-kernel-missing", "hiperrorinvaliddevicefunction", by="what", what="kernel"),
    row("hip-kernel-missing", "hsa_status_error_invalid_isa", by="what", what="kernel"),
)

ZLUDA = (
    row(
        "foreign-gpu",
        "gpu detected",
        r"msg=\"(?:Radeon GPU detected|ROCm unsupported integrated GPU detected)",
        vendor="amd",
    ),
    row(
        "foreign-gpu",
        "zluda",
        r"\[ZLUDA\]|\bzluda(?:\.exe|\.py| -- )|ZLUDA (?:load|support|version|\d\.\d)|(?:via|with|using|on) ZLUDA\b|ComfyUI-Zluda|--use-zluda|\.zluda\b|zluda_\w{2,12}\b",
        vendor="amd",
    ),
    row("foreign-gpu", "found version 2147483647", vendor="amd"),
)
"""CUDA's calls translated for AMD's GPUs; its driver answers with the largest number there is."""

INTEL = (
    row(
        "no-xpu",
        "xpu.is_available",
        r"torch\.xpu\.is_available\(\)(?: is|:|\)| ==| ->)? ?False",
        why="driver",
    ),
    row("no-xpu", "xpu device count is zero", why="driver"),
    row(
        "no-xpu",
        "ur_result_error",
        r"\bUR_RESULT_ERROR_(?:DEVICE_LOST|UNINITIALIZED|DEVICE_NOT_FOUND|INVALID_DEVICE|UNSUPPORTED_\w+|UNKNOWN)",
        why="driver",
    ),
    row("no-xpu", "pi_error_", r"\(PI_ERROR_\w{3,40}\)", why="driver"),
    row(
        "no-xpu",
        "intel-ext-pt-gpu",
        r"Error loading \W?\S{0,200}intel-ext-pt-gpu\.dll",
        why="driver",
    ),
    row(
        "no-xpu",
        "no device of requested type available",
        why="driver",
    ),
    row(
        "no-xpu",
        "ze_result_error",
        r"ZE_RESULT_ERROR_(?:UNINITIALIZED|DEVICE_LOST|UNSUPPORTED_FEATURE|DEPENDENCY_UNAVAILABLE|INSUFFICIENT_PERMISSIONS)",
        why="driver",
    ),
)

APPLE = (
    row(
        "mps-lacks",
        "mps",
        r"for the MPS device|(?<!aten::)(?:on|a|the) MPS (?:device|[Tt]ensor|framework|backend)\b|\bMPS(?: backend)?: (?:Unsupported|[A-Z]\w+ is|input)|RuntimeError: MPS\b(?! (?:server|client|control))|MPSNDArray|MPSGraph",
    ),
)
"""What torch's Metal backend says of itself; CUDA's MPS is a server."""

ROWS = (*AMD, *ZLUDA, *INTEL, *APPLE)
