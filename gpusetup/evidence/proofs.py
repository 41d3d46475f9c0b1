"""Decides when a text proves a cause by itself: with a message that states the cause, or with two
values that were read.

The record of a cause names its proof (`certain_if`). Without one, a cause found in a text is at
most `likely`, because a fact that the text does not show may contradict it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gpusetup.evidence.context import (
    RuleContext,
    capabilities,
    cuda_needed,
    driver_answers,
    events,
    gpus,
    nvidia_on_pci,
    package,
    whole_number,
)

Proof = Callable[[RuleContext], bool]


def message_states_it(context: RuleContext) -> bool:
    """The proof of a cause whose message can have no other reason. It always holds."""
    return True


def message_states(kind: str, words: str) -> Proof:
    """A proof that holds if one of the cause's messages contains these words."""
    pattern = re.compile(words, re.IGNORECASE)
    return lambda context: any(pattern.search(e.text or "") for e in events(context, kind))


# --- torch, its build, the GPU --------------------------------------------------------------------


def cpu_build_with_a_gpu(context: RuleContext) -> bool:
    """Whether torch's version or its error shows a CPU build, and the text lists an NVIDIA GPU."""
    refused_cuda = events(context, "torch-not-compiled-with-cuda")
    is_cpu_build = (context.torch.version or "").endswith("+cpu")
    return bool(gpus(context) and (is_cpu_build or refused_cuda))


def build_of_another_maker(context: RuleContext) -> bool:
    """Whether the text shows a GPU, and a torch build for the CPU or for CUDA, so that their makers
    can be compared."""
    # ZLUDA (`translation`) runs CUDA builds on AMD's GPUs on purpose.
    owners = [event.values.get("owner") for event in events(context, "environment-owner")]
    # A ROCm or XPU build has another problem than its maker.
    if "translation" in owners or not (context.torch.backend or "").startswith(("cpu", "cu")):
        return False
    return bool(events(context, "foreign-gpu") or gpus(context) or nvidia_on_pci(context))


def capability_is_read(context: RuleContext) -> bool:
    """Whether the GPU's model, and therefore its compute capability, is known."""
    if capabilities(context):
        return True
    messages = events(context, "bf16-unsupported", "gpu-too-old-for-triton", "gpu-not-in-wheel")
    return any("capability" in message.values for message in messages)


def driver_and_need_are_read(context: RuleContext) -> bool:
    """Whether a message states the version that it found or needs, or else the text shows both the
    driver and torch's CUDA."""
    for message in events(context, "driver-too-old", "image-needs-newer-driver"):
        if not message.values.keys().isdisjoint(("found", "needs_driver", "needed")):
            return True
    return context.driver.version is not None and cuda_needed(context.torch) is not None


def installed_pair_is_read(companion: str) -> Proof:
    """A proof that holds if the text shows the releases of torch and its companion."""
    return lambda context: bool(context.torch.version and package(context, companion))


def releases_of_torch_differ(context: RuleContext) -> bool:
    """Whether an extension's message names another torch release than the one that runs."""
    for message in events(context, "extension-abi-mismatch"):
        built_for = message.values.get("built_torch", "").partition("+")[0]
        runs = message.values.get("torch", "").partition("+")[0]
        if built_for and runs and built_for != runs:
            return True
    return False


def no_torch_is_listed(context: RuleContext) -> bool:
    """Whether the text shows no torch; one that it shows would be in another environment."""
    return context.torch.version is None and package(context, "torch") is None


# --- CUDA's start ---------------------------------------------------------------------------------

ON_NVSWITCH = re.compile(r"SXM|HBM3|V100|H[12]00|H20|B[23]00|[AH]800|HGX|DGX", re.IGNORECASE)
"""GPU models that are also sold on boards with NVSwitch. Others get error 802 for other reasons."""


def gpus_are_on_nvswitch(context: RuleContext) -> bool:
    """Whether the text names a GPU of a system with NVSwitch, or the Fabric Manager service."""
    messages = events(context, "system-not-ready-fabric-manager")
    names_service = any("fabric" in (message.text or "").lower() for message in messages)
    return names_service or any(ON_NVSWITCH.search(gpu.name) for gpu in gpus(context))


def smi_runs_on_the_host_only(context: RuleContext) -> bool:
    """Whether a driver answers on the host, but nvidia-smi is not found in the container."""
    return driver_answers(context) and bool(events(context, "smi-not-found"))


def message_names_the_stub(context: RuleContext) -> bool:
    """Whether a program's message shows the stub. A stub folder in LD_LIBRARY_PATH is not enough,
    because it may come after the driver's folder."""
    return any(event.source != "LD_LIBRARY_PATH" for event in events(context, "libcuda-stub"))


# --- files, kernel, memory ------------------------------------------------------------------------


def numbers_show_it_is_full(context: RuleContext) -> bool:
    """Whether the numbers in a message show that more memory was requested than is left."""
    for message in events(context, "out-of-memory"):
        names = ("asked_bytes", "total_bytes", "free_bytes")
        asked, total, free = (whole_number(message.values.get(name)) for name in names)
        # A quote without the total was cut, and its free memory may be another message's.
        if asked is not None and total is not None and free is not None and asked > free:
            return True
    return False
