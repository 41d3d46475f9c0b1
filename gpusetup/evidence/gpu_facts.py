"""Facts about kernels, wheels, memory and GPUs of other vendors that rule out a cause.

Each returns a sentence about what was read, or "", like the facts in `evidence.facts`.
"""

from __future__ import annotations

import re

from gpusetup.accelerators.amd import RELEASE_FOR_WINDOWS, gfx_of
from gpusetup.choose.installed import vendors_of
from gpusetup.evidence.context import (
    RuleContext,
    events,
    gib,
    gpus,
    is_report,
    readings,
    serving,
    whole_number,
)
from gpusetup.evidence.facts import Fact, gpu_names
from gpusetup.evidence.maker_facts import crashes_without_kernels, intels_extension_fails
from gpusetup.model.machine import Gpu
from gpusetup.model.versions import Capability, parsed

# --- kernels --------------------------------------------------------------------------------------


def torch_has_the_kernels(context: RuleContext) -> str:
    """Returns a sentence if the installed torch has kernels for every GPU whose compute capability
    is known, else ""."""
    # torch's own warning about the GPU comes from the torch that is running, so it takes precedence
    # over a list.
    if events(context, "gpu-not-in-wheel"):
        return ""
    served_gpus = []
    targets = []
    for gpu in gpus(context):
        if gpu.compute_capability is None:
            continue
        if not _torch_serves(context, gpu):
            return ""
        served_gpus.append(gpu)
        targets.append(gpu.compute_capability.sm)
    if not served_gpus:
        return ""
    torch = f"torch {context.torch.version or ''}".strip()
    names = gpu_names(tuple(served_gpus))
    return f"{torch} has kernels for {names} ({', '.join(dict.fromkeys(targets))})"


def kernels_that_a_text_prints(context: RuleContext) -> bool:
    """Whether the text itself contains torch's list of kernels. Otherwise the list in the snapshot
    comes from the catalog."""
    for reading in readings(context, "torch.kernels"):
        if reading.value and reading.source != "catalog":
            return True
    return False


def _torch_serves(context: RuleContext, gpu: Gpu) -> bool:
    """Whether the installed torch has kernels for a GPU.

    The build's own list of kernels decides. If the build is newer than the catalog, assume the
    kernels of the newest build on the same index.
    """
    torch = context.torch
    if torch.kernels is not None:
        return serving(context, gpu) is not None
    builds = [build for build in context.catalog.builds if build.backend == torch.backend]
    if not builds or torch.version is None:
        return False
    newest_release = max(parsed(build.torch) for build in builds)
    release = torch.version.partition("+")[0]
    # Judge by other builds on the index only if the build is newer than all builds in the catalog.
    if parsed(release) < newest_release:
        return False
    capability = gpu.compute_capability or Capability(0, 0)
    newest_builds = [build for build in builds if parsed(build.torch) == newest_release]
    return any(capability.sm in build.kernels for build in newest_builds)


def gpu_is_at_least(major: int, minor: int = 0) -> Fact:
    """Returns a fact that holds if every GPU whose compute capability is known has at least this
    one."""
    least = Capability(major, minor)

    def fact(context: RuleContext) -> str:
        known_gpus = []
        for gpu in gpus(context):
            if gpu.compute_capability is None:
                continue
            if gpu.compute_capability < least:
                return ""
            known_gpus.append(gpu)
        if not known_gpus:
            return ""
        first_capability = known_gpus[0].compute_capability
        return f"{gpu_names(tuple(known_gpus))} has compute capability {first_capability}"

    return fact


def torch_lists_the_target(context: RuleContext) -> str:
    """Returns a sentence with the AMD target that the text names, if torch's own list of kernels
    contains it, else ""."""
    kernels = context.torch.kernels or ()
    listed_targets = []
    for event in events(context, "hip-kernel-missing", "foreign-gpu"):
        target = event.values.get("gfx") or gfx_of(event.values.get("name", ""))
        if target in kernels:
            listed_targets.append(target)
    if not listed_targets:
        return ""
    return f"torch has kernels for {min(listed_targets)}"


