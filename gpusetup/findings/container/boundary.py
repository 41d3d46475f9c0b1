"""The boundary around the process: containers, WSL, and what the process itself is told to hide."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    asked_for_cuda,
    cuda_errors,
    driver_answers,
    event_evidence,
    events,
    gpus,
    has_nvidia,
    in_container,
    is_report,
    value_evidence,
    whole_number,
)
from gpusetup.evidence.given import not_asked_for
from gpusetup.findings.container.start import NOTHING, container_facts, container_no_gpu
from gpusetup.findings.driver.presence import NVML_UNKNOWN, nvml_said
from gpusetup.findings.layers import NO_DEVICE, NO_DRIVER, Layer
from gpusetup.findings.record import Cause
from gpusetup.fixes import paste
from gpusetup.model.finding import Evidence, Finding, Fix, Severity
from gpusetup.model.machine import Gpu
from gpusetup.model.shell import lines

HIDE = "CUDA_VISIBLE_DEVICES"


CUDA_VISIBLE_DEVICES_HIDDEN = Cause(
    id="cuda-visible-devices-hidden",
    place=(Layer.PROCESS, 40),
    title="CUDA_VISIBLE_DEVICES hides every GPU",
    means="The first invalid entry ends the list; an empty value leaves none. Slurm and Ray empty "
    "it for a job or a task that asked for no GPU.",
    proven_by="The variable, and no GPU left visible",
    not_when="gpus-partly-hidden",
    way_out="Unset it; in a job of Slurm or a task of Ray, ask for a GPU instead "
    "(`--gres=gpu:1`, `num_gpus=1`)",
    source="CUDA C++ Programming Guide, environment variables",
    explains=(*NO_DEVICE, "invalid-device-ordinal", "mig-misconfigured"),
)


def cuda_visible_devices_hidden(context: RuleContext) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES leaves no GPU to the process."""
    value = context.snapshot.environment.get(HIDE)
    if value is None or context.other_host or has_nvidia(context) is False:
        return
    if not_asked_for(context):
        return
    # No order: the memory of a GPU that is hidden is not asked for.
    if events(context, "out-of-memory"):
        return
    if _none_is_left(context, value):
        yield CUDA_VISIBLE_DEVICES_HIDDEN.found(
            f'{HIDE}="{value}" hides every GPU from this process',
            detail=_what_it_may_name(context),
            evidence=(Evidence(source="environment", text=f"{HIDE}={value}"),),
            fix=Fix(
                text=f"Unset {HIDE} (a shell profile, a service or a job script sets it)",
                commands=paste.unset(context, HIDE),
            ),
        )


def gpus_not_given(context: RuleContext) -> Iterator[Finding]:
    """A scheduler inside the program gave this task no GPU: it empties the variable."""
    messages = events(context, "gpus-not-given")
    if messages and not context.other_host:
        who = messages[0].values.get("who", "Its scheduler")
        yield CUDA_VISIBLE_DEVICES_HIDDEN.found(
            f"{who} gave this task no GPU, and hides all of them from it",
            detail=f"{who} sets {HIDE} for each task to the GPUs that it asked for; to none, where "
            "it asked for none.",
            evidence=event_evidence(messages),
            fix=Fix(text="Ask for a GPU where the task or the actor is made: `num_gpus=1`"),
        )
    elif not context.other_host and (job := not_asked_for(context)):
        yield CUDA_VISIBLE_DEVICES_HIDDEN.found(
            "The Slurm job asked for no GPU: Slurm shows it none",
            detail="A partition with GPUs gives a job only those that it asks for. A job of "
            f"several steps passes them on; a step that names its own needs the option too. {HIDE} "
            "is Slurm's to set: without a GPU given, unsetting it helps nothing.",
            evidence=(*_hidden_by(context), *event_evidence(job)),
            fix=Fix(
                text="Ask for a GPU in the job script (`#SBATCH --gres=gpu:1`) or on the command "
                "line (`--gres=gpu:1`, or `--gpus=1`), on a partition that has GPUs",
                looks=paste.look(
                    "see which partitions have GPUs, and what a job is given",
                    *lines("sinfo -o '%P %G %t'", "srun --gres=gpu:1 nvidia-smi -L"),
                ),
            ),
        )


