"""Fixes for torch's XPU builds: Intel's runtime, and the GPU that it does not show.

Sources: PyTorch's "Getting Started on Intel GPU" (torch 2.5: an installed oneAPI; since 2.6 the
wheel requires Intel's runtime as Python packages, and only the driver is installed by hand);
Intel's pages on ZE_AFFINITY_MASK and ONEAPI_DEVICE_SELECTOR.
"""

from __future__ import annotations

import re

from gpusetup.accelerators.makers import INTEL, maker_of
from gpusetup.accelerators.other_gpus import INTEL_WITH_XPU
from gpusetup.evidence.context import RuleContext, events, in_container, on
from gpusetup.evidence.maker_facts import (
    intels_extension_fails,
    level_zero_missing,
    onednn_failed,
    xpu_counts_none,
)
from gpusetup.fixes import maker_stacks, paste, system_packages
from gpusetup.fixes.maker_stacks import pip_from
from gpusetup.model.finding import Fix
from gpusetup.model.frozen import replace
from gpusetup.model.shell import lines
from gpusetup.model.versions import parsed

FIRST_WITH_RUNTIME = "2.6"
"""The first torch whose XPU wheels install Intel's runtime with them."""

RUNTIME_DLLS = r"^(?:c10_xpu|torch_xpu|sycl\d|ur_(?:loader|adapter)|pi_|ze_loader|mkl_sycl)"
"""A pattern for torch's XPU DLLs and for those of Intel's runtime that they load."""

FIRST_WITHOUT_FLOAT64 = "2.5"
"""The first torch whose ordinary XPU operations need no float64 on the device."""


LEVEL_ZEROS_GPUS = lines("sycl-ls", "env | grep -E 'ZE_|ONEAPI_'", "ls -ln /dev/dri", "id -Gn")


def runtime_of_wheel(context: RuleContext, _text: str) -> Fix:
    """Install an XPU build together with Intel's runtime, on Windows."""
    version = context.torch.version
    install = pip_from(context, str(INTEL.index))
    driver = (
        "Also install Intel's newest graphics driver, which brings ze_loader.dll. Only if torch "
        "still does not load, install the current Visual C++ runtime (x64)"
    )
    if version and parsed(version.partition("+")[0]) >= parsed(FIRST_WITH_RUNTIME):
        return Fix(
            text="Reinstall torch from the XPU index with the packages that it requires (without "
            f"`--no-deps`): they contain Intel's runtime. {driver}",
            commands=(install,),
        )
    return Fix(
        text="Install the newest torch from the XPU index. Its wheels bring Intel's runtime since "
        f"torch {FIRST_WITH_RUNTIME}; those of 2.5 find it only in a shell in which oneAPI's "
        f"setvars.bat was called. {driver}",
        commands=(install,),
        alternatives=paste.other(
            "to keep torch 2.5, in the Command Prompt that then starts Python",
            *lines('call "C:\\Program Files (x86)\\Intel\\oneAPI\\setvars.bat"'),
        ),
    )


def without_float64(context: RuleContext, _text: str) -> Fix:
    """Avoid float64 on a GPU that does not compute it: by a newer torch, in float32, on the CPU or
    emulated."""
    float32 = (
        'use float32: `.float()` before `.to("xpu")`, `dtype=torch.float32` for new tensors, and '
        "float32 for arrays from NumPy, which are float64 by default. Or move this operation to "
        'the CPU (`.to("cpu")`). In mixed precision, use `torch.autocast` with bfloat16 and no '
        "GradScaler, which computes in float64"
    )
    emulation = paste.other(
        "let Intel's driver emulate float64 (slow), in the shell that starts the program",
        paste.setting(context, "OverrideDefaultFP64Settings", "1"),
        paste.setting(context, "IGC_EnableDPEmulation", "1"),
    )
    newer = "ordinary operations on xpu no longer need float64 there"
    if events(context, "ipex"):
        fix = maker_stacks.without_ipex(context)
        return replace(
            fix,
            text=f"{fix.text}. If your own code uses float64, {float32}",
            alternatives=emulation,
        )
    version = (context.torch.version or "").partition("+")[0]
    # The message comes from an installed torch, which pip would otherwise keep.
    install = paste.pip(
        context, "install", "--force-reinstall", *TORCH, "--index-url", str(INTEL.index)
    )
    if version and parsed(version) < parsed(FIRST_WITHOUT_FLOAT64):
        return Fix(
            text=f"Use torch {FIRST_WITHOUT_FLOAT64} or newer from the XPU index, because {newer}. "
            f"If your own code uses float64, {float32}",
            commands=(install,),
            alternatives=emulation,
        )
    text = f"{float32[0].upper()}{float32[1:]}"
    if version:
        return Fix(text=text, alternatives=emulation)
    older = f"If torch is older than {FIRST_WITHOUT_FLOAT64}, update it first: {newer}"
    newest = paste.other("the newest torch from the XPU index", install)
    return Fix(text=f"{text}. {older}", alternatives=(*newest, *emulation))