def the_gpu_computes(context: RuleContext) -> str:
    """Returns a sentence that quotes a program's device in use, or an empty string if the text
    contains none."""
    proofs = events(context, "gpu-in-use")
    if not proofs:
        return ""
    # Quote only the beginning of the first proof.
    quote = (proofs[0].text or "")[:60].strip()
    return f"the GPU computes ({quote})"


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
    """Returns a sentence if the text names another vendor's GPU, but nothing in it failed while
    looking for a GPU, else "".

    No program looked for CUDA, and the text shows no torch build for a different vendor. So the
    GPU's vendor does not explain what fails.
    """
    if not is_report(context) or not _has_a_build_of_the_maker(context):
        return ""
    if intels_extension_fails(context):
        return ""
    if _was_searched_in_vain(context):
        return ""
    if lacks_target_on_windows(context) or crashes_without_kernels(context):
        return ""
    # A variable that names another target makes ROCm itself fail.
    if target_is_overridden(context) and events(context, "program-failed"):
        return ""
    return NO_COMPLAINT


def lacks_target_on_windows(context: RuleContext) -> str:
    """The target of an AMD GPU on Windows that the installed ROCm build has no kernels for; "" if
    the build may have them."""
    is_release = AMDS_RELEASE.search(context.torch.version or "")
    if context.os.family != "windows" or is_release is None:
        return ""
    targets = []
    for event in events(context, "foreign-gpu"):
        target = gfx_of(event.values.get("name", ""))
        if target:
            targets.append(target)
    # A text may also name the processor's integrated graphics, so it is enough if the build has
    # kernels for one of the GPUs.
    if not targets or any(target in RELEASE_FOR_WINDOWS for target in targets):
        return ""
    return targets[0]


AMDS_RELEASE = re.compile(r"\+rocm(?:6\.4|7\.[0-2])\.\d+$")
"""The label of AMD's releases for Windows up to ROCm 7.2: `2.9.1+rocm7.2.1`. PyTorch's labels have
two numbers; from ROCm 7.13 on, AMD's wheels have kernels for older cards, too."""


def _has_a_build_of_the_maker(context: RuleContext) -> bool:
    """Whether every torch build that the text shows is AMD's or Intel's; True if it shows none."""
    # Only a CUDA build loads CUDA's libraries when torch is imported.
    if events(context, "torch-loads-libraries") and events(context, "cuda-lib-missing"):
        return False
    backend = context.torch.backend or ""
    return backend in ("", "xpu") or backend.startswith("rocm")


def _was_searched_in_vain(context: RuleContext) -> bool:
    """Whether torch or a program looked for a GPU and did not find one."""
    torch = context.torch
    # Ignore "CUDA available: False" from torch's XPU build, which prints it on every machine.
    if torch.cuda_available is False and torch.backend != "xpu":
        return True
    if events(context, "gpu-unused"):
        return True
    messages = events(context, *LOOK_FOR_CUDA, "no-hip-gpus")
    return any(message.kind not in NO_SEARCH for message in messages)


NO_SEARCH = ("cuda-error",)
"""Events of `LOOK_FOR_CUDA` that do not show a program looking for a GPU."""


def only_gpu_is_from(vendor: str) -> Fact:
    """Returns a fact that holds if a text names a GPU of this vendor, and neither an NVIDIA card
    nor an NVIDIA driver. Then an NVIDIA driver does not help."""

    def only_gpu_is_of_the_vendor(context: RuleContext) -> str:
        has_nvidia_driver = context.driver.version or context.driver.cuda
        if not is_report(context) or gpus(context) or has_nvidia_driver:
            return ""
        if vendors_of(context.snapshot) != {vendor}:
            return ""
        for event in events(context, "foreign-gpu"):
            return f"the only GPU that the text names is {event.values.get('name', vendor)}"
        return ""

    return only_gpu_is_of_the_vendor


def target_is_overridden(context: RuleContext) -> str:
    """Returns a sentence if HSA_OVERRIDE_GFX_VERSION makes the runtime use another target's
    kernels, else ""."""
    value = context.snapshot.environment.get("HSA_OVERRIDE_GFX_VERSION", "")
    if not value:
        return ""
    return f"HSA_OVERRIDE_GFX_VERSION={value} is set"


# --- memory ---------------------------------------------------------------------------------------


HARDLY_ANY = 64 << 20
"""A GPU that has room for a CUDA context also has room for this number of bytes."""
MOSTLY_FREE = 0.5
"""If more than this share of the memory is free, a small request cannot fail for lack of memory."""


