"""Which devices torch sees, their properties, and whether the build has kernels for them. The
parent process loads this module too, so only the checks in it import torch."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, NamedTuple, Optional, Tuple

from ..values import FAILED, OTHER_ACCELERATORS, PASSED, WRONG, Outcome, Row, WrongQuestion, kind
from .gpus import gpu_uuid
from .importing import arch_list, cuda_build, first_line

ASK_DOCTOR = "`gpusetup doctor` names the cause"
NOT_DETECTED = "GPU not detected!"
HIDES_ALL = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES that hide all GPUs."""
GIB = 2**30


class Backend(NamedTuple):
    """What verify says if torch finds no GPU of a kind."""

    not_built: str
    """What torch is if it was not built for this kind of GPU."""
    not_built_hint: str
    not_found: str
    """What is wrong if torch was built for it, but finds none."""
    not_found_hint: str


BACKENDS: Dict[str, Backend] = {
    "cuda": Backend(
        "is a CPU build",
        "`gpusetup doctor` says whether there is an NVIDIA GPU; `gpusetup install` installs the "
        "build that fits; `--device cpu` tests this build on the CPU",
        "the CUDA driver answers, but lists no device",
        ASK_DOCTOR,
    ),
    "xpu": Backend(
        "is not built for Intel's GPUs",
        "`gpusetup install --backend xpu` installs the build for Intel's GPUs",
        "torch finds no GPU from Intel",
        "`gpusetup doctor` shows whether Intel's driver is loaded and your user may use the GPU",
    ),
    "mps": Backend(
        "is not built for Apple's GPUs",
        "torch's wheels for Macs with Apple's processors have it; a Mac with Intel's has no MPS",
        "torch finds no GPU from Apple",
        "MPS needs macOS 12.3 or later (torch 2.13 needs macOS 14), and no virtual machine",
    ),
}
"""torch's name for a kind of GPU (`cuda` for AMD's too) -> what to say if there is none."""


def count_of(torch: Any, backend: str) -> Optional[int]:
    """How many GPUs of a kind torch sees; None if it was not built for them. Raises whatever torch
    raises if the driver does not work."""
    if backend == "mps":
        mps = getattr(torch.backends, "mps", None)
        return int(mps.is_available()) if mps and mps.is_built() else None
    if backend == "xpu":
        if getattr(torch.version, "xpu", None) is None:
            return None
        return int(torch.xpu.device_count()) if torch.xpu.is_available() else 0
    if not cuda_build(torch):
        return None
    # Before `init`, torch would ask NVML, which also counts GPUs that CUDA cannot use (MIG).
    torch.cuda.init()
    return int(torch.cuda.device_count()) if torch.cuda.is_available() else 0


def gpus_detected(wanted_device: str) -> Outcome:
    """Check that torch sees a GPU of the requested kind, or for `auto` of the kind of its build."""
    import torch

    backend = kind(wanted_device)
    if backend == "auto":
        # A build for CUDA or ROCm has no other backend. If no GPU is found, report about CUDA.
        others = () if cuda_build(torch) else OTHER_ACCELERATORS
        backend = next((name for name in others if count_of(torch, name)), "cuda")
    words = BACKENDS[backend]
    reason = words.not_found
    try:
        count = count_of(torch, backend)
        if count is None:
            return no_gpu(f"torch {torch.__version__} {words.not_built}", words.not_built_hint)
    except Exception as problem:
        count, reason = 0, first_line(problem)
    if count:
        seen = ["mps"] if backend == "mps" else [f"{backend}:{index}" for index in range(count)]
        facts = {"available": backend == "cuda", "gpus": count, "seen": seen}
        return Outcome(PASSED, f"torch sees {gpus_in_words(count)}", facts=facts)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    # torch says so if the driver works but lists no GPU, as for the index of a missing GPU.
    lists_none = "No CUDA GPUs are available" in reason
    hides_all = visible is not None and (visible.strip() in HIDES_ALL or lists_none)
    if backend == "cuda" and hides_all:
        reason = f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU"
        return no_gpu(reason, "in a job, request a GPU; otherwise `unset CUDA_VISIBLE_DEVICES`")
    return no_gpu(reason, words.not_found_hint)


def no_gpu(reason: str, hint: str) -> Outcome:
    """The failed outcome if torch finds no GPU, with the reason and a hint."""
    return Outcome(FAILED, f"{NOT_DETECTED} {reason}", hint=hint, facts={"available": False})


def gpus_in_words(count: int) -> str:
    """A number of GPUs in words."""
    return "1 GPU" if count == 1 else f"{count} GPUs"


