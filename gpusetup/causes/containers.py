"""Containers without a GPU: what the process was given, and what container engines report.

Sources, where a record names no other: NVIDIA Container Toolkit documentation, troubleshooting.
"""

from __future__ import annotations

from gpusetup.causes.record import Cause, CheckCommand, Message, Refutation
from gpusetup.evidence import checks, facts, proofs
from gpusetup.evidence.context import RuleContext, events, on
from gpusetup.evidence.places import in_an_image_build, job_without_gpu
from gpusetup.fixes import needs, paste, system_packages
from gpusetup.messages.row import says
from gpusetup.model.finding import Fix
from gpusetup.model.shell import Lines, lines
from gpusetup.readings.environment import JOB_VARIABLES

DOCKER = Fix(
    text="Add `--gpus all` to your `docker run` (the command below tests the setting with a plain "
    "image). The host needs the driver and nvidia-container-toolkit",
    commands=lines("docker run --rm --gpus all ubuntu nvidia-smi"),
)

PODMAN_BY_CDI = lines(
    "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    "podman run --rm --device nvidia.com/gpu=all --security-opt=label=disable ubuntu nvidia-smi",
)

START_WITH_GPU = {
    "podman": Fix(
        text="Start the container again with `--device nvidia.com/gpu=all` (the last command "
        "tests it with a plain image). The host needs nvidia-container-toolkit",
        commands=PODMAN_BY_CDI,
    ),
    "kubernetes": Fix(
        text="Request a GPU in the pod's specification (resources.limits `nvidia.com/gpu: 1`). "
        "The node needs the NVIDIA device plugin"
    ),
    "singularity": Fix(
        text="Start the container with --nv (`singularity run --nv`, `apptainer run --nv`; the "
        "command below tests it with a plain image)",
        commands=lines("singularity exec --nv docker://ubuntu nvidia-smi"),
    ),
    "lxc": Fix(
        text="On the host, add the GPU to the container: `lxc config device add CONTAINER gpu gpu`"
    ),
    "none": DOCKER,
    "docker": DOCKER,
}
"""A kind of container -> how to start it with a GPU; `none` is the host itself, where docker starts
the container. The commands must be run on the host."""


def start_with_gpu(context: RuleContext, _text: str = "") -> Fix:
    """How to start this kind of container with a GPU; docker if the text names no kind."""
    kind = context.snapshot.container.kind or "docker"
    return START_WITH_GPU.get(kind) or Fix(text="On the host, start the container with GPUs")


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

REPOSITORY = {
    **dict.fromkeys(("ubuntu", "debian"), BY_APT),
    **dict.fromkeys(("fedora", "rhel"), BY_DNF),
}
"""A distribution -> the commands that add NVIDIA's repository (from the toolkit's guide, November
2026). Arch's own repositories have the package."""


def toolkit_commands(context: RuleContext) -> Lines:
    """The commands that install NVIDIA's container toolkit on the host and configure the engine."""
    # Docker Desktop on Windows runs in WSL and includes the toolkit.
    if on(context, "windows"):
        return lines(
            "wsl --update", "wsl --shutdown", "docker run --rm --gpus all ubuntu nvidia-smi"
        )
    # A text that names no system is mostly about Ubuntu. A named one that is not known gets no
    # package commands.
    is_named = context.os.id or context.os.name
    family = system_packages.linux_family(context) or ("" if is_named else "ubuntu")
    repository = REPOSITORY.get(family, ())
    package = system_packages.package_of(family, "nvidia-container-toolkit")
    kind = context.snapshot.container.kind or ""
    if kind == "kubernetes":
        configure = (*node_commands(context), *lines("kubectl get runtimeclass nvidia"))
    else:
        configure = CONFIGURED.get(kind, CONFIGURED["docker"])
    return (*repository, *package, *configure)


