"""What keeps torch from using an AMD, Intel or Apple GPU, on a machine that was read and in a text,
and machines without any GPU that torch can use.

`Snapshot.makers` exists only on machines without an NVIDIA GPU.
"""

from __future__ import annotations

from gpusetup.accelerators.amd import BUILT_FOR, RELATIVES, has_kernels, target_of_override
from gpusetup.accelerators.apple import OLDEST_MACOS, TORCH_ON_MACOS_14
from gpusetup.accelerators.makers import AMD, APPLE, BY_ID, is_seen_only, maker_of
from gpusetup.accelerators.other_gpus import has_a_build, is_small
from gpusetup.causes.makers import NO_KERNELS, NOT_IN_THE_CONTAINER, NOT_LOADED, NOT_PERMITTED
from gpusetup.choose.installed import vendors_of
from gpusetup.evidence.context import RuleContext, events, has_nvidia, in_container, is_report, on
from gpusetup.evidence.facts import rocm_of_wheel
from gpusetup.findings.message_rules import finding, seen, shown
from gpusetup.fixes import makers, paste
from gpusetup.model.finding import Findings, Fix, Severity
from gpusetup.model.machine import MakerStack
from gpusetup.model.versions import parsed

KFD = "/dev/kfd"
"""The device node of AMD's compute driver. All other nodes of a stack are render nodes."""


def stack_of(context: RuleContext) -> MakerStack | None:
    """The software stack of an AMD, Intel or Apple GPU on a probed machine; None in a text."""
    return None if is_report(context) else context.snapshot.makers


def gpu_names(stack: MakerStack) -> str:
    """The names of the GPUs with their targets (gfx…), for a sentence."""
    names = [f"{gpu.name} ({gpu.target})" if gpu.target else gpu.name for gpu in stack.gpus]
    return ", ".join(dict.fromkeys(names)) or BY_ID[stack.maker].name


def _stack_on_linux(context: RuleContext) -> MakerStack | None:
    """The software stack on Linux; None elsewhere: the probe cannot read Windows' drivers."""
    return stack_of(context) if on(context, "linux") else None


def container_without_nodes(context: RuleContext) -> Findings:
    """The GPU's device nodes were not given to the container."""
    stack = _stack_on_linux(context)
    if stack is None or not in_container(context) or stack.nodes is None:
        return
    # If torch has no build for the GPU, no program in the container would use it.
    if maker_of(context.torch.backend) != stack.maker:
        return
    paths = [node.path for node in stack.nodes]
    # Level Zero needs a render node only, ROCm also the node of the compute driver.
    if stack.maker == AMD.id:
        needed, has_node = KFD, KFD in paths
    else:
        needed, has_node = "/dev/dri/renderD*", any(path != KFD for path in paths)
    if not has_node:
        text, who = f"{needed} is not in this container", gpu_names(stack)
        cause, message = "container-no-gpu", NOT_IN_THE_CONTAINER
        yield seen(context, cause, "makers.nodes", text, message=message, who=who)


def driver_not_loaded(context: RuleContext) -> Findings:
    """The kernel driver is not loaded for the GPU."""
    stack = _stack_on_linux(context)
    # A container uses the driver of its host, and WSL the one of Windows.
    if stack is None or in_container(context) or context.os.wsl:
        return
    maker, who = BY_ID[stack.maker], gpu_names(stack)
    # For a GPU that torch has no build for, the driver would change nothing.
    if has_a_build(stack) and stack.kernel_driver not in maker.kernel_drivers:
        cause, text = "driver-not-loaded", f"{who}, driver: {stack.kernel_driver or 'none'}"
        module = maker.kernel_drivers[0]
        yield seen(context, cause, "pci_devices", text, message=NOT_LOADED, who=who, module=module)


