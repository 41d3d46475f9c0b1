"""A container that was started without its host's GPU, or was given only a part of it."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Event, Evidence, Finding, Fix
from gpusetup.rules import ways, which
from gpusetup.rules.case import (
    Case,
    answering,
    asked_for_cuda,
    driver_answers,
    error,
    events,
    gpus,
    in_container,
    is_cuda_build,
    is_report,
    nvidia_on_pci,
    problems,
    shown,
    told,
)
from gpusetup.shell import Line, lines

NOTHING = ("", "-1", "none", "void", "NoDevFiles")


def container_no_gpu(case: Case) -> Iterator[Finding]:
    """A container that was started without its host's GPU."""
    said = (*events(case, "container-no-gpu"), *_blind_beside_a_driver(case))
    if shut := _shut_out(case):
        yield _no_device_given(case, shut)
        return
    if case.other_host or _a_gpu_computed(case) or not (said or _given_none(case)):
        return
    kind = f"This {case.snapshot.container.kind}" if in_container(case) else "The"
    empty = _is_asked_for(case, said)
    looked = case.snapshot.devices is not None
    nodes = (shown(case, "devices", "no /dev/nvidia* in the container"),) if looked else ()
    yield error(
        "container-no-gpu",
        f"{kind} container was given nothing of the driver, though its command asks for the GPU"
        if empty
        else f"{kind} container was started without a GPU",
        detail="The host has one, as its PCI bus shows." if nvidia_on_pci(case) else "",
        evidence=(
            *told(said or events(case, *BLIND)),
            *nodes,
            *container_facts(case),
            *problems(case, "driver"),
        ),
        fix=WITH_VARIABLES if empty else _start_with_gpu(case),
    )


ON_A_GPU = ("2", "209", "214", "700", "710", "716", "717", "718", "719")
"""Codes of errors that only a program with a GPU gets: memory, kernels, ECC, launches."""


def _a_gpu_computed(case: Case) -> bool:
    """A text with an error that needs a GPU: nvidia-smi is only not in the image."""
    codes = {event.values.get("code") for event in events(case, "cuda-error")}
    computed = case.snapshot.torch.cuda_available or codes & set(ON_A_GPU)
    return is_report(case) and bool(computed or events(case, "cuda-out-of-memory"))


def _shut_out(case: Case) -> tuple[Event, ...]:
    """nvidia-smi runs in a container and lists nothing, in a text whose host lists its GPUs."""
    inside = (e for e in events(case, "no-devices-found") if e.values.get("place") == "container")
    return tuple(inside) if gpus(case) and driver_answers(case) else ()


def _no_device_given(case: Case, said: tuple[Event, ...]) -> Finding:
    return error(
        "container-no-gpu",
        f"The container has the driver's programs and no GPU: its host lists {which.names(case)}",
        detail="The device nodes were not given, or the container's cgroup or user may not open "
        "them.",
        evidence=(*told(said), *container_facts(case)),
        fix=Fix(
            text="Give the GPUs by CDI, which the cgroup rules do not stop (rootless, cgroup v2); "
            "the last command does it with a plain image",
            commands=lines(
                "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
                "docker run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi",
            ),
            looks=ways.look(
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


def _is_asked_for(case: Case, said: tuple[Event, ...]) -> bool:
    """Whether the command that a text shows asks for the GPU, and nvidia-smi is missing."""
    docker = case.snapshot.container.kind == "docker" and case.snapshot.container.nvidia_requested
    return bool(docker and said and all(e.values.get("lacks") == "nvidia-smi" for e in said))


BLIND = ("no-nvidia-driver", "smi-not-found")
"""Events of a program that finds nothing of the driver."""


def _given_none(case: Case) -> bool:
    """A container without a driver, whose host has a GPU or that was meant to have one."""
    machine = case.snapshot
    if not in_container(case) or answering(case) or driver_answers(case):
        return False
    on_host = nvidia_on_pci(case) or machine.driver.module_loaded
    silent = is_report(case) and asked_for_cuda(case) and is_cuda_build(machine.torch)
    blind = events(case, *BLIND)
    if any(event.values.get("place") == "host" for event in blind):
        return False  # the toolkit asked the host's driver: that is what is missing
    wanted = on_host or silent or _asked_for_gpus(case) or blind
    return bool(wanted) and not machine.container.nvidia_requested


def _blind_beside_a_driver(case: Case) -> tuple[Event, ...]:
    """A program that finds no driver, in a text whose nvidia-smi shows that the host's works."""
    beside = is_report(case) and driver_answers(case) and not case.snapshot.os.wsl
    otherwise = says_not_loaded(case) or events(case, "container-capability-missing")
    return events(case, "no-nvidia-driver") if beside and not otherwise else ()


def says_not_loaded(case: Case) -> bool:
    return bool(events(case, "driver-not-loaded", "nvml-mismatch", "module-key-rejected"))


def _asked_for_gpus(case: Case) -> bool:
    """An image made for GPUs, and nothing of a driver."""
    machine = case.snapshot
    named = machine.environment.get("NVIDIA_VISIBLE_DEVICES")
    unknown_bus = machine.pci_devices is None
    return unknown_bus and named not in (None, *NOTHING)


def container_facts(case: Case) -> tuple[Evidence, ...]:
    machine = case.snapshot
    kind = machine.container.kind
    lines = [shown(case, "container.kind", f"container: {kind}")] if in_container(case) else []
    lines += [
        shown(
            case,
            "pci_devices",
            f"the host's {device.name or 'NVIDIA GPU'} at {device.bus_id or 'PCI'}",
        )
        for device in nvidia_on_pci(case)[:1]
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
        "Start it again with `--gpus all`, as this command does with a plain image; the host needs "
        "the driver and the nvidia-container-toolkit",
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
        "Ask for a GPU in the pod's specification: resources.limits `nvidia.com/gpu: 1`; the "
        "node needs "
        "the NVIDIA device plugin",
        (),
    ),
    "singularity": (
        "Start it with --nv, as this command does with a plain image",
        lines("apptainer exec --nv docker://ubuntu nvidia-smi"),
    ),
    "lxc": (
        "Give the container the GPU, on its host: `lxc config device add`, its name, then "
        "`gpu gpu`",
        (),
    ),
}
"""Kind of container -> what gives it a GPU, to be typed on the host."""


def _start_with_gpu(case: Case) -> Fix:
    kind = case.snapshot.container.kind if in_container(case) else "docker"
    elsewhere: Start = ("Start the container with GPUs, on its host", ())
    text, commands = START_WITH_GPU.get(kind or "", elsewhere)
    return Fix(text=text, commands=commands)
