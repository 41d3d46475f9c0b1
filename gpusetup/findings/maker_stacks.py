"""What keeps torch from using an AMD, Intel or Apple GPU on a machine that was probed (not on one
from a text).

Each rule checks one thing in `Snapshot.makers`, which exists only on machines without an NVIDIA
GPU. `presence.py` judges texts by their messages.
"""

from __future__ import annotations

import re

from gpusetup.accelerators.amd import BUILT_FOR, DROPPED, RELATIVES, has_kernels
from gpusetup.accelerators.apple import OLDEST_TORCH_WITH_MPS, oldest_macos
from gpusetup.accelerators.makers import AMD, APPLE, BY_ID, INTEL, Maker, maker_of
from gpusetup.accelerators.other_gpus import has_a_build, is_small
from gpusetup.choose.installed import vendors_of
from gpusetup.evidence.context import (
    RuleContext,
    events,
    has_nvidia,
    in_container,
    is_report,
    macos_version,
    on,
    readings,
)
from gpusetup.findings.message_rules import finding, shown
from gpusetup.fixes import apple, maker_stacks
from gpusetup.model.finding import Findings
from gpusetup.model.machine import DeviceNode, Event, MakerStack
from gpusetup.model.versions import parsed

OWN_DRIVERS = {AMD.id: ("amdgpu",), INTEL.id: ("i915", "xe")}
"""A maker -> the kernel drivers through which its runtime reaches a GPU."""
KFD = "/dev/kfd"


def stack_of(context: RuleContext) -> MakerStack | None:
    """The software stack of an AMD, Intel or Apple GPU on a probed machine; None for a text, and if
    there are NVIDIA GPUs."""
    return None if is_report(context) else context.snapshot.makers


def gpu_names(stack: MakerStack) -> str:
    """The names of the GPUs with their targets (gfx…), for a sentence."""
    names = []
    for gpu in stack.gpus:
        target = f" ({gpu.target})" if gpu.target else ""
        names.append(f"{gpu.name}{target}")
    return ", ".join(dict.fromkeys(names)) or BY_ID[stack.maker].name


def driver_not_loaded(context: RuleContext) -> Findings:
    """No driver is bound to the GPU, or amdgpu is loaded without its compute part (KFD)."""
    stack = stack_of(context)
    own_drivers = OWN_DRIVERS.get(stack.maker, ()) if stack else ()
    # A container and WSL use the driver of their host.
    if stack is None or not own_drivers or in_container(context) or context.os.wsl:
        return
    # On Windows, the probe cannot read which driver a card has.
    if not on(context, "linux") or not has_a_build(stack):
        return
    if stack.kernel_driver not in own_drivers:
        bound = stack.kernel_driver or "none"
        seen = shown(context, "pci_devices", f"{gpu_names(stack)}, driver: {bound}")
        fix = maker_stacks.load_driver(context, stack)
        yield finding(context, "maker-driver-not-loaded", (seen,), fix=fix, who=gpu_names(stack))
    elif stack.maker == AMD.id and lacks_kfd(stack):
        seen = shown(context, "makers.nodes", f"amdgpu is loaded, and {KFD} is not there")
        fix = maker_stacks.compute_driver_missing()
        yield finding(context, "maker-driver-not-loaded", (seen,), fix=fix, who=gpu_names(stack))


def lacks_kfd(stack: MakerStack) -> bool:
    """Whether the probe read /dev and KFD's device node is missing there."""
    if stack.nodes is None:
        return False
    return KFD not in [node.path for node in stack.nodes]


def not_given_to_container(context: RuleContext) -> Findings:
    """The container has no device nodes for a GPU that is on its PCI bus."""
    stack = stack_of(context)
    if stack is None or stack.nodes is None or not in_container(context):
        return
    # If torch has no build for the GPU, no program in the container would use it.
    if maker_of(context.torch.backend) != stack.maker:
        return
    render_nodes = [node for node in stack.nodes if node.path != KFD]
    if stack.maker == AMD.id:
        missing_node = KFD if lacks_kfd(stack) else None
    else:
        missing_node = None if render_nodes else "/dev/dri/renderD*"
    if missing_node is None:
        return
    message = shown(context, "makers.nodes", f"{missing_node} is not in this container")
    fix = maker_stacks.into_container(context, BY_ID[stack.maker])
    yield finding(context, "container-no-maker-gpu", (message,), fix=fix, who=gpu_names(stack))