def nodes_not_permitted(context: RuleContext) -> Findings:
    """This user may not open the GPU's device nodes."""
    stack = _stack_on_linux(context)
    if stack is None:
        return
    nodes = stack.nodes or ()
    refused = [node for node in nodes if not (node.readable and node.writable)]
    render_nodes = [node for node in nodes if node.path != KFD]
    # One render node is enough, but there is only one /dev/kfd.
    has_no_render_node = bool(render_nodes) and all(node in refused for node in render_nodes)
    if has_no_render_node or any(node.path == KFD for node in refused):
        rights = [
            shown(context, "makers.nodes", f"{node.path} {node.mode or ''}".strip())
            for node in refused
        ]
        node = refused[0].path
        yield finding(context, "device-permission", rights, message=NOT_PERMITTED, node=node)


def wrong_build(context: RuleContext) -> Findings:
    """torch is a build for another maker's GPUs or the CPU, although this GPU has a build."""
    stack, torch = stack_of(context), context.torch
    # A Mac has only one build.
    if stack is None or stack.maker == APPLE.id or not torch.installed or not torch.backend:
        return
    built_for = maker_of(torch.backend)
    if built_for == stack.maker or not has_a_build(stack):
        return
    # Integrated graphics can compute but are rarely worth it, so a CPU build there is not a fault.
    if built_for is None and is_small(stack):
        return
    target = next((gpu.target for gpu in stack.gpus if gpu.target), None)
    yield seen(
        context,
        "amd-gpu" if stack.maker == AMD.id else "intel-gpu",
        "torch",
        f"torch {torch.version} ({torch.backend})",
        fix=makers.build_for(context, BY_ID[stack.maker], target),
    )


OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"


def needless_override(context: RuleContext) -> Findings:
    """HSA_OVERRIDE_GFX_VERSION selects another GPU's kernels, although torch has this one's."""
    targets = _amd_targets(context)
    value = context.snapshot.environment.get(OVERRIDE, "")
    selected = target_of_override(value)
    has_own_kernels = bool(targets) and all(target in BUILT_FOR for target in targets)
    if value and has_own_kernels and selected not in targets:
        text = f"{OVERRIDE}={value} ({selected or 'no target'})"
        yield seen(context, "rocm-override-wrong", "environment", text)


def _amd_targets(context: RuleContext) -> list[str]:
    """The targets (gfx…) of this machine's AMD GPUs, as far as they are known."""
    stack = stack_of(context)
    if stack is None or stack.maker != AMD.id:
        return []
    return [gpu.target for gpu in stack.gpus if gpu.target]


def no_kernels(context: RuleContext) -> Findings:
    """torch's ROCm build has no kernels for the GPU."""
    stack, rocm, targets = stack_of(context), rocm_of_wheel(context), _amd_targets(context)
    if stack is None or not rocm or not targets:
        return
    # One supported GPU is enough: the other one is often the processor's integrated graphics.
    if any(has_kernels(target, rocm) is not False for target in targets):
        return
    # A person who set the override chose the kernels of a related target on purpose.
    is_overridden = bool(context.snapshot.environment.get(OVERRIDE))
    if is_overridden and any(target in RELATIVES for target in targets):
        return
    who, torch = gpu_names(stack), f"torch {context.torch.version or ''}"
    yield finding(
        context,
        "amd-gpu",
        (shown(context, "makers.gpus", who), shown(context, "torch", torch)),
        message=NO_KERNELS,
        fix=makers.build_for(context, AMD, targets[0]),
        board=who,
        build=torch,
    )


def metal(context: RuleContext) -> Findings:
    """A Python for Intel Macs runs on an Apple chip, or the macOS is too old for torch's MPS."""
    stack, version, macos = stack_of(context), context.torch.version, context.os.version
    if stack is not None and stack.translated:
        chip = stack.gpus[0].name if stack.gpus else "an Apple chip"
        text, fix = f"{chip}, Python: x86_64", makers.NATIVE_PYTHON
        yield seen(context, "apple-silicon", "os.machine", text, fix=fix)
        return
    if stack is None or stack.maker != APPLE.id or not version or not macos:
        return
    if parsed(version) >= parsed(TORCH_ON_MACOS_14) and parsed(macos) < parsed(OLDEST_MACOS):
        text, fix = f"macOS {macos}, torch {version}", makers.reach_metal(context)
        yield seen(context, "apple-silicon", "os", text, fix=fix)