def memory_is_not_short(context: RuleContext) -> str:
    """Returns a sentence if a message says "out of memory", but the numbers in it contradict that,
    else "".

    They contradict it if the request is tiny and either almost no memory is used or most of the
    GPU's memory is free.
    """
    for message in events(context, "out-of-memory"):
        requested = whole_number(message.values.get("asked_bytes"))
        total = whole_number(message.values.get("total_bytes"))
        free = whole_number(message.values.get("free_bytes"))
        used_by_torch = whole_number(message.values.get("held_bytes"))
        if requested is None or total is None or requested > HARDLY_ANY:
            continue
        # If torch reports how much memory it uses, the cause's own rule for unused memory decides
        # instead.
        is_mostly_free = free is not None and free > MOSTLY_FREE * total
        if free is not None and is_mostly_free and used_by_torch is None:
            return f"{gib(requested)} was asked for, and {gib(free)} of {gib(total)} is free"
        # The text is, for example, `0 bytes by other processes`.
        nothing_else_uses_it = message.values.get("beside", "").startswith("0")
        uses_hardly_any = used_by_torch is not None and used_by_torch < HARDLY_ANY
        if uses_hardly_any and nothing_else_uses_it:
            return f"{gib(requested)} was asked for, and nothing of {gib(total)} is used"
    return ""


VIRTUAL_GPU = re.compile(r"\b(?:GRID|vGPU|[A-Z]\d{1,3}-\d{1,2}[ABCQ])\b")
"""Matches NVIDIA's names for profiles of virtual GPUs: `GRID T4-8Q`, `A40-12B`."""


def no_virtual_gpu_is_named(context: RuleContext) -> str:
    """Returns a sentence if the text names no virtual GPU, else "". Without one, CUDA's refusal may
    come from an old driver, which returns the same error."""
    if not is_report(context):
        return ""
    texts = [gpu.name for gpu in context.snapshot.gpus or ()]
    for event in events(context, "vgpu-no-compute", "vgpu-unlicensed"):
        texts.append(event.text or "")
    if any(VIRTUAL_GPU.search(text) for text in texts):
        return ""
    return "the text names no virtual GPU, and an old driver refuses alike"


def intels_driver_answers(context: RuleContext) -> str:
    """Returns a sentence if SYCL lists the Intel GPU, or torch reports `xpu` as available, so that
    driver and permissions are fine, else ""."""
    # An older release's True, next to today's False, shows nothing of today's.
    if any(XPU_IS_MISSING.search(event.text or "") for event in events(context, "no-xpu")):
        return ""
    if events(context, "sycl-finds-none"):
        return ""
    for event in events(context, "output-shown"):
        if event.values.get("what") == "sycl":
            return "sycl-ls lists the GPU"
    for event in events(context, "backend-runs"):
        if XPU_IS_THERE.search(event.text or ""):
            return "torch.xpu.is_available() is True"
    return ""


XPU_IS_THERE = re.compile(
    r"xpu\.is_available\(\)(?:\W{0,3}(?:returns?|returned|is|prints?|shows?|gives?|says)\b)?\W{1,12}True",
    re.IGNORECASE,
)
XPU_IS_MISSING = re.compile(
    r"xpu\.is_available\(\)\W{1,12}False|Failed to initialize XPU devices", re.IGNORECASE
)


ROCM_WORDS = re.compile(r"hip|roc[mk]|kfd", re.IGNORECASE)
"""Words that only ROCm uses: `hipErrorNoDevice`, `rocm-smi`, `ROCk module`, `/dev/kfd`."""


def only_the_maker_is_named(context: RuleContext) -> str:
    """Returns a sentence if the text names another vendor's GPU, but neither a torch build nor a
    message of that vendor's software, else "".

    The vendor's name does not show whether the build, the driver or the program is at fault.
    """
    if not is_report(context) or context.torch.backend or context.torch.version:
        return ""
    # ROCm's own words (`No HIP GPUs`, `/dev/kfd`, `amdhip64.dll`) show that a program called its
    # runtime.
    messages = events(context, "no-hip-gpus")
    rocm_complains = any(ROCM_WORDS.search(event.text or "") for event in messages)
    if rocm_complains or events(context, *LOOK_FOR_CUDA):
        return ""
    if not messages and not events(context, "gpu-unused"):
        return ""
    for event in events(context, "foreign-gpu"):
        gpu = (event.values.get("name") or event.text or "")[:40].strip()
        return f"the text names the GPU ({gpu}) and does not show which torch runs"
    return ""
