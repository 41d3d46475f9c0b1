"""Fixes for GPUs of AMD and Intel, by the target that the text names and by what is installed."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpusetup.accelerators.amd import (
    BUILT_FOR,
    DROPPED,
    FIRST_ROCM,
    FIRST_TORCH,
    LAST_ROCM,
    RELATIVES,
    SERVED_CARDS,
    WINDOWS_TARGETS,
    WSL_TARGETS,
    gfx_of,
)
from gpusetup.accelerators.intel import device_has_xpu
from gpusetup.accelerators.makers import AMD, INTEL, maker_of
from gpusetup.accelerators.other_gpus import has_xpu, maker_named
from gpusetup.choose.installed import vendors_of
from gpusetup.evidence.context import RuleContext, events, has_nvidia, on
from gpusetup.evidence.gpu_facts import lacks_target_on_windows
from gpusetup.evidence.maker_facts import (
    crashes_without_kernels,
    devices_in_rocms_list,
    rocm_lists_the_gpu,
)
from gpusetup.fixes import maker_stacks, owners, paste, rocm
from gpusetup.fixes.maker_stacks import last_rocm_of, pip_from, pytorchs_index
from gpusetup.model.finding import Alternative, Fix
from gpusetup.model.frozen import replace
from gpusetup.model.machine import MakerStack
from gpusetup.model.shell import filled, lines
from gpusetup.model.versions import parsed

AMDS_FOR_WINDOWS = "AMD's builds for Windows: https://rocm.docs.amd.com"
"""PyTorch's index has ROCm builds for Linux only (as of November 2026)."""


def first_install(context: RuleContext) -> Fix | None:
    """Install torch for the only GPU in the text, if it is from another maker."""
    if has_nvidia(context):
        return None
    makers = vendors_of(context.snapshot)
    gpu_names = " ".join(event.values.get("name", "") for event in events(context, "foreign-gpu"))
    if names_gpu_with_xpu(context):
        return Fix(
            text="Install torch's XPU build, which uses this GPU as the device xpu. The ordinary "
            "build would only use the CPU",
            commands=(pip_from(context, str(INTEL.index)),),
        )
    if "amd" in makers and gfx_of(gpu_names) in BUILT_FOR and not on(context, "windows"):
        return Fix(
            text="Install torch's ROCm build, which uses this GPU. The ordinary build would not",
            commands=(pip_from(context, str(AMD.index)),),
        )
    return None


def names_gpu_with_xpu(context: RuleContext) -> bool:
    """Whether a text names an Intel GPU that torch's XPU builds support, in contrast to the older
    graphics of Intel's processors."""
    names = [gpu.values.get("name", "") for gpu in events(context, "foreign-gpu")]
    if any(maker_named(name) is INTEL and has_xpu(name) for name in names):
        return True
    devices = context.snapshot.pci_devices or ()
    return any(
        device.vendor == INTEL.id and device_has_xpu(device.device_id, device.name)
        for device in devices
    )


# --- AMD ----------------------------------------------------------------------------------------


class Board(NamedTuple):
    """The AMD GPU that a text or the PCI bus shows."""

    name: str
    target: str | None
    """The target that its kernels are compiled for, for example gfx1201."""


def amd_board(context: RuleContext) -> Board:
    """The first AMD GPU whose target is known."""
    events_of_boards = (
        *events(context, "hip-kernel-missing"),
        *events(context, "foreign-gpu"),
    )
    names = [event.values.get("gfx") or event.values.get("name", "") for event in events_of_boards]
    names += [gpu.name for gpu in context.snapshot.gpus or ()]
    for name in names:
        if target := gfx_of(name):
            return Board(name, target)
    for device in devices_in_rocms_list(context):
        return Board(device.name, device.target)
    return Board("This GPU", None)


def amd(context: RuleContext) -> Fix:
    """The fix for an AMD GPU, after a note if HSA_OVERRIDE_GFX_VERSION is set to a wrong target."""
    fix = _for_board(context)
    note = note_on_override(context)
    return replace(fix, text=f"{note}. {fix.text}") if note else fix


