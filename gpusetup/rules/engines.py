"""What container engines and Kubernetes say when they cannot give a GPU; tools that misread it."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Finding, Fix
from gpusetup.rules import ways
from gpusetup.rules.case import Case, error, events, told
from gpusetup.rules.messages import Message, said

MESSAGES: tuple[Message, ...] = (
    Message(
        kind="container-cdi-unresolvable",
        id="container-cdi-unresolvable",
        title="The container engine cannot resolve the CDI device {device}",
        plain="The container engine cannot resolve the CDI device nvidia.com/gpu",
        detail="There is no CDI specification on the host, it is of an older driver, or the engine "
        "(rootless, remote, an old podman) does not read its folder.",
        text="Write the specification on the host, again after every driver update; driver and "
        "nvidia-container-toolkit must be installed there",
        commands=(
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            "nvidia-ctk cdi list",
        ),
        needs_root=True,
    ),
    Message(
        kind="k8s-gpu-not-allocatable",
        id="k8s-gpu-not-allocatable",
        title="Kubernetes has no free nvidia.com/gpu to give",
        detail="No node offers one (the device plugin does not run, the runtime or the driver is "
        "missing, the GPU is unhealthy), taints keep the pod away, or other pods hold them all.",
        text="See what the nodes offer and who holds it; the device plugin must run on the node, "
        "with the runtime nvidia",
        commands=(
            "kubectl describe nodes | grep -A 8 -E 'Allocatable|Allocated'",
            "kubectl get pods -A -o wide | grep -i nvidia",
            "kubectl describe pod POD",
        ),
    ),
    Message(
        kind="smi-banner-misread",
        id="smi-banner-misread",
        title="{program} misreads the banner of the newer nvidia-smi: the driver is healthy",
        plain="A tool misreads the banner of the newer nvidia-smi: the driver is healthy",
        detail="From driver 610 on nvidia-smi prints `CUDA UMD Version`; tools that search for "
        "`CUDA Version` find none and take the CPU build or their oldest one.",
        text="Name the build instead of letting the tool guess, or update the tool",
        commands=("gpusetup install",),
    ),
)


def engine_messages(case: Case) -> Iterator[Finding]:
    yield from said(case, MESSAGES)


TOOLKIT_SOURCE = (
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
)


def toolkit_commands(case: Case) -> tuple[str, ...]:
    """How the host gets the toolkit, once NVIDIA's repository is set up, and how docker uses it."""
    return (
        *ways.system_package(case, "nvidia-container-toolkit"),
        "sudo nvidia-ctk runtime configure --runtime=docker",
        "sudo systemctl restart docker",
        "docker run --rm --gpus all ubuntu nvidia-smi",
    )


def container_toolkit_missing(case: Case) -> Iterator[Finding]:
    """Docker knows no nvidia device driver or runtime."""
    heard = events(case, "container-toolkit-missing")
    if heard:
        yield error(
            "container-toolkit-missing",
            "Docker has no nvidia device driver: nvidia-container-toolkit is not installed, or "
            "not configured",
            detail="The driver itself may work on the host (`nvidia-smi` shows it).",
            evidence=told(heard),
            fix=Fix(
                text=f"Install and configure the toolkit on the host ({TOOLKIT_SOURCE})",
                commands=toolkit_commands(case),
                needs_root=True,
            ),
        )


HOOK_WORDS = (
    ("driver not loaded", "the host's kernel driver is not loaded", "driver-not-loaded"),
    ("driver rpc", "the host's driver does not answer", "driver-not-loaded"),
    ("libnvidia-ml", "the host has no driver library", "driver-missing"),
    ("load library failed", "the host has no driver library", "driver-missing"),
    ("mismatch", "the host's driver is of two versions", "nvml-mismatch"),
    ("ldcache", "the host's library cache cannot be read", "container-hook-failed"),
    ("cgroup", "the host's cgroups are not what the toolkit expects", "container-hook-failed"),
    ("mount", "a file of the driver cannot be mounted", "container-hook-failed"),
    ("device error", "a GPU is named that the host does not have", "container-hook-failed"),
    ("unknown device", "a GPU is named that the host does not have", "container-hook-failed"),
)
"""A word of nvidia-container-cli's problem -> what it means, and the finding."""


def container_hook_failed(case: Case) -> Iterator[Finding]:
    """nvidia-container-cli could not prepare the container: the host is at fault."""
    heard = events(case, "container-hook-failed")
    if not heard:
        return
    problem = heard[0].values.get("problem", "").lower()
    row = next((row for row in HOOK_WORDS if row[0] in problem), None)
    _, meaning, id = row or ("", problem or "the container cannot be prepared", "")
    yield error(
        id or "container-hook-failed",
        f"The container gets no GPU: {meaning}",
        detail="The toolkit asks the host's driver before the container starts.",
        evidence=told(heard),
        fix=_on_the_host(case, id),
    )


def _on_the_host(case: Case, id: str) -> Fix:
    if id == "driver-missing":
        return ways.driver(case, "Install the NVIDIA driver on the host")
    if id in ("driver-not-loaded", "nvml-mismatch"):
        return Fix(
            text="Make `nvidia-smi` work on the host first: reboot it, so that the kernel module "
            "of the installed driver is loaded",
            commands=("nvidia-smi", "sudo reboot"),
            needs_root=True,
            needs_reboot=True,
        )
    return Fix(
        text="Make `nvidia-smi` work on the host, update nvidia-container-toolkit, and look at "
        "which GPUs and folders the container is given",
        commands=("nvidia-smi -L", *toolkit_commands(case)),
        needs_root=True,
    )


RULES = (
    engine_messages,
    container_toolkit_missing,
    container_hook_failed,
)
