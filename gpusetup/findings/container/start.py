"""A container that was started without its host's GPU, or was given only a part of it."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    answering,
    asked_for_cuda,
    driver_answers,
    event_evidence,
    events,
    gpus,
    in_container,
    is_cuda_build,
    is_report,
    nvidia_on_pci,
    problems,
    value_evidence,
)
from gpusetup.findings.layers import NO_DRIVER, Layer
from gpusetup.findings.record import Cause
from gpusetup.fixes import paste, which
from gpusetup.model.finding import Evidence, Finding, Fix
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event
from gpusetup.model.shell import Line, lines

NOTHING = ("", "-1", "none", "void", "NoDevFiles")


CONTAINER_NO_GPU = Cause(
    id="container-no-gpu",
    place=(Layer.BOUNDARY, 50),
    title="the container was started without a GPU",
    means="The host's GPU must be given to a container.",
    proven_by="A container without device nodes whose host has an NVIDIA GPU",
    not_when="no-nvidia-gpu: the PCI bus shows none",
    way_out="--gpus all, CDI, or a resource limit",
    source="NVIDIA Container Toolkit documentation, troubleshooting",
    explains=(*NO_DRIVER, "driver-missing", "driver-not-loaded", "device-permission"),
)


def container_no_gpu(context: RuleContext) -> Iterator[Finding]:
    """A container that was started without its host's GPU."""
    messages = (*events(context, "container-no-gpu"), *_blind_beside_a_driver(context))
    if shut := _shut_out(context):
        yield _no_device_given(context, shut)
        return
    if built := tuple(one for one in messages if one.values.get("step") == "build"):
        yield _no_gpu_while_building(built)
        return
    if context.other_host or _a_gpu_computed(context) or not (messages or _given_none(context)):
        return
    kind = f"This {context.snapshot.container.kind}" if in_container(context) else "The"
    empty = _is_asked_for(context, messages)
    looked = context.snapshot.devices is not None
    nodes = (
        (value_evidence(context, "devices", "no /dev/nvidia* in the container"),) if looked else ()
    )
    yield CONTAINER_NO_GPU.found(
        f"{kind} container was given nothing of the driver, though its command asks for the GPU"
        if empty
        else f"{kind} container was started without a GPU",
        detail="The host has one, as its PCI bus shows." if nvidia_on_pci(context) else "",
        evidence=(
            *event_evidence(messages or events(context, *BLIND) or events(context, *IN_VAIN)),
            *nodes,
            *container_facts(context),
            *problems(context, "driver"),
        ),
        fix=WITH_VARIABLES if empty else _where_it_is_empty(context, messages),
    )


def _where_it_is_empty(context: RuleContext, messages: tuple[Event, ...]) -> Fix:
    """An empty libcuda is what a container without its GPU leaves; a text need not be of one."""
    fix = start_with_gpu(context)
    if in_container(context) or not any("library" in one.values for one in messages):
        return fix
    return replace(
        fix,
        text=f"In a container: {fix.text[:1].lower()}{fix.text[1:]}. On a host such an empty file "
        "is what a container or a broken package left: install the driver's packages anew",
    )


def _no_gpu_while_building(messages: tuple[Event, ...]) -> Finding:
    return CONTAINER_NO_GPU.found(
        "The build of an image has no GPU, and a step of it asks for one",
        detail="`docker build` gives no GPU to its steps; a container that is started with "
        "`--gpus all` has one.",
        evidence=event_evidence(messages),
        fix=Fix(
            text="Take the check or the computation out of the build (stable-diffusion-webui: "
            "`--skip-torch-cuda-test`; an extension's build: name the architectures in "
            "TORCH_CUDA_ARCH_LIST), and start the container with `--gpus all`",
            looks=paste.look(
                "see that a container has the GPU",
                *lines("docker run --rm --gpus all ubuntu nvidia-smi"),
            ),
        ),
    )


ON_A_GPU = ("2", "209", "214", "700", "710", "715", "716", "717", "718", "719")
"""Codes of errors that only a program with a GPU gets: memory, kernels, ECC, launches."""


def _a_gpu_computed(context: RuleContext) -> bool:
    """A text with an error that needs a GPU: nvidia-smi is only not in the image."""
    codes = {event.values.get("code") for event in events(context, "cuda-error")}
    computed = context.snapshot.torch.cuda_available or codes & set(ON_A_GPU)
    return is_report(context) and bool(computed or events(context, "out-of-memory"))


def _shut_out(context: RuleContext) -> tuple[Event, ...]:
    """nvidia-smi runs in a container and lists nothing, in a text whose host lists its GPUs."""
    inside = (
        e for e in events(context, "no-devices-found") if e.values.get("place") == "container"
    )
    return tuple(inside) if gpus(context) and driver_answers(context) else ()


def _no_device_given(context: RuleContext, messages: tuple[Event, ...]) -> Finding:
    return CONTAINER_NO_GPU.found(
        f"The container has the driver's programs and no GPU: its host lists "
        f"{which.names(context)}",
        detail="The device nodes were not given, or the container's cgroup or user may not open "
        "them.",
        evidence=(*event_evidence(messages), *container_facts(context)),
        fix=Fix(
            text="Give the GPUs by CDI, which the cgroup rules do not stop (rootless, cgroup v2); "
            "the last command does it with a plain image",
            commands=lines(
                "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
                "docker run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi",
            ),
            looks=paste.look(
                "see first which nodes and which choice a container gets",
                *lines("docker run --rm --gpus all ubuntu sh -c 'ls -l /dev/nvidia*; env'"),
            ),
        ),
    )


