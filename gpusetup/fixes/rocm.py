"""Fixes for torch's ROCm builds that find no GPU, although ROCm's own tools list one.

Sources: AMD's pages "GPU isolation techniques" (HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES,
CUDA_VISIBLE_DEVICES) and "Install PyTorch for ROCm" of WSL (the wheel's own libhsa-runtime64).
"""

from __future__ import annotations

from gpusetup.accelerators.amd import BUILT_FOR, has_kernels
from gpusetup.accelerators.makers import AMD
from gpusetup.evidence.context import RuleContext, in_container
from gpusetup.evidence.maker_facts import rocm_lists_the_gpu, rocm_of_wheel
from gpusetup.fixes import maker_stacks, paste
from gpusetup.model.finding import Fix
from gpusetup.model.frozen import replace
from gpusetup.model.shell import lines

WHAT_TORCH_READS = lines(
    "env | grep -E 'VISIBLE_DEVICES|HSA_'",
    'python -c "import sys, torch; print(sys.executable, torch.__version__, torch.version.hip)"',
    "rocminfo | grep -i gfx",
)


def targets_of_wheel(context: RuleContext) -> str:
    """The targets for which the installed wheel has kernels, with the wheel's ROCm release; for an
    unknown release, those of the newest wheels."""
    rocm = rocm_of_wheel(context)
    if not rocm:
        return f"{', '.join(BUILT_FOR)} (older wheels have fewer)"
    version = context.torch.version or ""
    targets = [target for target in BUILT_FOR if has_kernels(target, rocm, version) is not False]
    return f"{', '.join(targets)} (at most, in wheels for ROCm {rocm})"


def hidden_from_torch(context: RuleContext, target: str | None) -> Fix:
    """What keeps torch's ROCm build from a GPU that ROCm's own tools list: a variable, another
    Python or torch, or a target without kernels."""
    shown = rocm_lists_the_gpu(context)
    if shown.startswith("rocminfo"):
        works = f"{shown}, so the kernel driver, its device nodes and your permissions work"
    else:
        works = (
            f"{shown}, so the kernel driver works. Only /dev/kfd may still be closed to your user: "
            "run `rocminfo`, which opens it (if that fails, join the groups render and video)"
        )
    if in_container(context):
        works += ". In a container, this must be true inside it"
    if context.os.wsl:
        return Fix(
            text=f"{works}. In WSL, torch must load ROCm's library for WSL: delete "
            "libhsa-runtime64.so* from the folder torch/lib of your environment, because the wheel "
            "brings its own, which looks for /dev/kfd. Or install AMD's wheels for WSL "
            "(https://rocm.docs.amd.com)",
        )
    rocm = rocm_of_wheel(context)
    version = context.torch.version or ""
    if target and rocm and has_kernels(target, rocm, version) is False:
        fix = maker_stacks.kernels_for_target(context, target, rocm)
        return replace(fix, text=f"{works}. {fix.text}")
    set_masks = [name for name in AMD.masks if name in context.snapshot.environment]
    masks = set_masks or list(AMD.masks)
    kernels = (
        f"{'This wheel has' if rocm else 'Current wheels of torch have'} kernels for {target}"
        if target in BUILT_FOR
        else "The wheel may also lack kernels for the GPU: it has them for "
        f"{targets_of_wheel(context)}"
    )
    commands = [line for name in masks for line in paste.unset(context, name)]
    return Fix(
        text=f"{works}. First remove the variables that can hide the GPU ({', '.join(masks)}: an "
        "empty value, -1 or a wrong number hides every GPU). Then make sure that the program runs "
        f"the Python and the torch that you expect. {kernels}",
        commands=tuple(commands),
        looks=paste.look("see what torch reads, and the GPU's target", *WHAT_TORCH_READS),
    )
