"""What container engines and Kubernetes say when they cannot give a GPU; tools that misread it."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Finding, Fix
from gpusetup.rules import packages, ways
from gpusetup.rules.case import Case, error, events, on, told
from gpusetup.rules.messages import Message, said
from gpusetup.shell import Line, lines

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
        look=(
            "kubectl describe nodes | grep -A 8 -E 'Allocatable|Allocated'",
            "kubectl get pods -A -o wide | grep -i nvidia",
        ),
        see="see what the nodes offer, and whether the plugin runs",
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


LIBNVIDIA = "https://nvidia.github.io/libnvidia-container"
KEYRING = "/usr/share/keyrings/nvidia-container-toolkit-keyring.gpg"
BY_APT = lines(
    f"curl -fsSL {LIBNVIDIA}/gpgkey | sudo gpg --yes --dearmor -o {KEYRING}",
    f"curl -fsSL {LIBNVIDIA}/stable/deb/nvidia-container-toolkit.list "
    f"| sed 's#deb https://#deb [signed-by={KEYRING}] https://#g' "
    "| sudo tee /etc/apt/sources.list.d/nvidia-container-toolkit.list",
    "sudo apt update",
)
BY_DNF = lines(
    f"curl -fsSL {LIBNVIDIA}/stable/rpm/nvidia-container-toolkit.repo "
    "| sudo tee /etc/yum.repos.d/nvidia-container-toolkit.repo"
)
BY_ZYPPER = lines(
    f"sudo zypper addrepo {LIBNVIDIA}/stable/rpm/nvidia-container-toolkit.repo",
    "sudo zypper --gpg-auto-import-keys refresh",
)
REPOSITORY = {
    "ubuntu": BY_APT,
    "debian": BY_APT,
    "pop": BY_APT,
    "fedora": BY_DNF,
    "rhel": BY_DNF,
    "suse": BY_ZYPPER,
}
"""Distribution -> how it gets NVIDIA's repository (the toolkit's own guide, November 2026); Arch
has the package itself."""


def toolkit_commands(case: Case) -> tuple[Line, ...]:
    """How the host gets the toolkit, from the repository on, and who then uses it."""
    if on(case, "windows"):
        return ON_WINDOWS
    repository = REPOSITORY.get(packages.distribution(case) or "", ())
    package = packages.system_package(case, "nvidia-container-toolkit")
    use = CONFIGURED.get(case.snapshot.container.kind or "", CONFIGURED["docker"])
    return (*repository, *package, *use)


WITH_WINDOWS = (
    "Docker Desktop brings the toolkit: use its WSL 2 engine (Settings, General; it has no GPU "
    "with Hyper-V or Windows containers), and update WSL, Docker Desktop and NVIDIA's driver"
)
ON_WINDOWS = lines("wsl --update", "wsl --shutdown", "docker run --rm --gpus all ubuntu nvidia-smi")


CONFIGURED = {
    "docker": lines(
        "sudo nvidia-ctk runtime configure --runtime=docker",
        "sudo systemctl restart docker",
        "docker run --rm --gpus all ubuntu nvidia-smi",
    ),
    "podman": lines(
        "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        "podman run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi",
    ),
    "kubernetes": lines(
        "sudo nvidia-ctk runtime configure --runtime=containerd",
        "sudo systemctl restart containerd",
        "kubectl get runtimeclass nvidia",
    ),
}
"""How an engine gets to know the toolkit, and a check that it does."""


def container_toolkit_missing(case: Case) -> Iterator[Finding]:
    """Docker knows no nvidia device driver or runtime."""
    heard = events(case, "container-toolkit-missing")
    on_a_node = case.snapshot.container.kind == "kubernetes"
    if heard:
        yield error(
            "container-toolkit-missing",
            f"{'The node' if on_a_node else 'Docker'} has no nvidia "
            f"{'runtime' if on_a_node else 'device driver'}: nvidia-container-toolkit is not "
            "installed, or not configured",
            detail="The driver itself may work on the host (`nvidia-smi` shows it).",
            evidence=told(heard),
            fix=Fix(
                text=WITH_WINDOWS
                if on(case, "windows")
                else f"Install and configure the toolkit on the host ({TOOLKIT_SOURCE})",
                commands=toolkit_commands(case),
                needs_root=True,
            ),
        )


CGROUPS = ("cgroup", "BPF", "bpf_prog", "device rules")
"""What nvidia-container-cli names where it may not let the container's group at the devices."""

NO_CGROUPS = Fix(
    text="Update nvidia-container-toolkit; for an engine without root have it leave control groups "
    "alone, and restart that engine (one that runs as root then needs each device by --device)",
    commands=lines(
        "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place",
        "systemctl --user restart docker",
    ),
    needs_root=True,
)


FILES_IN_THE_IMAGE = Fix(
    text="The image holds a file that the toolkit brings from the host (it was saved or built "
    "inside a container with a GPU, or is of another JetPack): take the image of this release, or "
    "delete the driver's files in its Dockerfile: "
    "`RUN rm -f /usr/lib/*-linux-gnu/libcuda.so* /usr/lib/*-linux-gnu/libnvidia-*.so*`",
)

SHOWN = 100
"""So much of the toolkit's word stands in the title."""


def container_hook_failed(case: Case) -> Iterator[Finding]:
    """nvidia-container-cli could not prepare the container: the host is at fault."""
    heard = events(case, "container-hook-failed")
    if heard:
        problem = heard[0].values.get("problem") or ""
        yield error(
            "container-hook-failed",
            f"The container gets no GPU: {problem[:SHOWN] or 'the toolkit cannot prepare it'}",
            detail="The toolkit asks the host's driver before the container starts, and brings "
            "its files and devices in.",
            evidence=told(heard),
            fix=_of_the_hook(case, problem),
        )


def _of_the_hook(case: Case, problem: str) -> Fix:
    if any(word in problem for word in CGROUPS) and "not found" not in problem:
        return NO_CGROUPS
    if "file exists" in problem:
        return FILES_IN_THE_IMAGE
    return Fix(
        text="Make `nvidia-smi` work on the host first, update nvidia-container-toolkit, "
        "and look at which GPUs and folders the container is given",
        commands=toolkit_commands(case),
        looks=ways.look("see first whether the host's driver works", *lines("nvidia-smi -L")),
        needs_root=True,
    )


RULES = (
    engine_messages,
    container_toolkit_missing,
    container_hook_failed,
)