ENGINES = {"cri-o": "crio", "crio": "crio", "containerd": "containerd", "docker": "docker"}
"""An engine's name as people write it -> its name for `nvidia-ctk` and systemd. k3s, rke2 and
microk8s are not included because they find the runtime themselves when they start."""


def node_commands(context: RuleContext) -> Lines:
    """The commands that configure the node's container engine for the toolkit; () if the text names
    no engine, or one that is not in `ENGINES`."""
    for event in events(context, "container-engine"):
        if engine := ENGINES.get(event.values.get("engine", "").lower()):
            configure = f"sudo nvidia-ctk runtime configure --runtime={engine} --set-as-default"
            # CRI-O does not read the folder that nvidia-ctk 1.18 writes to.
            if engine == "crio":
                configure += " --drop-in-config=/etc/crio/crio.conf.d/99-nvidia.conf"
            return lines(configure, f"sudo systemctl restart {engine}")
    return ()


CONFIGURED = {
    "docker": lines(
        "sudo nvidia-ctk runtime configure --runtime=docker",
        "sudo systemctl restart docker",
        "docker run --rm --gpus all ubuntu nvidia-smi",
    ),
    "podman": PODMAN_BY_CDI,
}
"""An engine -> the commands that configure it for the toolkit and check the result."""


def _toolkit(context: RuleContext, text: str) -> Fix:
    """Install NVIDIA's container toolkit for the engine. If the engine is unknown, the fix only
    says which information is needed."""
    if unread := needs.unread(context, needs.ENGINE):
        return Fix(text=text, needs=unread, needs_root=True)
    return Fix(
        text=text,
        commands=toolkit_commands(context),
        looks=paste.titled("check first whether the host's driver works", *lines("nvidia-smi -L")),
        needs_root=True,
    )