def note_on_override(context: RuleContext) -> str:
    """What to know first about the HSA_OVERRIDE_GFX_VERSION that a text sets: whether it fits the
    GPU's target. "" if the text sets none, or shows no target."""
    variable = "HSA_OVERRIDE_GFX_VERSION"
    if events(context, "override-hangs"):
        return f"Remove {variable}: you report that this GPU hangs or crashes with it"
    value = context.snapshot.environment.get(variable, "")
    target = amd_board(context).target
    numbers = value.split(".")
    if target is None or len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        return ""
    if on(context, "windows"):
        return f"HIP for Windows does not read {variable}, so remove it"
    major, minor, stepping = (int(number) for number in numbers)
    target_of_override = f"gfx{major}{minor:x}{stepping:x}"
    _, fitting_value = RELATIVES.get(target, ("", ""))
    if target_of_override == target:
        return ""
    if value == fitting_value:
        return (
            f"{variable}={value} is the right value for this GPU ({target}). Make sure that the "
            "program receives it, because services and containers have their own variables"
        )
    if fitting_value:
        return f"{variable}={value} does not fit this GPU ({target}): set it to {fitting_value}"
    return (
        f"First remove {variable}={value}: it makes ROCm load kernels for {target_of_override}, "
        f"and on this GPU ({target}) those can crash the program or the machine"
    )


HIP_OPTIONS = {
    **dict.fromkeys(("llama.cpp", "whisper.cpp"), "GGML_HIP"),
    "stable-diffusion.cpp": "SD_HIPBLAS",
}
"""A program on ggml -> the option of cmake that builds it for ROCm (the projects' build pages)."""


def without_rocms_kernels(context: RuleContext, program: str) -> Fix:
    """The fix for a program without torch whose ROCm build has no kernels for the GPU."""
    by_variable = " (set OLLAMA_VULKAN=1 for its server)" if program == "ollama" else ""
    vulkan = (
        f"Use the Vulkan build of {program}{by_variable}, which does not depend on ROCm's list of "
        "GPUs, or its build for the CPU"
    )
    target = amd_board(context).target
    if target and program in HIP_OPTIONS:
        own_build = f"`cmake -B build -D{HIP_OPTIONS[program]}=ON -DGPU_TARGETS={target}`"
        vulkan += f". Or compile {program} for this target, with ROCm's SDK: {own_build}"
    note = note_on_override(context)
    relative, version = RELATIVES.get(amd_board(context).target or "", ("", ""))
    if not note and relative and on(context, "linux"):
        note = (
            f"Set HSA_OVERRIDE_GFX_VERSION={version} to use the kernels of the related {relative}"
        )
    return Fix(text=f"{note}. If that does not help: {vulkan}" if note else vulkan)


