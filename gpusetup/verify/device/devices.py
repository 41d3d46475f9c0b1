"""Which devices torch sees, what they are, and whether the build carries kernels for them."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ..judging.expect import read_capability
from ..values import FAILED, PASSED, Outcome, WrongQuestion
from .identity import gpu_uuid
from .importing import cuda_build, first_line
from .known_gpus import stands_apart

ASK_DOCTOR = "`gpusetup doctor` names the cause"
NOT_DETECTED = "GPU not detected!"
HIDES_ALL = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES that hide every GPU."""
GIB = 2**30


def gpus_detected(wanted: str) -> Outcome:
    """torch sees a CUDA device; `wanted` is what `--device` asks for."""
    import torch

    if not cuda_build(torch) or not torch.cuda.is_available():
        why, hint = why_none(torch, os.environ)
        return Outcome(FAILED, f"{NOT_DETECTED} {why}", hint=hint, facts={"available": False})
    # Before that the count is NVML's, which also holds GPUs that CUDA cannot use (MIG).
    try:
        torch.cuda.init()
    except Exception as problem:  # torch raises RuntimeError, AssertionError or its own kinds
        told = f"{NOT_DETECTED} {first_line(problem)}"
        return Outcome(FAILED, told, hint=ASK_DOCTOR, facts={"available": False})
    count = int(torch.cuda.device_count())
    if count < 1:
        told = f"{NOT_DETECTED} CUDA answers, and has no device"
        return Outcome(FAILED, told, hint=ASK_DOCTOR, facts={"available": False})
    seen = ["cuda:%d" % index for index in range(count)]
    facts = {"available": True, "gpus": count, "seen": seen}
    return Outcome(PASSED, f"torch sees {count} GPU{'s' if count > 1 else ''}", facts=facts)


def why_none(torch: Any, environ: Mapping[str, str]) -> Tuple[str, str]:
    """Why torch sees no GPU, and the next step."""
    if not cuda_build(torch):
        return f"torch {torch.__version__} is a CPU build", (
            "`gpusetup doctor` tells whether there is an NVIDIA GPU, and `gpusetup install` puts"
            " the build that fits; `--device cpu` proves this one"
        )
    hidden = environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and (hidden.strip() in HIDES_ALL or _driver_is_well(torch)):
        return f"CUDA_VISIBLE_DEVICES={hidden!r} hides every GPU", "`unset CUDA_VISIBLE_DEVICES`"
    return _what_cuda_says(torch), "`gpusetup doctor` names the cause"


def _driver_is_well(torch: Any) -> bool:
    """Whether the driver works and lists no device, as with a wrong CUDA_VISIBLE_DEVICES."""
    return "No CUDA GPUs are available" in _what_cuda_says(torch)


def _what_cuda_says(torch: Any) -> str:
    try:
        torch.cuda.init()
    except Exception as problem:  # torch raises RuntimeError, AssertionError or its own kinds
        return first_line(problem)
    return "the CUDA driver answers, and names no device"


def chosen(wanted: str, seen: Tuple[str, ...]) -> Tuple[str, ...]:
    """The devices to prove.

    >>> chosen("auto", ("cuda:0", "cuda:1")), chosen("cuda:1", ("cuda:0", "cuda:1"))
    (('cuda:0', 'cuda:1'), ('cuda:1',))
    >>> chosen("none", ())
    ()
    """
    if wanted in ("auto", "cuda"):
        return seen
    return () if wanted == "none" else (wanted,)


def properties(device: str) -> Outcome:
    """The check reads the device's properties, writes a tensor to it and reads that back."""
    import torch

    row = cuda_row(torch, device) if device.startswith("cuda") else cpu_row(torch)
    sent = torch.arange(4096, dtype=torch.int32)
    back = sent.to(device).clone().to("cpu")
    memory = row["memory_total_bytes"]
    detail = ", ".join(_described(row))
    facts = {"device": row}
    if not bool((sent == back).all()):
        return Outcome(
            FAILED,
            f"{row['name']}: 16 KiB copied to the device came back changed",
            hint="the memory or the bus is faulty: look for Xid lines in `dmesg`",
            facts=facts,
        )
    if memory is not None and memory <= 0:
        return Outcome(FAILED, f"{row['name']} says that it has no memory", facts=facts)
    return Outcome(PASSED, detail, facts=facts)


