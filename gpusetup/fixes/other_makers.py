"""Ways out for GPUs of other makers: by the target that the text names, and by what is there."""

from __future__ import annotations

import re

from gpusetup.accelerators.amd import BUILT_FOR, RELATIVES, gfx_of
from gpusetup.accelerators.amd import MAKER as AMD
from gpusetup.accelerators.intel import MAKER as INTEL
from gpusetup.accelerators.makers import maker_of
from gpusetup.evidence.context import RuleContext, events, on
from gpusetup.fixes import paste
from gpusetup.model.finding import Alternative, Fix
from gpusetup.model.shell import Line
from gpusetup.model.versions import parsed
from gpusetup.resolver.held import vendors_of


def _from(context: RuleContext, index: str) -> Line:
    torch = context.snapshot.torch
    is_there = torch.version or events(context, "torch-not-compiled-with-cuda")
    again = ("--force-reinstall",) if is_there else ()
    return paste.pip(context, "install", *again, "torch", "torchvision", "--index-url", index)


def in_place_of_the_cpu(context: RuleContext) -> tuple[Alternative, ...]:
    """torch's build for the GPU of another maker that a machine without NVIDIA's has."""
    vendors, gfx = vendors_of(context.snapshot), named_gfx(context)
    if "amd" in vendors and gfx in BUILT_FOR and not on(context, "windows"):
        return paste.other(f"for the AMD GPU ({gfx}), on Linux", _from(context, str(AMD.index)))
    named = (event.values.get("name", "") for event in events(context, "foreign-gpu"))
    if "intel" in vendors and any(re.search(r"\bArc\b|(?:A[357]|B5)\d0", one) for one in named):
        return paste.other("for the Intel GPU", _from(context, str(INTEL.index)))
    return ()


# --- AMD ----------------------------------------------------------------------------------------


def amd(context: RuleContext) -> Fix:
    """By what failed: the nodes' groups, a kernel for this gfx, the driver; else by the GPU."""
    why = {event.values.get("why") for event in events(context, "no-hip-gpus")}
    if "groups" in why and not on(context, "windows"):
        return Fix(
            text="Let your user open AMD's device nodes (/dev/kfd, /dev/dri/render*), then log out "
            "and in again; a container is given both (`--device /dev/kfd --device /dev/dri`)",
            commands=paste.posix(context, 'sudo usermod -aG render,video "$USER"'),
            needs_root=True,
        )
    if events(context, "cuda-toolkit-missing"):
        return Fix(
            text="This torch is a ROCm build: build the extension by its own guide for ROCm "
            "(hipcc, ROCM_HOME), or leave it out; no toolkit of CUDA serves it"
        )
    if "driver" in why and not on(context, "linux"):
        return Fix(
            text="Install AMD's newest driver for Windows, which brings HIP, and the ROCm build of "
            "torch of the same release"
        )
    gfx = named_gfx(context)
    if gfx or events(context, "hip-kernel-missing"):
        return _by_target(context, gfx)
    return _blind(context) if _has_rocm(context) else _first_build(context)


def named_gfx(context: RuleContext) -> str | None:
    """The target that a text names: where a kernel is missing, else by the board."""
    missing = (e.values.get("gfx") for e in events(context, "hip-kernel-missing"))
    boards = (e.values.get("name") for e in events(context, "foreign-gpu"))
    listed = (gpu.name for gpu in context.snapshot.gpus or ())
    names = (name for name in (*missing, *boards, *listed) if name)
    return next((gfx for name in names if (gfx := gfx_of(name))), None)


def _has_rocm(context: RuleContext) -> bool:
    """Whether the torch of a text is ROCm's: by its version, or by a message of HIP."""
    said = events(context, "no-hip-gpus", "hip-kernel-missing")
    return maker_of(context.snapshot.torch.backend) == "amd" or bool(said)


def _by_target(context: RuleContext, gfx: str | None) -> Fix:
    looks = paste.look("see which GPUs ROCm lists", *paste.posix(context, "rocminfo"))
    first = (
        "If the processor's own graphics come first in the list, set HIP_VISIBLE_DEVICES to the "
        "card's number"
    )
    if gfx is None:
        return Fix(
            text="The installed ROCm build has no kernels for this GPU's gfx: take one that is "
            f"built for it (AMD publishes builds for each gfx; torch's are for "
            f"{', '.join(BUILT_FOR)}). {first}",
            looks=looks,
        )
    if gfx in BUILT_FOR:
        return _served(context, gfx, first)
    if (relative := RELATIVES.get(gfx)) and on(context, "linux"):
        named, version = relative
        return Fix(
            text=f"torch's ROCm builds have no kernels for {gfx}: let it run those of its near "
            f"relative {named}, or take a build that is made for {gfx}. {first}",
            commands=(paste.setting(context, "HSA_OVERRIDE_GFX_VERSION", version),),
            looks=looks,
        )
    return Fix(
        text=f"torch's ROCm builds have no kernels for {gfx} (they are for "
        f"{', '.join(BUILT_FOR)}): take a build that AMD or the distribution makes for {gfx}, if "
        "there is one; otherwise the CPU build works",
        looks=looks,
    )