TORCH = ("torch", "torchvision")
XPUS_OF_TORCH = (
    'python -c "import torch; print(torch.__version__, '
    '[torch.xpu.get_device_name(i) for i in range(torch.xpu.device_count())])"'
)


def newest_of_both(context: RuleContext) -> Fix:
    """The newest torch and the newest driver, for an operation that does not start on the GPU."""
    runtime = (
        "Intel's newest graphics driver"
        if on(context, "windows")
        else "Intel's newest compute runtime (libze-intel-gpu1, intel-opencl-icd)"
    )
    return Fix(
        text="Install the newest torch from the XPU index, because its oneDNN knows more GPUs, and "
        f"{runtime}. If torch lists the processor's graphics too, select the card "
        "(ONEAPI_DEVICE_SELECTOR=level_zero:N, with its number). Start the program in a shell in "
        "which oneAPI's setvars was not called",
        commands=(pip_from(context, str(INTEL.index)),),
        looks=paste.look("see torch's version and its GPUs", *lines(XPUS_OF_TORCH)),
    )


def shows_no_gpu(context: RuleContext) -> Fix:
    """What to do if torch's XPU build, or Intel's extension, runs and counts no GPU."""
    if older := graphics_without_xpu(context):
        return Fix(
            text="torch's XPU builds are made for Arc cards, the Arc graphics of Core Ultra, and "
            f"Data Center GPU Max. PyTorch's list does not have {older}: use the CPU build of "
            "torch, or OpenVINO, which supports this GPU"
        )
    looks = paste.look("see what Level Zero shows", *LEVEL_ZEROS_GPUS)
    if in_container(context):
        fix = maker_stacks.into_container(context, INTEL)
        return replace(
            fix,
            text=f"{fix.text}. The image needs Intel's compute runtime (libze1, libze-intel-gpu1) "
            "in a release that knows this GPU, and the host a kernel whose driver (i915 or xe) "
            "supports it",
        )
    if on(context, "windows"):
        return Fix(
            text="Install Intel's newest graphics driver and restart. Make sure that "
            "ZE_AFFINITY_MASK and ONEAPI_DEVICE_SELECTOR are not set. torch's XPU builds support "
            "Arc and newer GPUs, not UHD and Iris graphics",
        )
    if context.os.wsl:
        return Fix(
            text="Install Intel's newest graphics driver on Windows, and Intel's Level Zero "
            "packages (libze1, libze-intel-gpu1) in WSL. There `sycl-ls` must print "
            "level_zero:gpu",
            looks=paste.look("see what Level Zero shows", *lines("ls -l /dev/dxg", "sycl-ls")),
        )
    in_a_job = bool(events(context, "slurm-job", "login-node"))
    job = "In a job, request a GPU from the scheduler first. " if in_a_job else ""
    return Fix(
        text=f"{job}The kernel's driver must own the GPU: `lspci -k` names i915 or xe, and "
        "/dev/dri has a renderD node (if not, install Intel's driver for this kernel, and "
        "restart). Then Level Zero must list the GPU (`sycl-ls` prints level_zero:gpu; OpenCL "
        "alone is not enough). If it does not, install Intel's Level Zero packages (libze1, "
        "libze-intel-gpu1) and join the group `render`. If it does, ZE_AFFINITY_MASK or "
        "ONEAPI_DEVICE_SELECTOR hides the GPU, or another oneAPI's libraries are loaded first "
        f"(LD_LIBRARY_PATH){_without_ipex(context)}",
        alternatives=paste.other(
            "if it runs in a container", *maker_stacks.START[INTELS_IN_DOCKER]
        ),
        looks=looks,
        needs_root=not in_a_job,
    )


