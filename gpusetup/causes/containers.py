"""Causes at the boundary around the process: containers, and variables that hide GPUs."""

from __future__ import annotations

from gpusetup.causes import alike
from gpusetup.causes.record import Cause, CheckCommand, Message
from gpusetup.evidence import proofs
from gpusetup.evidence.context import RuleContext
from gpusetup.evidence.places import (
    in_an_image_build,
    job_without_gpu,
    on_windows_without_container,
)
from gpusetup.fixes.owners import is_lent
from gpusetup.messages.row import says
from gpusetup.model.finding import Fix
from gpusetup.model.shell import lines

DOCKER = Fix(
    text="Add `--gpus all` to your `docker run` (the command below tests the setting with a plain "
    "image). The host needs the driver and nvidia-container-toolkit",
    commands=lines("docker run --rm --gpus all ubuntu nvidia-smi"),
)

START_WITH_GPU = {
    "podman": Fix(
        text="Start the container again with `--device nvidia.com/gpu=all` (the last command "
        "tests it with a plain image). The host needs nvidia-container-toolkit",
        commands=lines(
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            "podman run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi",
        ),
    ),
    "kubernetes": Fix(
        text="Request a GPU in the pod's specification (resources.limits `nvidia.com/gpu: 1`). "
        "The node needs the NVIDIA device plugin"
    ),
    "singularity": Fix(
        text="Start the container with --nv (`singularity run --nv`, `apptainer run --nv`; this "
        "command tests it with a plain image)",
        commands=lines("singularity exec --nv docker://ubuntu nvidia-smi"),
    ),
    "lxc": Fix(
        text="On the host, give the container the GPU with `lxc config device add`, followed by "
        "the container's name and `gpu gpu`"
    ),
    "none": DOCKER,
    "docker": DOCKER,
}
"""A kind of container -> how to start it with a GPU. The commands must be run on the host."""


def start_with_gpu(context: RuleContext, _text: str = "") -> Fix:
    """How to start this kind of container with a GPU; docker is assumed if the text names no
    kind."""
    kind = context.snapshot.container.kind or "docker"
    return START_WITH_GPU.get(kind) or Fix(text="On the host, start the container with GPUs")