def cuda_row(torch: Any, device: str) -> Dict[str, Any]:
    """What is said of a GPU in the report."""
    found = torch.cuda.get_device_properties(device)
    return {
        "device": device,
        "name": str(found.name),
        "cuda_index": int(device.partition(":")[2]),
        "uuid": gpu_uuid(torch, device),
        "compute_capability": f"{found.major}.{found.minor}",
        "memory_total_bytes": int(found.total_memory),
        "multiprocessors": int(found.multi_processor_count),
        "architecture": getattr(found, "gcnArchName", None) if torch.version.hip else None,
    }


def cpu_row(torch: Any) -> Dict[str, Any]:
    """What is said of the CPU in the report."""
    kinds = getattr(torch.backends, "cpu", None)
    instructions = kinds.get_cpu_capability() if kinds else None
    return {
        "device": "cpu",
        "name": "CPU" if instructions is None else f"CPU ({instructions})",
        "memory_total_bytes": _memory_bytes(),
        "threads": int(torch.get_num_threads()),
    }


def _memory_bytes() -> Optional[int]:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _described(row: Dict[str, Any]) -> List[str]:
    words = [row["name"]]
    if row.get("compute_capability"):
        words.append(f"compute capability {row['compute_capability']}")
    if row["memory_total_bytes"]:
        words.append(f"{row['memory_total_bytes'] / GIB:.1f} GiB")
    if row.get("threads"):
        words.append(f"{row['threads']} threads")
    return words


def arch_in_build(device: str) -> Outcome:
    """The build carries a kernel, or PTX, that this GPU runs; and one does run."""
    import torch

    from .importing import arch_list

    row = cuda_row(torch, device)
    built = arch_list(torch)
    by = row["architecture"] if torch.version.hip else _served(row, built)
    try:
        ran = float((torch.ones(256, device=device) + 1).sum().item()) == 512.0
    except RuntimeError as problem:
        return _no_kernel(first_line(problem), row, built)
    if not ran:
        return Outcome(FAILED, "the first kernel gave a wrong sum", hint="`gpusetup doctor`")
    unlisted = f"{' '.join(built)} do not list it, yet it runs"
    return Outcome(PASSED, f"served by {by}" if by else unlisted)


def _cc(row: Dict[str, Any]) -> str:
    return str(row["compute_capability"])


def _served(row: Dict[str, Any], built: List[str]) -> Optional[str]:
    import torch

    return serves(built, read_capability(_cc(row)), torch.version.cuda)


def _no_kernel(problem: str, row: Dict[str, Any], built: List[str]) -> Outcome:
    if _served(row, built):
        return Outcome(FAILED, problem, hint="`gpusetup doctor` names the cause", spent=True)
    return Outcome(
        FAILED,
        f"this torch has no kernel for compute capability {_cc(row)}, only {' '.join(built)}",
        hint="`gpusetup resolve` names the build that serves this GPU",
        spent=True,
    )


def serves(
    built: List[str], capability: Tuple[int, int], cuda: Optional[str] = None
) -> Optional[str]:
    """The kernel of the build that runs on a GPU, else the PTX, else None.

    A kernel runs on its own major and an equal or later minor; PTX on everything later.

    >>> serves(["sm_80", "sm_90"], (8, 6)), serves(["sm_80", "compute_90"], (12, 0))
    ('sm_80', 'compute_90')
    >>> serves(["sm_75", "sm_80"], (6, 1)) is None, serves(["sm_86"], (8, 7)) is None
    (True, True)
    """
    kernels = [
        arch for arch in built if arch.startswith("sm_") and _runs_on(arch, capability, cuda)
    ]
    if kernels:
        return max(kernels, key=read_capability)
    portable = [arch for arch in built if arch.startswith("compute_")]
    usable = [arch for arch in portable if _compiles_for(arch, capability)]
    return max(usable, key=read_capability) if usable else None


def _runs_on(arch: str, capability: Tuple[int, int], cuda: Optional[str]) -> bool:
    built = read_capability(arch)
    apart = stands_apart(built) or stands_apart(capability, cuda)
    if arch.endswith("a") or apart:
        return built == capability
    return built[0] == capability[0] and built[1] <= capability[1]


def _compiles_for(arch: str, capability: Tuple[int, int]) -> bool:
    built = read_capability(arch)
    return built == capability if arch.endswith("a") else built <= capability


def no_such_device(wanted: str, seen: Tuple[str, ...]) -> WrongQuestion:
    """What is said where the named device is none of those that torch sees.

    >>> no_such_device("cuda:3", ("cuda:0",)).message
    'There is no cuda:3: torch sees 1 GPU'
    """
    return WrongQuestion(
        f"There is no {wanted}: torch sees {len(seen)} GPU{'s' if len(seen) > 1 else ''}",
        f"there {'are' if len(seen) > 1 else 'is'} {', '.join(seen)}",
    )
