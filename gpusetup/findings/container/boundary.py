"""The boundary around the process: containers, WSL, and what the process itself is told to hide."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    asked_for_cuda,
    driver_answers,
    events,
    gpus,
    has_nvidia,
    in_container,
    is_report,
    whole_number,
)
from gpusetup.evidence.given import not_asked_for
from gpusetup.evidence.places import in_windows_itself
from gpusetup.findings import alike
from gpusetup.findings.container.start import NOTHING, container_no_gpu
from gpusetup.findings.driver.presence import NVML_UNKNOWN
from gpusetup.findings.layers import NO_DEVICE, NO_DRIVER, Layer
from gpusetup.findings.message_rules import finding, shown
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.model.finding import Finding

CUDA_VISIBLE_DEVICES_HIDDEN = Cause(
    id="cuda-visible-devices-hidden",
    place=(Layer.PROCESS, 40),
    title="CUDA_VISIBLE_DEVICES hides every GPU",
    means="The first invalid entry ends the list; an empty value leaves none. Slurm and Ray empty "
    "it for a job or a task that asked for no GPU.",
    proven_by="The variable, and no GPU left visible",
    way_out="Unset it; in a job of Slurm or a task of Ray, ask for a GPU instead "
    "(`--gres=gpu:1`, `num_gpus=1`)",
    source="CUDA C++ Programming Guide, environment variables",
    explains=(*NO_DEVICE, "invalid-device-ordinal", "mig-misconfigured"),
    alike=(
        Alike(
            causes=("torch-sees-no-gpu", "invalid-device-ordinal"),
            asks=alike.LIST_GPUS,
            unless=alike.saw_no_gpu,
        ),
    ),
    events=("gpus-not-given",),
    message=Message(
        title="A scheduler gave this task no GPU, and hides all of them from it",
        text="Ask for a GPU where the task or the actor is made: `num_gpus=1`",
        cases=(
            Message(
                having={"value": ""},
                title='CUDA_VISIBLE_DEVICES="{value}" hides every GPU from this process',
                detail="It may name the GPUs' numbers, from 0 on, or their UUIDs.",
                text="Unset CUDA_VISIBLE_DEVICES (a shell profile, a service or a job script sets "
                "it)",
                commands=("unset CUDA_VISIBLE_DEVICES",),
            ),
            Message(
                where=(lambda context: bool(not_asked_for(context)),),
                title="The Slurm job asked for no GPU: Slurm shows it none",
                text="Ask for a GPU in the job script (`#SBATCH --gres=gpu:1`) or on the command "
                "line (`--gres=gpu:1`, or `--gpus=1`), on a partition that has GPUs",
                look=("sinfo -o '%P %G %t'", "srun --gres=gpu:1 nvidia-smi -L"),
                see="see which partitions have GPUs, and what a job is given",
            ),
        ),
    ),
)


def cuda_visible_devices_hidden(context: RuleContext) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES leaves no GPU to the process: it is set so, or a scheduler gave none."""
    said = events(context, "gpus-not-given") or not_asked_for(context)
    value = context.snapshot.environment.get("CUDA_VISIBLE_DEVICES")
    if not said and value is not None and _none_is_left(context, value):
        text = f"CUDA_VISIBLE_DEVICES={value}"
        said = (shown(context, "environment", text, value=value),)
    if said and not context.other_host:
        yield finding(context, CUDA_VISIBLE_DEVICES_HIDDEN, said)


def _none_is_left(context: RuleContext, value: str) -> bool:
    """Whether the variable leaves no GPU: as the driver says, or by its first entry."""
    listed = gpus(context)
    # No order: the memory of a GPU that is hidden is not asked for.
    if listed and all(gpu.visible is False for gpu in listed):
        return not events(context, "out-of-memory")
    first = value.split(",")[0].strip()
    if first in NOTHING:
        return bool(listed or has_nvidia(context) or asked_for_cuda(context))
    # CUDA stops at the first entry that names no GPU; nvidia-smi lists all of them all the same.
    index = whole_number(first)
    known = [name for gpu in listed for name in (gpu.uuid or "", *gpu.mig_instances)]
    nameless = first[:4] in ("GPU-", "MIG-") and not any(name.startswith(first) for name in known)
    wrong = nameless if index is None else index >= len(listed)
    return bool(listed and wrong and asked_for_cuda(context))


