"""Causes that keep torch from using a GPU of AMD, Intel or Apple: ten for all of them."""

from __future__ import annotations

from gpusetup.causes.record import Cause, CheckCommand, Message, Refutation
from gpusetup.evidence import checks, facts, proofs
from gpusetup.evidence.context import RuleContext, events, in_container
from gpusetup.evidence.facts import reasons_of


def _rocm_finds_no_gpu(context: RuleContext) -> bool:
    """Whether ROCm or torch's ROCm build finds no GPU, so the wrong build is not the cause."""
    is_rocm = (context.torch.backend or "").startswith("rocm")
    is_none_found = is_rocm and context.torch.cuda_available is False
    return is_none_found or bool(events(context, "no-hip-gpus"))


NODES_FOR_A_CONTAINER = (
    "On the host, add `--device /dev/kfd --device /dev/dri` (Intel: only `--device /dev/dri`) and "
    '`--group-add video --group-add "$(stat -c %g /dev/dri/renderD128)"` to the command that '
    "starts the container (LXC in Proxmox: Device Passthrough; Kubernetes: the GPU vendor's device "
    "plugin). Docker Desktop on Windows does not have these devices"
)

NOT_LOADED = Message(
    title="The kernel driver of {who} is not loaded",
    means="ROCm and Level Zero access the GPU through a device node, which only the kernel driver "
    "(amdgpu, i915 or xe) creates. ROCm and torch do not include this driver.",
    text="Load amdgpu (for Intel GPUs: xe, or i915 for older ones). If the module does not load, "
    "`sudo dmesg` shows why. For example, the kernel is older than the GPU or was built without "
    "CONFIG_HSA_AMD, firmware files are missing, Secure Boot rejects the module, or a file in "
    "/etc/modprobe.d blocks it",
    commands=("sudo modprobe {module}",),
    # Source: AMD, "Configuring permissions for GPU access" and "Install Radeon software for WSL
    # with ROCm"; Linux, drivers/gpu/drm.
)
NOT_IN_THE_CONTAINER = Message(
    title="This container has no access to the GPU: {who}",
    means="A container has only the device nodes that you pass to it when it starts. `--gpus all` "
    "is an NVIDIA option and does not add them.",
    text=NODES_FOR_A_CONTAINER,
    # Source: AMD, "Running ROCm Docker containers"; Intel's container images.
)
NOT_PERMITTED = Message(
    title="This user has no permission to open {node}",
    means="The render and video groups own /dev/kfd and the render nodes. The driver is running, so "
    "reinstalling torch changes nothing.",
    text="Join the render and video groups, then log out and in again (a running tmux or Jupyter "
    "keeps the old groups, and a service such as ollama runs as a separate user).",
    commands=('sudo usermod -aG render,video "$USER"',),
    cases=(Message(where=(in_container,), text=NODES_FOR_A_CONTAINER),),
    # Source: AMD, "Configuring permissions for GPU access"; udev's rules.
)
NO_KERNELS = Message(
    where=(lambda context: bool(events(context, "hip-kernel-missing")),),
    title="{build} has no kernels for {board}",
    plain="torch's ROCm build has no kernels for this GPU",
    means="A kernel runs only on the GPU architecture (gfx…) that it was compiled for.",
)

CAUSES = (
    Cause(
        "rocm-override-wrong",
        check=CheckCommand("echo $HSA_OVERRIDE_GFX_VERSION; env -u HSA_OVERRIDE_GFX_VERSION rocminfo | grep -m1 gfx", "10.3.0\n  Name:                    gfx1100"),
        title="HSA_OVERRIDE_GFX_VERSION makes ROCm use the kernels of another GPU",
        means="The installed torch has kernels for this GPU, but the variable selects another "
        "architecture (10.3.0 means gfx1030).",
        text="Remove HSA_OVERRIDE_GFX_VERSION: this GPU does not need it. Keep the installed torch",
        # Source: ROCm documentation, environment variables.
        commands=("unset HSA_OVERRIDE_GFX_VERSION",),
    ),
    Cause(
        "apple-silicon",
        title="CUDA does not exist for Macs",
        means="On macOS, torch uses the Apple GPU through the mps device instead.",
        text="Use the mps or cpu device; torch's ordinary wheel supports both",
        # Source: torch documentation, MPS backend.
        cases=(
            Message(
                where=(lambda context: "tensors" in reasons_of(context, "mps-lacks"),),
                title="One of the program's tensors is not on the Mac's \"mps\" device",
                means="torch and Metal work, but the model, an input or a constant is on the CPU.",
            ),
        ),
        formerly=("python-for-intel-mac", "macos-too-old-for-mps", "macos-too-old"),
    ),
    Cause(
        "amd-gpu",
        certain_if=proofs.build_of_another_maker,
        title="This is an AMD GPU: torch's ROCm builds can use it, but its CUDA builds cannot",
        means="PyTorch publishes ROCm builds for Linux. AMD publishes additional ROCm builds, "
        "including some for Windows.",
        text="If ROCm supports the GPU, install torch's ROCm build",
        # Source: torch's index, labels rocm*.
        refuted_by=(
            Refutation(facts.overridden_target_has_kernels, "rocm-override-wrong"),
            Refutation(facts.only_the_maker_is_named, "", checks.WHICH_ROCM),
        ),
        cases=(
            NO_KERNELS,
            Message(
                where=(_rocm_finds_no_gpu,),
                title="ROCm cannot find a usable GPU",
                means="ROCm accesses the GPU through the kernel driver and its device nodes, so "
                "check those before you reinstall anything.",
            ),
        ),
        formerly=(
            "maker-cache-unwritable", "rocm-headers-missing", "rocm-sdk-incomplete",
            "maker-wrong-build", "rocm-arch-missing", "rocm-gpu-unsupported",
        ),
    ),
    Cause(
        "intel-gpu",
        certain_if=proofs.build_of_another_maker,
        title="This is an Intel GPU: torch's XPU build can use it, but its CUDA builds cannot",
        means="torch calls an Intel GPU `xpu`, so a program that asks for `cuda` does not find it.",
        text="Install torch's XPU build, and use the xpu device",
        # Source: torch documentation, XPU backend.
        refuted_by=(Refutation(facts.only_the_maker_is_named, "", checks.TORCHS_XPU),),
        cases=(
            Message(
                where=(lambda context: bool(events(context, "no-xpu")),),
                title="torch cannot use the Intel GPU: the device xpu is missing",
                means="The xpu device needs torch's XPU build and Intel's driver and runtime.",
            ),
        ),
        formerly=("xpu-no-float64", "level-zero-headers-missing"),
    ),
)  # fmt: skip