def serves_its_maker(context: RuleContext) -> bool:
    """Whether the installed torch is a build for this machine's GPU: ROCm for AMD, XPU for Intel,
    the ordinary one on a Mac, and the CPU build if torch has no build for any GPU here, or only for
    GPUs that are not worth using."""
    torch, stack = context.torch, context.snapshot.makers
    # The author of a text has a problem, so a build that fits proves nothing. Nor does it if a
    # program on this machine looked for a GPU in vain.
    if is_report(context) or events(context, "foreign-gpu", *LOOKED_FOR_CUDA):
        return False
    # `gpus` lists NVIDIA's GPUs only, and for them other rules judge the build.
    if context.snapshot.gpus or not torch.installed or torch.import_error:
        return False
    if _is_apple(context):
        return True
    if torch.backend == "cpu" and has_nvidia(context) is False and not torch.cuda_available:
        return stack is None or not has_a_build(stack) or is_small(stack)
    return stack is not None and maker_of(torch.backend) == stack.maker


def no_nvidia_gpu(context: RuleContext) -> Findings:
    """This machine has no NVIDIA GPU; the finding names the maker of its GPU. It is only a note if
    no program needed CUDA."""
    # Other rules report problems with another maker's drivers and builds.
    if stack_of(context) is not None or not (_is_apple(context) or _lacks_nvidia(context)):
        return
    cause, fix = _cause_and_fix(context)
    # A missing kernel made the program fail, so then it is never only a note.
    is_only_a_note = not events(context, "hip-kernel-missing") and (
        events(context, *STOPS_EARLIER) or serves_its_maker(context) or _misses_no_gpu(context)
    )
    cards, errors = events(context, "foreign-gpu"), events(context, *LOOKED_FOR_CUDA)
    devices = context.snapshot.pci_devices or ()
    on_bus = "; ".join(f"{gpu.vendor} {gpu.name or gpu.device_id}" for gpu in devices)
    evidence = (*errors, *cards)
    # A text that quotes a card or an error needs no list of devices as evidence.
    if devices or not is_report(context) or not evidence:
        evidence += (shown(context, "pci_devices", on_bus or "no NVIDIA GPU found"),)
    severity = Severity.NOTE if is_only_a_note else None
    yield finding(context, cause, evidence, fix=fix, severity=severity)


def _lacks_nvidia(context: RuleContext) -> bool:
    """Whether there is no NVIDIA GPU: a source says so, or everything points to another maker."""
    machine, has_gpu = context.snapshot, has_nvidia(context)
    if has_gpu is not None or machine.driver.version:
        return has_gpu is False
    is_another_makers = is_seen_only(maker_of(machine.torch.backend))
    # Only another maker's software reports these, or a machine without a GPU.
    kinds = ("no-hip-gpus", "hip-kernel-missing", "no-xpu", "gpu-not-chosen")
    return is_another_makers or bool(events(context, *kinds))


def _is_apple(context: RuleContext) -> bool:
    """Whether the machine is a Mac with an Apple chip, or a text's Mac of unknown processor."""
    if events(context, "mps-lacks") and not has_nvidia(context):
        return True
    machine = context.os.machine
    is_apples = machine in ("aarch64", "arm64") or (machine is None and is_report(context))
    return on(context, "macos") and is_apples


LOOKED_FOR_CUDA = (
    "mps-lacks", "gpu-not-chosen", "hip-kernel-missing",
    "torch-not-compiled-with-cuda", "no-nvidia-driver", "no-nvidia-gpu", "cuda-unavailable",
    "no-hip-gpus", "no-xpu", "cuda-toolkit-missing",
)  # fmt: skip
"""Events of programs that needed a GPU, so its absence is a failure."""