# `Iris Xe`, `UHD Graphics 770`, `HD Graphics 630`.
OLDER_GRAPHICS = re.compile(
    r"(?i)\b(?:Iris(?:\(R\))?(?: (?:Xe|Plus|Pro))?|UHD(?: Graphics)?(?: \d{3})?"
    r"|HD Graphics(?: \d{3,4})?)\b"
)


WITHOUT_LIBRARY_PATH = lines(
    'env -u LD_LIBRARY_PATH python -c "import torch; print(torch.xpu.is_available())"'
)
SETVARS = lines("env | grep -iE 'oneapi|LD_LIBRARY_PATH'", "grep -n setvars ~/.bashrc ~/.profile")


def without_oneapi(context: RuleContext, _text: str) -> Fix:
    """Start the program without the variables of an installed oneAPI."""
    return Fix(
        text="Start the program in a new shell in which oneAPI's setvars was not called (remove "
        "its line from your shell's start file): torch's XPU wheels bring their own runtime since "
        f"torch {FIRST_WITH_RUNTIME}, and do not need an installed oneAPI. You do not need another "
        "torch or driver",
        commands=() if on(context, "windows") else WITHOUT_LIBRARY_PATH,
        looks=()
        if on(context, "windows")
        else paste.look("see which variables oneAPI has set, and where", *SETVARS),
    )


def graphics_without_xpu(context: RuleContext) -> str:
    """The name of older Intel graphics in a text that names no newer Intel GPU; "" if there is
    none."""
    lines_with_gpus = [gpu.text or "" for gpu in events(context, "foreign-gpu")]
    if any(INTEL_WITH_XPU.search(line.lower()) for line in lines_with_gpus):
        return ""
    older = map(OLDER_GRAPHICS.search, lines_with_gpus)
    return next((match[0] for match in older if match), "")


INTELS_IN_DOCKER = (INTEL.id, "docker")


def _without_ipex(context: RuleContext) -> str:
    """What to know of Intel's ended extension, if the text uses it; otherwise ""."""
    if not intels_extension_fails(context):
        return ""
    return (
        ". Once it is listed, use torch's own XPU build (https://download.pytorch.org/whl/xpu) in "
        "place of intel-extension-for-pytorch, which Intel ended in March 2026"
    )


HEADERS_PACKAGES = {
    "ubuntu": "libze-dev",
    "debian": "libze-dev",
    "fedora": "oneapi-level-zero-devel",
    "rhel": "level-zero-devel",
    "suse": "level-zero-devel",
    "arch": "level-zero-headers",
}
"""A family of distributions -> the package with Level Zero's headers. Intel's own repository for
Ubuntu calls older releases of it level-zero-dev."""


def level_zero_headers(context: RuleContext, _text: str) -> Fix:
    """Install Level Zero's development headers, with which Triton compiles its helper."""
    if on(context, "windows"):
        return Fix(
            text="Download the Level Zero SDK (level-zero-win-sdk, a zip file among the releases "
            "of the project level-zero), unpack it, and set ZE_PATH to the folder that contains "
            "`include` and `lib`. Keep torch and the graphics driver. Triton also needs the C++ "
            "compiler of Visual Studio's Build Tools",
            commands=(paste.setting(context, "ZE_PATH", r"C:\level-zero-sdk"),),
        )
    family = system_packages.linux_family(context) or ""
    package = HEADERS_PACKAGES.get(family, "")
    names = "libze-dev (older: level-zero-dev) on Ubuntu and Debian"
    return Fix(
        text=f"Install Level Zero's development package: {names}, oneapi-level-zero-devel on "
        "Fedora, level-zero-headers on Arch. If the headers are in another folder, set ZE_PATH to "
        "the folder that contains `include`. Keep torch and the driver",
        commands=system_packages.package_of(family, package),
        alternatives=()
        if package
        else paste.other(
            "on Ubuntu and Debian", *system_packages.package_of("ubuntu", "libze-dev")
        ),
        needs_root=True,
    )