CAUSES = (
    Cause(
        "cuda-visible-devices-hidden",
        by_check=True,
        check=CheckCommand("python -c \"import os; print(repr(os.environ.get('CUDA_VISIBLE_DEVICES')))\"", "'-1'"),
        title='CUDA_VISIBLE_DEVICES="{value}" hides every GPU from this process',
        means="CUDA ignores everything after the first invalid entry in CUDA_VISIBLE_DEVICES, and "
        "an empty value hides all GPUs. Slurm and Ray leave the variable empty for jobs and tasks "
        "that request no GPU.",
        text="Find out what sets the variable (a shell profile, a service, or a line with "
        "os.environ in the program), and remove the setting there, or set it to the GPUs' "
        "numbers, counted from 0. If a scheduler sets it, request a GPU from the scheduler",
        # Source: CUDA C++ Programming Guide, environment variables.
        explains=("invalid-device-ordinal", "mig-misconfigured"),
        events=("gpus-not-given",),
        asks=(checks.LIST_GPUS,),
        commands=("unset CUDA_VISIBLE_DEVICES",),
        plain="CUDA_VISIBLE_DEVICES hides every GPU from this process",
        cases=(
            Message(
                where=(lambda context: bool(job_without_gpu(context)),),
                title="The Slurm job did not request a GPU, so Slurm hides all GPUs from it",
                text="Request a GPU in the job script (`#SBATCH --gres=gpu:1`) or on the command "
                "line (`--gres=gpu:1`), on a partition that has GPUs",
            ),
            # The scheduler sets the variable; to remove it would use the GPUs of other jobs.
            Message(
                where=(lambda context: bool(JOB_VARIABLES & context.snapshot.environment.keys()),),
                text="The batch system sets this variable to the job's GPUs. Request a GPU in the "
                "job script (Slurm: `#SBATCH --gres=gpu:1`), and do not remove the variable",
            ),
        ),
    ),
    Cause(
        "container-nvml-lost",
        by_check=True,
        check=CheckCommand("nvidia-smi  # in the container, then on the host", "Failed to initialize NVML: Unknown Error"),
        title="This container has no access to its GPU (NVML: Unknown Error)",
        means="Running `systemctl daemon-reload` on the host removes a container's access to GPUs "
        "that systemd does not know about.",
        text="Start the container again (`docker restart NAME`, or `kubectl delete pod NAME`). To "
        "keep the container from losing its GPU again, pass the GPU's devices to it by name or "
        'with CDI, or switch Docker to the cgroupfs driver ("exec-opts": '
        '["native.cgroupdriver=cgroupfs"] in /etc/docker/daemon.json)',
        needs_root=True,
        asks=("nvidia-smi",),
        says=(
            r"(?:initialize )?NVML: Unknown Error",
            r"initiali[sz]e NVML unknown error",
        ),
    ),
    Cause(
        "container-driver-capability-missing",
        by_check=True,
        check=CheckCommand("env | grep NVIDIA_DRIVER_CAPABILITIES; ldconfig -p | grep libcuda  # in the container", "NVIDIA_DRIVER_CAPABILITIES=utility"),
        title="The container has nvidia-smi but lacks the driver's compute libraries (libcuda)",
        means="The toolkit mounts libcuda only if NVIDIA_DRIVER_CAPABILITIES includes `compute`.",
        text="Restart the container with `-e NVIDIA_DRIVER_CAPABILITIES=compute,utility` (the "
        "command below tests it with a plain image). Often the image's `ENV` omits `compute`",
        commands=(
            'docker run --rm --gpus all -e "NVIDIA_DRIVER_CAPABILITIES=compute,utility" ubuntu '
            "sh -c 'ldconfig -p | grep libcuda'",
        ),
        asks=("ldconfig -p | grep libcuda  # in the container",),
        says=(
            says(r"NVIDIA_DRIVER_CAPABILITIES\W{1,4}(?P<capability>(?!all|\S{0,30}compute)(?:utility|video|graphics|display)[\w,]{0,40})", example="NVIDIA_DRIVER_CAPABILITIES=utility"),
        ),
    ),
    Cause(
        "container-no-gpu",
        by_check=True,
        check=CheckCommand("ls /dev/nvidia0  # in the container", "ls: cannot access '/dev/nvidia0': No such file or directory"),
        title="The container was started without a GPU",
        means="A container sees only the GPUs that you give it when it starts, even if the driver "
        "works on the host.",
        text="Give the container a GPU when you start it: `--gpus all`, a CDI device, or a "
        "resource limit in Kubernetes",
        lacks="gpu",
        fix_for=start_with_gpu,
        asks=(checks.SMI_ON_HOST,),
        says=(
            r"nvidia driver was not detected|start this container with gpu support",
            r"kernel driver does not appear to be running on this host \([0-9a-f]{12}\)",
            says(r"(?P<library>libcuda\.so[.\d]*): file too short", example="ImportError: /usr/lib/libcuda.so.1: file too short"),
            says(r'(?:exec: \\?"nvidia-smi\\?":? (?:executable file )?|"nvidia-smi\\?": executable file )not found|executable file .?nvidia-smi.? not found', example='docker: Error response from daemon: exec: "nvidia-smi": executable file not found in $PATH: unknown.', lacks="nvidia-smi"),
        ),
        cases=(
            Message(
                where=(in_an_image_build,),
                title="An image build has no GPU and no driver, but one of its steps needs them",
                text="Run the check, the import or the computation when the container starts (with "
                "`--gpus all`), not during the build. For stable-diffusion-webui use "
                "`--skip-torch-cuda-test`; to build an extension, set TORCH_CUDA_ARCH_LIST",
            ),
        ),
        certain_if=proofs.smi_runs_on_the_host_only,
        explains=("amd-gpu", "intel-gpu"),
        formerly=("container-no-maker-gpu",),
    ),
    Cause(
        "k8s-gpu-not-allocatable",
        title="No node of the cluster has a free GPU (nvidia.com/gpu)",
        means="No node offers a GPU, taints keep the pod away, or other pods use all GPUs. A node "
        "offers no GPU if its device plugin, runtime or driver is missing, or the GPU is "
        "unhealthy.",
        text="Check which GPUs the nodes offer and which pods use them. A node needs NVIDIA's "
        "device plugin and the nvidia runtime",
        # Source: Kubernetes documentation, schedule GPUs; NVIDIA k8s-device-plugin.
        look=(
            "kubectl describe nodes | grep -A 10 -E 'Allocatable|Allocated'",
            "kubectl get pods -A -o wide | grep -i nvidia",
        ),
        says=(
            says(r"waiting for nvidia-smi|insufficient nvidia\.com/gpu|no devices found\. waiting indefinitely|untolerated taint \W{0,2}nvidia\.com/gpu|exceeded quota.{0,200}nvidia\.com/gpu|Allocate failed due to .{0,80}nvidia\.com/gpu", example="0/5 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: true}"),
            r"\d+ Insufficient nvidia\.com/(?P<asked>[\w.-]+)",
            says(r"(?P<pod>nvidia-(?:device-plugin|container-toolkit|driver|operator-validator)[\w-]*) \d{1,2}/\d{1,2} (?:CrashLoopBackOff|Error|ImagePullBackOff|ErrImagePull|Init:\S{1,24}|ContainerCreating|Pending)\b", example="nvidia-device-plugin-daemonset-x2 0/1 CrashLoopBackOff 12"),
            says(r"\bnvidia\.com/gpu\"?: \"?0\b(?![.\d])", example="Allocatable:\n  cpu: 8\n  nvidia.com/gpu:     0"),
        ),
    ),
    Cause(
        "container-cdi-unresolvable",
        title="The container engine cannot resolve the CDI device {device}",
        plain="The container engine cannot resolve the CDI device nvidia.com/gpu",
        means="The host's CDI specification for its GPUs is missing or outdated, or the engine "
        "(rootless, remote, or an old podman) does not read the folder that contains it.",
        text="Create the CDI specification on the host, and again after every driver update. The "
        "host needs the driver and nvidia-container-toolkit",
        # Source: NVIDIA Container Toolkit documentation, CDI support.
        commands=(
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            "nvidia-ctk cdi list",
        ),
        cases=(
            Message(
                having={"old_podman": ""},
                text="Update podman to 4.1 or newer (Ubuntu 24.04 has 4.9), because older versions "
                "do not support CDI devices",
            ),
        ),
        says=(
            r"failed to stat CDI host device \W{0,3}(?P<device>/dev/[\w./-]+)",
            r"unresolvable CDI devices? [\[\"']?(?P<device>[\w./=:-]+)",
            says(r"could not select device driver \W{0,4}cdi\b", example='could not select device driver "cdi" with capabilities: [[gpu]]'),
            says(r"(?:failed to|could not) (?:inject|resolve) CDI devices?", example="failed to inject CDI devices: unresolvable"),
            says(r"podman version (?P<old_podman>[0-3]\.\d{1,2}|4\.0)\..{0,900}?stat (?P<device>nvidia\.com/gpu=\w+): no such file", example="podman version 3.4.4\nError: stat nvidia.com/gpu=all: no such file"),
            says(r"stat (?P<device>nvidia\.com/gpu=\w+): no such file", example="Error: stat nvidia.com/gpu=all: no such file or directory"),
        ),
    ),
    Cause(
        "container-toolkit-missing",
        check=CheckCommand("docker run --rm --gpus all ubuntu nvidia-smi", "docker: Error response from daemon: could not select device driver" ' "" with capabilities: [[gpu]].'),
        refuted_by=(
            Refutation(facts.toolkit_is_installed_on_kubernetes, "container-runtime-not-default"),
            Refutation(facts.toolkit_is_installed, "docker-other-daemon", "docker context ls"),
            Refutation(facts.has_no_nvidia_gpu),
        ),
        title="Docker cannot give containers an NVIDIA GPU: nvidia-container-toolkit is not "
        "installed or not configured",
        means="The toolkit registers the runtime that mounts the driver's files into containers.",
        text="Install and configure the toolkit on the host (in Kubernetes, on the node): see "
        f"{TOOLKIT_SOURCE}. If you installed Docker with snap (`snap list docker` shows it), first "
        "replace it with Docker's own packages",
        fix_for=_toolkit,
        says=(
            says(r"could not select device driver \W{0,4}(?P<runtime>(?!cdi)\w*)\W{0,4} ?with capabilities", example='docker: Error response from daemon: could not select device driver "nvidia" with capabilities: [[gpu]].'),
            says(r"unknown(?: or invalid)? runtime (?:name|specified):? \W?(?P<runtime>nvidia)", example="Error: unknown runtime specified nvidia"),
            says(r"(?P<runtime>nvidia-container-(?:runtime|cli|toolkit)[\w-]*)\W{1,5}(?:executable file not found|no such file|not found)", example="fork/exec: nvidia-container-runtime: executable file not found in $PATH"),
            says(r"nvidia-docker: (?:command )?not found", example="bash: nvidia-docker: command not found"),
            says(r"did you configure the nvidia container toolkit|could not load nvml library|invalid device discovery strategy", runtime="nvidia"),
        ),
    ),
    Cause(
        "container-hook-failed",
        title="The container got no GPU: {problem:.100}",
        means="Before a container starts, NVIDIA's toolkit queries the host's driver and mounts the "
        "driver's files and devices.",
        text="Make `nvidia-smi` work on the host. Then update nvidia-container-toolkit, and check "
        "the GPUs and folders that you pass to the container",
        symptom=True,
        fix_for=_toolkit,
        says=(
            r"nvidia-container-cli(?:\.real)?: (?P<problem>[a-z -]{3,30} error: (?![^\\\"']{0,300}no adapters were found)[^\\\"']{3,300})",
            says(r"(?P<problem>error executing hook `?\S{0,60}nvidia-(?:container-(?:toolkit|runtime-hook)|cdi-hook|ctk)`? \(exit code: \d{1,3}\))", example="Error: error executing hook `/usr/bin/nvidia-container-toolkit` (exit code: 1): OCI runtime error"),
        ),
    ),
    Cause(
        "container-runtime-not-default",
        title="The node's container runtime does not start this pod with the nvidia runtime",
        means="The engine that starts the pods was not configured for nvidia-container-toolkit, or "
        "was not restarted afterwards.",
        text="Configure nvidia-container-toolkit (install it if `nvidia-ctk` is missing) for the "
        "node's own container engine, and restart that engine. Or set `runtimeClassName: nvidia` for the pod",
        # Source: NVIDIA k8s-device-plugin, prerequisites; NVIDIA Container Toolkit documentation.
        needs_root=True,
        commands=node_commands,
        says=(
            says(r"no runtime for \W{0,2}nvidia\W{0,2} is configured", example='Failed to create pod sandbox: no runtime for "nvidia" is configured'),
        ),
    ),
    Cause(
        "docker-other-daemon",
        check=CheckCommand("docker context ls", "NAME              DESCRIPTION      DOCKER ENDPOINT\ndefault                            unix:///var/run/docker.sock\ndesktop-linux *   Docker Desktop   unix:///home/me/.docker/desktop/docker.sock"),
        title="docker is connected to a daemon that has no nvidia runtime",
        means="Docker Desktop, rootless docker and docker from snap each have their own daemon "
        "and configuration, and none of them reads /etc/docker/daemon.json.",
        text="You do not need to install anything. Switch to the host's own daemon (`docker "
        "context use default`), and restart that daemon if you have not done so since you "
        "configured the runtime. Docker Desktop on Linux and docker from snap cannot pass a GPU to "
        "a container. For rootless docker, configure the toolkit with "
        "--config=$HOME/.config/docker/daemon.json",
        # Source: NVIDIA Container Toolkit documentation, rootless mode; Docker documentation.
    ),
)  # fmt: skip