def _served(context: RuleContext, gfx: str, first: str) -> Fix:
    """A target that torch's own builds serve: the newest of them, or what keeps it from the GPU."""
    if _has_rocm(context) and not events(context, "hip-kernel-missing"):
        return _blind(context)
    if on(context, "windows"):
        return Fix(
            text=f"Install AMD's ROCm build of torch for Windows (AMD publishes one for {gfx} "
            "among others); the default index has none"
        )
    return Fix(
        text=f"Install torch's ROCm build, which has kernels for {gfx}. {first}",
        commands=(_from(context, str(AMD.index)),),
    )


def _blind(context: RuleContext) -> Fix:
    """A ROCm build that finds no GPU: what stands under it."""
    if context.snapshot.os.wsl:
        return Fix(
            text="The ROCm build is there and finds no GPU: install AMD's driver for WSL in "
            "Windows and ROCm's runtime for WSL (`amdgpu-install --usecase=wsl,rocm --no-dkms`), "
            "for one of the few Radeons that AMD names for WSL",
            looks=paste.look("see which GPUs ROCm lists", *paste.posix(context, "rocminfo")),
        )
    if on(context, "windows"):
        return Fix(
            text="The ROCm build is there and finds no GPU: update AMD's driver, and take the "
            "build that AMD publishes for this GPU; HIP_VISIBLE_DEVICES must not hide it"
        )
    return Fix(
        text="The ROCm build is there: it needs the kernel's amdgpu driver, /dev/kfd, the groups "
        "render and video, and a GPU that it has kernels for "
        f"({', '.join(BUILT_FOR)}); HIP_VISIBLE_DEVICES must not hide it",
        looks=paste.look(
            "see whether the kernel's driver is there, and which gfx the GPU has",
            *paste.posix(context, "ls -l /dev/kfd /dev/dri", "rocminfo | grep -i gfx"),
        ),
    )


def _first_build(context: RuleContext) -> Fix:
    if on(context, "windows"):
        return Fix(
            text="Install AMD's ROCm build of torch for Windows, if AMD publishes one for this "
            "GPU; otherwise the CPU build works"
        )
    return Fix(
        text="On Linux install AMD's ROCm build of torch, if ROCm supports the GPU (torch's has "
        f"kernels for {', '.join(BUILT_FOR)}); otherwise the CPU build works"
    )


# --- Intel --------------------------------------------------------------------------------------


def intel(context: RuleContext) -> Fix:
    """The driver where torch did not start it, the XPU build where that lacks, else the name."""
    torch = context.snapshot.torch
    said = events(context, "no-xpu")
    why = {event.values.get("why") for event in said}
    if "build" in why:
        return Fix(
            text="Install torch's XPU build: the installed one was built without it",
            commands=(_from(context, str(INTEL.index)),),
        )
    if said:
        more = (
            ""
            if on(context, "windows")
            else " (on Linux the Level Zero and compute runtime packages too, and the group "
            "`render`)"
        )
        return Fix(
            text=f'Install or update Intel\'s GPU driver{more}; torch then finds the device "xpu"',
            needs_root=True,
        )
    text = 'torch uses it as device "xpu"; code that asks for "cuda" must ask for that'
    if not events(context, "torch-not-compiled-with-cuda") or maker_of(torch.backend) == "intel":
        return Fix(text=text)
    return Fix(
        text=f"Install torch's XPU build: {text}", commands=(_from(context, str(INTEL.index)),)
    )


# --- Apple --------------------------------------------------------------------------------------

FIRST_WITH_MPS = "1.12"


def apple(context: RuleContext) -> Fix:
    """What a program that is on mps already lacks there; else the device's name."""
    torch = context.snapshot.torch
    if torch.version and parsed(torch.version) < parsed(FIRST_WITH_MPS):
        return Fix(
            text=f"torch uses an Apple GPU from {FIRST_WITH_MPS} on, as device "
            '"mps": install a newer one; this one computes on the CPU',
            commands=(paste.pip(context, "install", "--upgrade", "torch", "torchvision"),),
        )
    if lacks := events(context, "mps-lacks"):
        return _on_mps(context, " ".join(event.text or "" for event in lacks))
    # No order: a text in which torch speaks has one; on a machine it was looked for.
    missing = events(context, "torch-missing") or torch.installed is False
    return Fix(
        text='The ordinary wheel uses an Apple GPU as device "mps"; code that asks for '
        '"cuda" must ask for "mps" or "cpu"',
        commands=(paste.pip(context, "install", "torch", "torchvision"),) if missing else (),
    )


def _on_mps(context: RuleContext, said: str) -> Fix:
    if "laceholder storage" in said:
        return Fix(
            text='The program is on "mps" already, and one of its tensors is not: move the model '
            'and all of its inputs there (`.to("mps")`)'
        )
    if re.search(r"(?i)bfloat16", said):
        return Fix(
            text='bfloat16 on "mps" needs macOS 14 or newer and a current torch: update both, or '
            "let the program use float16 or float32"
        )
    if re.search(r"float64|MPS framework doesn't support", said):
        return Fix(text='"mps" has no float64: make these tensors float32, or keep them on "cpu"')
    return Fix(
        text='The program is on "mps" already, which lacks this: let what is missing run on the '
        "CPU, or update torch",
        commands=(paste.setting(context, "PYTORCH_ENABLE_MPS_FALLBACK", "1"),),
    )