def _hidden_by(context: RuleContext) -> tuple[Evidence, ...]:
    value = context.snapshot.environment.get(HIDE)
    return () if value is None else (Evidence(source="environment", text=f"{HIDE}={value}"),)


def _none_is_left(context: RuleContext, value: str) -> bool:
    """Whether the variable leaves no GPU: as the driver says, or by its first entry."""
    listed = gpus(context)
    if listed and all(gpu.visible is False for gpu in listed):
        return True
    first = value.split(",")[0].strip()
    if first in NOTHING:
        return bool(listed or has_nvidia(context) or asked_for_cuda(context))
    # CUDA stops at the first entry that names no GPU; nvidia-smi lists all of them all the same.
    index = whole_number(first)
    beyond = index is not None and index >= len(listed)
    nameless = first.startswith(("GPU-", "MIG-")) and not _is_named(listed, first)
    failed = asked_for_cuda(context) or bool(cuda_errors(context, 38, 100))
    refused = context.snapshot.cuda_api.init_code == ERROR_NO_DEVICE
    none = refused or not any(g.visible for g in listed)
    return bool(listed) and (beyond or nameless) and failed and none


ERROR_NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE."""


def _is_named(listed: tuple[Gpu, ...], entry: str) -> bool:
    """Whether an entry is the beginning of a GPU's UUID, or of one of its instances'."""
    known = (name for gpu in listed for name in (gpu.uuid or "", *gpu.mig_instances))
    counted = any(gpu.mig_count and not gpu.mig_instances for gpu in listed)
    return any(name.startswith(entry) for name in known) or (counted and entry.startswith("MIG-"))


def _what_it_may_name(context: RuleContext) -> str:
    count = len(gpus(context))
    if not count:
        return ""
    if count == 1:
        return "This machine has one GPU: it may name 0, or that GPU's UUID."
    return f"This machine has {count} GPUs: it may name 0 to {count - 1}, or their UUIDs."


GPUS_PARTLY_HIDDEN = Cause(
    id="gpus-partly-hidden",
    severity=Severity.NOTE,
    title="CUDA_VISIBLE_DEVICES hides some GPUs",
    means="Usually meant.",
    proven_by="The variable, and some GPUs left",
    way_out="Nothing to do",
    source="CUDA C++ Programming Guide, environment variables",
)


def some_gpus_hidden(context: RuleContext) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES leaves some GPUs and hides others."""
    hidden = [gpu for gpu in gpus(context) if gpu.visible is False]
    value = context.snapshot.environment.get(HIDE)
    if value is not None and hidden and len(hidden) < len(gpus(context)):
        yield GPUS_PARTLY_HIDDEN.found(
            f"{HIDE}={value} hides {len(hidden)} of {len(gpus(context))} GPUs",
            evidence=(Evidence(source="environment", text=f"{HIDE}={value}"),),
        )


RESTARTS = {
    "docker": " (`docker restart` and its name)",
    "podman": " (`podman restart` and its name)",
    "kubernetes": " (`kubectl delete pod` and its name: its controller makes another)",
}
"""How a container is started anew."""


CONTAINER_NVML_LOST = Cause(
    id="container-nvml-lost",
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
)