def no_permission(context: RuleContext) -> Findings:
    """This user has no permission to open /dev/kfd, or any render node."""
    stack = stack_of(context)
    nodes = stack.nodes if stack else None
    if not nodes:
        return
    refused = [node for node in nodes if not (node.readable and node.writable)]
    render_nodes = [node for node in nodes if node.path != KFD]
    all_render_nodes = bool(render_nodes) and all(node in refused for node in render_nodes)
    kfd_is_refused = any(node.path == KFD for node in refused)
    if not (kfd_is_refused or all_render_nodes):
        return
    seen = [shown(context, "makers.nodes", rights_of(node)) for node in refused]
    fix = maker_stacks.join_groups(context, stack)
    yield finding(context, "maker-device-permission", seen, fix=fix, node=refused[0].path)


def rights_of(node: DeviceNode) -> str:
    """A device node with its mode, as `ls -l` shows it."""
    return f"{node.path} {node.mode or ''}".strip()


def wrong_build(context: RuleContext) -> Findings:
    """torch is a build for another maker's GPUs or for the CPU, although there is a build for this
    GPU."""
    stack = stack_of(context)
    torch = context.torch
    if stack is None or stack.maker == APPLE.id or not torch.installed or not torch.backend:
        return
    built_for = maker_of(torch.backend)
    if built_for == stack.maker or not has_a_build(stack):
        return
    # Integrated graphics can compute but are rarely worth it, so a CPU build there is not a fault.
    if built_for is None and is_small(stack):
        return
    whose = f"{BY_ID[built_for].name}'s GPUs" if built_for else "the CPU only"
    seen = shown(context, "torch", f"torch {torch.version} ({torch.backend})")
    yield finding(
        context,
        "maker-wrong-build",
        (seen,),
        fix=maker_stacks.build_for_maker(context, stack),
        who=gpu_names(stack),
        built_for=whose,
        torch_name=f"torch {torch.version or ''}".strip(),
    )


def no_kernels(context: RuleContext) -> Findings:
    """torch's ROCm build has no kernels for the GPU."""
    stack = stack_of(context)
    backend = context.torch.backend or ""
    if stack is None or stack.maker != AMD.id or not backend.startswith("rocm"):
        return
    rocm = ".".join(backend.removeprefix("rocm").split(".")[:2])
    version = context.torch.version or ""
    targets = [gpu.target for gpu in stack.gpus if gpu.target]
    # One supported GPU is enough: the other one is often the processor's integrated graphics.
    if not targets or any(has_kernels(target, rocm, version) is not False for target in targets):
        return
    # A person who set the override chose the kernels of a related target on purpose.
    is_overridden = bool(context.snapshot.environment.get("HSA_OVERRIDE_GFX_VERSION"))
    if is_overridden and any(target in RELATIVES for target in targets):
        return
    target = targets[0]
    seen = (
        shown(context, "makers.gpus", gpu_names(stack)),
        shown(context, "torch", f"torch {context.torch.version}"),
    )
    if target in DROPPED:
        fix = maker_stacks.dropped_target(target, stack.gpus[0].name)
        yield finding(context, "rocm-gpu-unsupported", seen, fix=fix, who=gpu_names(stack))
        return
    yield finding(
        context,
        "rocm-arch-missing",
        seen,
        fix=maker_stacks.kernels_for_target(context, target, rocm),
        who=gpu_names(stack),
        torch_name=f"torch {context.torch.version}",
    )


def old_rocm(context: RuleContext) -> Findings:
    """torch loads the machine's ROCm, whose major version is older than torch needs."""
    stack = stack_of(context)
    hip = context.torch.hip
    if stack is None or not hip or not stack.runtime or stack.bundles_runtime is not False:
        return
    wanted, installed = parsed(".".join(hip.split(".")[:2])), parsed(stack.runtime)
    if installed.major >= wanted.major:
        return
    seen = shown(context, "makers.runtime", f"ROCm {stack.runtime}; torch was built with HIP {hip}")
    yield finding(
        context,
        "rocm-older-than-torch",
        (seen,),
        fix=maker_stacks.update_rocm(context, str(wanted.major), stack.runtime),
        wanted=str(wanted.major),
        installed=stack.runtime,
    )