def devices_to_test(wanted_device: str, seen: Tuple[str, ...]) -> Tuple[str, ...]:
    """The devices to test. Raises WrongQuestion if the user named a GPU that torch does not see.

    >>> devices_to_test("auto", ("cuda:0", "cuda:1")), devices_to_test("none", ())
    (('cuda:0', 'cuda:1'), ())
    """
    if wanted_device in ("auto", "cuda", *OTHER_ACCELERATORS):
        return seen
    if wanted_device == "none":
        return ()
    # If torch sees no GPU at all, an earlier check reports the reason.
    if ":" in wanted_device and seen and wanted_device not in seen:
        problem = f"There is no {wanted_device}: torch sees {gpus_in_words(len(seen))}"
        raise WrongQuestion(problem, f"one of {', '.join(seen)}")
    return (wanted_device,)


def properties(device: str) -> Outcome:
    """The device reports its properties, and data written to it reads back unchanged."""
    import torch

    row = row_of(torch, device)
    facts = {"device": row}
    sent = torch.arange(4096, dtype=torch.int32)
    # `clone` copies within the device, with a kernel or a copy engine.
    received = sent.to(device).clone().to("cpu")
    if not bool((sent == received).all()):
        problem = f"{row['name']}: 16 KiB copied to the device came back changed"
        hint = "the memory or the bus is faulty: look for Xid lines in `dmesg`"
        return Outcome(FAILED, problem, hint=hint, facts=facts, problem=WRONG)
    words = [str(row["name"])]
    if row.get("compute_capability"):
        words.append(f"compute capability {row['compute_capability']}")
    if row["memory_total_bytes"]:
        words.append(f"{row['memory_total_bytes'] / GIB:.1f} GiB")
    if row.get("threads"):
        words.append(f"{row['threads']} threads")
    return Outcome(PASSED, ", ".join(words), facts=facts)


def row_of(torch: Any, device: str) -> Row:
    """A device's fields in the report."""
    if device == "mps":
        # Older releases of torch do not report how much memory the GPU may use.
        limit_of = getattr(torch.mps, "recommended_max_memory", None)
        memory = int(limit_of()) if limit_of else None
        return {"device": device, "name": "Apple GPU", "memory_total_bytes": memory}
    if kind(device) == "xpu":
        gpu = torch.xpu.get_device_properties(device)
        memory = int(gpu.total_memory)
        return {"device": device, "name": str(gpu.name), "memory_total_bytes": memory}
    if kind(device) == "cuda":
        gpu = torch.cuda.get_device_properties(device)
        return {
            "device": device,
            "name": str(gpu.name),
            "cuda_index": int(device.partition(":")[2]),
            "uuid": gpu_uuid(torch, device),
            "compute_capability": f"{gpu.major}.{gpu.minor}",
            "memory_total_bytes": int(gpu.total_memory),
        }
    # An older torch does not report which CPU instructions it uses.
    backend = getattr(torch.backends, "cpu", None)
    memory_bytes = None
    # Windows has no `sysconf`, and not every system has both numbers.
    with contextlib.suppress(AttributeError, ValueError, OSError):
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "device": "cpu",
        "name": f"CPU ({backend.get_cpu_capability()})" if backend else "CPU",
        "memory_total_bytes": memory_bytes,
        "threads": int(torch.get_num_threads()),
    }


def arch_in_build(device: str) -> Outcome:
    """Check that the build has a kernel or PTX for this GPU, by running one."""
    import torch

    gpu = torch.cuda.get_device_properties(device)
    kernels = " ".join(arch_list(torch))
    try:
        total = float((torch.ones(256, device=device) + 1).sum().item())
    except RuntimeError as problem:
        error = first_line(problem)
        # A process whose kernel failed may be unable to use the GPU, so it ends (`spent`).
        if "no kernel image" not in error:
            return Outcome(FAILED, error, hint=ASK_DOCTOR, spent=True)
        capability = f"{gpu.major}.{gpu.minor}"
        detail = f"this torch has no kernel for compute capability {capability}, only {kernels}"
        hint = "`gpusetup resolve` names the build that supports this GPU"
        return Outcome(FAILED, detail, hint=hint, spent=True)
    if total != 512:
        return Outcome(FAILED, "the first kernel gave a wrong sum", hint=ASK_DOCTOR, problem=WRONG)
    # If the build lists no kernel for exactly this architecture, it ran one for the same
    # generation, or compiled PTX for this GPU.
    return Outcome(PASSED, f"a kernel runs; this build has kernels for {kernels}")