def _for_board(context: RuleContext) -> Fix:
    """The fix for an AMD GPU. It depends on what failed (kernels for the target, the driver),
    otherwise on the GPU."""
    if translation := owners.translation_layer(context):
        return Fix(text=translation.sentence)
    lacking = events(context, "hip-kernel-missing") or crashes_without_kernels(context)
    is_rocm = maker_of(context.torch.backend) == "amd" or _hip_ran(context)
    board, windows = amd_board(context), on(context, "windows") or bool(context.os.wsl)
    is_served = board.target in (None, *BUILT_FOR)
    if is_rocm and context.torch.cuda_available and is_served and not lacking:
        return Fix(
            text="Keep the installed torch: its ROCm build sees the GPU. The program, or a "
            "package that it loads, needs CUDA's own libraries. Install that package's build for "
            "ROCm if there is one, or turn off the option that needs the package"
        )
    if context.snapshot.container.kind == "kubernetes":
        return Fix(
            text="Give the pod the GPU with AMD's device plugin (resources.limits `amd.com/gpu: "
            "1`), and use an image with a ROCm build of torch (rocm/pytorch)"
        )
    ran_in_wsl = events(context, "named-by-torch", "ran-first", "gpu-in-use")
    if context.os.wsl and not ran_in_wsl and board.target not in (None, *WSL_TARGETS, *DROPPED):
        return _on_windows_itself(context, board)
    program = context.snapshot.failing.program
    if on(context, "windows") and program in WITHOUT_ROCM_ON_WINDOWS and not is_rocm:
        if board.target in WINDOWS_TARGETS and not _is_too_old_for_amds_wheels(context):
            fix = maker_stacks.from_amds_index(context, board.target)
            other_way = WITHOUT_ROCM_ON_WINDOWS[program]
            return replace(fix, text=f"{fix.text} If that does not work here: {other_way}")
        return Fix(
            text=f"{WITHOUT_ROCM_ON_WINDOWS[program]}. Or install AMD's ROCm build of torch for "
            f"Windows, if AMD publishes one for this GPU ({AMDS_FOR_WINDOWS})"
        )
    if is_rocm and events(context, "cuda-toolkit-missing"):
        package = context.snapshot.failing.program or "the package"
        return Fix(text=BUILD_FOR_ROCM.format(package))
    if missing_target := lacks_target_on_windows(context):
        fix = maker_stacks.from_amds_index(context, missing_target)
        why = (
            f"torch {context.torch.version} is AMD's release for Windows, which is made for Radeon "
            f"RX 7000 and 9000 and Ryzen AI and not for {missing_target}"
        )
        return replace(fix, text=f"{why}. {fix.text}")
    commands = () if windows else lines("ls -l /dev/kfd /dev/dri", "rocminfo | grep -i gfx")
    looks = paste.look("check ROCm's device nodes and its list of GPUs", *commands)
    finds_none = is_rocm or events(context, "no-hip-gpus")
    lists_it = rocm_lists_the_gpu(context)
    if finds_none and context.os.wsl and not (lacking or lists_it):
        return rocm.library_of_wsl()
    # torch reports a GPU without kernels, so a torch that finds none does not reach it.
    sees_none = is_rocm and context.torch.cuda_available is False
    reaches_none = sees_none and not (lacking or lists_it or board.target in DROPPED)
    if not reaches_none and (without_kernels := _without_kernels(context, board, windows=windows)):
        return replace(without_kernels, looks=looks)
    if reaches_none and on(context, "linux"):
        return _rights_first(context, board)
    # AMD's own index is the only one with ROCm builds for Windows.
    if on(context, "windows") and not context.os.wsl and board.target:
        if board.target not in WINDOWS_TARGETS:
            return maker_stacks.from_amds_index(context, None)
        if not (is_rocm or _hip_ran(context)):
            return maker_stacks.from_amds_index(context, board.target)
    if rocm_lists_the_gpu(context) and not lacking:
        return rocm.hidden_from_torch(context, board.target)
    # The torch in the text is a ROCm build if its version or a message of HIP shows it.
    if not lacking and (is_rocm or events(context, "no-hip-gpus")):
        kernels = rocm.targets_of_wheel(context)
        of_linux = (
            f" (in Linux amdgpu, /dev/kfd, the groups render and video) and a GPU of {kernels}"
        )
        system = " in Windows (in WSL: AMD's driver for WSL)" if windows else of_linux
        return Fix(
            text=f"The installed ROCm build needs AMD's newest driver{system}. Make sure that "
            "HIP_VISIBLE_DEVICES does not hide the GPU",
            looks=looks,
        )
    if board.target and not on(context, "windows"):
        return Fix(
            text=f"Install torch's ROCm build, which has kernels for {board.target}",
            commands=(pip_from(context, pytorchs_index(board.target)),),
        )
    return Fix(
        text="Install AMD's ROCm build of torch, if AMD publishes one for this GPU and system "
        f"(PyTorch's, on Linux, has kernels for {SERVED_CARDS}). Otherwise the CPU build "
        f"works{'. ' + AMDS_FOR_WINDOWS if windows else ''}",
        alternatives=_if_served(context),
    )


def _rights_first(context: RuleContext, board: Board) -> Fix:
    """What to do if a ROCm build finds no GPU at all on Linux: the rights, the driver, and then the
    kernels."""
    fix = maker_stacks.join_groups(context, MakerStack(maker=AMD.id))
    relative, version = RELATIVES.get(board.target or "", ("", ""))
    then = ""
    if relative:
        then = (
            f". Once torch finds the GPU, it also needs HSA_OVERRIDE_GFX_VERSION={version}: its "
            f"wheels have kernels for the related {relative}, not for {board.target}"
        )
    return replace(
        fix,
        text="The build is right, so first see whether you may open the GPU: `rocminfo` must list "
        "it, and `ls -l /dev/kfd` must show the node. If you may not, join the groups render and "
        "video. If /dev/kfd is missing, the kernel has no amdgpu driver for this GPU. "
        f"HIP_VISIBLE_DEVICES must not hide it{then}",
    )