def no_rocm_in_wsl(context: RuleContext) -> Findings:
    """torch is a ROCm build in WSL, but ROCm for WSL is not installed."""
    stack = stack_of(context)
    if stack is None or not context.os.wsl or maker_of(context.torch.backend) != AMD.id:
        return
    if stack.runtime or stack.maker != AMD.id:
        return
    seen = shown(context, "os.wsl", "WSL, and no /opt/rocm")
    yield finding(context, "wsl-rocm-missing", (seen,), fix=maker_stacks.rocm_in_wsl(context))


def translated_python(context: RuleContext) -> Findings:
    """A Python for Intel Macs runs on an Apple chip."""
    stack = stack_of(context)
    if stack is None or not stack.translated:
        return
    chip = stack.gpus[0].name if stack.gpus else "Apple"
    seen = shown(context, "makers.gpus", f"{chip}, Python: x86_64")
    yield finding(context, "python-for-intel-mac", (seen,), fix=apple.native_python(context))


def old_macos(context: RuleContext) -> Findings:
    """The macOS version is too old for this torch's MPS."""
    stack = stack_of(context)
    version, macos = context.torch.version, context.os.version
    if stack is None or stack.maker != APPLE.id or stack.translated or not version or not macos:
        return
    wanted = oldest_macos(version)
    if parsed(macos) >= parsed(wanted):
        return
    seen = shown(context, "os", f"macOS {macos}, torch {version}")
    yield finding(
        context,
        "macos-too-old-for-mps",
        (seen,),
        fix=apple.newer_macos(wanted),
        version=version,
        wanted=wanted,
        macos=macos,
    )


def override_is_wrong(context: RuleContext) -> Findings:
    """HSA_OVERRIDE_GFX_VERSION is set to another target although torch supports the GPU's own
    target."""
    stack = stack_of(context)
    value = context.snapshot.environment.get("HSA_OVERRIDE_GFX_VERSION", "")
    if stack is None or stack.maker != AMD.id or not value or events(context, "foreign-gpu"):
        return
    numbers = value.split(".")
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        return
    major, minor, stepping = (int(number) for number in numbers)
    target_of_override = f"gfx{major}{minor:x}{stepping:x}"
    targets = {gpu.target for gpu in stack.gpus if gpu.target}
    served = targets & {*BUILT_FOR}
    if not served or target_of_override in targets or served != targets:
        return
    setting = f"HSA_OVERRIDE_GFX_VERSION={value} ({target_of_override})"
    seen = shown(context, "environment", setting)
    yield finding(context, "rocm-override-wrong", (seen,))


# --- texts ----------------------------------------------------------------------------------------

REFUSED = re.compile(r"(?i)permission denied|operation not permitted|not (?:a )?member of")
NODE_IS_MISSING = re.compile(r"(?i)/dev/kfd.{0,60}(?:no such file|missing|absent|not there|exist)")
MODULE_IS_MISSING = re.compile(r"(?i)rock module is not loaded")
MPS_FROM = re.compile(
    r"(?i)(?:MPS backend is supported on"
    r"|\bMPS\b.{0,80}?supported (?:natively )?(?:starting )?from) macOS (\d{1,2}(?:\.\d{1,2})?)"
)


def said_of_the_stack(context: RuleContext) -> Findings:
    """Problems of the driver and its device nodes that ROCm's own tools report in a text."""
    if not is_report(context) or has_nvidia(context):
        return
    complaints = events(context, "no-hip-gpus")
    refused = [event for event in complaints if REFUSED.search(event.text or "")]
    if context.snapshot.container.kind == "kubernetes":
        refused += events(context, "device-cgroup")
    missing = [event for event in complaints if NODE_IS_MISSING.search(event.text or "")]
    # If root finds the GPU and the user does not, nothing but the permissions differs.
    as_another = events(context, "works-as-root")
    if complaints or events(context, "no-xpu"):
        refused += as_another
    # A torch for another maker finds no GPU for anybody, at the screen or not.
    elif maker_of(context.torch.backend) in (AMD.id, INTEL.id):
        refused += [event for event in as_another if event.values.get("place") == "seat"]
    unloaded = [event for event in complaints if MODULE_IS_MISSING.search(event.text or "")]
    # Where rocminfo finds the module elsewhere in the text, somebody has loaded it since.
    if events(context, "rock-loaded"):
        unloaded = []
    maker = _maker_in_text(context)
    # Render nodes belong to every maker's driver, so the text must name one maker alone.
    if maker is not None:
        missing += events(context, "device-node-missing")
    maker = maker or AMD
    if refused:
        # If the program works in a container, it fails on the host, although the text names the
        # container.
        is_on_host = any(event.values.get("place") == "host" for event in refused)
        stack = MakerStack(maker=maker.id)
        fix = maker_stacks.join_groups(context, stack, on_host=is_on_host)
        node = KFD if maker is AMD else "/dev/dri/renderD*"
        yield finding(context, "maker-device-permission", refused, fix=fix, node=node)
    elif missing and in_container(context) and (on(context, "windows") or context.os.wsl):
        fix = maker_stacks.container_on_windows(context)
        yield finding(context, "container-no-maker-gpu", missing, fix=fix, who=maker.name)
    elif missing and in_container(context) and not _is_missing_on_host(missing):
        fix = maker_stacks.into_container(context, maker)
        yield finding(context, "container-no-maker-gpu", missing, fix=fix, who=maker.name)
    # In WSL there is neither /dev/kfd nor a Linux kernel module.
    elif (missing or unloaded) and context.os.wsl is not True:
        stack = MakerStack(maker=maker.id)
        fix = maker_stacks.load_driver(context, stack)
        seen = (*unloaded, *missing)
        who = f"the {maker.name} GPU"
        yield finding(context, "maker-driver-not-loaded", seen, fix=fix, who=who)