CONTAINER_NVML_LOST = Cause(
    id="container-nvml-lost",
    impossible=(in_windows_itself,),
    place=(Layer.BOUNDARY, 60),
    title="a running container lost its GPU",
    means="systemd on the host rewrote the container's device rules.",
    proven_by="NVML code 999 in a container",
    way_out="Restart it; use the cgroupfs driver or CDI",
    source="NVIDIA Container Toolkit documentation, troubleshooting",
    explains=(
        *NO_DRIVER,
        "driver-not-loaded",
        "device-permission",
        "gpu-init-failed",
    ),
    stage="running",
    alike=(
        Alike(
            causes=("nvml-mismatch", "gpu-fell-off-bus"),
            asks="nvidia-smi",
            unless=alike.nvml_says_it,
        ),
    ),
    message=Message(
        title="This container has lost its GPU while it ran",
        detail="A `systemctl daemon-reload` on the host rewrites the device rules of containers "
        "whose GPUs were added behind systemd's back.",
        text="Start the container again (`docker restart`, or `kubectl delete pod`, and its name). "
        "For good: on the host let docker use the cgroupfs driver "
        '("exec-opts": ["native.cgroupdriver=cgroupfs"] in /etc/docker/daemon.json), or give the '
        "devices by name or by CDI",
        other=("sudo nvidia-ctk system create-dev-char-symlinks --create-all",),
        other_title="keep it from coming back: on the host make the links that keep the devices "
        "known, then start the container again",
        needs_root=True,
    ),
)


def container_nvml_lost(context: RuleContext) -> Iterator[Finding]:
    """A running container whose GPU access was taken away (a systemd reload on the host)."""
    said = events(context, "container-nvml-lost")
    if in_container(context):
        said += events(context, "nvml-unknown-error")
        driver, starts = context.snapshot.driver, context.snapshot.cuda_api.init_code == 0
        if driver.nvml_code == NVML_UNKNOWN and not starts and not is_report(context):
            said += (shown(context, "driver.nvml_code", "999: Unknown Error"),)
    if said:
        yield finding(context, CONTAINER_NVML_LOST, said)


CONTAINER_DRIVER_CAPABILITY_MISSING = Cause(
    id="container-driver-capability-missing",
    place=(Layer.BOUNDARY, 70),
    title="the container lacks the compute libraries",
    means="NVIDIA_DRIVER_CAPABILITIES without compute.",
    proven_by="The variable; NVML answers and libcuda is missing",
    way_out="Add compute",
    source="NVIDIA Container Toolkit documentation, troubleshooting",
    explains=(*NO_DRIVER, "driver-missing"),
    alike=(
        Alike(causes=("container-no-gpu",), asks=alike.LIBCUDA_IN_IT, unless=alike.cuda_failed),
    ),
    message=Message(
        title="The container was not given the driver's compute libraries: nvidia-smi works, "
        "libcuda is missing",
        text="Start it again with compute among the capabilities (`-e NVIDIA_DRIVER_CAPABILITIES="
        "compute,utility`), as the command does with a plain image",
        commands=(
            'docker run --rm --gpus all -e "NVIDIA_DRIVER_CAPABILITIES=compute,utility" ubuntu '
            "nvidia-smi",
        ),
    ),
)


def container_driver_capability_missing(context: RuleContext) -> Iterator[Finding]:
    """NVML works in the container, libcuda was not given to it."""
    machine, name = context.snapshot, "NVIDIA_DRIVER_CAPABILITIES"
    said = events(context, "container-driver-capability-missing")
    if in_container(context):
        said += events(context, "cuda-version-err")
        named = machine.environment.get(name, "all")
        lacks = not {"compute", "all"} & set(re.split(r"[, ]+", named))
        if lacks and not machine.driver.library_found and driver_answers(context):
            said += (shown(context, "environment", f"{name}={named}"),)
    if said:
        yield finding(context, CONTAINER_DRIVER_CAPABILITY_MISSING, said)


RULES = (
    cuda_visible_devices_hidden,
    container_no_gpu,
    container_nvml_lost,
    container_driver_capability_missing,
)