def container_nvml_lost(context: RuleContext) -> Iterator[Finding]:
    """A running container whose GPU access was taken away (a systemd reload on the host)."""
    driver = context.snapshot.driver
    works = context.snapshot.cuda_api.init_code == 0
    lost = driver.nvml_code == NVML_UNKNOWN and in_container(context) and not works
    # No order: a text's NVML code also stands for an answer that has no number ("NVML: N/A").
    lost = lost and (
        "unknown error" in (driver.nvml_message or "").lower() or not is_report(context)
    )
    said = (
        *events(context, "container-nvml-lost"),
        *(events(context, "nvml-unknown-error") if in_container(context) else ()),
    )
    if not (lost or said):
        return
    again = RESTARTS.get(context.snapshot.container.kind or "docker", "")
    in_words = not lost and all(event.values.get("said") == "in words" for event in said)
    yield CONTAINER_NVML_LOST.found(
        "This container has lost its GPU while it ran"
        if in_words
        else "This container has lost its GPU: NVML answers Unknown Error",
        detail="A `systemctl daemon-reload` on the host rewrites the device rules of containers "
        "whose GPUs were added behind systemd's back.",
        evidence=(
            *event_evidence(said),
            *nvml_said(context),
            *container_facts(context),
        ),
        fix=Fix(
            text=f"Start the container again{again}. For good: on the host let docker use the "
            'cgroupfs driver ("exec-opts": ["native.cgroupdriver=cgroupfs"] in '
            "/etc/docker/daemon.json), or give the devices by name or by CDI",
            alternatives=paste.other(
                "keep it from coming back: on the host make the links that keep the devices known, "
                "then start the container again",
                *lines("sudo nvidia-ctk system create-dev-char-symlinks --create-all"),
            ),
            needs_root=True,
        ),
    )


CONTAINER_DRIVER_CAPABILITY_MISSING = Cause(
    id="container-driver-capability-missing",
    place=(Layer.BOUNDARY, 70),
    title="the container lacks the compute libraries",
    means="NVIDIA_DRIVER_CAPABILITIES without compute.",
    proven_by="The variable; NVML answers and libcuda is missing",
    way_out="Add compute",
    source="NVIDIA Container Toolkit documentation, troubleshooting",
    explains=(*NO_DRIVER, "driver-missing"),
)


def container_driver_capability_missing(context: RuleContext) -> Iterator[Finding]:
    """NVML works in the container, libcuda was not given to it."""
    machine = context.snapshot
    named = machine.environment.get("NVIDIA_DRIVER_CAPABILITIES")
    words = {word.strip() for word in (named or "").split(",")}
    lacks_compute = named is not None and not words & {"compute", "all"}
    proven = in_container(context) and not machine.driver.library_found and lacks_compute
    blind = events(context, "cuda-version-err") if in_container(context) else ()
    messages = (*events(context, "container-driver-capability-missing"), *blind)
    if messages or (proven and driver_answers(context)):
        yield CONTAINER_DRIVER_CAPABILITY_MISSING.found(
            "The container was not given the driver's compute libraries: nvidia-smi works, "
            "libcuda is missing",
            evidence=event_evidence(messages)
            or (
                Evidence(source="environment", text=f"NVIDIA_DRIVER_CAPABILITIES={named}"),
                value_evidence(
                    context, "driver.library_found", "libcuda.so.1 is not in the container"
                ),
            ),
            fix=Fix(
                text="Start it again with compute among the capabilities (`-e "
                "NVIDIA_DRIVER_CAPABILITIES=compute,utility`), as the command does with a plain "
                "image",
                commands=lines(
                    'docker run --rm --gpus all -e "NVIDIA_DRIVER_CAPABILITIES=compute,utility" '
                    "ubuntu nvidia-smi"
                ),
            ),
        )


CUDA_COMPAT_IN_FRONT = Cause(
    id="cuda-compat-in-front",
    severity=Severity.NOTE,
    title="a forward compatibility library stands in front",
    means="It works where it is allowed.",
    proven_by="The folder in the loader's path, and cuInit succeeds",
    not_when="forward-compat-unsupported",
    way_out="Nothing to do",
    source='NVIDIA, "CUDA Compatibility"',
)


def cuda_compat_in_front(context: RuleContext) -> Iterator[Finding]:
    """A cuda-compat library is found before the driver's own, and works so far."""
    path = context.snapshot.container.cuda_compat_path
    if path and not context.snapshot.cuda_api.init_code:
        yield CUDA_COMPAT_IN_FRONT.found(
            f"A forward compatibility library is found before the driver's: {path}",
            detail="It serves data centre GPUs only, and only drivers older than itself.",
            evidence=(value_evidence(context, "container.cuda_compat_path", path),),
        )


RULES = (
    cuda_visible_devices_hidden,
    gpus_not_given,
    some_gpus_hidden,
    container_no_gpu,
    container_nvml_lost,
    container_driver_capability_missing,
    cuda_compat_in_front,
)
