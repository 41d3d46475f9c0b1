"""A container that was started without its host's GPU, or was given only a part of it."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    asked_for_cuda,
    driver_answers,
    events,
    gpus,
    in_container,
    is_cuda_build,
    is_report,
    nvidia_on_pci,
)
from gpusetup.evidence.places import IN_A_CONTAINER, in_windows_itself, no
from gpusetup.findings import alike
from gpusetup.findings.layers import NO_DRIVER, Layer
from gpusetup.findings.lenders import is_lent
from gpusetup.findings.message_rules import finding, shown
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.machine import Event
from gpusetup.model.shell import lines

NOTHING = ("", "-1", "none", "void", "NoDevFiles")


CONTAINER_NO_GPU = Cause(
    id="container-no-gpu",
    lacks="gpu",
    impossible=(in_windows_itself, is_lent),
    place=(Layer.BOUNDARY, 50),
    title="the container was started without a GPU",
    means="The host's GPU must be given to a container.",
    proven_by="A container without device nodes whose host has an NVIDIA GPU",
    not_when="no-nvidia-gpu: the PCI bus shows none",
    way_out="--gpus all, CDI, or a resource limit",
    source="NVIDIA Container Toolkit documentation, troubleshooting",
    explains=(*NO_DRIVER, "driver-missing", "driver-not-loaded", "device-permission"),
    alike=(
        Alike(
            causes=("driver-missing", "container-toolkit-missing"),
            asks=alike.ON_THE_HOST,
            settled_by=("gpus", "driver", "bus"),
            unless=alike.is_told,
        ),
        Alike(
            causes=("driver-missing",),
            asks=alike.ON_THE_HOST,
            settled_by=("gpus", "driver", "bus"),
            unless=alike.host_matters_not,
        ),
    ),
    message=Message(
        title="The container was started without a GPU",
        way=lambda context, _: start_with_gpu(context),
        cases=(
            Message(
                having={"step": "build"},
                title="The build of an image has no GPU, and a step of it asks for one",
                text="Take the check or the computation out of the build (stable-diffusion-webui: "
                "`--skip-torch-cuda-test`; an extension's build: name the architectures in "
                "TORCH_CUDA_ARCH_LIST), and start the container with `--gpus all`",
                look=("docker run --rm --gpus all ubuntu nvidia-smi",),
                see="see that a container has the GPU",
            ),
            Message(
                having={"place": "container"},
                where=(lambda context: bool(events(context, "no-devices-found")),),
                title="The container has the driver's programs and no GPU: its host lists {gpus}",
                text="Give the GPUs by CDI, which the cgroup rules do not stop (rootless, cgroup "
                "v2); the last command does it with a plain image",
                commands=(
                    "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
                    "docker run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi",
                ),
            ),
            Message(
                having={"library": "."},
                where=(no(IN_A_CONTAINER),),
                text="In a container: start it again with `--gpus all`, as this command does with "
                "a plain image. On a host such an empty file is what a container or a broken "
                "package left: install the driver's packages anew",
                commands=("docker run --rm --gpus all ubuntu nvidia-smi",),
            ),
        ),
    ),
)


def container_no_gpu(context: RuleContext) -> Iterator[Finding]:
    """A container that was started without its host's GPU."""
    said = (*events(context, "container-no-gpu"), *_blind_beside_a_driver(context))
    # nvidia-smi lists nothing in a container, in a text whose host lists its GPUs.
    shut = events(context, "no-devices-found") if gpus(context) else ()
    said += tuple(event for event in shut if event.values.get("place") == "container")
    # A text with an error that needs a GPU: nvidia-smi is only not in the image.
    computed = context.snapshot.torch.cuda_available or events(context, "out-of-memory", "xid")
    if context.other_host or (is_report(context) and computed):
        return
    if said or _given_none(context):
        kind = shown(context, "container.kind", f"container: {context.snapshot.container.kind}")
        seen = said or (*events(context, *BLIND, *IN_VAIN), kind)
        yield finding(context, CONTAINER_NO_GPU, seen)


IN_VAIN = ("cuda-unavailable", "driver-check-failed")
"""Events of a program that came to no GPU, whatever the driver."""
BLIND = ("no-nvidia-driver", "smi-not-found")
"""Events of a program that finds nothing of the driver."""


def _given_none(context: RuleContext) -> bool:
    """A container without a driver, whose host has a GPU or that was meant to have one."""
    machine = context.snapshot
    given = driver_answers(context) or machine.container.nvidia_requested
    blind = events(context, *BLIND)
    # The toolkit asked the host's driver: that is what is missing.
    at_the_host = any(event.values.get("place") == "host" for event in blind)
    if not in_container(context) or given or at_the_host:
        return False
    # No order: a text need not list the device nodes that a live container shows.
    in_vain = is_report(context) and (asked_for_cuda(context) or events(context, *IN_VAIN))
    bare = machine.container.nvidia_requested is False or is_cuda_build(machine.torch)
    named = machine.environment.get("NVIDIA_VISIBLE_DEVICES", "void")
    meant = named not in NOTHING and machine.pci_devices is None
    made_for_it = in_vain and (bare or events(context, "gpu-image"))
    return bool(nvidia_on_pci(context) or blind or meant or made_for_it)


def _blind_beside_a_driver(context: RuleContext) -> tuple[Event, ...]:
    """A program that finds no driver, in a text whose nvidia-smi shows that the host's works."""
    in_wsl = context.snapshot.os.wsl and not in_container(context)
    # No order: TensorFlow says so of its own libraries as well, in a container or not.
    if in_wsl or not driver_answers(context) or events(context, *OTHERWISE):
        return ()
    blind = BLIND if context.snapshot.container.nvidia_requested is False else BLIND[:1]
    return events(context, *blind) if is_report(context) else ()


OTHERWISE = (
    "program-lib-missing",
    "driver-not-loaded",
    "nvml-mismatch",
    "container-driver-capability-missing",
)


DOCKER = Fix(
    text="Start it again with `--gpus all` (a number there counts GPUs, so that 0 gives none), as "
    "this command does with a plain image; the host needs the driver and the "
    "nvidia-container-toolkit",
    commands=lines("docker run --rm --gpus all ubuntu nvidia-smi"),
)
START_WITH_GPU = {
    "podman": Fix(
        text="Start it again with `--device nvidia.com/gpu=all`, as the last command does with a "
        "plain image; the host needs the nvidia-container-toolkit",
        commands=lines(
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            "podman run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi",
        ),
    ),
    "kubernetes": Fix(
        text="Ask for a GPU in the pod's specification: resources.limits `nvidia.com/gpu: 1`; the "
        "node needs the NVIDIA device plugin"
    ),
    "singularity": Fix(
        text="Start it with --nv (`singularity run --nv`, `apptainer run --nv`), as this command "
        "does with a plain image",
        commands=lines("singularity exec --nv docker://ubuntu nvidia-smi"),
    ),
    "lxc": Fix(
        text="Give the container the GPU, on its host: `lxc config device add`, its name, then "
        "`gpu gpu`"
    ),
    "none": DOCKER,
    "docker": DOCKER,
}
"""Kind of container -> what gives it a GPU, to be typed on the host."""


def start_with_gpu(context: RuleContext) -> Fix:
    """What gives this kind of container a GPU; a text that names none is taken to be of docker."""
    kind = context.snapshot.container.kind or "docker"
    return START_WITH_GPU.get(kind) or Fix(text="Start the container with GPUs, on its host")
