"""What to do for GPUs of AMD, Intel and Apple: the right build of torch, and the way to the GPU.

No function leads to another maker's build.

Sources: AMD's "Running ROCm Docker containers" and "Install PyTorch for ROCm" of WSL and of Windows
(rocm.docs.amd.com), PyTorch's "Getting Started on Intel GPU" and its page on the MPS backend; read
in November 2026.
"""

from __future__ import annotations

from gpusetup.accelerators.amd import RELATIVES, SERVED_CARDS, has_kernels
from gpusetup.accelerators.apple import OLDEST_MACOS, TORCH_ON_MACOS_14
from gpusetup.accelerators.makers import AMD, INTEL, Maker, maker_of
from gpusetup.accelerators.other_gpus import has_a_build
from gpusetup.choose.other_makers import NAME_OF_BUILDS
from gpusetup.evidence.context import RuleContext, events, is_report, on
from gpusetup.evidence.facts import reasons_of, rocm_of_wheel
from gpusetup.fixes import paste
from gpusetup.model.finding import Fix
from gpusetup.model.frozen import replace
from gpusetup.model.shell import lines

ROCM_IN_WSL = Fix(
    text="Install AMD's Adrenalin driver on Windows (26.2.2 or newer), then ROCm and librocdxg "
    "inside WSL, as described on AMD's page for WSL "
    "(https://rocm.docs.amd.com/projects/radeon-ryzen/en/latest/docs/install/installrad/wsl/howto_wsl.html),"
    " which lists the supported GPUs. Do not install the amdgpu driver in WSL"
)
"""What ROCm needs in WSL, where it reaches the GPU through a library and not through /dev/kfd."""

# --- builds of torch ------------------------------------------------------------------------------

USE_XPU = (
    'In your own code, replace "cuda" with "xpu"; in a program, choose XPU (or Intel) in its '
    "options or settings"
)


def build_for(context: RuleContext, maker: Maker, target: str | None = None) -> Fix:
    """Install torch's build for a maker's GPU. `target` is an AMD GPU's (`gfx1100`), if known."""
    build, stack = context.choice.build, context.snapshot.makers
    name = f"torch's {NAME_OF_BUILDS[maker.id]} build"
    words = ("torch", "torchvision", "--index-url", str(maker.index))
    # Without --force-reinstall, pip keeps another maker's build of the same version.
    install = paste.pip(context, "install", "--force-reinstall", *words)
    if maker is AMD and target is None:
        return Fix(
            text=f"Install {name} if it supports your GPU: {SERVED_CARDS} (`rocminfo | "
            "grep gfx` prints the GPU's architecture). Otherwise, use the CPU build",
            alternatives=paste.titled("if the GPU is one of these", install),
        )
    # The text names the maker but no GPU, so the fitting build is not known.
    if stack is None:
        return Fix(text=f"Install {name} from its own index", commands=(install,))
    # For a GPU without any build, the choice keeps the ROCm label that a text shows.
    if build is None or maker_of(build.backend) != maker.id or not has_a_build(stack):
        return Fix(text=f"{name} has no release for {target or 'this GPU'}. Use the CPU build")
    fix = paste.install_torch(context)
    by_hand = paste.by_hand(context)
    # `gpusetup install` would choose the build for the machine on which the text is read.
    if is_report(context) and by_hand:
        text = f"Install torch {build.torch} from {build.backend}, which is built for this GPU"
        named = f"{text} ({target})" if target else text
        fix = replace(fix, text=named, commands=by_hand[0].commands, alternatives=())
    if maker is INTEL:
        return replace(fix, text=f"{fix.text}. {USE_XPU}")
    if target in RELATIVES and _uses_rocms_variables(context):
        relative, override = RELATIVES[target]
        return Fix(
            text=f"None of PyTorch's wheels has kernels for {target}, but the GPU can run the "
            f"kernels of the related {relative} if you set HSA_OVERRIDE_GFX_VERSION. AMD does not "
            "support this, so test the results with `gpusetup verify`",
            commands=(paste.setting(context, "HSA_OVERRIDE_GFX_VERSION", override),),
            alternatives=paste.titled(f"AMD's own wheels for {target}", *fix.commands),
        )
    return fix


def _uses_rocms_variables(context: RuleContext) -> bool:
    """Whether the installed torch may read ROCm's variables: builds for CUDA or the CPU ignore
    them, as does ROCm in WSL and on Windows."""
    backend = context.torch.backend
    may_be_rocm = backend != "cpu" and maker_of(backend) in (None, AMD.id)
    return may_be_rocm and on(context, "linux") and not context.os.wsl


def target_of(context: RuleContext) -> str | None:
    """The target (`gfx1100`) of the first AMD GPU whose target is known."""
    stack = context.snapshot.makers
    gpus = stack.gpus if stack else ()
    return next((gpu.target for gpu in gpus if gpu.target), None)


# --- a text about a GPU of AMD or Intel -----------------------------------------------------------


