"""What container engines and Kubernetes say when they cannot give a GPU; tools that misread it."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import RuleContext, driver_answers
from gpusetup.evidence.places import IN_KUBERNETES, ON_WINDOWS, in_windows_itself, said
from gpusetup.findings.layers import NO_DRIVER, Layer
from gpusetup.findings.lenders import is_lent
from gpusetup.findings.message_rules import from_messages
from gpusetup.findings.record import Cause, Likelier, Message
from gpusetup.findings.sources import TOOLKIT
from gpusetup.fixes import packages, paste
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.shell import Line, lines

MESSAGES: tuple[Cause, ...] = (
    Cause(
        id="container-cdi-unresolvable",
        place=(Layer.BOUNDARY, 20),
        title="a CDI device cannot be resolved",
        means="CDI specifications name the GPUs; there is none, or the engine does not read it.",
        proven_by="The engine names the device that it cannot resolve",
        not_when="container-toolkit-missing: the engine knows no driver at all",
        way_out="nvidia-ctk cdi generate, after every driver update",
        source="NVIDIA Container Toolkit documentation, CDI support",
        explains=(*NO_DRIVER, "container-no-gpu", "driver-missing"),
        message=Message(
            title="The container engine cannot resolve the CDI device {device}",
            plain="The container engine cannot resolve the CDI device nvidia.com/gpu",
            detail="There is no CDI specification on the host, it is of an older driver, or the "
            "engine (rootless, remote, an old podman) does not read its folder.",
            text="Write the specification on the host, again after every driver update; driver and "
            "nvidia-container-toolkit must be installed there",
            commands=(
                "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
                "nvidia-ctk cdi list",
            ),
            needs_root=True,
        ),
    ),
    Cause(
        id="k8s-gpu-not-allocatable",
        place=(Layer.BOUNDARY, 30),
        title="Kubernetes has no free nvidia.com/gpu",
        means="No device plugin, an unhealthy GPU, taints, a quota, or a full cluster.",
        proven_by="The scheduler or the kubelet says so",
        not_when="container-no-gpu: the pod runs and asked for none",
        way_out="Look at the nodes' allocatable GPUs and at the device plugin",
        source="Kubernetes documentation, schedule GPUs; NVIDIA k8s-device-plugin",
        explains=(*NO_DRIVER, "container-no-gpu"),
        message=Message(
            title="Kubernetes has no free nvidia.com/gpu to give",
            detail="No node offers one (the device plugin does not run, the runtime or the driver "
            "is missing, the GPU is unhealthy), taints keep the pod away, or other pods hold them "
            "all.",
            text="See what the nodes offer and who holds it; the device plugin must run on the "
            "node, with the runtime nvidia",
            look=(
                "kubectl describe nodes | grep -A 8 -E 'Allocatable|Allocated'",
                "kubectl get pods -A -o wide | grep -i nvidia",
            ),
            see="see what the nodes offer, and whether the plugin runs",
        ),
    ),
    Cause(
        id="smi-banner-misread",
        place=(Layer.INSTALL, 240),
        title="a tool misreads the banner of nvidia-smi",
        means="From driver 610 on the banner says CUDA UMD Version; old patterns find nothing.",
        proven_by="The tool says that it found no CUDA version, beside such a banner",
        not_when="A driver that is missing or too old",
        way_out="Name the build; update the tool",
        source="nvidia-smi of driver 610",
        message=Message(
            title="{program} misreads the banner of the newer nvidia-smi: the driver is healthy",
            plain="A tool misreads the banner of the newer nvidia-smi: the driver is healthy",
            detail="From driver 610 on nvidia-smi prints `CUDA UMD Version`; tools that search for "
            "`CUDA Version` find none and take the CPU build or their oldest one.",
            text="Name the build instead of letting the tool guess, or update the tool",
            commands=("gpusetup install",),
        ),
    ),
)


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


def toolkit_commands(context: RuleContext) -> tuple[Line, ...]:
    """How the host gets the toolkit, from the repository on, and who then uses it."""
    if ON_WINDOWS(context):
        return BY_DESKTOP
    repository = REPOSITORY.get(packages.distribution(context) or "", ())
    package = packages.system_package(context, "nvidia-container-toolkit")
    if context.snapshot.os.id is None:
        repository, package = BY_APT, lines("sudo apt install -y nvidia-container-toolkit")
    use = CONFIGURED.get(context.snapshot.container.kind or "", CONFIGURED["docker"])
    return (*repository, *package, *use)


WITH_WINDOWS = (
    "Docker Desktop brings the toolkit: use its WSL 2 engine (Settings, General; it has no GPU "
    "with Hyper-V or Windows containers), and update WSL, Docker Desktop and NVIDIA's driver"
)
BY_DESKTOP = lines("wsl --update", "wsl --shutdown", "docker run --rm --gpus all ubuntu nvidia-smi")


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


def _toolkit(context: RuleContext, text: str) -> Fix:
    return Fix(
        text=text,
        commands=toolkit_commands(context),
        looks=paste.look("see first whether the host's driver works", *lines("nvidia-smi -L")),
        needs_root=True,
    )


CONTAINER_TOOLKIT_MISSING = Cause(
    id="container-toolkit-missing",
    impossible=(in_windows_itself, is_lent),
    place=(Layer.BOUNDARY, 10),
    title="Docker has no nvidia device driver or runtime",
    means="The toolkit registers the runtime that puts the driver's files into a container.",
    proven_by="The daemon cannot select a device driver, or knows no runtime nvidia",
    not_when="container-no-gpu: the container starts, without GPUs",
    way_out="Install nvidia-container-toolkit on the host, configure and restart docker",
    source=TOOLKIT,
    explains=(*NO_DRIVER, "container-no-gpu", "driver-missing"),
    message=Message(
        title="Docker has no nvidia device driver: nvidia-container-toolkit is not installed, or "
        "not configured",
        detail="The driver itself may work on the host (`nvidia-smi` shows it).",
        text=f"Install and configure the toolkit on the host ({TOOLKIT_SOURCE}). A docker from "
        "snap (`snap list docker` names it) reads its own configuration and not what these "
        "commands write: take docker's own packages in its place",
        way=_toolkit,
        cases=(
            Message(where=(ON_WINDOWS,), text=WITH_WINDOWS, way=_toolkit),
            Message(
                where=(IN_KUBERNETES,),
                title="The node has no nvidia runtime: nvidia-container-toolkit is not installed, "
                "or not configured",
                text=f"Install and configure the toolkit on the node ({TOOLKIT_SOURCE})",
                way=_toolkit,
            ),
        ),
    ),
)


HOOK = Cause(
    id="container-hook-failed",
    symptom=True,
    likelier=(
        Likelier(
            cause="driver-not-loaded",
            shown=said(
                "container-hook-failed", "driver rpc er|driver not lo|driver error|nvidia driver"
            ),
            because="the toolkit asked the host's driver, and that did not answer",
        ),
        Likelier(
            cause="device-permission",
            shown=said(
                "container-hook-failed",
                "insufficient permissions|no-cgroups|/dev/nvidiactl: permission",
            ),
            because="the toolkit may not open the GPU's device files",
            text="Give the user who starts the container the group of /dev/nvidia* (`ls -l "
            "/dev/nvidia*`); a rootless engine needs `no-cgroups = true` in "
            "/etc/nvidia-container-runtime/config.toml, or CDI",
        ),
        Likelier(
            cause="device-permission",
            shown=said("container-hook-failed", "operation not permitted|devices.(?:allow|deny)"),
            because="the engine may not say which devices the container sees: it runs without "
            "root, or in a container itself",
        ),
        Likelier(
            cause="invalid-device-ordinal",
            shown=said("container-hook-failed", "unknown device"),
            because="the container asks for a GPU that the host does not have",
            text="Name only GPUs that `nvidia-smi -L` lists on the host (`--gpus all`)",
        ),
        Likelier(
            cause="container-toolkit-missing",
            shown=said("container-hook-failed", "error|hook directly|terminate"),
            because="its configuration, its version or its rights do not suit this engine",
        ),
    ),
    place=(Layer.BOUNDARY, 40),
    title="the toolkit cannot prepare a container",
    means="nvidia-container-cli asks the host's driver first, and that fails.",
    proven_by="Its error line",
    not_when="driver-missing, driver-not-loaded or nvml-mismatch of the host, where it says so",
    way_out="Make nvidia-smi work on the host",
    source=TOOLKIT,
    message=Message(
        title="The container gets no GPU: {problem:.100}",
        plain="The container gets no GPU: the toolkit cannot prepare it",
        detail="The toolkit asks the host's driver before the container starts, and brings "
        "its files and devices in.",
        text="Make `nvidia-smi` work on the host first, update nvidia-container-toolkit, "
        "and look at which GPUs and folders the container is given",
        way=_toolkit,
        cases=(
            Message(
                having={"problem": r"^(?!.*not found).*(?:cgroup|bpf|device rules)"},
                text="Update nvidia-container-toolkit; for an engine without root have it leave "
                "control groups alone, and restart that engine (one that runs as root then needs "
                "each device by --device)",
                commands=(
                    "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place",
                    "systemctl --user restart docker",
                ),
                needs_root=True,
            ),
            Message(
                having={"problem": "file exists"},
                text="The image holds a file that the toolkit brings from the host (it was saved "
                "or built inside a container with a GPU, or is of another JetPack): take the image "
                "of this release, or delete the driver's files in its Dockerfile: `RUN rm -f "
                "/usr/lib/*-linux-gnu/libcuda.so* /usr/lib/*-linux-gnu/libnvidia-*.so*`",
            ),
            Message(
                having={"problem": "load library failed"},
                where=(driver_answers,),
                text="The driver answers on the host, and the toolkit does not find its libraries: "
                "the engine runs in another root (docker from snap, Docker Desktop, rootless), or "
                "the loader's cache is old. Write the cache anew; use docker's own packages "
                "instead of snap's or Docker Desktop",
                commands=("sudo ldconfig", "sudo systemctl restart docker"),
                look=("docker context ls; snap list docker; ldconfig -p | grep libnvidia-ml",),
                see="see first which docker it is, and whether the cache names the library",
                needs_root=True,
            ),
        ),
    ),
)


def engine_messages(context: RuleContext) -> Iterator[Finding]:
    yield from from_messages(context, (*MESSAGES, CONTAINER_TOOLKIT_MISSING, HOOK))


RULES = (engine_messages,)