CAUSES = (
    Cause(
        "cuda-visible-devices-hidden",
        check=CheckCommand("python -c \"import os; print(repr(os.environ.get('CUDA_VISIBLE_DEVICES')))\"", "'-1'"),
        title='CUDA_VISIBLE_DEVICES="{value}" hides every GPU from this process',
        means="CUDA ignores everything after the first invalid entry in CUDA_VISIBLE_DEVICES, "
        "and an empty value hides all GPUs. Slurm and Ray set an empty value for a job or task "
        "without a GPU.",
        text="Find out what sets CUDA_VISIBLE_DEVICES (a shell profile, a service, or a line "
        "with os.environ in the program itself), and remove the setting there. As an "
        "alternative, set CUDA_VISIBLE_DEVICES to the GPUs' numbers, counted from 0, or to their "
        "UUIDs. If a scheduler sets the variable, request a GPU from the scheduler",
        # Source: CUDA C++ Programming Guide, environment variables.
        explains=(
            "cuda-sees-no-device", "torch-sees-no-gpu", "gpu-check-failed",
            "invalid-device-ordinal", "mig-misconfigured",
        ),
        events=("gpus-not-given",),
        alike={alike.LIST_GPUS: ("torch-sees-no-gpu", "invalid-device-ordinal")},
        commands=("unset CUDA_VISIBLE_DEVICES",),
        plain="CUDA_VISIBLE_DEVICES hides every GPU from this process",
        cases=(
            Message(
                where=(lambda context: bool(job_without_gpu(context)),),
                title="The Slurm job did not request a GPU, so Slurm hides all GPUs from it",
                text="Request a GPU in the job script (`#SBATCH --gres=gpu:1`) or on the command "
                "line (`--gres=gpu:1`, or `--gpus=1`), on a partition that has GPUs",
                look=("sinfo -o '%P %G %t'", "srun --gres=gpu:1 nvidia-smi -L"),
            ),
        ),
    ),
    Cause(
        "container-nvml-lost",
        check=CheckCommand("nvidia-smi  # in the container, then on the host", "Failed to initialize NVML: Unknown Error"),
        title="This container has no access to its GPU (NVML: Unknown Error)",
        means="A `systemctl daemon-reload` on the host takes away a container's access to GPUs "
        "that systemd does not know about.",
        text="Start the container again (`docker restart NAME`, or `kubectl delete pod NAME`). "
        "To keep the container from losing its GPU again, pass the devices to it by name or by "
        'CDI. As an alternative, let docker use the cgroupfs driver ("exec-opts": '
        '["native.cgroupdriver=cgroupfs"] in /etc/docker/daemon.json), or run `sudo nvidia-ctk '
        "system create-dev-char-symlinks --create-all` on the host",
        # Source: NVIDIA Container Toolkit documentation, troubleshooting.
        impossible=(on_windows_without_container,),
        needs_root=True,
        alike={"nvidia-smi": ("nvml-mismatch", "gpu-fell-off-bus")},
        says=(
            r"(?:initialize )?NVML: Unknown Error",
            r"initiali[sz]e NVML unknown error",
        ),
    ),
    Cause(
        "container-driver-capability-missing",
        title="The container did not get the driver's compute libraries: nvidia-smi works, but "
        "libcuda is missing",
        means="The variable NVIDIA_DRIVER_CAPABILITIES does not contain compute.",
        text="Restart the container with `-e NVIDIA_DRIVER_CAPABILITIES=compute,utility` (the "
        "command below tests the setting with a plain image)",
        # Source: NVIDIA Container Toolkit documentation, troubleshooting.
        commands=(
            'docker run --rm --gpus all -e "NVIDIA_DRIVER_CAPABILITIES=compute,utility" ubuntu '
            "nvidia-smi",
        ),
        alike={alike.LIBCUDA_IN_IT: ("container-no-gpu",)},
        says=(
            says(r"NVIDIA_DRIVER_CAPABILITIES\W{1,4}(?P<capability>(?!all|\S{0,30}compute)(?:utility|video|graphics|display)[\w,]{0,40})", example="NVIDIA_DRIVER_CAPABILITIES=utility"),
            says(r"nvidia-smi\b[^\n]{0,40}?\bcuda(?: version)?(?![a-z])[^\n]{0,16}?N ?/ ?A\b", said="in words", example="in it nvidia-smi shows cuda N/A"),
        ),
    ),
    Cause(
        "container-no-gpu",
        certain_if=proofs.driver_answers_beside_the_container,
        check=CheckCommand("ls /dev/nvidia0  # in the container", "ls: cannot access '/dev/nvidia0': No such file or directory"),
        title="The container was started without a GPU",
        means="A container sees only the GPUs that you give it when it starts, even if the driver "
        "works on the host.",
        text="Give the container a GPU when you start it: `--gpus all`, a CDI device, or a "
        "resource limit in Kubernetes",
        # Source: NVIDIA Container Toolkit documentation, troubleshooting.
        lacks="gpu",
        impossible=(on_windows_without_container, is_lent),
        # Without a driver in the container, CUDA also says that the driver is insufficient.
        explains=("driver-too-old",),
        way=start_with_gpu,
        alike={alike.ON_THE_HOST: ("driver-missing", "container-toolkit-missing")},
        says=(
            "nvidia driver was not detected",
            "start this container with gpu support",
            r"kernel driver does not appear to be running on this host \([0-9a-f]{12}\)",
            says(r"(?P<library>libcuda\.so[.\d]*): file too short", example="ImportError: /usr/lib/libcuda.so.1: file too short"),
            says(r'(?:exec: \\?"nvidia-smi\\?":? (?:executable file )?|"nvidia-smi\\?": executable file )not found', lacks="nvidia-smi", example='docker: Error response from daemon: exec: "nvidia-smi": executable file not found in $PATH: unknown.'),
            says(r"executable file .?nvidia-smi.? not found", lacks="nvidia-smi", example="runc: executable file `nvidia-smi` not found in $PATH"),
        ),
        not_examples=(
            "nvidia-smi not found, says its guide",
            "libfoo.so.1: file too short",
        ),
        cases=(
            Message(
                where=(in_an_image_build,),
                title="An image build has no GPU and no driver, but one of its steps needs them",
                text="Remove the check, the import or the computation from the build, and run it "
                "when the container starts with `--gpus all`. For stable-diffusion-webui use "
                "`--skip-torch-cuda-test`; to build an extension, set TORCH_CUDA_ARCH_LIST to "
                "the GPUs' architectures",
            ),
        ),
    ),
    Cause(
        "k8s-gpu-not-allocatable",
        title="Kubernetes has no free nvidia.com/gpu",
        means="No node offers a GPU, taints keep the pod away, or other pods use all GPUs. A node "
        "offers none if its device plugin does not run, the runtime or the driver is missing, or "
        "the GPU is unhealthy.",
        text="Check which GPUs the nodes offer and which pods use them. A node needs NVIDIA's "
        "device plugin and the runtime nvidia",
        # Source: Kubernetes documentation, schedule GPUs; NVIDIA k8s-device-plugin.
        look=(
            "kubectl describe nodes | grep -A 8 -E 'Allocatable|Allocated'",
            "kubectl get pods -A -o wide | grep -i nvidia",
        ),
        says=(
            says(r"(?P<namespace>[a-z0-9-]{2,40}) +(?P<pod>nvidia-device-plugin[a-z0-9-]{0,60}) +\d+/\d+ +(?:CrashLoopBackOff|Error)", example="kube-system  nvidia-device-plugin-abc12  0/1  CrashLoopBackOff  12 (2m ago)  3d"),
            "waiting for nvidia-smi",
            r"insufficient nvidia\.com/gpu",
            r"\d+ Insufficient nvidia\.com/(?P<asked>[\w.-]+)",
            says(r"Allocate failed due to .{0,80}nvidia\.com/gpu", example="Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu, which is unexpected"),
            r"no devices found\. waiting indefinitely",
            r"(?P<pod>nvidia-(?:device-plugin|container-toolkit|driver|operator-validator)[\w-]*) \d{1,2}/\d{1,2} (?:CrashLoopBackOff|Error|ImagePullBackOff|ErrImagePull|Init:\S{1,24}|ContainerCreating|Pending)\b",
            says(r"untolerated taint \W{0,2}nvidia\.com/gpu", example="0/5 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: true}"),
            says(r"exceeded quota.{0,200}nvidia\.com/gpu", example='pods "train" is forbidden: exceeded quota: team, requested: requests.nvidia.com/gpu=2, used: 4, limited: 4'),
            says(r"\bnvidia\.com/gpu\"?: \"?0\b(?![.\d])", example="Allocatable:\n  cpu: 8\n  nvidia.com/gpu:     0"),
            says(r"\bno (?:GPUs? (?:are|is|were) allocatable|allocatable GPUs?)\b", "allocatable", unless=r"\bif no\b", example="the validation logs suggest that no GPUs are allocatable"),
        ),
        not_examples=(
            "Allocatable:\n  nvidia.com/gpu:     8",
            "nvidia-device-plugin-daemonset-gx2 1/1 Running 0 5d",
        ),
    ),
)  # fmt: skip