def for_amd(context: RuleContext) -> Fix:
    """The fix for an AMD GPU in a text: a build with kernels if those are lacking, the way to the
    GPU if a ROCm build does not reach it, otherwise a ROCm build."""
    target, rocm = target_of(context), rocm_of_wheel(context)
    # Only a ROCm build prints this message.
    reports_none = bool(events(context, "no-hip-gpus"))
    is_rocm = maker_of(context.torch.backend) == AMD.id or reports_none
    finds_none = reports_none or (is_rocm and context.torch.cuda_available is False)
    # torch counts a GPU without kernels, so a torch that finds none does not reach the GPU at all.
    lacks_kernels = bool(target and rocm and has_kernels(target, rocm) is False)
    is_wrong_build = not is_rocm or (lacks_kernels and not finds_none)
    if events(context, "hip-kernel-missing") or is_wrong_build:
        return build_for(context, AMD, target)
    if context.os.wsl:
        return ROCM_IN_WSL
    # On Windows, there are no groups or device nodes: only AMD's own build reaches the GPU.
    if finds_none and on(context, "windows"):
        return build_for(context, AMD, target)
    if finds_none:
        return Fix(
            text="The build is right, so check whether your user may use the GPU: `rocminfo` must "
            "list the GPU. If it does not, join the groups render and video. If /dev/kfd is "
            "missing, the kernel has no amdgpu driver for this GPU (in a container: `--device "
            "/dev/kfd --device /dev/dri`). Unset the variables that can hide the GPU "
            f"({', '.join(AMD.masks)})",
            commands=lines('sudo usermod -aG render,video "$USER"'),
            needs_root=True,
        )
    return Fix(
        text="Keep the installed torch, which is a ROCm build, and do not install a CUDA toolkit. "
        "A package requires CUDA's own libraries: install that package's ROCm build, or turn off "
        "the option that needs CUDA"
    )


def for_intel(context: RuleContext) -> Fix:
    """The fix for an Intel GPU in a text: its driver if torch does not reach the GPU, the XPU build
    if it is missing, otherwise how to select the device."""
    # The reasons that torch's message gives: the GPU lacks float64, or its driver is missing.
    why = reasons_of(context, "no-xpu")
    if "float64" in why:
        return Fix(
            text='Use float32: `.float()` before `.to("xpu")`, also for arrays from NumPy, which '
            'are float64. Or move this operation to the CPU (`.to("cpu")`)'
        )
    if "driver" in why:
        return Fix(
            text="Install Intel's driver for this GPU (on Linux, the compute runtime with Level "
            "Zero: libze1, libze-intel-gpu1; in WSL, also the driver on Windows; in a container, "
            "pass /dev/dri to it), as described on "
            "https://docs.pytorch.org/docs/main/notes/get_start_xpu.html, and join the group "
            "`render`. `sycl-ls` must print level_zero:gpu. If it does but torch cannot find the "
            "GPU, ZE_AFFINITY_MASK or ONEAPI_DEVICE_SELECTOR hides the GPU, or oneAPI's setvars.sh "
            "put other libraries first",
            needs_root=True,
        )
    runs_on_xpu = events(context, "backend-runs") and not events(context, "no-xpu")
    if maker_of(context.torch.backend) == INTEL.id or runs_on_xpu:
        return Fix(text=f'torch\'s XPU build calls this GPU "xpu". {USE_XPU}')
    return build_for(context, INTEL)


# --- a text about a Mac ---------------------------------------------------------------------------

FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"
"""The variable that lets torch compute operators on the CPU that mps lacks. It catches an operator
without any code for mps (torch's MPSFallback.mm), and not an error inside the operator's code."""

MPS_ADVICE = {
    "tensors": "MPS works, but a tensor of this call is on the CPU or has another type. Move the "
    'model and every input to "mps" and keep the result (`x = x.to("mps")`), because `.to()` '
    "returns a copy. To find it, add `print(x.device, x.dtype)` before the line in your traceback",
    "dtype": '"mps" does not support this type: use float32 instead of float64, float16 instead of '
    'float8, or keep these tensors on "cpu"',
}
"""A reason in torch's message -> what to do."""


def for_mac(context: RuleContext) -> Fix:
    """The fix on a Mac in a text: for what mps lacks, or else how to select the device."""
    if events(context, "built-for-another-processor"):
        return NATIVE_PYTHON
    lacks, why = events(context, "mps-lacks"), reasons_of(context, "mps-lacks")
    # torch was built with MPS, but Metal gives it no device.
    if "metal" in why:
        return reach_metal(context)
    for reason, text in MPS_ADVICE.items():
        if reason in why:
            return Fix(text=text)
    if lacks:
        return Fix(
            text='The program already uses "mps", but mps does not support this operation. Let '
            f"torch run such operators on the CPU ({FALLBACK}=1, set before the program imports "
            "torch), or update torch and macOS. If the error remains, run this part on the CPU "
            '(`.to("cpu")`; sparse tensors: `.to_dense()`)',
            commands=(paste.setting(context, FALLBACK, "1"),),
        )
    # A text about torch usually comes from an installed torch.
    missing = events(context, "torch-missing") or context.torch.installed is False
    return Fix(
        text='Since torch 1.12, the ordinary wheel supports Apple GPUs through the device "mps". '
        'Replace "cuda" in your code with "mps" or "cpu"',
        commands=(paste.pip(context, "install", "torch", "torchvision"),) if missing else (),
    )


NATIVE_PYTHON = Fix(
    text="Create an environment with a Python for Apple silicon (arm64) and install torch "
    "there. torch 2.2.2 is the last release for Intel Macs",
    commands=lines(
        "uv venv --python cpython-3.12-macos-aarch64 .venv-arm64",
        "gpusetup install --venv .venv-arm64",
    ),
)
"""Replaces a translated Python with one for Apple's processors."""


def reach_metal(context: RuleContext) -> Fix:
    """What to do if torch was built with MPS, but MPS is not available."""
    if context.os.machine == "x86_64":
        return NATIVE_PYTHON
    return Fix(
        text=f"Since torch {TORCH_ON_MACOS_14}, MPS needs macOS {OLDEST_MACOS} or newer "
        "(`sw_vers` prints your version). Update macOS, or use an older torch. If your macOS is "
        "new enough, the process cannot use Metal because it runs in a sandbox, an ssh session, a "
        "VM or a container. Run it in a terminal of the user who is logged in at the screen"
    )