WITH_VARIABLES = Fix(
    text="The nvidia runtime looks at two variables, which CUDA's images set and others do not: "
    "name them in the command, as this one does with a plain image",
    commands=lines(
        "docker run --rm --gpus all -e NVIDIA_VISIBLE_DEVICES=all "
        '-e "NVIDIA_DRIVER_CAPABILITIES=compute,utility" ubuntu nvidia-smi'
    ),
)


def _is_asked_for(context: RuleContext, messages: tuple[Event, ...]) -> bool:
    """Whether the command that a text shows asks for the GPU, and nvidia-smi is missing."""
    docker = (
        context.snapshot.container.kind == "docker" and context.snapshot.container.nvidia_requested
    )
    return bool(
        docker and messages and all(e.values.get("lacks") == "nvidia-smi" for e in messages)
    )


IN_VAIN = ("cuda-unavailable", "driver-check-failed")
"""Events of a program that came to no GPU, whatever the driver."""
BLIND = ("no-nvidia-driver", "smi-not-found")
"""Events of a program that finds nothing of the driver."""


def _given_none(context: RuleContext) -> bool:
    """A container without a driver, whose host has a GPU or that was meant to have one."""
    machine = context.snapshot
    if not in_container(context) or answering(context) or driver_answers(context):
        return False
    on_host = nvidia_on_pci(context) or machine.driver.module_loaded
    # No order: a text need not list the device nodes that a live container shows.
    silent = is_report(context) and asked_for_cuda(context) and is_cuda_build(machine.torch)
    blind = events(context, *BLIND)
    if any(event.values.get("place") == "host" for event in blind):
        return False  # the toolkit asked the host's driver: that is what is missing
    bare = machine.container.nvidia_requested is False and _came_to_no_gpu(context)
    wanted = on_host or silent or bare or _asked_for_gpus(context) or blind
    return bool(wanted) and not machine.container.nvidia_requested


def _came_to_no_gpu(context: RuleContext) -> bool:
    """Whether a program of a text looked for a GPU in vain: by its word, or by where it ends."""
    stopped = events(context, *IN_VAIN)
    return is_report(context) and bool(stopped or asked_for_cuda(context))


def _blind_beside_a_driver(context: RuleContext) -> tuple[Event, ...]:
    """A program that finds no driver, in a text whose nvidia-smi shows that the host's works."""
    of_windows = context.snapshot.os.wsl and not in_container(context)
    beside = is_report(context) and driver_answers(context) and not of_windows
    # No order: TensorFlow says so of its own libraries as well, in a container or not.
    own = events(context, "program-lib-missing") and not in_container(context)
    otherwise = (
        own or says_not_loaded(context) or events(context, "container-driver-capability-missing")
    )
    inside = context.snapshot.container.nvidia_requested is False and in_container(context)
    blind = BLIND if inside else ("no-nvidia-driver",)
    return events(context, *blind) if beside and not otherwise else ()


def says_not_loaded(context: RuleContext) -> bool:
    return bool(events(context, "driver-not-loaded", "nvml-mismatch", "secure-boot-rejected"))


def _asked_for_gpus(context: RuleContext) -> bool:
    """An image made for GPUs, and nothing of a driver."""
    machine = context.snapshot
    named = machine.environment.get("NVIDIA_VISIBLE_DEVICES")
    unknown_bus = machine.pci_devices is None
    made_for_it = events(context, "gpu-image") and _came_to_no_gpu(context)
    return unknown_bus and bool(named not in (None, *NOTHING) or made_for_it)


def container_facts(context: RuleContext) -> tuple[Evidence, ...]:
    machine = context.snapshot
    kind = machine.container.kind
    lines = (
        [value_evidence(context, "container.kind", f"container: {kind}")]
        if in_container(context)
        else []
    )
    lines += [
        value_evidence(
            context,
            "pci_devices",
            f"the host's {device.name or 'NVIDIA GPU'} at {device.bus_id or 'PCI'}",
        )
        for device in nvidia_on_pci(context)[:1]
    ]
    lines += [
        Evidence(source="environment", text=f"{name}={machine.environment[name]}")
        for name in ("NVIDIA_VISIBLE_DEVICES",)
        if name in machine.environment
    ]
    return tuple(lines)


Start = tuple[str, tuple[Line, ...]]

START_WITH_GPU: dict[str, Start] = {
    "docker": (
        "Start it again with `--gpus all` (a number there counts GPUs, so that 0 gives none), as "
        "this command does with a plain image; the host needs the driver and the "
        "nvidia-container-toolkit",
        lines("docker run --rm --gpus all ubuntu nvidia-smi"),
    ),
    "podman": (
        "Start it again with `--device nvidia.com/gpu=all`, as the last command does with a plain "
        "image; the host needs the nvidia-container-toolkit",
        lines(
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            "podman run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi",
        ),
    ),
    "kubernetes": (
        "Ask for a GPU in the pod's specification: resources.limits `nvidia.com/gpu: 1`; the node "
        "needs the NVIDIA device plugin",
        (),
    ),
    "singularity": (
        "Start it with --nv (`singularity run --nv`, `apptainer run --nv`), as this command does "
        "with a plain image",
        lines("singularity exec --nv docker://ubuntu nvidia-smi"),
    ),
    "lxc": (
        "Give the container the GPU, on its host: `lxc config device add`, its name, then "
        "`gpu gpu`",
        (),
    ),
}
"""Kind of container -> what gives it a GPU, to be typed on the host."""


def start_with_gpu(context: RuleContext) -> Fix:
    """What gives this kind of container a GPU."""
    kind = context.snapshot.container.kind if in_container(context) else "docker"
    elsewhere: Start = ("Start the container with GPUs, on its host", ())
    text, commands = START_WITH_GPU.get(kind or "", elsewhere)
    return Fix(text=text, commands=commands)