LEVEL_ZERO_PACKAGES = {
    "ubuntu": lines("sudo apt install -y libze1 libze-intel-gpu1"),
    "debian": lines("sudo apt install -y libze1 libze-intel-gpu1"),
    "fedora": lines("sudo dnf install -y oneapi-level-zero intel-level-zero"),
    "arch": lines("sudo pacman -S --noconfirm level-zero-loader intel-compute-runtime"),
}
"""A family of distributions -> the command that installs Level Zero's loader and Intel's driver for
it."""


def _level_zero(context: RuleContext, library: str) -> Fix:
    """Install Level Zero, of which neither torch's wheels nor oneAPI contain the loader."""
    family = system_packages.linux_family(context) or ""
    commands = LEVEL_ZERO_PACKAGES.get(family, ())
    return Fix(
        text=f"Install Level Zero: {library} comes with the system's packages libze1 and "
        "libze-intel-gpu1 (older names: level-zero and intel-level-zero-gpu, in Intel's repository "
        f"for graphics), and not with torch or oneAPI{_without_ipex(context)}",
        commands=commands,
        alternatives=()
        if commands
        else paste.other("on Ubuntu and Debian", *LEVEL_ZERO_PACKAGES["ubuntu"]),
        needs_root=True,
    )


XE_LOG = lines("sudo dmesg | grep -iE 'xe |i915|guc' | tail -n 40")


def for_intel(context: RuleContext) -> Fix:
    """The fix for an Intel GPU: its driver if torch could not start the GPU, the XPU build if it is
    missing, otherwise how to select the device."""
    why = {event.values.get("why") for event in events(context, "no-xpu")}
    if "lost" in why:
        return Fix(
            text="Install the newest kernel and linux-firmware of your distribution and Intel's "
            "newest compute runtime (on Windows: Intel's newest graphics driver). If the GPU is "
            "still lost, try the newest torch from the XPU index, a smaller batch or image, and "
            "report the kernel's messages to Intel. You do not need another build of torch",
            looks=()
            if on(context, "windows")
            else paste.look("see the driver's messages", *XE_LOG),
            needs_root=True,
        )
    if library := level_zero_missing(context):
        return _level_zero(context, library)
    if xpu_counts_none(context):
        return shows_no_gpu(context)
    if "platforms" in why:
        return Fix(
            text="Two Intel GPUs of different generations (a card and the processor's graphics) "
            "are in one process: let the program see the card only. If it is number 1 in "
            "`sycl-ls`, use level_zero:1",
            commands=(paste.setting(context, "ONEAPI_DEVICE_SELECTOR", "level_zero:0"),),
        )
    if intels_extension_fails(context):
        return maker_stacks.without_ipex(context)
    if onednn_failed(context):
        return newest_of_both(context)
    if why and "build" not in why:
        return Fix(
            text='Install or update Intel\'s GPU driver; torch then finds the device "xpu". On '
            "Linux also install the Level Zero and compute runtime packages, and join the group "
            "`render`. Arc cards also need Resizable BAR, which is switched on in the firmware "
            "(BIOS)",
            needs_root=True,
        )
    lacks_cuda = events(context, *maker_stacks.SHOW_A_TORCH)
    runs_on_xpu = events(context, "backend-runs") and not lacks_cuda
    if maker_of(context.torch.backend) == "intel" or runs_on_xpu:
        return Fix(text=f'torch\'s XPU build calls this GPU "xpu". {CHOOSE_XPU}')
    return Fix(
        text=f'Install torch\'s XPU build, which uses this GPU as the device "xpu". {CHOOSE_XPU}',
        commands=(pip_from(context, str(INTEL.index)),),
    )


CHOOSE_XPU = (
    'In your own code, replace "cuda" with "xpu"; in a program, choose XPU (or Intel) in its '
    "options or settings"
)
