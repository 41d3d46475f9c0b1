"""Which devices torch sees, what they are, and whether the build carries kernels for them."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Tuple

from ..values import FAILED, PASSED, Outcome, WrongQuestion
from .gpus import gpu_uuid
from .importing import arch_list, cuda_build, first_line

ASK_DOCTOR = "`gpusetup doctor` names the cause"
NOT_DETECTED = "GPU not detected!"
HIDES_ALL = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES that hide every GPU."""
GIB = 2**30
ANOTHER_BUILD = (
    "`gpusetup doctor` says whether there is an NVIDIA GPU; `gpusetup install` installs the build "
    "that fits; `--device cpu` tests this build on the CPU"
)


def gpus_detected(_: str) -> Outcome:
    """torch sees a CUDA device."""
    import torch

    count, why, hint = 0, "the CUDA driver answers, but lists no device", ASK_DOCTOR
    if not cuda_build(torch):
        why, hint = f"torch {torch.__version__} is a CPU build", ANOTHER_BUILD
    else:
        try:
            torch.cuda.init()
            # Before that the count is NVML's, which also holds GPUs that CUDA cannot use (MIG).
            count = int(torch.cuda.device_count()) if torch.cuda.is_available() else 0
        except Exception as problem:  # torch raises RuntimeError, AssertionError or its own kinds
            why = first_line(problem)
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        is_well = "No CUDA GPUs are available" in why
        if not count and hidden is not None and (hidden.strip() in HIDES_ALL or is_well):
            why = f"CUDA_VISIBLE_DEVICES={hidden!r} hides every GPU"
            hint = "`unset CUDA_VISIBLE_DEVICES`"
    if not count:
        facts: Dict[str, Any] = {"available": False}
        return Outcome(FAILED, f"{NOT_DETECTED} {why}", hint=hint, facts=facts)
    facts = {"available": True, "gpus": count, "seen": [f"cuda:{n}" for n in range(count)]}
    return Outcome(PASSED, f"torch sees {count} GPU{'s' * (count > 1)}", facts=facts)


def chosen(wanted: str, seen: Tuple[str, ...]) -> Tuple[str, ...]:
    """The devices to prove; WrongQuestion where the named one is none of those that torch sees.

    >>> chosen("auto", ("cuda:0", "cuda:1")), chosen("none", ())
    (('cuda:0', 'cuda:1'), ())
    """
    if wanted in ("auto", "cuda"):
        return seen
    if wanted not in seen and seen and ":" in wanted:
        told = f"There is no {wanted}: torch sees {len(seen)} GPU{'s' * (len(seen) > 1)}"
        raise WrongQuestion(told, f"one of {', '.join(seen)}")
    return () if wanted == "none" else (wanted,)


def properties(device: str) -> Outcome:
    """The check reads the device's properties, writes a tensor to it and reads that back."""
    import torch

    row = cuda_row(torch, device) if device.startswith("cuda") else cpu_row(torch)
    sent = torch.arange(4096, dtype=torch.int32)
    back, facts = sent.to(device).clone().to("cpu"), {"device": row}
    if not bool((sent == back).all()):
        told = f"{row['name']}: 16 KiB copied to the device came back changed"
        hint = "the memory or the bus is faulty: look for Xid lines in `dmesg`"
        return Outcome(FAILED, told, hint=hint, facts=facts)
    words = [
        (row["name"], "{}"),
        (row.get("compute_capability"), "compute capability {}"),
        ((row["memory_total_bytes"] or 0) / GIB, "{:.1f} GiB"),
        (row.get("threads"), "{} threads"),
    ]
    return Outcome(PASSED, ", ".join(f.format(value) for value, f in words if value), facts=facts)


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
    }


def cpu_row(torch: Any) -> Dict[str, Any]:
    """What is said of the CPU in the report."""
    kinds = getattr(torch.backends, "cpu", None)
    memory = None
    with contextlib.suppress(AttributeError, ValueError, OSError):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "device": "cpu",
        "name": f"CPU ({kinds.get_cpu_capability()})" if kinds else "CPU",
        "memory_total_bytes": memory,
        "threads": int(torch.get_num_threads()),
    }


def arch_in_build(device: str) -> Outcome:
    """The build carries a kernel, or PTX, that this GPU runs: one does run."""
    import torch

    found, built = torch.cuda.get_device_properties(device), arch_list(torch)
    is_listed = f"sm_{found.major}{found.minor}" in built
    try:
        ran = float((torch.ones(256, device=device) + 1).sum().item()) == 512.0
    except RuntimeError as problem:
        told, hint = first_line(problem), ASK_DOCTOR
        if "no kernel image" in told and not is_listed:
            own, there = f"{found.major}.{found.minor}", " ".join(built)
            told = f"this torch has no kernel for compute capability {own}, only {there}"
            hint = "`gpusetup resolve` names the build that supports this GPU"
        return Outcome(FAILED, told, hint=hint, spent=True)
    if not ran:
        return Outcome(FAILED, "the first kernel gave a wrong sum", hint=ASK_DOCTOR)
    told = f"served by sm_{found.major}{found.minor}"
    return Outcome(PASSED, told if is_listed else f"a kernel runs, of {' '.join(built)}")