STOPS_EARLIER = (
    "out-of-memory", "no-kernel-image", "no-matching-distribution", "python-no-wheel",
    "wheel-not-supported", "no-wheel-for-platform", "wrong-index", "resolver-conflict",
    "conda-not-found", "pip-cache-disk-full", "download-hash-mismatch", "download-network-error",
    "build-isolation-no-torch", "module-shadowed", "numpy-abi-mismatch", "torch-missing",
    "glibc-too-old", "ld-library-path-conflict", "extension-abi-mismatch", "torchvision-mismatch",
    "torchaudio-mismatch", "windows-dll-missing", "windows-pagefile-too-small",
)  # fmt: skip
"""Failures that happen with or without a GPU: then a missing GPU is only a note.

The order of causes cannot express this: on a machine without torch, the missing GPU comes first,
while a text in which an installer finds no torch is not about a GPU at all."""

WITHOUT_ITS_GPU = (
    *("gpu-unused", "cuda-lib-missing", "extension-not-built"),
    "built-for-another-processor",
)
"""Events of a program that ran without the GPU, or that needed a part of CUDA's."""


def _misses_no_gpu(context: RuleContext) -> bool:
    """Whether CUDA ran according to a text, or nothing in the text failed because it needed a GPU.

    The second covers texts that only show a build of torch or, from a Mac, only paths.
    """
    machine, torch_sees_gpu = context.snapshot, context.torch.cuda_available
    if not is_report(context):
        return False
    # No Mac has CUDA, so the name of its GPU explains nothing; a program that looked for CUDA does.
    others = WITHOUT_ITS_GPU if on(context, "macos") else ("foreign-gpu",)
    needed = (*LOOKED_FOR_CUDA, *others)
    if torch_sees_gpu is False or events(context, *needed) or machine.cuda_api.init_code:
        return False
    return bool(torch_sees_gpu or not (machine.pci_devices or machine.gpus))


def _cause_and_fix(context: RuleContext) -> tuple[str, Fix]:
    """The id of the finding for the GPU's maker (`no-nvidia-gpu` if there is no GPU that torch can
    use), and the fix for such a GPU."""
    if _is_apple(context):
        return "apple-silicon", makers.for_mac(context)
    maker_of_build = maker_of(context.torch.backend)
    # Neither ROCm nor torch's wheels for macOS use the Radeon of an older Mac.
    if not on(context, "macos"):
        has_amd = maker_of_build == "amd" or "amd" in vendors_of(context.snapshot)
        if has_amd or events(context, "no-hip-gpus", "hip-kernel-missing"):
            return "amd-gpu", makers.for_amd(context)
        # The snapshot's stack contains only the Intel GPUs that torch's XPU builds support.
        stack = context.snapshot.makers
        has_intel = maker_of_build == "intel" or (stack is not None and stack.maker == "intel")
        if has_intel or events(context, "no-xpu"):
            return "intel-gpu", makers.for_intel(context)
    torch = context.torch
    text = "Use the CPU build of torch here, or go to a machine with an NVIDIA GPU"
    # An installed torch is kept. A CUDA error comes from another machine, which has a GPU.
    if torch.installed or torch.version or events(context, "cuda-error"):
        return "no-nvidia-gpu", Fix(text=text)
    # A requested release stays, as a CPU build.
    build = context.choice.build if context.snapshot.wanted.torch else None
    words = ("--torch", build.torch) if build else ()
    return "no-nvidia-gpu", Fix(
        text=text, commands=(paste.gpusetup(context, *words, "--backend", "cpu"),)
    )


RULES = (
    container_without_nodes,
    driver_not_loaded,
    nodes_not_permitted,
    wrong_build,
    needless_override,
    no_kernels,
    metal,
    no_nvidia_gpu,
)