def _on_windows_itself(context: RuleContext, board: Board) -> Fix:
    """What to do in WSL with a GPU that ROCm for WSL does not support."""
    amds_wheels = maker_stacks.from_amds_index(context, board.target)
    ways = "in Linux on the machine itself, or a program that uses DirectML or Vulkan"
    if board.target in WINDOWS_TARGETS:
        ways = (
            f"on Windows itself with AMD's wheels, which have kernels for {board.target}, or {ways}"
        )
    return Fix(
        text=f"ROCm for WSL supports Radeon RX 7700 and newer, and Ryzen AI, but not {board.name} "
        f"({board.target}). Neither another ROCm in WSL nor HSA_OVERRIDE_GFX_VERSION changes that. "
        f"Use the GPU {ways}",
        alternatives=paste.other("on Windows itself, in a new environment", *amds_wheels.commands)
        if board.target in WINDOWS_TARGETS
        else (),
    )


def _is_too_old_for_amds_wheels(context: RuleContext) -> bool:
    """Whether the text's Python is older than those that AMD's index has wheels for."""
    python = context.snapshot.python.version
    return bool(python) and parsed(python) < parsed(maker_stacks.FIRST_PYTHON_OF_AMDS_WHEELS)


def _hip_ran(context: RuleContext) -> bool:
    """Whether a message of HIP about memory shows that a ROCm build is installed and runs."""
    return any("HIP " in (event.text or "") for event in events(context, "out-of-memory"))


def engine_for_gpu(context: RuleContext, engine: str) -> Fix:
    """The fix for a program that pins its torch (vLLM, SGLang) on a GPU of AMD or Intel: a build of
    the program, because torch alone cannot be replaced."""
    if maker_of(context.torch.backend) == "intel" or events(context, "no-xpu"):
        stack = "XPU"
    else:
        stack = "ROCm"
    target = amd_board(context).target or ""
    first = FIRST_ROCM.get(target)
    this_gpu = f"this GPU, a {target}" if target else "this GPU"
    since = f" (ROCm {first} or newer)" if first and stack == "ROCm" else ""
    return Fix(
        text=f"{engine} needs exactly the torch that it was built with, so do not reinstall torch "
        f"alone. Use an image or a release of {engine} for {stack} whose torch has kernels for "
        f"{this_gpu}{since}: its newest {stack} image, or the GPU maker's own"
    )


BUILD_FOR_ROCM = (
    "Keep the ROCm build of torch, and do not install a CUDA toolkit: the ordinary build of {0} "
    "is for CUDA. Build {0} for ROCm, if its project supports it (flash-attn: set "
    "`FLASH_ATTENTION_TRITON_AMD_ENABLE=TRUE` and have ROCm's compiler installed), or run "
    'without {0} (in transformers `attn_implementation="sdpa"`)'
)


def _if_served(context: RuleContext) -> tuple[Alternative, ...]:
    """Install PyTorch's own build for Linux, for a GPU whose target the text does not show."""
    if context.os.family not in (None, "linux") or context.os.wsl:
        return ()
    title = "if the GPU is one of these"
    if not on(context, "linux"):
        title += " and the system is Linux"
    return paste.other(title, pip_from(context, str(AMD.index)))


WITHOUT_ROCM_ON_WINDOWS = {
    "ComfyUI": "Start ComfyUI with `--directml` (it needs the package torch-directml in ComfyUI's "
    "own Python), or use its fork for ZLUDA",
    "stable-diffusion-webui": "Use the fork stable-diffusion-webui-amdgpu, and set "
    "COMMANDLINE_ARGS=--use-directml or --use-zluda in webui-user.bat",
}
"""Programs that use an AMD GPU on Windows without torch's ROCm build -> what their own
documentation recommends (ComfyUI's README, the fork's README)."""


