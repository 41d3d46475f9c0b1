"""Facts about kernels, wheels, memory and GPUs of other vendors that rule out a cause, like those
in `evidence.facts`."""

from __future__ import annotations

import re

from gpusetup.accelerators.amd import gfx_of
from gpusetup.evidence.context import (
    RuleContext,
    events,
    gpus,
    is_report,
    readings,
    serving,
)
from gpusetup.evidence.facts import gpu_names
from gpusetup.model.machine import Gpu
from gpusetup.model.versions import Capability, parsed

# --- kernels --------------------------------------------------------------------------------------


def torch_has_the_kernels(context: RuleContext) -> str:
    """The installed torch has kernels for every GPU whose compute capability is known."""
    known = [gpu for gpu in gpus(context) if gpu.compute_capability]
    # torch's own warning about the GPU comes from the torch that is running, so it takes precedence
    # over a list.
    is_warned = events(context, "gpu-not-in-wheel")
    if is_warned or not known or not all(_torch_serves(context, gpu) for gpu in known):
        return ""
    targets = dict.fromkeys(gpu.compute_capability.sm for gpu in known if gpu.compute_capability)
    torch = f"torch {context.torch.version or ''}".strip()
    return f"{torch} has kernels for {gpu_names(tuple(known))} ({', '.join(targets)})"


def kernels_that_a_text_prints(context: RuleContext) -> bool:
    """Whether the text itself contains torch's list of kernels. Otherwise the list in the snapshot
    comes from the catalog."""
    lists = readings(context, "torch.kernels")
    return any(one.value and one.source != "catalog" for one in lists)


def _torch_serves(context: RuleContext, gpu: Gpu) -> bool:
    """Whether the installed torch has kernels for a GPU: by the build's own list of kernels or, for
    a build that is newer than the catalog, by the newest build on the same index."""
    torch = context.torch
    if torch.kernels is not None:
        return serving(context, gpu) is not None
    builds = [build for build in context.catalog.builds if build.backend == torch.backend]
    if not builds or torch.version is None:
        return False
    newest = max(parsed(build.torch) for build in builds)
    if parsed(torch.version.partition("+")[0]) < newest:
        return False
    sm = (gpu.compute_capability or Capability(0, 0)).sm
    return any(sm in build.kernels for build in builds if parsed(build.torch) == newest)


def torch_lists_the_target(context: RuleContext) -> str:
    """torch's own list of kernels contains the AMD target that the text names."""
    named = [
        event.values.get("gfx") or gfx_of(event.values.get("name", ""))
        for event in events(context, "hip-kernel-missing", "foreign-gpu")
    ]
    listed = [target for target in named if target and target in (context.torch.kernels or ())]
    return f"torch has kernels for {min(listed)}" if listed else ""


LOOK_FOR_CUDA = (
    *("no-nvidia-driver", "torch-not-compiled-with-cuda", "cuda-unavailable", "cuda-error"),
    *("hip-kernel-missing", "no-xpu", "torch-missing", "cuda-toolkit-missing"),
    *("no-matching-distribution", "wrong-index", "python-no-wheel", "extension-abi-mismatch"),
)
"""Messages of programs that looked for a GPU or a torch build. They say more about the fault than
the GPU's vendor does."""
NO_COMPLAINT = "nothing in the text looks for CUDA, or lacks the maker's own build of torch"
"""Why the GPU's maker is not the cause, where the text says nothing about its build."""


def nothing_asked_for_cuda(context: RuleContext) -> str:
    """The text names another vendor's GPU, but no program in it looked for CUDA, and it shows no
    torch build for a different vendor. So the GPU's vendor does not explain what fails."""
    torch = context.torch
    # Only a CUDA build loads CUDA's libraries when torch is imported.
    loads_cuda = events(context, "torch-loads-libraries") and events(context, "cuda-lib-missing")
    has_the_makers_build = (torch.backend or "xpu").startswith(("xpu", "rocm"))
    if not is_report(context) or loads_cuda or not has_the_makers_build:
        return ""
    # An XPU build prints "CUDA available: False" on every machine.
    torch_sees_none = torch.cuda_available is False and torch.backend != "xpu"
    # A CUDA error does not show a program that looks for a GPU.
    looked_for = [kind for kind in LOOK_FOR_CUDA if kind != "cuda-error"]
    searched = events(context, "gpu-unused", "no-hip-gpus", *looked_for)
    if torch_sees_none or searched:
        return ""
    # A variable that names another target makes ROCm itself fail.
    if target_is_overridden(context) and events(context, "program-failed"):
        return ""
    return NO_COMPLAINT


def whys(context: RuleContext, kind: str) -> set[str | None]:
    """The reasons (`why`) that the rows of a kind of event give."""
    return {event.values.get("why") for event in events(context, kind)}


def rocm_of_wheel(context: RuleContext) -> str:
    """The ROCm release that the installed wheel of torch is for (`6.2`); "" if it is not known."""
    label = re.match(r"rocm(\d+\.\d+)", context.torch.backend or "")
    return label[1] if label else ""


def target_is_overridden(context: RuleContext) -> str:
    """HSA_OVERRIDE_GFX_VERSION makes the runtime use another target's kernels."""
    value = context.snapshot.environment.get("HSA_OVERRIDE_GFX_VERSION", "")
    return f"HSA_OVERRIDE_GFX_VERSION={value} is set" if value else ""


# --- memory ---------------------------------------------------------------------------------------

VIRTUAL_GPU = re.compile(r"\b(?:GRID|vGPU|[A-Z]\d{1,3}-\d{1,2}[ABCQ])\b")
"""Matches NVIDIA's names for profiles of virtual GPUs: `GRID T4-8Q`, `A40-12B`."""


def no_virtual_gpu_is_named(context: RuleContext) -> str:
    """The text names no virtual GPU. Without one, CUDA's refusal may come from an old driver, which
    returns the same error."""
    names = [gpu.name for gpu in context.snapshot.gpus or ()]
    messages = [e.text or "" for e in events(context, "vgpu-no-compute", "vgpu-unlicensed")]
    if not is_report(context) or any(map(VIRTUAL_GPU.search, (*names, *messages))):
        return ""
    return "the text names no virtual GPU, and an old driver causes the same error"


ROCM_WORDS = re.compile(r"hip|roc[mk]|kfd", re.IGNORECASE)
"""Words that only ROCm uses: `hipErrorNoDevice`, `rocm-smi`, `ROCk module`, `/dev/kfd`."""


def only_the_maker_is_named(context: RuleContext) -> str:
    """The text names another vendor's GPU, but neither a torch build nor a message of that vendor's
    software. So it does not show whether the build, the driver or the program is at fault."""
    if not is_report(context) or context.torch.backend or context.torch.version:
        return ""
    # ROCm's own words (`No HIP GPUs`, `/dev/kfd`, `amdhip64.dll`) show that a program called its
    # runtime.
    messages = events(context, "no-hip-gpus")
    rocm_complains = any(ROCM_WORDS.search(event.text or "") for event in messages)
    if rocm_complains or events(context, *LOOK_FOR_CUDA):
        return ""
    if messages or events(context, "gpu-unused"):
        for event in events(context, "foreign-gpu"):
            gpu = (event.values.get("name") or event.text or "")[:40].strip()
            return f"the text names the GPU ({gpu}) and does not show which torch runs"
    return ""
