"""Facts about the software of AMD and Intel. Each is a sentence, or "" if it does not hold."""

from __future__ import annotations

import re

from gpusetup.evidence.context import RuleContext, events


def whys(context: RuleContext, kind: str) -> set[str | None]:
    """The reasons (`why`) that the rows of a kind of event give."""
    return {event.values.get("why") for event in events(context, kind)}


def intels_extension_fails(context: RuleContext) -> str:
    """Intel's extension for PyTorch, or the torch that Intel built for it, cannot be loaded, finds
    no GPU, crashes or hangs."""
    # Where the extension has no kernels for a GPU, it compiles all of them at the first use, which
    # looks like a hang.
    breaks_off = events(context, "run-hangs", "program-crashed", "silent-crash")
    if breaks_off or events(context, "windows-dll-missing", "no-xpu"):
        for event in events(context, "ipex"):
            return f"Intel's extension for PyTorch is in use ({event.text})"
    return ""


def rocm_lists_the_gpu(context: RuleContext) -> str:
    """rocminfo lists the AMD GPU that torch's ROCm build does not find. rocminfo opens /dev/kfd, so
    then the driver, its nodes and the permissions work."""
    finds_none = whys(context, "no-hip-gpus") - {"driver"} or (
        rocm_of_wheel(context)
        and (context.torch.cuda_available is False or events(context, "cuda-unavailable"))
    )
    is_listed = finds_none and events(context, "rocm-lists-gpu")
    return "rocminfo lists the GPU" if is_listed else ""


def rocm_of_wheel(context: RuleContext) -> str:
    """The ROCm release that the installed wheel of torch is for (`6.2`); "" if it is not known."""
    label = re.match(r"rocm(\d+\.\d+)", context.torch.backend or "")
    return label[1] if label else ""