def _is_missing_on_host(missing: list[Event]) -> bool:
    """Whether one of the messages about a missing node is about the host of a container."""
    return any(event.values.get("place") == "host" for event in missing)


def _maker_in_text(context: RuleContext) -> Maker | None:
    """The only maker of GPUs that a text names, if it is AMD or Intel."""
    makers = set(vendors_of(context.snapshot))
    build_maker = maker_of(context.torch.backend)
    if build_maker:
        makers.add(build_maker)
    if events(context, "no-xpu", "xpu-no-float64"):
        makers.add(INTEL.id)
    if events(context, "no-hip-gpus", "hip-kernel-missing"):
        makers.add(AMD.id)
    for maker in (AMD, INTEL):
        if makers == {maker.id}:
            return maker
    return None


def _macos_needed(context: RuleContext, macos_in_message: str) -> str:
    """The oldest macOS on which this torch uses MPS; the message may name an older one (pytorch
    issues 139425 and 164943)."""
    torch = context.torch.version
    if torch is None:
        return macos_in_message
    return max(macos_in_message, oldest_macos(torch), key=parsed)


def said_of_macos(context: RuleContext) -> Findings:
    """torch's own message that MPS needs a newer macOS, in a text."""
    if not is_report(context):
        return
    macos = macos_version(context)
    for event in events(context, "mps-lacks"):
        macos_in_message = MPS_FROM.search(event.text or "")
        if macos_in_message is not None:
            oldest = _macos_needed(context, macos_in_message[1])
        # torch names no version here, so only a known macOS can be too old.
        elif event.values.get("why") == "metal" and macos:
            oldest = oldest_macos(context.torch.version or OLDEST_TORCH_WITH_MPS)
        else:
            continue
        # torch prints the same message if it cannot reach Metal, although macOS is new enough.
        if macos and parsed(macos) >= parsed(oldest):
            continue
        yield finding(
            context,
            "macos-too-old-for-mps",
            (event,),
            fix=apple.newer_macos(oldest),
            wanted=oldest,
            version=(context.torch.version or "").partition("+")[0],
            macos=macos or "",
        )
        return


def translated_in_a_text(context: RuleContext) -> Findings:
    """A Python for Intel Macs whose report names an Apple chip as its processor."""
    if not is_report(context) or context.os.machine != "x86_64":
        return
    chips = [gpu for gpu in events(context, "foreign-gpu") if gpu.values.get("vendor") == APPLE.id]
    platform = [
        reading
        for reading in readings(context, "os.machine")
        if reading.value == context.os.machine and reading.source.startswith("report, line")
    ]
    if not chips or not platform:
        return
    seen = (*chips[:1], shown(context, "os.machine", f"macOS, Python: {context.os.machine}"))
    yield finding(context, "python-for-intel-mac", seen, fix=apple.native_python(context))


RULES = (
    translated_in_a_text,
    said_of_the_stack,
    said_of_macos,
    driver_not_loaded,
    not_given_to_container,
    no_permission,
    wrong_build,
    override_is_wrong,
    no_kernels,
    old_rocm,
    no_rocm_in_wsl,
    translated_python,
    old_macos,
)