def _without_kernels(context: RuleContext, board: Board, *, windows: bool) -> Fix | None:
    """What to do for a target without kernels in the installed wheel or in any wheel."""
    target = board.target or ""
    lacking = events(context, "hip-kernel-missing") or crashes_without_kernels(context)
    if target in DROPPED:
        return Fix(
            text=f"{board.name} is {DROPPED[target]} ({target}), which ROCm and torch's ROCm "
            "builds no longer support; no override helps, because no current build runs on it. "
            f"Use the CPU build, another GPU, or a community build of torch for {target}"
        )
    if target in LAST_ROCM and lacking and not windows:
        return last_rocm_of(context, target)
    first = FIRST_ROCM.get(target)
    if first and lacking and _is_older_than(context, first):
        since = f"torch {FIRST_TORCH[target]}" if target in FIRST_TORCH else f"ROCm {first}"
        # A person's own build, or a build of AMD's, has no label by which it could be called old.
        is_known_wheel = (context.torch.backend or "").startswith("rocm")
        installed = "wheel is older" if is_known_wheel else "build has none"
        why = (
            f"torch's wheels have kernels for {target} since {since}, but the installed {installed}"
        )
        if windows and not context.os.wsl:
            amds_wheels = maker_stacks.from_amds_index(context, target)
            return replace(amds_wheels, text=f"{why}. {amds_wheels.text}")
        return Fix(
            text=f"{why}. Install a wheel for ROCm 7 ({AMD.index}). You do not need to override "
            "the target",
            commands=(pip_from(context, str(AMD.index)),),
        )
    if target in BUILT_FOR or not (lacking or target):
        return None
    # A build for CUDA or for the CPU ignores ROCm's variables.
    backend = context.torch.backend
    has_other_build = backend is not None and maker_of(backend) != "amd"
    related_target, version = RELATIVES.get(target, ("", ""))
    if events(context, "override-hangs"):
        related_target = ""
    # Only ROCm on Linux reads this variable; HIP on Windows ignores it.
    relative = ""
    if related_target and not windows:
        relative = (
            f"use the kernels of the closely related {related_target} "
            f"(HSA_OVERRIDE_GFX_VERSION={version}), or "
        )
    override = filled("export HSA_OVERRIDE_GFX_VERSION={version}", version=version)
    uses_relative = bool(related_target) and on(context, "linux")
    # ROCm often lists the processor's graphics first, and with the override it would run kernels
    # there that are made for the card.
    is_beside_graphics = uses_relative and bool(events(context, "amd-graphics"))
    rocm_build = (pip_from(context, str(AMD.index)),) if has_other_build else ()
    amds_wheels = maker_stacks.from_amds_index(context, target or None)
    # No variable makes the installed wheel run on this target, but AMD has wheels for it.
    if amds_wheels.commands and not uses_relative:
        why = f"PyTorch's ROCm wheels have no kernels for {target}"
        return replace(amds_wheels, text=f"{why}. {amds_wheels.text}")
    return Fix(
        text=f"torch's ROCm builds have kernels for {', '.join(BUILT_FOR)}, but not for "
        f"{target or 'this GPU'}: {relative}install a build for it from AMD or your distribution. "
        "The CPU build works too, without the GPU. If the processor's integrated graphics come "
        "first in the list, set HIP_VISIBLE_DEVICES to the card's number",
        commands=(*rocm_build, *(LARGEST_GPU if is_beside_graphics else ()), override)
        if uses_relative
        else (),
        alternatives=paste.other(f"AMD's own wheels for {target}", *amds_wheels.commands)
        if amds_wheels.commands
        else (),
    )


LARGEST_GPU = lines(
    'card=$(python -c "import torch; gpu = torch.cuda; '
    "print(max(range(gpu.device_count()), "
    'key=lambda n: gpu.get_device_properties(n).multi_processor_count))") '
    "&& export HIP_VISIBLE_DEVICES=$card"
)
"""Selects the GPU with the most compute units, which is the card and not the processor's graphics.
Nothing is set if torch cannot tell, because an empty value hides every GPU."""


def _is_older_than(context: RuleContext, first_rocm: str) -> bool:
    """Whether the installed wheel is for an older ROCm, or for an unknown ROCm and its error shows
    that the target is missing."""
    backend = context.torch.backend or ""
    rocm_of_wheel = re.match(r"rocm(\d+\.\d+)", backend)
    if rocm_of_wheel is None:
        return True
    return parsed(rocm_of_wheel[1]) < parsed(first_rocm)
